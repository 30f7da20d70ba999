//! A mounted XFS listed by the kernel (XFS_IOC_INUMBERS, XFS_IOC_BULKSTAT) instead of read from its
//! device, for a scan without a freeze.
//!
//! What stands for the tables are pieces of the space of inode numbers, and what stands for the
//! bytes of an inode is a record of what the kernel says of it, without places on the device, and
//! without the access time unless rows have it. Names are listed and content is read by inode and
//! generation ([`crate::scan::handle`]).

use super::volume::{
    DirectoryNames, FoundInode, FoundXattrs, InodeContent, InodeTables, TableSink, Volume,
    VolumeFacts,
};
use super::{NamesPiece, Span, TABLE_PIECE_BYTES, TablePiece};
use crate::scan::Atime;
use crate::scan::handle::Handles;
use crate::scan::live::LiveKind;
use bale_fsimage::xfs::InodeChunk;
use bale_fsimage::{FileKind, Inode, Layout, MappedExtent, Timestamp};
use bale_sys::bulkstat::{BulkInode, BulkStat, INODES_PER_CALL_MAX, InodeNumbers};
use bale_sys::inode::FsXattr;
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

/// The last sixteen are for the access time, and zero where that is not taken.
const RECORD_BYTES: usize = 96;
const ATIME_AT: usize = 80;
/// Inode numbers that one piece covers at most, used or not.
const NUMBERS_PER_PIECE_MAX: u64 = 8192;
const _: () = assert!(NUMBERS_PER_PIECE_MAX as usize * RECORD_BYTES <= TABLE_PIECE_BYTES);
/// Inode numbers of one chunk.
const CHUNK_INODES: u64 = 64;
/// Error when content is requested from the device of such a file system.
const BY_KERNEL: &str = "nothing is read from the device of a mounted XFS that was not frozen";

/// Bulkstat access to one mounted XFS.
pub struct XfsBulkstat {
    directory: OwnedFd,
    handles: Handles,
    uuid: [u8; 16],
    root: BulkInode,
    atime: Atime,
    /// Held while inodes are asked for: threads that ask for those of one group only wait for each
    /// other in the kernel.
    call_lock: Mutex<()>,
}

impl XfsBulkstat {
    /// `directory` is any of the file system. Fails where the kernel does not tell, or not us.
    pub(super) fn new(directory: OwnedFd, uuid: [u8; 16], atime: Atime) -> io::Result<XfsBulkstat> {
        let root = BulkStat::root(directory.as_fd())?.ok_or(io::ErrorKind::NotFound)?;
        let _knows_chunks = InodeNumbers::default().next(directory.as_fd())?.len();
        Ok(XfsBulkstat {
            handles: Handles::new(directory.try_clone()?, LiveKind::Xfs),
            directory,
            uuid,
            root,
            atime,
            call_lock: Mutex::new(()),
        })
    }

    /// Inode and generation of the root.
    pub fn root_handle(&self) -> (u64, u32) {
        (self.root.inode, self.root.generation)
    }

    /// For listing directories.
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Records of the inodes in use whose numbers are in a piece. Tells how many bytes.
    pub(super) fn read_table(&self, piece: &TablePiece, buffer: &mut [u8]) -> io::Result<usize> {
        let mut records = Records {
            bytes: buffer,
            len: 0,
            next: piece.span.offset,
            atime: self.atime,
            end: piece.span.end(),
        };
        let used: u32 = piece.chunks.iter().map(|c| c.used.count_ones()).sum();
        let mut stat = BulkStat::new(None, (used as usize).min(INODES_PER_CALL_MAX));
        let _turn = self
            .call_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while records.next < records.end {
            stat.seek(records.next);
            match stat.next(self.directory.as_fd()) {
                Ok(inodes) if inodes.len() == 0 => break,
                Ok(mut inodes) => inodes.try_for_each(|inode| records.push(&inode))?,
                Err(error) if is_interrupted(&error) => {}
                Err(_) => {
                    self.read_one_by_one(&mut records)?;
                }
            }
        }
        Ok(records.len)
    }

