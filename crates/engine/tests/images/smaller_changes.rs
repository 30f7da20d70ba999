//! Changes of less than a block: what is stored of them, and that each snapshot is the image.

use crate::bench::{BLOCK, Images, NAME};
use bale_engine::backup::{BackupOptions, Outcome};
use bale_engine::copy::{CopyOptions, copy};
use bale_pipeline::monitor::Recorder;
use bale_pipeline::random::{Random, SeededRandom};
use bale_testkit::Scene;
use bale_testkit::scene::noise;
use std::time::Duration;

const GRANULE: u64 = 4096;

/// Backs up unless nothing changed.
fn backup_if_changed(images: &Images) -> Outcome {
    let options = BackupOptions {
        skip_if_unchanged: true,
        ..BackupOptions::default()
    };
    let repository = images.scene.repository();
    let mut sources = [images.source(NAME)];
    let monitor = Recorder::default();
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    outcome.unwrap()
}

#[test]
fn a_few_bytes_in_every_block_cost_their_granules_in_shared_chunks_and_rows() {
    let blocks = 64;
    let mut images = Images::of(&noise(1, blocks * BLOCK as usize));
    let first = images.keep();
    for block in 0..blocks as u64 {
        images.write_at(block * BLOCK + block * 8191 % BLOCK, b"a few bytes");
    }
    let second = images.keep();
    let stored = second.snapshot.counts.bytes_stored;
    assert!(
        stored < blocks as u64 * 2 * GRANULE + (64 << 10),
        "{stored}"
    );
    let (before, after) = (images.extents(&first), images.extents(&second));
    let new = after.iter().filter(|extent| {
        let mut before = before.iter();
        before.all(|old| old.chunk != extent.chunk)
    });
    let mut chunks: Vec<_> = new.map(|extent| extent.chunk).collect();
    assert!(chunks.len() >= blocks, "{}", chunks.len());
    chunks.dedup();
    assert_eq!(chunks.len(), 1);
    images.assert_whole();
    // What is in parts is known to be unchanged, without a look at what is stored of it.
    let again = backup_if_changed(&images);
    assert_eq!(again.id, None);
    assert_eq!(again.snapshot.counts.files_unmodified, 1);
}

#[test]
fn a_block_that_changes_every_day_is_put_together_before_its_parts_are_many() {
    let mut images = Images::of(&noise(1, 3 * BLOCK as usize));
    images.keep();
    let mut most = 0;
    for day in 0..40u64 {
        images.write_at(BLOCK + day * 5 % 256 * GRANULE, &noise(100 + day, 700));
        let outcome = images.keep();
        let extents = images.extents(&outcome);
        let parts = extents.iter().filter(|extent| extent.start / BLOCK == 1);
        most = most.max(parts.count());
    }
    assert!((20..=32).contains(&most), "{most}");
    images.assert_whole();
}

#[test]
fn zeros_in_a_block_become_holes_and_come_back_as_they_were() {
    let mut images = Images::of(&noise(1, 2 * BLOCK as usize + 9000));
    images.keep();
    images.write_at(3 * GRANULE, &[0; 2 * GRANULE as usize]);
    images.write_at(2 * BLOCK + 8192, &[0; 808]);
    let outcome = images.keep();
    let starts: Vec<u64> = images
        .extents(&outcome)
        .iter()
        .map(|extent| extent.start)
        .collect();
    assert_eq!(starts, [0, 5 * GRANULE, BLOCK, 2 * BLOCK]);
    assert!(outcome.snapshot.counts.bytes_stored < 64 << 10);
    images.write_at(4 * GRANULE, b"again");
    images.keep();
    images.write_at(0, &vec![0; BLOCK as usize]);
    images.keep();
    images.assert_whole();
}

#[test]
fn an_image_that_grows_and_shrinks_within_a_block_that_is_in_parts_is_what_it_is() {
    let mut images = Images::of(&noise(1, 2 * BLOCK as usize + 300_000));
    images.keep();
    images.write_at(2 * BLOCK + 100_000, b"x");
    images.keep();
    for len in [2 * BLOCK + 150_000, 2 * BLOCK + 50_000, 3 * BLOCK + 5] {
        images.set_len(len);
        images.keep();
        images.write_at(2 * BLOCK + 4096, &noise(len, 10));
        images.keep();
    }
    images.assert_whole();
}

