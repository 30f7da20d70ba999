//! Trying again: requests that failed for a reason that passes are repeated, with pauses that grow
//! and are drawn by lot, until a time is over. The same object is sent again whole, never a rest of
//! it; one whose bytes nobody holds is sent once.

mod holding;
mod streaming;

use crate::waiting::Waiting;
use bale_format::ObjectId;
use bale_repository::limits::UPLOADS_MAX;
use bale_repository::store::{
    Area, ColdClasses, ForeignEntry, ObjectInfo, ObjectLocks, ObjectName, ObjectWriter,
    PackContent, Result, Store, StoreError, StoreShape, WholeWriter,
};
use bytes::Bytes;
use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Names of a listing that are remembered in case it is made again: 4 MiB with their table. After
/// more of them a listing that fails has failed.
const LISTED_NAMES_MAX: usize = 128 << 10;

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// Pause before the second try.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// From the first failure of a request; then its error is final.
    pub give_up_after: Duration,
}

impl Default for RetryRules {
    fn default() -> Self {
        RetryRules {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
            give_up_after: Duration::from_secs(15 * 60),
        }
    }
}

impl RetryRules {
    /// Every request is made once.
    pub const ONCE: RetryRules = RetryRules {
        first: Duration::ZERO,
        longest: Duration::ZERO,
        give_up_after: Duration::ZERO,
    };

