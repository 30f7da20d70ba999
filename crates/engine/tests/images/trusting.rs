//! Backups that trust metadata, of an image with a file system that is changed in between.

use crate::bench::{BLOCK, Images, NAME, run};
use bale_engine::backup::{BackupOptions, Outcome};
use bale_fsimage::allocated::AllocatedRanges;
use bale_pipeline::monitor::Recorder;
use bale_testkit::scene::noise;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

const MIB: usize = 1 << 20;

/// Unmounts when it goes.
pub struct Mounted(pub PathBuf);

impl Mounted {
    pub fn of(images: &Images) -> Mounted {
        let at = images.path("mounted");
        let _is_there = fs::create_dir(&at);
        let image = images.path(NAME);
        let (image, path) = (image.to_str().unwrap(), at.to_str().unwrap());
        run("mount", &["-o", "loop", image, path]);
        Mounted(at)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

/// A directory with large and small files.
pub fn make_tree(images: &Images) -> PathBuf {
    let tree = images.path("tree");
    fs::create_dir_all(tree.join("small")).unwrap();
    for number in 0..300u64 {
        let name = tree.join(format!("small/{number}"));
        fs::write(name, noise(number, 1 + number as usize * 41)).unwrap();
    }
    for number in 0..14u64 {
        let name = tree.join(format!("large{number}"));
        fs::write(name, noise(900 + number, 3 * MIB + 777)).unwrap();
    }
    tree
}

/// `disk.raw` as an ext4 that holds that.
pub fn make_ext4(images: &Images, options: &[&str]) {
    let tree = make_tree(images);
    images.write(NAME, &vec![0; 96 * MIB]);
    let (image, tree) = (images.path(NAME), tree.to_str().unwrap().to_owned());
    let image = image.to_str().unwrap();
    run(
        "mkfs.ext4",
        &[&["-q", "-F", "-d", &tree][..], options, &[image]].concat(),
    );
}

/// With `trusts_metadata`; what was said.
pub fn backup(images: &mut Images) -> (Outcome, Vec<String>) {
    backup_as(images, false)
}

/// The same of an image whose file systems were frozen, as somebody knows.
pub fn backup_as(images: &mut Images, was_frozen: bool) -> (Outcome, Vec<String>) {
    let mut sources = [images.source(NAME)];
    sources[0].trusts_metadata = true;
    sources[0].was_frozen = was_frozen;
    let (options, monitor) = (BackupOptions::default(), Recorder::default());
    let repository = images.scene.repository();
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let problems = monitor.problems.lock().unwrap();
    assert!(problems.is_empty(), "{problems:?}");
    let notes = monitor.notes.lock().unwrap();
    (outcome.unwrap(), notes.clone())
}

/// The image as it comes back, of which all that is in use is as it is.
pub fn restored(images: &Images, outcome: &Outcome) -> PathBuf {
    let target = images.path("restored.raw");
    let _was_not_there = fs::remove_file(&target);
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, outcome.id.unwrap());
    let monitor = Recorder::default();
    let report = images.restore_to(&repository, &snapshot, &target, &monitor);
    assert_eq!(report.unwrap().problems, 0);
    let (back, was) = (fs::read(&target).unwrap(), images.bytes());
    assert_eq!(back.len(), was.len());
    for used in AllocatedRanges::of(Arc::new(was.clone()), None) {
        let used = used.start as usize..used.end as usize;
        assert!(back[used.clone()] == was[used.clone()], "{used:?}");
    }
    target
}

/// What is read of the image where nothing is believed: bytes of blocks of which some is in use.
pub fn whole(images: &Images) -> u64 {
    let mut next = 0;
    let mut blocks = 0;
    for used in AllocatedRanges::of(Arc::new(images.bytes()), None) {
        let first = next.max(used.start / BLOCK);
        next = used.end.div_ceil(BLOCK);
        blocks += next.saturating_sub(first);
    }
    blocks * BLOCK
}

pub fn read(outcome: &Outcome) -> u64 {
    outcome.snapshot.counts.bytes_read
}

pub fn assert_is_bytes(images: &Images, outcome: &Outcome) {
    let repository = images.scene.repository();
    images.assert_restores(
        &repository,
        outcome.id.unwrap(),
        &zeros_where_free(images, outcome),
    );
}

/// The image with what was left out as zeros.
fn zeros_where_free(images: &Images, outcome: &Outcome) -> Vec<u8> {
    let mut bytes = images.bytes();
    for (first, count) in &outcome.snapshot.images[0].left_out {
        let from = (first * BLOCK) as usize;
        let to = ((first + count) * BLOCK) as usize;
        let to = to.min(bytes.len());
        bytes[from..to].fill(0);
    }
    bytes
}
