//! What contradicts itself is read whole, with the reason, and all else is not.

use super::image::{Copied, Image, can_run, chain, run};
use super::tree::{Random, churn};
use crate::physical_volume::{DISK_BYTES, EXTENT, TEXT, disk};
use bale_fsimage::ByteSource;
use bale_fsimage::allocated::{AllocatedRanges, DiskPart};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const PROGRAMS: [&str; 6] = ["mke2fs", "mkfs.xfs", "mkntfs", "mkswap", "mount", "umount"];

fn flip(image: &Image, at: u64) {
    let mut byte = [0];
    let file = image.file();
    FileExt::read_exact_at(&file, &mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

/// One portion of it is read whole; why.
fn doubt(copied: &Copied) -> String {
    let part = copied.part("disk");
    assert!(part.whole.is_none(), "{part:#?}");
    assert_eq!(part.doubtful_portions, 1, "{part:?}");
    assert!(part.allocated_bytes < part.bytes);
    chain(part.first_doubt.as_ref().unwrap())
}

/// A number that debugfs or xfs_db says.
fn number_in(text: &[u8], before: &str) -> u64 {
    let text = String::from_utf8_lossy(text).into_owned();
    let rest = text
        .split_once(before)
        .unwrap_or_else(|| panic!("{before}: {text}"))
        .1;
    let digits = rest.trim_start().chars().take_while(char::is_ascii_digit);
    digits.collect::<String>().parse().unwrap()
}

fn ext4(features: &str) -> Image {
    let image = Image::make(300, &format!("mke2fs -q -F -t ext4 -b 4096 -O {features}"));
    churn(&image.mount("noatime").path, 3, 8);
    image
}

#[test]
fn a_group_of_ext4_whose_bitmap_is_wrong_is_read_whole() {
    if !can_run(&PROGRAMS) || !can_run(&["dumpe2fs"]) {
        return;
    }
    for (features, why) in [
        ("^has_journal", "block bitmap checksum does not match"),
        (
            "^has_journal,^metadata_csum,uninit_bg",
            "its descriptor counts others",
        ),
        (
            "^has_journal,^metadata_csum,^uninit_bg",
            "its descriptor counts others",
        ),
    ] {
        let image = ext4(features);
        let before = image.copied();
        before.assert_believed("disk");
        let listed = run("dumpe2fs", &[&image.name()]).stdout;
        let bitmap = number_in(&listed, "Block bitmap at");
        flip(&image, bitmap * 4096 + 4000);
        let copied = image.copied();
        let found = doubt(&copied);
        assert!(
            found.contains("block group 0") && found.contains(why),
            "{found}"
        );
        // The whole group, and no other.
        let more = copied.bytes - before.bytes;
        assert!(more > 0 && more < 128 << 20, "{more}");
    }
}

#[test]
fn an_ext4_that_was_not_left_cleanly_and_has_no_journal_is_read_whole() {
    if !can_run(&PROGRAMS) || !can_run(&["debugfs"]) {
        return;
    }
    let image = ext4("^has_journal");
    let still = {
        let mounted = image.mount("noatime");
        churn(&mounted.path, 4, 1);
        mounted.sync();
        image.still_copy()
    };
    let why = still.copied().why_whole("disk");
    assert!(why.contains("was not unmounted"), "{why}");
    image.copied().assert_believed("disk");
    run("debugfs", &["-w", "-R", "ssv state 3", &image.name()]);
    let why = image.copied().why_whole("disk");
    assert!(why.contains("errors in it"), "{why}");
}

#[test]
fn a_file_system_longer_than_its_disk_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for words in ["mke2fs -q -F -t ext4", "mkfs.xfs -q -f", "mkntfs -q -F -f"] {
        let image = Image::make(400, words);
        image.copied().assert_believed("disk");
        // What is behind its end is read.
        image.file().set_len(500 << 20).unwrap();
        let copied = image.copied();
        copied.assert_believed("disk");
        assert!(copied.bytes > 100 << 20);
        image.file().set_len(399 << 20).unwrap();
        image.copied().why_whole("disk");
    }
}

#[test]
fn a_group_of_xfs_whose_tree_is_wrong_is_read_whole() {
    if !can_run(&PROGRAMS) || !can_run(&["xfs_db"]) {
        return;
    }
    for crc in [1, 0] {
        let image = Image::make(400, &format!("mkfs.xfs -q -f -m crc={crc} -d agcount=4"));
        let before = image.copied();
        before.assert_believed("disk");
        let say = |command: &str| {
            let words = ["-r", "-c", "agf 1", "-c", command, &image.name()];
            run("xfs_db", &words).stdout
        };
        let root = number_in(&say("p bnoroot"), "=");
        let ag = 100 << 20;
        // In the header: free blocks. In the tree: the length of the first stretch.
        for at in [512 + 54, root * 4096 + if crc == 1 { 56 } else { 16 } + 6] {
            flip(&image, ag + at);
            let copied = image.copied();
            let found = doubt(&copied);
            assert!(found.contains("free space"), "{found}");
            let more = copied.bytes - before.bytes;
            assert!(more > 0 && more < 100 << 20, "{more}");
            flip(&image, ag + at);
        }
        image.copied().assert_believed("disk");
    }
}

#[test]
fn an_ntfs_whose_bitmap_has_its_own_tables_as_free_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(400, "mkntfs -q -F -f");
    let before = image.copied();
    before.assert_believed("disk");
    // The bitmap is where nearly all bits are 0 but the first: the MFT begins at cluster 4.
    let listed = run("ntfsinfo", &["-v", "-i", "6", &image.name()]).stdout;
    let text = String::from_utf8_lossy(&listed).into_owned();
    let data = text.split("$DATA").nth(1).unwrap();
    let run_at = data.split("Runlist:").nth(1).unwrap();
    let words: Vec<_> = run_at.split_whitespace().collect();
    let cluster = words.iter().find_map(|word| {
        let hex = word.strip_prefix("0x")?;
        let number = u64::from_str_radix(hex, 16).ok()?;
        (number > 0).then_some(number)
    });
    let mut byte = [0];
    let at = cluster.unwrap() * 4096;
    FileExt::read_exact_at(&image.file(), &mut byte, at).unwrap();
    assert_ne!(byte[0] & 0x10, 0);
    flip(&image, at);
    let found = image.copied();
    assert_eq!(found.part("disk").doubtful_portions, 1);
    assert_eq!(found.bytes, found.part("disk").bytes);
}

