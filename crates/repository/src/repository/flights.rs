//! Chunks on their way from a store that is far away: several reads at once, neighbours in one,
//! while what came before is made into files.
//!
//! Whoever works on chunks says in the order of their places which he expects to read. Nothing is
//! requested before one of them is read: a restore that finds its files in place fetches nothing.
//! From there on what is expected next is fetched, as long as the bytes on their way and those that
//! wait stay below their bound. Here are sealed records only, and each is handed out once; what
//! does not come is read by whoever wants it, who tries other copies and says what is wrong.
//!
//! What is between neighbours counts while they fly, and so does the copy that is made of a part
//! of what has come: all of it stays below the bound.

use super::Repository;
use super::fetched::{GAP_BYTES_MAX, RANGE_BYTES_MAX};
use crate::limits::{FLIGHT_RANGE_BYTES, FLIGHT_THREADS, FLIGHT_THREADS_LEAST};
use crate::store::{Next, ObjectName};
use bale_format::pack::PackEntry;
use bale_format::{ChunkId, ChunkKind, ChunkPlace, ObjectId};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Expected chunks that are remembered; the oldest are forgotten.
const EXPECTED_MAX: usize = 512;
/// Chunks that are fetched before one behind them was read.
const AHEAD_MAX: u64 = 64;
/// Packs behind a flight that the store is told of.
const PACKS_AHEAD_MAX: usize = 4;
/// What lies so far behind the last one that was read is not wanted any more: its files were in
/// place.
const BEHIND_MAX: u64 = 64;

/// Fetches what is expected. Dropping it ends its threads.
pub struct ChunkFlights {
    shared: Arc<FlightsShared>,
    threads: Vec<JoinHandle<()>>,
}

struct FlightsShared {
    repository: Arc<Repository>,
    /// Of what is on its way and here.
    bytes_max: u64,
    /// Of one read.
    range_bytes_max: u64,
    state: Mutex<Expectations>,
    changed: Condvar,
}

#[derive(Default)]
struct Expectations {
    /// In the order in which they were expected.
    expected: VecDeque<ExpectedChunk>,
    next: u64,
    /// The last one that was read or waited for.
    reached: Option<u64>,
    /// Bytes on their way, with those between neighbours, and here.
    bytes: u64,
    is_over: bool,
}

struct ExpectedChunk {
    number: u64,
    pack: ObjectId,
    chunk: PackEntry,
    progress: FlightProgress,
    /// Somebody waits for it.
    is_wanted: bool,
}

enum FlightProgress {
    Expected,
    Flying,
    Here(Bytes),
}

/// Records of one pack that fly together.
struct Flight {
    pack: ObjectId,
    start: u64,
    end: u64,
    records: Vec<(u64, PackEntry)>,
}

impl Flight {
    /// Bytes that come with the records and are none of theirs.
    fn gaps(&self) -> u64 {
        let records = self.records.iter().map(|(_, chunk)| len_of(chunk));
        self.end - self.start - records.sum::<u64>()
    }
}

fn len_of(chunk: &PackEntry) -> u64 {
    let range = chunk.range();
    range.end - range.start
}

