//! The superblock: which file system this is, its geometry, and whether this reader may read it.
//!
//! Every field that later code multiplies, shifts or allocates by is bounded here, against the
//! others and against the length of the source. Features that change the meaning of what is read
//! are known or refused.

use super::bytes::{be16, be32, be64, crc_matches, read_into};
use super::error::{Result, XfsError};
use crate::ByteSource;
use std::io::ErrorKind;

const MAGIC: &[u8] = b"XFSB";
const STRUCTURE: &str = "superblock";
const CRC_AT: usize = 224;
/// The fields that are read end here; a sector is never smaller than 512 bytes.
const SECTOR_BYTES_MIN: u32 = 512;
const SECTOR_BYTES_MAX: u32 = 32 << 10;
const BLOCK_BYTES_MIN: u32 = 512;
const BLOCK_BYTES_MAX: u32 = 64 << 10;
const INODE_BYTES_MIN: u16 = 256;
const INODE_BYTES_MAX: u16 = 2048;
/// A directory block may be larger than a file system block, up to this.
const DIR_BLOCK_BYTES_MAX: u32 = 64 << 10;
const AG_BYTES_MAX: u64 = 1 << 40;
const AG_BLOCKS_MIN: u32 = 8;
/// Inode numbers leave their upper bits to nobody: allocation group, block and slot fit in 63 bits.
const INODE_NUMBER_BITS_MAX: u32 = 63;

const INCOMPAT_FTYPE: u32 = 1;
const INCOMPAT_SPARSE_INODES: u32 = 1 << 1;
const INCOMPAT_META_UUID: u32 = 1 << 2;
const INCOMPAT_BIGTIME: u32 = 1 << 3;
const INCOMPAT_NEEDS_REPAIR: u32 = 1 << 4;
const INCOMPAT_LARGE_EXTENT_COUNTS: u32 = 1 << 5;
const INCOMPAT_EXCHANGE_RANGE: u32 = 1 << 6;
const INCOMPAT_PARENT: u32 = 1 << 7;
const INCOMPAT_METADIR: u32 = 1 << 8;
const INCOMPAT_ZONED: u32 = 1 << 9;
const INCOMPAT_ZONE_GAPS: u32 = 1 << 10;
const INCOMPAT_READ: u32 = INCOMPAT_FTYPE
    | INCOMPAT_SPARSE_INODES
    | INCOMPAT_META_UUID
    | INCOMPAT_BIGTIME
    | INCOMPAT_LARGE_EXTENT_COUNTS
    | INCOMPAT_EXCHANGE_RANGE
    | INCOMPAT_PARENT;

const VERSION_MASK: u16 = 0xf;
/// Version 4: attributes, 32-bit link counts, quota, alignment (3), log v2, sectors, unwritten
/// flag, dir v2, case folding, more bits.
const V4_KNOWN: u16 = 0xfdf0;
const V4_EXTENT_FLAG: u16 = 0x1000;
const V4_DIR_V2: u16 = 0x2000;
const V4_MORE_BITS: u16 = 0x8000;
/// Lazy counters, attr2, project ids of 32 bits, file types in directories.
const V4_FEATURES2_KNOWN: u32 = 0x2 | 0x8 | 0x80 | V4_FEATURES2_FTYPE;
const V4_FEATURES2_FTYPE: u32 = 0x200;

/// Checked facts of the superblock. Byte sizes are powers of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// UUID that users see and that mount compares.
    pub uuid: [u8; 16],
    /// UUID stamped into metadata; differs from `uuid` after the latter was changed.
    pub metadata_uuid: [u8; 16],
    /// Label, as many as 12 bytes.
    pub label: Vec<u8>,
    /// Version 5: metadata carries checksums, addresses and owners.
    pub has_checksums: bool,
    pub block_bytes: u32,
    /// Bytes of a sector (headers of allocation groups are sectors).
    pub sector_bytes: u32,
    pub inode_bytes: u16,
    /// Bytes of a directory block.
    pub dir_block_bytes: u32,
    /// Blocks of the data section.
    pub blocks: u64,
    /// Allocation groups.
    pub ag_count: u32,
    /// Blocks of an allocation group; the last may have fewer.
    pub ag_blocks: u32,
    /// Root directory.
    pub root_inode: u64,
    /// Allocated inodes, used or not. Exact only after a clean unmount;
    /// [`super::Xfs::inode_totals`] is better.
    pub inode_count: u64,
    /// Allocated inodes not in use; see `inode_count`.
    pub inode_free_count: u64,
    /// First block of the internal log, 0 where the log is on another device.
    pub log_start_block: u64,
    pub log_blocks: u32,
    /// Inodes for the file system's own use: realtime bitmap and summary, quota files. 0 or all
    /// ones where missing.
    pub internal_inodes: [u64; 5],
    /// Directory entries tell file types.
    pub has_file_types: bool,
    /// Inode chunks may have holes.
    pub has_sparse_inodes: bool,
    pub(super) log_is_v2: bool,
    /// Features that only a writer must know.
    pub(super) ro_compat: u32,
    /// Records begin at multiples of this; 0 or 1: of a basic block.
    pub(super) log_unit_bytes: u32,
    pub(super) ag_blocks_log: u32,
    pub(super) inodes_per_block_log: u32,
    pub(super) has_bigtime: bool,
    pub(super) has_large_extent_counts: bool,
}