#[test]
fn a_file_system_below_the_mark_of_something_else_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(100, "mke2fs -q -F -t ext4");
    image.copied().assert_believed("disk");
    let file = image.file();
    for (at, mark, expected) in [
        (4096, &b"\xfc\x4e\x2b\xa9"[..], "a RAID"),
        ((100 << 20) - (64 << 10), b"\xfc\x4e\x2b\xa9", "a RAID"),
        (0, b"LUKS\xba\xbe", "several kinds"),
        (0, b"XFSB", "several kinds"),
        (
            (128 << 10) + 1024,
            b"\x0c\xb1\xba\x00\x00\x00\x00\x00",
            "ZFS",
        ),
    ] {
        let mut before = vec![0; mark.len()];
        FileExt::read_exact_at(&file, &mut before, at).unwrap();
        file.write_all_at(mark, at).unwrap();
        let why = image.copied().why_whole("disk");
        assert!(why.contains(expected), "{why}");
        file.write_all_at(&before, at).unwrap();
    }
    image.copied().assert_believed("disk");
}

/// The data of a thin pool: the first blocks are where they are in the volume, others are not.
#[test]
fn a_file_system_whose_blocks_are_elsewhere_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for (words, from) in [
        ("mke2fs -q -F -t ext4 -b 1024", 6 << 20),
        ("mke2fs -q -F -t ext4 -b 1024 -O bigalloc", 20 << 20),
    ] {
        let image = Image::make(200, words);
        image.copied().assert_believed("disk");
        let mut bytes = Vec::new();
        image.file().read_to_end(&mut bytes).unwrap();
        bytes[from..].rotate_right(64 << 10);
        image.file().write_all_at(&bytes, 0).unwrap();
        let why = image.copied().why_whole("disk");
        assert!(why.contains("copy of its superblock"), "{why}");
    }
    // Of NTFS there are copies of the first records, in the middle, and of the boot sector, behind.
    let image = Image::make(200, "mkntfs -q -F -f");
    image.copied().assert_believed("disk");
    for at in [100 << 20, 200 << 20] {
        let mut before = vec![0; 8192];
        let file = image.file();
        FileExt::read_exact_at(&file, &mut before, at - 8192).unwrap();
        file.write_all_at(&[0; 8192], at - 8192).unwrap();
        let why = image.copied().why_whole("disk");
        assert!(why.contains("copies of its boot sector"), "{why}");
        file.write_all_at(&before, at - 8192).unwrap();
    }
    image.copied().assert_believed("disk");
}

