//! Hard links: names of one inode have one number for `stat`, without a table of inodes.
//!
//! The number is made of the source's: 36 bits of it as they are, and in place of the rest, and of
//! the file system, one of 2048 parts that were seen. Most file systems have one such part, and
//! those that spread their numbers (shards, layers) a few. Names whose part finds no room any more
//! have numbers of their own: they are shown as several files, and never two files as one.

use crate::limits::HIGH_PARTS_MAX;
use bale_format::{Entry, Kind};
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

const LOW_BITS: u32 = 36;

/// Of one mount.
#[derive(Default)]
pub struct LinkGroups {
    /// Of file system and high part of the inode number.
    parts: RwLock<HashMap<(u32, u64), u64>>,
}

impl LinkGroups {
    /// The group of a row; `None`: it has no other names, or no room.
    pub fn of(&self, row: &Entry) -> Option<u64> {
        if row.nlink < 2 || row.kind == Kind::Directory || row.inode == 0 {
            return None;
        }
        let key = (row.filesystem, row.inode >> LOW_BITS);
        let low = row.inode & ((1 << LOW_BITS) - 1);
        let known = {
            let parts = self.parts.read().unwrap_or_else(PoisonError::into_inner);
            parts.get(&key).copied()
        };
        let part = known.or_else(|| self.add(key))?;
        Some(part << LOW_BITS | low)
    }

    fn add(&self, key: (u32, u64)) -> Option<u64> {
        let mut parts = self.parts.write().unwrap_or_else(PoisonError::into_inner);
        let next = parts.len() as u64;
        if let Some(part) = parts.get(&key) {
            return Some(*part);
        }
        (parts.len() < HIGH_PARTS_MAX).then(|| {
            parts.insert(key, next);
            next
        })
    }
}

// Groups have one bit less than rows and snapshots leave.
const _: () = assert!((HIGH_PARTS_MAX as u64) << LOW_BITS <= crate::numbers::GROUP_BIT);

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn row(filesystem: u32, inode: u64) -> Entry {
        Entry {
            nlink: 2,
            inode,
            filesystem,
            ..Entry::new(Bytes::new(), Bytes::from_static(b"x"), Kind::File)
        }
    }

    #[test]
    fn names_of_one_inode_have_one_group_and_others_another() {
        let groups = LinkGroups::default();
        let first = groups.of(&row(0, 77)).unwrap();
        assert_eq!(groups.of(&row(0, 77)), Some(first));
        for other in [row(1, 77), row(0, 78), row(0, 77 | 1 << 60)] {
            assert_ne!(groups.of(&other), Some(first));
        }
        let single = Entry {
            nlink: 1,
            ..row(0, 77)
        };
        assert_eq!(groups.of(&single), None);
    }

    /// Numbers drawn at random fill the table: what comes then is shown as files of their own.
    #[test]
    fn two_files_are_never_shown_as_one_for_want_of_room() {
        let groups = LinkGroups::default();
        let mut seen = std::collections::HashSet::new();
        let mut without = 0;
        for number in 0..2 * HIGH_PARTS_MAX as u64 {
            match groups.of(&row(0, number << LOW_BITS | 5)) {
                Some(group) => assert!(seen.insert(group)),
                None => without += 1,
            }
        }
        assert_eq!((seen.len(), without), (HIGH_PARTS_MAX, HIGH_PARTS_MAX));
    }
}
