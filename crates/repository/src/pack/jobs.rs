//! Jobs that were submitted to the encoding threads: who waits for all of them, and how many bytes
//! of data they are.

use std::sync::{Condvar, Mutex, MutexGuard};

/// Jobs of one `ChunkWriter`.
#[derive(Default)]
pub(super) struct Jobs {
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    running: u64,
    /// Of data, in jobs that run, before compression.
    plain_bytes: u64,
    /// Of data, in jobs that ended since [`Jobs::count_from_here`], as they were stored.
    stored_bytes: u64,
}

impl Jobs {
    /// A job with so many bytes of data.
    pub(super) fn begins(&self, plain_bytes: u64) {
        let mut state = self.lock();
        state.running += 1;
        state.plain_bytes += plain_bytes;
    }

    /// The same job, of which so many bytes were stored.
    pub(super) fn ends(&self, plain_bytes: u64, stored_bytes: u64) {
        let mut state = self.lock();
        state.running -= 1;
        state.plain_bytes -= plain_bytes;
        state.stored_bytes += stored_bytes;
        self.idle.notify_all();
    }

    pub(super) fn wait_for_all(&self) {
        let mut state = self.lock();
        while state.running > 0 {
            state = self.idle.wait(state).expect("holders do not panic");
        }
    }

    /// Bytes of data that were stored or are about to be, since [`Jobs::count_from_here`].
    pub(super) fn data_bytes(&self) -> u64 {
        let state = self.lock();
        state.plain_bytes + state.stored_bytes
    }

    /// What was stored before counts no more.
    pub(super) fn count_from_here(&self) {
        self.lock().stored_bytes = 0;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("holders do not panic")
    }
}
