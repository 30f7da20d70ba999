//! Names that come, go and move while somebody lists them.

use super::content::FileContent;
use super::log::{Log, Manner};
use crate::choices::Choices;
use bale_pipeline::random::SeededRandom;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const DIRECTORIES: usize = 3;
const FILES: u32 = 40;
/// Names that there can be in each directory.
const NAMES: usize = 60;
/// A directory of this many names moves about.
const MOVED_NAMES: usize = 5;
const PAUSE_MAX_US: usize = 2000;

/// Makes the files whose names change; their content never does.
pub(super) fn create(root: &Path, log: &Log) {
    for directory in 0..DIRECTORIES {
        fs::create_dir_all(root.join(format!("names/{directory}"))).expect("a directory of ours");
    }
    fs::create_dir(root.join("moving")).expect("a directory of ours");
    for number in 0..FILES {
        let path = path(number as usize % DIRECTORIES, number as usize);
        let content = content(number);
        let write = || fs::write(root.join(&path), content.bytes()).expect("a file of ours");
        log.step(&[(&path, Some(content.clone()))], Manner::AtOnce, write);
    }
}

fn path(directory: usize, name: usize) -> String {
    format!("names/{directory}/{name}")
}

fn content(number: u32) -> FileContent {
    FileContent::whole(3_000_000 + number, 1, 1000 + u64::from(number) * 100)
}

/// Links, renames and removes names, until told to stop. No file loses its last name.
pub(super) fn link_and_rename(root: &Path, seed: u64, stop: &AtomicBool, log: &Log) {
    let mut random = SeededRandom::new(seed ^ 0x6e61);
    let mut names: BTreeMap<String, FileContent> = log
        .last_states()
        .into_iter()
        .filter(|(path, _)| path.starts_with("names/"))
        .filter_map(|(path, content)| Some((path, content?)))
        .collect();
    while !stop.load(Ordering::Relaxed) {
        let at = random.pick(names.len());
        let (from, content) = names
            .iter()
            .nth(at)
            .map(|(path, content)| (path.clone(), content.clone()))
            .expect("some are left");
        let to = path(random.pick(DIRECTORIES), random.pick(NAMES));
        let links_of =
            |content: &FileContent| names.values().filter(|other| *other == content).count();
        let places = (root.join(&from), root.join(&to));
        match (random.pick(3), names.get(&to)) {
            (0, None) => {
                log.step(&[(&to, Some(content.clone()))], Manner::AtOnce, || {
                    fs::hard_link(places.0, places.1).expect("names of ours");
                });
                names.insert(to, content);
            }
            // Of two names of one file, rename does nothing.
            (1, old) if old.is_none_or(|old| *old != content && links_of(old) > 1) => {
                let changes = [(&from[..], None), (&to[..], Some(content.clone()))];
                log.step(&changes, Manner::AtOnce, || {
                    fs::rename(places.0, places.1).expect("names of ours");
                });
                names.remove(&from);
                names.insert(to, content);
            }
            (2, _) if links_of(&content) > 1 => {
                log.step(&[(&from, None)], Manner::AtOnce, || {
                    fs::remove_file(places.0).expect("a name of ours");
                });
                names.remove(&from);
            }
            _ => {}
        }
        let pause = random.pick(PAUSE_MAX_US) as u64;
        std::thread::sleep(Duration::from_micros(pause));
    }
}

/// Makes, fills, moves and removes directories: paths change whose files nobody touched. Not
/// logged.
pub(super) fn move_directories(root: &Path, seed: u64, stop: &AtomicBool) {
    let mut random = SeededRandom::new(seed ^ 0x6d6f);
    let moving = root.join("moving");
    while !stop.load(Ordering::Relaxed) {
        let from = moving.join(random.pick(6).to_string());
        match random.pick(4) {
            0 | 1 => {
                let below = random.pick(6).to_string();
                let to = [
                    moving.join(&below),
                    moving.join(random.pick(6).to_string()).join(&below),
                ];
                // Into itself, over one that is not empty, or gone: what does not work is left.
                let _ = fs::rename(&from, &to[random.pick(2)]);
            }
            2 if fs::create_dir(&from).is_ok() => {
                for name in 0..MOVED_NAMES {
                    let _ = fs::write(
                        from.join(format!("file{name}")),
                        format!("{name} of {from:?}"),
                    );
                }
            }
            3 if random.pick(4) == 0 => {
                let _ = fs::remove_dir_all(&from);
            }
            _ => {}
        }
        std::thread::sleep(Duration::from_micros(random.pick(PAUSE_MAX_US) as u64 * 2));
    }
}
