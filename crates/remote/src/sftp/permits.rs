//! How much is in flight on a connection, and who sends next.
//!
//! Transfers send in the order in which they came, each all that it has, so that the answers come
//! in that order, too: as a rule somebody waits for what was asked for first. Only whoever has the
//! turn waits for a permit. Everybody else who holds some has sent everything and only takes
//! answers, or has nothing; so permits come back, and nobody waits for somebody who waits for him.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Reads and writes in flight on a connection: 16 MiB of them.
const TRANSFERS_MAX: usize = 64;

/// Bounds the reads and writes in flight on a connection.
#[derive(Default)]
pub(super) struct Permits {
    taken: Mutex<usize>,
    given_back: Condvar,
    turns: Mutex<Turns>,
    turn_ended: Condvar,
}

/// Whose turn it is to send.
#[derive(Default)]
struct Turns {
    next: u64,
    now: u64,
}

/// The turn of one transfer; the next one has it when it is dropped.
pub(super) struct Turn<'a> {
    permits: &'a Permits,
}

/// One transfer; given back when it is dropped.
pub(super) struct Permit<'a> {
    permits: &'a Permits,
}

impl Permits {
    /// Waits until all transfers that came before have sent their requests.
    pub(super) fn turn(&self) -> Turn<'_> {
        let mut turns = self.lock_turns();
        let mine = turns.next;
        turns.next += 1;
        let is_early = |turns: &mut Turns| turns.now != mine;
        let turns = self.turn_ended.wait_while(turns, is_early);
        drop(turns.unwrap_or_else(PoisonError::into_inner));
        Turn { permits: self }
    }

    fn lock_turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Turn<'a> {
    /// Waits for one.
    pub(super) fn permit(&self) -> Permit<'a> {
        let permits = self.permits;
        let full = |taken: &mut usize| *taken >= TRANSFERS_MAX;
        let taken = permits.given_back.wait_while(permits.lock(), full);
        *taken.unwrap_or_else(PoisonError::into_inner) += 1;
        Permit { permits }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.permits.lock() -= 1;
        self.permits.given_back.notify_one();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.permits.lock_turns().now += 1;
        self.permits.turn_ended.notify_all();
    }
}
