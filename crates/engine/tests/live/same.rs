//! Inodes that were known from the last backup and are looked at late, when their names may have
//! changed hands.

use super::backup::{Bench, INODE, UNFROZEN, hardly_any};
use super::hooks::Meddler;
use super::mounts::*;
use bale_pipeline::monitor::Recorder;
use bale_testkit::Tree;
use std::fs;
use std::path::Path;
use std::time::Duration;

const OF_EACH: usize = 60;

fn fill(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for number in 0..OF_EACH {
        for name in ["stays", "goes", "replaced", "turned", "linked"] {
            let path = directory.join(format!("{name}{number}"));
            fs::write(path, format!("{name} {number}")).unwrap();
        }
    }
}

/// Unlinks, renames over, makes directories of files; what is new takes the inodes that become
/// free.
fn change_hands(directory: &Path) {
    for number in 0..OF_EACH {
        let path = |name: &str| directory.join(format!("{name}{number}"));
        fs::remove_file(path("goes")).unwrap();
        fs::write(path("new"), format!("another {number}")).unwrap();
        fs::rename(path("new"), path("replaced")).unwrap();
        fs::remove_file(path("turned")).unwrap();
        fs::create_dir(path("turned")).unwrap();
        fs::write(path("turned").join("within"), format!("within {number}")).unwrap();
        fs::hard_link(path("linked"), path("link")).unwrap();
        fs::write(path("fresh"), format!("fresh {number}")).unwrap();
    }
    run("sync", &["-f", directory.to_str().unwrap()]);
}

/// Other files get the names that nothing happened to so far, and others still their inodes.
fn replace_the_rest(directory: &Path) {
    for number in 0..OF_EACH {
        let path = |name: &str| directory.join(format!("{name}{number}"));
        fs::write(path("late"), format!("late {number}")).unwrap();
        fs::rename(path("late"), path("stays")).unwrap();
        fs::write(path("thief"), format!("thief {number}")).unwrap();
    }
    run("sync", &["-f", directory.to_str().unwrap()]);
}

#[test]
fn names_that_change_hands_before_their_known_inodes_are_looked_at_are_right() {
    if !can_mount() {
        return;
    }
    for (kind, way) in FILESYSTEMS.map(|kind| (kind, [INODE, UNFROZEN])) {
        for way in way {
            let mut bench = Bench::on(Mounted::new(kind, 512), way, hardly_any());
            let (before, after) = (bench.source().join("before"), bench.source().join("after"));
            fill(&before);
            // Old enough to be settled.
            std::thread::sleep(Duration::from_millis(50));
            bench.backup();
            // Their rows are not found, so the inodes are looked at.
            fs::rename(&before, &after).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            let meddler = Meddler {
                gathered: &|| change_hands(&after),
                looked_again: &|| replace_the_rest(&after),
                recorder: Recorder::default(),
            };
            bench.backup_told_to(&meddler);
            let problems = meddler.recorder.problems.into_inner().unwrap();
            assert!(problems.is_empty(), "{kind} {way:?}: {problems:?}");
            let restored = Tree::read(&bench.restore().expect("the source"));
            let now = Tree::read(&bench.source());
            // These were there all the time, and were two things.
            let is_of_both = |path: &[u8]| {
                let starts = ["after/stays", "after/late", "after/thief"];
                path == b"after"
                    || starts
                        .iter()
                        .any(|start| path.starts_with(start.as_bytes()))
            };
            let differing = restored.differences(&now).into_iter();
            let differing: Vec<_> = differing.filter(|path| !is_of_both(path)).collect();
            assert!(differing.is_empty(), "{kind} {way:?}: {differing:?}");
            for number in 0..OF_EACH {
                let name = format!("after/stays{number}");
                let found = restored.0.get(name.as_bytes());
                let found = found.map(|node| String::from_utf8_lossy(&node.content));
                let possible = [format!("stays {number}"), format!("late {number}")];
                assert!(
                    possible
                        .iter()
                        .any(|one| Some(&one[..]) == found.as_deref()),
                    "{kind} {way:?}: {name} is {found:?}"
                );
            }
            bench.next_backup_has_every_byte();
        }
    }
}
