//! Damaged images: whatever is broken, nothing is missing in silence. Every file of the sound image
//! is in the snapshot, or a problem names it or a directory above it.
//!
//! Where checksums tell, what is in the snapshot is also right. Where they do not (they were made
//! to fit, or the file system has none), a name may have become another name: then its inode is
//! there.

use super::image::{Image, can_run};
use super::snapshots::{Pair, Taken};
use crate::xfs_image::damage::{mend_checksum, scan};
use crate::xfs_image::{self, Random};
use bale_format::{Content, Entry, EntryFlags, Kind};
use bale_fsimage::FileKind;
use bale_fsimage::ext4::{Ext4, InodeResult};
use bale_repository::error::Result;
use bale_source::scan::ScanMode;
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

const ROUNDS: u64 = 60;

/// A few hundred inodes in directories small and large.
fn populate(root: &Path) {
    for directory in ["a", "a/b", "a/b/c", "many", "other"] {
        std::fs::create_dir(root.join(directory)).unwrap();
    }
    for number in 0..150 {
        let name = format!("many/name-{number}-{}", "x".repeat(30));
        std::fs::write(root.join(name), format!("content {number}")).unwrap();
    }
    for directory in ["", "a", "a/b", "a/b/c", "other"] {
        let directory = root.join(directory);
        for len in [0, 50, 1000, 5000, 40_000] {
            let bytes = Random(len).bytes(len as usize);
            std::fs::write(directory.join(format!("len{len}")), bytes).unwrap();
        }
        std::os::unix::fs::symlink("len50", directory.join("link")).unwrap();
        std::fs::hard_link(directory.join("len50"), directory.join("hard")).unwrap();
    }
    let fragments = File::create(root.join("fragments")).unwrap();
    for number in 0..100 {
        fragments
            .write_all_at(&[number as u8; 900], number * 5000)
            .unwrap();
    }
}

/// Is this path, or a directory above it, named by a problem?
fn is_told(path: &[u8], taken: &Taken, image: &[u8]) -> bool {
    let covers = |told: &[u8]| match told.strip_prefix(image) {
        Some(below) => path
            .strip_prefix(below)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/'),
        None => false,
    };
    taken.problems.iter().any(|problem| covers(&problem.path))
}

/// A letter of a name may have become another, and the name that of its neighbour: it is told of
/// one that it is there twice.
fn is_told_as_another(path: &[u8], taken: &Taken, image: &[u8]) -> bool {
    let directory = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let is_beside = |told: &[u8]| match told.strip_prefix(image) {
        Some(told) => told[..directory(told)] == path[..directory(path)],
        None => false,
    };
    let mut problems = taken.problems.iter();
    problems.any(|problem| problem.text.contains("listed twice") && is_beside(&problem.path))
}

/// Content may stand in other chunks, because its neighbours are others; a directory that lacks a
/// child says so.
fn without_place(row: &Entry) -> Entry {
    let mut row = row.clone();
    row.content = Content::None;
    if row.kind == Kind::Directory {
        row.flags.clear(EntryFlags::UNREADABLE);
    }
    row
}

/// Tells whether the damage was noticed.
fn judge(sound: &Taken, damaged: Result<Taken>, image: &Path, detects: bool, which: &str) -> bool {
    let damaged = match damaged {
        Ok(damaged) => damaged,
        // Refused with a sentence: nothing was stored that could be taken for all there is. One
        // entry that no row can be made of is no reason.
        Err(error) => {
            let text = bale_pipeline::error::with_causes(&error);
            assert!(!text.contains("cannot be stored"), "{which}: {text}");
            return true;
        }
    };
    let image = image.canonicalize().unwrap();
    let image = image.as_os_str().as_bytes();
    let inodes: HashSet<u64> = damaged.rows.values().map(|row| row.inode).collect();
    for (path, row) in &sound.rows {
        let found = damaged.rows.get(path);
        let right = match found {
            Some(found) => !detects || without_place(found) == without_place(row),
            None => {
                let is_another = || is_told_as_another(path, &damaged, image);
                !detects && (inodes.contains(&row.inode) || is_another())
            }
        };
        let text = path.escape_ascii();
        assert!(
            right || is_told(path, &damaged, image),
            "{which}: {text} is missing or wrong, and nothing was said:\n{row:?}\n{found:?}\n{:?}",
            damaged.problems
        );
    }
    !damaged.problems.is_empty()
}

