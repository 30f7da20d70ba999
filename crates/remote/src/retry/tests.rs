//! Requests that fail so often, by a clock that only waiting moves.

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
    /// Objects whose bytes are cut whenever they are read.
    cut: Vec<ObjectName>,
}

impl Failing {
    fn read(&self, name: &ObjectName) -> Result<()> {
        match self.cut.contains(name) {
            true => Err(StoreError {
                action: "read",
                object: name.to_string(),
                source: io::ErrorKind::ConnectionAborted.into(),
            }),
            false => self.fail(),
        }
    }

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
        self.read(name)?;
        self.store.get(name, len_max)
    }
    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(name)?;
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
        cut: Vec::new(),
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

/// A store that answers everything, and cuts these objects for ever.
fn cutting(cut: &[ObjectName]) -> (Retried, Arc<Told>) {
    let store = Failing {
        store: MemoryStore::new(),
        left: Arc::default(),
        kind: io::ErrorKind::TimedOut,
        told_first: 0,
        cut: cut.to_vec(),
    };
    let told = Arc::new(Told::default());
    let store = Retried::new(Arc::new(store), RetryRules::default(), told.clone());
    (store, told)
}

fn numbered(number: u8) -> ObjectName {
    ObjectName::pack(bale_format::ObjectId([number; 32]))
}

#[test]
fn an_object_that_was_given_up_is_read_once_more_each_time_whatever_else_is_answered() {
    let (store, told) = cutting(&[numbered(1)]);
    store
        .read_at(&numbered(1), 0, &mut [0; 4])
        .expect_err("it is cut for ever");
    let waited = told.now();
    assert!(waited > Duration::from_secs(13 * 60), "{waited:?}");
    for _ in 0..100 {
        store.stat(&numbered(2)).expect("it answers");
        store.stat(&numbered(1)).expect("of this one, too");
        store
            .read_at(&numbered(1), 0, &mut [0; 4])
            .expect_err("it is still cut");
        store.get(&numbered(1), 9).expect_err("by whatever request");
    }
    assert_eq!(told.now(), waited, "nobody waits for it any more");
}

#[test]
fn many_objects_that_are_cut_for_ever_cost_twice_the_time_to_give_up_one() {
    let cut: Vec<ObjectName> = (1..=200).map(numbered).collect();
    let (store, told) = cutting(&cut);
    for name in cut.iter().cycle().take(1000) {
        store.get(name, 9).expect_err("it is cut");
        store.stat(&numbered(0)).expect("the others are there");
    }
    let waited = told.now();
    assert!(waited <= Duration::from_secs(30 * 60), "{waited:?}");
}

#[test]
fn an_object_that_is_answered_again_is_worth_waiting_for_again() {
    let (case, told) = failing(u64::MAX, io::ErrorKind::TimedOut, 0);
    case.memory.put(&name(), b"x").expect("put");
    case.store
        .get(&name(), 9)
        .expect_err("it does not work yet");
    case.fail_again(0);
    case.store.get(&name(), 9).expect("it works again");
    case.fail_again(1);
    let before = told.now();
    case.store.get(&name(), 9).expect("the second try");
    assert!(told.now() > before);
}
