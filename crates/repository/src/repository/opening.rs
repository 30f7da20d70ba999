//! Making, finding and opening a repository.

use super::buffers::SpareBuffers;
use super::config::{CONFIG_BYTES_MAX, unlock};
use super::fetched::FetchedRecords;
use super::first_look::{FirstListings, FirstLook, FirstLooks};
use super::pack_keys::PackKeys;
use super::{Environment, Repository, draw, make_private_dir, try_cache_dir};
use crate::error::{Error, Result, object_error};
use crate::metadata_cache::{MetadataCache, ReportTrouble};
use crate::pack::PackPlan;
use crate::store::{Area, ObjectInfo, ObjectName, Store};
use crate::stretched::{STRETCH_BYTES_USUAL, StretchedStore};
use bale_format::chunk::Compression;
use bale_format::config::{Access, Config};
use bale_format::key_slot::{SlotKind, SlotSecret};
use bale_format::keys::{Keys, RootKey};
use bale_format::recovery::RecoveryKey;
use bale_format::{ObjectId, RepositoryId};
use bale_pipeline::memory::MemoryPlan;
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime};

/// What a user knows or has.
#[derive(Clone)]
pub enum Secret {
    Password(String),
    /// The bytes of a key file.
    KeyFile(Vec<u8>),
    /// A printed recovery key.
    Recovery(RecoveryKey),
}

impl Secret {
    /// The content of a key file; one that holds a recovery key as it was printed counts as that.
    pub fn key_file(bytes: Vec<u8>) -> Secret {
        let text = std::str::from_utf8(&bytes).ok();
        match text.and_then(|text| RecoveryKey::from_text(text).ok()) {
            Some(recovery) => Secret::Recovery(recovery),
            None => Secret::KeyFile(bytes),
        }
    }

    pub(super) fn kind(&self) -> SlotKind {
        match self {
            Secret::Password(_) => SlotKind::Password,
            Secret::KeyFile(_) => SlotKind::KeyFile,
            Secret::Recovery(_) => SlotKind::Recovery,
        }
    }

    pub(super) fn as_slot_secret(&self) -> SlotSecret<'_> {
        match self {
            Secret::Password(password) => SlotSecret::Password(password.as_bytes()),
            Secret::KeyFile(bytes) => SlotSecret::KeyFile(bytes),
            Secret::Recovery(key) => SlotSecret::Recovery(key),
        }
    }
}

/// A slot to be made.
pub struct NewSlot {
    /// Opens it.
    pub secret: Secret,
    /// For people.
    pub label: String,
}

/// A repository just made.
pub struct Made {
    /// Open.
    pub repository: Repository,
    /// To be shown once.
    pub recovery_key: String,
    /// Key slots that were there before, of an init that did not end or is under way: they open
    /// nothing here.
    pub slots_before: Vec<ObjectId>,
    /// Why there is no `config.copy` yet, if there is none: whoever writes next adds it.
    pub copy_missing: Option<Error>,
}

/// Nobody makes a repository of slots that he wrote so long ago.
const INIT_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// How a repository is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InitOptions {
    /// Packs of data go into segments of about so many bytes.
    pub stretch_bytes: Option<u64>,
}

/// A cache for the metadata of a repository that is far away.
pub struct CacheOptions {
    /// Of all its files.
    pub bytes_max: u64,
    /// Is told, once, if it is of no use.
    pub report: ReportTrouble,
}

/// A repository that is there, and not opened yet.
pub struct FoundRepository {
    /// None of one that is near.
    look: Option<FirstLook>,
    store: Arc<dyn Store>,
    environment: Environment,
    cache: Option<Arc<MetadataCache>>,
}

impl FoundRepository {
    /// Opens it with a secret.
    pub fn open(self, secret: &Secret) -> Result<Repository> {
        let Some(look) = self.look else {
            return Repository::open(self.store, secret, self.environment);
        };
        let mut repository = Repository::unlock(&look, self.store, secret, self.environment)?;
        // It knows nothing of packs that are in segments.
        if repository.stretched.is_none() {
            repository.first = look.into_listings();
        }
        repository.metadata = self.cache;
        Ok(repository)
    }
}

