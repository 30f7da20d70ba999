//! Marks of what is not read here, for one reason: below it may stand the mark of a file system
//! that is not there any more, or that lies on several disks.
//!
//! What makes a RAID, a pool or a disc image of a disk leaves alone bytes that it does not need,
//! and those may be an old superblock. The first disk of a RAID has the superblock of the file
//! system on it, and none of its blocks where that says.

use crate::source::ByteSource;
use std::io;

/// Offset from the start, mark, whose it is.
const AT_START: &[(u64, &[u8], &str)] = &[
    (0, &[0xfc, 0x4e, 0x2b, 0xa9], RAID),
    (4 << 10, &[0xfc, 0x4e, 0x2b, 0xa9], RAID),
    (
        (4 << 10) + 24,
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81",
        "bcache",
    ),
    (
        (4 << 10) + 24,
        b"\xc6\x85\x73\xf6\x66\x69\x90\xa9",
        "bcachefs",
    ),
    (0, b"RDSK", "a partition table of the Amiga"),
    (0, b"ER", "a partition table of the Macintosh"),
    (0, b"\x0b\xe5\xa9\x41", "a partition table of SGI"),
    (508, b"\xda\xbe", "a partition table of Solaris"),
    (512, b"\x57\x45\x56\x82", "a partition table of BSD"),
    (8 << 10, b"\xe5\xd6\xd3\xf1", "a partition table of DASD"),
    (0, b"bluestore block device", "Ceph"),
    (0, b"dmvdo001", "VDO"),
    (0, b"integrt\0", "dm-integrity"),
    (0, b"verity\0\0", "dm-verity"),
    (0, b"SnAp", "a snapshot of the device mapper"),
    (0, b"hsqs", "SquashFS"),
    (3, b"ReFS\0\0\0\0", "ReFS"),
    (3, b"-FVE-FS-", "BitLocker"),
    (32, b"NXSB", "APFS"),
    (32, b"ORCLDISK", "Oracle ASM"),
    (516, b"!Stra0tis", "Stratis"),
    (1024, b"H+", "HFS+"),
    (1024, b"HX", "HFS+"),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "F2FS"),
    (32 << 10, b"JFS1", "JFS"),
    ((32 << 10) + 1, b"CD001", "ISO 9660"),
    ((64 << 10) + 52, b"ReIsEr", "ReiserFS"),
    (64 << 10, &[0x01, 0x16, 0x19, 0x70], "GFS2"),
    (1 << 20, &[0x0d, 0xd0, 0x01, 0xc0], "VMFS"),
];

const RAID: &str = "a RAID";
const MARK_BYTES_MAX: usize = 22;
/// Where ZFS has its uberblocks, each with this mark in one of both orders.
const ZFS: (u64, u64, u64) = (128 << 10, 256 << 10, 1 << 10);
const ZFS_MARK: u64 = 0x00ba_b10c;

/// Who else has a mark in a stretch of a disk.
pub fn foreign_mark(
    source: &dyn ByteSource,
    offset: u64,
    bytes: u64,
) -> io::Result<Option<&'static str>> {
    let has = |at: u64, mark: &[u8]| has_mark(source, offset, bytes, at, mark);
    for (at, mark, name) in AT_START {
        if has(*at, mark)? {
            return Ok(Some(name));
        }
    }
    for (at, mark, name) in at_end(bytes) {
        if has(at, mark)? {
            return Ok(Some(name));
        }
    }
    let (mut at, end, step) = ZFS;
    while at < end {
        if has(at, &ZFS_MARK.to_le_bytes())? || has(at, &ZFS_MARK.to_be_bytes())? {
            return Ok(Some("ZFS"));
        }
        at += step;
    }
    Ok(None)
}

/// The same, of marks that are counted from the end.
fn at_end(bytes: u64) -> [(u64, &'static [u8], &'static str); 5] {
    let old = (bytes & !0xffff).saturating_sub(64 << 10);
    // Version 1.0: 8 KiB from the end, at a multiple of 4 KiB.
    let new = (bytes / 512).saturating_sub(16) & !7;
    [
        (old, &[0xfc, 0x4e, 0x2b, 0xa9], RAID),
        (old, &[0xa9, 0x2b, 0x4e, 0xfc], RAID),
        (new * 512, &[0xfc, 0x4e, 0x2b, 0xa9], RAID),
        (bytes.saturating_sub(1024), b"Intel Raid ISM Cfg Sig.", RAID),
        (bytes.saturating_sub(512), &[0xde, 0x11, 0xde, 0x11], RAID),
    ]
}

fn has_mark(
    source: &dyn ByteSource,
    offset: u64,
    bytes: u64,
    at: u64,
    mark: &[u8],
) -> io::Result<bool> {
    let mut found = [0; MARK_BYTES_MAX + 10];
    let Some(found) = found.get_mut(..mark.len()) else {
        return Ok(false);
    };
    let end = at.checked_add(mark.len() as u64);
    if end.is_none_or(|end| end > bytes) {
        return Ok(false);
    }
    source.read_exact_at(offset + at, found)?;
    Ok(found == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_at_both_ends_of_a_stretch_and_nowhere_else() {
        const BYTES: u64 = (4 << 20) + 5 * 512;
        let found = |at: u64, mark: &[u8]| {
            let mut disk = vec![0; BYTES as usize + 1000];
            disk[500 + at as usize..][..mark.len()].copy_from_slice(mark);
            foreign_mark(&disk, 500, BYTES).unwrap()
        };
        for (at, mark, name) in AT_START {
            assert_eq!(found(*at, mark), Some(*name), "{name}");
            assert_eq!(found(*at + 300_001, mark), None, "{name}");
        }
        for (at, mark, name) in at_end(BYTES) {
            assert_eq!(found(at, mark), Some(name), "{at}");
        }
        assert_eq!(
            found((128 << 10) + 5 * 1024, &ZFS_MARK.to_be_bytes()),
            Some("ZFS")
        );
    }
}
