//! Reading XFS from a byte source: inodes, names, extents, attributes and links, without the
//! kernel.
//!
//! The caller decides what is read when and by whom: this module says where inodes and directory
//! blocks lie, in order of address, and parses the bytes. Only what hangs on one inode (extent
//! btrees, large attributes, long links) is read from here. An [`Xfs`] is plain data and shared
//! between threads.
//!
//! A scan, in order:
//! 1. [`Xfs::open`], [`Xfs::needs_recovery`]: a log with work in it makes everything else stale.
//! 2. For every allocation group [`Xfs::inode_chunks`]; the ranges of many chunks are read at once.
//! 3. [`Xfs::chunk_inodes`] over what was read; small directories give their names at once
//!    ([`Xfs::read_dir`] of an inline one does not read), large ones their [`Xfs::dir_blocks`].
//! 4. Directory blocks sorted by address, read in large pieces, [`Xfs::parse_dir_block`].
//! 5. [`Xfs::extents`] of files, [`Xfs::xattrs`], [`Xfs::symlink_target`], while the inode's bytes
//!    are at hand.
//!
//! Version 5 proves every block it reads: checksum, address, file system and owner. Version 4
//! proves nothing ([`Xfs::no_checksums`]): read it only where nothing can change. Whatever is wrong
//! is an error of its own place: nothing is left out in silence.

mod acl;
mod attr;
mod attr_block;
mod btree;
mod bytes;
mod dir;
mod dirblocks;
mod error;
mod extents;
mod free_space;
#[doc(hidden)]
pub mod fuzz;
mod inobt;
mod inode;
mod log;
mod log_record;
mod logged;
mod superblock;
mod symlink;
mod unchanged;

pub use dir::DirName;
pub use dirblocks::{DevicePiece, DirBlock, DirBlocks};
pub use error::{Result, XfsError};
pub use extents::ForkExtents;
pub use free_space::FreeSpace;
pub use inobt::{AgInodes, CHUNK_INODES, InodeChunk, InodeChunks};
pub use inode::{DiskInode, ForkKind};
pub use log::LogState;
pub use logged::{LOG_BYTES_MAX, LogPlace};
pub use superblock::Superblock;
pub(crate) use unchanged::XfsStates;

use crate::ByteSource;

/// An XFS file system whose superblock has been read and believed.
#[derive(Clone, Debug)]
pub struct Xfs {
    superblock: Superblock,
}

impl Xfs {
    /// Reads the superblock. Fails on anything that would be read wrongly: unknown incompatible
    /// features, a realtime section, sizes that do not fit the source.
    pub fn open(source: &dyn ByteSource) -> Result<Xfs> {
        Ok(Xfs {
            superblock: Superblock::read(source)?,
        })
    }

    /// Geometry, UUIDs, label, counts.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Version 4: no block can prove what it is, so a torn or an old read is not noticed.
    pub fn no_checksums(&self) -> bool {
        !self.superblock.has_checksums
    }

    /// Whether the device lacks changes that the log holds, or may: not after an unmount, and not
    /// on a snapshot that was taken of a frozen file system. [`Xfs::log_state`] tells which.
    pub fn needs_recovery(&self, source: &dyn ByteSource) -> Result<bool> {
        Ok(matches!(
            self.log_state(source)?,
            LogState::Dirty | LogState::External
        ))
    }

    /// What a mount would find in the log.
    pub fn log_state(&self, source: &dyn ByteSource) -> Result<LogState> {
        log::read_state(self, source)
    }

    /// A moment of the log, for [`Xfs::inodes_logged_since`]: of a mounted file system, what is not
    /// written to the log yet comes behind it. `None` if there is none to be had just now.
    pub fn newest_log_record(&self, source: &dyn ByteSource) -> Result<Option<LogPlace>> {
        logged::newest_record(self, source)
    }

    /// Inodes that the log tells of since then, sorted; after a freeze no other one was changed.
    /// `None` if that cannot be told: the log went on too far, has come round, or has something
    /// that is not understood.
    pub fn inodes_logged_since(
        &self,
        source: &dyn ByteSource,
        since: LogPlace,
    ) -> Result<Option<Vec<u64>>> {
        logged::inodes_since(self, source, since)
    }

    /// Header of one allocation group's inodes.
    pub fn ag_inodes(&self, source: &dyn ByteSource, ag: u32) -> Result<AgInodes> {
        inobt::read_ag_inodes(self, source, ag)
    }

    /// Inodes (allocated, of those not in use) by the headers of all allocation groups: one small
    /// read for each.
    pub fn inode_totals(&self, source: &dyn ByteSource) -> Result<(u64, u64)> {
        (0..self.superblock.ag_count).try_fold((0, 0), |(count, free), ag| {
            let header = self.ag_inodes(source, ag)?;
            Ok((
                count + u64::from(header.count),
                free + u64::from(header.free),
            ))
        })
    }