    /// Where one inode cannot be read, the others are all the same: goes past the first that
    /// cannot.
    fn read_one_by_one(&self, records: &mut Records<'_>) -> io::Result<()> {
        let mut stat = BulkStat::new(None, 1);
        while records.next < records.end {
            stat.seek(records.next);
            let bulkstat = stat
                .next(self.directory.as_fd())
                .map(|mut inodes| inodes.next());
            match bulkstat {
                Ok(Some(inode)) => records.push(&inode)?,
                Ok(None) => records.next = records.end,
                Err(error) if is_interrupted(&error) => {}
                Err(_) => return records.push_unreadable(),
            }
        }
        Ok(())
    }
}

fn is_interrupted(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::INTR.raw_os_error())
}

/// Records of one piece under way.
struct Records<'a> {
    bytes: &'a mut [u8],
    len: usize,
    /// The first number that nothing is known of.
    next: u64,
    atime: Atime,
    /// The first number that belongs to another piece.
    end: u64,
}

impl Records<'_> {
    fn push(&mut self, inode: &BulkInode) -> io::Result<()> {
        if inode.inode < self.next {
            return Err(io::Error::other("the kernel lists inodes out of order"));
        }
        if inode.inode >= self.end {
            self.next = self.end;
            return Ok(());
        }
        self.next = inode.inode + 1;
        self.push_record(record_of(inode, self.atime))
    }

    /// The next number stands for an inode that the kernel has trouble with: its type is none.
    fn push_unreadable(&mut self) -> io::Result<()> {
        let inode = self.next;
        self.next += 1;
        let nothing = BulkInode {
            inode,
            ..BulkInode::default()
        };
        self.push_record(record_of(&nothing, Atime::LeftOut))
    }

    fn push_record(&mut self, record: [u8; RECORD_BYTES]) -> io::Result<()> {
        let room = self.bytes.get_mut(self.len..self.len + RECORD_BYTES);
        room.ok_or(io::ErrorKind::InvalidData)?
            .copy_from_slice(&record);
        self.len += RECORD_BYTES;
        Ok(())
    }
}

fn record_of(inode: &BulkInode, atime: Atime) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    let wide = [
        inode.inode,
        inode.size_bytes,
        inode.mtime.0.cast_unsigned(),
        inode.ctime.0.cast_unsigned(),
        inode.xflags,
    ];
    let narrow = [
        inode.mtime.1,
        inode.ctime.1,
        inode.generation,
        inode.mode,
        inode.uid,
        inode.gid,
        inode.links,
        inode.project,
        inode.device.0,
        inode.device.1,
    ];
    let (front, back) = record.split_at_mut(8 * wide.len());
    for (place, value) in front.chunks_exact_mut(8).zip(wide) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    for (place, value) in back.chunks_exact_mut(4).zip(narrow) {
        place.copy_from_slice(&value.to_le_bytes());
    }
    if atime == Atime::Taken {
        let (seconds, nanos) = inode.atime;
        record[ATIME_AT..ATIME_AT + 8].copy_from_slice(&seconds.to_le_bytes());
        record[ATIME_AT + 8..ATIME_AT + 12].copy_from_slice(&nanos.to_le_bytes());
    }
    record
}

fn inode_of(record: &[u8]) -> Option<Inode> {
    let record: &[u8; RECORD_BYTES] = record.try_into().ok()?;
    let wide = |at: usize| {
        let bytes = record[8 * at..8 * at + 8].try_into();
        u64::from_le_bytes(bytes.expect("8 of 96 bytes"))
    };
    let narrow = |at: usize| {
        let bytes = record[40 + 4 * at..44 + 4 * at].try_into();
        u32::from_le_bytes(bytes.expect("4 of 96 bytes"))
    };
    let time = |seconds_at: usize, nanos_at: usize| Timestamp {
        seconds: wide(seconds_at).cast_signed(),
        nanos: narrow(nanos_at),
    };
    let mut flags = FsXattr::default();
    flags.xflags = wide(4) as u32;
    Some(Inode {
        number: wide(0),
        generation: narrow(2),
        mode: narrow(3),
        uid: narrow(4),
        gid: narrow(5),
        nlink: narrow(6),
        size: wide(1),
        // Places among the wide and the narrow ones: bytes 80 and 88.
        atime: time(10, 12),
        mtime: time(2, 0),
        ctime: time(3, 1),
        crtime: None,
        flags: flags.inode_flags(),
        project: narrow(7),
        rdev: (narrow(8), narrow(9)),
        layout: Layout::Kernel(BY_KERNEL),
    })
}

