//! Inodes in the order of their numbers, in an unnamed file: what counting needs, and the packed
//! bytes.
//!
//! Number (8 bytes), size (8), links (4), length of the packed inode (4), type (1), the packed
//! inode. An inode that is what it was for the last backup comes without, and its type is marked.

use crate::image::{FoundInode, pack_inode};
use bale_fsimage::FileKind;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

pub(super) const HEAD_BYTES: usize = 25;
/// Added to the type.
const UNCHANGED: u8 = 0x80;
/// What an inode record tells besides its packed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredInode {
    pub(super) number: u64,
    pub(super) nlink: u32,
    pub(super) kind: FileKind,
    pub(super) size: u64,
    /// Digest unchanged: the packed bytes are not stored.
    pub(super) is_unchanged: bool,
}

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Appends an inode; `raw` is `None` for one that is what it was for the last backup.
pub(super) fn append(inode: &FoundInode, raw: Option<&[u8]>, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&inode.number.to_le_bytes());
    out.extend_from_slice(&inode.size.to_le_bytes());
    out.extend_from_slice(&inode.nlink.to_le_bytes());
    let mark = if raw.is_none() { UNCHANGED } else { 0 };
    out.extend_from_slice(&[0, 0, 0, 0, number_of(inode.kind) | mark]);
    let Some(raw) = raw else { return };
    pack_inode(raw, out);
    let len = (out.len() - at - HEAD_BYTES) as u32;
    out[at + 20..at + 24].copy_from_slice(&len.to_le_bytes());
}

/// The first of several inodes one behind the other, its packed bytes, and the rest. `None`: it is
/// not there as a whole.
pub(super) fn split_first(bytes: &[u8]) -> Option<(StoredInode, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>()?;
    let u64_at = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 of 25"));
    let u32_at = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("4 of 25"));
    let inode = StoredInode {
        number: u64_at(0),
        nlink: u32_at(16),
        kind: kind_of(head[24] & !UNCHANGED)?,
        size: u64_at(8),
        is_unchanged: head[24] & UNCHANGED != 0,
    };
    let (packed, rest) = rest.split_at_checked(u32_at(20) as usize)?;
    Some((inode, packed, rest))
}

const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::BlockDevice,
    FileKind::CharDevice,
    FileKind::Fifo,
    FileKind::Socket,
];

fn number_of(kind: FileKind) -> u8 {
    let place = KINDS.iter().position(|other| *other == kind);
    place.expect("all kinds are listed") as u8
}

fn kind_of(number: u8) -> Option<FileKind> {
    KINDS.get(usize::from(number)).copied()
}

pub(super) struct InodeFile {
    file: File,
}

impl InodeFile {
    pub(super) fn new(file: File) -> InodeFile {
        InodeFile { file }
    }

    /// Appends what is there from an offset on, at most so much.
    pub(super) fn read_at(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let start = out.len();
        out.resize(start + len, 0);
        let mut filled = start;
        while filled < out.len() {
            let at = offset + (filled - start) as u64;
            match self.file.read_at(&mut out[filled..], at)? {
                0 => break,
                read => filled += read,
            }
        }
        out.truncate(filled);
        Ok(())
    }

    /// At the first inode.
    pub(super) fn read(&self) -> io::Result<InodeReader<'_>> {
        let mut reader = InodeReader {
            file: self,
            offset: 0,
            buffer: Vec::new(),
            at: 0,
        };
        reader.fill_buffer()?;
        Ok(reader)
    }
}

/// A place in the file: at an inode, or at the end.
pub(super) struct InodeReader<'a> {
    file: &'a InodeFile,
    /// Of the end of the buffer in the file.
    offset: u64,
    buffer: Vec<u8>,
    /// Of the inode here in the buffer.
    at: usize,
}

impl InodeReader<'_> {
    /// The inode here and its packed bytes; `None` at the end.
    pub(super) fn here(&self) -> Option<(StoredInode, &[u8])> {
        split_first(&self.buffer[self.at..]).map(|(inode, packed, _)| (inode, packed))
    }

    /// Place in the file of the inode here.
    pub(super) fn place(&self) -> u64 {
        self.offset - (self.buffer.len() - self.at) as u64
    }

    pub(super) fn advance(&mut self) -> io::Result<()> {
        if let Some((_, _, rest)) = split_first(&self.buffer[self.at..]) {
            self.at = self.buffer.len() - rest.len();
        }
        self.fill_buffer()
    }

    /// Makes the inode here whole in the buffer.
    fn fill_buffer(&mut self) -> io::Result<()> {
        if self.here().is_none() {
            self.fill()?;
        }
        let is_cut = self.at < self.buffer.len() && self.here().is_none();
        match is_cut {
            true => Err(io::Error::other("a temporary file is damaged")),
            false => Ok(()),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.buffer.drain(..self.at);
        self.at = 0;
        let have = self.buffer.len();
        self.file
            .read_at(self.offset, READ_BYTES, &mut self.buffer)?;
        self.offset += (self.buffer.len() - have) as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_fsimage::Timestamp;
    use std::io::Write;

    #[test]
    fn inodes_come_back_as_they_were_also_across_reads() {
        let inode = |number: u64| FoundInode {
            number,
            nlink: number as u32 % 7,
            kind: KINDS[number as usize % 7],
            size: number * 1000,
            ctime: Timestamp::default(),
        };
        let raw =
            |number: u64| (!number.is_multiple_of(5)).then(|| number.to_le_bytes().repeat(32));
        let mut file = tempfile();
        let mut bytes = Vec::new();
        for number in 1..20_000 {
            append(&inode(number), raw(number).as_deref(), &mut bytes);
        }
        assert!(bytes.len() > 3 * READ_BYTES);
        file.write_all(&bytes).unwrap();
        let stored = InodeFile::new(file);
        let mut reader = stored.read().unwrap();
        let mut unpacked = Vec::new();
        for number in 1..20_000 {
            let (found, packed) = reader.here().unwrap();
            let expected = inode(number);
            assert_eq!(
                (found.number, found.nlink),
                (expected.number, expected.nlink)
            );
            assert_eq!((found.kind, found.size), (expected.kind, expected.size));
            assert_eq!(found.is_unchanged, number.is_multiple_of(5));
            match raw(number) {
                Some(raw) => {
                    let found = crate::image::unpack_inode(packed, &mut unpacked);
                    assert_eq!(found, Some(&raw[..]));
                }
                None => assert!(packed.is_empty()),
            }
            reader.advance().unwrap();
        }
        assert!(reader.here().is_none());
    }

    #[test]
    fn a_file_that_is_cut_short_is_an_error() {
        let mut bytes = Vec::new();
        let inode = FoundInode {
            number: 1,
            nlink: 1,
            kind: FileKind::Fifo,
            size: 0,
            ctime: Timestamp::default(),
        };
        append(&inode, Some(&[1; 256]), &mut bytes);
        let mut file = tempfile();
        file.write_all(&bytes[..bytes.len() - 1]).unwrap();
        assert!(InodeFile::new(file).read().is_err());
    }

    fn tempfile() -> File {
        bale_pipeline::spill::unnamed_file(&std::env::temp_dir()).unwrap()
    }
}
