//! A repository: a store, the keys that open it, and the index of its chunks.
//!
//! Objects are sealed and named here, and nowhere else. Opening reads `config`, its copy and a key
//! slot; the index is read when it is first needed. Nothing here decides what is stored or deleted.

mod at_once;
mod buffers;
mod cache;
mod chunks;
mod config;
mod fetched;
mod first_look;
mod flights;
mod from_cold;
mod marks;
mod moved;
mod named_packs;
mod objects;
mod opening;
mod pack_keys;
mod sealed_file;
mod slots;

pub use config::{CONFIG_BYTES_MAX, READS_BEFORE_MENDING, fault_text};
pub use config::{ConfigFault, ConfigTrouble};
pub use first_look::FirstLooks;
pub use flights::ChunkFlights;
pub use marks::{DamageMark, DamageMarks};
pub use named_packs::NamedPacks;
pub use objects::{CondemnedList, ListedPacks, Readable, UnreliablePacks};
pub use objects::{condemned_advice, is_damage};
pub use opening::{CacheOptions, FoundRepository, InitOptions, Made, NewSlot, Secret};
pub use sealed_file::SealedFile;
pub use slots::{SlotInfo, SlotState, opens_with_key_file};

use crate::error::{Error, Result};
use crate::index::ChunkIndex;
use crate::metadata_cache::MetadataCache;
use crate::pack::PackPlan;
use crate::store::{ObjectName, Store};
use crate::stretched::StretchedStore;
use bale_format::chunk::Compression;
use bale_format::config::Config;
use bale_format::keys::Keys;
use bale_format::{ObjectId, RepositoryId, Snapshot};
use bale_pipeline::clock::Clock;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::random::Random;
use buffers::SpareBuffers;
use cache::ChunkCache;
use fetched::FetchedRecords;
use first_look::FirstListings;
use pack_keys::PackKeys;
use std::collections::HashSet;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::SystemTime;

/// What an engine needs from outside besides a store.
#[derive(Clone)]
pub struct Environment {
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Salts and ids.
    pub random: Arc<dyn Random>,
    /// For spilled runs and what can be rebuilt; made when needed.
    pub cache_dir: PathBuf,
}

/// An open repository.
pub struct Repository {
    store: Arc<dyn Store>,
    /// The same, of a repository with segments.
    stretched: Option<Arc<StretchedStore>>,
    keys: Keys,
    config: Config,
    /// As of opening.
    config_trouble: Option<ConfigTrouble>,
    environment: Environment,
    slot: ObjectId,
    /// Slots that opened with their secret in this process: the one above, and those added since.
    keys_opened: Mutex<Vec<ObjectId>>,
    index: RwLock<Option<Arc<ChunkIndex>>>,
    /// Index objects that were deleted here: a store whose listings come behind lists them still.
    index_objects_deleted: Mutex<HashSet<ObjectName>>,
    cache: Mutex<ChunkCache>,
    /// When a reader that missed a pack read the index afresh in vain.
    read_afresh: Mutex<Option<SystemTime>>,
    /// Of a repository that is far away.
    first: FirstListings,
    metadata: Option<Arc<MetadataCache>>,
    fetched: FetchedRecords,
    pack_keys: PackKeys,
    buffers: SpareBuffers,
    memory: MemoryPlan,
    pack_plan: PackPlan,
    compression: Compression,
}

/// A snapshot (or the record of an unfinished run) with its id.
pub type Named = (ObjectId, Snapshot);

impl Repository {
    /// Its identity.
    pub fn id(&self) -> RepositoryId {
        self.keys.repository()
    }

    /// Keys derived from the root key.
    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Format and parameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Where its objects are.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The segments in which its packs of data are, if it has them.
    pub fn stretched(&self) -> Option<&Arc<StretchedStore>> {
        self.stretched.as_ref()
    }

    /// Makes packs durable that were uploaded before: in a segment, they are that once it is
    /// closed. To be called before packs are named.
    pub fn settle(&self) -> Result<()> {
        match &self.stretched {
            Some(stretched) => Ok(stretched.settle()?),
            None => Ok(()),
        }
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.environment.clock
    }

    /// The source of salts.
    pub fn random(&self) -> &dyn Random {
        &*self.environment.random
    }

    /// The key slot that opened it.
    pub fn slot(&self) -> ObjectId {
        self.slot
    }

    /// A directory of this repository's own for what can be rebuilt at any time.
    pub fn cache_dir(&self) -> Result<PathBuf> {
        let dir = self.environment.cache_dir.join(self.id().to_string());
        make_private_dir(&dir)?;
        Ok(dir)
    }