impl ChunkFlights {
    /// For a repository that is far away; `None`: it is near, or the system has no threads.
    /// What is on its way and here stays below so many bytes.
    pub fn start(repository: &Arc<Repository>, bytes: usize) -> Option<ChunkFlights> {
        if !repository.store.is_remote() {
            return None;
        }
        let threads = bytes / FLIGHT_RANGE_BYTES;
        let threads = threads.clamp(FLIGHT_THREADS_LEAST, FLIGHT_THREADS);
        // Of one read at a time, parts are copied.
        let range_bytes_max = RANGE_BYTES_MAX.min(bytes as u64 / (threads as u64 + 1));
        let shared = Arc::new(FlightsShared {
            repository: repository.clone(),
            bytes_max: bytes as u64 - range_bytes_max,
            range_bytes_max,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let spawn = |number| {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name(format!("fetch-{number}"));
            thread.spawn(move || shared.fetch_until_the_end()).ok()
        };
        let threads: Vec<_> = (0..threads).map_while(spawn).collect();
        (!threads.is_empty()).then_some(ChunkFlights { shared, threads })
    }

    /// These chunks will be read soon, perhaps; called in the order of places.
    pub fn expect(&self, ids: &[ChunkId]) {
        let Ok(index) = self.shared.repository.index() else {
            return;
        };
        let repository = &self.shared.repository;
        let is_far = |place: &ChunkPlace| !repository.is_cached(&place.chunk.id, place.chunk.kind);
        let places = ids.iter().filter_map(|id| index.any(id));
        let places: Vec<_> = places.filter(is_far).collect();
        let mut state = self.shared.lock();
        for place in places {
            state.expect(index.pack(place.pack).id, place.chunk);
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// The content of an expected chunk, when it has come; `None`: it was not expected, did not
    /// come, or does not open.
    pub fn read(&self, id: &ChunkId, kind: ChunkKind) -> Option<Bytes> {
        let repository = &self.shared.repository;
        let index = repository.index().ok()?;
        let place = index.any(id)?;
        if place.chunk.kind != kind || place.chunk.id != *id {
            return None;
        }
        let pack = index.pack(place.pack).id;
        let record = self.shared.wait_for(&pack, &place.chunk)?;
        let key = repository.pack_key(pack).ok()?;
        let plain = repository.open_record(&key, &place.chunk, &record).ok()?;
        repository.cache_record(&pack, &place.chunk, &record);
        Some(plain)
    }
}

impl Drop for ChunkFlights {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // What it panicked of is read by whoever needs it.
            let _ = thread.join();
        }
    }
}

impl FlightsShared {
    fn lock(&self) -> MutexGuard<'_, Expectations> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(&self, state: MutexGuard<'s, Expectations>) -> MutexGuard<'s, Expectations> {
        let state = self.changed.wait(state);
        state.unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(&self, pack: &ObjectId, chunk: &PackEntry) -> Option<Bytes> {
        let mut state = self.lock();
        loop {
            let is_it = |other: &ExpectedChunk| other.is_at(pack, chunk);
            let at = state.expected.iter().position(is_it)?;
            let reached = state.reached.max(Some(state.expected[at].number));
            let is_further = std::mem::replace(&mut state.reached, reached) != reached;
            let found = &mut state.expected[at];
            let is_long = len_of(chunk) > self.range_bytes_max;
            match &found.progress {
                FlightProgress::Here(_) => {
                    let record = state.take(at);
                    state.forget_behind();
                    drop(state);
                    self.changed.notify_all();
                    return record;
                }
                FlightProgress::Expected if is_long => {
                    state.take(at);
                    return None;
                }
                FlightProgress::Expected | FlightProgress::Flying => {}
            }
            let is_news = !std::mem::replace(&mut found.is_wanted, true) || is_further;
            if state.is_over {
                return None;
            }
            // Two that wait would wake each other for ever otherwise.
            if is_news {
                self.changed.notify_all();
            }
            state = self.wait(state);
        }
    }

    fn fetch_until_the_end(&self) {
        // Nobody waits for a thread that is gone.
        let _end = OnPanic(|| {
            self.lock().is_over = true;
            self.changed.notify_all();
        });
        let mut state = self.lock();
        while !state.is_over {
            let Some(flight) = state.begin_flight(self.bytes_max, self.range_bytes_max) else {
                state = self.wait(state);
                continue;
            };
            let next = state.next_packs(&flight);
            drop(state);
            for pack in next {
                let name = ObjectName::pack(pack);
                self.repository.store.expect(Next::Read(&name));
            }
            let landing = Landing {
                shared: self,
                flight: &flight,
                bytes: None,
            };
            self.fly(landing);
            state = self.lock();
        }
    }

    fn fly(&self, mut landing: Landing<'_>) {
        let flight = landing.flight;
        let mut bytes = vec![0; (flight.end - flight.start) as usize];
        let name = ObjectName::pack(flight.pack);
        let repository = &self.repository;
        let mut read = || repository.store.read_at(&name, flight.start, &mut bytes);
        let read = match repository.knows_pack_key(&flight.pack) {
            true => read(),
            false => {
                repository
                    .at_once(|| repository.pack_key(flight.pack), read)
                    .1
            }
        };
        landing.bytes = read.is_ok().then(|| Bytes::from(bytes));
    }
}

/// Does something when a thread panics.
struct OnPanic<F: Fn()>(F);

impl<F: Fn()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            (self.0)();
        }
    }
}