#[test]
fn swap_space_that_holds_a_sleeping_machine_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let image = Image::make(50, "mkswap");
    assert_eq!(image.copied().bytes, 4096);
    image.file().write_all_at(b"S1SUSPEND\0", 4086).unwrap();
    image.copied().why_whole("disk");
    image.file().write_all_at(b"SWAPSPACE2", 4086).unwrap();
    // More pages than there are, and fewer.
    image.file().write_all_at(&[0xff; 4], 1028).unwrap();
    image.copied().why_whole("disk");
    image
        .file()
        .write_all_at(&99u32.to_le_bytes(), 1028)
        .unwrap();
    assert_eq!(image.copied().bytes, (50 << 20) - 99 * 4096);
}

fn parts_of(disk: Vec<u8>) -> Vec<DiskPart> {
    let mut ranges = AllocatedRanges::of(Arc::new(disk), None);
    ranges.by_ref().for_each(drop);
    ranges.into_parts()
}

/// The data of a thin pool begin with the first block of the first volume in it, which may be that
/// of a file system: its other blocks are elsewhere.
#[test]
fn a_volume_that_is_a_part_of_another_is_read_whole() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let bytes = |text: &str| {
        let image = Image::make(16, "mke2fs -q -F -b 1024");
        let mut content = Vec::new();
        image.file().read_to_end(&mut content).unwrap();
        let mut disk = disk(text, 512);
        let start = (1 << 20) + 5 * EXTENT as usize;
        disk[start..start + content.len()].copy_from_slice(&content);
        parts_of(disk)
    };
    let allocated = |parts: &[DiskPart]| parts.iter().map(|part| part.allocated_bytes).sum::<u64>();
    let hidden = bytes(TEXT);
    assert!(hidden.iter().all(|part| part.name != "hidden"));
    assert_eq!(allocated(&hidden), DISK_BYTES as u64);
    let visible = bytes(&TEXT.replace(
        "hidden { status = [\"READ\", \"WRITE\"]",
        "hidden { status = [\"READ\", \"VISIBLE\"]",
    ));
    assert!(
        visible
            .iter()
            .any(|part| part.name == "hidden" && part.whole.is_none())
    );
    assert!(allocated(&visible) < DISK_BYTES as u64 - (8 << 20));
    // Where it overlaps another volume, neither is believed.
    let overlapping = bytes(
        &TEXT
            .replace("[\"READ\", \"WRITE\"]", "[\"READ\", \"VISIBLE\"]")
            .replace("[\"pv0\", 10]", "[\"pv0\", 8]"),
    );
    assert_eq!(allocated(&overlapping), DISK_BYTES as u64);
}

/// An image with other bytes here and there.
struct Damaged {
    whole: Arc<Vec<u8>>,
    changes: Vec<(u64, u8)>,
}

impl ByteSource for Damaged {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        ByteSource::read_exact_at(self.whole.as_ref(), offset, buf)?;
        for (at, byte) in &self.changes {
            let place = at
                .checked_sub(offset)
                .and_then(|at| buf.get_mut(at as usize));
            if let Some(place) = place {
                *place = *byte;
            }
        }
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        self.whole.len() as u64
    }
}

/// Whatever is wrong anywhere, what comes out are ranges of the disk in order, whose sums are
/// right.
#[test]
fn of_damaged_metadata_come_ranges_or_reasons() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for (words, seed) in [
        ("mke2fs -q -F -t ext4 -O ^metadata_csum,^uninit_bg", 1),
        ("mke2fs -q -F -t ext4", 2),
        ("mkfs.xfs -q -f -m crc=0", 3),
        ("mkntfs -q -F -f", 4),
    ] {
        let image = Image::make(if words.contains("xfs") { 320 } else { 80 }, words);
        let mut whole = Vec::new();
        image.file().read_to_end(&mut whole).unwrap();
        // Bytes that are something: metadata, as there are no files.
        let places: Vec<_> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
        let whole = Arc::new(whole);
        let mut random = Random(seed);
        for _ in 0..300 {
            let changes = (0..1 + random.below(4)).map(|_| {
                let at = match random.below(3) {
                    0 => random.below(8192) as usize,
                    _ => places[random.below(places.len() as u64) as usize],
                };
                (at as u64, random.below(256) as u8)
            });
            let damaged = Damaged {
                whole: whole.clone(),
                changes: changes.collect(),
            };
            let len = damaged.len_bytes();
            let mut ranges = AllocatedRanges::of(Arc::new(damaged), None);
            let (mut end, mut sum) = (None, 0);
            for range in ranges.by_ref() {
                assert!(range.start < range.end && range.end <= len);
                assert!(end.is_none_or(|end| end < range.start));
                end = Some(range.end);
                sum += range.end - range.start;
            }
            let parts = ranges.into_parts();
            assert_eq!(
                sum,
                parts.iter().map(|part| part.allocated_bytes).sum::<u64>()
            );
            assert_eq!(len, parts.iter().map(|part| part.bytes).sum::<u64>());
        }
    }
}
