//! The superblock: found, checked, and turned into a geometry that the rest of the reader can rely
//! on.
//!
//! After [`Superblock::parse`] every size is a power of two where it must be, no division is by
//! zero, and groups x inodes per group is exactly the inode count. Nothing here reads past the 1024
//! bytes it is given.

use super::bytes::{join_u64, u16_at, u32_at};
use super::checksum::crc32c;
use super::error::Ext4Error;
use super::features::*;
use super::limits::*;

/// The superblock of an ext2, ext3 or ext4 file system, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Size of a block, 1 KiB to 64 KiB.
    pub block_bytes: u32,
    /// Blocks of the file system.
    pub blocks_count: u64,
    /// Free blocks as last written; the group descriptors are more current on a mounted file
    /// system.
    pub free_blocks: u64,
    /// Inodes of the file system, used or not.
    pub inodes_count: u32,
    /// Free inodes as last written.
    pub free_inodes: u32,
    /// First block of group 0: 1 with 1 KiB blocks, else 0.
    pub first_data_block: u32,
    pub blocks_per_group: u32,
    pub inodes_per_group: u32,
    /// Size of an inode on disk.
    pub inode_bytes: u32,
    /// First inode number that is not reserved.
    pub first_inode: u32,
    /// Size of a group descriptor.
    pub desc_bytes: u32,
    pub groups_count: u32,
    /// Feature bits.
    pub features: Features,
    /// Identity of the file system.
    pub uuid: [u8; 16],
    /// Volume name, up to the first NUL.
    pub label: Vec<u8>,
    /// Where it was last mounted, up to the first NUL.
    pub last_mounted: Vec<u8>,
    /// Start value of every metadata checksum.
    pub checksum_seed: u32,
    /// Inode of the journal, 0 if there is none or it is on another device.
    pub journal_inode: u32,
    /// `s_state`: 1 = cleanly unmounted, 2 = errors detected, 4 = orphans being recovered.
    pub state: u16,
    /// Mounts since the last check.
    pub mount_count: u16,
    /// `s_mtime`: last mount, seconds since 1970.
    pub mount_time: u64,
    /// `s_wtime`: last write of the superblock.
    pub write_time: u64,
    /// Data mode that a mount without options uses.
    pub default_data_mode: DataMode,
    /// Group that this copy says it lies in; 0 for the primary superblock.
    pub copy_in_group: u16,
    /// log2 of blocks per cluster; 0 without bigalloc.
    pub cluster_ratio_log: u32,
    /// `s_mmp_update_interval`: seconds between two writes of who has it mounted.
    pub(super) multi_mount_seconds: u16,
    multi_mount_block: u64,
    pub(super) first_meta_bg: u32,
    pub(super) reserved_descriptor_blocks: u16,
    pub(super) backup_groups: [u32; 2],
    pub(super) special_inodes: [u32; 5],
}

/// How file data relates to the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataMode {
    /// The superblock does not say; the kernel's default is `Ordered`.
    Unset,
    /// Data goes through the journal: raw reads of a mounted device are wrong.
    Journal,
    /// Data is written before the metadata that shows it.
    Ordered,
    /// No order.
    Writeback,
}

/// Where the superblock lies on the device.
pub(super) const SUPERBLOCK_OFFSET: u64 = 1024;
pub(super) const SUPERBLOCK_BYTES: usize = 1024;
const MAGIC: u16 = 0xEF53;
const CREATOR_HURD: u32 = 1;
const CHECKSUM_OFFSET: usize = 0x3FC;

impl Superblock {
    /// What decides beside its bytes what an inode means: sizes, numbers and features, but for
    /// those that only say in which state the file system was left.
    pub fn inode_context(&self) -> [u32; 12] {
        [
            self.block_bytes,
            self.blocks_count as u32,
            (self.blocks_count >> 32) as u32,
            self.first_data_block,
            self.blocks_per_group,
            self.inodes_per_group,
            self.inode_bytes,
            self.desc_bytes,
            self.checksum_seed,
            self.cluster_ratio_log,
            self.features.incompat & !INCOMPAT_RECOVER,
            self.features.ro_compat & !RO_ORPHAN_PRESENT,
        ]
    }