/// Ends a flight, also when reading panics: nobody waits for ever.
struct Landing<'f> {
    shared: &'f FlightsShared,
    flight: &'f Flight,
    bytes: Option<Bytes>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.bytes -= self.flight.gaps();
        for (number, chunk) in &self.flight.records {
            let is_it = |other: &ExpectedChunk| other.number == *number;
            let Some(at) = state.expected.iter().position(is_it) else {
                continue;
            };
            match &self.bytes {
                Some(bytes) => {
                    let from = (chunk.offset - self.flight.start) as usize;
                    // Copied: a part of a range would hold all of it.
                    let part = &bytes[from..from + len_of(chunk) as usize];
                    state.expected[at].progress =
                        FlightProgress::Here(Bytes::copy_from_slice(part));
                }
                None => {
                    state.take(at);
                }
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl ExpectedChunk {
    fn is_at(&self, pack: &ObjectId, chunk: &PackEntry) -> bool {
        self.chunk.offset == chunk.offset && self.pack == *pack
    }

    fn is_expected(&self) -> bool {
        matches!(self.progress, FlightProgress::Expected)
    }
}

impl Expectations {
    fn expect(&mut self, pack: ObjectId, chunk: PackEntry) {
        let is_here = |other: &ExpectedChunk| other.is_at(&pack, &chunk);
        if self.expected.iter().rev().any(is_here) {
            return;
        }
        let number = self.next;
        self.next += 1;
        self.expected.push_back(ExpectedChunk {
            number,
            pack,
            chunk,
            progress: FlightProgress::Expected,
            is_wanted: false,
        });
        if self.expected.len() > EXPECTED_MAX {
            self.forget_first();
        }
    }

    /// Takes one out of the list; its bytes, if they are here.
    fn take(&mut self, at: usize) -> Option<Bytes> {
        let taken = self.expected.remove(at)?;
        match taken.progress {
            FlightProgress::Expected => None,
            FlightProgress::Flying => {
                self.bytes -= len_of(&taken.chunk);
                None
            }
            FlightProgress::Here(bytes) => {
                self.bytes -= len_of(&taken.chunk);
                Some(bytes)
            }
        }
    }

    /// What nobody waits for and is not on its way.
    fn is_idle(&self, at: usize) -> bool {
        let chunk = &self.expected[at];
        !chunk.is_wanted && !matches!(chunk.progress, FlightProgress::Flying)
    }

    fn forget_first(&mut self) {
        if let Some(at) = (0..self.expected.len()).find(|at| self.is_idle(*at)) {
            self.take(at);
        }
    }

    /// Files that were in place wanted none of their chunks.
    fn forget_behind(&mut self) {
        let Some(reached) = self.reached else { return };
        while (self.expected.front()).is_some_and(|first| first.number + BEHIND_MAX < reached)
            && self.is_idle(0)
        {
            self.take(0);
        }
    }

    /// What is to be fetched next, if there is room for it; it counts as flying then.
    fn begin_flight(&mut self, bytes_max: u64, range_bytes_max: u64) -> Option<Flight> {
        let reached = self.reached?;
        let wanted =
            (self.expected.iter()).position(|chunk| chunk.is_wanted && chunk.is_expected());
        let first = wanted.or_else(|| {
            let is_next = |chunk: &ExpectedChunk| {
                let is_near = chunk.number > reached && chunk.number - reached <= AHEAD_MAX;
                is_near && chunk.is_expected() && len_of(&chunk.chunk) <= range_bytes_max
            };
            self.expected.iter().position(is_next)
        })?;
        let first_len = len_of(&self.expected[first].chunk);
        if wanted.is_some() {
            self.make_room(first_len, bytes_max);
        }
        // Making room may have moved it.
        let first = match wanted {
            Some(_) => {
                (self.expected.iter()).position(|chunk| chunk.is_wanted && chunk.is_expected())?
            }
            None => first,
        };
        let is_room = self.bytes + first_len <= bytes_max || self.bytes == 0;
        is_room.then(|| self.gather(first, bytes_max, range_bytes_max))
    }

    /// The packs behind a flight that come next.
    fn next_packs(&self, flight: &Flight) -> Vec<ObjectId> {
        let mut last = flight.pack;
        let behind = self.expected.iter().map(|chunk| (chunk.number, chunk.pack));
        let behind = behind.skip_while(|(number, _)| *number <= flight.records[0].0);
        let packs = behind.filter_map(|(_, pack)| {
            let is_another = std::mem::replace(&mut last, pack) != pack;
            is_another.then_some(pack)
        });
        packs.take(PACKS_AHEAD_MAX).collect()
    }

    /// What is here and nobody waits for makes place for what somebody waits for: the last expected
    /// first.
    fn make_room(&mut self, bytes: u64, bytes_max: u64) {
        let mut at = self.expected.len();
        while at > 0 && self.bytes + bytes > bytes_max {
            at -= 1;
            let is_here = matches!(self.expected[at].progress, FlightProgress::Here(_));
            if is_here && !self.expected[at].is_wanted {
                self.bytes -= len_of(&self.expected[at].chunk);
                self.expected[at].progress = FlightProgress::Expected;
            }
        }
    }

    /// The neighbours of the first one that are expected, too, fly with it.
    fn gather(&mut self, first: usize, bytes_max: u64, range_bytes_max: u64) -> Flight {
        let range = self.expected[first].chunk.range();
        let mut flight = Flight {
            pack: self.expected[first].pack,
            start: range.start,
            end: range.end,
            records: Vec::new(),
        };
        for chunk in self.expected.iter_mut().skip(first) {
            let range = chunk.chunk.range();
            let is_first = flight.records.is_empty();
            let len = match is_first {
                true => len_of(&chunk.chunk),
                // With what is between.
                false => range.end.saturating_sub(flight.end),
            };
            let is_neighbour = chunk.pack == flight.pack
                && range.start >= flight.end
                && range.start - flight.end <= GAP_BYTES_MAX
                && range.end - flight.start <= range_bytes_max
                && self.bytes + len <= bytes_max;
            if !(is_first || is_neighbour) || !chunk.is_expected() {
                break;
            }
            chunk.progress = FlightProgress::Flying;
            self.bytes += len;
            flight.end = range.end;
            flight.records.push((chunk.number, chunk.chunk));
        }
        flight
    }
}
