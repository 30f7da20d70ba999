//! Trees of files that are made at random, the same of the same seed, and what is in one.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

/// By path: what it is, its length, and a hash of what it holds.
pub type Tree = BTreeMap<PathBuf, (u32, u64, u64)>;

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// Makes, changes and removes files of all lengths; `rounds` of some dozens.
pub fn churn(root: &Path, seed: u64, rounds: u64) {
    let mut random = Random(seed);
    for round in 0..rounds {
        let dir = root.join(format!("dir{seed}-{}", round % 7));
        fs::create_dir_all(&dir).unwrap();
        for file in 0..30 {
            let path = dir.join(format!("file{file}-{round}-{}", "x".repeat(file * 3)));
            let len = match file {
                0..10 => random.below(3000),
                10..25 => random.below(60_000),
                _ => random.below(900_000),
            };
            let content = random.bytes(len.min(4096) as usize);
            let file = fs::File::create(&path).unwrap();
            for at in (0..len).step_by(4096) {
                file.write_all_at(&content, at).unwrap();
            }
        }
        let holes = fs::File::create(dir.join(format!("holes{round}"))).unwrap();
        for _ in 0..40 {
            let at = random.below(8 << 20);
            holes.write_all_at(&random.bytes(700), at).unwrap();
        }
        symlink(
            "somewhere/else".repeat(1 + round as usize % 20),
            dir.join(format!("link{round}")),
        )
        .unwrap();
        // What is removed leaves free blocks between those in use.
        for (number, path) in paths_in(&dir).into_iter().enumerate() {
            if number % 3 == round as usize % 3 && path.is_file() {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

/// Leaves thousands of free stretches of one block each, so that trees of them have levels.
pub fn scatter(root: &Path, files: usize) {
    let dir = root.join("scattered");
    fs::create_dir(&dir).unwrap();
    let name = |number: usize| dir.join(format!("{number}"));
    for number in 0..files {
        fs::write(name(number), vec![number as u8; 700]).unwrap();
    }
    // Blocks are given out now, one behind the other.
    fs::File::open(&dir).unwrap().sync_all().unwrap();
    rustix::fs::syncfs(fs::File::open(&dir).unwrap()).unwrap();
    for number in (0..files).step_by(2) {
        fs::remove_file(name(number)).unwrap();
    }
}

fn paths_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

pub fn tree_of(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in paths_in(&dir) {
            let facts = path.symlink_metadata().unwrap();
            let mut hasher = DefaultHasher::new();
            if facts.is_dir() {
                dirs.push(path.clone());
            } else if facts.is_symlink() {
                fs::read_link(&path).unwrap().hash(&mut hasher);
            } else {
                fs::read(&path).unwrap().hash(&mut hasher);
            }
            let len = if facts.is_dir() { 0 } else { facts.len() };
            let name = path.strip_prefix(root).unwrap().to_owned();
            tree.insert(name, (facts.mode(), len, hasher.finish()));
        }
    }
    tree
}
