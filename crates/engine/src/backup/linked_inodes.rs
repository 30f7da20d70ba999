//! Inodes with several names: what was read or reused under one name is there for the others, so
//! that each is read once, and all names have one content.
//!
//! The latter is more than a saving: two readers may see other holes in the same bytes (an inode
//! scan and a walk; a walk after what is allocated and unwritten was cached), and names whose
//! content hashes differ are restored as two files.
//!
//! The names of one inode may lie a whole tree apart, and a link farm has tens of millions of
//! inodes. What was read is a record in a log, and each inode has the number of its record; of both
//! the parts used last are in memory, and the rest in files without names, 108 bytes for each.
//! Memory is the same however many there are. No byte depends on it: what cannot be written, or
//! does not read back as it was written, is read from the source again.

mod log;
mod pages;

use super::dedup_cache::ContentRef;
use bale_format::{Entry, EntryFlags};
use bale_pipeline::memory::MemoryPlan;
use log::Log;
use pages::Pages;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// What must be equal for a second name to share what was read for the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinkKey {
    /// File system.
    pub(super) filesystem: u32,
    pub(super) inode: u64,
    /// Last change of the inode: a reused number or a later change is another key.
    pub(super) ctime: (i64, u32),
    /// Bytes.
    pub(super) size: u64,
    /// Hash of what else all names of an inode have in common: time of the last change of content,
    /// mode, owners, number of names.
    pub(super) stat: u64,
}

impl LinkKey {
    pub(super) fn of(entry: &Entry) -> LinkKey {
        LinkKey {
            filesystem: entry.filesystem,
            inode: entry.inode,
            ctime: entry.ctime.into(),
            size: entry.size,
            stat: hash_of_stat(entry),
        }
    }
}

fn hash_of_stat(entry: &Entry) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&entry.mtime.seconds.to_le_bytes());
    hasher.update(&entry.mtime.nanos.to_le_bytes());
    for number in [entry.mode, entry.uid, entry.gid, entry.nlink] {
        hasher.update(&number.to_le_bytes());
    }
    let hash = hasher.finalize();
    let (first, _) = hash.as_bytes().split_first_chunk().expect("32 bytes are 8");
    u64::from_le_bytes(*first)
}

/// What all names of an inode share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinkedContent {
    pub(super) content_ref: ContentRef,
    pub(super) content_hash: [u8; 16],
    /// Those of `SHARED_FLAGS`.
    pub(super) flags: EntryFlags,
    /// Generation of the inode, which not every way to a file tells.
    pub(super) generation: u32,
}

/// Flags that go with the content to every name: a racy name is read again by the next backup, and
/// so must be the others.
pub(super) const SHARED_FLAGS: u32 = EntryFlags::SPARSE.0 | EntryFlags::RACY.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Link {
    key: LinkKey,
    content: LinkedContent,
}

/// Content of inodes with several names.
pub(super) struct LinkTable {
    pages: Pages,
    log: Log,
}

impl LinkTable {
    /// An empty table; `directory` is for the files.
    pub(super) fn new(directory: Option<PathBuf>, memory: &MemoryPlan) -> LinkTable {
        LinkTable {
            pages: Pages::new(Spill::in_directory(directory.clone()), memory),
            log: Log::new(Spill::in_directory(directory), memory),
        }
    }

    /// Content of an inode that was read or reused under another name.
    pub(super) fn find(&mut self, key: &LinkKey) -> Option<LinkedContent> {
        let number = self.pages.get(key.filesystem, key.inode);
        Some(self.log.get(number, key)?.content)
    }

    /// Remembers what was read or reused.
    pub(super) fn remember(&mut self, key: LinkKey, content: LinkedContent) {
        let link = Link { key, content };
        if let Some(number) = self.log.add(&link) {
            self.pages.set(key.filesystem, key.inode, number);
        }
    }
}

/// A file without a name, made when it is needed.
enum Spill {
    /// It was not needed yet.
    Unused(PathBuf),
    File(File),
    /// It cannot be made or written: what should be in it is forgotten.
    Nowhere,
}

