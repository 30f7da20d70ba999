//! An inode as the 128 to 4,096 bytes of an inode table.

use std::ops::Range;

use super::checksum::{crc32c, inode_seed};
use super::entry::NewEntry;
use super::field::{put_split_u32, put_u16, put_u32};
use super::sink::FileData;
use crate::inode::Timestamp;

/// The root directory.
pub(super) const ROOT_INODE: u32 = 2;
pub(super) const JOURNAL_INODE: u32 = 8;
/// `lost+found`, by custom the first that is not reserved.
pub(super) const LOST_FOUND_INODE: u32 = 11;
/// First inode of the tree.
pub(super) const FIRST_FREE_INODE: u64 = 12;
/// Longer targets of symbolic links take a block.
pub(super) const SHORT_SYMLINK_BYTES_MAX: usize = 59;
/// The part of an inode that every ext4 has.
pub(super) const BASE_INODE_BYTES: usize = 128;
/// Fields after it, up to the project id.
pub(super) const EXTRA_BYTES: usize = 32;
/// Content is mapped by extents.
pub(super) const FLAG_EXTENTS: u32 = 0x8_0000;
/// Content is the value of an extended attribute.
const FLAG_LARGE_VALUE: u32 = 0x20_0000;
/// Directory has a hash index.
pub(super) const FLAG_INDEX: u32 = 0x1000;
/// Flags that a user may set and that change no layout: secrm, unrm, sync, immutable, append,
/// nodump, noatime, journal data, notail, dirsync, topdir, project inheritance.
pub(super) const FLAGS_KEPT: u32 = 0x2003_c0fb;
const FLAG_PROJECT_INHERIT: u32 = 0x2000_0000;

const MODE: usize = 0x00;
const SIZE_LOW: usize = 0x04;
pub(super) const LINKS: usize = 0x1a;
const BLOCKS_LOW: usize = 0x1c;
const FLAGS: usize = 0x20;
const VERSION: usize = 0x24;
const BLOCK_MAP: usize = 0x28;
const GENERATION: usize = 0x64;
const XATTR_BLOCK_LOW: usize = 0x68;
const SIZE_HIGH: usize = 0x6c;
const BLOCKS_HIGH: usize = 0x74;
const XATTR_BLOCK_HIGH: usize = 0x76;
const CHECKSUM_LOW: usize = 0x7c;
const EXTRA_SIZE: usize = 0x80;
const CHECKSUM_HIGH: usize = 0x82;

/// Least second that ext4 can say: 1901-12-13.
const SECONDS_MIN: i64 = -(1 << 31);
/// Last second with two epoch bits: 2446-05-10.
const SECONDS_MAX: i64 = (1 << 34) - (1 << 31) - 1;
/// Seconds since 1970 that inodes of 256 bytes and more can say.
pub const TIME_SECONDS: std::ops::RangeInclusive<i64> = SECONDS_MIN..=SECONDS_MAX;
/// Last second of a 128-byte inode: 2038-01-19.
const SECONDS_MAX_SHORT: i64 = (1 << 31) - 1;

/// Everything an inode says; encoded once it is known.
#[derive(Clone, Debug)]
pub(super) struct InodeFields {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub crtime: Timestamp,
    pub links: u16,
    pub flags: u32,
    pub project: u32,
    pub generation: u32,
    pub mapping: Mapping,
    pub xattr_block: u64,
    /// Only inodes that hold values of attributes have one: the number of references.
    pub version: u32,
}

/// Size, space and block map: what a directory learns only when its run is complete.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub size_bytes: u64,
    /// Data, extent tree and attribute blocks together.
    pub blocks: u64,
    /// Extent root, short symbolic link or device number.
    pub block_map: [u8; 60],
}

impl Mapping {
    /// No content at all.
    pub fn none() -> Mapping {
        Mapping {
            size_bytes: 0,
            blocks: 0,
            block_map: [0; 60],
        }
    }
}