/// Damages places of the image and looks at it each time.
fn for_each_damage(image: &Path, places: &[Range<u64>], detects: bool, mend: bool, which: &str) {
    let pair = Pair::new();
    let sound = pair.inode_scan(image);
    assert!(sound.problems.is_empty() && sound.rows.len() > 150);
    let file = File::options().read(true).write(true).open(image).unwrap();
    let intact = std::fs::read(image).unwrap();
    let mut noticed = 0;
    for round in 0..ROUNDS {
        let mut random = Random(round << 2 | u64::from(mend));
        let mut bytes = intact.clone();
        for _ in 0..=random.below(2) {
            let place = &places[random.below(places.len() as u64) as usize];
            let len = place.end - place.start;
            let at = (place.start + random.below(len)) as usize;
            match random.below(4) {
                0 => bytes[place.start as usize..place.end as usize].fill(0),
                1 => bytes[at] = random.next() as u8,
                _ => bytes[at] ^= 1 << random.below(8),
            }
            if mend {
                mend_checksum(&mut bytes, at);
            }
        }
        rewrite(&file, &intact, &bytes);
        let damaged = pair.take(image, ScanMode::Inode);
        rewrite(&file, &bytes, &intact);
        let which = format!("{which}, round {round}");
        noticed += u64::from(judge(&sound, damaged, image, detects, &which));
    }
    assert!(noticed > ROUNDS / 10, "{which}: noticed {noticed}");
}

/// Writes what differs.
fn rewrite(file: &File, before: &[u8], after: &[u8]) {
    const STEP: usize = 4096;
    let pairs = before.chunks(STEP).zip(after.chunks(STEP)).enumerate();
    for (number, (_, after)) in pairs.filter(|(_, (before, after))| before != after) {
        file.write_all_at(after, (number * STEP) as u64).unwrap();
    }
}

/// Inodes in use, one by one, and directory blocks.
fn ext4_places(image: &Path) -> Vec<Range<u64>> {
    let fs = Ext4::open(Arc::new(File::open(image).unwrap())).unwrap();
    let mut places = Vec::new();
    for range in fs.itable_ranges() {
        let mut table = vec![0; range.len_bytes() as usize];
        fs.source()
            .read_exact_at(range.device_offset, &mut table)
            .unwrap();
        fs.parse_inodes(range.first_inode, &table, &mut |result| {
            let InodeResult::Used(inode, raw) = result else {
                panic!("it is sound");
            };
            let start = fs.inode_offset(inode.number).unwrap();
            places.push(start..start + raw.bytes().len() as u64);
            if FileKind::from_mode(inode.mode) == Some(FileKind::Directory) {
                let extents = fs.extents(&raw).unwrap_or_default();
                let blocks = extents.into_iter().flat_map(|extent| {
                    let end = extent.device_offset + extent.len;
                    (extent.device_offset..end).step_by(1024)
                });
                // Directories are few: each block counts for several inodes.
                let blocks = blocks.flat_map(|block| std::iter::repeat_n(block..block + 1024, 5));
                places.extend(blocks);
            }
        });
    }
    places
}

fn ext4_damage(test: &str, mke2fs: &str, detects: bool) {
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Image::make(8, &format!("{mke2fs} -b 1024 -N 512"));
    populate(&image.mount("noatime").path);
    let places = ext4_places(&image.path);
    for_each_damage(&image.path, &places, detects, false, mke2fs);
}

