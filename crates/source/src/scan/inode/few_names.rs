//! Names of directories that are in doubt: held where they are few, and summed up where they are
//! many.

use super::digests::{DigestKey, sip_hash_2_4};
use std::collections::HashMap;

/// Held beside the bytes of a name.
const NAME_ITEM_BYTES: usize = 48;

/// Over the names of a directory and the inodes that they lead to, in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamesSum {
    names: u64,
    sum: u64,
}

impl NamesSum {
    pub(super) fn add(&mut self, key: &DigestKey, inode: u64, name: &[u8]) {
        self.names += 1;
        let hash = sip_hash_2_4(key, [&inode.to_le_bytes(), name]);
        self.sum = self.sum.wrapping_add(hash);
    }
}

/// A name in a directory, and its inode. They sort as rows of a catalog do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedInode {
    pub name: Box<[u8]>,
    pub inode: u64,
}

/// What is known of the names of one directory.
struct DirectoryNames {
    sum: NamesSum,
    /// `None`: they are too many.
    held: Option<Vec<NamedInode>>,
}

/// The names of directories, by inode.
pub(super) struct DoubtedNames {
    key: DigestKey,
    directories: HashMap<u64, DirectoryNames>,
    bytes: usize,
    bytes_max: usize,
}

impl DoubtedNames {
    /// Of these directories; of names no more than `bytes_max` are held.
    pub(super) fn of(
        key: DigestKey,
        directories: impl Iterator<Item = u64>,
        bytes_max: usize,
    ) -> DoubtedNames {
        let empty = || DirectoryNames {
            sum: NamesSum::default(),
            held: Some(Vec::new()),
        };
        DoubtedNames {
            key,
            directories: directories.map(|inode| (inode, empty())).collect(),
            bytes: 0,
            bytes_max,
        }
    }

    /// Takes a name, if it is in one of the directories.
    pub(super) fn add(&mut self, directory: u64, name: &[u8], inode: u64) {
        let Some(names) = self.directories.get_mut(&directory) else {
            return;
        };
        names.sum.add(&self.key, inode, name);
        let bytes = name.len() + NAME_ITEM_BYTES;
        if self.bytes + bytes > self.bytes_max {
            let given_up = names.held.take().unwrap_or_default().into_iter();
            let given_up = given_up.map(|one| one.name.len() + NAME_ITEM_BYTES);
            self.bytes -= given_up.sum::<usize>();
        }
        if let Some(held) = &mut names.held {
            self.bytes += bytes;
            let name = name.into();
            held.push(NamedInode { name, inode });
        }
    }

    /// All were added.
    pub(super) fn sorted(mut self) -> DoubtedNames {
        let held = self.directories.values_mut();
        held.filter_map(|names| names.held.as_mut())
            .for_each(|held| held.sort_unstable());
        self
    }

    pub(super) fn key(&self) -> &DigestKey {
        &self.key
    }

    pub(super) fn sum(&self, directory: u64) -> Option<NamesSum> {
        self.directories.get(&directory).map(|names| names.sum)
    }

    /// Sorted. `None`: they are too many, or the directory is none of these.
    pub(super) fn held(&self, directory: u64) -> Option<&[NamedInode]> {
        self.directories.get(&directory)?.held.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bytes_max: usize) -> DoubtedNames {
        let mut names = DoubtedNames::of([7; 16], [1, 2].into_iter(), bytes_max);
        for (directory, name, inode) in [
            (2, b"c", 7),
            (1, b"b", 5),
            (1, b"a", 6),
            (3, b"d", 8),
            (1, b"e", 9),
        ] {
            names.add(directory, name, inode);
        }
        names.sorted()
    }

    #[test]
    fn names_are_held_in_order_of_the_directories_in_doubt_alone() {
        let names = names(1 << 20);
        let held = |directory| -> Vec<&[u8]> {
            let held: &[NamedInode] = names.held(directory).unwrap();
            held.iter().map(|one| &*one.name).collect()
        };
        assert_eq!(held(1), [b"a", b"b", b"e"]);
        assert_eq!(held(2), [b"c"]);
        assert_eq!((names.held(3), names.sum(3)), (None, None));
    }

    #[test]
    fn of_too_many_names_a_sum_is_left_and_others_are_held() {
        let one = 1 + NAME_ITEM_BYTES;
        let few = names(2 * one);
        assert_eq!(few.held(1), None, "its three and another, and room for two");
        assert_eq!(few.held(2).unwrap().len(), 1);
        assert_eq!(few.bytes, one, "what is given up is no more counted");
        assert_eq!(few.sum(1), names(1 << 20).sum(1));
    }
}
