//! One inode as it lies on disk, checked and decoded without copying: its forks stay slices of the
//! caller's buffer.

use super::Xfs;
use super::bytes::{be16, be32, be64, crc_matches};
use super::error::{Result, XfsError};
use super::superblock::Superblock;
use crate::{FileKind, Inode, Layout, Timestamp};

const STRUCTURE: &str = "inode";
const MAGIC: &[u8] = b"IN";
const CRC_AT: usize = 100;
/// Fixed part of versions 1 and 2, and of version 3.
const CORE_BYTES_V2: usize = 100;
const CORE_BYTES_V3: usize = 176;
/// Bytes of an extent record in a fork.
pub(super) const EXTENT_BYTES: usize = 16;
/// Largest file, as the kernel sets it.
const SIZE_MAX: u64 = i64::MAX as u64;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// Second 0 of 64-bit timestamps, as early as 32-bit ones go.
const BIGTIME_EPOCH: i64 = i32::MIN as i64;

const FLAG_REALTIME: u16 = 1;
const FLAGS2_BIGTIME: u64 = 1 << 3;
const FLAGS2_LARGE_EXTENT_COUNTS: u64 = 1 << 4;

/// Bits of `di_flags` and what `FS_IOC_GETFLAGS` calls them: sync, immutable, append, no dump, no
/// atime, project.
const FLAGS_TO_FS: [(u16, u32); 6] = [
    (0x20, 0x8),
    (0x8, 0x10),
    (0x10, 0x20),
    (0x80, 0x40),
    (0x40, 0x80),
    (0x200, 0x2000_0000),
];
/// The same for `di_flags2`: DAX.
const FLAGS2_TO_FS: [(u64, u32); 1] = [(1, 0x0200_0000)];

/// How a fork keeps its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ForkFormat {
    /// Nothing: device numbers, or no such fork.
    None,
    /// The bytes themselves.
    Local,
    /// A list of extents.
    Extents,
    /// Root of an extent btree.
    Btree,
}

/// The data or the attribute fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fork<'a> {
    pub format: ForkFormat,
    /// Extents that list or tree hold.
    pub extent_count: u64,
    /// The fork's part of the inode.
    pub bytes: &'a [u8],
}

/// Which fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkKind {
    /// Content.
    Data,
    /// Extended attributes.
    Attributes,
}

/// One inode in use. It borrows the buffer that it was parsed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInode<'a> {
    /// Inode number.
    pub number: u64,
    /// Device offset of the inode.
    pub device_offset: u64,
    pub kind: FileKind,
    /// `st_mode`: type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names. 0 for a file that was deleted while open.
    pub nlink: u32,
    /// Size in bytes.
    pub size: u64,
    /// Blocks of both forks with their btrees.
    pub blocks: u64,
    pub generation: u32,
    pub project: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation; version 5 only.
    pub crtime: Option<Timestamp>,
    /// Counts changes; version 5 only.
    pub change_count: u64,
    /// `di_flags` as on disk.
    pub disk_flags: u16,
    /// `di_flags2` as on disk.
    pub disk_flags2: u64,
    /// Extent size hint, in blocks.
    pub extent_size_hint_blocks: u32,
    /// Device numbers (major, minor) of a device node.
    pub rdev: (u32, u32),
    pub(super) data: Fork<'a>,
    pub(super) attributes: Fork<'a>,
}