    /// Pause after so many tries: it doubles, and between half of it and all is drawn by `lot`
    /// (0 to `u64::MAX`), so that clients who failed together do not come back together.
    fn pause(&self, tries: u32, lot: u64) -> Duration {
        let doubled = 1u32
            .checked_shl(tries.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        let part = lot as f64 / u64::MAX as f64;
        whole / 2 + (whole / 2).mul_f64(part)
    }
}

/// A store whose requests are made again. A handle; clones share the count.
#[derive(Clone)]
pub struct Retried {
    store: Arc<dyn Store>,
    rules: RetryRules,
    waiting: Arc<dyn Waiting>,
    repeated: Arc<AtomicU64>,
    /// A request was given up, and none was answered since: no other waits any more.
    has_given_up: Arc<AtomicBool>,
}

impl Retried {
    /// Around `store`.
    pub fn new(store: Arc<dyn Store>, rules: RetryRules, waiting: Arc<dyn Waiting>) -> Self {
        Retried {
            store,
            rules,
            waiting,
            repeated: Arc::default(),
            has_given_up: Arc::default(),
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
        self.until_answered_reporting(request, &mut |_| {})
    }

    /// The same; `again` learns of each try that is followed by another.
    fn until_answered_reporting<T>(
        &self,
        mut request: impl FnMut() -> Result<T>,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<T> {
        let mut since = None;
        let mut tries = 0;
        loop {
            let error = match request() {
                Err(error) if error.may_pass() => error,
                answered => {
                    self.has_given_up.store(false, Ordering::Relaxed);
                    return answered;
                }
            };
            tries += 1;
            let now = self.waiting.now();
            let waited = now.saturating_sub(*since.get_or_insert(now));
            let left = self.rules.give_up_after.saturating_sub(waited);
            let pause = self.rules.pause(tries, self.waiting.lot()).min(left);
            if left.is_zero() || self.rules == RetryRules::ONCE {
                self.has_given_up.store(true, Ordering::Relaxed);
            }
            if self.has_given_up.load(Ordering::Relaxed) {
                return Err(given_up(error, tries, waited));
            }
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
    /// Nobody is told of anything twice: what was found before a listing failed is remembered, as
    /// long as it is not too much. Stores that list page by page repeat a page themselves.
    fn list_once<T>(
        &self,
        list: impl Fn(&mut dyn FnMut(T)) -> Result<()>,
        path: impl Fn(&T) -> String,
        found: &mut dyn FnMut(T),
    ) -> Result<()> {
        let mut told = HashSet::new();
        let mut is_too_much = false;
        let mut last = None;
        let answered = self.until_answered(|| {
            let listed = list(&mut |one| {
                is_too_much |= told.len() >= LISTED_NAMES_MAX;
                if is_too_much || told.insert(digest(&path(&one))) {
                    found(one);
                }
            });
            match listed {
                Err(error) if is_too_much => {
                    last = Some(error);
                    Ok(())
                }
                listed => listed,
            }
        });
        match last {
            Some(error) => Err(error),
            None => answered,
        }
    }

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
fn digest(path: &str) -> [u8; 16] {
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

    fn shape(&self) -> StoreShape {
        let uploads_max = UPLOADS_MAX;
        StoreShape::Whole { uploads_max }
    }

    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        let request = || self.store.upload(name, pack, content, &mut |_| {});
        self.until_answered_reporting(request, again)
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
        self.until_answered(|| {
            let bytes = self.store.get(name, len_max)?;
            self.refuse_other_length(name, &bytes)?;
            Ok(bytes)
        })
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.until_answered(|| self.store.read_at(name, offset, buf))
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.until_answered(|| self.store.stat(name))
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
mod tests {
    use super::*;
    use bale_repository::store::{MemoryStore, conformance};
    use std::sync::Mutex;

    /// Time passes by waiting only.
    #[derive(Default)]
    struct Told {
        now: Mutex<Duration>,
        pauses: Mutex<Vec<Duration>>,
        ends_after: Option<usize>,
    }

    impl Waiting for Told {
        fn now(&self) -> Duration {
            *self.now.lock().unwrap()
        }
        fn wait(&self, pause: Duration) -> bool {
            *self.now.lock().unwrap() += pause;
            let mut pauses = self.pauses.lock().unwrap();
            pauses.push(pause);
            self.ends_after.is_none_or(|most| pauses.len() < most)
        }
        fn lot(&self) -> u64 {
            u64::MAX
        }
        fn again(&self, _: &StoreError, _: Duration) {}
    }

    /// Fails so many requests with a kind of error, then works.
    struct Failing {
        store: MemoryStore,
        left: Arc<AtomicU64>,
        kind: io::ErrorKind,
        /// Objects that a listing tells before it fails.
        told_first: u64,
    }

    impl Failing {
        fn fail(&self) -> Result<()> {
            let one_less = |left: u64| left.checked_sub(1);
            let failing = self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
            match failing {
                Ok(_) => Err(StoreError {
                    action: "read",
                    object: "x".to_owned(),
                    source: self.kind.into(),
                }),
                Err(_) => Ok(()),
            }
        }
    }

    impl Store for Failing {
        fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
            self.fail()?;
            self.store.put(name, bytes)
        }
        fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
            unreachable!("packs are whole before they leave")
        }
        fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
            self.fail()?;
            self.store.get(name, len_max)
        }
        fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.fail()?;
            self.store.read_at(name, offset, buf)
        }
        fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
            self.fail()?;
            self.store.stat(name)
        }
        fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
            let mut left = self.told_first;
            self.store.list(area, &mut |info| {
                if left > 0 {
                    left -= 1;
                    found(info);
                }
            })?;
            self.fail()?;
            self.store.list(area, found)
        }
        fn delete(&self, name: &ObjectName) -> Result<()> {
            self.fail()?;
            self.store.delete(name)
        }
        fn place(&self) -> String {
            self.store.place()
        }
    }

    struct Case {
        store: Retried,
        /// Below the failures.
        memory: MemoryStore,
        left: Arc<AtomicU64>,
    }

    impl Case {
        fn fail_again(&self, times: u64) {
            self.left.store(times, Ordering::SeqCst);
        }
    }

    fn failing(times: u64, kind: io::ErrorKind, told_first: u64) -> (Case, Arc<Told>) {
        failing_and_told(times, kind, told_first, Told::default())
    }

    fn failing_and_told(
        times: u64,
        kind: io::ErrorKind,
        told_first: u64,
        told: Told,
    ) -> (Case, Arc<Told>) {
        let memory = MemoryStore::new();
        let left = Arc::new(AtomicU64::new(times));
        let store = Failing {
            store: memory.clone(),
            left: left.clone(),
            kind,
            told_first,
        };
        let told = Arc::new(told);
        let store = Retried::new(Arc::new(store), RetryRules::default(), told.clone());
        let case = Case {
            store,
            memory,
            left,
        };
        (case, told)
    }

    fn name() -> ObjectName {
        ObjectName::index(bale_format::ObjectId([7; 32]))
    }

