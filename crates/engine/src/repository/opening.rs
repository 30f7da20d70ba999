//! Making and opening a repository.

use super::buffers::SpareBuffers;
use super::pack_keys::PackKeys;
use super::slots::find_slot;
use super::{Environment, Repository, draw, make_private_dir};
use crate::error::{Error, Result};
use crate::store::{ObjectName, Store};
use bale_format::config::{Access, Config, UnverifiedConfig};
use bale_format::key_slot::{Secret as SlotSecret, SlotKind};
use bale_format::keys::{Keys, RootKey};
use bale_format::recovery::RecoveryKey;
use bale_format::{ObjectId, RepositoryId};
use std::sync::{Arc, Mutex, RwLock};

/// Bytes of `config` at most.
const CONFIG_BYTES_MAX: u64 = 64 << 10;

/// What a user knows or has.
#[derive(Clone)]
pub enum Secret {
    /// A password.
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
}

impl Repository {
    /// Makes a repository with the given slots and one for a recovery key. Keys first, `config` last.
    pub fn init(
        store: Arc<dyn Store>,
        slots: Vec<NewSlot>,
        environment: Environment,
    ) -> Result<Made> {
        if store.stat(&ObjectName::config())?.is_some() {
            return Err(Error::RepositoryExists(store.place()));
        }
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
        // An object that is there already stays: another process made a repository here since we looked.
        if read_config(&*repository.store)? != bytes {
            for slot in made {
                repository.store.delete(&ObjectName::key(slot))?;
            }
            return Err(Error::RepositoryExists(repository.store.place()));
        }
        Ok(Made {
            repository,
            recovery_key: text.to_string(),
        })
    }

    /// Opens a repository with a secret.
    pub fn open(
        store: Arc<dyn Store>,
        secret: &Secret,
        environment: Environment,
    ) -> Result<Repository> {
        let bytes = read_config(&*store)?;
        let config = UnverifiedConfig::decode(&bytes).map_err(object_error("config"))?;
        let (slot, root) = find_slot(&*store, config.repository(), secret)?;
        let keys = Keys::derive(&root, config.repository());
        let config = config.verify(&keys).map_err(object_error("config"))?;
        config
            .check_access(Access::Read)
            .map_err(object_error("config"))?;
        Ok(Repository::assemble(store, keys, config, environment, slot))
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
            environment,
            slot,
            keys_opened: Mutex::new(vec![slot]),
            index: RwLock::new(None),
            cache: Mutex::default(),
            pack_keys: PackKeys::default(),
            read_afresh: Mutex::default(),
            buffers: SpareBuffers::default(),
        }
    }
}

pub(super) fn created(environment: &Environment) -> i64 {
    environment.clock.time().seconds
}

fn read_config(store: &dyn Store) -> Result<Vec<u8>> {
    match store.get(&ObjectName::config(), CONFIG_BYTES_MAX) {
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::NoRepository(store.place()))
        }
        other => Ok(other?),
    }
}

pub(super) fn object_error(
    object: impl Into<String>,
) -> impl FnOnce(bale_format::error::FormatError) -> Error {
    let object = object.into();
    move |source| Error::Object { object, source }
}

impl Repository {
    /// Makes the directory for spilled runs of one operation; it is empty and private.
    pub fn spill_dir(&self) -> Result<std::path::PathBuf> {
        let dir = self.cache_dir()?.join("spill");
        make_private_dir(&dir)?;
        Ok(dir)
    }
}
