//! `WholeStore`: a store that takes packs whole, several at a time, as servers do. A gate can hold
//! its uploads until a test lets them pass.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store, StoreError, StoreShape,
    WholeWriter,
};
use bytes::Bytes;

/// Nothing that a test waits for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A store that takes packs whole. Clones share the gate.
#[derive(Clone)]
pub struct WholeStore {
    inner: Arc<dyn Store>,
    uploads_max: usize,
    gate: Option<Arc<Gate>>,
}

impl WholeStore {
    /// Takes three at a time.
    pub fn over(inner: impl Store + 'static) -> WholeStore {
        WholeStore {
            inner: Arc::new(inner),
            uploads_max: 3,
            gate: None,
        }
    }

    /// Uploads wait in front of a gate.
    pub fn gated(self) -> (WholeStore, GateKeeper) {
        let gate = Arc::new(Gate::default());
        let keeper = GateKeeper(gate.clone());
        let gate = Some(gate);
        (WholeStore { gate, ..self }, keeper)
    }
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    arrived: u64,
    may_pass: u64,
    is_open: bool,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pass(&self) {
        let mut state = self.lock();
        state.arrived += 1;
        self.changed.notify_all();
        while !state.is_open && state.may_pass == 0 {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.may_pass = state.may_pass.saturating_sub(1);
    }
}

/// Opens the gate, at the latest when it is dropped: a test that fails leaves nobody waiting.
pub struct GateKeeper(Arc<Gate>);

impl GateKeeper {
    /// Uploads that came to the gate so far.
    pub fn arrived(&self) -> u64 {
        self.0.lock().arrived
    }

    /// Waits until so many came.
    ///
    /// # Panics
    ///
    /// If they do not come.
    pub fn wait_for(&self, arrivals: u64) {
        let end = Instant::now() + PATIENCE;
        let mut state = self.0.lock();
        while state.arrived < arrivals {
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{} of {arrivals} came", state.arrived);
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets so many more pass.
    pub fn let_pass(&self, uploads: u64) {
        self.0.lock().may_pass += uploads;
        self.0.changed.notify_all();
    }

    /// Holds nobody any more.
    pub fn open(&self) {
        self.0.lock().is_open = true;
        self.0.changed.notify_all();
    }
}

impl Drop for GateKeeper {
    fn drop(&mut self) {
        self.open();
    }
}

impl Store for WholeStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: begin_pack, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, is_remote, tiers, hot_failed: no test needs them of it.
    // Not handed on: cold_classes, object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn shape(&self) -> StoreShape {
        StoreShape::Whole {
            uploads_max: self.uploads_max,
        }
    }

    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        self.inner.upload(name, pack, content, again)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.inner.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.inner.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.inner.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.inner.delete(name)
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.inner.keeps_the_first()
    }

    fn is_tiered(&self) -> bool {
        self.inner.is_tiered()
    }
}
