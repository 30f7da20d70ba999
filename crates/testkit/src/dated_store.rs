//! `DatedStore`: objects in memory with the time they were made, by a clock that a test moves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bale_pipeline::clock::{Clock, ManualClock};
use bale_repository::store::{
    Area, MemoryStore, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
};

/// A memory store that knows when. Clones share everything; forks share the clock only.
#[derive(Clone)]
pub struct DatedStore {
    inner: MemoryStore,
    clock: Arc<ManualClock>,
    times: Times,
}

#[derive(Clone, Default)]
struct Times(Arc<Mutex<HashMap<ObjectName, SystemTime>>>);

impl Times {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectName, SystemTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stamp(&self, name: &ObjectName, now: SystemTime) {
        self.lock().entry(*name).or_insert(now);
    }
}

impl DatedStore {
    /// Empty.
    pub fn new(clock: Arc<ManualClock>) -> Self {
        Self {
            inner: MemoryStore::new(),
            clock,
            times: Times::default(),
        }
    }

    /// A store of its own with the same objects.
    pub fn fork(&self) -> Self {
        Self {
            inner: self.inner.fork(),
            clock: self.clock.clone(),
            times: Times(Arc::new(Mutex::new(self.times.lock().clone()))),
        }
    }

    /// The objects: for tests that damage, drop or compare them.
    pub fn memory(&self) -> &MemoryStore {
        &self.inner
    }

    /// Names of one area.
    pub fn names(&self, area: Area) -> Vec<ObjectName> {
        let objects = self.inner.objects();
        objects
            .into_keys()
            .filter(|name| name.area == area)
            .collect()
    }

    fn dated(&self, info: ObjectInfo) -> ObjectInfo {
        let modified = self.times.lock().get(&info.name).copied();
        ObjectInfo { modified, ..info }
    }
}

impl Store for DatedStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, is_remote, tiers, hot_failed: no test needs them of it.
    // Not handed on: cold_classes, object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.times.stamp(name, self.clock.now());
        self.inner.put(name, bytes)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(DatedWriter {
            inner: self.inner.begin_pack(content)?,
            clock: self.clock.clone(),
            times: self.times.clone(),
        }))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.inner.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        Ok(self.inner.stat(name)?.map(|info| self.dated(info)))
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.inner.list(area, &mut |info| found(self.dated(info)))
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.times.lock().remove(name);
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

struct DatedWriter {
    inner: Box<dyn ObjectWriter>,
    clock: Arc<ManualClock>,
    times: Times,
}

impl ObjectWriter for DatedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.inner.append(bytes)
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        self.times.stamp(name, self.clock.now());
        self.inner.publish(name)
    }
}