impl InodeFields {
    /// Fills `out`, the whole inode; its checksum comes last, by [`seal`]. Says whether a time had
    /// to be clamped.
    pub fn encode(&self, out: &mut [u8], block_size: u32, in_inode_xattrs: &[u8]) -> bool {
        out.fill(0);
        put_u16(out, MODE, self.mode as u16);
        put_split_u32(out, 0x02, 0x78, self.uid);
        put_split_u32(out, 0x18, 0x7a, self.gid);
        put_u16(out, LINKS, self.links);
        put_u32(out, FLAGS, self.flags);
        put_u32(out, VERSION, self.version);
        put_u32(out, GENERATION, self.generation);
        put_u32(out, XATTR_BLOCK_LOW, self.xattr_block as u32);
        put_u16(out, XATTR_BLOCK_HIGH, (self.xattr_block >> 32) as u16);
        put_mapping(out, &self.mapping, block_size);
        let has_extra = out.len() > BASE_INODE_BYTES;
        if has_extra {
            put_u16(out, EXTRA_SIZE, EXTRA_BYTES as u16);
            put_u32(out, 0x9c, self.project);
            let start = BASE_INODE_BYTES + EXTRA_BYTES;
            out[start..start + in_inode_xattrs.len()].copy_from_slice(in_inode_xattrs);
        }
        let times = [
            (self.atime, 0x08, 0x8c),
            (self.ctime, 0x0c, 0x84),
            (self.mtime, 0x10, 0x88),
        ];
        let mut clamped = false;
        for (time, low, extra) in times {
            clamped |= put_time(out, low, has_extra.then_some(extra), time);
        }
        if has_extra {
            put_time(out, 0x90, Some(0x94), self.crtime);
        }
        clamped
    }

    /// An inode that holds a value: times and version are used for its hash and the number of
    /// references.
    pub fn of_large_value(entry: &NewEntry<'_>, mapping: Mapping, hash: u32) -> InodeFields {
        let never = Timestamp::default();
        InodeFields {
            mode: 0o100600,
            uid: entry.uid,
            gid: entry.gid,
            atime: Timestamp {
                seconds: i64::from(hash as i32),
                nanos: 0,
            },
            mtime: never,
            ctime: never,
            crtime: never,
            links: 1,
            flags: FLAG_LARGE_VALUE | FLAG_EXTENTS,
            project: 0,
            generation: 0,
            mapping,
            xattr_block: 0,
            version: 1,
        }
    }

    /// The flags that are stored.
    pub fn kept_flags(flags: u32, project: u32, inode_size: u32) -> u32 {
        let kept = flags & FLAGS_KEPT;
        // Inheriting projects needs the project feature, which needs the larger inode.
        if project == 0 || inode_size as usize <= BASE_INODE_BYTES {
            kept & !FLAG_PROJECT_INHERIT
        } else {
            kept
        }
    }
}

/// Stores size, space and block map.
pub(super) fn put_mapping(inode: &mut [u8], mapping: &Mapping, block_size: u32) {
    let sectors = mapping.blocks * u64::from(block_size / 512);
    put_u32(inode, SIZE_LOW, mapping.size_bytes as u32);
    put_u32(inode, SIZE_HIGH, (mapping.size_bytes >> 32) as u32);
    put_u32(inode, BLOCKS_LOW, sectors as u32);
    put_u16(inode, BLOCKS_HIGH, (sectors >> 32) as u16);
    inode[BLOCK_MAP..BLOCK_MAP + 60].copy_from_slice(&mapping.block_map);
}

/// Adds flags to an encoded inode.
pub(super) fn add_flags(inode: &mut [u8], flags: u32) {
    let have = super::field::get_u32(inode, FLAGS);
    put_u32(inode, FLAGS, have | flags);
}

/// The checksum seed for blocks that belong to an encoded inode.
pub(super) fn seed_of(file_system_seed: u32, number: u32, inode: &[u8]) -> u32 {
    inode_seed(
        file_system_seed,
        number,
        super::field::get_u32(inode, GENERATION),
    )
}

/// The blocks that an encoded inode has so far: those of its attributes, for a directory before its
/// run.
pub(super) fn blocks_of(inode: &[u8], block_size: u32) -> u64 {
    let high = u64::from(super::field::get_u16(inode, BLOCKS_HIGH)) << 32;
    (high | u64::from(super::field::get_u32(inode, BLOCKS_LOW))) / u64::from(block_size / 512)
}

/// Stores the checksum of a complete inode.
pub(super) fn seal(inode: &mut [u8], file_system_seed: u32, number: u32) {
    put_u16(inode, CHECKSUM_LOW, 0);
    let has_extra = inode.len() > BASE_INODE_BYTES;
    if has_extra {
        put_u16(inode, CHECKSUM_HIGH, 0);
    }
    let checksum = crc32c(seed_of(file_system_seed, number, inode), inode);
    put_u16(inode, CHECKSUM_LOW, checksum as u16);
    if has_extra {
        put_u16(inode, CHECKSUM_HIGH, (checksum >> 16) as u16);
    }
}

