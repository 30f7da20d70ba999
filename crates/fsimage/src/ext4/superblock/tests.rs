//! What a parsed superblock promises; and one that is valid, for the tests of others.

use super::*;

/// A superblock that passes: 1 KiB blocks, one group of 64 inodes, no features but file types.
pub(in crate::ext4) fn valid_bytes() -> [u8; SUPERBLOCK_BYTES] {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let fields = [
        (0, 64),
        (4, 1024),
        (20, 1),
        (32, 8192),
        (40, 64),
        (76, 1),
        (84, 11),
        (96, INCOMPAT_FILETYPE),
    ];
    for (offset, value) in fields {
        bytes[offset..offset + 4].copy_from_slice(&u32::to_le_bytes(value));
    }
    bytes[56..58].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[88..90].copy_from_slice(&256_u16.to_le_bytes());
    bytes
}

fn with(offset: usize, value: u32) -> Result<Superblock, Ext4Error> {
    let mut bytes = valid_bytes();
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
    Superblock::parse(&bytes)
}

#[test]
fn valid_superblock_is_accepted() {
    let sb = Superblock::parse(&valid_bytes()).unwrap();
    assert_eq!(
        (sb.block_bytes, sb.groups_count, sb.inode_bytes),
        (1024, 1, 256)
    );
    assert_eq!(sb.itable_blocks(), 16);
}

#[test]
fn sizes_that_arithmetic_could_trip_over_are_refused() {
    let geometry = |offset, value| {
        assert!(
            matches!(with(offset, value), Err(Ext4Error::Geometry { .. })),
            "{offset}"
        )
    };
    for (offset, value) in [
        (24, 7),
        (24, u32::MAX),
        (32, 0),
        (32, 8193),
        (40, 0),
        (40, 8193),
        (4, 0),
        (4, 1),
    ] {
        geometry(offset, value);
    }
    for (offset, value) in [
        (0, 63),
        (0, u32::MAX),
        (20, 0),
        (20, 2),
        (84, 10),
        (88, 0),
        (88, 100),
        (88, 2048),
    ] {
        geometry(offset, value);
    }
    // 2^32 blocks in groups of one block are more groups than we hold.
    let mut bytes = valid_bytes();
    bytes[4..8].fill(0xFF);
    bytes[32..36].copy_from_slice(&[1, 0, 0, 0]);
    assert!(matches!(
        Superblock::parse(&bytes),
        Err(Ext4Error::Geometry {
            field: "group count",
            ..
        })
    ));
}

#[test]
fn every_single_field_may_hold_anything_without_a_panic() {
    for offset in 0..SUPERBLOCK_BYTES - 4 {
        for value in [0, 1, 0x80, 0x8000, 0x7FFF_FFFF, u32::MAX] {
            if let Ok(sb) = with(offset, value) {
                let _ = (sb.len_bytes(), sb.itable_blocks(), sb.features.names());
            }
        }
    }
}

#[test]
fn backups_are_in_groups_that_are_powers_of_3_5_and_7() {
    let mut sb = Superblock::parse(&valid_bytes()).unwrap();
    sb.features.ro_compat = RO_SPARSE_SUPER;
    let groups: Vec<u32> = (0..130)
        .filter(|group| sb.group_has_superblock(*group))
        .collect();
    assert_eq!(groups, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
}

#[test]
fn numbers_of_internal_inodes_count_only_with_their_feature() {
    assert!(!with(640, 13).unwrap().is_special_inode(13));
    let mut bytes = valid_bytes();
    bytes[640] = 13;
    bytes[93] = 0x10;
    assert!(Superblock::parse(&bytes).unwrap().is_special_inode(13));
}
