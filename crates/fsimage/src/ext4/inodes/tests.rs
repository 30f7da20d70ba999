//! What decoding an inode promises: which are passed over, which are damage, how far fields reach.

use super::super::superblock::tests::valid_bytes;
use super::*;

fn superblock() -> Superblock {
    Superblock::parse(&valid_bytes()).unwrap()
}

fn regular_file() -> Vec<u8> {
    let mut bytes = vec![0; 256];
    bytes[..2].copy_from_slice(&0o100644_u16.to_le_bytes());
    bytes[26] = 1;
    bytes[128] = 32;
    bytes
}

fn results(bytes: &[u8]) -> Vec<(u64, Option<Damage>)> {
    let mut results = Vec::new();
    parse(&superblock(), 12, bytes, &mut |result| match result {
        InodeResult::Used(inode, _) => results.push((inode.number, None)),
        InodeResult::Damaged(raw, damage) => results.push((raw.number(), Some(damage))),
    });
    results
}

#[test]
fn unused_and_deleted_inodes_are_passed_over_and_impossible_ones_are_not() {
    let mut deleted = regular_file();
    deleted[26] = 0;
    let mut odd_mode = regular_file();
    odd_mode[1] = 0x30;
    let table = [
        regular_file(),
        vec![0; 256],
        deleted,
        odd_mode,
        regular_file(),
    ]
    .concat();
    assert_eq!(
        results(&table),
        [(12, None), (15, Some(Damage::Mode(0o30244))), (16, None)]
    );
}

#[test]
fn only_the_access_time_and_the_checksum_may_differ() {
    let before = regular_file();
    let same = |at: usize| {
        let mut after = before.clone();
        after[at] ^= 1;
        RawInode::new(12, &before)
            .unwrap()
            .same_except_atime(&RawInode::new(12, &after).unwrap())
    };
    let ignored: Vec<usize> = (0..256).filter(|at| same(*at)).collect();
    assert_eq!(
        ignored,
        [8, 9, 10, 11, 124, 125, 130, 131, 140, 141, 142, 143]
    );
    let raw = RawInode::new(12, &before).unwrap();
    assert!(!raw.same_except_atime(&RawInode::new(13, &before).unwrap()));
    assert!(!raw.same_except_atime(&RawInode::new(12, &before[..128]).unwrap()));
}

#[test]
fn times_reach_from_1901_to_2446() {
    let time = |low: i32, extra: u32| {
        let mut bytes = regular_file();
        bytes[16..20].copy_from_slice(&low.to_le_bytes());
        bytes[136..140].copy_from_slice(&extra.to_le_bytes());
        RawInode::new(12, &bytes)
            .unwrap()
            .decode(&superblock())
            .unwrap()
            .mtime
    };
    assert_eq!(
        time(i32::MIN, 0),
        Timestamp {
            seconds: -2_147_483_648,
            nanos: 0
        }
    );
    assert_eq!(
        time(i32::MAX, 3 | 999_999_999 << 2),
        Timestamp {
            seconds: 15_032_385_535,
            nanos: 999_999_999
        }
    );
    // More nanoseconds than a second has: damage that no checksum tells, kept within the
    // promise of the type.
    assert_eq!(time(0, u32::MAX).nanos, 999_999_999);
}

#[test]
fn device_numbers_have_an_old_and_a_wide_form() {
    let numbers = |old: u32, wide: u32| {
        let mut bytes = regular_file();
        bytes[..2].copy_from_slice(&0o020600_u16.to_le_bytes());
        bytes[40..44].copy_from_slice(&old.to_le_bytes());
        bytes[44..48].copy_from_slice(&wide.to_le_bytes());
        RawInode::new(12, &bytes)
            .unwrap()
            .decode(&superblock())
            .unwrap()
            .rdev
    };
    assert_eq!(numbers(0x0103, 0), (1, 3));
    assert_eq!(numbers(0, 0x1111_2C70), (300, 70_000));
}
