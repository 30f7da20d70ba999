//! How long failing requests are waited for, counted for all requests of a command: one that the
//! store fails for ever costs the time to give up once, and many such cost twice that together.
//!
//! After each time that was waited in vain the next one is half as long, so their sum has an end
//! whatever the number of objects. A store that answers again is used, and waited for, again.

use super::RetryRules;
use bale_repository::store::ObjectName;
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

/// Objects that were given up and are remembered. After so many times in vain nothing is waited
/// for in any case: a year halved so often is less than a second.
const GIVEN_UP_MAX: usize = 32;

/// Half of the hash of a name.
pub(super) type HalfHash = [u8; 16];

/// What was waited for in vain.
#[derive(Default)]
pub(super) struct Patience(Mutex<State>);

#[derive(Default)]
struct State {
    /// A request was given up, and none was answered since: no other waits any more.
    nothing_answers: bool,
    /// Times that were waited to their end, in vain; those that passed together are one.
    in_vain: u32,
    /// Whose reads were given up after the full time, and not answered since; at most
    /// [`GIVEN_UP_MAX`].
    objects: HashSet<HalfHash>,
}

/// A request that failed, from its first failure on.
#[derive(Clone, Copy)]
pub(super) struct Failing {
    /// Of the object that it reads; nothing else is remembered.
    object: Option<HalfHash>,
    in_vain_before: u32,
}

impl Patience {
    /// A request of an object's bytes, or another one, failed for the first time.
    pub(super) fn first_failure(&self, read: Option<&ObjectName>) -> Failing {
        Failing {
            object: read.map(|name| super::half_hash(&name.path())),
            in_vain_before: self.lock().in_vain,
        }
    }

    /// How long a request that failed again is waited for still, after so long; `None`: it is given
    /// up.
    pub(super) fn left(
        &self,
        rules: &RetryRules,
        failing: Failing,
        waited: Duration,
    ) -> Option<Duration> {
        let mut state = self.lock();
        let is_known = failing
            .object
            .is_some_and(|object| state.objects.contains(&object));
        if state.nothing_answers || is_known {
            return None;
        }
        let all = halved(rules.give_up_after, state.in_vain);
        let left = all.saturating_sub(waited);
        if !left.is_zero() {
            return Some(left);
        }
        state.nothing_answers = true;
        if state.in_vain == failing.in_vain_before {
            state.in_vain += 1;
        }
        if state.objects.len() < GIVEN_UP_MAX {
            state.objects.extend(failing.object);
        }
        None
    }

    /// A request was answered, or refused for good.
    pub(super) fn answered(&self, read: Option<&ObjectName>) {
        let mut state = self.lock();
        state.nothing_answers = false;
        if let Some(name) = read
            && !state.objects.is_empty()
        {
            state.objects.remove(&super::half_hash(&name.path()));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("holders do not panic")
    }
}

fn halved(time: Duration, times: u32) -> Duration {
    1u32.checked_shl(times)
        .map_or(Duration::ZERO, |part| time / part)
}
