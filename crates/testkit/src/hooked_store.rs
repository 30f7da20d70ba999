//! `HookedStore`: something happens elsewhere just before a call, as often as a test needs it to.

use std::sync::Arc;

use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
};

use crate::recording_store::{Call, Verb};

type Hook = Arc<dyn Fn(&Call) + Send + Sync>;

/// A store that tells of each call before it is made. The hook must not use this store, but may use
/// what is below it.
#[derive(Clone)]
pub struct HookedStore {
    inner: Arc<dyn Store>,
    hook: Hook,
}

impl HookedStore {
    /// Calls `hook` before each call.
    pub fn over(
        inner: impl Store + 'static,
        hook: impl Fn(&Call) + Send + Sync + 'static,
    ) -> HookedStore {
        HookedStore {
            inner: Arc::new(inner),
            hook: Arc::new(hook),
        }
    }
}

impl Store for HookedStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, tiers, hot_failed, cold_classes: no test needs them of it.
    // Not handed on: object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        (self.hook)(&Call::on(Verb::Put, name, bytes.len()));
        self.inner.put(name, bytes)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        (self.hook)(&Call::within(Verb::Begin, Area::Packs, 0));
        Ok(Box::new(HookedWriter {
            inner: self.inner.begin_pack(content)?,
            hook: self.hook.clone(),
        }))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        (self.hook)(&Call::on(Verb::Get, name, 0));
        self.inner.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        (self.hook)(&Call::on(Verb::ReadAt, name, buf.len()));
        self.inner.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        (self.hook)(&Call::on(Verb::Stat, name, 0));
        self.inner.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        (self.hook)(&Call::within(Verb::List, area, 0));
        self.inner.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        (self.hook)(&Call::on(Verb::Delete, name, 0));
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

struct HookedWriter {
    inner: Box<dyn ObjectWriter>,
    hook: Hook,
}

impl ObjectWriter for HookedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        (self.hook)(&Call::within(Verb::Append, Area::Packs, bytes.len()));
        self.inner.append(bytes)
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        (self.hook)(&Call::on(Verb::Publish, name, 0));
        self.inner.publish(name)
    }
}
