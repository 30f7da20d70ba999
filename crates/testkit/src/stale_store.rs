//! `StaleStore`: objects are there at once, and listed as they were some time ago, as on stores
//! whose listings come behind.

use crate::dated_store::DatedStore;
use bale_pipeline::clock::{Clock, ManualClock};
use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, Result, Store, WholeWriter,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A store whose listings come behind. Clones share everything.
#[derive(Clone)]
pub struct StaleStore {
    inner: DatedStore,
    clock: Arc<ManualClock>,
    behind: Duration,
    history: Arc<Mutex<HashMap<ObjectName, Known>>>,
}

/// What has been of a name.
struct Known {
    len: u64,
    made: SystemTime,
    deleted: Option<SystemTime>,
}

impl StaleStore {
    /// What is in `inner` has always been there; from now on all goes through here.
    pub fn over(inner: &DatedStore, clock: Arc<ManualClock>, behind: Duration) -> StaleStore {
        let mut history = HashMap::new();
        for area in Area::ALL {
            let always = |info: ObjectInfo| Known {
                len: info.len,
                made: SystemTime::UNIX_EPOCH,
                deleted: None,
            };
            let remember = &mut |info: ObjectInfo| {
                history.insert(info.name, always(info));
            };
            inner.list(area, remember).expect("it is in memory");
        }
        StaleStore {
            inner: inner.clone(),
            clock,
            behind,
            history: Arc::new(Mutex::new(history)),
        }
    }
}

impl Store for StaleStore {
    // Not handed on: expect, are_there: no test needs them of it.
    // Not handed on: shape, upload, begin_pack, takes_streams: no test needs them of it.
    // Not handed on: begin_stream, list_foreign, keeps_the_first: no test needs them of it.
    // Not handed on: is_remote, is_tiered, tiers, hot_failed: no test needs them of it.
    // Not handed on: cold_classes, object_locks: no test needs them of it.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.inner.put(name, bytes)?;
        let known = Known {
            len: bytes.len() as u64,
            made: self.clock.now(),
            deleted: None,
        };
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        match history.get(name) {
            Some(there) if there.deleted.is_none() => {}
            _ => drop(history.insert(*name, known)),
        }
        Ok(())
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
        let then = self.clock.now().checked_sub(self.behind);
        let then = then.unwrap_or(SystemTime::UNIX_EPOCH);
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let mut listed = Vec::new();
        for (name, known) in history.iter().filter(|(name, _)| name.area == area) {
            let is_gone = known.deleted.is_some_and(|deleted| deleted <= then);
            if known.made <= then && !is_gone {
                listed.push(ObjectInfo {
                    name: *name,
                    len: known.len,
                    modified: Some(known.made),
                });
            }
        }
        drop(history);
        listed.sort_by_key(|info| info.name);
        listed.into_iter().for_each(found);
        Ok(())
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.inner.delete(name)?;
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = history.get_mut(name) {
            known.deleted.get_or_insert(self.clock.now());
        }
        Ok(())
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}