/// Weeks of small writes, with everything else that is done with a repository.
#[test]
fn weeks_of_random_writes_with_copies_and_prunes_are_whole_every_day() {
    let random = SeededRandom::new(16);
    let below = |most: u64| {
        let mut bytes = [0; 8];
        random.fill(&mut bytes).unwrap();
        u64::from_le_bytes(bytes) % most
    };
    let len = 20 * BLOCK + 12_345;
    let mut images = Images::of(&noise(1, len as usize));
    let other = Scene::new();
    for day in 0..24u64 {
        for write in 0..below(40) {
            let at = below(len);
            let bytes = match below(8) {
                0 => below(2 * BLOCK),
                1 => 1,
                _ => below(20_000),
            };
            let bytes = bytes.min(len - at) as usize;
            let content = match below(5) {
                0 => vec![0; bytes],
                _ => noise(day * 1000 + write, bytes),
            };
            images.write_at(at, &content);
        }
        let outcome = images.keep();
        if day % 5 == 4 {
            for _ in 0..3 {
                let gone = below(images.kept.len() as u64 - 1) as usize;
                let (id, _) = images.kept.remove(gone);
                let repository = images.scene.repository();
                repository.forget_snapshot(id).unwrap();
            }
            let repository = images.scene.repository();
            let pruned = images.scene.prune(&repository, Duration::ZERO);
            pruned.unwrap();
        }
        if day % 7 == 3 {
            let (source, target) = (images.scene.repository(), other.repository());
            let snapshots = source.snapshots().unwrap();
            let (options, monitor) = (CopyOptions::default(), Recorder::default());
            let copied = copy(&source, &target, &snapshots, &options, &monitor).unwrap();
            assert!(!copied.is_incomplete(), "{copied:?}");
            let target = other.repository();
            let copies = target.snapshots().unwrap();
            let newest = copies.iter().find(|(_, copy)| copy.original == outcome.id);
            images.assert_restores(&target, newest.unwrap().0, &images.bytes());
        }
    }
    images.assert_whole();
}

/// What the snapshot before has lost is no ground to stand on.
#[test]
fn parts_that_were_lost_are_stored_again_whatever_the_hash_of_their_block_says() {
    let mut images = Images::of(&noise(1, 4 * BLOCK as usize));
    let first = images.keep();
    images.write_at(BLOCK + 50_000, &noise(2, 3000));
    images.write_at(3 * BLOCK + 50_000, &noise(3, 3000));
    let second = images.keep();
    let old = images.extents(&first);
    let new: Vec<_> = images
        .extents(&second)
        .into_iter()
        .filter(|extent| old.iter().all(|old| old.chunk != extent.chunk))
        .collect();
    assert_eq!(new.len(), 2, "{new:?}");
    images
        .scene
        .lose_from_index(|chunk| chunk.id == new[0].chunk);
    let third = images.backup();
    let after = images.extents(&third);
    assert!(after.iter().all(|extent| extent.chunk != new[0].chunk));
    assert_ne!(third.id, second.id);
    let repository = images.scene.repository();
    images.assert_restores(&repository, third.id.unwrap(), &images.bytes());
}

/// A row that a newer layer hides takes nothing away from a copy.
#[test]
fn a_part_that_is_lost_keeps_its_snapshot_from_being_copied_and_no_other() {
    let mut images = Images::of(&noise(1, 64 * BLOCK as usize));
    let first = images.keep();
    images.write_at(BLOCK + 50_000, &noise(2, 3000));
    let second = images.keep();
    images.write_at(BLOCK + 50_000, &noise(3, 3000));
    let third = images.keep();
    let old = images.extents(&first);
    let new = images
        .extents(&second)
        .into_iter()
        .find(|extent| old.iter().all(|old| old.chunk != extent.chunk));
    let lost = new.unwrap().chunk;
    images.scene.lose_from_index(|chunk| chunk.id == lost);
    let other = Scene::new();
    let (source, target) = (images.scene.repository(), other.repository());
    let snapshots = source.snapshots().unwrap();
    let (options, monitor) = (CopyOptions::default(), Recorder::default());
    let copied = copy(&source, &target, &snapshots, &options, &monitor).unwrap();
    assert!(copied.is_incomplete());
    let target = other.repository();
    let copies = target.snapshots().unwrap();
    let mut originals: Vec<_> = copies.iter().map(|(_, copy)| copy.original).collect();
    originals.sort();
    let mut expected = [first.id, third.id];
    expected.sort();
    assert_eq!(originals, expected);
    let newest = copies.iter().find(|(_, copy)| copy.original == third.id);
    images.assert_restores(&target, newest.unwrap().0, &images.bytes());
    let report = other.check(&other.store).unwrap();
    assert!(report.is_clean(), "{report:?}");
}
