//! Inodes with several names: the tree of names has, for each, where its inode is in the file of
//! inodes, and not the inode.
//!
//! A link farm has nine names of an inode, or ninety. Neighbouring names mostly lead to
//! neighbouring inodes, so the part of the file that was read for one has the others, too.

use super::inode_file::{InodeFile, split_first};
use bale_pipeline::memory::MemoryPlan;
use std::io;
use std::sync::Arc;

/// Of the file, read at once: about sixty inodes.
const PART_BYTES: u64 = 8 << 10;
/// What is read behind a part, so that an inode that begins in it mostly ends there.
const BEHIND_BYTES: u64 = 512;
/// Parts that are kept with the usual ceiling of memory. Each has one place.
const PARTS_KEPT: usize = 128;
/// An inode is no longer, packed.
const INODE_BYTES_MAX: usize = 128 << 10;

/// Memory of one reader.
pub(super) const fn linked_bytes(memory: &MemoryPlan) -> usize {
    memory.inode_share(PARTS_KEPT) * (PART_BYTES + BEHIND_BYTES) as usize
}

/// Reads packed inodes by their place in the file.
pub(super) struct LinkedInodes {
    file: Arc<InodeFile>,
    parts: Vec<Part>,
}

#[derive(Clone, Default)]
struct Part {
    number: u64,
    bytes: Vec<u8>,
}

impl LinkedInodes {
    pub(super) fn new(file: Arc<InodeFile>, memory: &MemoryPlan) -> LinkedInodes {
        LinkedInodes {
            file,
            parts: vec![Part::default(); memory.inode_share(PARTS_KEPT)],
        }
    }

    /// The same file, for another reader.
    pub(super) fn again(&self) -> LinkedInodes {
        LinkedInodes {
            file: self.file.clone(),
            parts: vec![Part::default(); self.parts.len()],
        }
    }

    /// Puts the packed inode of this number, whose record is at `place`, into `out`.
    pub(super) fn read(&mut self, inode: u64, place: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        let number = place / PART_BYTES;
        let at = number as usize % self.parts.len();
        let part = &mut self.parts[at];
        if part.number != number || part.bytes.is_empty() {
            part.bytes.clear();
            let len = PART_BYTES + BEHIND_BYTES;
            let read = self
                .file
                .read_at(number * PART_BYTES, len as usize, &mut part.bytes);
            part.number = number;
            read.inspect_err(|_| part.bytes.clear())?;
        }
        let here = part.bytes.get((place % PART_BYTES) as usize..);
        if let Some((found, packed, _)) = here.and_then(split_first)
            && found.number == inode
        {
            out.extend_from_slice(packed);
            return Ok(());
        }
        let mut long = Vec::new();
        self.file.read_at(place, INODE_BYTES_MAX, &mut long)?;
        match split_first(&long) {
            Some((found, packed, _)) if found.number == inode => {
                out.extend_from_slice(packed);
                Ok(())
            }
            _ => Err(io::Error::other("a temporary file is damaged")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::inode_file::append;
    use super::*;
    use crate::image::{FoundInode, unpack_inode};
    use bale_fsimage::{FileKind, Timestamp};
    use std::io::Write;

    /// Inodes of which some are longer than a part, and the place of each.
    fn file(inodes: u64) -> (Arc<InodeFile>, Vec<u64>) {
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for number in 1..=inodes {
            places.push(bytes.len() as u64);
            let found = FoundInode {
                number,
                nlink: 2,
                kind: FileKind::Regular,
                size: 0,
                ctime: Timestamp::default(),
            };
            append(&found, Some(&raw(number)), &mut bytes);
        }
        let mut file = bale_pipeline::spill::unnamed_file(&std::env::temp_dir()).unwrap();
        file.write_all(&bytes).unwrap();
        (Arc::new(InodeFile::new(file)), places)
    }

    fn raw(number: u64) -> Vec<u8> {
        let words = if number.is_multiple_of(100) {
            4_000
        } else {
            20
        };
        (0..words)
            .flat_map(|word| (number * 77 + word).to_le_bytes())
            .collect()
    }

    #[test]
    fn inodes_come_back_from_their_places_in_any_order() {
        const INODES: u64 = 20_000;
        let (file, places) = file(INODES);
        let mut linked = LinkedInodes::new(file, &MemoryPlan::USUAL);
        let (mut packed, mut unpacked) = (Vec::new(), Vec::new());
        for step in [1, 7919] {
            for n in 0..INODES {
                let at = n * step % INODES;
                let place = places[at as usize];
                linked.read(at + 1, place, &mut packed).unwrap();
                let found = unpack_inode(&packed, &mut unpacked);
                assert_eq!(found, Some(&raw(at + 1)[..]));
            }
        }
    }

    #[test]
    fn what_is_not_the_inode_asked_for_is_an_error() {
        let (file, places) = file(9);
        let mut linked = LinkedInodes::new(file, &MemoryPlan::USUAL);
        let mut packed = Vec::new();
        assert!(linked.read(2, places[0], &mut packed).is_err());
        assert!(linked.read(1, places[0] + 1, &mut packed).is_err());
        assert!(linked.read(1, 1 << 40, &mut packed).is_err());
        assert!(linked.read(2, places[1], &mut packed).is_ok());
    }
}
