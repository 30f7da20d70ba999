//! `TieredStore`: a cold store that holds everything, and a hot one beside it that holds everything
//! but packs of data, so that whoever lists, browses or compares does not wait for a tape.
//!
//! The cold one is the truth: but for key slots it alone is listed, and what it does not have is
//! not there. Objects come into it first and leave it last, so at every moment the hot one holds
//! nothing that the cold one lacks; what a crash leaves out of the hot one is read from the cold
//! one, and said once.
//! Nothing here knows keys: which packs are metadata is said by whoever writes them.

use super::{
    Area, ColdClasses, ForeignEntry, Next, ObjectInfo, ObjectLocks, ObjectName, ObjectWriter,
    PackContent, Result, Store, StoreError, StoreShape,
};
use bale_format::ObjectId;
use bytes::Bytes;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest `config` that is compared; longer ones are none.
const CONFIG_BYTES_MAX: u64 = 64 << 10;

/// Hears once that something was read from the cold store that the hot one should have had.
pub type OnMiss = Box<dyn Fn(&StoreError) + Send + Sync>;

/// Two stores of one repository.
pub struct TieredStore {
    hot: Arc<dyn Store>,
    cold: Arc<dyn Store>,
    hot_packs: HotPacks,
    on_miss: OnMiss,
    has_missed: AtomicBool,
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Hot,
    Cold,
}

/// Packs that the hot store has, once it was listed: 32 bytes for each, and they are those of
/// metadata.
type HotPacks = Arc<Mutex<Option<HashSet<ObjectId>>>>;

impl TieredStore {
    /// Of two stores that may be empty.
    pub fn new(hot: Arc<dyn Store>, cold: Arc<dyn Store>, on_miss: OnMiss) -> TieredStore {
        TieredStore {
            hot,
            cold,
            hot_packs: HotPacks::default(),
            on_miss,
            has_missed: AtomicBool::new(false),
        }
    }

    /// The same of a repository that is there: refuses two stores of different ones.
    pub fn open(hot: Arc<dyn Store>, cold: Arc<dyn Store>, on_miss: OnMiss) -> Result<TieredStore> {
        let mut differ = false;
        for name in ObjectName::configs() {
            let both = [&hot, &cold].map(|store| store.get(&name, CONFIG_BYTES_MAX));
            if let [Ok(of_hot), Ok(of_cold)] = both {
                if of_hot == of_cold {
                    return Ok(TieredStore::new(hot, cold, on_miss));
                }
                differ = true;
            }
        }
        if differ {
            let text = format!("it is of another repository than {}", hot.place());
            return Err(StoreError {
                action: "use",
                object: format!("the cold store {}", cold.place()),
                source: io::Error::other(text),
            });
        }
        Ok(TieredStore::new(hot, cold, on_miss))
    }

    /// Refuses two stores that are taken for each other, before anything is written to them: the
    /// hot one never holds what the cold one lacks, and packs of data are in the cold one alone.
    /// Each pack of the hot store that is named takes 32 bytes meanwhile.
    pub fn refuse_swapped(&self) -> Result<()> {
        let mut only_hot = HashSet::new();
        self.hot.list(Area::Packs, &mut |info: ObjectInfo| {
            only_hot.extend(info.name.id());
        })?;
        let mut only_cold = 0u64;
        self.cold.list(Area::Packs, &mut |info| {
            let is_in_both = info.name.id().is_some_and(|id| only_hot.remove(&id));
            only_cold += u64::from(!is_in_both);
        })?;
        if only_hot.is_empty() || only_cold > 0 {
            return Ok(());
        }
        let text = format!(
            "{} packs of {} are not in it, and no other way round: the two seem to be swapped. \
             --repo names the hot store, --cold the one that holds everything",
            only_hot.len(),
            self.hot.place(),
        );
        Err(StoreError {
            action: "use",
            object: format!("the cold store {}", self.cold.place()),
            source: io::Error::other(text),
        })
    }

