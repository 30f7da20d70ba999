//! Reading ext4 (and ext3, ext2) from a byte source, whole file system at a time or inode by inode.
//!
//! Every structure that carries a checksum is verified; what is damaged is reported with its inode
//! number, what is not understood is refused by name, and nothing is left out in silence. The
//! reader opens nothing and starts no thread: a scan asks for [`Ext4::itable_ranges`], reads them
//! however it likes, and hands the bytes to [`Ext4::parse_inodes`]; the same goes for directories
//! ([`Ext4::dir_extents`], [`Ext4::parse_dir_block`]). Single objects (`read_inode`, `xattrs`,
//! `read_dir`) are read through the source. Layout of the structures: the kernel's documentation of
//! ext4.
//!
//! Checksums cannot tell a directory block that was replaced by another block of the same
//! directory. Whoever joins names and inodes therefore counts: a name without inode, an inode with
//! fewer names than links, a directory with two names are problems to report, and a set of entered
//! directories keeps entries that lead upwards from being followed.
//!
//! On a mounted device the answers are hints until they are verified: keep [`RawInode::bytes`] and
//! the [`Mapping::Node`]s of a file, read them again after a barrier and compare.

mod acl;
mod block_bitmap;
mod bytes;
mod checksum;
mod content;
mod directory;
mod error;
mod features;
#[doc(hidden)]
pub mod fuzz_entry;
mod groups;
mod inodes;
mod journal;
mod limits;
mod mapping;
mod multi_mount;
mod open;
mod overlay;
mod superblock;
mod unchanged;
mod xattr;

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

pub use block_bitmap::BlockBitmaps;
pub use directory::{DirBlock, DirContext, DirProblem, DirentRef};
pub use error::{Damage, Ext4Error, JournalDamage, Structure};
pub use features::Features;
pub use groups::{GroupProblem, GroupTotals, ItableRange};
pub use inodes::{InodeResult, RawInode};
pub use mapping::{Mapping, MappingVisitor};
pub use multi_mount::user_elsewhere;
pub use overlay::Replayed;
pub use superblock::{DataMode, Superblock};
pub(crate) use unchanged::Ext4States;
pub use xattr::InodeXattr;

use crate::{ByteSource, Inode, MappedExtent};
use groups::GroupTable;
use limits::*;

/// Inode number of the root directory.
pub const ROOT_INODE_NUMBER: u64 = ROOT_INODE as u64;

/// An opened ext4 file system. Cloning is cheap; clones share the group table.
#[derive(Clone)]
pub struct Ext4 {
    source: Arc<dyn ByteSource>,
    superblock: Arc<Superblock>,
    groups: Arc<GroupTable>,
    origin: Origin,
    /// What stands for the device where its journal was replayed.
    replayed: Option<Arc<overlay::Replayed>>,
}

/// Which copy of the superblock was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The one at byte 1024.
    Primary,
    /// A backup, because the primary copy is damaged. Free counts and mount state are old.
    Backup {
        /// Group that holds it.
        group: u16,
    },
}

impl Ext4 {
    /// The checked superblock: sizes, identity, features, state.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Which copy of the superblock was used.
    pub fn origin(&self) -> Origin {
        self.origin
    }

    /// Sums over the group descriptors: exact totals before the first inode is read.
    pub fn totals(&self) -> GroupTotals {
        self.groups.totals
    }

    /// Groups whose inodes cannot be found: their files are missing from every scan.
    pub fn group_problems(&self) -> &[GroupProblem] {
        &self.groups.problems
    }

    /// Are bytes of this range not those of the device, but those of a replayed journal?
    pub fn is_replaced(&self, range: &Range<u64>) -> bool {
        (self.replayed.as_ref()).is_some_and(|replayed| replayed.touches(range))
    }

    /// Where content and metadata are read from. After [`Ext4::open_replayed`] this is the replayed
    /// view, and file content must be read from it too.
    pub fn source(&self) -> &Arc<dyn ByteSource> {
        &self.source
    }

    /// Used parts of all inode tables in the order of inode numbers, neighbours joined: read them
    /// in pieces of 1 to 4 MiB.
    pub fn itable_ranges(&self) -> Vec<ItableRange> {
        self.groups.itable_ranges(&self.superblock)
    }

