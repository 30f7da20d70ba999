//! `StretchedStore`: packs of data one after the other in few large objects, for stores that want
//! those: tape, HPSS. It is a store around a store that takes objects in streams.
//!
//! To everybody else a pack is a pack: it is listed, read, condemned and deleted by its name. Only
//! where its bytes are differs: in a range of a *stretch* (users read "segment"). A stretch is
//! written from front to back by one writer and never changed; what is in it is said by a sealed
//! record in `stretched/`, and by a table at its own end for whoever has lost the record. A pack
//! that was uploaded is durable once [`StretchedStore::settle`] returned: whoever names packs in an
//! index calls it before. docs/FORMAT.md, docs/decisions/0021-segments.md.

mod checking;
mod deleting;
mod known;
mod open;
mod reading;
mod reclaim;

pub use checking::{RecordsRepair, StretchTrouble};
pub use open::{Append, Filling};
pub use reclaim::{Reclaimed, StretchUse};

use crate::store::{
    Area, ForeignEntry, ObjectInfo, ObjectName, ObjectWriter, PackContent, Result, Store,
    StoreError, StoreShape, ends_early,
};
use bale_format::keys::Keys;
use bale_format::stretch::{STRETCH_LEN_MAX, StretchName};
use bale_format::{FormatError, ObjectId};
use bale_pipeline::random::Random;
use bytes::Bytes;
use known::{Known, Place};
use open::Writing;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A stretch is closed at this length, unless the repository was made with another.
pub const STRETCH_BYTES_USUAL: u64 = 10_000_000_000;
/// Lengths that a repository can be made with.
pub const STRETCH_BYTES_MIN: u64 = 1 << 20;
/// The largest: one pack and the table still fit below the format's bound.
pub const STRETCH_BYTES_MAX: u64 = STRETCH_LEN_MAX - (1 << 30);

/// Where a pack is: sorts packs in the order of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceOnMedium {
    pub stretch: StretchName,
    /// Of its first byte.
    pub offset: u64,
}

/// Packs of data in stretches, all else as it is.
pub struct StretchedStore {
    base: Arc<dyn Store>,
    keys: Keys,
    random: Arc<dyn Random>,
    /// A stretch is closed at this length.
    len_target: u64,
    known: Mutex<Known>,
    /// Taken before `known`, by whoever changes what is in the store.
    writing: Mutex<Writing>,
    /// Of `writing`, for whoever must not wait for what is being appended.
    filling: Mutex<Filling>,
    emptied: Mutex<Emptied>,
}

/// Stretches that were deleted with the last pack in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Emptied {
    pub stretches: u64,
    pub bytes: u64,
}

impl StretchedStore {
    /// Around a store that takes objects in streams ([`Store::takes_streams`]).
    pub fn new(
        base: Arc<dyn Store>,
        keys: Keys,
        random: Arc<dyn Random>,
        len_target: u64,
    ) -> StretchedStore {
        StretchedStore {
            base,
            keys,
            random,
            len_target: len_target.clamp(STRETCH_BYTES_MIN, STRETCH_BYTES_MAX),
            known: Mutex::default(),
            writing: Mutex::default(),
            filling: Mutex::default(),
            emptied: Mutex::default(),
        }
    }

    /// The store that it is around.
    pub fn base(&self) -> &Arc<dyn Store> {
        &self.base
    }

