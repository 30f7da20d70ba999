//! Loads the segments of a layer one ahead, in a thread that stays: who needs all of them waits for
//! reading and decoding no longer than it takes itself.

use super::load::{LoadedSegment, load};
use super::{KeyRange, Result, SegmentSource};
use bale_format::SegmentRef;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::sync::Arc;
use std::thread::JoinHandle;

/// One segment is loaded at a time, while another is in use.
pub(super) struct SegmentLoader {
    requests: Option<Sender<(SegmentRef, KeyRange)>>,
    loaded: Receiver<Result<LoadedSegment>>,
    /// What is being loaded: its position in the layer, and the keys that are wanted of it.
    requested: Option<(usize, KeyRange)>,
    thread: Option<JoinHandle<()>>,
}

impl SegmentLoader {
    /// `None`: the system has no thread for it.
    pub(super) fn start(source: Arc<dyn SegmentSource>) -> Option<SegmentLoader> {
        let (requests, queue) = bounded::<(SegmentRef, KeyRange)>(1);
        let (sender, loaded) = bounded(1);
        let work = move || {
            for (reference, range) in queue {
                if sender.send(load(&*source, &reference, &range)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().spawn(work).ok()?;
        Some(SegmentLoader {
            requests: Some(requests),
            loaded,
            requested: None,
            thread: Some(thread),
        })
    }

    /// Begins to load, if nothing else is being loaded.
    pub(super) fn prefetch(&mut self, position: usize, reference: &SegmentRef, range: KeyRange) {
        if self.requested.is_some() {
            return;
        }
        let Some(requests) = &self.requests else {
            return;
        };
        let request = (reference.clone(), range.clone());
        if requests.send(request).is_ok() {
            self.requested = Some((position, range));
        }
    }

    /// What was asked for, when it is there; `None`: something else was asked for, or nothing.
    pub(super) fn take(
        &mut self,
        position: usize,
        range: &KeyRange,
    ) -> Option<Result<LoadedSegment>> {
        let requested = self.requested.take()?;
        let loaded = self.loaded.recv().ok()?;
        (requested.0 == position && requested.1 == *range).then_some(loaded)
    }
}

impl Drop for SegmentLoader {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}
