//! Inodes with what belongs to them: content, attributes, and their place in a table.

use super::builder::Ext4Builder;
use super::entry::{NewEntry, NewKind, mode_of_kind};
use super::error::{MkError, Result, path_text};
use super::inode::{self, DataRanges, FLAG_EXTENTS, InodeFields, Mapping, SHORT_SYMLINK_BYTES_MAX};
use super::sink::{BlockSink, FileData};
use super::xattr::{self, EncodedXattrs};
use crate::inode::Timestamp;

impl<S: BlockSink> Ext4Builder<S> {
    /// Writes content and attributes, then the inode, to its table or among the deferred.
    pub(super) fn put_inode(
        &mut self,
        number: u32,
        entry: &NewEntry<'_>,
        data: &mut dyn FileData,
        xattrs: &EncodedXattrs,
    ) -> Result<()> {
        let seed = super::checksum::inode_seed(self.seed, number, entry.generation);
        let xattr_block = match &xattrs.block {
            Some(block) => self.put_xattr_block(block.clone())?,
            None => 0,
        };
        let mut mapping = self.put_content(entry, data, seed)?;
        mapping.blocks += xattrs.blocks() + xattrs.large_blocks(self.options.block_size);
        let has_extents = match entry.content {
            NewKind::Directory | NewKind::Regular { .. } => true,
            NewKind::Symlink { target } => target.len() > SHORT_SYMLINK_BYTES_MAX,
            _ => false,
        };
        let has_project = self.options.inode_size as usize > inode::BASE_INODE_BYTES;
        let fields = InodeFields {
            mode: mode_of_kind(entry.content.kind()) | (entry.permissions & 0o7777),
            uid: entry.uid,
            gid: entry.gid,
            atime: entry.atime,
            mtime: entry.mtime,
            ctime: entry.ctime,
            crtime: entry.crtime.unwrap_or(entry.ctime),
            links: 1,
            flags: InodeFields::kept_flags(entry.flags, entry.project, self.options.inode_size)
                | if has_extents { FLAG_EXTENTS } else { 0 },
            project: if has_project { entry.project } else { 0 },
            generation: entry.generation,
            mapping,
            xattr_block,
            version: 0,
        };
        self.has_projects |= fields.project != 0;
        let clamped = self.store_inode(number, &fields, &xattrs.in_inode)?;
        self.summary.times_clamped += u64::from(clamped);
        Ok(())
    }

    /// Stores an inode in its table or among the deferred. Says whether a time was clamped.
    fn store_inode(&mut self, number: u32, fields: &InodeFields, in_inode: &[u8]) -> Result<bool> {
        let block_size = self.options.block_size;
        Ok(if u64::from(number) <= self.deferred.len() {
            let record = self
                .deferred
                .record(u64::from(number) - 1, &mut self.maker)?;
            fields.encode(record, block_size, in_inode)
        } else {
            let record = self.stream.next_record(
                self.options.inode_size as usize,
                &self.blocks.geometry,
                &mut self.blocks.out,
            )?;
            let clamped = fields.encode(record, block_size, in_inode);
            inode::seal(record, self.seed, number);
            clamped
        })
    }

    /// Gives each value that is too large for a block an inode of its own, which no directory
    /// names.
    pub(super) fn put_large_values(
        &mut self,
        entry: &NewEntry<'_>,
        xattrs: &mut EncodedXattrs,
    ) -> Result<()> {
        for position in 0..xattrs.large.len() {
            let number = self.allocate_inode(false)?;
            let seed = super::checksum::inode_seed(self.seed, number, 0);
            let shape = (self.options.block_size, seed);
            let large = &xattrs.large[position];
            self.tree.clear();
            for (logical, part) in large
                .value
                .chunks(self.options.block_size as usize)
                .enumerate()
            {
                let mut block = part.to_vec();
                block.resize(self.options.block_size as usize, 0);
                let place = self.blocks.write_meta(&block)?;
                self.tree
                    .push((logical as u64, place, 1), shape, &mut self.blocks)?;
            }
            let block_map = self.tree.finish(shape, &mut self.blocks)?;
            let mapping = Mapping {
                size_bytes: large.value.len() as u64,
                blocks: self.tree.blocks(),
                block_map,
            };
            let fields = InodeFields::of_large_value(entry, mapping, large.hash);
            self.store_inode(number, &fields, &[])?;
            xattrs.set_inode_of_large(position, number);
            self.has_large_values = true;
        }
        Ok(())
    }

    fn put_xattr_block(&mut self, mut block: Vec<u8>) -> Result<u64> {
        let place = self.blocks.reserve_meta()?;
        xattr::seal(&mut block, self.seed, place);
        self.blocks.rewrite_meta(place, &block)?;
        Ok(place)
    }

