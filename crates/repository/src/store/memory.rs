//! `MemoryStore`: a store that ends with the process. For tests, and for trying an operation
//! without a place to keep it.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Area, ObjectInfo, ObjectName, ObjectWriter, Result, Store, StoreError, ends_early};

/// Objects in memory. Clones share them, so one can play the repository that outlives a process.
#[derive(Clone, Default)]
pub struct MemoryStore {
    objects: Objects,
}

type Objects = Arc<Mutex<BTreeMap<ObjectName, Arc<Vec<u8>>>>>;

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every object, by name: for tests that damage, drop or compare them.
    pub fn objects(&self) -> BTreeMap<ObjectName, Vec<u8>> {
        self.lock()
            .iter()
            .map(|(name, bytes)| (*name, bytes.to_vec()))
            .collect()
    }

    /// Puts bytes under a name whether or not it exists: damage, for tests.
    pub fn overwrite(&self, name: &ObjectName, bytes: Vec<u8>) {
        self.lock().insert(*name, Arc::new(bytes));
    }

    /// A store of its own with the same objects.
    pub fn fork(&self) -> Self {
        Self {
            objects: Arc::new(Mutex::new(self.lock().clone())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ObjectName, Arc<Vec<u8>>>> {
        lock(&self.objects)
    }

    fn find(&self, action: &'static str, name: &ObjectName) -> Result<Arc<Vec<u8>>> {
        let found = self.lock().get(name).cloned();
        found.ok_or_else(|| self.error(action, name, io::ErrorKind::NotFound))
    }

    fn error(
        &self,
        action: &'static str,
        name: &ObjectName,
        source: impl Into<io::Error>,
    ) -> StoreError {
        StoreError {
            action,
            object: format!("{name} in {}", self.place()),
            source: source.into(),
        }
    }
}

fn lock(objects: &Objects) -> MutexGuard<'_, BTreeMap<ObjectName, Arc<Vec<u8>>>> {
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

fn info(name: &ObjectName, bytes: &[u8]) -> ObjectInfo {
    ObjectInfo {
        name: *name,
        len: bytes.len() as u64,
        modified: None,
    }
}

impl Store for MemoryStore {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.lock()
            .entry(*name)
            .or_insert_with(|| Arc::new(bytes.to_vec()));
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(MemoryWriter {
            objects: self.objects.clone(),
            bytes: Vec::new(),
        }))
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        let bytes = self.find("read", name)?;
        if bytes.len() as u64 > len_max {
            return Err(self.error("read", name, io::ErrorKind::FileTooLarge));
        }
        Ok(bytes.to_vec())
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.find("read", name)?;
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?));
        match range.and_then(|range| bytes.get(range)) {
            Some(part) => buf.copy_from_slice(part),
            None => {
                let there = bytes.len() as u64;
                return Err(self.error("read", name, ends_early(offset, buf.len(), there)));
            }
        }
        Ok(())
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        Ok(self.lock().get(name).map(|bytes| info(name, bytes)))
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        // Collected first, so that `found` may call this store.
        let infos: Vec<_> = (self.lock().iter())
            .filter(|(name, _)| name.area == area)
            .map(|(name, bytes)| info(name, bytes))
            .collect();
        infos.into_iter().for_each(found);
        Ok(())
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.lock().remove(name);
        Ok(())
    }

    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn keeps_the_first(&self) -> bool {
        true
    }
}

struct MemoryWriter {
    objects: Objects,
    bytes: Vec<u8>,
}

impl ObjectWriter for MemoryWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        let Self { objects, bytes } = *self;
        lock(&objects)
            .entry(*name)
            .or_insert_with(|| Arc::new(bytes));
        Ok(())
    }
}
