//! An operation that is killed at every call to its store in turn.

use std::fmt::Debug;

use bale_repository::store::{MemoryStore, Store};

use crate::dated_store::DatedStore;
use crate::faulty_store::FaultyStore;

/// More calls than any operation of a test makes.
const CALLS_MAX: u64 = 2_000;

/// A store of which each attempt gets a copy of its own.
pub trait Fork: Store + Clone + 'static {
    /// The same objects, from now on on their own.
    fn forked(&self) -> Self;
}

impl Fork for DatedStore {
    fn forked(&self) -> DatedStore {
        self.fork()
    }
}

impl Fork for MemoryStore {
    fn forked(&self) -> MemoryStore {
        self.fork()
    }
}

/// Runs `act` on copies of a store that stop answering at call 0, 1, 2 ... until it gets through,
/// each time once with and once without the effect of the call that the crash struck; `look` sees
/// what is left, and the story. Tells how many calls there are.
pub fn at_every_call<S: Fork, E: Debug>(
    whole: &S,
    name: &str,
    act: impl Fn(FaultyStore) -> Result<(), E>,
    look: impl Fn(&S, &str),
) -> u64 {
    for after in 0..CALLS_MAX {
        let mut crashed = false;
        for last_is_done in [false, true] {
            let store = whole.forked();
            let faulty = FaultyStore::over(store.clone());
            faulty.crash_after(after, last_is_done);
            let done = act(faulty.clone());
            crashed |= faulty.crashed();
            let story = format!("{name}, killed at call {after}, done: {last_is_done}");
            assert!(done.is_ok() || faulty.crashed(), "{story}: {done:?}");
            look(&store, &story);
        }
        if !crashed {
            return after;
        }
    }
    panic!("{name} makes more than {CALLS_MAX} calls");
}
