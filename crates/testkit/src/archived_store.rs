//! `ArchivedStore`: some objects are in a cold class, from which they must be brought back before
//! they are read, or are not handed out for another reason.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bale_repository::store::{
    Archived, Area, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store, StoreError,
};

/// Why nothing of these objects is handed out.
type Why = Arc<dyn Fn() -> io::Error + Send + Sync>;

/// A store that hands out nothing of what is archived. Clones share what is.
#[derive(Clone)]
pub struct ArchivedStore {
    inner: Arc<dyn Store>,
    archived: Arc<Mutex<HashSet<ObjectName>>>,
    why: Why,
}

impl ArchivedStore {
    /// With these objects archived.
    pub fn over(
        inner: impl Store + 'static,
        archived: impl IntoIterator<Item = ObjectName>,
    ) -> ArchivedStore {
        ArchivedStore::refusing(inner, archived, || {
            io::Error::other(Archived("it is archived".to_owned()))
        })
    }

    /// With these objects not handed out for another reason.
    pub fn refusing(
        inner: impl Store + 'static,
        refused: impl IntoIterator<Item = ObjectName>,
        why: impl Fn() -> io::Error + Send + Sync + 'static,
    ) -> ArchivedStore {
        ArchivedStore {
            inner: Arc::new(inner),
            archived: Arc::new(Mutex::new(refused.into_iter().collect())),
            why: Arc::new(why),
        }
    }

    /// Everything is brought back.
    pub fn bring_back(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ObjectName>> {
        self.archived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn refuse_archived(&self, name: &ObjectName) -> Result<()> {
        match self.lock().contains(name) {
            false => Ok(()),
            true => Err(StoreError {
                action: "read",
                object: name.to_string(),
                source: (self.why)(),
            }),
        }
    }
}

impl Store for ArchivedStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, takes_streams, begin_stream: no test needs them of it.
    // Not handed on: list_foreign, is_remote, is_tiered, tiers: no test needs them of it.
    // Not handed on: hot_failed, cold_classes, object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.inner.begin()
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.inner.begin_pack(content)
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.refuse_archived(name)?;
        self.inner.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.refuse_archived(name)?;
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
}
