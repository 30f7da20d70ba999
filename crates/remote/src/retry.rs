//! Trying again: requests that failed for a reason that passes are repeated, with pauses that grow
//! and are drawn by lot, until a time is over. The same object is sent again whole, never a rest of
//! it; one whose bytes nobody holds is sent once.

mod holding;
mod listing;
mod patience;
mod rules;
mod streaming;

pub use rules::RetryRules;

use crate::waiting::Waiting;
use bale_format::ObjectId;
use bale_repository::limits::UPLOADS_MAX;
use bale_repository::store::{
    Area, ColdClasses, ForeignEntry, Next, ObjectInfo, ObjectLocks, ObjectName, ObjectWriter,
    PackContent, Result, Store, StoreError, StoreShape, WholeWriter,
};
use bytes::Bytes;
use patience::{HalfHash, Patience};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A store whose requests are made again. A handle; clones share the count.
#[derive(Clone)]
pub struct Retried {
    store: Arc<dyn Store>,
    rules: RetryRules,
    waiting: Arc<dyn Waiting>,
    repeated: Arc<AtomicU64>,
    patience: Arc<Patience>,
}

impl Retried {
    /// Around `store`.
    pub fn new(store: Arc<dyn Store>, rules: RetryRules, waiting: Arc<dyn Waiting>) -> Self {
        Retried {
            store,
            rules,
            waiting,
            repeated: Arc::default(),
            patience: Arc::default(),
        }
    }

    /// Requests that were made again so far.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Makes a request until it is answered, refused for a reason that stays, or the time is over.
    /// Then the others are given up with their next failure, and those that come are made once,
    /// until the store answers again: a run that ends does not wait once more.
    pub(crate) fn until_answered<T>(&self, request: impl FnMut() -> Result<T>) -> Result<T> {
        self.until_answered_reporting(None, request, &mut |_| {})
    }

    /// The same, of an object's bytes: once they were given up, further requests for them are made
    /// once, whatever else the store answers.
    fn until_read<T>(&self, name: &ObjectName, request: impl FnMut() -> Result<T>) -> Result<T> {
        self.until_answered_reporting(Some(name), request, &mut |_| {})
    }

    /// The same; `again` learns of each try that is followed by another.
    fn until_answered_reporting<T>(
        &self,
        read: Option<&ObjectName>,
        mut request: impl FnMut() -> Result<T>,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<T> {
        let mut first = None;
        let mut tries = 0;
        loop {
            let error = match request() {
                Err(error) if error.may_pass() => error,
                answered => {
                    self.patience.answered(read);
                    return answered;
                }
            };
            tries += 1;
            let now = self.waiting.now();
            let begin = || (now, self.patience.first_failure(read));
            let (since, failing) = *first.get_or_insert_with(begin);
            let waited = now.saturating_sub(since);
            let Some(left) = self.patience.left(&self.rules, failing, waited) else {
                return Err(given_up(error, tries, waited));
            };
            let pause = self.rules.pause(tries, self.waiting.lot()).min(left);
            self.waiting.again(&error, pause);
            again(&error);
            self.repeated.fetch_add(1, Ordering::Relaxed);
            if !self.waiting.wait(pause) {
                return Err(given_up(error, tries, waited));
            }
        }
    }
}

impl Retried {
    /// What has another hash than its name is damaged, which is for the reader to say; unless there
    /// are more bytes or fewer of it than came.
    fn refuse_other_length(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        let is_right = |id: ObjectId| *blake3::hash(bytes).as_bytes() == id.0;
        if name.id().is_none_or(is_right) {
            return Ok(());
        }
        let came = bytes.len() as u64;
        match self.store.stat(name)? {
            Some(there) if there.len != came => Err(StoreError {
                action: "read",
                object: format!("{name} in {}", self.store.place()),
                source: io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    format!("it has {} bytes, and {came} came", there.len),
                ),
            }),
            _ => Ok(()),
        }
    }
}

/// Half of the hash of a name: two of so few names do not meet in it.
fn half_hash(path: &str) -> HalfHash {
    let hash = blake3::hash(path.as_bytes());
    let (half, _) = hash
        .as_bytes()
        .split_first_chunk()
        .expect("it has 32 bytes");
    *half
}

fn given_up(error: StoreError, tries: u32, waited: Duration) -> StoreError {
    if tries < 2 {
        return error;
    }
    let text = format!(
        "{} (given up after {tries} tries in {} s)",
        error.source,
        waited.as_secs()
    );
    StoreError {
        source: io::Error::new(error.source.kind(), text),
        ..error
    }
}

impl Store for Retried {
    // Not handed on: begin_pack: packs come whole, and each of two stores is retried alone.
    // Not handed on: is_tiered, tiers: packs come whole, and each of two stores is retried alone.
    // Not handed on: hot_failed: packs come whole, and each of two stores is retried alone.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.until_answered(|| self.store.put(name, bytes))
    }

    /// What is to be sent again must be whole.
    fn shape(&self) -> StoreShape {
        match self.store.shape() {
            whole @ StoreShape::Whole { .. } => whole,
            StoreShape::Streams => StoreShape::Whole {
                uploads_max: UPLOADS_MAX,
            },
        }
    }

    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        let request = || self.store.upload(name, pack, content, &mut |_| {});
        self.until_answered_reporting(None, request, again)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }

    fn takes_streams(&self) -> bool {
        self.store.takes_streams()
    }

    fn begin_stream(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(self.stream()?))
    }

    /// An answer may be shorter or longer than the object, and say itself that it is whole.
    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.until_read(name, || {
            let bytes = self.store.get(name, len_max)?;
            self.refuse_other_length(name, &bytes)?;
            Ok(bytes)
        })
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.until_read(name, || self.store.read_at(name, offset, buf))
    }

    fn expect(&self, next: Next<'_>) {
        self.store.expect(next);
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.until_answered(|| self.store.stat(name))
    }

    fn are_there(&self, names: &[ObjectName]) -> Option<Result<Vec<bool>>> {
        let can = std::cell::Cell::new(true);
        let there = self.until_answered(|| match self.store.are_there(names) {
            Some(there) => there,
            None => {
                can.set(false);
                Ok(Vec::new())
            }
        });
        can.get().then_some(there)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.list_once(
            |met| self.store.list(area, met),
            |info| info.name.path(),
            found,
        )
    }

    fn list_foreign(&self, area: Area, found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        self.list_once(
            |met| self.store.list_foreign(area, met),
            |entry| entry.path.clone(),
            found,
        )
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.until_answered(|| self.store.delete(name))
    }

    fn place(&self) -> String {
        self.store.place()
    }

    fn is_remote(&self) -> bool {
        self.store.is_remote()
    }

    fn keeps_the_first(&self) -> bool {
        self.store.keeps_the_first()
    }

    fn cold_classes(&self) -> Option<&dyn ColdClasses> {
        self.store.cold_classes().map(|_| self as &dyn ColdClasses)
    }

    fn object_locks(&self) -> Option<&dyn ObjectLocks> {
        self.store.object_locks().map(|_| self as &dyn ObjectLocks)
    }
}

#[cfg(test)]
mod tests;
