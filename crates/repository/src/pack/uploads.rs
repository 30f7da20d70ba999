//! Packs on their way to a store that takes them whole: threads beside those that encode.
//!
//! Whoever fills a pack hands it over and begins the next one; he waits only while as many are on
//! their way as there may be. How many of them are uploaded at a time is found out (`pace`). After
//! a failure nothing more begins: what is being uploaded ends, what waits is dropped, and nobody
//! waits any more.

use super::open_pack::{OpenPack, Published};
use super::pace::Pace;
use crate::error::{Error, Result};
use crate::store::{Store, StoreError};
use bale_format::Transfer;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A pack that reached the store, and how.
pub(super) struct Uploaded {
    pub(super) published: Published,
    /// Since the run began.
    pub(super) transfer: Transfer,
}

/// Packs on their way.
pub(super) struct Uploads {
    state: Mutex<State>,
    changed: Condvar,
    /// Waiting and being uploaded, together.
    on_their_way_max: usize,
    /// A buffer for a pack of data has so many.
    buffer_bytes: usize,
    began: Instant,
    /// Of the run when this was made.
    age: Duration,
}

struct State {
    waiting: VecDeque<OpenPack>,
    in_flight: usize,
    pace: Pace,
    is_over: bool,
    /// Buffers of packs that reached the store.
    spare: Vec<Vec<u8>>,
    waited: Duration,
}

impl Uploads {
    pub(super) fn new(on_their_way_max: usize, buffer_bytes: usize, age: Duration) -> Uploads {
        Uploads {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                in_flight: 0,
                pace: Pace::new(on_their_way_max),
                is_over: false,
                spare: Vec::new(),
                waited: Duration::ZERO,
            }),
            changed: Condvar::new(),
            on_their_way_max,
            buffer_bytes,
            began: Instant::now(),
            age,
        }
    }

    /// Takes a full pack. Waits while as many are on their way as there may be; false if no more
    /// are taken.
    pub(super) fn hand_over(&self, pack: OpenPack) -> bool {
        let may = |state: &State| state.is_over || state.on_their_way() < self.on_their_way_max;
        let mut state = self.wait_until(may);
        if !state.is_over {
            state.waiting.push_back(pack);
            state.spare_fewer(self.on_their_way_max);
        }
        self.changed.notify_all();
        !state.is_over
    }

    /// Waits until nothing is on its way. What is being uploaded ends also when it is over.
    pub(super) fn wait_for_all(&self) {
        drop(self.wait_until(|state| state.on_their_way() == 0));
    }

    /// Begins no more; what waits is dropped.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        state.waiting.clear();
        state.spare.clear();
        self.changed.notify_all();
    }

    /// A buffer that has been used before, or an empty one.
    pub(super) fn buffer(&self) -> Vec<u8> {
        self.lock().spare.pop().unwrap_or_default()
    }

    /// How long those who fill packs waited for the store so far, and whoever wanted all of them to
    /// be there.
    pub(super) fn waited(&self) -> Duration {
        self.lock().waited
    }

    /// Uploads until it is over. `uploaded` is called before the pack counts as done.
    pub(super) fn work(&self, store: &dyn Store, uploaded: &dyn Fn(Result<Uploaded>)) {
        while let Some((pack, wave)) = self.next() {
            let ending = EndOfUpload {
                uploads: self,
                uploaded,
                is_done: false,
            };
            self.upload(pack, wave, store, ending);
        }
    }

    fn upload(&self, pack: OpenPack, wave: u64, store: &dyn Store, mut ending: EndOfUpload<'_>) {
        let (began, mut tries) = (self.began.elapsed(), 1u64);
        let published = pack.publish(store, &mut |error| {
            tries = tries.saturating_add(1);
            self.failed_once(error, wave);
        });
        let now = self.began.elapsed();
        match published {
            Ok((published, buffer)) => {
                let bytes = published.bytes;
                (ending.uploaded)(Ok(Uploaded {
                    published,
                    transfer: Transfer {
                        bytes,
                        start_ms: millis(self.age + began),
                        duration_ms: millis(now.saturating_sub(began)),
                        tries,
                    },
                }));
                let mut state = self.lock();
                let others_wait = !state.waiting.is_empty();
                state.pace.ended(bytes, now, others_wait);
                // A smaller one would become as large.
                if !state.is_over && buffer.capacity() >= self.buffer_bytes {
                    state.spare.push(buffer);
                    // This one is still counted.
                    state.spare_fewer(self.on_their_way_max + 1);
                }
            }
            Err(error) => (ending.uploaded)(Err(error)),
        }
        ending.is_done = true;
    }

    fn failed_once(&self, error: &StoreError, wave: u64) {
        if error.is_busy() {
            self.lock().pace.busy(wave);
        }
    }

    /// The next pack, once it is its turn; `None`: it is over.
    fn next(&self) -> Option<(OpenPack, u64)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            let may_begin = state.in_flight < state.pace.limit();
            if let Some(pack) = may_begin.then(|| state.waiting.pop_front()).flatten() {
                state.in_flight += 1;
                return Some((pack, state.pace.wave()));
            }
            state = self.wait(state);
        }
    }

    /// What is waited for is the store.
    fn wait_until(&self, may: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        let mut began = None;
        while !may(&state) {
            began.get_or_insert_with(Instant::now);
            state = self.wait(state);
        }
        if let Some(began) = began {
            state.waited += began.elapsed();
        }
        state
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn on_their_way(&self) -> usize {
        self.waiting.len() + self.in_flight
    }

    /// So that there are no more buffers than packs may be on their way.
    fn spare_fewer(&mut self, max: usize) {
        let spare_max = max.saturating_sub(self.on_their_way());
        self.spare.truncate(spare_max);
    }
}

/// Counts an upload as ended also when it panics.
struct EndOfUpload<'a> {
    uploads: &'a Uploads,
    uploaded: &'a dyn Fn(Result<Uploaded>),
    is_done: bool,
}

impl Drop for EndOfUpload<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            (self.uploaded)(Err(Error::Other(
                "storing chunks: a thread that uploads panicked, by a defect of Bale".to_owned(),
            )));
        }
        self.uploads.lock().in_flight -= 1;
        self.uploads.changed.notify_all();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
