//! What a tracker says is believed, and no further than it can be.

use crate::bench::{BLOCK, Images, NAME};
use bale_engine::backup::{BackupOptions, ImageSource, Outcome};
use bale_format::ChunkKind;
use bale_pipeline::monitor::Recorder;
use bale_source::raw::{ChangeTracker, Changes};
use bale_testkit::scene::noise;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Says what it was told, to whoever has the basis of the last snapshot.
struct Told {
    changes: Vec<Range<u64>>,
    epoch: u64,
    committed: Arc<AtomicU64>,
}

impl ChangeTracker for Told {
    fn name(&self) -> &'static str {
        "told"
    }

    fn changed_since(&mut self, basis: Option<&str>) -> Changes {
        match basis == Some(&self.epoch.to_string()) {
            true => Changes::Ranges(self.changes.clone()),
            false => Changes::Everything("another epoch".to_owned()),
        }
    }

    fn next_basis(&self) -> Option<String> {
        Some((self.epoch + 1).to_string())
    }

    fn committed(&mut self) {
        self.committed.store(self.epoch + 1, Ordering::Relaxed);
    }
}

fn backup(images: &mut Images, epoch: u64, changes: &[Range<u64>]) -> Outcome {
    let committed = Arc::new(AtomicU64::new(0));
    let mut sources = [ImageSource {
        tracker: Box::new(Told {
            changes: changes.to_vec(),
            epoch,
            committed: committed.clone(),
        }),
        ..images.source(NAME)
    }];
    let (options, monitor) = (BackupOptions::default(), Recorder::default());
    let repository = images.scene.repository();
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let outcome = outcome.unwrap();
    assert_eq!(committed.load(Ordering::Relaxed), epoch + 1);
    let record = &outcome.snapshot.images[0];
    assert_eq!(record.basis.as_deref(), Some(&(epoch + 1).to_string()[..]));
    images.kept.push((outcome.id.unwrap(), images.bytes()));
    outcome
}

fn read(outcome: &Outcome) -> u64 {
    outcome.snapshot.counts.bytes_read / BLOCK
}

#[test]
fn only_blocks_that_may_have_changed_are_read_and_every_snapshot_is_a_full() {
    let mut images = Images::of(&noise(1, 20 * BLOCK as usize));
    assert_eq!(read(&backup(&mut images, 0, &[])), 20);
    images.write_at(3 * BLOCK + 7, b"changed");
    images.write_at(11 * BLOCK, &vec![0; BLOCK as usize]);
    let changes = [3 * BLOCK + 7..3 * BLOCK + 14, 11 * BLOCK..12 * BLOCK];
    assert_eq!(read(&backup(&mut images, 1, &changes)), 2);
    // A superset costs reading and nothing else.
    let outcome = backup(&mut images, 2, std::slice::from_ref(&(BLOCK..5 * BLOCK)));
    assert_eq!(read(&outcome), 4);
    let stored = outcome.snapshot.counts.bytes_stored;
    assert!(stored < 64 << 10, "{stored}");
    assert_eq!(read(&backup(&mut images, 3, &[])), 0);
    images.assert_whole();
}

#[test]
fn a_tracker_is_not_believed_where_the_parent_is_another_or_lacks_something() {
    let mut images = Images::of(&noise(1, 8 * BLOCK as usize));
    backup(&mut images, 0, &[]);
    // Another basis.
    assert_eq!(read(&backup(&mut images, 7, &[])), 8);
    // A snapshot without a tracker in between.
    images.write_at(0, b"unseen");
    images.keep();
    images.write_at(BLOCK, b"unseen, too");
    assert_eq!(read(&backup(&mut images, 8, &[])), 8);
    // A longer image: what is new of it is read.
    images.set_len(9 * BLOCK);
    images.write_at(8 * BLOCK, &noise(3, BLOCK as usize));
    assert_eq!(read(&backup(&mut images, 9, &[])), 1);
    // A shorter one.
    images.set_len(6 * BLOCK);
    assert_eq!(read(&backup(&mut images, 10, &[])), 6);
    images.assert_whole();
    // Something of it is lost.
    let mut lost = None;
    let index = images.scene.repository().index().unwrap();
    for place in index.entries() {
        if place.chunk.kind == ChunkKind::Data {
            lost = Some(place.chunk.id);
        }
    }
    images.scene.lose_from_index(|chunk| Some(chunk.id) == lost);
    images.kept.clear();
    assert_eq!(read(&backup(&mut images, 11, &[])), 6);
    let (id, bytes) = images.kept[0].clone();
    images.assert_restores(&images.scene.repository(), id, &bytes);
}