    fn missed(&self, error: &StoreError) {
        if !self.has_missed.swap(true, Ordering::Relaxed) {
            (self.on_miss)(error);
        }
    }

    /// Is it read from the cold store, whatever the hot one has?
    fn is_cold_alone(&self, name: &ObjectName) -> bool {
        // Two who make a repository at once must come to the same. Stretches are data.
        if !name.area.is_directory() || name.area == Area::Stretches {
            return true;
        }
        let Some(id) = name.id().filter(|_| name.area == Area::Packs) else {
            return false;
        };
        let mut packs = lock(&self.hot_packs);
        let packs = packs.get_or_insert_with(|| {
            let mut listed = HashSet::new();
            let found = &mut |info: ObjectInfo| listed.extend(info.name.id());
            if let Err(error) = self.hot.list(Area::Packs, found) {
                self.missed(&error);
            }
            listed
        });
        !packs.contains(&id)
    }

    /// Reads where it is fast, or else where it is.
    fn read<T>(
        &self,
        name: &ObjectName,
        mut read: impl FnMut(&dyn Store, Tier) -> Result<T>,
    ) -> Result<T> {
        if self.is_cold_alone(name) {
            let cold = read(&*self.cold, Tier::Cold);
            return match cold {
                // Not there is an answer; anything else may be the wait for a tape.
                Err(error) if !error.is_not_found() && !name.area.is_directory() => {
                    read(&*self.hot, Tier::Hot).map_err(|_| error)
                }
                answered => answered,
            };
        }
        match read(&*self.hot, Tier::Hot) {
            Ok(answer) => Ok(answer),
            Err(hot) => {
                let answer = read(&*self.cold, Tier::Cold)?;
                self.missed(&hot);
                Ok(answer)
            }
        }
    }
}

fn lock(packs: &HotPacks) -> MutexGuard<'_, Option<HashSet<ObjectId>>> {
    packs.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An object has come into the hot store.
fn came(packs: &HotPacks, name: &ObjectName) {
    if let (Area::Packs, Some(id), Some(packs)) = (name.area, name.id(), lock(packs).as_mut()) {
        packs.insert(id);
    }
}

/// A hot store that rots costs a read of the cold one.
fn check_hash(name: &ObjectName, bytes: Vec<u8>, store: &dyn Store) -> Result<Vec<u8>> {
    match name.id() {
        Some(id) if *blake3::hash(&bytes).as_bytes() != id.0 => Err(StoreError {
            action: "read",
            object: format!("{name} in {}", store.place()),
            source: io::Error::new(
                io::ErrorKind::InvalidData,
                "its bytes are not what its name says",
            ),
        }),
        _ => Ok(bytes),
    }
}