/// Device numbers in the block map: the old form while it is wide enough.
pub(super) fn device_map(major: u32, minor: u32) -> [u8; 60] {
    let mut map = [0; 60];
    if major < 256 && minor < 256 {
        put_u32(&mut map, 0, major << 8 | minor);
    } else {
        put_u32(
            &mut map,
            4,
            (minor & 0xff) | major << 8 | (minor & !0xff) << 12,
        );
    }
    map
}

/// Stores a time; says whether it had to be brought into range.
fn put_time(inode: &mut [u8], low: usize, extra: Option<usize>, time: Timestamp) -> bool {
    let max = if extra.is_some() {
        SECONDS_MAX
    } else {
        SECONDS_MAX_SHORT
    };
    let seconds = time.seconds.clamp(SECONDS_MIN, max);
    let clamped = seconds != time.seconds;
    put_u32(inode, low, seconds as u32);
    if let Some(extra) = extra {
        let epoch = ((seconds - i64::from(seconds as i32)) >> 32) as u32 & 3;
        let nanos = if clamped { 0 } else { time.nanos };
        put_u32(inode, extra, epoch | nanos << 2);
    }
    clamped
}

/// The stretches of data of a file, in whole blocks: aligned outwards, ascending, never touching
/// twice.
pub(super) struct DataRanges<'a> {
    data: &'a mut dyn FileData,
    size_bytes: u64,
    block_size: u64,
    next_block: u64,
}

impl<'a> DataRanges<'a> {
    pub fn new(data: &'a mut dyn FileData, size_bytes: u64, block_size: u32) -> DataRanges<'a> {
        DataRanges {
            data,
            size_bytes,
            block_size: u64::from(block_size),
            next_block: 0,
        }
    }

    /// The data, to be read between two stretches.
    pub fn data(&mut self) -> &mut dyn FileData {
        self.data
    }
}

impl Iterator for DataRanges<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let offset = self.next_block * self.block_size;
        if offset >= self.size_bytes {
            return None;
        }
        let stretch = self.data.next_data(offset, self.size_bytes)?;
        let start = (stretch.start / self.block_size).max(self.next_block);
        let end = stretch.end.min(self.size_bytes).div_ceil(self.block_size);
        if start >= end {
            return None;
        }
        self.next_block = end;
        Some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkext4::field::get_u32;

    #[test]
    fn times_carry_their_epoch_and_are_clamped_at_both_ends() {
        let stored = |seconds, nanos| {
            let mut inode = [0u8; 256];
            let clamped = put_time(&mut inode, 0x08, Some(0x8c), Timestamp { seconds, nanos });
            let (low, extra) = (get_u32(&inode, 0x08), get_u32(&inode, 0x8c));
            (
                i64::from(low as i32) + (i64::from(extra & 3) << 32),
                extra >> 2,
                clamped,
            )
        };
        for seconds in [
            0,
            -1,
            SECONDS_MIN,
            1 << 31,
            (1 << 32) + 5,
            5_000_000_000,
            SECONDS_MAX,
        ] {
            assert_eq!(stored(seconds, 999_999_999), (seconds, 999_999_999, false));
        }
        assert_eq!(stored(SECONDS_MIN - 1, 7), (SECONDS_MIN, 0, true));
        assert_eq!(stored(i64::MAX, 7), (SECONDS_MAX, 0, true));
    }

    #[test]
    fn stretches_that_share_a_block_are_asked_for_once() {
        struct Stretches(Vec<Range<u64>>);
        impl FileData for Stretches {
            fn next_data(&mut self, offset: u64, _size: u64) -> Option<Range<u64>> {
                self.0
                    .iter()
                    .find(|range| range.end > offset)
                    .map(|range| range.start.max(offset)..range.end)
            }
            fn read_at(&mut self, _: u64, _: &mut [u8]) -> std::io::Result<()> {
                Ok(())
            }
        }
        let mut data = Stretches(vec![10..20, 30..40, 4095..4097, 20000..30000]);
        let ranges: Vec<_> = DataRanges::new(&mut data, 25000, 4096).collect();
        assert_eq!(ranges, [0..1, 1..2, 4..7]);
    }
}
