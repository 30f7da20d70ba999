//! What no file system has in use is left out, and nothing else is.

use crate::bench::{BLOCK, Images, NAME, run};
use crate::told::{differences, tracked};
use bale_engine::backup::{BackupOptions, ImageSource, Outcome};
use bale_format::ObjectId;
use bale_fsimage::allocated::AllocatedRanges;
use bale_pipeline::monitor::Recorder;
use bale_testkit::needs;
use bale_testkit::scene::noise;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// An image of ext4 with files in it, and noise where nothing is.
pub fn ext4_in_noise(images: &Images) {
    let tree = images.path("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..3u64 {
        let name = tree.join(format!("file{number}"));
        fs::write(name, noise(50 + number, 5 * MIB as usize + 77)).unwrap();
    }
    images.write(NAME, &noise(9, 64 * MIB as usize));
    let image = images.path(NAME);
    let (image, tree) = (image.to_str().unwrap(), tree.to_str().unwrap());
    run(
        "mkfs.ext4",
        &["-q", "-F", "-E", "nodiscard", "-d", tree, image],
    );
    run("e2fsck", &["-fn", image]);
}

pub fn has_tools() -> bool {
    let has = needs::have("mkfs.ext4") && needs::have("debugfs") && needs::have("e2fsck");
    if !has {
        needs::skipped("mkfs.ext4, debugfs or e2fsck is missing");
    }
    has
}

fn restored(images: &Images, id: ObjectId) -> Vec<u8> {
    let (repository, target) = (images.scene.repository(), images.path("restored.raw"));
    let _was_not_there = fs::remove_file(&target);
    let monitor = Recorder::default();
    let snapshot = Images::named(&repository, id);
    let report = images.restore_to(&repository, &snapshot, &target, &monitor);
    assert_eq!(report.unwrap().problems, 0);
    fs::read(&target).unwrap()
}

fn blocks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(BLOCK as usize)
}

fn is_named(left_out: &[(u64, u64)], block: u64) -> bool {
    let holds = |(first, count): &(u64, u64)| (*first..first + count).contains(&block);
    left_out.iter().any(holds)
}

/// Each block is as it was, or named as left out, free, and zeros. How many were left out.
fn assert_all_but_free(images: &Images, outcome: &Outcome, was: &[u8]) -> usize {
    let left_out = &outcome.snapshot.images[0].left_out;
    let source = Arc::new(was.to_vec());
    let used: Vec<Range<u64>> = AllocatedRanges::of(source, None).collect();
    let back = restored(images, outcome.id.unwrap());
    assert_eq!(back.len(), was.len());
    let mut zeros = 0;
    for (number, (back, was)) in blocks(&back).zip(blocks(was)).enumerate() {
        if back == was {
            continue;
        }
        let block = number as u64 * BLOCK..(number as u64 + 1) * BLOCK;
        assert!(is_named(left_out, number as u64), "block {number}");
        assert!(back.iter().all(|byte| *byte == 0), "block {number}");
        let mut used = used.iter();
        assert!(
            !used.any(|used| used.start < block.end && block.start < used.end),
            "block {number} is in use"
        );
        zeros += 1;
    }
    zeros
}

#[test]
fn what_is_free_is_not_read_and_the_file_system_comes_back_whole() {
    if !has_tools() {
        return;
    }
    let images = Images::new();
    ext4_in_noise(&images);
    let outcome = images.backup();
    let left_out = assert_all_but_free(&images, &outcome, &images.bytes());
    assert!(left_out > 30, "{left_out}");
    let read = outcome.snapshot.counts.bytes_read;
    assert_eq!(read, 64 * MIB - left_out as u64 * BLOCK);
    run(
        "e2fsck",
        &["-fn", images.path("restored.raw").to_str().unwrap()],
    );
    // Nothing changed: the same blocks are read, and no row is written.
    let again = images.backup();
    assert_eq!(again.snapshot.layers, outcome.snapshot.layers);
    let report = images.scene.check(&images.scene.store).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn what_is_free_is_stored_where_that_is_asked_for() {
    if !has_tools() {
        return;
    }
    let images = Images::new();
    ext4_in_noise(&images);
    let repository = images.scene.repository();
    let monitor = Recorder::default();
    let options = BackupOptions::default();
    let mut sources = [ImageSource {
        reads_free: true,
        ..images.source(NAME)
    }];
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let outcome = outcome.unwrap();
    assert!(outcome.snapshot.images[0].left_out.is_empty());
    images.assert_restores(&repository, outcome.id.unwrap(), &images.bytes());
}

fn remove(image: &Path, name: &str) {
    let image = image.to_str().unwrap();
    run("debugfs", &["-w", "-R", &format!("rm {name}"), image]);
}

#[test]
fn what_comes_into_use_without_being_written_to_is_read_whatever_a_tracker_says() {
    if !has_tools() {
        return;
    }
    let images = Images::new();
    ext4_in_noise(&images);
    let with_file = images.bytes();
    let first = tracked(&images, 0, Vec::new());
    let left_out = first.snapshot.images[0].left_out.clone();
    remove(&images.path(NAME), "file1");
    let without_file = images.bytes();
    let changes = differences(&with_file, &without_file);
    let second = tracked(&images, 1, changes.clone());
    let freed = second.snapshot.images[0].left_out.clone();
    assert_ne!(left_out, freed);
    // What became free is not in the snapshot any more.
    assert!(assert_all_but_free(&images, &second, &without_file) > 30);
    // It is undeleted: its blocks are as they were all the time.
    images.write(NAME, &with_file);
    let third = tracked(&images, 2, changes);
    assert!(assert_all_but_free(&images, &third, &with_file) > 30);
    let read = third.snapshot.counts.bytes_read;
    assert!(read < first.snapshot.counts.bytes_read, "{read}");
    assert_eq!(third.snapshot.images[0].left_out, left_out);
}
