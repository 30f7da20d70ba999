//! Clocks that are wrong, and caches that somebody deleted, damaged or took from elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use super::steps::{Clock, Spoil};
use super::world::World;

pub fn clock(world: &mut World, step: Clock) {
    use bale_pipeline::clock::Clock as _;
    match step {
        Clock::Forward(by) => {
            world.clock.advance(by);
            // A day more or less is real; years are an error.
            if by.as_secs() < 50 * 24 * 3600 {
                world.right += by;
            }
        }
        Clock::Back(by) => {
            let now = world.clock.now();
            world.clock.set(now.checked_sub(by).unwrap_or(now));
        }
        Clock::Right => world.clock.set(world.right),
    }
}

pub fn cache(world: &World, host: usize, nth: usize, how: Spoil) {
    let cache = world.cache(host);
    let files = files_below(&cache);
    if files.is_empty() {
        return;
    }
    let file = &files[nth % files.len()];
    match how {
        Spoil::RemoveAll => fs::remove_dir_all(&cache).expect("a cache of our own"),
        Spoil::Remove => fs::remove_file(file).expect("a file of our own"),
        Spoil::Flip => {
            let mut bytes = fs::read(file).expect("a file of our own");
            if !bytes.is_empty() {
                let at = (nth * 977 + 13) % bytes.len();
                bytes[at] ^= 4;
                fs::write(file, bytes).expect("a file of our own");
            }
        }
        Spoil::Cut => {
            let bytes = fs::read(file).expect("a file of our own");
            fs::write(file, &bytes[..bytes.len() / 2]).expect("a file of our own");
        }
        Spoil::Foreign => {
            let others = world.cache(1 - host.min(1));
            let below = file.strip_prefix(&cache).expect("below the cache");
            // Where the other has none, nothing happens.
            let _copied = fs::copy(others.join(below), file);
        }
    }
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(path) = waiting.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            match entry.path().is_dir() {
                true => waiting.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    found
}
