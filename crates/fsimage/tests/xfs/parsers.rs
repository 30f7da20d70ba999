//! Each parser takes any bytes without panic. The entrances are those of the fuzz targets; this
//! keeps them honest on every run.

use crate::xfs_image::Random;
use bale_fsimage::xfs::{Xfs, XfsError, fuzz};

const ROUNDS: u64 = 3000;

/// Calls `parse` with many buffers of at most `len` bytes that begin with one of `magics`. Most
/// bytes are small numbers, so that more than the first check is reached.
fn any_bytes(magics: &[&[u8]], len: usize, mut parse: impl FnMut(&mut Vec<u8>, &mut Random)) {
    for seed in 0..ROUNDS {
        let mut random = Random(seed);
        let len = len / 2 + random.below(len as u64 / 2 + 1) as usize;
        let mut bytes: Vec<u8> = (0..len).map(|_| any_byte(&mut random)).collect();
        let magic = magics[random.below(magics.len() as u64) as usize];
        bytes[..magic.len()].copy_from_slice(magic);
        parse(&mut bytes, &mut random);
    }
}

fn any_byte(random: &mut Random) -> u8 {
    let number = random.next();
    match number & 7 {
        0..=3 => 0,
        4 | 5 => (number >> 8) as u8 & 31,
        6 => (number >> 8) as u8,
        _ => 0xff,
    }
}

#[test]
fn superblocks_take_any_bytes() {
    any_bytes(&[b"XFSB", b""], 1024, |bytes, _| fuzz::superblock(bytes));
}

/// It is no device that fails, and nobody is told of buffers.
#[test]
fn what_is_shorter_than_a_sector_is_no_xfs() {
    for len in [0, 3, 100, 511] {
        let bytes = vec![b'X'; len];
        let opened = Xfs::open(&bytes);
        assert!(matches!(opened, Err(XfsError::NotXfs)), "{len} bytes");
    }
}

#[test]
fn group_headers_take_any_bytes() {
    let magic = b"XAGI\0\0\0\x01\0\0\0\0\0\x01\0\0";
    any_bytes(&[magic, b""], 600, |bytes, _| fuzz::ag_inodes(bytes));
}

#[test]
fn inodes_of_any_type_and_format_take_any_bytes() {
    let mut parsed = 0;
    any_bytes(&[b"IN"], 2048, |bytes, random| {
        bytes[2] = [0x81, 0x41, 0xa1, 0x21, 0x61, 0x11, 0xc1][random.below(7) as usize];
        bytes[4] = 2;
        bytes[5] = random.below(5) as u8;
        bytes[82] = random.below(60) as u8;
        bytes[83] = random.below(5) as u8;
        // Times, size and numbers of extents that are possible.
        for zeros in [36..40, 44..48, 52..56, 56..62, 76..79] {
            bytes[zeros].fill(0);
        }
        bytes.resize(1 << 20, random.next() as u8);
        parsed += u64::from(fuzz::inode(bytes));
    });
    assert!(parsed > ROUNDS / 50, "only {parsed} passed for inodes");
}

#[test]
fn directory_blocks_take_any_bytes() {
    let mut names = 0;
    any_bytes(&[b"XD2D", b"XD2B"], 4096, |bytes, _| {
        names += fuzz::dir_block(bytes)
    });
    assert!(names < ROUNDS as usize * 256, "more names than fit");
}

#[test]
fn attribute_blocks_take_any_bytes() {
    let mut attributes = 0;
    any_bytes(
        &[b"\0\0\0\0\0\0\0\0\xfb\xee", b"\0\0\0\0\0\0\0\0\xfe\xbe"],
        4096,
        |bytes, random| {
            bytes[12] = 0;
            bytes[13] = random.below(200) as u8;
            attributes += fuzz::attr_block(bytes);
        },
    );
    assert!(attributes > 1000, "only {attributes} attributes");
}

#[test]
fn acls_take_any_bytes() {
    any_bytes(&[b"", b"\0\0\0\x02"], 100, |bytes, _| fuzz::acl(bytes));
}

#[test]
fn logs_take_any_bytes() {
    any_bytes(
        &[b"\xfe\xed\xba\xbe", b"\0\0\0\x01"],
        40_000,
        |bytes, random| {
            // Headers of records here and there.
            for _ in 0..random.below(8) {
                let at = random.below(bytes.len() as u64 / 512) as usize * 512;
                bytes[at..at + 4].copy_from_slice(&[0xfe, 0xed, 0xba, 0xbe]);
            }
            fuzz::log(bytes);
        },
    );
}

#[test]
fn chunk_records_take_any_bytes() {
    any_bytes(&[b""], 160, |bytes, _| fuzz::inode_chunk_records(bytes));
}

/// Header of a group's inodes, a btree of one block, and a chunk of inodes that are in use.
#[test]
fn two_states_take_any_bytes() {
    let mut unchanged = 0;
    any_bytes(
        &[b"\0\x02\0\0", b"\xff\xff\0\0"],
        16 << 12,
        |bytes, random| {
            let device = 4;
            bytes.resize(device + (16 << 12), 0);
            let header = &mut bytes[device + 1024..];
            header[..8].copy_from_slice(b"XAGI\0\0\0\x01");
            header[8..12].fill(0);
            header[12..16].copy_from_slice(&65536u32.to_be_bytes());
            header[16..32].fill(0);
            header[19] = 64;
            header[23] = 3;
            header[27] = 1;
            let block = &mut bytes[device + (3 << 12)..];
            block[..8].copy_from_slice(b"IABT\0\0\0\x01");
            let record = &mut block[16..32];
            record.fill(0);
            record[3] = 64;
            for number in 0..64 {
                let inode = &mut bytes[device + (8 << 12) + number * 512..][..512];
                inode[..2].copy_from_slice(b"IN");
                inode[2] = 0x81;
                inode[4] = 2;
                inode[5] = 2 + random.below(2) as u8;
                for zeros in [36..40, 44..48, 52..56, 56..62, 76..79] {
                    inode[zeros].fill(0);
                }
            }
            unchanged += fuzz::unchanged(bytes);
        },
    );
    assert!(
        unchanged > ROUNDS,
        "only {unchanged} files passed for unchanged"
    );
}