impl Repository {
    /// Makes a repository with the given slots and one for a recovery key. Keys first, then
    /// `config`, by which it is one; its copy last, since a lone copy would pass for a repository,
    /// too.
    ///
    /// Of two at once one makes it: the store keeps the first `config`, and whoever reads another
    /// one back removes his slots. Where the store may replace it ([`Store::keeps_the_first`]),
    /// each gives up who finds slots of others beside his own: both wrote theirs before they
    /// looked, so one sees the other, or both do. Slots that are an hour older than his own, by the
    /// store's clock, are of one that did not end, since nobody writes a `config` so late.
    pub fn init(
        store: Arc<dyn Store>,
        slots: Vec<NewSlot>,
        environment: Environment,
    ) -> Result<Made> {
        Repository::init_with(store, slots, environment, InitOptions::default())
    }

    /// Can a repository be made in this store? Asked before a key is written for it.
    pub fn require_room(store: &dyn Store, options: InitOptions) -> Result<()> {
        if options.stretch_bytes.is_some() && !store.takes_streams() {
            return Err(Error::NoStreams(store.place()));
        }
        for name in ObjectName::configs() {
            if store.stat(&name)?.is_some() {
                return Err(Error::RepositoryExists(store.place()));
            }
        }
        Ok(())
    }

    /// The same with all options.
    pub fn init_with(
        store: Arc<dyn Store>,
        slots: Vec<NewSlot>,
        environment: Environment,
        options: InitOptions,
    ) -> Result<Made> {
        Repository::require_room(&*store, options)?;
        let now = environment.clock.now();
        let (mut slots_before, mut are_old) = (Vec::new(), true);
        store.list(Area::Keys, &mut |info| {
            are_old &= is_of_no_init_under_way(&info, Some(now));
            slots_before.extend(info.name.id());
        })?;
        if !are_old && !store.keeps_the_first() {
            return Err(Error::OthersKeys(store.place()));
        }
        let random = &*environment.random;
        let root = RootKey::from_bytes(draw(random)?);
        let id: [u8; 16] = draw(random)?;
        let recovery = RecoveryKey::from_bytes(draw(random)?);
        let keys = Keys::derive(&root, RepositoryId(id));
        let config = new_config(id, &*store, &environment, options);
        let mut repository =
            Repository::assemble(store, keys, config, environment, ObjectId::default());
        let text = recovery.to_text();
        let mut slots = slots;
        slots.push(NewSlot {
            secret: Secret::Recovery(recovery),
            label: "recovery key".to_owned(),
        });
        let bytes = repository.make_with_slots(&root, slots)?;
        // The repository is there, and its recovery key must be shown, whatever comes.
        let copied = repository.store.put(&ObjectName::config_copy(), &bytes);
        Ok(Made {
            repository,
            recovery_key: text.to_string(),
            slots_before,
            copy_missing: copied.err().map(Error::from),
        })
    }

    /// Writes slots and `config`, which is returned. Whoever gives up before his `config` may be
    /// there removes the slots that he made, as far as he may delete.
    fn make_with_slots(&mut self, root: &RootKey, slots: Vec<NewSlot>) -> Result<Vec<u8>> {
        let mut made = Vec::new();
        match self.try_to_make(root, slots, &mut made) {
            Ok(bytes) => Ok(bytes),
            // It may come still, and its slots are all that opens it.
            Err(GivenUp::InDoubt(error)) => Err(error),
            Err(GivenUp::Surely(error)) => {
                let left = remove_slots(&*self.store, &made);
                match left.is_empty() {
                    true => Err(error),
                    false => Err(Error::OwnKeysLeft {
                        why: error.to_string(),
                        left: left.join(", "),
                    }),
                }
            }
        }
    }