    /// Uses another directory for its cache from now on.
    pub fn move_cache(&mut self, cache_dir: PathBuf) {
        // One that goes with this process is no help.
        self.metadata = None;
        self.environment.cache_dir = cache_dir;
    }

    /// Keeps to this from now on.
    pub fn set_memory(&mut self, memory: MemoryPlan) {
        self.memory = memory;
        self.pack_plan = PackPlan::of(self.store.shape(), &memory);
    }

    /// The same for an operation that writes packs, in this way: everything else takes what they
    /// leave.
    pub fn set_memory_to_write(&mut self, memory: MemoryPlan, pack_plan: PackPlan) {
        self.memory = pack_plan.beside(&memory);
        self.pack_plan = pack_plan;
    }

    /// Compresses contents so from now on.
    pub fn set_compression(&mut self, compression: Compression) {
        self.compression = compression;
    }

    /// How contents that are stored are compressed.
    pub fn compression(&self) -> Compression {
        self.compression
    }

    /// How packs are made.
    pub fn pack_plan(&self) -> PackPlan {
        self.pack_plan
    }

    /// What operations on it may take.
    pub fn memory(&self) -> MemoryPlan {
        self.memory
    }

    /// Can its cache be made and written? An error says what is in the way.
    pub fn try_cache(&self) -> Result<()> {
        try_cache_dir(&self.environment.cache_dir.join(self.id().to_string()))
    }

    /// What only the holder of the repository's key can say of these bytes: seals files of the
    /// cache.
    pub fn cache_seal(&self, bytes: &[u8]) -> [u8; 16] {
        let key = blake3::derive_key("bale 1 cache", self.keys.content_key());
        let hash = blake3::keyed_hash(&key, bytes);
        let mut seal = [0; 16];
        seal.copy_from_slice(&hash.as_bytes()[..16]);
        seal
    }

    /// 32 fresh random bytes.
    pub fn salt(&self) -> Result<[u8; 32]> {
        draw(&*self.environment.random)
    }

    /// All snapshots, oldest first. One that cannot be read is an error: use
    /// [`Repository::snapshots_readable`] to go on.
    pub fn snapshots(&self) -> Result<Vec<Named>> {
        let (snapshots, mut damaged) = self.snapshots_readable()?;
        match damaged.pop() {
            None => Ok(snapshots),
            Some((_, error)) => Err(error),
        }
    }
}

/// Random bytes; without them nothing may be sealed.
fn draw<const N: usize>(random: &dyn Random) -> Result<[u8; N]> {
    bale_pipeline::random::draw(random)
        .map_err(|error| Error::Other(format!("draw random bytes: {error}")))
}

/// Makes a directory of a cache and tries whether it can be written. An error says what is in the
/// way.
pub fn try_cache_dir(dir: &Path) -> Result<()> {
    make_private_dir(dir)?;
    let failed = Error::local("write in", dir);
    // The name is not guessed and the file is gone at once. Its bytes tell a full disk.
    let probe = bale_pipeline::private_dir::name_beside(&dir.join("probe"));
    let tried = probe.and_then(|probe| {
        let written = bale_pipeline::private_dir::create_new(&probe)
            .and_then(|mut file| file.write_all(&[0; PROBE_BYTES]));
        let removed = std::fs::remove_file(&probe);
        written.and(removed)
    });
    tried.map_err(failed)
}

/// What a disk that is full does not take.
const PROBE_BYTES: usize = 16 << 10;

/// A directory of the cache, and nobody else's.
fn make_private_dir(dir: &Path) -> Result<()> {
    bale_pipeline::private_dir::make(dir)?;
    let tag = dir.join("CACHEDIR.TAG");
    let written = bale_pipeline::private_dir::create_new(&tag)
        .and_then(|mut file| file.write_all(CACHEDIR_TAG.as_bytes()));
    match written.map_err(|error| (error.kind(), error)) {
        Ok(()) | Err((ErrorKind::AlreadyExists, _)) => Ok(()),
        // A courtesy, and no reason to refuse what may need no room. The next one makes it, not
        // half of it.
        Err((ErrorKind::StorageFull | ErrorKind::QuotaExceeded, _)) => {
            let _there_may_be_none = std::fs::remove_file(&tag);
            Ok(())
        }
        Err((_, error)) => Err(Error::local("write", tag)(error)),
    }
}

/// So that backups of the machine leave the cache out.
const CACHEDIR_TAG: &str =
    "Signature: 8a477f597d28d172789f06886806bc55\n# Cache of bale: can be removed at any time.\n";
