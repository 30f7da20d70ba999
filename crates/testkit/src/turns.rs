//! Several operations on one store, one call at a time, in an order drawn from a seed.
//!
//! Each operation is an actor with a `TurnStore` of its own. A call waits until it is its actor's
//! turn; after the call, the next actor is drawn. So what two operations see of each other is
//! decided by the seed, call by call; only threads inside one actor race for its turns.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bale_pipeline::random::SeededRandom;
use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
};

use crate::choices::Choices;

/// Draws whose turn it is. Clones share the draw.
#[derive(Clone)]
pub struct Turns(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Called between turns, with a number drawn below 1024: moves clocks.
    between: Box<dyn Fn(usize) + Send + Sync>,
}

struct State {
    random: SeededRandom,
    actors: Vec<u32>,
    next: u32,
    turn: u32,
    turns: u64,
}

impl Turns {
    /// `between` is called before each turn with a number below 1024.
    pub fn new(seed: u64, between: impl Fn(usize) + Send + Sync + 'static) -> Turns {
        let state = State {
            random: SeededRandom::new(seed),
            actors: Vec::new(),
            next: 0,
            turn: 0,
            turns: 0,
        };
        Turns(Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            between: Box::new(between),
        }))
    }

    /// A new actor's view of a store. All actors must be there before the first of them begins;
    /// dropping the last clone of the view ends the actor.
    pub fn actor(&self, inner: impl Store + 'static) -> TurnStore {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.actors.push(number);
        TurnStore(Arc::new(Actor {
            inner: Box::new(inner),
            turns: self.clone(),
            number,
        }))
    }

    /// Turns taken so far.
    pub fn taken(&self) -> u64 {
        self.lock().turns
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, state: &mut State) {
        state.turns += 1;
        if let Some(count) = std::num::NonZero::new(state.actors.len()) {
            let picked = state.random.pick(count.get());
            state.turn = state.actors[picked];
            (self.0.between)(state.random.pick(1024));
        }
        self.0.changed.notify_all();
    }

    fn take_turn<T>(&self, number: u32, call: impl FnOnce() -> T) -> T {
        let mut state = self.lock();
        while state.turn != number {
            state = self
                .0
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let done = call();
        self.draw(&mut state);
        done
    }
}

/// One actor's view of a store.
#[derive(Clone)]
pub struct TurnStore(Arc<Actor>);

struct Actor {
    inner: Box<dyn Store>,
    turns: Turns,
    number: u32,
}

impl Actor {
    fn turn<T>(&self, call: impl FnOnce() -> T) -> T {
        self.turns.take_turn(self.number, call)
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let mut state = self.turns.lock();
        state.actors.retain(|actor| *actor != self.number);
        if state.turn == self.number {
            self.turns.draw(&mut state);
        }
    }
}

impl Store for TurnStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, is_remote, tiers, hot_failed: no test needs them of it.
    // Not handed on: cold_classes, object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.0.turn(|| self.0.inner.put(name, bytes))
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        let inner = self.0.inner.begin_pack(content)?;
        Ok(Box::new(TurnWriter {
            store: self.clone(),
            inner,
        }))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.0.turn(|| self.0.inner.get(name, len_max))
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.turn(|| self.0.inner.read_at(name, offset, buf))
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.0.turn(|| self.0.inner.stat(name))
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        // Handed on after the turn, so that `found` may call this store.
        let mut infos = Vec::new();
        self.0
            .turn(|| self.0.inner.list(area, &mut |info| infos.push(info)))?;
        infos.into_iter().for_each(found);
        Ok(())
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.0.turn(|| self.0.inner.delete(name))
    }

    fn place(&self) -> String {
        self.0.inner.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.0.inner.keeps_the_first()
    }

    fn is_tiered(&self) -> bool {
        self.0.inner.is_tiered()
    }
}

/// Appending is seen by nobody and takes no turn; publishing does.
struct TurnWriter {
    store: TurnStore,
    inner: Box<dyn ObjectWriter>,
}

impl ObjectWriter for TurnWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.append(bytes)
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        let Self { store, inner } = *self;
        store.0.turn(|| inner.publish(name))
    }
}