/// Neighbouring chunks as one piece.
struct TablePieces<'a> {
    directory: BorrowedFd<'a>,
    numbers: InodeNumbers,
    chunks: VecDeque<InodeChunk>,
    is_at_end: bool,
}

impl TablePieces<'_> {
    /// Makes sure that there is a chunk at hand, if there is any left.
    fn fill(&mut self) -> Result<(), String> {
        while self.chunks.is_empty() && !self.is_at_end {
            let found = match self.numbers.next(self.directory) {
                Ok(found) => found,
                Err(error) if is_interrupted(&error) => continue,
                Err(error) => {
                    self.is_at_end = true;
                    return Err(format!(
                        "the kernel does not list all inode numbers: {error}"
                    ));
                }
            };
            self.is_at_end = found.len() == 0;
            let used = found.filter(|chunk| chunk.used != 0);
            self.chunks.extend(used.map(|chunk| InodeChunk {
                device_offset: 0,
                first_inode: chunk.first_inode,
                used: chunk.used,
            }));
        }
        Ok(())
    }
}

impl Iterator for TablePieces<'_> {
    type Item = Result<TablePiece, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut chunks: Vec<InodeChunk> = Vec::new();
        loop {
            if let Err(why) = self.fill() {
                return Some(Err(why));
            }
            let Some(chunk) = self.chunks.front() else {
                break;
            };
            let first = chunks.first().unwrap_or(chunk).first_inode;
            if chunk.first_inode - first > NUMBERS_PER_PIECE_MAX - CHUNK_INODES
                || chunks.len() as u64 * CHUNK_INODES >= INODES_PER_CALL_MAX as u64
            {
                break;
            }
            chunks.push(*chunk);
            self.chunks.pop_front();
        }
        let first_inode = chunks.first()?.first_inode;
        let last = chunks.last()?;
        let end = last.first_inode + u64::from(u64::BITS - last.used.leading_zeros());
        Some(Ok(TablePiece {
            span: Span {
                offset: first_inode,
                len: (end - first_inode) as u32,
            },
            first_inode,
            chunks,
            parts: Vec::new(),
        }))
    }
}

impl Volume for XfsBulkstat {
    fn facts(&self) -> VolumeFacts {
        VolumeFacts {
            kind: "xfs",
            uuid: self.uuid,
            // The kernel says what inodes mean.
            inode_context: [0; 12],
            root: self.root.inode,
            number_bytes: 8,
            has_metadata_in_page_cache: false,
            is_replayed: false,
            was_never_mounted: false,
            was_in_use: false,
        }
    }

    fn read(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::Error::other(BY_KERNEL))
    }
}

impl InodeTables for XfsBulkstat {
    fn inodes_expected(&self) -> u64 {
        let stat = rustix::fs::fstatvfs(&self.directory);
        stat.map_or(0, |stat| stat.f_files.saturating_sub(stat.f_ffree))
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = Result<TablePiece, String>> + Send + '_> {
        Box::new(TablePieces {
            directory: self.directory.as_fd(),
            numbers: InodeNumbers::default(),
            chunks: VecDeque::new(),
            is_at_end: false,
        })
    }

    fn parse(&self, _: &TablePiece, bytes: &[u8], sink: &mut dyn TableSink) {
        for raw in bytes.chunks_exact(RECORD_BYTES) {
            let inode = inode_of(raw).expect("exact chunks");
            let number = inode.number;
            let Some(found) = FoundInode::new(&inode) else {
                let why = "the kernel reports an unknown file type".to_owned();
                sink.incomplete(number, why.clone());
                sink.damaged(number, why);
                continue;
            };
            // Deleted, but somebody has it open; or made without a name.
            if inode.nlink == 0 {
                continue;
            }
            let is_directory = found.kind == FileKind::Directory;
            sink.inode(found, raw);
            if is_directory {
                sink.names(names_piece(number, inode.generation));
            }
        }
    }

    /// It is not in the records, unless it is taken.
    fn forget_reading(&self, _: &mut [u8], _: Atime) {}
}

