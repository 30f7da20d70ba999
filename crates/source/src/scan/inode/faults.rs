//! What an inode scan could not read, and of which inode it was.

use std::collections::HashMap;

/// What could not be read, by inode number, as far as it is remembered.
#[derive(Clone, Default)]
pub(super) struct Faults {
    pub(super) inodes: HashMap<u64, String>,
    pub(super) directories: HashMap<u64, String>,
    /// Faults of no inode that is known: lost groups, lost names.
    pub(super) general: Vec<String>,
    /// Further ones.
    pub(super) others: u64,
}

impl Faults {
    pub(super) fn inode(&mut self, number: u64, why: String) {
        Self::add(&mut self.inodes, &mut self.others, number, why);
    }

    pub(super) fn directory(&mut self, number: u64, why: String) {
        Self::add(&mut self.directories, &mut self.others, number, why);
    }

    pub(super) fn general(&mut self, why: String) {
        if self.general.len() < super::DAMAGED_MAX {
            self.general.push(why);
        } else {
            self.others += 1;
        }
    }

    pub(super) fn add_all(&mut self, others: Faults) {
        for (number, why) in others.inodes {
            self.inode(number, why);
        }
        for (number, why) in others.directories {
            self.directory(number, why);
        }
        others.general.into_iter().for_each(|why| self.general(why));
        self.others += others.others;
    }

    pub(super) fn is_empty(&self) -> bool {
        let maps = [&self.inodes, &self.directories];
        maps.iter().all(|map| map.is_empty()) && self.general.is_empty() && self.others == 0
    }

    fn add(map: &mut HashMap<u64, String>, others: &mut u64, number: u64, why: String) {
        if map.len() < super::DAMAGED_MAX {
            map.entry(number).or_insert(why);
        } else {
            *others += 1;
        }
    }
}