    /// Checks and decodes one copy of the superblock.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES]) -> Result<Superblock, Ext4Error> {
        if u16_at(bytes, 56) != MAGIC {
            return Err(Ext4Error::NotExt4);
        }
        let features = Features {
            compat: u32_at(bytes, 92),
            incompat: u32_at(bytes, 96),
            ro_compat: u32_at(bytes, 100),
        };
        // Before the feature check: damaged feature bits are damage, not an unknown file system.
        if features.ro_compat & RO_METADATA_CSUM != 0
            && crc32c(!0, &bytes[..CHECKSUM_OFFSET]) != u32_at(bytes, CHECKSUM_OFFSET)
        {
            return Err(Ext4Error::SuperblockDamaged);
        }
        check_features(bytes, features)?;
        let mut superblock = decode(bytes, features)?;
        superblock.groups_count = check_geometry(&superblock)?;
        Ok(superblock)
    }

    /// Whether these bytes are a copy of it, perhaps of another time.
    pub(super) fn is_copied_by(&self, bytes: &[u8; SUPERBLOCK_BYTES]) -> bool {
        u16_at(bytes, 56) == MAGIC
            && bytes[104..120] == self.uuid
            && block_bytes(u32_at(bytes, 24)).is_ok_and(|found| found == self.block_bytes)
    }

    /// Whether inodes, directories, extent nodes and xattr blocks carry checksums.
    pub fn has_checksums(&self) -> bool {
        self.features.ro_compat & RO_METADATA_CSUM != 0
    }

    /// Whether group descriptors say which inodes were never used.
    pub(super) fn has_group_flags(&self) -> bool {
        self.features.ro_compat & (RO_METADATA_CSUM | RO_GDT_CSUM) != 0
    }

    /// Device offset of the block that says who has it mounted; `None`: nobody says so.
    pub(super) fn multi_mount_offset(&self) -> Option<u64> {
        let offset = self.block_offset(self.multi_mount_block);
        offset.filter(|_| self.incompat(INCOMPAT_MMP))
    }

    pub(super) fn incompat(&self, bit: u32) -> bool {
        self.features.incompat & bit != 0
    }

    /// Bytes that the file system needs of its device.
    pub fn len_bytes(&self) -> u64 {
        self.blocks_count * u64::from(self.block_bytes)
    }

    /// Device offset of a block that may hold file content or metadata, `None` outside the file
    /// system.
    pub(super) fn block_offset(&self, block: u64) -> Option<u64> {
        self.run_offset(block, 1)
    }

    /// The same for `count` blocks from `first`.
    pub(super) fn run_offset(&self, first: u64, count: u64) -> Option<u64> {
        let end = first.checked_add(count)?;
        let inside =
            first >= u64::from(self.first_data_block) && first > 0 && end <= self.blocks_count;
        inside.then(|| first * u64::from(self.block_bytes))
    }

    /// First block of a group.
    pub(super) fn group_start(&self, group: u32) -> u64 {
        u64::from(self.first_data_block) + u64::from(group) * u64::from(self.blocks_per_group)
    }

    /// Blocks that the inode table of one group takes.
    pub(super) fn itable_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * u64::from(self.inode_bytes))
            .div_ceil(u64::from(self.block_bytes))
    }

    /// Whether a group begins with a copy of the superblock.
    pub(super) fn group_has_superblock(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.features.compat & COMPAT_SPARSE_SUPER2 != 0 {
            return self.backup_groups.contains(&group);
        }
        if group == 1 || self.features.ro_compat & RO_SPARSE_SUPER == 0 {
            return true;
        }
        [3, 5, 7].into_iter().any(|base| is_power_of(group, base))
    }

    /// Reserved inodes, and inodes that hold quota or the orphan list: no file of any user.
    pub(super) fn is_special_inode(&self, number: u32) -> bool {
        (number < self.first_inode && number != ROOT_INODE) || self.special_inodes.contains(&number)
    }
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}