impl DirectoryNames for XfsBulkstat {
    fn parse(&self, _: &NamesPiece, _: &[u8], _: &mut dyn FnMut(&[u8], u64)) -> Vec<String> {
        vec![BY_KERNEL.to_owned()]
    }

    fn bulkstat(&self) -> Option<&XfsBulkstat> {
        Some(self)
    }
}

impl InodeContent for XfsBulkstat {
    fn read_inode(&self, number: u64) -> Result<Vec<u8>, String> {
        let mut stat = BulkStat::new(None, 1);
        stat.seek(number);
        let bulkstat = stat.next(self.directory.as_fd());
        let bulkstat = bulkstat.map_err(|error| error.to_string())?.next();
        let inode = bulkstat.filter(|inode| inode.inode == number);
        let inode = inode.ok_or_else(|| format!("there is no inode {number}"))?;
        Ok(record_of(&inode, self.atime).to_vec())
    }

    fn decode(&self, number: u64, raw: &[u8]) -> Result<Inode, String> {
        let inode = inode_of(raw).filter(|inode| inode.number == number);
        inode.ok_or_else(|| "a temporary file is damaged".to_owned())
    }

    fn sectors(&self, _: u64, _: &[u8]) -> u64 {
        0
    }

    fn mapping_has_nodes(&self, _: u64, _: &[u8]) -> bool {
        true
    }

    fn extents(
        &self,
        _: u64,
        _: &[u8],
        _: &mut dyn FnMut(MappedExtent) -> bool,
    ) -> Result<(), String> {
        Err(BY_KERNEL.to_owned())
    }

    fn target(&self, _: u64, _: &[u8]) -> Result<Vec<u8>, String> {
        Err(BY_KERNEL.to_owned())
    }

    fn xattrs(&self, _: u64, _: &[u8]) -> Result<FoundXattrs, String> {
        Err(BY_KERNEL.to_owned())
    }
}

/// A directory that is to be listed: its number stands for its place.
fn names_piece(directory: u64, generation: u32) -> NamesPiece {
    NamesPiece {
        directory,
        file_offset: generation.into(),
        spans: vec![Span {
            offset: directory,
            len: 0,
        }],
        context: [0; 8],
    }
}

impl NamesPiece {
    /// Of a directory that is to be listed by the kernel.
    pub fn generation(&self) -> u32 {
        self.file_offset as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_of_an_inode_comes_back_from_its_record() {
        let bulkstat = BulkInode {
            inode: 1 << 40 | 5,
            generation: 0xdead_beef,
            mode: 0o020_640,
            links: 7,
            uid: 4_000_000_000,
            gid: 70_000,
            project: 42,
            size_bytes: 1 << 50,
            xflags: 0x8,
            device: (259, 70_000),
            ctime: (-1, 999_999_999),
            mtime: (1 << 34, 1),
            ..BulkInode::default()
        };
        let inode = inode_of(&record_of(&bulkstat, Atime::Taken)).unwrap();
        assert_eq!(
            (inode.number, inode.generation, inode.mode, inode.nlink),
            (
                bulkstat.inode,
                bulkstat.generation,
                bulkstat.mode,
                bulkstat.links
            )
        );
        assert_eq!(
            (inode.uid, inode.gid, inode.project, inode.size, inode.rdev),
            (
                bulkstat.uid,
                bulkstat.gid,
                bulkstat.project,
                bulkstat.size_bytes,
                bulkstat.device
            )
        );
        assert_eq!(
            (inode.ctime.seconds, inode.ctime.nanos),
            (bulkstat.ctime.0, bulkstat.ctime.1)
        );
        assert_eq!(
            (inode.mtime.seconds, inode.mtime.nanos),
            (bulkstat.mtime.0, bulkstat.mtime.1)
        );
        assert_eq!(inode.flags, bale_sys::inode::flag::IMMUTABLE);
        let read = BulkInode {
            atime: (5, 5),
            blocks: 9,
            ..bulkstat
        };
        let [before, after] = [&bulkstat, &read].map(|of| record_of(of, Atime::LeftOut));
        assert_eq!(before, after);
        let inode = inode_of(&record_of(&read, Atime::Taken)).unwrap();
        assert_eq!((inode.atime.seconds, inode.atime.nanos), read.atime);
    }
}
