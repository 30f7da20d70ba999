//! `RecordingStore`: writes down every call, so that a test can say how much work an operation may
//! cause.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
};

/// What can be asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// `Store::put`.
    Put,
    /// `Store::begin`.
    Begin,
    /// `ObjectWriter::append`.
    Append,
    /// `ObjectWriter::publish`.
    Publish,
    /// `Store::get`.
    Get,
    /// `Store::read_at`.
    ReadAt,
    /// `Store::stat`.
    Stat,
    /// `Store::list`.
    List,
    /// `Store::delete`.
    Delete,
}

impl Verb {
    /// Whether it changes the store, or begins to.
    pub fn writes(self) -> bool {
        matches!(
            self,
            Verb::Put | Verb::Begin | Verb::Append | Verb::Publish | Verb::Delete
        )
    }
}

/// One call that was made, whatever came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub verb: Verb,
    /// Where; `begin` and `append` write to packs.
    pub area: Area,
    /// On which object, where the call names one.
    pub name: Option<ObjectName>,
    /// Bytes given, or room for bytes asked for: `get` counts what it returned.
    pub bytes: u64,
}

impl Call {
    pub(crate) fn on(verb: Verb, name: &ObjectName, bytes: usize) -> Self {
        Self {
            verb,
            area: name.area,
            name: Some(*name),
            bytes: bytes as u64,
        }
    }

    pub(crate) fn within(verb: Verb, area: Area, bytes: usize) -> Self {
        Self {
            verb,
            area,
            name: None,
            bytes: bytes as u64,
        }
    }
}

/// A store that passes everything on and keeps a log. Clones share both.
#[derive(Clone)]
pub struct RecordingStore {
    inner: Arc<dyn Store>,
    log: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Call>>>);

impl Log {
    fn push(&self, call: Call) {
        self.lock().push(call);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecordingStore {
    /// Watches a store.
    pub fn over(inner: impl Store + 'static) -> Self {
        Self {
            inner: Arc::new(inner),
            log: Log::default(),
        }
    }

    /// Calls of one verb so far.
    pub fn count(&self, verb: Verb) -> usize {
        self.log
            .lock()
            .iter()
            .filter(|call| call.verb == verb)
            .count()
    }

    /// Calls of one verb in one area so far.
    pub fn count_in(&self, verb: Verb, area: Area) -> usize {
        self.log
            .lock()
            .iter()
            .filter(|call| call.verb == verb && call.area == area)
            .count()
    }

    /// Bytes of all calls of one verb so far.
    pub fn bytes(&self, verb: Verb) -> u64 {
        self.log
            .lock()
            .iter()
            .filter(|call| call.verb == verb)
            .map(|call| call.bytes)
            .sum()
    }

    /// Everything so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.log.lock().clone()
    }

    /// Starts an empty log; returns the old one.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.log.lock())
    }
}

impl Store for RecordingStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, tiers, hot_failed, cold_classes: no test needs them of it.
    // Not handed on: object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.log.push(Call::on(Verb::Put, name, bytes.len()));
        self.inner.put(name, bytes)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.log.push(Call::within(Verb::Begin, Area::Packs, 0));
        Ok(Box::new(RecordingWriter {
            inner: self.inner.begin_pack(content)?,
            log: self.log.clone(),
        }))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let got = self.inner.get(name, len_max);
        self.log
            .push(Call::on(Verb::Get, name, got.as_ref().map_or(0, Vec::len)));
        got
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.log.push(Call::on(Verb::ReadAt, name, buf.len()));
        self.inner.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.log.push(Call::on(Verb::Stat, name, 0));
        self.inner.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.log.push(Call::within(Verb::List, area, 0));
        self.inner.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.log.push(Call::on(Verb::Delete, name, 0));
        self.inner.delete(name)
    }

    fn place(&self) -> String {
        self.inner.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.inner.keeps_the_first()
    }

    fn is_remote(&self) -> bool {
        self.inner.is_remote()
    }

    fn is_tiered(&self) -> bool {
        self.inner.is_tiered()
    }
}

struct RecordingWriter {
    inner: Box<dyn ObjectWriter>,
    log: Log,
}

impl ObjectWriter for RecordingWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.log
            .push(Call::within(Verb::Append, Area::Packs, bytes.len()));
        self.inner.append(bytes)
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        self.log.push(Call::on(Verb::Publish, name, 0));
        self.inner.publish(name)
    }
}