    fn put_content(
        &mut self,
        entry: &NewEntry<'_>,
        data: &mut dyn FileData,
        seed: u32,
    ) -> Result<Mapping> {
        match entry.content {
            NewKind::Regular { size_bytes } => self.put_file(entry, size_bytes, data, seed),
            NewKind::Symlink { target } if target.len() > SHORT_SYMLINK_BYTES_MAX => {
                let mut block = target.to_vec();
                block.resize(self.options.block_size as usize, 0);
                self.tree.clear();
                let place = self.blocks.write_meta(&block)?;
                let shape = (self.options.block_size, seed);
                self.tree.push((0, place, 1), shape, &mut self.blocks)?;
                let block_map = self.tree.finish(shape, &mut self.blocks)?;
                Ok(Mapping {
                    size_bytes: target.len() as u64,
                    blocks: 1,
                    block_map,
                })
            }
            NewKind::Symlink { target } => {
                let mut mapping = Mapping::none();
                mapping.size_bytes = target.len() as u64;
                mapping.block_map[..target.len()].copy_from_slice(target);
                Ok(mapping)
            }
            NewKind::BlockDevice { major, minor } | NewKind::CharDevice { major, minor } => {
                Ok(Mapping {
                    block_map: inode::device_map(major, minor),
                    ..Mapping::none()
                })
            }
            NewKind::Directory | NewKind::Fifo | NewKind::Socket => Ok(Mapping::none()),
        }
    }

    fn put_file(
        &mut self,
        entry: &NewEntry<'_>,
        size_bytes: u64,
        data: &mut dyn FileData,
        seed: u32,
    ) -> Result<Mapping> {
        let block_size = u64::from(self.options.block_size);
        let shape = (self.options.block_size, seed);
        self.tree.clear();
        let mut ranges = DataRanges::new(data, size_bytes, self.options.block_size);
        while let Some(range) = ranges.next() {
            let mut logical = range.start;
            while logical < range.end {
                let want = range.end - logical;
                let taken =
                    self.blocks
                        .data
                        .take(want, &self.blocks.geometry, &mut self.blocks.out)?;
                let Some((place, bytes)) = taken else {
                    return Err(self.blocks.full());
                };
                let offset_bytes = logical * block_size;
                let valid = (size_bytes - offset_bytes).min(bytes.len() as u64) as usize;
                ranges
                    .data()
                    .read_at(offset_bytes, &mut bytes[..valid])
                    .map_err(|source| MkError::Content {
                        path: path_text(entry.parent, entry.name),
                        offset_bytes,
                        source,
                    })?;
                bytes[valid..].fill(0);
                let count = bytes.len() as u64 / block_size;
                self.summary.content_bytes += valid as u64;
                self.tree
                    .push((logical, place, count), shape, &mut self.blocks)?;
                logical += count;
            }
        }
        let block_map = self.tree.finish(shape, &mut self.blocks)?;
        Ok(Mapping {
            size_bytes,
            blocks: self.tree.blocks(),
            block_map,
        })
    }

    /// A directory that no entry described yet.
    pub(super) fn put_own_directory(&mut self, number: u32, permissions: u32) -> Result<()> {
        let entry = own_entry(NewKind::Directory, permissions, self.options.created);
        self.put_inode(
            number,
            &entry,
            &mut super::sink::NoData,
            &EncodedXattrs::none(),
        )
    }

    pub(super) fn put_journal_inode(&mut self, journal: Option<Vec<(u64, u64)>>) -> Result<()> {
        let Some(runs) = journal else { return Ok(()) };
        let seed = super::checksum::inode_seed(self.seed, inode::JOURNAL_INODE, 0);
        let shape = (self.options.block_size, seed);
        self.tree.clear();
        let mut logical = 0;
        for (place, count) in runs {
            self.tree
                .push((logical, place, count), shape, &mut self.blocks)?;
            logical += count;
        }
        let block_map = self.tree.finish(shape, &mut self.blocks)?;
        let size_bytes = logical * u64::from(self.options.block_size);
        let mapping = Mapping {
            size_bytes,
            blocks: self.tree.blocks(),
            block_map,
        };
        let entry = own_entry(
            NewKind::Regular { size_bytes: 0 },
            0o600,
            self.options.created,
        );
        self.put_inode(
            inode::JOURNAL_INODE,
            &entry,
            &mut super::sink::NoData,
            &EncodedXattrs::none(),
        )?;
        let record = self
            .deferred
            .record(u64::from(inode::JOURNAL_INODE) - 1, &mut self.maker)?;
        inode::put_mapping(record, &mapping, self.options.block_size);
        self.journal = Some(mapping);
        Ok(())
    }
}

fn own_entry(content: NewKind<'static>, permissions: u32, created: Timestamp) -> NewEntry<'static> {
    NewEntry {
        parent: b"",
        name: b"",
        content,
        permissions,
        uid: 0,
        gid: 0,
        atime: created,
        mtime: created,
        ctime: created,
        crtime: Some(created),
        flags: 0,
        project: 0,
        generation: 0,
        xattrs: &[],
        more_links: false,
    }
}