impl Superblock {
    /// What decides beside its bytes what an inode means.
    pub fn inode_context(&self) -> [u32; 12] {
        let features = [
            self.has_checksums,
            self.has_file_types,
            self.has_sparse_inodes,
            self.has_bigtime,
            self.has_large_extent_counts,
        ];
        let features = features
            .iter()
            .fold(0, |bits, has| bits << 1 | u32::from(*has));
        [
            self.block_bytes,
            self.blocks as u32,
            (self.blocks >> 32) as u32,
            self.sector_bytes,
            u32::from(self.inode_bytes),
            self.dir_block_bytes,
            self.ag_count,
            self.ag_blocks,
            self.ag_blocks_log,
            self.inodes_per_block_log,
            self.ro_compat,
            features,
        ]
    }

    /// Reads and checks the superblock at the start of the source.
    pub fn read(source: &dyn ByteSource) -> Result<Superblock> {
        let mut sector = Vec::new();
        match read_into(source, 0, SECTOR_BYTES_MIN as usize, &mut sector) {
            Err(XfsError::Read { source, .. }) if source.kind() == ErrorKind::UnexpectedEof => {
                return Err(XfsError::NotXfs);
            }
            read => read?,
        }
        if &sector[..4] != MAGIC {
            return Err(XfsError::NotXfs);
        }
        let sector_bytes = u32::from(be16(&sector, 102));
        if !(SECTOR_BYTES_MIN..=SECTOR_BYTES_MAX).contains(&sector_bytes)
            || !sector_bytes.is_power_of_two()
        {
            return Err(damaged("impossible sector size"));
        }
        read_into(source, 0, sector_bytes as usize, &mut sector)?;
        Superblock::parse(&sector, source.len_bytes())
    }

    /// Checks one sector against itself and the length of the device.
    pub fn parse(sector: &[u8], device_bytes: u64) -> Result<Superblock> {
        if sector.len() < SECTOR_BYTES_MIN as usize {
            return Err(damaged("too short"));
        }
        if &sector[..4] != MAGIC {
            return Err(XfsError::NotXfs);
        }
        let version = be16(sector, 100);
        let has_checksums = match version & VERSION_MASK {
            5 => true,
            4 => false,
            _ => {
                return Err(XfsError::Unsupported {
                    feature: "version",
                    bits: u64::from(version & VERSION_MASK),
                });
            }
        };
        if has_checksums && !crc_matches(sector, CRC_AT) {
            return Err(damaged("checksum does not match"));
        }
        check_features(sector, has_checksums)?;
        let superblock = Superblock::decode(sector, has_checksums);
        superblock.check_geometry(sector)?;
        superblock.check_places(device_bytes)?;
        Ok(superblock)
    }

    fn decode(sector: &[u8], has_checksums: bool) -> Superblock {
        let incompat = if has_checksums { be32(sector, 216) } else { 0 };
        let uuid: [u8; 16] = sector[32..48].try_into().expect("a slice of sixteen bytes");
        let own_metadata_uuid = incompat & INCOMPAT_META_UUID != 0;
        let block_bytes = be32(sector, 4);
        let label = &sector[108..120];
        let label_len = label
            .iter()
            .position(|&byte| byte == 0)
            .unwrap_or(label.len());
        Superblock {
            uuid,
            metadata_uuid: if own_metadata_uuid {
                sector[248..264]
                    .try_into()
                    .expect("a slice of sixteen bytes")
            } else {
                uuid
            },
            label: label[..label_len].to_vec(),
            has_checksums,
            block_bytes,
            sector_bytes: u32::from(be16(sector, 102)),
            inode_bytes: be16(sector, 104),
            dir_block_bytes: block_bytes.checked_shl(u32::from(sector[192])).unwrap_or(0),
            blocks: be64(sector, 8),
            ag_count: be32(sector, 88),
            ag_blocks: be32(sector, 84),
            root_inode: be64(sector, 56),
            inode_count: be64(sector, 128),
            inode_free_count: be64(sector, 136),
            log_start_block: be64(sector, 48),
            log_blocks: be32(sector, 96),
            internal_inodes: [
                be64(sector, 64),
                be64(sector, 72),
                be64(sector, 160),
                be64(sector, 168),
                if has_checksums { be64(sector, 232) } else { 0 },
            ],
            has_file_types: incompat & INCOMPAT_FTYPE != 0
                || (!has_checksums && v4_features2(sector) & V4_FEATURES2_FTYPE != 0),
            has_sparse_inodes: incompat & INCOMPAT_SPARSE_INODES != 0,
            ro_compat: if has_checksums { be32(sector, 212) } else { 0 },
            log_is_v2: has_checksums || be16(sector, 100) & 0x0400 != 0,
            log_unit_bytes: be32(sector, 196),
            ag_blocks_log: u32::from(sector[124]),
            inodes_per_block_log: u32::from(sector[123]),
            has_bigtime: incompat & INCOMPAT_BIGTIME != 0,
            has_large_extent_counts: incompat & INCOMPAT_LARGE_EXTENT_COUNTS != 0,
        }
    }