impl<'a> DiskInode<'a> {
    /// Checks and decodes inode `number`, which lies at the start of `bytes`.
    pub(super) fn parse(xfs: &Xfs, number: u64, bytes: &'a [u8]) -> Result<DiskInode<'a>> {
        DiskInode::parse_if(xfs, number, bytes, check_identity)
    }

    /// Decodes an inode whose checksum was found right before.
    pub(super) fn parse_kept(xfs: &Xfs, number: u64, bytes: &'a [u8]) -> Result<DiskInode<'a>> {
        DiskInode::parse_if(xfs, number, bytes, |_, _, _| Ok(()))
    }

    fn parse_if(
        xfs: &Xfs,
        number: u64,
        bytes: &'a [u8],
        identity: impl Fn(&Xfs, u64, &[u8]) -> std::result::Result<(), &'static str>,
    ) -> Result<DiskInode<'a>> {
        let superblock = xfs.superblock();
        let Some(device_offset) = superblock.inode_offset(number) else {
            return Err(XfsError::damaged(
                STRUCTURE,
                0,
                "number outside of the file system",
            ));
        };
        let damaged = |fault| XfsError::damaged(STRUCTURE, device_offset, fault);
        let bytes = bytes
            .get(..usize::from(superblock.inode_bytes))
            .ok_or_else(|| damaged("cut short"))?;
        identity(xfs, number, bytes).map_err(damaged)?;
        let inode = DiskInode::decode(superblock, number, device_offset, bytes).map_err(damaged)?;
        inode
            .check(superblock.has_bigtime, bytes[5])
            .map_err(damaged)?;
        Ok(inode)
    }

    /// Takes the fields out of an inode of known identity.
    fn decode(
        superblock: &Superblock,
        number: u64,
        device_offset: u64,
        bytes: &'a [u8],
    ) -> std::result::Result<DiskInode<'a>, &'static str> {
        let is_v3 = superblock.has_checksums;
        let is_v1 = bytes[4] == 1;
        let flags2 = if is_v3 { be64(bytes, 120) } else { 0 };
        let mode = u32::from(be16(bytes, 2));
        let kind = FileKind::from_mode(mode).ok_or("unknown file type")?;
        let times = Times {
            bytes,
            is_big: flags2 & FLAGS2_BIGTIME != 0,
        };
        let core_bytes = if is_v3 { CORE_BYTES_V3 } else { CORE_BYTES_V2 };
        let (data, attributes) = forks(
            superblock.has_large_extent_counts,
            flags2,
            bytes,
            core_bytes,
        )?;
        let project = u32::from(be16(bytes, 22)) << 16 | u32::from(be16(bytes, 20));
        Ok(DiskInode {
            number,
            device_offset,
            kind,
            mode,
            uid: be32(bytes, 8),
            gid: be32(bytes, 12),
            nlink: if is_v1 {
                u32::from(be16(bytes, 6))
            } else {
                be32(bytes, 16)
            },
            size: be64(bytes, 56),
            blocks: be64(bytes, 64),
            generation: be32(bytes, 92),
            project: if is_v1 { 0 } else { project },
            atime: times.at(32)?,
            mtime: times.at(40)?,
            ctime: times.at(48)?,
            crtime: if is_v3 { Some(times.at(144)?) } else { None },
            change_count: if is_v3 { be64(bytes, 104) } else { 0 },
            disk_flags: be16(bytes, 90),
            disk_flags2: flags2,
            extent_size_hint_blocks: be32(bytes, 72),
            rdev: rdev(kind, data.bytes),
            data,
            attributes,
        })
    }

    /// The fields agree with the type and with each other.
    fn check(
        &self,
        fs_has_bigtime: bool,
        disk_format: u8,
    ) -> std::result::Result<(), &'static str> {
        let format = self.data.format;
        let right_format = match self.kind {
            FileKind::Regular => matches!(format, ForkFormat::Extents | ForkFormat::Btree),
            FileKind::Directory | FileKind::Symlink => format != ForkFormat::None,
            FileKind::BlockDevice | FileKind::CharDevice => {
                disk_format == 0 && self.data.bytes.len() >= 4
            }
            FileKind::Fifo | FileKind::Socket => disk_format == 0,
        };
        let counted = self
            .data
            .extent_count
            .checked_add(self.attributes.extent_count);
        if !right_format {
            return Err("content format does not suit its type");
        }
        if self.size > SIZE_MAX {
            return Err("impossible size");
        }
        if matches!(self.kind, FileKind::Directory | FileKind::Symlink)
            && self.size == 0
            && self.nlink > 0
        {
            return Err("empty, which its type cannot be");
        }
        if format == ForkFormat::Local && self.size > self.data.bytes.len() as u64 {
            return Err("larger than its place in the inode");
        }
        if counted.is_none_or(|counted| counted > self.blocks) {
            return Err("more extents than blocks");
        }
        if self.disk_flags2 & FLAGS2_BIGTIME != 0 && !fs_has_bigtime {
            return Err("64-bit times in a file system without");
        }
        Ok(())
    }

