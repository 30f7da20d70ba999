//! What changed since the inode tables were read: they are read again and compared byte by byte.

use super::ordered::in_order;
use super::stored::{self, InodeFile, InodeReader, StoredInode};
use super::tables::{buffer, read_piece};
use crate::image::{Image, unpack_inode};
use bale_format::entry::Time;
use bale_fsimage::FileKind;
use std::io;

/// Compares what is read again with what was read, both in the order of numbers.
struct Comparison<'a> {
    image: &'a Image,
    reader: InodeReader<'a>,
    t0: Time,
    changed: Vec<u64>,
    raw_old: Vec<u8>,
    raw_new: Vec<u8>,
}

impl Comparison<'_> {
    fn look(&mut self, new: StoredInode, packed: &[u8]) -> io::Result<()> {
        // What is gone, or cannot be read any more, is as good as changed.
        while let Some((old, _)) = self.reader.here()
            && old.number < new.number
        {
            self.changed.push(old.number);
            self.reader.advance()?;
        }
        if self
            .reader
            .here()
            .is_none_or(|(old, _)| old.number != new.number)
        {
            // New: its directory has changed, too.
            return Ok(());
        }
        if !self.is_same(new, packed) {
            self.changed.push(new.number);
        }
        self.reader.advance()
    }

    fn is_same(&mut self, new: StoredInode, packed: &[u8]) -> bool {
        let Some((_, old)) = self.reader.here() else {
            return false;
        };
        let is_directory = new.kind == FileKind::Directory;
        let equal = packed == old;
        if equal && !is_directory {
            return true;
        }
        let old = unpack_inode(old, &mut self.raw_old);
        let raw = unpack_inode(packed, &mut self.raw_new);
        let (Some(old), Some(raw)) = (old, raw) else {
            return false;
        };
        if !equal && !self.image.same_except_atime(new.number, old, raw) {
            return false;
        }
        !is_directory || self.is_settled(new.number)
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
        t0,
        changed: Vec::new(),
        raw_old: Vec::new(),
        raw_new: Vec::new(),
    };
    let compared = in_order(
        image.tables(),
        buffer,
        |buffer, piece| read_piece(image, piece, buffer),
        |parsed| -> io::Result<()> {
            let mut rest = &parsed.inodes[..];
            while let Some((new, packed, behind)) = stored::split_first(rest) {
                comparison.look(new, packed)?;
                rest = behind;
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
    while let Some((old, _)) = comparison.reader.here()
        && comparison.changed.len() <= changed_max
    {
        comparison.changed.push(old.number);
        comparison.reader.advance()?;
    }
    Ok((comparison.changed.len() <= changed_max).then_some(comparison.changed))
}