    /// Sizes and their logarithms agree and lie in the bounds that the format sets.
    fn check_geometry(&self, sector: &[u8]) -> Result<()> {
        let log2_of = |value: u32, log: u8| {
            value.is_power_of_two() && value.trailing_zeros() == u32::from(log)
        };
        let [block_log, sector_log, inode_log] = [sector[120], sector[121], sector[122]];
        let fault = if sector[126] != 0 {
            "made only in part"
        } else if !log2_of(self.block_bytes, block_log)
            || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&self.block_bytes)
        {
            "impossible block size"
        } else if !log2_of(self.sector_bytes, sector_log)
            || !(SECTOR_BYTES_MIN..=SECTOR_BYTES_MAX).contains(&self.sector_bytes)
            || self.sector_bytes > self.block_bytes
            || sector.len() != self.sector_bytes as usize
        {
            "impossible sector size"
        } else if !log2_of(u32::from(self.inode_bytes), inode_log)
            || !(INODE_BYTES_MIN..=INODE_BYTES_MAX).contains(&self.inode_bytes)
            || u32::from(self.inode_bytes) > self.block_bytes
            || (self.has_checksums && self.inode_bytes == INODE_BYTES_MIN)
        {
            "impossible inode size"
        } else if u32::from(be16(sector, 106)) << inode_log != self.block_bytes
            || self.inodes_per_block_log + u32::from(inode_log) != u32::from(block_log)
        {
            "impossible inodes per block"
        } else if self.dir_block_bytes < self.block_bytes
            || self.dir_block_bytes > DIR_BLOCK_BYTES_MAX
            || self.dir_block_bytes != self.block_bytes << sector[192]
        {
            "impossible directory block size"
        } else if self.ag_blocks < AG_BLOCKS_MIN
            || self
                .ag_blocks
                .checked_next_power_of_two()
                .map(u32::trailing_zeros)
                != Some(self.ag_blocks_log)
            || u64::from(self.ag_blocks) * u64::from(self.block_bytes) > AG_BYTES_MAX
            || u64::from(self.ag_blocks) * u64::from(self.block_bytes)
                < 4 * u64::from(self.sector_bytes)
            || self.inode_number_bits() > INODE_NUMBER_BITS_MAX
        {
            "impossible size of allocation groups"
        } else {
            return Ok(());
        };
        Err(damaged(fault))
    }

    /// Everything that the superblock points to lies in the file system, and that on the device.
    fn check_places(&self, device_bytes: u64) -> Result<()> {
        let ag_blocks = u64::from(self.ag_blocks);
        let blocks_max = u64::from(self.ag_count) * ag_blocks;
        let bytes = self.blocks.checked_mul(u64::from(self.block_bytes));
        let log_end = self.log_start_block.checked_add(u64::from(self.log_blocks));
        let fault = if self.ag_count == 0
            || self.blocks > blocks_max
            || self.blocks <= blocks_max - ag_blocks
        {
            "sizes of allocation groups do not add up"
        } else if bytes.is_none_or(|bytes| bytes > device_bytes) {
            "larger than its device"
        } else if self.inode_offset(self.root_inode).is_none() {
            "root directory outside of the file system"
        } else if self.log_start_block != 0
            && (self.log_blocks == 0
                || self
                    .block_offset(self.log_start_block, u64::from(self.log_blocks))
                    .is_none()
                || log_end.is_none())
        {
            "log outside of the file system"
        } else {
            return Ok(());
        };
        Err(damaged(fault))
    }

    /// Bits of the largest inode number.
    fn inode_number_bits(&self) -> u32 {
        let ag_bits = u32::BITS - self.ag_count.saturating_sub(1).leading_zeros();
        ag_bits + self.ag_blocks_log + self.inodes_per_block_log
    }

    /// Blocks of allocation group `ag`, 0 if there is none.
    pub fn ag_len_blocks(&self, ag: u32) -> u32 {
        if ag >= self.ag_count {
            return 0;
        }
        let before = u64::from(ag) * u64::from(self.ag_blocks);
        u32::try_from((self.blocks - before).min(u64::from(self.ag_blocks)))
            .expect("at most ag_blocks")
    }

    /// Device offset of a block of an allocation group, if it is in the group.
    pub fn ag_block_offset(&self, ag: u32, ag_block: u32) -> Option<u64> {
        if ag_block >= self.ag_len_blocks(ag) {
            return None;
        }
        Some(
            (u64::from(ag) * u64::from(self.ag_blocks) + u64::from(ag_block))
                * u64::from(self.block_bytes),
        )
    }

    /// Device offset of `count` blocks from block number `block`, if all lie in one allocation
    /// group.
    pub fn block_offset(&self, block: u64, count: u64) -> Option<u64> {
        let ag = u32::try_from(block >> self.ag_blocks_log).ok()?;
        let ag_block = u32::try_from(block & ((1 << self.ag_blocks_log) - 1)).ok()?;
        let end = u64::from(ag_block).checked_add(count)?;
        if end > u64::from(self.ag_len_blocks(ag)) {
            return None;
        }
        self.ag_block_offset(ag, ag_block)
    }

    /// Device offset of inode `number`, if there can be such an inode.
    pub fn inode_offset(&self, number: u64) -> Option<u64> {
        let ag_inode_bits = self.ag_blocks_log + self.inodes_per_block_log;
        let ag = u32::try_from(number >> ag_inode_bits).ok()?;
        let in_ag = number & ((1 << ag_inode_bits) - 1);
        let ag_block = u32::try_from(in_ag >> self.inodes_per_block_log).ok()?;
        let slot = in_ag & ((1 << self.inodes_per_block_log) - 1);
        Some(self.ag_block_offset(ag, ag_block)? + slot * u64::from(self.inode_bytes))
    }

    /// Number of the first inode that allocation group `ag` could hold.
    pub(super) fn first_inode_of(&self, ag: u32) -> u64 {
        u64::from(ag) << (self.ag_blocks_log + self.inodes_per_block_log)
    }
}

