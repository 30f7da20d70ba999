//! What changed since the inode tables were read: they are read again and compared byte by byte.

use super::ordered::in_order;
use super::tables::{HEAD_BYTES, InodeFile, StoredInode, buffer, read_piece};
use crate::image::{Image, unpack_inode};
use bale_format::entry::Time;
use std::io;

/// The records of a piece that was read again.
struct Records<'a>(&'a [u8]);

/// One of them.
struct Record<'a> {
    number: u64,
    is_directory: bool,
    packed: &'a [u8],
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let (head, behind) = self.0.split_at_checked(HEAD_BYTES)?;
        let len = u32::from_le_bytes(head[13..17].try_into().expect("4 of 17 bytes"));
        let (packed, behind) = behind.split_at(len as usize);
        self.0 = behind;
        Some(Record {
            number: u64::from_le_bytes(head[..8].try_into().expect("8 of 17 bytes")),
            is_directory: head[12] != 0,
            packed,
        })
    }
}

/// Compares what is read again with what was read, both in the order of numbers.
struct Comparison<'a> {
    image: &'a Image,
    reader: super::tables::InodeReader,
    old: StoredInode,
    there: bool,
    t0: Time,
    changed: Vec<u64>,
    raw_old: Vec<u8>,
    raw_new: Vec<u8>,
}

impl Comparison<'_> {
    fn advance(&mut self) -> io::Result<()> {
        self.there = self.reader.next_into(&mut self.old)?;
        Ok(())
    }

    fn look(&mut self, new: &Record<'_>) -> io::Result<()> {
        // What is gone, or cannot be read any more, is as good as changed.
        while self.there && self.old.number < new.number {
            self.changed.push(self.old.number);
            self.advance()?;
        }
        if !self.there || self.old.number != new.number {
            // New: its directory has changed, too.
            return Ok(());
        }
        if !self.is_same(new) {
            self.changed.push(new.number);
        }
        self.advance()
    }

    fn is_same(&mut self, new: &Record<'_>) -> bool {
        let equal = new.packed == self.old.packed;
        if equal && !new.is_directory {
            return true;
        }
        let old = unpack_inode(&self.old.packed, &mut self.raw_old);
        let raw = unpack_inode(new.packed, &mut self.raw_new);
        let (Some(old), Some(raw)) = (old, raw) else {
            return false;
        };
        if !equal && !self.image.same_except_atime(new.number, old, raw) {
            return false;
        }
        !new.is_directory || self.is_settled(new.number)
    }

    /// Was the directory last changed before the barrier?
    fn is_settled(&self, number: u64) -> bool {
        let Ok(inode) = self.image.inode(number, &self.raw_new) else {
            return false;
        };
        let before = (self.t0.seconds, self.t0.nanos);
        let stamp = |time: bale_fsimage::Timestamp| (time.seconds, time.nanos);
        stamp(inode.ctime) < before && stamp(inode.mtime) < before
    }
}

/// Reads the tables again; the numbers of inodes that are not what they were, in order, and of directories that were changed
/// since `t0`. `None`: more than `changed_max`.
pub(super) fn changed_inodes(
    image: &Image,
    before: &InodeFile,
    t0: Time,
    changed_max: usize,
) -> io::Result<Option<Vec<u64>>> {
    let mut comparison = Comparison {
        image,
        reader: before.read()?,
        old: StoredInode::empty(),
        there: true,
        t0,
        changed: Vec::new(),
        raw_old: Vec::new(),
        raw_new: Vec::new(),
    };
    comparison.advance()?;
    let compared = in_order(
        image.tables(),
        buffer,
        |buffer, piece| read_piece(image, piece, buffer),
        |parsed| -> io::Result<()> {
            for record in Records(&parsed.inodes) {
                comparison.look(&record)?;
            }
            match comparison.changed.len() > changed_max {
                true => Err(io::ErrorKind::QuotaExceeded.into()),
                false => Ok(()),
            }
        },
    );
    match compared {
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => return Ok(None),
        result => result?,
    }
    while comparison.there && comparison.changed.len() <= changed_max {
        comparison.changed.push(comparison.old.number);
        comparison.advance()?;
    }
    Ok((comparison.changed.len() <= changed_max).then_some(comparison.changed))
}