fn check_features(bytes: &[u8], features: Features) -> Result<(), Ext4Error> {
    let refused = features.unsupported_incompat();
    if refused != 0 {
        return Err(Ext4Error::Unsupported {
            incompat_bits: refused,
            names: Features::incompat_names(refused),
        });
    }
    let refuse = |names: &str| {
        Err(Ext4Error::Unsupported {
            incompat_bits: 0,
            names: names.to_owned(),
        })
    };
    if u32_at(bytes, 72) == CREATOR_HURD {
        return refuse("made by the Hurd");
    }
    if u32_at(bytes, 76) > 1 {
        return refuse("revision above 1");
    }
    if features.ro_compat & RO_METADATA_CSUM != 0 && bytes[373] != 1 {
        return refuse("checksum type other than crc32c");
    }
    Ok(())
}

fn decode(bytes: &[u8; SUPERBLOCK_BYTES], features: Features) -> Result<Superblock, Ext4Error> {
    let dynamic = u32_at(bytes, 76) >= 1;
    let wide = features.incompat & INCOMPAT_64BIT != 0;
    let high = |offset: usize| if wide { u32_at(bytes, offset) } else { 0 };
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[104..120]);
    let seed = if features.incompat & INCOMPAT_CSUM_SEED != 0 {
        u32_at(bytes, 624)
    } else {
        crc32c(!0, &uuid)
    };
    let with_journal = features.compat & COMPAT_HAS_JOURNAL != 0;
    Ok(Superblock {
        block_bytes: block_bytes(u32_at(bytes, 24))?,
        blocks_count: join_u64(high(336), u32_at(bytes, 4)),
        free_blocks: join_u64(high(344), u32_at(bytes, 12)),
        inodes_count: u32_at(bytes, 0),
        free_inodes: u32_at(bytes, 16),
        first_data_block: u32_at(bytes, 20),
        blocks_per_group: u32_at(bytes, 32),
        inodes_per_group: u32_at(bytes, 40),
        inode_bytes: if dynamic {
            u32::from(u16_at(bytes, 88))
        } else {
            INODE_BYTES_MIN
        },
        first_inode: if dynamic {
            u32_at(bytes, 84)
        } else {
            FIRST_INODE_MIN
        },
        desc_bytes: if wide {
            u32::from(u16_at(bytes, 254))
        } else {
            DESC_BYTES_MIN
        },
        groups_count: 0,
        features,
        uuid,
        label: until_nul(&bytes[120..136]),
        last_mounted: until_nul(&bytes[136..200]),
        checksum_seed: seed,
        journal_inode: if with_journal { u32_at(bytes, 224) } else { 0 },
        state: u16_at(bytes, 58),
        mount_count: u16_at(bytes, 52),
        mount_time: join_u64(u32::from(bytes[629]), u32_at(bytes, 44)),
        write_time: join_u64(u32::from(bytes[628]), u32_at(bytes, 48)),
        default_data_mode: data_mode(u32_at(bytes, 256)),
        copy_in_group: u16_at(bytes, 90),
        cluster_ratio_log: cluster_ratio_log(bytes, features)?,
        multi_mount_seconds: u16_at(bytes, 358),
        multi_mount_block: join_u64(u32_at(bytes, 364), u32_at(bytes, 360)),
        first_meta_bg: u32_at(bytes, 260),
        reserved_descriptor_blocks: u16_at(bytes, 206),
        backup_groups: [u32_at(bytes, 588), u32_at(bytes, 592)],
        special_inodes: special_inodes(bytes, features),
    })
}

fn block_bytes(log: u32) -> Result<u32, Ext4Error> {
    if log > LOG_BLOCK_KIB_MAX {
        return Err(Ext4Error::Geometry {
            field: "s_log_block_size",
            value: log.into(),
        });
    }
    Ok(1024 << log)
}

/// Two quota files, project quota, the snapshot file of a feature long gone, the orphan file; 0
/// where there is none. Numbers without their feature mean nothing and must not hide a file.
fn special_inodes(bytes: &[u8], features: Features) -> [u32; 5] {
    let with = |bit: u32, offset: usize| {
        if features.ro_compat & bit != 0 {
            u32_at(bytes, offset)
        } else {
            0
        }
    };
    let orphan_file = if features.compat & COMPAT_ORPHAN_FILE != 0 {
        u32_at(bytes, 640)
    } else {
        0
    };
    [
        with(RO_QUOTA, 576),
        with(RO_QUOTA, 580),
        with(RO_QUOTA, 620),
        with(RO_HAS_SNAPSHOT, 384),
        orphan_file,
    ]
}

