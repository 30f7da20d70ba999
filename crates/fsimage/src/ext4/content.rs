//! Single objects read through the source: xattrs, whole directories, symbolic links, small
//! contents.

use std::ops::ControlFlow;

use super::Ext4;
use super::bytes::u32_at;
use super::checksum::crc32c;
use super::directory::{self, DirBlock, DirProblem, DirentRef};
use super::error::{Damage, Ext4Error, Structure};
use super::features::INCOMPAT_EA_INODE;
use super::inodes::{FLAG_EA_INODE, RawInode};
use super::limits::*;
use super::mapping::Mapping;
use super::xattr::{self, Entry, InodeXattr, Value};
use crate::{FileKind, Layout, MappedExtent};

impl Ext4 {
    /// All extended attributes as the kernel would list them, sorted by name.
    pub fn xattrs(&self, raw: &RawInode<'_>) -> Result<Vec<InodeXattr>, Ext4Error> {
        let mut xattrs = self.xattrs_in_inode(raw)?;
        if let Some(block) = self.xattr_block(raw) {
            let bytes = self.read_xattr_block(raw, block)?;
            xattrs.extend(self.parse_xattr_block(raw, block, &bytes)?);
        }
        xattrs.sort_unstable();
        Ok(xattrs)
    }

    /// Only the attributes that need no further block.
    pub fn xattrs_in_inode(&self, raw: &RawInode<'_>) -> Result<Vec<InodeXattr>, Ext4Error> {
        let mut entries = Vec::new();
        xattr::in_inode(raw, &mut |entry| entries.push(entry))
            .map_err(Ext4Error::inode(raw.number()))?;
        self.resolve(raw, &entries)
    }

    /// Whether [`Ext4::xattrs`] needs nothing beside these bytes.
    pub fn xattrs_are_in_inode(&self, raw: &RawInode<'_>) -> bool {
        self.xattr_block(raw).is_none() && !self.superblock.incompat(INCOMPAT_EA_INODE)
    }

    /// Block number of further attributes. Inodes with equal attributes share it: cache what it
    /// holds by number.
    pub fn xattr_block(&self, raw: &RawInode<'_>) -> Option<u64> {
        Some(raw.xattr_block(&self.superblock)).filter(|block| *block != 0)
    }

    /// Decodes an attribute block that was read by the caller; `raw` is any inode that refers to
    /// it.
    pub fn parse_xattr_block(
        &self,
        raw: &RawInode<'_>,
        block: u64,
        bytes: &[u8],
    ) -> Result<Vec<InodeXattr>, Ext4Error> {
        let mut entries = Vec::new();
        xattr::in_block(&self.superblock, block, bytes, &mut |entry| {
            entries.push(entry)
        })
        .map_err(Ext4Error::inode(raw.number()))?;
        self.resolve(raw, &entries)
    }

    fn read_xattr_block(&self, raw: &RawInode<'_>, block: u64) -> Result<Vec<u8>, Ext4Error> {
        let offset = self.superblock.block_offset(block);
        let offset = offset
            .ok_or(Damage::BlockOutside(block))
            .map_err(Ext4Error::inode(raw.number()))?;
        let mut bytes = vec![0; self.superblock.block_bytes as usize];
        self.read(offset, &mut bytes, "xattr block")?;
        Ok(bytes)
    }