    /// Flags as `FS_IOC_GETFLAGS` tells them.
    pub fn fs_flags(&self) -> u32 {
        let flags = FLAGS_TO_FS
            .iter()
            .filter(|(disk, _)| self.disk_flags & disk != 0)
            .map(|(_, fs)| fs);
        let flags2 = FLAGS2_TO_FS
            .iter()
            .filter(|(disk, _)| self.disk_flags2 & disk != 0)
            .map(|(_, fs)| fs);
        flags.chain(flags2).sum()
    }

    /// Whether the content lies in the inode: a short link's target, a small directory.
    pub fn is_inline(&self) -> bool {
        self.data.format == ForkFormat::Local
    }

    /// Whether the content lies on the realtime device, where this reader does not look.
    pub fn is_realtime(&self) -> bool {
        self.disk_flags & FLAG_REALTIME != 0 && self.kind == FileKind::Regular
    }

    /// Extents that a fork maps, 0 if its content lies in the inode.
    pub fn extent_count(&self, fork: ForkKind) -> u64 {
        self.fork(fork).extent_count
    }

    /// Whether there may be extended attributes.
    pub fn has_xattrs(&self) -> bool {
        !self.attributes.bytes.is_empty()
            && (self.attributes.format == ForkFormat::Local || self.attributes.extent_count > 0)
    }

    /// Whether all extended attributes lie in the inode, so that [`Xfs::xattrs`] does not read.
    pub fn xattrs_are_inline(&self) -> bool {
        !self.has_xattrs() || self.attributes.format == ForkFormat::Local
    }

    /// The inode in the vocabulary that all readers share. Copies inline content.
    pub fn to_inode(&self) -> Inode {
        Inode {
            number: self.number,
            generation: self.generation,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            crtime: self.crtime,
            flags: self.fs_flags(),
            project: self.project,
            rdev: self.rdev,
            layout: self.layout(),
        }
    }

    fn layout(&self) -> Layout {
        match self.data.format {
            ForkFormat::None => Layout::None,
            ForkFormat::Local => Layout::Inline(self.data.bytes[..self.size as usize].to_vec()),
            ForkFormat::Extents | ForkFormat::Btree if self.is_realtime() => {
                Layout::Kernel("content on the realtime device")
            }
            ForkFormat::Extents | ForkFormat::Btree if self.size == 0 => Layout::None,
            ForkFormat::Extents | ForkFormat::Btree => Layout::Mapped,
        }
    }

    pub(super) fn fork(&self, kind: ForkKind) -> &Fork<'a> {
        match kind {
            ForkKind::Data => &self.data,
            ForkKind::Attributes => &self.attributes,
        }
    }
}

/// Device numbers of a device node, which lie where others have content.
fn rdev(kind: FileKind, data: &[u8]) -> (u32, u32) {
    if !matches!(kind, FileKind::BlockDevice | FileKind::CharDevice) || data.len() < 4 {
        return (0, 0);
    }
    let device = be32(data, 0);
    (device >> 18, device & 0x3_ffff)
}

/// Magic, version, and for version 3 checksum, number and file system.
fn check_identity(xfs: &Xfs, number: u64, bytes: &[u8]) -> std::result::Result<(), &'static str> {
    if &bytes[..2] != MAGIC {
        return Err("wrong magic");
    }
    if !xfs.superblock().has_checksums {
        return if matches!(bytes[4], 1 | 2) {
            Ok(())
        } else {
            Err("wrong version")
        };
    }
    if !crc_matches(bytes, CRC_AT) {
        Err("checksum does not match")
    } else if bytes[4] != 3 {
        Err("wrong version")
    } else if be64(bytes, 152) != number {
        Err("tells another number")
    } else if bytes[160..176] != xfs.superblock().metadata_uuid {
        Err("belongs to another file system")
    } else {
        Ok(())
    }
}

