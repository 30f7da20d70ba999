//! Making and opening a repository, and its key slots.

use super::buffers::SpareBuffers;
use super::{Environment, Repository, draw, make_private_dir};
use crate::error::{Error, Result};
use crate::store::{Area, ObjectName, Store};
use bale_format::config::{Access, Config, UnverifiedConfig};
use bale_format::error::FormatError;
use bale_format::key_slot::{KeySlot, PasswordCost, Secret as SlotSecret, SlotKind};
use bale_format::keys::{Keys, RootKey};
use bale_format::recovery::RecoveryKey;
use bale_format::{ObjectId, RepositoryId};
use std::sync::{Arc, Mutex, RwLock};

/// Key slots tried at most: each password slot costs a key derivation.
const SLOTS_TRIED_MAX: usize = 64;
/// Bytes of `config` at most.
const CONFIG_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a key slot at most.
const SLOT_BYTES_MAX: u64 = 16 << 10;

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

    fn kind(&self) -> SlotKind {
        match self {
            Secret::Password(_) => SlotKind::Password,
            Secret::KeyFile(_) => SlotKind::KeyFile,
            Secret::Recovery(_) => SlotKind::Recovery,
        }
    }

    fn as_slot_secret(&self) -> SlotSecret<'_> {
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

/// A slot as it is listed.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// Name.
    pub id: ObjectId,
    /// `password`, `keyfile`, `recovery`.
    pub kind: &'static str,
    /// For people.
    pub label: String,
    /// Seconds since 1970.
    pub created: i64,
    /// The one that opened this repository.
    pub current: bool,
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
            index: RwLock::new(None),
            cache: Mutex::default(),
            pack_keys: Mutex::default(),
            buffers: SpareBuffers::default(),
        }
    }

    /// Adds a slot; the secret that opened this repository proves the right to.
    pub fn add_key(&self, secret: &Secret, new: &NewSlot) -> Result<ObjectId> {
        self.check_access(Access::Write)?;
        let (_, root) = find_slot(&*self.store, self.id(), secret)?;
        self.add_slot(&root, new)
    }

    /// Adds a slot for a fresh recovery key and tells the key.
    pub fn add_recovery_key(&self, secret: &Secret, label: &str) -> Result<(ObjectId, String)> {
        let recovery = RecoveryKey::from_bytes(draw(self.random())?);
        let text = recovery.to_text().to_string();
        let new = NewSlot {
            secret: Secret::Recovery(recovery),
            label: label.to_owned(),
        };
        Ok((self.add_key(secret, &new)?, text))
    }

    /// Removes a slot by the beginning of its id; the last one stays.
    pub fn remove_key(&self, prefix: &str) -> Result<ObjectId> {
        self.check_access(Access::Write)?;
        let slots = self.list_keys()?;
        let matching: Vec<_> = slots
            .iter()
            .filter(|slot| slot.id.to_string().starts_with(prefix))
            .collect();
        let [slot] = matching[..] else {
            let text = format!(
                "{} keys match {prefix:?} (bale key list shows them)",
                matching.len()
            );
            return Err(Error::Other(text));
        };
        if slots.len() == 1 {
            return Err(Error::Other(
                "this is the only key: without it nobody could read the backups".to_owned(),
            ));
        }
        self.store.delete(&ObjectName::key(slot.id))?;
        Ok(slot.id)
    }

    /// All slots, oldest first.
    pub fn list_keys(&self) -> Result<Vec<SlotInfo>> {
        let mut slots = Vec::new();
        for id in slot_ids(&*self.store)? {
            let slot = read_slot(&*self.store, id)?;
            slots.push(SlotInfo {
                id,
                kind: kind_name(slot.kind()),
                label: slot.label().to_owned(),
                created: slot.created(),
                current: id == self.slot,
            });
        }
        slots.sort_by_key(|slot| (slot.created, slot.id));
        Ok(slots)
    }

    fn add_slot(&self, root: &RootKey, new: &NewSlot) -> Result<ObjectId> {
        let slot = bale_format::key_slot::NewSlot {
            label: &new.label,
            created: created(&self.environment),
            salt: self.salt()?,
            cost: PasswordCost::default(),
        };
        let slot = KeySlot::create(root, self.id(), new.secret.as_slot_secret(), &slot);
        let bytes = slot.map_err(object_error("new key slot"))?.encode();
        let id = ObjectId(*blake3::hash(&bytes).as_bytes());
        self.store.put(&ObjectName::key(id), &bytes)?;
        Ok(id)
    }
}

fn created(environment: &Environment) -> i64 {
    environment.clock.time().seconds
}

fn kind_name(kind: SlotKind) -> &'static str {
    match kind {
        SlotKind::Password => "password",
        SlotKind::KeyFile => "keyfile",
        SlotKind::Recovery => "recovery",
    }
}

fn read_config(store: &dyn Store) -> Result<Vec<u8>> {
    match store.get(&ObjectName::config(), CONFIG_BYTES_MAX) {
        Err(error) if error.source.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::NoRepository(store.place()))
        }
        other => Ok(other?),
    }
}

fn slot_ids(store: &dyn Store) -> Result<Vec<ObjectId>> {
    let mut ids = Vec::new();
    store.list(Area::Keys, &mut |info| ids.extend(info.name.id()))?;
    Ok(ids)
}

fn read_slot(store: &dyn Store, id: ObjectId) -> Result<KeySlot> {
    let name = ObjectName::key(id);
    let bytes = store.get(&name, SLOT_BYTES_MAX)?;
    KeySlot::decode(&bytes).map_err(object_error(name.to_string()))
}

/// Tries the slots of the secret's kind. A slot that cannot be read does not hide the others.
fn find_slot(
    store: &dyn Store,
    repository: RepositoryId,
    secret: &Secret,
) -> Result<(ObjectId, RootKey)> {
    let mut trouble = None;
    for id in slot_ids(store)?.into_iter().take(SLOTS_TRIED_MAX) {
        let slot = match read_slot(store, id) {
            Ok(slot) if slot.kind() == secret.kind() => slot,
            Ok(_) => continue,
            Err(error) => {
                trouble.get_or_insert(error);
                continue;
            }
        };
        match slot.open(repository, secret.as_slot_secret()) {
            Ok(root) => return Ok((id, root)),
            Err(FormatError::WrongKey) => {}
            Err(error) => {
                trouble.get_or_insert(object_error(ObjectName::key(id).to_string())(error));
            }
        }
    }
    Err(trouble.unwrap_or(Error::WrongKey))
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