impl Store for TieredStore {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        self.cold.put(name, bytes)?;
        if name.area.is_directory() {
            self.hot.put(name, bytes)?;
            came(&self.hot_packs, name);
            return Ok(());
        }
        // Another's may have been there before.
        let len_max = CONFIG_BYTES_MAX.max(bytes.len() as u64);
        let stored = self.cold.get(name, len_max)?;
        self.hot.put(name, &stored)
    }

    /// One that wants packs whole has them whole for both.
    fn shape(&self) -> StoreShape {
        match (self.cold.shape(), self.hot.shape()) {
            (StoreShape::Streams, of_hot) => of_hot,
            (of_cold, _) => of_cold,
        }
    }

    fn upload(
        &self,
        name: &ObjectName,
        pack: &Bytes,
        content: PackContent,
        again: &mut dyn FnMut(&StoreError),
    ) -> Result<()> {
        self.cold.upload(name, pack, content, again)?;
        if content == PackContent::Metadata {
            self.hot.upload(name, pack, content, again)?;
            came(&self.hot_packs, name);
        }
        Ok(())
    }

    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        self.begin_pack(PackContent::Metadata)
    }

    fn begin_pack(&self, content: PackContent) -> Result<Box<dyn ObjectWriter>> {
        let cold = self.cold.begin_pack(content)?;
        if content == PackContent::Data {
            return Ok(cold);
        }
        Ok(Box::new(TieredWriter {
            cold,
            hot: self.hot.begin_pack(content)?,
            hot_packs: self.hot_packs.clone(),
        }))
    }

    /// Data is in the cold store alone.
    fn takes_streams(&self) -> bool {
        self.cold.takes_streams()
    }

    fn begin_stream(&self) -> Result<Box<dyn ObjectWriter>> {
        self.cold.begin_stream()
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        self.read(name, |store, tier| {
            let bytes = store.get(name, len_max)?;
            match tier {
                Tier::Hot => check_hash(name, bytes, store),
                // Judged by whoever reads it.
                Tier::Cold => Ok(bytes),
            }
        })
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(name, |store, _| store.read_at(name, offset, buf))
    }

    fn expect(&self, next: Next<'_>) {
        match next {
            Next::Upload => self.cold.expect(next),
            Next::Read(name) if self.is_cold_alone(name) => self.cold.expect(next),
            Next::Read(_) => self.hot.expect(next),
        }
    }

    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        self.cold.stat(name)
    }

    /// The cold one has everything.
    fn are_there(&self, names: &[ObjectName]) -> Option<Result<Vec<bool>>> {
        self.cold.are_there(names)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        if area != Area::Keys {
            return self.cold.list(area, found);
        }
        // A key that the cold one has lost opens still: a check names it.
        let mut keys = HashSet::new();
        self.cold.list(area, &mut |info| {
            keys.insert(info.name);
            found(info);
        })?;
        let of_hot = self.hot.list(area, &mut |info| {
            if !keys.contains(&info.name) {
                found(info);
            }
        });
        of_hot.or_else(|error| {
            self.missed(&error);
            Ok(())
        })
    }

    fn list_foreign(&self, area: Area, found: &mut dyn FnMut(ForeignEntry)) -> Result<()> {
        self.hot.list_foreign(area, found)?;
        self.cold.list_foreign(area, found)
    }

    fn delete(&self, name: &ObjectName) -> Result<()> {
        self.hot.delete(name)?;
        if let (Some(id), Some(packs)) = (name.id(), lock(&self.hot_packs).as_mut()) {
            packs.remove(&id);
        }
        self.cold.delete(name)
    }

    fn place(&self) -> String {
        format!(
            "{} with the cold store {}",
            self.hot.place(),
            self.cold.place()
        )
    }

    fn keeps_the_first(&self) -> bool {
        self.cold.keeps_the_first()
    }

    fn is_remote(&self) -> bool {
        self.hot.is_remote() || self.cold.is_remote()
    }

    fn is_tiered(&self) -> bool {
        true
    }

    fn tiers(&self) -> Option<[&dyn Store; 2]> {
        Some([&*self.hot, &*self.cold])
    }

    fn hot_failed(&self, error: &StoreError) {
        self.missed(error);
    }

    /// The hot one is there to be read at once.
    fn cold_classes(&self) -> Option<&dyn ColdClasses> {
        self.cold.cold_classes()
    }

    /// The hot one can be made again.
    fn object_locks(&self) -> Option<&dyn ObjectLocks> {
        self.cold.object_locks()
    }
}

/// A pack of metadata on its way into both.
struct TieredWriter {
    cold: Box<dyn ObjectWriter>,
    hot: Box<dyn ObjectWriter>,
    hot_packs: HotPacks,
}

impl ObjectWriter for TieredWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.cold.append(bytes)?;
        self.hot.append(bytes)
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        let TieredWriter {
            cold,
            hot,
            hot_packs,
        } = *self;
        cold.publish(name)?;
        hot.publish(name)?;
        came(&hot_packs, name);
        Ok(())
    }
}