fn cluster_ratio_log(bytes: &[u8], features: Features) -> Result<u32, Ext4Error> {
    if features.ro_compat & RO_BIGALLOC == 0 {
        return Ok(0);
    }
    let log_cluster = u32_at(bytes, 28);
    let ratio = log_cluster
        .checked_sub(u32_at(bytes, 24))
        .filter(|ratio| *ratio <= LOG_CLUSTER_RATIO_MAX);
    ratio.ok_or(Ext4Error::Geometry {
        field: "s_log_cluster_size",
        value: log_cluster.into(),
    })
}

fn data_mode(default_mount_options: u32) -> DataMode {
    match default_mount_options & 0x60 {
        0x20 => DataMode::Journal,
        0x40 => DataMode::Ordered,
        0x60 => DataMode::Writeback,
        _ => DataMode::Unset,
    }
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    bytes
        .iter()
        .copied()
        .take_while(|byte| *byte != 0)
        .collect()
}

/// Refuses every size that later arithmetic could trip over; answers the number of groups.
fn check_geometry(sb: &Superblock) -> Result<u32, Ext4Error> {
    let require = |holds: bool, field: &'static str, value: u64| {
        if holds {
            Ok(())
        } else {
            Err(Ext4Error::Geometry { field, value })
        }
    };
    let bitmap_bits = 8 * sb.block_bytes;
    let bigalloc = sb.features.ro_compat & RO_BIGALLOC != 0;
    let group_blocks_max = u64::from(bitmap_bits) << sb.cluster_ratio_log;
    let group_blocks = u64::from(sb.blocks_per_group);
    require(
        group_blocks > 0 && group_blocks <= group_blocks_max,
        "s_blocks_per_group",
        group_blocks,
    )?;
    let inode_bytes_fit = (INODE_BYTES_MIN..=sb.block_bytes).contains(&sb.inode_bytes);
    require(
        inode_bytes_fit && sb.inode_bytes.is_power_of_two(),
        "s_inode_size",
        sb.inode_bytes.into(),
    )?;
    let inodes_fit = (1..=bitmap_bits).contains(&sb.inodes_per_group);
    require(inodes_fit, "s_inodes_per_group", sb.inodes_per_group.into())?;
    let desc_min = if sb.incompat(INCOMPAT_64BIT) {
        64
    } else {
        DESC_BYTES_MIN
    };
    let desc_fits =
        (desc_min..=DESC_BYTES_MAX).contains(&sb.desc_bytes) && sb.desc_bytes.is_power_of_two();
    require(desc_fits, "s_desc_size", sb.desc_bytes.into())?;
    require(
        sb.first_inode >= FIRST_INODE_MIN,
        "s_first_ino",
        sb.first_inode.into(),
    )?;
    let first = u64::from(sb.first_data_block);
    let first_expected = u64::from(sb.block_bytes == 1024 && !bigalloc);
    require(
        first == first_expected || (bigalloc && first <= 1),
        "s_first_data_block",
        first,
    )?;
    let bytes_fit = sb
        .blocks_count
        .checked_mul(u64::from(sb.block_bytes))
        .is_some_and(|len| len <= i64::MAX as u64);
    require(
        sb.blocks_count > first && bytes_fit,
        "s_blocks_count",
        sb.blocks_count,
    )?;
    let groups = (sb.blocks_count - first).div_ceil(group_blocks);
    require(groups <= u64::from(GROUPS_MAX), "group count", groups)?;
    let inodes = groups * u64::from(sb.inodes_per_group);
    require(
        inodes == u64::from(sb.inodes_count),
        "s_inodes_count",
        sb.inodes_count.into(),
    )?;
    let meta_bg_fits = !sb.incompat(INCOMPAT_META_BG) || u64::from(sb.first_meta_bg) <= groups;
    require(meta_bg_fits, "s_first_meta_bg", sb.first_meta_bg.into())?;
    Ok(u32::try_from(groups).expect("bounded by GROUPS_MAX"))
}

#[cfg(test)]
pub(super) mod tests;
