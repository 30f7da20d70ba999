//! `RoundsStore`: a store on another machine, as far as its caller can tell, that counts *rounds*
//! instead of time.
//!
//! A request waits until nothing new has arrived for a while and no thread of the process works
//! any more. Then all that wait are answered, as one round: whoever makes the next request only
//! after an answer needs one round more. So a test says how often an operation waits for the way
//! there and back, on any machine: a thread that has work and waits for a processor ends no round.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
};

use crate::recording_store::{Call, Verb};

/// Nothing new for so long, and nobody at work, ends a round.
const QUIET: Duration = Duration::from_millis(50);
/// The threads of the process are looked at so often, with `LOOK_AGAIN` between, before they are
/// taken to be waiting: one may wake another while they are gone through.
const LOOKS: u32 = 3;
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// A thread that works so long without a request belongs to something else.
const WORK_LIMIT: Duration = Duration::from_secs(60);

/// A store that passes everything on, round by round. Clones share the count.
#[derive(Clone)]
pub struct RoundsStore {
    inner: Arc<dyn Store>,
    shared: Arc<RoundsShared>,
    quiet: Duration,
}

#[derive(Default)]
struct RoundsShared {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    rounds: u64,
    /// Somebody watches for the end of this round; the others sleep until it is told.
    is_watched: bool,
    last: Option<Instant>,
    calls: Vec<(u64, Call)>,
}

/// What was requested, and in which round.
#[derive(Clone, Debug, Default)]
pub struct Trips {
    /// Round, from 0 on, and request; those of one round in no order.
    pub calls: Vec<(u64, Call)>,
}

impl Trips {
    /// How often somebody waited for answers.
    pub fn rounds(&self) -> u64 {
        self.calls.last().map_or(0, |(round, _)| round + 1)
    }

    /// Requests of one verb in one area.
    pub fn count_in(&self, verb: Verb, area: Area) -> usize {
        let calls = self.calls.iter();
        calls
            .filter(|(_, call)| call.verb == verb && call.area == area)
            .count()
    }

    /// Bytes that were read.
    pub fn bytes_read(&self) -> u64 {
        let reads = self.calls.iter().map(|(_, call)| call);
        let reads = reads.filter(|call| matches!(call.verb, Verb::Get | Verb::ReadAt));
        reads.map(|call| call.bytes).sum()
    }

    /// A line for each round.
    pub fn story(&self) -> String {
        let mut lines = String::new();
        for round in 0..self.rounds() {
            let calls = self.calls.iter().filter(|(other, _)| *other == round);
            let words: Vec<String> = calls
                .map(|(_, call)| format!("{:?} {}", call.verb, call.area.text()))
                .collect();
            lines.push_str(&format!("{}: {}\n", round + 1, words.join(", ")));
        }
        lines
    }
}

impl RoundsStore {
    /// Counts the rounds of a store.
    pub fn over(inner: impl Store + 'static) -> RoundsStore {
        RoundsStore {
            inner: Arc::new(inner),
            shared: Arc::default(),
            quiet: QUIET,
        }
    }

    /// The same for tests that count no rounds: nothing waits, and each request is a round.
    pub fn at_once(inner: impl Store + 'static) -> RoundsStore {
        RoundsStore {
            quiet: Duration::ZERO,
            ..RoundsStore::over(inner)
        }
    }

    /// What was requested since the last time.
    pub fn take(&self) -> Trips {
        let mut state = self.lock();
        let calls = std::mem::take(&mut state.calls);
        let first = calls.first().map_or(0, |(round, _)| *round);
        let from_first = calls.into_iter();
        Trips {
            calls: from_first
                .map(|(round, call)| (round - first, call))
                .collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        let state = self.shared.state.lock();
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn gathered(&self, inner: Box<dyn ObjectWriter>) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(RoundsWriter {
            store: self.clone(),
            inner,
            bytes: 0,
        }))
    }

    /// Waits for the end of the round that this request belongs to. The first of a round watches
    /// for it.
    fn travel(&self, call: Call) {
        let mut state = self.lock();
        let round = state.rounds;
        state.calls.push((round, call));
        state.last = Some(Instant::now());
        if !std::mem::replace(&mut state.is_watched, true) {
            drop(state);
            return self.end_round();
        }
        while state.rounds == round {
            let waited = self.shared.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends the round once nothing is to be expected before its answers.
    fn end_round(&self) {
        loop {
            let last = self.lock().last;
            let quiet = last.map_or(self.quiet, |last| last.elapsed());
            if quiet < self.quiet {
                std::thread::sleep(self.quiet - quiet);
                continue;
            }
            let is_over = self.quiet.is_zero() || quiet > WORK_LIMIT || nobody_works();
            let mut state = self.lock();
            if is_over && state.last == last {
                state.rounds += 1;
                state.is_watched = false;
                self.shared.changed.notify_all();
                return;
            }
            drop(state);
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// Whether all other threads of this process wait for something that is not a disk. One that looks
/// works itself, so they look one after the other.
fn nobody_works() -> bool {
    static LOOKING: Mutex<()> = Mutex::new(());
    let _alone = LOOKING.lock().unwrap_or_else(PoisonError::into_inner);
    (0..LOOKS).all(|_| {
        std::thread::sleep(LOOK_AGAIN);
        all_others_wait()
    })
}

/// One look at the state of each thread, the letter behind the name in `/proc/self/task/*/stat`
/// (proc(5)): R has work, whether it has a processor or not, and D waits for a disk.
fn all_others_wait() -> bool {
    let own = std::fs::read_link("/proc/thread-self").expect("/proc");
    let threads = std::fs::read_dir("/proc/self/task").expect("/proc");
    let others = threads.map(|thread| thread.expect("/proc").path());
    let mut others = others.filter(|thread| thread.file_name() != own.file_name());
    others.all(|thread| {
        // A thread may end before it is looked at.
        let stat = std::fs::read_to_string(thread.join("stat")).unwrap_or_default();
        let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        !behind_name.starts_with(['R', 'D'])
    })
}

impl Store for RoundsStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, keeps_the_first, is_tiered, tiers: no test needs them of it.
    // Not handed on: hot_failed, cold_classes, object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.travel(Call::on(Verb::Put, name, bytes.len()));
        self.inner.put(name, bytes)
    }

    /// Packs are gathered here, and travel when they are published.
    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.gathered(self.inner.begin()?)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.gathered(self.inner.begin_pack(content)?)
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let bytes = self.inner.stat(name)?.map_or(0, |info| info.len);
        self.travel(Call::on(Verb::Get, name, bytes as usize));
        self.inner.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.travel(Call::on(Verb::ReadAt, name, buf.len()));
        self.inner.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.travel(Call::on(Verb::Stat, name, 0));
        self.inner.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.travel(Call::within(Verb::List, area, 0));
        self.inner.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.travel(Call::on(Verb::Delete, name, 0));
        self.inner.delete(name)
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn is_remote(&self) -> bool {
        true
    }
}

struct RoundsWriter {
    store: RoundsStore,
    inner: Box<dyn ObjectWriter>,
    bytes: usize,
}

impl ObjectWriter for RoundsWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len();
        self.inner.append(bytes)
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        let Self {
            store,
            inner,
            bytes,
        } = *self;
        store.travel(Call::on(Verb::Publish, name, bytes));
        inner.publish(name)
    }
}