    fn try_to_make(
        &mut self,
        root: &RootKey,
        slots: Vec<NewSlot>,
        made: &mut Vec<ObjectId>,
    ) -> std::result::Result<Vec<u8>, GivenUp> {
        let began = self.environment.clock.now();
        for (number, slot) in slots.iter().enumerate() {
            let id = self.add_slot(root, slot)?;
            made.push(id);
            // The last is for the recovery key, and nobody opens with that now.
            if number + 1 < slots.len() {
                self.slot = id;
            }
        }
        if !self.store.keeps_the_first() && has_other_slots(&*self.store, made)? {
            return Err(Error::OthersKeys(self.store.place()).into());
        }
        let encoded = self.config.encode(&self.keys);
        let bytes = encoded.map_err(object_error("new config"))?;
        // Others will not wait for this one any more.
        let took = self.environment.clock.now().duration_since(began);
        if !took.is_ok_and(|took| took < INIT_AGE_MAX / 2) {
            let text = "making the repository stood still for too long, or the clock was set: \
                nothing is made, try again";
            return Err(Error::Other(text.to_owned()).into());
        }
        let put = self.store.put(&ObjectName::config(), &bytes);
        put.map_err(|error| match error.may_pass() || self.has_config(&bytes) {
            true => GivenUp::InDoubt(error.into()),
            false => GivenUp::Surely(error.into()),
        })?;
        // An object that is there already stays: another process made a repository here since we
        // looked.
        let stored = self.store.get(&ObjectName::config(), CONFIG_BYTES_MAX);
        match stored.map_err(|error| GivenUp::InDoubt(error.into()))? == bytes {
            true => Ok(bytes),
            false => Err(Error::RepositoryExists(self.store.place()).into()),
        }
    }

    /// Are these the bytes of `config`, or does nobody know?
    fn has_config(&self, bytes: &[u8]) -> bool {
        match self.store.get(&ObjectName::config(), CONFIG_BYTES_MAX) {
            Ok(there) => there == bytes,
            Err(error) => !error.is_not_found(),
        }
    }

    /// Opens a repository with a secret.
    pub fn open(
        store: Arc<dyn Store>,
        secret: &Secret,
        environment: Environment,
    ) -> Result<Repository> {
        Repository::unlock(&*store, store.clone(), secret, environment)
    }

    /// Looks for a repository that may be far away; what is missing is an error now, before
    /// anybody is asked for a secret. In a store that is near, opening looks.
    pub fn find(
        store: Arc<dyn Store>,
        environment: Environment,
        looks: FirstLooks,
        cache: Option<CacheOptions>,
    ) -> Result<FoundRepository> {
        if !store.is_remote() {
            return Ok(FoundRepository {
                look: None,
                store,
                environment,
                cache: None,
            });
        }
        let mut look = FirstLook::at(store.clone(), looks, environment.clock.now());
        let id = look.id_in_config()?;
        let cache = cache.zip(id).and_then(|(options, id)| {
            let dir = environment.cache_dir.join(id.to_string());
            // Whoever opens says what is the matter with it.
            try_cache_dir(&dir).ok()?;
            let dir = dir.join("metadata");
            Some(MetadataCache::new(dir, options.bytes_max, options.report))
        });
        look.go_on(looks, cache.as_ref());
        Ok(FoundRepository {
            look: Some(look),
            store,
            environment,
            cache: cache.map(Arc::new),
        })
    }

    fn unlock(
        from: &dyn Store,
        store: Arc<dyn Store>,
        secret: &Secret,
        environment: Environment,
    ) -> Result<Repository> {
        let found = unlock(from, secret)?;
        // A hot store alone is only read, and has no segments.
        let is_hot_alone = found.config.has_cold_store() && !store.is_tiered();
        if found.config.has_stretches() && !store.takes_streams() && !is_hot_alone {
            return Err(Error::NoStreams(store.place()));
        }
        let mut repository =
            Repository::assemble(store, found.keys, found.config, environment, found.slot);
        repository.config_trouble = found.trouble;
        repository.check_access(Access::Read)?;
        if repository.store.is_tiered() && !repository.config.has_cold_store() {
            return Err(Error::NoColdStore(repository.store.place()));
        }
        Ok(repository)
    }

    /// The same repository where another store holds it, with the same keys and cache: what is
    /// read there is checked as ever.
    pub fn in_store(&self, store: Arc<dyn Store>) -> Repository {
        let mut other = Repository::assemble(
            store,
            self.keys.clone(),
            self.config.clone(),
            self.environment.clone(),
            self.slot,
        );
        other.memory = self.memory;
        other
    }

