//! Logins at a server, used by one thread at a time, and kept for the next.
//!
//! Servers count connections and refuse those beyond a few, so work waits for a login to be free.
//! Listings do not wait: what they find is handed to somebody who may need a login for it.

use super::session::{Dial, Session};
use std::io;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Logins in use at the same time, listings aside.
const SESSIONS_MAX: usize = 4;

/// After so long without a command, a login is tried before it is used: servers end those that say
/// nothing, and the first to notice would lose his request.
const IDLE_MAX: Duration = Duration::from_secs(20);

pub struct Pool {
    dial: Dial,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    in_use: usize,
    /// Of those not in use.
    kept: Vec<Session>,
}

impl Pool {
    pub fn new(dial: Dial) -> Pool {
        Pool {
            dial,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Does something with a login, once one may be had.
    pub fn with<T>(&self, work: impl FnOnce(&mut Session) -> io::Result<T>) -> io::Result<T> {
        let _turn = self.turn();
        self.with_own(work)
    }

    /// Does something with a login without waiting for others.
    pub fn with_own<T>(&self, work: impl FnOnce(&mut Session) -> io::Result<T>) -> io::Result<T> {
        let mut session = self.own()?;
        let done = work(&mut session);
        if !session.is_over() {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.kept.len() < SESSIONS_MAX {
                state.kept.push(session);
            }
        }
        done
    }

    /// A login that is nobody else's and does not come back.
    pub fn own(&self) -> io::Result<Session> {
        match self.kept() {
            Some(session) => Ok(session),
            None => self.dial.session(),
        }
    }

    /// One that is still there.
    fn kept(&self) -> Option<Session> {
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut session = state.kept.pop()?;
            drop(state);
            if session.idle() < IDLE_MAX || session.is_alive() {
                return Some(session);
            }
        }
    }

    fn turn(&self) -> Turn<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.in_use >= SESSIONS_MAX {
            let freed = self.freed.wait(state);
            state = freed.unwrap_or_else(PoisonError::into_inner);
        }
        state.in_use += 1;
        Turn { pool: self }
    }
}

/// Given back with the value, also by a panic.
struct Turn<'a> {
    pool: &'a Pool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let state = self.pool.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).in_use -= 1;
        self.pool.freed.notify_one();
    }
}