/// Refuses what would be read wrongly. Read-only-compatible features change nothing that is read
/// here.
fn check_features(sector: &[u8], has_checksums: bool) -> Result<()> {
    if has_checksums {
        let incompat = be32(sector, 216);
        if incompat & INCOMPAT_NEEDS_REPAIR != 0 {
            return Err(XfsError::unsupported(
                "file system marked as needing xfs_repair",
            ));
        }
        if incompat & INCOMPAT_METADIR != 0 {
            return Err(XfsError::unsupported(
                "metadata directory and realtime groups",
            ));
        }
        if incompat & (INCOMPAT_ZONED | INCOMPAT_ZONE_GAPS) != 0 {
            return Err(XfsError::unsupported("zoned realtime device"));
        }
        if incompat & !INCOMPAT_READ != 0 {
            return Err(XfsError::Unsupported {
                feature: "unknown incompatible features",
                bits: u64::from(incompat & !INCOMPAT_READ),
            });
        }
    } else {
        check_v4_features(sector)?;
    }
    if be64(sector, 16) != 0 || be64(sector, 24) != 0 {
        return Err(XfsError::unsupported("realtime section"));
    }
    Ok(())
}

fn check_v4_features(sector: &[u8]) -> Result<()> {
    let version = be16(sector, 100);
    let unknown = version & !(V4_KNOWN | VERSION_MASK);
    if unknown != 0 {
        return Err(XfsError::Unsupported {
            feature: "unknown version 4 features",
            bits: u64::from(unknown),
        });
    }
    if version & V4_DIR_V2 == 0 {
        return Err(XfsError::unsupported("version 1 directories"));
    }
    if version & V4_EXTENT_FLAG == 0 {
        return Err(XfsError::unsupported("extents without unwritten flag"));
    }
    let unknown = v4_features2(sector) & !V4_FEATURES2_KNOWN;
    if unknown != 0 {
        return Err(XfsError::Unsupported {
            feature: "unknown version 4 features",
            bits: u64::from(unknown) << 16,
        });
    }
    Ok(())
}

/// The second feature word of version 4, which old kernels wrote four bytes too far.
fn v4_features2(sector: &[u8]) -> u32 {
    if be16(sector, 100) & V4_MORE_BITS == 0 {
        0
    } else {
        be32(sector, 200) | be32(sector, 204)
    }
}

fn damaged(fault: &'static str) -> XfsError {
    XfsError::damaged(STRUCTURE, 0, fault)
}
