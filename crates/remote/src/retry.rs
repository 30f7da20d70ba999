//! Trying again: requests that failed for a reason that passes are repeated, with pauses that grow
//! and are drawn by lot, until a time is over. The same object is sent again whole, never a rest of
//! it.

use crate::whole::WholeWriter;
use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, Result, Store, StoreError,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
        let doubled = 1u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        let part = lot as f64 / u64::MAX as f64;
        whole / 2 + (whole / 2).mul_f64(part)
    }
}

/// What waiting needs from outside.
pub trait Waiting: Send + Sync {
    /// Time since some moment; never goes back.
    fn now(&self) -> Duration;

    /// Waits; false if the run is to end now.
    fn wait(&self, pause: Duration) -> bool;

    /// Any number.
    fn lot(&self) -> u64;

    /// Is told of a request that failed and is made again after a pause.
    fn again(&self, error: &StoreError, pause: Duration);
}

/// A store whose requests are made again. A handle; clones share the count.
#[derive(Clone)]
pub struct Retried {
    store: Arc<dyn Store>,
    rules: RetryRules,
    waiting: Arc<dyn Waiting>,
    repeated: Arc<AtomicU64>,
}

impl Retried {
    /// Around `store`.
    pub fn new(store: Arc<dyn Store>, rules: RetryRules, waiting: Arc<dyn Waiting>) -> Self {
        Retried {
            store,
            rules,
            waiting,
            repeated: Arc::default(),
        }
    }

    /// Requests that were made again so far.
    pub fn repeated(&self) -> u64 {
        self.repeated.load(Ordering::Relaxed)
    }

    /// Makes a request until it is answered, refused for a reason that stays, or the time is over.
    fn until_answered<T>(&self, mut request: impl FnMut() -> Result<T>) -> Result<T> {
        let mut since = None;
        let mut tries = 0;
        loop {
            let error = match request() {
                Err(error) if passes(error.kind()) => error,
                answered => return answered,
            };
            tries += 1;
            let now = self.waiting.now();
            let waited = now.saturating_sub(*since.get_or_insert(now));
            let pause = self.rules.pause(tries, self.waiting.lot());
            if waited + pause > self.rules.give_up_after || self.rules == RetryRules::ONCE {
                return Err(given_up(error, tries, waited));
            }
            self.waiting.again(&error, pause);
            self.repeated.fetch_add(1, Ordering::Relaxed);
            if !self.waiting.wait(pause) {
                return Err(given_up(error, tries, waited));
            }
        }
    }
}

/// Reasons that may be gone with the next try. What the server refused, what is not there, and what
/// came in another form than it should have stays as it is.
fn passes(kind: io::ErrorKind) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        kind,
        Kind::TimedOut
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::ConnectionRefused
            | Kind::NotConnected
            | Kind::BrokenPipe
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::ResourceBusy
            | Kind::Interrupted
            | Kind::WouldBlock
    )
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
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.until_answered(|| self.store.put(name, bytes))
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.until_answered(|| self.store.get(name, len_max))
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.until_answered(|| self.store.read_at(name, offset, buf))
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.until_answered(|| self.store.stat(name))
    }

    /// Is made again only while nothing was found: nobody is told of an object twice. Stores that
    /// list page by page repeat a page themselves.
    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        let mut last = None;
        let answered = self.until_answered(|| {
            let mut any = false;
            let listed = self.store.list(area, &mut |info| {
                any = true;
                found(info);
            });
            match listed {
                Err(error) if any => {
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

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.until_answered(|| self.store.delete(name))
    }

    fn place(&self) -> String {
        self.store.place()
    }
}

/// Waits by the machine's clock and looks ten times a second whether the run is to end.
pub struct RealWaiting {
    start: Instant,
    is_over: Box<dyn Fn() -> bool + Send + Sync>,
    report: Box<dyn Fn(&StoreError, Duration) + Send + Sync>,
    drawn: AtomicU64,
}

impl RealWaiting {
    /// `is_over` says whether the run is to end; `report` is told of what is made again.
    pub fn new(
        is_over: impl Fn() -> bool + Send + Sync + 'static,
        report: impl Fn(&StoreError, Duration) + Send + Sync + 'static,
    ) -> Self {
        RealWaiting {
            start: Instant::now(),
            is_over: Box::new(is_over),
            report: Box::new(report),
            drawn: AtomicU64::new(u64::from(std::process::id())),
        }
    }
}

/// Between two looks whether the run is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Waiting for RealWaiting {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&self, pause: Duration) -> bool {
        let end = self.now() + pause;
        loop {
            if (self.is_over)() {
                return false;
            }
            match end.saturating_sub(self.now()) {
                Duration::ZERO => return true,
                rest => std::thread::sleep(rest.min(LOOK_EVERY)),
            }
        }
    }

    /// SplitMix64, from the process's number and the time of each draw: only processes and threads
    /// are to differ, nobody needs to be surprised.
    fn lot(&self) -> u64 {
        let nanos = self.start.elapsed().as_nanos() as u64;
        let drawn = self.drawn.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed) ^ nanos;
        let mixed = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn again(&self, error: &StoreError, pause: Duration) {
        (self.report)(error, pause);
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
        left: AtomicU64,
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
        let store = Failing {
            store: memory.clone(),
            left: AtomicU64::new(times),
            kind,
            told_first,
        };
        let told = Arc::new(told);
        let store = Retried::new(Arc::new(store), RetryRules::default(), told.clone());
        (Case { store, memory }, told)
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
            assert_eq!(listed.is_err(), told_first == 1, "made again only if nothing was told");
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
