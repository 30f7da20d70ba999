//! Runs: the children of one directory, from its first name until its blocks are written.

use super::builder::{Ext4Builder, LOST_FOUND_NAME};
use super::directory::{
    self, DirectoryBlocks, DirectoryIdentity, WrittenDirectory, lost_found_blocks,
};
use super::entry::{NAME_BYTES_MAX, dirent_type};
use super::error::{EntryError, Result};
use super::extents::ExtentTree;
use super::field::put_u16;
use super::inode::{self, FLAG_INDEX, LINKS, LOST_FOUND_INODE, Mapping, ROOT_INODE};
use super::names::Name;
use super::refusal::{LINKS_MAX, PushError, path_order};
use super::sink::BlockSink;
use super::stream::Blocks;
use crate::inode::FileKind;

/// The directory whose children are being pushed.
pub(super) struct OpenRun {
    pub inode: u32,
    pub parent_inode: u32,
    pub path: Vec<u8>,
    pub subdirectories: u64,
}

impl<S: BlockSink> Ext4Builder<S> {
    /// Makes the parent's run the open one; directories passed over on the way are empty.
    pub(super) fn enter_run(
        &mut self,
        parent: &[u8],
        name: &[u8],
    ) -> std::result::Result<(), PushError> {
        while self.run.path != parent {
            if path_order(&self.run.path, parent).is_gt() {
                return Err(EntryError::Order.into());
            }
            self.close_run()?;
            let mut path = std::mem::take(&mut self.run.path);
            let next = self.pending.next(&mut path)?;
            self.run.path = path;
            let Some(next) = next else {
                // Nothing can follow: a path after every other, so that each further entry is out
                // of order.
                self.run.path = vec![u8::MAX; 2 * NAME_BYTES_MAX];
                self.run.inode = 0;
                return Err(EntryError::Order.into());
            };
            let path = std::mem::take(&mut self.run.path);
            self.open_run(next.inode, next.parent_inode, &path);
        }
        if self.run.inode == 0 || !self.names.may_follow(name) {
            return Err(EntryError::Order.into());
        }
        Ok(())
    }

    pub(super) fn open_run(&mut self, inode: u32, parent_inode: u32, path: &[u8]) {
        self.run = OpenRun {
            inode,
            parent_inode,
            path: path.to_vec(),
            subdirectories: 0,
        };
        self.names.clear();
    }

    /// Writes the directory's blocks and completes its inode.
    pub(super) fn close_run(&mut self) -> Result<()> {
        let number = self.run.inode;
        if number == 0 {
            return Ok(()); // Behind the last directory: see `enter_run`.
        }
        if number == ROOT_INODE && !self.has_lost_found {
            self.run.subdirectories += 1;
            let dirent_type = dirent_type(FileKind::Directory);
            let name = Name {
                inode: LOST_FOUND_INODE,
                dirent_type,
                bytes: LOST_FOUND_NAME,
            };
            self.names.push(name, &mut self.maker)?;
        }
        let block_size = self.options.block_size;
        let record = self
            .deferred
            .record(u64::from(number) - 1, &mut self.maker)?;
        let identity = DirectoryIdentity {
            inode: number,
            parent_inode: self.run.parent_inode,
            seed: inode::seed_of(self.seed, number, record),
            block_size,
        };
        let xattr_blocks = inode::blocks_of(record, block_size);
        let written = self.write_names(identity)?;
        let block_map = self
            .tree
            .finish((block_size, identity.seed), &mut self.blocks)?;
        let mapping = Mapping {
            size_bytes: written.blocks * u64::from(block_size),
            blocks: xattr_blocks + self.tree.blocks(),
            block_map,
        };
        let links = 2 + self.run.subdirectories;
        let links = if links > u64::from(LINKS_MAX) {
            1
        } else {
            links as u16
        };
        let record = self
            .deferred
            .record(u64::from(number) - 1, &mut self.maker)?;
        inode::put_mapping(record, &mapping, block_size);
        inode::add_flags(record, if written.has_index { FLAG_INDEX } else { 0 });
        put_u16(record, LINKS, links);
        self.has_large_dir |= written.needs_large_dir;
        self.names.clear();
        self.pending.descend(number, self.run.path.len());
        Ok(())
    }

    /// Writes the names gathered, mapping their blocks in the extent tree.
    fn write_names(&mut self, identity: DirectoryIdentity) -> Result<WrittenDirectory> {
        self.tree.clear();
        let mut out = MappedBlocks {
            blocks: &mut self.blocks,
            tree: &mut self.tree,
            identity,
            next: 0,
            root_place: 0,
        };
        if identity.inode != LOST_FOUND_INODE || self.names.dirent_bytes() > 0 {
            return directory::write(identity, &mut self.names, &mut out);
        }
        let blocks = lost_found_blocks(identity.block_size);
        directory::write_empty(identity, blocks, &mut out)?;
        Ok(WrittenDirectory {
            blocks,
            has_index: false,
            needs_large_dir: false,
        })
    }

    pub(super) fn add_name(&mut self, bytes: &[u8], inode: u32, kind: FileKind) -> Result<()> {
        self.summary.names += 1;
        self.names.push(
            Name {
                inode,
                dirent_type: dirent_type(kind),
                bytes,
            },
            &mut self.maker,
        )
    }
}

/// Maps the blocks of one directory as they are written.
struct MappedBlocks<'a, S> {
    blocks: &'a mut Blocks<S>,
    tree: &'a mut ExtentTree,
    identity: DirectoryIdentity,
    next: u64,
    root_place: u64,
}

impl<S: BlockSink> MappedBlocks<'_, S> {
    fn map(&mut self, place: u64) -> Result<()> {
        let shape = (self.identity.block_size, self.identity.seed);
        self.tree.push((self.next, place, 1), shape, self.blocks)?;
        self.next += 1;
        Ok(())
    }
}

impl<S: BlockSink> DirectoryBlocks for MappedBlocks<'_, S> {
    fn append(&mut self, block: &[u8]) -> Result<()> {
        let place = self.blocks.write_meta(block)?;
        self.map(place)
    }

    fn reserve_root(&mut self) -> Result<()> {
        self.root_place = self.blocks.reserve_meta()?;
        self.map(self.root_place)
    }

    fn write_root(&mut self, block: &[u8]) -> Result<()> {
        self.blocks.rewrite_meta(self.root_place, block)
    }
}