/// Cuts the part behind the core into the two forks and checks that each holds what it says.
fn forks<'a>(
    fs_has_large_counts: bool,
    flags2: u64,
    bytes: &'a [u8],
    core_bytes: usize,
) -> std::result::Result<(Fork<'a>, Fork<'a>), &'static str> {
    let large_counts = flags2 & FLAGS2_LARGE_EXTENT_COUNTS != 0;
    if large_counts && !fs_has_large_counts {
        return Err("large extent counts in a file system without");
    }
    let (data_count, attribute_count) = if large_counts {
        (be64(bytes, 24), u64::from(be32(bytes, 76)))
    } else {
        (u64::from(be32(bytes, 76)), u64::from(be16(bytes, 80)))
    };
    let literal = &bytes[core_bytes..];
    let attribute_at = usize::from(bytes[82]) * 8;
    if attribute_at >= literal.len() {
        return Err("attribute fork outside of the inode");
    }
    let (data, attributes) = if attribute_at == 0 {
        (literal, &literal[..0])
    } else {
        literal.split_at(attribute_at)
    };
    let data = Fork::new(bytes[5], data_count, data)?;
    if attribute_at == 0 {
        // A fresh inode has format 0 here, an older one 2.
        if attribute_count != 0 || !matches!(bytes[83], 0 | 2) {
            return Err("attributes without a fork");
        }
        return Ok((
            data,
            Fork {
                format: ForkFormat::None,
                extent_count: 0,
                bytes: attributes,
            },
        ));
    }
    if !matches!(bytes[83], 1..=3) {
        return Err("unknown attribute format");
    }
    Ok((data, Fork::new(bytes[83], attribute_count, attributes)?))
}

impl<'a> Fork<'a> {
    fn new(
        disk_format: u8,
        extent_count: u64,
        bytes: &'a [u8],
    ) -> std::result::Result<Fork<'a>, &'static str> {
        let format = match disk_format {
            0 => ForkFormat::None,
            1 => ForkFormat::Local,
            2 => ForkFormat::Extents,
            3 => ForkFormat::Btree,
            _ => return Err("unknown content format"),
        };
        let fits = match format {
            ForkFormat::None | ForkFormat::Local => extent_count == 0,
            ForkFormat::Extents => extent_count <= (bytes.len() / EXTENT_BYTES) as u64,
            ForkFormat::Btree => extent_count > 0,
        };
        if fits {
            Ok(Fork {
                format,
                extent_count,
                bytes,
            })
        } else {
            Err("impossible number of extents")
        }
    }
}

/// The timestamps of an inode, in either encoding.
struct Times<'a> {
    bytes: &'a [u8],
    is_big: bool,
}

impl Times<'_> {
    fn at(&self, at: usize) -> std::result::Result<Timestamp, &'static str> {
        if self.is_big {
            let nanos = be64(self.bytes, at);
            let seconds = i64::try_from(nanos / NANOS_PER_SECOND).expect("a quotient below 2^35");
            let nanos = u32::try_from(nanos % NANOS_PER_SECOND).expect("a remainder below 10^9");
            return Ok(Timestamp {
                seconds: seconds + BIGTIME_EPOCH,
                nanos,
            });
        }
        let nanos = be32(self.bytes, at + 4);
        if u64::from(nanos) >= NANOS_PER_SECOND {
            return Err("impossible time");
        }
        let seconds = i64::from(i32::from_be_bytes(
            self.bytes[at..at + 4]
                .try_into()
                .expect("a slice of four bytes"),
        ));
        Ok(Timestamp { seconds, nanos })
    }
}
