//! Names that are listed and not found: what is gone is a note, what cannot be reached is a
//! problem.

use crate::walk_support::{LoopMount, TempPlace, Walked, is_root, threads, walk, without_slash};
use bale_format::entry::{EntryFlags, Kind};
use bale_source::scan::{NoteKind, ScanItem, ScanOptions, Scanner, Sources};
use std::path::Path;

/// Walks without workers, so that nothing is looked at before it is asked for; `change` happens
/// when `name` has been seen.
fn walk_changing(place: &Path, name: &str, change: impl FnOnce()) -> Walked {
    let (sources, _) = Sources::resolve(&[place]).unwrap();
    let mut walked = Walked::default();
    let mut change = Some(change);
    for item in Scanner::start(&sources, threads(0)).unwrap() {
        if let ScanItem::Entries(batch) = &item
            && batch.entries.iter().any(|entry| entry.name == name)
            && let Some(change) = change.take()
        {
            change();
        }
        walked.push(item);
    }
    assert!(change.is_none(), "{name} was not seen");
    walked
}

fn about(walked: &Walked) -> Vec<Vec<u8>> {
    let problems = walked.problems.iter();
    problems.map(|problem| problem.path.clone()).collect()
}

/// SRC-07: the directory block names them all, but its hashes are of another seed: the kernel lists
/// what it cannot find.
#[test]
fn names_that_a_damaged_directory_lists_and_does_not_find_are_problems() {
    let place = TempPlace::new();
    let plain = ["mkfs.ext4", "-q", "-F", "-O", "^metadata_csum"];
    let Some(mount) = LoopMount::of_kind(&place, "hashed", 64, &plain) else {
        return;
    };
    let directory = mount.point.join("many");
    std::fs::create_dir(&directory).unwrap();
    for number in 0..3000 {
        std::fs::write(directory.join(format!("file {number}")), "x").unwrap();
    }
    crate::walk_support::run("umount", &[mount.point.to_str().unwrap()]);
    let seed = "set_super_value hash_seed 01234567-89ab-cdef-0123-456789abcdef";
    crate::walk_support::run("debugfs", &["-w", "-R", seed, &mount.device]);
    let read_only = ["-o", "ro", &mount.device, mount.point.to_str().unwrap()];
    crate::walk_support::run("mount", &read_only);
    // It does not list them all, either.
    let listed = std::fs::read_dir(&directory).unwrap();
    let listed: std::collections::BTreeSet<_> =
        listed.map(|entry| entry.unwrap().file_name()).collect();
    for options in [threads(0), ScanOptions::default()] {
        let walked = walk(&[&mount.point], options);
        let found = walked.below(&directory).len();
        assert!(found < listed.len(), "nothing is damaged");
        assert_eq!(walked.problems.len(), listed.len() - found);
        assert!(walked.notes.is_empty(), "{:?}", walked.notes[0]);
        let text = walked.problems[0].error.to_string();
        assert!(text.contains("lists it"), "{text}");
        let (key, flags) = &walked.amends[0];
        assert_eq!(
            (&key.name[..], *flags),
            (&b"many"[..], EntryFlags::UNREADABLE)
        );
    }
}

#[test]
fn a_directory_that_is_renamed_before_it_is_entered_is_a_problem() {
    let place = TempPlace::new();
    place.write("src/a/other", b"x");
    for number in 0..500 {
        place.write(&format!("src/b/{number}"), b"x");
    }
    let (b, moved) = (place.join("src/b"), place.join("src/a/b"));
    let walked = walk_changing(&place.join("src"), "other", || {
        std::fs::rename(&b, &moved).unwrap();
    });
    assert_eq!(about(&walked), [without_slash(&b)]);
    let text = walked.problems[0].error.to_string();
    assert!(text.contains("moved"), "{text}");
    assert_eq!(walked.find(&b).unwrap().kind, Kind::Directory);
    let (key, flags) = &walked.amends[0];
    assert_eq!((&key.name[..], *flags), (&b"b"[..], EntryFlags::UNREADABLE));
}

#[test]
fn a_directory_that_is_removed_before_it_is_entered_is_a_note() {
    if !is_root() {
        return;
    }
    for parent in ["/tmp", "/dev/shm"] {
        let place = tempfile::tempdir_in(parent).unwrap();
        let place = place.path().canonicalize().unwrap();
        let gone = place.join("b/c");
        std::fs::create_dir_all(place.join("a")).unwrap();
        std::fs::create_dir_all(&gone).unwrap();
        std::fs::write(gone.join("file"), "x").unwrap();
        let walked = walk_changing(&place, "b", || {
            std::fs::remove_dir_all(place.join("b")).unwrap();
            // Another one has its place among the inodes, perhaps.
            std::fs::create_dir(place.join("d")).unwrap();
        });
        assert!(walked.problems.is_empty(), "{:?}", walked.problems);
        let [note] = &walked.notes[..] else {
            panic!("{:?}", walked.notes);
        };
        assert_eq!(note.kind, NoteKind::Vanished);
        assert_eq!(note.path, without_slash(&place.join("b")));
    }
}

/// What comes back is there, and not in the snapshot.
#[test]
fn a_directory_that_is_replaced_by_a_file_or_comes_back_is_a_problem() {
    let place = TempPlace::new();
    place.write("a/file", b"x");
    place.write("b/file", b"x");
    let b = place.join("b");
    let as_file = walk_changing(&place.path, "b", || {
        std::fs::remove_dir_all(&b).unwrap();
        std::fs::write(&b, "x").unwrap();
    });
    assert_eq!(about(&as_file), [without_slash(&b)]);
    std::fs::remove_file(&b).unwrap();
    place.write("b/file", b"x");
    let again = walk_changing(&place.path, "b", || {
        std::fs::remove_dir_all(&b).unwrap();
        std::fs::create_dir(place.join("in between")).unwrap();
        std::fs::create_dir(&b).unwrap();
    });
    assert_eq!(about(&again), [without_slash(&b)]);
}