    #[test]
    fn it_is_a_store_like_any_other() {
        conformance::run_slow(|| {
            let told = Arc::new(Told::default());
            let store = Arc::new(MemoryStore::new());
            Box::new(Retried::new(store, RetryRules::default(), told))
        });
    }

    #[test]
    fn what_passes_is_tried_again_after_pauses_that_double_up_to_a_minute() {
        let (case, told) = failing(9, io::ErrorKind::ConnectionReset, 0);
        case.store.put(&name(), b"x").expect("the tenth try");
        let pauses = told.pauses.lock().unwrap();
        let seconds: Vec<_> = pauses.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(case.store.repeated(), 9);
    }

    #[test]
    fn after_a_quarter_of_an_hour_the_error_is_final_and_says_so() {
        let (case, told) = failing(u64::MAX, io::ErrorKind::TimedOut, 0);
        let error = case.store.get(&name(), 9).expect_err("it never works");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("given up after"), "{error}");
        let waited = told.now();
        assert!(waited <= Duration::from_secs(15 * 60), "{waited:?}");
        assert!(waited > Duration::from_secs(13 * 60), "{waited:?}");
    }

    #[test]
    fn once_given_up_requests_are_made_once_until_one_is_answered() {
        let (case, told) = failing(20, io::ErrorKind::TimedOut, 0);
        let rules = RetryRules {
            give_up_after: Duration::from_secs(5),
            ..RetryRules::default()
        };
        let store = Retried {
            rules,
            ..case.store.clone()
        };
        store.get(&name(), 9).expect_err("it does not work yet");
        let pauses = || told.pauses.lock().unwrap().len();
        let before = pauses();
        assert!(before > 0);
        for _ in before + 1..20 {
            store.put(&name(), b"x").expect_err("nor now");
        }
        assert_eq!(pauses(), before, "nobody waits any more");
        store.put(&name(), b"x").expect("it answers again");
        case.fail_again(1);
        store.put(&name(), b"x").expect("and is worth waiting for");
        assert_eq!(pauses(), before + 1);
    }

    #[test]
    fn an_upload_says_each_try_that_another_follows() {
        let (case, _) = failing(3, io::ErrorKind::ResourceBusy, 0);
        let mut busy = 0;
        let again = &mut |error: &StoreError| busy += u32::from(error.is_busy());
        let pack = Bytes::from_static(b"x");
        let uploaded = case.store.upload(&name(), &pack, PackContent::Data, again);
        uploaded.expect("the fourth try");
        assert_eq!(busy, 3);
    }

    #[test]
    fn what_stays_is_not_tried_again() {
        for kind in [
            io::ErrorKind::NotFound,
            io::ErrorKind::PermissionDenied,
            io::ErrorKind::StorageFull,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::InvalidData,
        ] {
            let (case, told) = failing(1, kind, 0);
            assert_eq!(case.store.stat(&name()).expect_err("once").kind(), kind);
            assert!(told.pauses.lock().unwrap().is_empty());
        }
    }

    #[test]
    fn a_run_that_is_to_end_waits_no_longer() {
        let told = Told {
            ends_after: Some(2),
            ..Told::default()
        };
        let (case, told) = failing_and_told(u64::MAX, io::ErrorKind::TimedOut, 0, told);
        case.store.delete(&name()).expect_err("it is to end");
        assert_eq!(told.pauses.lock().unwrap().len(), 2);
    }

    #[test]
    fn nobody_is_told_of_an_object_twice() {
        for told_first in [0, 1] {
            let (case, _) = failing(1, io::ErrorKind::TimedOut, told_first);
            case.memory.put(&name(), b"x").expect("put");
            let mut found = 0;
            let listed = case.store.list(Area::Index, &mut |_| found += 1);
            listed.expect("the second try");
            assert_eq!(found, 1);
        }
    }

    #[test]
    fn pauses_are_drawn_between_half_and_whole() {
        let rules = RetryRules::default();
        assert_eq!(rules.pause(1, 0), Duration::from_millis(500));
        assert_eq!(rules.pause(1, u64::MAX), Duration::from_secs(1));
        assert_eq!(rules.pause(200, u64::MAX), Duration::from_secs(60));
    }
}