    /// Where a pack is; none of one that is an object of its own. Looks at what is known: call
    /// [`StretchedStore::refresh`] before.
    pub fn place_of(&self, pack: &ObjectId) -> Option<PlaceOnMedium> {
        let known = self.known();
        let place = known.places_of(pack).next()?;
        Some(PlaceOnMedium {
            stretch: known.stretch(place.stretch).name,
            offset: place.offset,
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is in a stretch, and the stretch: `None` for what is not in one, after another look
    /// if it is not there at all.
    fn find(&self, name: &ObjectName) -> Result<Option<(Place, StretchName)>> {
        let Some(pack) = name.id().filter(|_| name.area == Area::Packs) else {
            return Ok(None);
        };
        self.look_once()?;
        Ok(self.known().find(&pack))
    }

    /// Reads a pack where it is. One that is not where it was known to be, or nowhere, is looked
    /// for again: a prune copies packs to other stretches.
    fn read_placed<T>(
        &self,
        name: &ObjectName,
        mut read: impl FnMut(Option<(Place, StretchName)>) -> Result<T>,
    ) -> Result<T> {
        let place = self.find(name)?;
        match read(place) {
            Err(error) if error.is_not_found() && name.area == Area::Packs => {
                self.refresh()?;
                let now = self.find(name)?;
                match now == place {
                    true => Err(error),
                    false => read(now),
                }
            }
            done => done,
        }
    }

    fn failed(&self, action: &'static str, object: String, source: io::Error) -> StoreError {
        StoreError {
            action,
            object: format!("{object} in {}", self.place()),
            source,
        }
    }

    fn not_sealed(&self, object: &ObjectName, error: &FormatError) -> StoreError {
        self.failed(
            "write",
            object.to_string(),
            io::Error::other(error.to_string()),
        )
    }

    fn draw<const N: usize>(&self, object: &str) -> Result<[u8; N]> {
        bale_pipeline::random::draw(&*self.random)
            .map_err(|error| self.failed("draw random bytes for", object.to_owned(), error))
    }
}

impl Store for StretchedStore {
    // Not handed on: expect, are_there: packs are parts of few objects.
    // Not handed on: cold_classes, object_locks: segments have no classes and no locks.

    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.base.put(name, bytes)
    }

    /// One after the other, so that they lie in the order in which they were made.
    fn shape(&self) -> StoreShape {
        StoreShape::Whole { uploads_max: 1 }
    }

    /// Packs of data are durable only after [`StretchedStore::settle`].
    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        match (content, name.id()) {
            (PackContent::Data, Some(id)) => self.append_pack(id, pack),
            _ => self.base.upload(name, pack, content, again),
        }
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.base.begin()
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        self.base.begin_pack(content)
    }

    fn takes_streams(&self) -> bool {
        self.base.takes_streams()
    }

    fn begin_stream(&self) -> Result<Box<dyn ObjectWriter>> {
        self.base.begin_stream()
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.read_placed(name, |place| match place {
            None => self.base.get(name, len_max),
            Some((place, stretch)) => {
                if place.len > len_max {
                    let source = io::ErrorKind::FileTooLarge.into();
                    return Err(self.failed("read", name.to_string(), source));
                }
                let mut bytes = vec![0; usize::try_from(place.len).unwrap_or(usize::MAX)];
                let stretch = ObjectName::stretch(stretch);
                self.base.read_at(&stretch, place.offset, &mut bytes)?;
                Ok(bytes)
            }
        })
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_placed(name, |place| match place {
            None => self.base.read_at(name, offset, buf),
            Some((place, stretch)) => {
                let end = offset.checked_add(buf.len() as u64);
                if end.is_none_or(|end| end > place.len) {
                    let source = ends_early(offset, buf.len(), place.len);
                    return Err(self.failed("read", name.to_string(), source));
                }
                let stretch = ObjectName::stretch(stretch);
                self.base.read_at(&stretch, place.offset + offset, buf)
            }
        })
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        let place = self.find(name)?;
        let found = self.stat_placed(name, place)?;
        if found.is_some() || name.area != Area::Packs {
            return Ok(found);
        }
        self.refresh()?;
        let now = self.find(name)?;
        match now == place {
            true => Ok(None),
            false => self.stat_placed(name, now),
        }
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        if area == Area::Packs {
            self.refresh()?;
            let mut last = None;
            loop {
                // Copied: `found` may call this store.
                let infos = self.known().packs_after(last);
                let Some(info) = infos.last() else { break };
                last = info.name.id();
                infos.into_iter().for_each(&mut *found);
            }
        }
        self.base.list(area, found)
    }

    fn list_foreign(&self, area: Area, found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        self.base.list_foreign(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        if let Some(pack) = name.id().filter(|_| name.area == Area::Packs) {
            self.delete_pack(&pack)?;
        }
        self.base.delete(name)
    }

    fn place(&self) -> String {
        self.base.place()
    }

    fn keeps_the_first(&self) -> bool {
        self.base.keeps_the_first()
    }

    fn is_remote(&self) -> bool {
        self.base.is_remote()
    }

    fn is_tiered(&self) -> bool {
        self.base.is_tiered()
    }

    fn tiers(&self) -> Option<[&dyn Store; 2]> {
        self.base.tiers()
    }

    fn hot_failed(&self, error: &StoreError) {
        self.base.hot_failed(error);
    }
}

impl StretchedStore {
    fn stat_placed(
        &self,
        name: &ObjectName,
        place: Option<(Place, StretchName)>,
    ) -> Result<Option<ObjectInfo>> {
        let Some((place, stretch)) = place else {
            return self.base.stat(name);
        };
        let there = self.base.stat(&ObjectName::stretch(stretch))?;
        Ok(there.map(|there| ObjectInfo {
            name: *name,
            len: place.len_within(there.len),
            modified: there.modified,
        }))
    }
}