impl Spill {
    fn in_directory(directory: Option<PathBuf>) -> Spill {
        directory.map_or(Spill::Nowhere, Spill::Unused)
    }

    fn write(&mut self, bytes: &[u8], at: u64) {
        if let Spill::Unused(directory) = self {
            let made = bale_pipeline::spill::unnamed_file(directory);
            *self = made.map_or(Spill::Nowhere, Spill::File);
        }
        if let Spill::File(file) = self
            && file.write_all_at(bytes, at).is_err()
        {
            *self = Spill::Nowhere;
        }
    }

    /// What was never written is zero, and so is what cannot be read.
    fn read(&self, bytes: &mut [u8], at: u64) {
        let mut filled = 0;
        if let Spill::File(file) = self {
            while filled < bytes.len() {
                match file.read_at(&mut bytes[filled..], at + filled as u64) {
                    Ok(read) if read > 0 => filled += read,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    _ => break,
                }
            }
        }
        bytes[filled..].fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::dedup_cache::ChunkNumber;
    use bale_format::{ChunkId, Content};
    use bale_pipeline::memory::MEMORY_BYTES_MIN;

    /// Three times what is in memory.
    const LINKS: u64 = 200_000;

    fn key(inode: u64) -> LinkKey {
        LinkKey {
            filesystem: (inode % 3) as u32,
            inode,
            ctime: (-5 - inode as i64, 6),
            size: inode % 4096,
            stat: inode << 40,
        }
    }

    fn what(inode: u64) -> LinkedContent {
        let chunk = ChunkId([inode as u8; 32]);
        let offset = inode as u32 % 7_000;
        let content_ref = match inode % 3 {
            0 => ContentRef::Stored(Content::Pieces { list: chunk }),
            1 => ContentRef::Stored(Content::Bundled { chunk, offset }),
            _ => ContentRef::Bundled {
                bundle: ChunkNumber::from_number(inode as u32 / 100),
                offset,
            },
        };
        LinkedContent {
            content_ref,
            content_hash: [inode as u8; 16],
            flags: EntryFlags(SHARED_FLAGS * (inode % 3 / 2) as u32),
            generation: inode as u32,
        }
    }

    #[test]
    fn far_more_links_than_fit_in_memory_are_all_remembered() {
        all_are_remembered(&MemoryPlan::USUAL);
        all_are_remembered(&MemoryPlan::new(MEMORY_BYTES_MIN, 1).unwrap());
        // No part of it is a round number.
        all_are_remembered(&MemoryPlan::new((201 << 20) + 12_345, 1).unwrap());
    }

    fn all_are_remembered(memory: &MemoryPlan) {
        let directory = tempfile::tempdir().unwrap();
        let mut table = LinkTable::new(Some(directory.path().to_owned()), memory);
        for inode in 0..LINKS {
            assert_eq!(table.find(&key(inode)), None);
            table.remember(key(inode), what(inode));
        }
        for inode in 0..LINKS {
            assert_eq!(table.find(&key(inode)), Some(what(inode)));
        }
        assert_eq!(table.find(&key(LINKS)), None);
        let changed = LinkKey {
            ctime: (0, 0),
            ..key(1)
        };
        assert_eq!(table.find(&changed), None, "a later change is another key");
        let other = LinkKey { stat: 0, ..key(1) };
        assert_eq!(table.find(&other), None, "equal numbers are not one inode");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_file_old_links_are_forgotten_and_none_is_wrong() {
        let mut table = LinkTable::new(None, &MemoryPlan::USUAL);
        for inode in 0..LINKS {
            table.remember(key(inode), what(inode));
        }
        let found = (0..LINKS).filter(|inode| {
            let found = table.find(&key(*inode));
            assert!(found.is_none_or(|found| found == what(*inode)));
            found.is_some()
        });
        let found = found.count();
        assert!((3 << 13..=3 << 14).contains(&found), "{found}");
    }
}