/// Where no checksum covers it, and on a mounted file system when another inode has the block by
/// now.
#[test]
fn a_target_that_no_row_can_have_is_named_and_all_else_is_stored() {
    let test = "a_target_that_no_row_can_have_is_named_and_all_else_is_stored";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Image::make(8, "-t ext4 -O ^metadata_csum,^has_journal -b 1024 -N 512");
    let target = format!("TARGET{}", "x".repeat(300));
    {
        let mounted = image.mount("noatime");
        populate(&mounted.path);
        std::os::unix::fs::symlink(&target, mounted.path.join("long")).unwrap();
    }
    let mut pair = Pair::new();
    // Each by itself: nothing is compared with the snapshot before.
    pair.force = true;
    let sound = pair.inode_scan(&image.path);
    assert!(sound.problems.is_empty());
    let bytes = std::fs::read(&image.path).unwrap();
    let at = bytes
        .windows(target.len())
        .position(|window| window == target.as_bytes());
    let file = File::options().write(true).open(&image.path).unwrap();
    file.write_all_at(&[0], at.unwrap() as u64 + 50).unwrap();
    let damaged = pair.inode_scan(&image.path);
    let [problem] = &damaged.problems[..] else {
        panic!("{:?}", damaged.problems);
    };
    assert!(problem.path.ends_with(b"/long"), "{problem:?}");
    for (path, row) in &sound.rows {
        let found = &damaged.rows[path];
        match path.ends_with(b"long") {
            true => assert!(found.flags.has(EntryFlags::UNREADABLE), "{found:?}"),
            false => assert_eq!(without_place(found), without_place(row)),
        }
    }
}

#[test]
fn of_a_damaged_ext4_nothing_is_missing_in_silence() {
    let test = "of_a_damaged_ext4_nothing_is_missing_in_silence";
    ext4_damage(test, "-t ext4", true);
}

#[test]
fn of_a_damaged_ext4_with_inline_data_nothing_is_missing_in_silence() {
    let test = "of_a_damaged_ext4_with_inline_data_nothing_is_missing_in_silence";
    ext4_damage(test, "-t ext4 -O inline_data", true);
}

/// As if every checksum had been made to fit.
#[test]
fn of_a_damaged_ext4_without_checksums_nothing_is_missing_in_silence() {
    let test = "of_a_damaged_ext4_without_checksums_nothing_is_missing_in_silence";
    ext4_damage(test, "-t ext4 -O ^metadata_csum", false);
}

#[test]
fn of_a_damaged_ext2_nothing_is_missing_in_silence() {
    let test = "of_a_damaged_ext2_nothing_is_missing_in_silence";
    ext4_damage(test, "-t ext2", false);
}

fn xfs_damage(mend: bool) {
    if !xfs_image::can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = xfs_image::Image::make(64, "--unsupported -l size=1368b");
    let mounted = image.mount();
    populate(&mounted.path());
    mounted.unmount();
    let reads = scan(&std::fs::read(image.path()).unwrap()).reads;
    // Everything that a scan reads except superblocks and the log.
    let log = bale_fsimage::xfs::Xfs::open(&image.open()).unwrap();
    let superblock = log.superblock();
    let log_start = superblock
        .block_offset(superblock.log_start_block, 1)
        .unwrap();
    let log_end = log_start + u64::from(superblock.log_blocks * superblock.block_bytes);
    let places = reads
        .into_iter()
        .map(|(offset, len)| offset..offset + len as u64);
    let places =
        places.filter(|place| place.start > 0 && !(log_start..log_end).contains(&place.start));
    let places: Vec<_> = places.collect();
    for_each_damage(&image.path(), &places, !mend, mend, "xfs");
}

#[test]
fn of_a_damaged_xfs_nothing_is_missing_in_silence() {
    xfs_damage(false);
}

#[test]
fn of_a_damaged_xfs_with_checksums_made_to_fit_nothing_is_missing_in_silence() {
    xfs_damage(true);
}
