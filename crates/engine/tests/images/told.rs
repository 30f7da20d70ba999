//! A tracker that says what it was told, to whoever has the basis of the last snapshot.

use crate::bench::{Images, NAME};
use bale_engine::backup::{BackupOptions, ImageSource, Outcome};
use bale_pipeline::monitor::{Monitor, Recorder};
use bale_source::raw::{ChangeTracker, Changes};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// A backup with a tracker that has counted to this epoch, and knows these changes since.
pub fn tracked(images: &Images, epoch: u64, changes: Vec<Range<u64>>) -> Outcome {
    tracked_with(images, epoch, changes, &Recorder::default())
}

/// The same, told to a monitor.
pub fn tracked_with(
    images: &Images,
    epoch: u64,
    changes: Vec<Range<u64>>,
    monitor: &dyn Monitor,
) -> Outcome {
    let committed = Arc::new(AtomicU64::new(0));
    let mut sources = [ImageSource {
        tracker: Box::new(Told {
            changes,
            epoch,
            committed: committed.clone(),
        }),
        ..images.source(NAME)
    }];
    let (options, repository) = (BackupOptions::default(), images.scene.repository());
    let outcome = images.backup_into(&repository, &mut sources, &options, monitor);
    let outcome = outcome.unwrap();
    assert_eq!(committed.load(Ordering::Relaxed), epoch + 1);
    let record = &outcome.snapshot.images[0];
    assert_eq!(record.basis.as_deref(), Some(&(epoch + 1).to_string()[..]));
    outcome
}

/// Sectors in which an image is other than it was.
pub fn differences(before: &[u8], now: &[u8]) -> Vec<Range<u64>> {
    let pairs = before.chunks(512).zip(now.chunks(512)).enumerate();
    let differ = pairs.filter(|(_, (before, now))| before != now);
    differ
        .map(|(at, _)| at as u64 * 512..(at as u64 + 1) * 512)
        .collect()
}