    fn resolve(
        &self,
        raw: &RawInode<'_>,
        entries: &[Entry<'_>],
    ) -> Result<Vec<InodeXattr>, Ext4Error> {
        let mut xattrs = Vec::with_capacity(entries.len());
        let mut total_bytes = 0;
        for entry in entries {
            let Some(name) = xattr::full_name(entry) else {
                continue;
            };
            let value = self.xattr_value(raw, entry)?;
            total_bytes += value.len() as u64;
            if total_bytes > XATTRS_BYTES_MAX {
                return Err(Ext4Error::Inode {
                    inode: raw.number(),
                    source: Damage::XattrSize(total_bytes),
                });
            }
            let value =
                xattr::kernel_value(entry.index, value).map_err(Ext4Error::inode(raw.number()))?;
            xattrs.push(InodeXattr { name, value });
        }
        Ok(xattrs)
    }

    fn xattr_value(&self, owner: &RawInode<'_>, entry: &Entry<'_>) -> Result<Vec<u8>, Ext4Error> {
        match entry.value {
            Value::Here(value) => Ok(value.to_vec()),
            Value::InInode { inode, len_bytes } => {
                self.xattr_inode_value(owner, inode.into(), len_bytes.into())
            }
        }
    }

    fn xattr_inode_value(
        &self,
        owner: &RawInode<'_>,
        number: u64,
        len_bytes: u64,
    ) -> Result<Vec<u8>, Ext4Error> {
        let at_owner = Ext4Error::inode(owner.number());
        if !self.superblock.incompat(INCOMPAT_EA_INODE) {
            return Err(at_owner(Damage::XattrEntry));
        }
        xattr::check_len(len_bytes).map_err(&at_owner)?;
        let bytes = self.read_inode_bytes(number)?;
        let raw = RawInode::new(number, &bytes)
            .ok_or(Damage::XattrEntry)
            .map_err(&at_owner)?;
        self.decode_inode(&raw)?;
        if raw.flags() & FLAG_EA_INODE == 0 || raw.mapped_size(&self.superblock) != len_bytes {
            return Err(at_owner(Damage::XattrEntry));
        }
        let value = self.read_content(&raw, XATTR_VALUE_BYTES_MAX)?;
        // The oldest form (Lustre's) points back at its owner instead of carrying a hash.
        let points_back =
            u32_at(raw.bytes(), 16) == owner.number_u32() && raw.generation() == owner.generation();
        let hash = u32_at(raw.bytes(), 8);
        if !points_back && crc32c(self.superblock.checksum_seed, &value) != hash {
            return Err(at_owner(Damage::Checksum(Structure::XattrValue)));
        }
        Ok(value)
    }

    /// Content of a file, symbolic link or directory of at most `bytes_max`; holes and unwritten
    /// extents read as zeros.
    pub fn read_content(&self, raw: &RawInode<'_>, bytes_max: u64) -> Result<Vec<u8>, Ext4Error> {
        let at_inode = Ext4Error::inode(raw.number());
        let inode = self.decode_inode(raw)?;
        if raw.is_encrypted() {
            return Err(at_inode(Damage::Encrypted));
        }
        let len = usize::try_from(inode.size)
            .ok()
            .filter(|_| inode.size <= bytes_max);
        let len = len.ok_or_else(|| at_inode(Damage::TooLong(inode.size)))?;
        if let Layout::Inline(mut content) = inode.layout {
            content.resize(len, 0);
            return Ok(content);
        }
        let mut content = vec![0; len];
        for extent in self
            .extents(raw)?
            .into_iter()
            .filter(|extent| !extent.unwritten)
        {
            let start = extent.file_offset as usize;
            self.read(
                extent.device_offset,
                &mut content[start..start + extent.len as usize],
                "content",
            )?;
        }
        Ok(content)
    }

    /// Target of a symbolic link.
    pub fn read_symlink(&self, raw: &RawInode<'_>) -> Result<Vec<u8>, Ext4Error> {
        self.read_content(raw, SYMLINK_BYTES_MAX)
    }

    /// Where the blocks of a directory lie, or which parts of it are missing. Inline directories
    /// have none.
    pub fn dir_extents(
        &self,
        raw: &RawInode<'_>,
        f: &mut dyn FnMut(Result<MappedExtent, DirProblem>),
    ) -> Result<(), Ext4Error> {
        let mut next = 0;
        let end = if raw.is_inline() {
            0
        } else {
            raw.mapped_size(&self.superblock)
        };
        // Extents that all name the same blocks could make a small image endless.
        let mut mapped_bytes = 0;
        let hole = |file_offset| DirProblem {
            file_offset,
            damage: Damage::DirHole(file_offset),
        };
        let walked = self.walk_mapping(raw, &mut |mapping| {
            let Mapping::Extent(extent) = mapping else {
                return ControlFlow::Continue(());
            };
            mapped_bytes += extent.len;
            if mapped_bytes > self.superblock.len_bytes() {
                f(Err(DirProblem {
                    file_offset: extent.file_offset,
                    damage: Damage::TooLong(mapped_bytes),
                }));
                next = end;
                return ControlFlow::Break(());
            }
            if extent.file_offset > next {
                f(Err(hole(next)));
            }
            next = extent.file_offset + extent.len;
            f(if extent.unwritten {
                Err(hole(extent.file_offset))
            } else {
                Ok(extent)
            });
            ControlFlow::Continue(())
        });
        if walked.is_ok() && next < end {
            f(Err(hole(next)));
        }
        walked
    }

    /// All names of a directory in the order of its blocks. Parts that cannot be read are reported
    /// between the names and do not end the reading.
    pub fn read_dir(
        &self,
        raw: &RawInode<'_>,
        f: &mut dyn FnMut(Result<DirentRef<'_>, DirProblem>),
    ) -> Result<(), Ext4Error> {
        let inode = self.decode_inode(raw)?;
        if FileKind::from_mode(inode.mode) != Some(FileKind::Directory) {
            return Err(Ext4Error::Inode {
                inode: raw.number(),
                source: Damage::Mode(inode.mode),
            });
        }
        match inode.layout {
            Layout::Kernel(_) => {
                return Err(Ext4Error::Inode {
                    inode: raw.number(),
                    source: Damage::Encrypted,
                });
            }
            Layout::Inline(content) => {
                let parsed =
                    directory::parse_inline(&self.superblock, &content, &mut |entry| f(Ok(entry)));
                report(parsed, 0, f);
                return Ok(());
            }
            _ => {}
        }
        let mut parts = Vec::new();
        self.dir_extents(raw, &mut |part| parts.push(part))?;
        let mut block = vec![0; self.superblock.block_bytes as usize];
        for part in parts {
            match part {
                Ok(extent) => self.read_dir_extent(raw, extent, &mut block, f),
                Err(problem) => f(Err(problem)),
            }
        }
        Ok(())
    }

    fn read_dir_extent(
        &self,
        raw: &RawInode<'_>,
        extent: MappedExtent,
        block: &mut [u8],
        f: &mut dyn FnMut(Result<DirentRef<'_>, DirProblem>),
    ) {
        let dir = self.dir_context(raw);
        let block_bytes = u64::from(self.superblock.block_bytes);
        for index in 0..extent.len / block_bytes {
            let file_offset = extent.file_offset + index * block_bytes;
            let read = self
                .source
                .read_exact_at(extent.device_offset + index * block_bytes, block);
            let parsed = read.map_err(|_| Damage::Unreadable).and_then(|()| {
                self.parse_dir_block(&dir, file_offset / block_bytes, block, &mut |entry| {
                    f(Ok(entry))
                })
            });
            report(parsed, file_offset, f);
        }
    }
}

fn report(
    parsed: Result<DirBlock, Damage>,
    file_offset: u64,
    f: &mut dyn FnMut(Result<DirentRef<'_>, DirProblem>),
) {
    if let Err(damage) = parsed {
        f(Err(DirProblem {
            file_offset,
            damage,
        }));
    }
}