    /// Decodes inodes that lie one behind the other; `first_inode` is the number of the first,
    /// `bytes` is a multiple of the inode size. Unused, deleted, orphaned, reserved, quota and
    /// attribute inodes are not reported.
    pub fn parse_inodes(&self, first_inode: u64, bytes: &[u8], f: &mut dyn FnMut(InodeResult<'_>)) {
        inodes::parse(&self.superblock, first_inode, bytes, f);
    }

    /// Decodes one inode that was kept or read again, and checks its checksum.
    pub fn decode_inode(&self, raw: &RawInode<'_>) -> Result<Inode, Ext4Error> {
        let in_use = |()| {
            if raw.in_use() {
                Ok(())
            } else {
                Err(Damage::Unused)
            }
        };
        let decoded = raw
            .check(&self.superblock)
            .and_then(in_use)
            .and_then(|()| raw.decode(&self.superblock));
        decoded.map_err(Ext4Error::inode(raw.number()))
    }

    /// Decodes an inode that [`Ext4::parse_inodes`] reported and that was kept since: its checksum
    /// was right then, and is not computed again.
    pub fn decode_kept(&self, raw: &RawInode<'_>) -> Result<Inode, Ext4Error> {
        let decoded = raw.decode(&self.superblock);
        decoded.map_err(Ext4Error::inode(raw.number()))
    }

    /// Reads and decodes one inode.
    pub fn read_inode(&self, number: u64) -> Result<Inode, Ext4Error> {
        let bytes = self.read_inode_bytes(number)?;
        let raw = RawInode::new(number, &bytes).ok_or_else(|| outside(number))?;
        self.decode_inode(&raw)
    }

    /// Reads one inode as it lies on the device; see [`RawInode::new`].
    pub fn read_inode_bytes(&self, number: u64) -> Result<Vec<u8>, Ext4Error> {
        let offset = self.inode_offset(number).ok_or_else(|| outside(number))?;
        let mut bytes = vec![0; self.superblock.inode_bytes as usize];
        self.read(offset, &mut bytes, "inode")?;
        Ok(bytes)
    }

    /// Where an inode lies on the device; `None` if the number does not exist or its group is
    /// damaged.
    pub fn inode_offset(&self, number: u64) -> Option<u64> {
        self.groups
            .inode_offset(&self.superblock, u32::try_from(number).ok()?)
    }

    /// What the inode bitmap says: settles whether a damaged inode is a lost file or only garbage.
    pub fn inode_is_allocated(&self, number: u64) -> Result<bool, Ext4Error> {
        let index = u32::try_from(number)
            .ok()
            .and_then(|number| number.checked_sub(1))
            .ok_or_else(|| outside(number))?;
        if index >= self.superblock.inodes_count {
            return Err(outside(number));
        }
        let group = index / self.superblock.inodes_per_group;
        let bit = index % self.superblock.inodes_per_group;
        groups::inode_bitmap_bit(self.source.as_ref(), &self.superblock, group, bit)
            .map_err(|source| Ext4Error::Group { group, source })
    }

    /// Walks where a file's (or directory's) content lies, in file order, without collecting
    /// anything.
    pub fn walk_mapping(
        &self,
        raw: &RawInode<'_>,
        visitor: &mut MappingVisitor<'_>,
    ) -> Result<(), Ext4Error> {
        mapping::walk(self.source.as_ref(), &self.superblock, raw, visitor)
            .map_err(Ext4Error::inode(raw.number()))
    }

    /// All extents of a file. Memory follows their number; use [`Ext4::walk_mapping`] for files
    /// that may be huge.
    pub fn extents(&self, raw: &RawInode<'_>) -> Result<Vec<MappedExtent>, Ext4Error> {
        let mut extents = Vec::new();
        self.walk_mapping(raw, &mut |mapping| {
            if let Mapping::Extent(extent) = mapping {
                extents.push(extent);
            }
            ControlFlow::Continue(())
        })?;
        Ok(extents)
    }

    /// 512-byte units that an inode takes on the device, as `st_blocks` tells.
    pub fn sectors(&self, raw: &RawInode<'_>) -> u64 {
        raw.blocks_512(&self.superblock)
    }

    /// Does finding a file's content take further reads than of its inode?
    pub fn mapping_has_nodes(&self, raw: &RawInode<'_>) -> bool {
        raw.mapping_has_nodes(&self.superblock)
    }

    /// What [`Ext4::parse_dir_block`] must know of the directory.
    pub fn dir_context(&self, raw: &RawInode<'_>) -> DirContext {
        DirContext::new(&self.superblock, raw)
    }

    /// Parses one block of a directory; `block_index` counts from 0 within the directory. On an
    /// error names of this block may have been reported already, and others are missing.
    pub fn parse_dir_block(
        &self,
        dir: &DirContext,
        block_index: u64,
        bytes: &[u8],
        f: &mut dyn FnMut(DirentRef<'_>),
    ) -> Result<DirBlock, Damage> {
        directory::parse_block(&self.superblock, dir, block_index, bytes, f)
    }

    /// Parses a directory that lies in its inode ([`Layout::Inline`](crate::Layout::Inline)).
    pub fn parse_inline_dir(
        &self,
        content: &[u8],
        f: &mut dyn FnMut(DirentRef<'_>),
    ) -> Result<DirBlock, Damage> {
        directory::parse_inline(&self.superblock, content, f)
    }

    fn read(&self, offset: u64, bytes: &mut [u8], what: &'static str) -> Result<(), Ext4Error> {
        self.source
            .read_exact_at(offset, bytes)
            .map_err(|source| Ext4Error::Read {
                what,
                offset,
                source,
            })
    }
}

fn outside(number: u64) -> Ext4Error {
    Ext4Error::Inode {
        inode: number,
        source: Damage::InodeOutside(number),
    }
}