    /// Refuses what this program does not know how to do to this repository.
    pub fn check_access(&self, access: Access) -> Result<()> {
        let known = self.config.check_access(access);
        known.map_err(object_error("config"))?;
        match access {
            Access::Write | Access::Delete if self.is_one_of_two() => {
                Err(Error::OneOfTwoStores(self.store.place()))
            }
            _ => Ok(()),
        }
    }

    /// Has the repository a hot and a cold store, of which one is here alone? Then it is only read.
    pub fn is_one_of_two(&self) -> bool {
        self.config.has_cold_store() && !self.store.is_tiered()
    }

    fn assemble(
        store: Arc<dyn Store>,
        keys: Keys,
        config: Config,
        environment: Environment,
        slot: ObjectId,
    ) -> Repository {
        let memory = MemoryPlan::default();
        let stretched = config.has_stretches().then(|| {
            let random = environment.random.clone();
            let bytes = config.stretch_bytes.unwrap_or(STRETCH_BYTES_USUAL);
            let stretched = StretchedStore::new(store.clone(), keys.clone(), random, bytes);
            Arc::new(stretched)
        });
        let store = match &stretched {
            Some(stretched) => stretched.clone(),
            None => store,
        };
        Repository {
            pack_plan: PackPlan::of(store.shape(), &memory),
            compression: Compression::Auto,
            store,
            stretched,
            keys,
            config,
            config_trouble: None,
            environment,
            slot,
            keys_opened: Mutex::new(vec![slot]),
            index: RwLock::new(None),
            index_objects_deleted: Mutex::default(),
            cache: Mutex::default(),
            pack_keys: PackKeys::default(),
            read_afresh: Mutex::default(),
            first: FirstListings::default(),
            metadata: None,
            fetched: FetchedRecords::default(),
            buffers: SpareBuffers::default(),
            memory,
        }
    }
}

fn new_config(
    id: [u8; 16],
    store: &dyn Store,
    environment: &Environment,
    options: InitOptions,
) -> Config {
    let config = Config::new(RepositoryId(id), created(environment));
    let config = match store.is_tiered() {
        true => config.with_cold_store(),
        false => config,
    };
    match options.stretch_bytes {
        Some(bytes) => config.with_stretches(bytes),
        None => config,
    }
}

/// Does somebody else make a repository there?
fn has_other_slots(store: &dyn Store, own: &[ObjectId]) -> Result<bool> {
    let (mut others, mut made_last) = (Vec::new(), None);
    store.list(
        Area::Keys,
        &mut |info| match info.name.id().is_some_and(|id| own.contains(&id)) {
            true => made_last = made_last.max(info.modified),
            false => others.push(info),
        },
    )?;
    Ok((others.iter()).any(|info| !is_of_no_init_under_way(info, made_last)))
}

/// Is a slot so old at a moment of the store's clock that whoever made it has ended? Where the
/// store has no times, nobody knows.
fn is_of_no_init_under_way(slot: &ObjectInfo, moment: Option<SystemTime>) -> bool {
    let times = slot.modified.zip(moment);
    let age = times.and_then(|(made, moment)| moment.duration_since(made).ok());
    age.is_some_and(|age| age >= INIT_AGE_MAX)
}

/// Returns the paths of those that cannot be removed.
fn remove_slots(store: &dyn Store, slots: &[ObjectId]) -> Vec<String> {
    let names = slots.iter().map(|slot| ObjectName::key(*slot));
    let left = names.filter(|name| store.delete(name).is_err());
    left.map(|name| name.path()).collect()
}

/// Why no repository was made.
enum GivenUp {
    /// And none will be there.
    Surely(Error),
    /// One may be there, or come.
    InDoubt(Error),
}

impl From<Error> for GivenUp {
    fn from(error: Error) -> GivenUp {
        GivenUp::Surely(error)
    }
}

pub(super) fn created(environment: &Environment) -> i64 {
    environment.clock.time().seconds
}

impl Repository {
    /// Makes the directory for spilled runs of one operation; it is empty and private.
    pub fn spill_dir(&self) -> Result<std::path::PathBuf> {
        let dir = self.cache_dir()?.join("spill");
        make_private_dir(&dir)?;
        Ok(dir)
    }
}
