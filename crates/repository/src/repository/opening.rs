//! Making and opening a repository.

use super::buffers::SpareBuffers;
use super::config::{CONFIG_BYTES_MAX, unlock};
use super::pack_keys::PackKeys;
use super::{Environment, Repository, draw, make_private_dir};
use crate::error::{Error, Result, object_error};
use crate::store::{Area, ObjectName, Store};
use bale_format::config::{Access, Config};
use bale_format::key_slot::{SlotKind, SlotSecret};
use bale_format::keys::{Keys, RootKey};
use bale_format::recovery::RecoveryKey;
use bale_format::{ObjectId, RepositoryId};
use bale_pipeline::memory::MemoryPlan;
use std::sync::{Arc, Mutex, RwLock};

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

impl Repository {
    /// Makes a repository with the given slots and one for a recovery key. Keys first, then
    /// `config`, by which it is one; its copy last, since a lone copy would pass for a repository,
    /// too.
    pub fn init(
        store: Arc<dyn Store>,
        slots: Vec<NewSlot>,
        environment: Environment,
    ) -> Result<Made> {
        for name in ObjectName::configs() {
            if store.stat(&name)?.is_some() {
                return Err(Error::RepositoryExists(store.place()));
            }
        }
        let mut slots_before = Vec::new();
        store.list(Area::Keys, &mut |info| slots_before.extend(info.name.id()))?;
        let random = &*environment.random;
        let root = RootKey::from_bytes(draw(random)?);
        let id: [u8; 16] = draw(random)?;
        let recovery = RecoveryKey::from_bytes(draw(random)?);
        let keys = Keys::derive(&root, RepositoryId(id));
        let config = Config::new(RepositoryId(id), created(&environment));
        let mut repository =
            Repository::assemble(store, keys, config, environment, ObjectId::default());
        let mut made = Vec::new();
        for slot in slots {
            repository.slot = repository.add_slot(&root, &slot)?;
            made.push(repository.slot);
        }
        let text = recovery.to_text();
        let label = "recovery key".to_owned();
        made.push(repository.add_slot(
            &root,
            &NewSlot {
                secret: Secret::Recovery(recovery),
                label,
            },
        )?);
        let bytes = repository
            .config
            .encode(&repository.keys)
            .map_err(object_error("new config"))?;
        repository.store.put(&ObjectName::config(), &bytes)?;
        // An object that is there already stays: another process made a repository here since we
        // looked.
        let stored = repository
            .store
            .get(&ObjectName::config(), CONFIG_BYTES_MAX)?;
        if stored != bytes {
            for slot in made {
                repository.store.delete(&ObjectName::key(slot))?;
            }
            return Err(Error::RepositoryExists(repository.store.place()));
        }
        // The repository is there, and its recovery key must be shown, whatever comes.
        let copied = repository.store.put(&ObjectName::config_copy(), &bytes);
        Ok(Made {
            repository,
            recovery_key: text.to_string(),
            slots_before,
            copy_missing: copied.err().map(Error::from),
        })
    }

    /// Opens a repository with a secret.
    pub fn open(
        store: Arc<dyn Store>,
        secret: &Secret,
        environment: Environment,
    ) -> Result<Repository> {
        let found = unlock(&*store, secret)?;
        let mut repository =
            Repository::assemble(store, found.keys, found.config, environment, found.slot);
        repository.config_trouble = found.trouble;
        repository.check_access(Access::Read)?;
        Ok(repository)
    }

    /// Refuses what this program does not know how to do to this repository.
    pub fn check_access(&self, access: Access) -> Result<()> {
        self.config
            .check_access(access)
            .map_err(object_error("config"))
    }

    fn assemble(
        store: Arc<dyn Store>,
        keys: Keys,
        config: Config,
        environment: Environment,
        slot: ObjectId,
    ) -> Repository {
        Repository {
            store,
            keys,
            config,
            config_trouble: None,
            environment,
            slot,
            keys_opened: Mutex::new(vec![slot]),
            index: RwLock::new(None),
            cache: Mutex::default(),
            pack_keys: PackKeys::default(),
            read_afresh: Mutex::default(),
            buffers: SpareBuffers::default(),
            memory: MemoryPlan::default(),
        }
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