    /// The inode chunks of one allocation group in order of address.
    pub fn inode_chunks<'a>(
        &'a self,
        source: &'a dyn ByteSource,
        ag: u32,
    ) -> Result<InodeChunks<'a>> {
        InodeChunks::new(self, source, ag)
    }

    /// Every inode in use of a chunk, from the bytes of its [`InodeChunk::device_range`], with its
    /// number. Inodes for the file system's own use ([`Xfs::is_internal`]) are left out.
    pub fn chunk_inodes<'a>(
        &'a self,
        chunk: &InodeChunk,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (u64, Result<DiskInode<'a>>)> + 'a {
        let inode_bytes = usize::from(self.superblock.inode_bytes);
        let InodeChunk {
            first_inode, used, ..
        } = *chunk;
        let first_slot = used.trailing_zeros();
        (first_slot..CHUNK_INODES)
            .filter(move |slot| used >> slot & 1 != 0)
            .filter_map(move |slot| {
                let number = first_inode + u64::from(slot);
                if self.is_internal(number) {
                    return None;
                }
                let at = (slot - first_slot) as usize * inode_bytes;
                Some((
                    number,
                    self.parse_inode(number, bytes.get(at..).unwrap_or_default()),
                ))
            })
    }

    /// Checks and decodes inode `number` from the start of `bytes`.
    pub fn parse_inode<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<DiskInode<'a>> {
        DiskInode::parse(self, number, bytes)
    }

    /// Decodes an inode that [`Xfs::chunk_inodes`] gave and that was kept since: its checksum was
    /// right then, and is not computed again.
    pub fn parse_kept<'a>(&self, number: u64, bytes: &'a [u8]) -> Result<DiskInode<'a>> {
        DiskInode::parse_kept(self, number, bytes)
    }

    /// Reads one inode into `buffer` and parses it. A free inode is damage: it has no type.
    pub fn read_inode<'b>(
        &self,
        source: &dyn ByteSource,
        number: u64,
        buffer: &'b mut Vec<u8>,
    ) -> Result<DiskInode<'b>> {
        let offset = self
            .superblock
            .inode_offset(number)
            .ok_or_else(|| XfsError::damaged("inode", 0, "number outside of the file system"))?;
        bytes::read_into(
            source,
            offset,
            usize::from(self.superblock.inode_bytes),
            buffer,
        )?;
        self.parse_inode(number, buffer)
    }

    /// Whether an inode is the file system's own: realtime bitmap and summary, quota files. They
    /// have no names.
    pub(crate) fn is_internal(&self, number: u64) -> bool {
        number != 0 && self.superblock.internal_inodes.contains(&number)
    }

    /// The extents of a fork in order of file offset. Reads only where the fork has a btree.
    pub fn extents<'a>(
        &'a self,
        source: &'a dyn ByteSource,
        inode: &DiskInode<'a>,
        fork: ForkKind,
    ) -> Result<ForkExtents<'a>> {
        ForkExtents::new(self, source, inode, fork)
    }

    /// Where a directory's blocks with names lie; none if the directory is inline. Reads only where
    /// it has an extent btree.
    pub fn dir_blocks<'a>(
        &'a self,
        source: &'a dyn ByteSource,
        inode: &DiskInode<'a>,
    ) -> Result<DirBlocks<'a>> {
        if inode.kind != crate::FileKind::Directory {
            return Err(XfsError::damaged(
                "directory of inode",
                inode.device_offset,
                "is of another type",
            ));
        }
        DirBlocks::new(self, source, inode)
    }

    /// Hands the names in one directory block to `visit`, without `.` and `..`. After an error the
    /// names handed over are good, but others may be missing.
    pub fn parse_dir_block(
        &self,
        block: &DirBlock,
        bytes: &[u8],
        visit: &mut dyn FnMut(DirName<'_>),
    ) -> Result<()> {
        dir::parse_block(self, block, bytes, visit)
    }

    /// Hands all names of a directory to `visit`, without `.` and `..`. Does not read for an inline
    /// directory.
    pub fn read_dir(
        &self,
        source: &dyn ByteSource,
        inode: &DiskInode<'_>,
        visit: &mut dyn FnMut(DirName<'_>),
    ) -> Result<()> {
        let blocks = self.dir_blocks(source, inode)?;
        if inode.is_inline() {
            return dir::parse_short_form(self, inode, visit);
        }
        let mut buffer = Vec::new();
        for block in blocks {
            let block = block?;
            dirblocks::read_block(source, &block, &mut buffer)?;
            self.parse_dir_block(&block, &buffer, visit)?;
        }
        Ok(())
    }

    /// Hands every extended attribute to `visit` as full name and value, in the order of the disk.
    /// POSIX ACLs appear as `system.posix_acl_*` in the form that `getxattr` gives. Does not read
    /// if [`DiskInode::xattrs_are_inline`].
    pub fn xattrs(
        &self,
        source: &dyn ByteSource,
        inode: &DiskInode<'_>,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        attr::read_all(self, source, inode, visit)
    }

    /// Puts the target of a symbolic link into `target`. Reads only where it does not lie in the
    /// inode.
    pub fn symlink_target(
        &self,
        source: &dyn ByteSource,
        inode: &DiskInode<'_>,
        target: &mut Vec<u8>,
    ) -> Result<()> {
        symlink::read_target(self, source, inode, target)
    }
}
