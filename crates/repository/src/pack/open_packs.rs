//! The packs that are being filled, and where they go once they are full.
//!
//! Packs that are streamed to a local disk: of data one for each busy thread, of metadata one for
//! all, and the thread that filled one publishes it. Packs that are gathered in memory: one of data
//! and one of metadata for all threads, because each costs its size; who fills one hands it over to
//! the threads that upload.

use super::open_pack::{OpenPack, Published};
use super::plan::{PackPlan, whole_bytes};
use super::uploads::Uploads;
use crate::error::{Error, Result};
use crate::repository::Repository;
use crate::store::PackContent;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct OpenPacks {
    repository: Arc<Repository>,
    plan: PackPlan,
    /// Packs of data that no thread is writing to.
    streamed: Mutex<Vec<OpenPack>>,
    /// The one open pack of metadata. Who appends holds the lock: metadata is little, and a writer
    /// for each thread would be memory for each.
    metadata: Mutex<Option<OpenPack>>,
    /// The one of data that is gathered. The same holds: to seal and to read back takes a tenth of
    /// the time that compressing took.
    gathered: Mutex<Option<OpenPack>>,
    /// Packs of data that were gathered and handed over.
    gathered_before: AtomicU32,
    uploads: Option<Uploads>,
}

/// The first pack that is gathered; the next is twice as large, until they have their size. So the
/// line has something to do from the start.
const FIRST_PACK_BYTES: u64 = 4 << 20;

impl OpenPacks {
    pub(super) fn new(repository: Arc<Repository>, run_age: Duration) -> OpenPacks {
        let plan = repository.pack_plan();
        let buffer_bytes = whole_bytes(plan.pack_bytes());
        let uploads = |max| Uploads::new(max, buffer_bytes, run_age);
        OpenPacks {
            repository,
            plan,
            streamed: Mutex::default(),
            metadata: Mutex::default(),
            gathered: Mutex::default(),
            gathered_before: AtomicU32::new(0),
            uploads: plan.uploads_max().map(uploads),
        }
    }

    /// The queue of packs that are gathered.
    pub(super) fn uploads(&self) -> Option<&Uploads> {
        self.uploads.as_ref()
    }

    /// Threads that the queue wants.
    pub(super) fn upload_threads(&self) -> usize {
        self.plan.uploads_max().unwrap_or_default()
    }

    /// Appends a chunk, whose payload has this length, by `append`. Returns what is full and was
    /// streamed: the caller publishes it.
    pub(super) fn append(
        &self,
        content: PackContent,
        payload_bytes: usize,
        append: impl FnOnce(&mut OpenPack) -> Result<()>,
    ) -> Result<Option<OpenPack>> {
        if let Some(uploads) = &self.uploads {
            self.append_gathered(uploads, content, payload_bytes, append)?;
            return Ok(None);
        }
        if content == PackContent::Metadata {
            let mut metadata = lock(&self.metadata);
            let pack = self.append_streamed(metadata.take(), content, append)?;
            return Ok(self.keep_or_return(pack, |pack| *metadata = Some(pack)));
        }
        // The one that most recently took a chunk: with one busy thread there is one open pack.
        let open = lock(&self.streamed).pop();
        let pack = self.append_streamed(open, content, append)?;
        Ok(self.keep_or_return(pack, |pack| lock(&self.streamed).push(pack)))
    }

    fn append_streamed(
        &self,
        open: Option<OpenPack>,
        content: PackContent,
        append: impl FnOnce(&mut OpenPack) -> Result<()>,
    ) -> Result<OpenPack> {
        let mut pack = match open {
            Some(pack) => pack,
            None => OpenPack::stream(&self.repository, content)?,
        };
        append(&mut pack)?;
        Ok(pack)
    }

    fn keep_or_return(&self, pack: OpenPack, keep: impl FnOnce(OpenPack)) -> Option<OpenPack> {
        if pack.bytes() >= self.plan.pack_bytes() {
            return Some(pack);
        }
        keep(pack);
        None
    }

