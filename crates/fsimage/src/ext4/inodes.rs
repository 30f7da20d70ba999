//! Inodes: from the bytes of an inode table to checked [`Inode`]s.
//!
//! A table is parsed buffer by buffer. Inodes that are in use come out decoded, inodes that are
//! damaged come out as damaged with their number, and only unused, deleted and internal ones are
//! passed over. Nothing is allocated per inode except the content that lies inside it.

use super::bytes::{join_u64, u16_at, u32_at};
use super::checksum::{crc32c, inode_seed};
use super::error::{Damage, Structure};
use super::features::*;
use super::limits::*;
use super::superblock::Superblock;
use super::xattr;
use crate::{FileKind, Inode, Layout, Timestamp};

/// The bytes of one inode as they lie on the device, with its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawInode<'a> {
    number: u32,
    bytes: &'a [u8],
}

/// One inode of a parsed buffer. Unused and internal inodes are not reported.
#[derive(Debug)]
pub enum InodeResult<'a> {
    /// In use, checksum right, decoded.
    Used(Inode, RawInode<'a>),
    /// Its checksum is wrong or its fields contradict each other. On a live device: read it again.
    /// On an image: a problem of the file, unless
    /// [`inode_is_allocated`](super::Ext4::inode_is_allocated) says that it is nobody's.
    Damaged(RawInode<'a>, Damage),
}

/// Files whose content must be read through the kernel.
const KERNEL_ENCRYPTED: &str = "encrypted";
const KERNEL_VERITY: &str = "protected by fs-verity";

const FLAG_ENCRYPT: u32 = 0x800;
pub(super) const FLAG_INDEX: u32 = 0x1000;
const FLAG_HUGE_FILE: u32 = 0x4_0000;
pub(super) const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_VERITY: u32 = 0x10_0000;
pub(super) const FLAG_EA_INODE: u32 = 0x20_0000;
const FLAG_INLINE_DATA: u32 = 0x1000_0000;
const FLAG_PROJECT_INHERIT: u32 = 0x2000_0000;
/// Flags that the kernel shows to users.
const FLAGS_VISIBLE: u32 = 0x725B_DFFF;

/// The block map: twelve direct pointers and three indirect, or the root of an extent tree, or
/// content.
const BLOCK_MAP_OFFSET: usize = 40;
const BLOCK_MAP_BYTES: usize = 60;
const CHECKSUM_LOW: usize = 124;
const CHECKSUM_HIGH: usize = 130;
const ATIME: usize = 8;
const ATIME_EXTRA: usize = 140;
const NANOS_MAX: u32 = 999_999_999;

/// Half a usual inode, placed so that the checksum goes eight bytes at a time from the start.
#[repr(align(8))]
struct Aligned([u8; 128]);

impl Aligned {
    /// A copy with the two checksum bytes zeroed, as the checksum was computed.
    fn without(bytes: &[u8; 128], checksum_at: usize) -> Aligned {
        let mut copy = Aligned(*bytes);
        copy.0[checksum_at..checksum_at + 2].fill(0);
        copy
    }
}

/// Parses a buffer of inodes; `first_inode` is the number of the first one.
pub(super) fn parse(
    sb: &Superblock,
    first_inode: u64,
    bytes: &[u8],
    f: &mut dyn FnMut(InodeResult<'_>),
) {
    for (number, bytes) in (first_inode..).zip(bytes.chunks_exact(sb.inode_bytes as usize)) {
        let Some(number) = u32::try_from(number)
            .ok()
            .filter(|number| (1..=sb.inodes_count).contains(number))
        else {
            return;
        };
        let raw = RawInode { number, bytes };
        if sb.is_special_inode(number) || raw.is_blank() {
            continue;
        }
        if let Err(damage) = raw.check(sb) {
            f(InodeResult::Damaged(raw, damage));
        } else if raw.in_use() && !raw.holds_xattr_value(sb) {
            match raw.decode(sb) {
                Ok(inode) => f(InodeResult::Used(inode, raw)),
                Err(damage) => f(InodeResult::Damaged(raw, damage)),
            }
        }
    }
}

impl<'a> RawInode<'a> {
    /// Bytes kept from an earlier parse. `None` if no inode is that short.
    pub fn new(number: u64, bytes: &'a [u8]) -> Option<RawInode<'a>> {
        let number = u32::try_from(number).ok()?;
        (bytes.len() >= INODE_BYTES_MIN as usize).then_some(RawInode { number, bytes })
    }

    /// Inode number.
    pub fn number(&self) -> u64 {
        self.number.into()
    }

    /// The bytes: keep them to compare later.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether nothing but the access time (and the checksum that covers it) differs.
    pub fn same_except_atime(&self, other: &RawInode<'_>) -> bool {
        let ignored = |at: usize| {
            (ATIME..ATIME + 4).contains(&at)
                || (CHECKSUM_LOW..CHECKSUM_LOW + 2).contains(&at)
                || (CHECKSUM_HIGH..CHECKSUM_HIGH + 2).contains(&at)
                || (ATIME_EXTRA..ATIME_EXTRA + 4).contains(&at)
        };
        let same_from = |from: usize| self.bytes.get(from..) == other.bytes.get(from..);
        let head = ATIME_EXTRA + 4;
        self.number == other.number
            && self.bytes.len() == other.bytes.len()
            && same_from(head.min(self.bytes.len()))
            && self
                .bytes
                .iter()
                .zip(other.bytes)
                .take(head)
                .enumerate()
                .all(|(at, (a, b))| a == b || ignored(at))
    }

    /// Checks number-independent rules and the checksum; says nothing about whether the inode is in
    /// use.
    pub(super) fn check(&self, sb: &Superblock) -> Result<(), Damage> {
        if !self.checksum_matches(sb) {
            return Err(Damage::Checksum(Structure::Inode));
        }
        let extra = self.extra_bytes();
        let fits =
            self.bytes.len() == 128 || (extra.is_multiple_of(4) && 128 + extra <= self.bytes.len());
        if fits {
            Ok(())
        } else {
            Err(Damage::ExtraSize(extra as u16))
        }
    }

    fn checksum_matches(&self, sb: &Superblock) -> bool {
        if !sb.has_checksums() {
            return true;
        }
        let Some((head, tail)) = self.bytes.split_first_chunk::<128>() else {
            return false;
        };
        // Two calls over patched copies are faster than five over the pieces between the checksum
        // fields.
        let head = Aligned::without(head, CHECKSUM_LOW);
        let crc = crc32c(
            inode_seed(sb.checksum_seed, self.number, self.generation()),
            &head.0,
        );
        let low = u32::from(u16_at(self.bytes, CHECKSUM_LOW));
        if self.extra_bytes() < 4 {
            return crc32c(crc, tail) & 0xFFFF == low;
        }
        let Some((first, rest)) = tail.split_first_chunk::<128>() else {
            return false;
        };
        let first = Aligned::without(first, CHECKSUM_HIGH - 128);
        let mut crc = crc32c(crc, &first.0);
        if !rest.is_empty() {
            crc = crc32c(crc, rest);
        }
        crc == low | u32::from(u16_at(self.bytes, CHECKSUM_HIGH)) << 16
    }

    /// Never written: not even a deleted inode is all zeros.
    fn is_blank(&self) -> bool {
        u32_at(self.bytes, 0) == 0 && self.links() == 0 && self.bytes.iter().all(|byte| *byte == 0)
    }

    /// Has a name somewhere. Deleted inodes, and orphans that are still open, have not.
    pub(super) fn in_use(&self) -> bool {
        self.mode() != 0 && self.links() != 0
    }

    /// Decodes an inode whose checksum was found right.
    pub(super) fn decode(&self, sb: &Superblock) -> Result<Inode, Damage> {
        let kind = FileKind::from_mode(self.mode()).ok_or(Damage::Mode(self.mode()))?;
        let has_project = sb.features.ro_compat & RO_PROJECT != 0;
        let flags = self.flags() & FLAGS_VISIBLE;
        let is_node = matches!(kind, FileKind::BlockDevice | FileKind::CharDevice);
        Ok(Inode {
            number: self.number.into(),
            generation: self.generation(),
            mode: self.mode(),
            uid: u32::from(self.u16(2)) | u32::from(self.u16(120)) << 16,
            gid: u32::from(self.u16(24)) | u32::from(self.u16(122)) << 16,
            nlink: self.links(),
            size: self.checked_size(sb, kind)?,
            atime: self.time(ATIME, ATIME_EXTRA),
            mtime: self.time(16, 136),
            ctime: self.time(12, 132),
            crtime: self.extra_field(144).map(|_| self.time(144, 148)),
            // A directory's bit that regular files may carry unseen.
            flags: if kind == FileKind::Regular {
                flags & !FLAG_PROJECT_INHERIT
            } else {
                flags
            },
            project: self.extra_field(156).filter(|_| has_project).unwrap_or(0),
            rdev: if is_node {
                self.device_numbers()
            } else {
                (0, 0)
            },
            layout: self.layout(sb, kind)?,
        })
    }

    fn layout(&self, sb: &Superblock, kind: FileKind) -> Result<Layout, Damage> {
        let size = self.checked_size(sb, kind)?;
        if !matches!(
            kind,
            FileKind::Regular | FileKind::Directory | FileKind::Symlink
        ) {
            return Ok(Layout::None);
        }
        if self.is_encrypted() {
            return Ok(Layout::Kernel(KERNEL_ENCRYPTED));
        }
        if self.is_inline() {
            let content = self.inline_content(sb, size)?;
            // The kernel lets a file grow without giving it blocks; what was never written reads as
            // zeros.
            let short = (content.len() as u64) < size;
            return if short && kind != FileKind::Regular {
                Err(Damage::InlineData)
            } else {
                Ok(Layout::Inline(content))
            };
        }
        match kind {
            FileKind::Symlink if self.is_fast_symlink(sb, size) => {
                let target = self
                    .block_map()
                    .get(..size as usize)
                    .ok_or(Damage::Size(size))?;
                if target.contains(&0) {
                    Err(Damage::Size(size))
                } else {
                    Ok(Layout::Inline(target.to_vec()))
                }
            }
            FileKind::Regular if size == 0 => Ok(Layout::None),
            FileKind::Regular if self.flags() & FLAG_VERITY != 0 => {
                Ok(Layout::Kernel(KERNEL_VERITY))
            }
            _ => Ok(Layout::Mapped),
        }
    }

    fn checked_size(&self, sb: &Superblock, kind: FileKind) -> Result<u64, Damage> {
        let size = self.size(sb, kind == FileKind::Regular);
        let possible = match kind {
            FileKind::Regular => size <= i64::MAX as u64,
            FileKind::Directory if self.is_inline() => size > 0,
            FileKind::Directory => size > 0 && size.is_multiple_of(sb.block_bytes.into()),
            // Encrypted targets have no plain length.
            FileKind::Symlink => size > 0 && size <= SYMLINK_BYTES_MAX,
            _ => true,
        };
        if possible {
            Ok(size)
        } else {
            Err(Damage::Size(size))
        }
    }

    /// The upper half of the size belongs to regular files, and to directories of file systems with
    /// large_dir.
    pub(super) fn size(&self, sb: &Superblock, regular: bool) -> u64 {
        let wide = regular || sb.incompat(INCOMPAT_LARGEDIR);
        join_u64(
            if wide { u32_at(self.bytes, 108) } else { 0 },
            u32_at(self.bytes, 4),
        )
    }

    /// Sizes as content is mapped: by the type in the mode.
    pub(super) fn mapped_size(&self, sb: &Superblock) -> u64 {
        self.size(
            sb,
            FileKind::from_mode(self.mode()) == Some(FileKind::Regular),
        )
    }

    fn is_fast_symlink(&self, sb: &Superblock, size: u64) -> bool {
        if size >= BLOCK_MAP_BYTES as u64 {
            return false;
        }
        // With ea_inode the block count no longer tells whether the target has a block, so there
        // the size decides.
        sb.incompat(INCOMPAT_EA_INODE) || self.blocks_512(sb) == self.xattr_blocks_512(sb)
    }

    fn xattr_blocks_512(&self, sb: &Superblock) -> u64 {
        let cluster_512 = u64::from(sb.block_bytes >> 9) << sb.cluster_ratio_log;
        if self.xattr_block(sb) == 0 {
            0
        } else {
            cluster_512
        }
    }

    /// The block map holds the root of a tree, not all of it.
    pub(super) fn mapping_has_nodes(&self, sb: &Superblock) -> bool {
        let map = self.block_map();
        self.is_mapped(sb)
            && match self.flags() & FLAG_EXTENTS {
                0 => map[48..].iter().any(|byte| *byte != 0),
                _ => u16_at(map, 6) != 0,
            }
    }

    pub(super) fn blocks_512(&self, sb: &Superblock) -> u64 {
        let huge = sb.features.ro_compat & RO_HUGE_FILE != 0;
        let high = if huge { u32::from(self.u16(116)) } else { 0 };
        let blocks = join_u64(high, u32_at(self.bytes, 28));
        if huge && self.flags() & FLAG_HUGE_FILE != 0 {
            blocks * u64::from(sb.block_bytes >> 9)
        } else {
            blocks
        }
    }

    /// First 60 bytes from the block map, the rest from the xattr `system.data`: all that is stored
    /// of `size` bytes.
    fn inline_content(&self, sb: &Superblock, size: u64) -> Result<Vec<u8>, Damage> {
        if !sb.incompat(INCOMPAT_INLINE_DATA) {
            return Err(Damage::InlineData);
        }
        let mut content = self.block_map().to_vec();
        if size > BLOCK_MAP_BYTES as u64 {
            content.extend_from_slice(xattr::inline_data(self)?.unwrap_or(&[]));
        }
        content.truncate(usize::try_from(size).unwrap_or(usize::MAX));
        Ok(content)
    }

    fn device_numbers(&self) -> (u32, u32) {
        match (u32_at(self.bytes, 40), u32_at(self.bytes, 44)) {
            (0, wide) => (
                (wide & 0xF_FF00) >> 8,
                (wide & 0xFF) | ((wide >> 12) & 0xF_FF00),
            ),
            (old, _) => ((old >> 8) & 0xFF, old & 0xFF),
        }
    }

    /// Two bits extend the seconds beyond 2038, thirty bits are nanoseconds.
    fn time(&self, low: usize, extra: usize) -> Timestamp {
        let seconds = i64::from(u32_at(self.bytes, low) as i32);
        match self.extra_field(extra) {
            None => Timestamp { seconds, nanos: 0 },
            Some(bits) => Timestamp {
                seconds: seconds + (i64::from(bits & 3) << 32),
                nanos: (bits >> 2).min(NANOS_MAX),
            },
        }
    }

    /// A 32-bit field of the part that this inode may not have.
    fn extra_field(&self, offset: usize) -> Option<u32> {
        (offset + 4 <= 128 + self.extra_bytes() && offset + 4 <= self.bytes.len())
            .then(|| u32_at(self.bytes, offset))
    }

    /// Bytes of fields behind the first 128; xattrs begin after them.
    pub(super) fn extra_bytes(&self) -> usize {
        usize::from(self.u16(128))
    }

    pub(super) fn block_map(&self) -> &'a [u8] {
        self.bytes
            .get(BLOCK_MAP_OFFSET..BLOCK_MAP_OFFSET + BLOCK_MAP_BYTES)
            .unwrap_or(&[])
    }

    /// Block with further xattrs, 0 if there is none.
    pub(super) fn xattr_block(&self, sb: &Superblock) -> u64 {
        let high = if sb.incompat(INCOMPAT_64BIT) {
            u32::from(self.u16(118))
        } else {
            0
        };
        join_u64(high, u32_at(self.bytes, 104))
    }

    pub(super) fn is_encrypted(&self) -> bool {
        self.flags() & FLAG_ENCRYPT != 0
    }

    pub(super) fn is_inline(&self) -> bool {
        self.flags() & FLAG_INLINE_DATA != 0
    }

    /// Content lies in blocks: not in the inode, and not nowhere.
    pub(super) fn is_mapped(&self, sb: &Superblock) -> bool {
        !self.is_inline()
            && match FileKind::from_mode(self.mode()) {
                Some(FileKind::Regular | FileKind::Directory) => true,
                Some(FileKind::Symlink) => !self.is_fast_symlink(sb, self.mapped_size(sb)),
                _ => false,
            }
    }

    /// No file, but the value of an attribute of one.
    fn holds_xattr_value(&self, sb: &Superblock) -> bool {
        sb.incompat(INCOMPAT_EA_INODE) && self.flags() & FLAG_EA_INODE != 0
    }

    pub(super) fn number_u32(&self) -> u32 {
        self.number
    }

    pub(super) fn mode(&self) -> u32 {
        self.u16(0).into()
    }

    fn links(&self) -> u32 {
        self.u16(26).into()
    }

    /// All flags, also those that no user sees.
    pub(super) fn flags(&self) -> u32 {
        u32_at(self.bytes, 32)
    }

    pub(super) fn generation(&self) -> u32 {
        u32_at(self.bytes, 100)
    }

    fn u16(&self, offset: usize) -> u16 {
        u16_at(self.bytes, offset)
    }
}

#[cfg(test)]
mod tests;