    /// All who have a chunk wait while a full pack cannot leave.
    fn append_gathered(
        &self,
        uploads: &Uploads,
        content: PackContent,
        payload_bytes: usize,
        append: impl FnOnce(&mut OpenPack) -> Result<()>,
    ) -> Result<()> {
        let open = match content {
            PackContent::Data => &self.gathered,
            PackContent::Metadata => &self.metadata,
        };
        let mut open = lock(open);
        // A pack in which something failed is not put back.
        let mut pack = match open.take() {
            Some(pack) if pack.has_room(payload_bytes, self.full_bytes(content)) => pack,
            full => {
                full.map_or(Ok(()), |full| self.leaves(uploads, full, content))?;
                self.begin_gathered(uploads, content)?
            }
        };
        append(&mut pack)?;
        // What comes next may be long in coming.
        match pack.has_room(0, self.full_bytes(content)) {
            true => *open = Some(pack),
            false => self.leaves(uploads, pack, content)?,
        }
        Ok(())
    }

    fn begin_gathered(&self, uploads: &Uploads, content: PackContent) -> Result<OpenPack> {
        let (pack_bytes, buffer) = match content {
            PackContent::Data => (self.plan.pack_bytes(), uploads.buffer()),
            // A buffer of data would stay as large.
            PackContent::Metadata => (self.plan.metadata_pack_bytes(), Vec::new()),
        };
        OpenPack::gather(&self.repository, content, pack_bytes, buffer)
    }

    /// A pack that is gathered leaves at this size.
    fn full_bytes(&self, content: PackContent) -> u64 {
        match content {
            PackContent::Data => {
                let before = self.gathered_before.load(Ordering::Relaxed);
                growing_bytes(self.plan.pack_bytes(), before)
            }
            PackContent::Metadata => self.plan.metadata_pack_bytes(),
        }
    }

    fn leaves(&self, uploads: &Uploads, pack: OpenPack, content: PackContent) -> Result<()> {
        if content == PackContent::Data {
            self.gathered_before.fetch_add(1, Ordering::Relaxed);
        }
        hand_over(uploads, pack)
    }

    /// Every open pack leaves. Those that are uploaded are durable on return, or have failed;
    /// others are handed to `publish`.
    pub(super) fn close_all(&self, publish: impl Fn(OpenPack) -> Result<()>) -> Result<()> {
        loop {
            let open = lock(&self.streamed).pop();
            match open {
                Some(pack) => publish(pack)?,
                None => break,
            }
        }
        for open in [&self.gathered, &self.metadata] {
            let open = lock(open).take();
            match (open, &self.uploads) {
                (None, _) => {}
                (Some(pack), None) => publish(pack)?,
                (Some(pack), Some(uploads)) => hand_over(uploads, pack)?,
            }
        }
        if let Some(uploads) = &self.uploads {
            uploads.wait_for_all();
        }
        Ok(())
    }

    /// Publishes what was streamed.
    pub(super) fn publish(&self, pack: OpenPack) -> Result<Published> {
        let store = self.repository.store();
        let (published, _buffer) = pack.publish(&**store, &mut |_| {})?;
        Ok(published)
    }
}

/// What a pack of data is full with that has so many before it.
fn growing_bytes(pack_bytes: u64, before: u32) -> u64 {
    let grown = 1u64.checked_shl(before);
    let grown = grown.map_or(u64::MAX, |times| FIRST_PACK_BYTES.saturating_mul(times));
    grown.min(pack_bytes)
}

fn hand_over(uploads: &Uploads, pack: OpenPack) -> Result<()> {
    match uploads.hand_over(pack) {
        true => Ok(()),
        false => Err(Error::Other("storing chunks failed earlier".to_owned())),
    }
}

/// Whoever panicked while he held it has taken the pack out, and the run fails.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_packs_are_small_and_none_is_larger_than_asked_for() {
        let sizes = |pack_bytes: u64| [0, 1, 2, 3, 64].map(|n| growing_bytes(pack_bytes, n) >> 20);
        assert_eq!(sizes(32 << 20), [4, 8, 16, 32, 32]);
        assert_eq!(sizes(1 << 20), [1; 5]);
    }
}
