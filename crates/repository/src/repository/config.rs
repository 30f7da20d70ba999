//! `config` and its copy: which of the two is believed, and what is wrong with the other.
//! docs/FORMAT.md, section 2.
//!
//! Sound is the one under whose id a key slot opens and whose second line is that of the root key;
//! nothing is taken from the other. Where both are sound they say the same, or the repository is
//! refused. Nothing here writes but `rewrite_config`, and that only what was read and found sound a
//! moment before; whoever calls it has had both read several times, and found the same each time.

use super::slots::find_slot;
use super::{Repository, Secret};
use crate::error::{Error, Result, object_error};
use crate::store::{ObjectName, Store, StoreError};
use bale_format::ObjectId;
use bale_format::config::{Config, UnverifiedConfig, is_authentic};
use bale_format::error::FormatError;
use bale_format::keys::Keys;

/// Bytes of either of them at most.
pub const CONFIG_BYTES_MAX: u64 = bale_format::limits::CONFIG_BYTES_MAX as u64;

/// So many reads must find the same wrong before one of the two is written again: a store, or the
/// way to it, may garble an answer now and then, and what is stored is whole.
pub const READS_BEFORE_MENDING: usize = 3;

/// What is wrong with one of the two while the other is sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigTrouble {
    /// Which one.
    pub name: ObjectName,
    pub fault: ConfigFault,
}

/// How one of the two is not sound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFault {
    Missing,
    /// It is no file, is too long, or the store fails; why.
    Unreadable(String),
    /// It has other bytes; what is wrong with them.
    Damaged(String),
}

impl ConfigTrouble {
    /// The one that is sound.
    pub fn sound(&self) -> ObjectName {
        let [config, copy] = ObjectName::configs();
        if self.name == config { copy } else { config }
    }

    /// For somebody whose command goes on with the other one.
    pub fn note(&self) -> String {
        let (name, sound) = (self.name, self.sound());
        let how = match &self.fault {
            ConfigFault::Missing => "is missing".to_owned(),
            ConfigFault::Unreadable(text) => format!("cannot be read ({text})"),
            ConfigFault::Damaged(_) => "is damaged".to_owned(),
        };
        format!("{name} {how}; using {sound}. `bale repair config` writes it again")
    }
}

impl ConfigFault {
    /// What is wrong, without a name.
    pub fn text(&self) -> &str {
        match self {
            ConfigFault::Missing => "missing",
            ConfigFault::Unreadable(text) | ConfigFault::Damaged(text) => text,
        }
    }
}

/// Both as they were found, judged by keys.
pub struct Judged {
    config: Config,
    /// Of a sound one.
    bytes: Vec<u8>,
    /// Of the other one, where it is not sound and was read.
    unsound: Option<Vec<u8>>,
    pub trouble: Option<ConfigTrouble>,
}

impl Judged {
    /// What both should be.
    pub fn intact_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A repository that a secret opens.
pub(super) struct Unlocked {
    pub(super) slot: ObjectId,
    pub(super) keys: Keys,
    pub(super) config: Config,
    pub(super) trouble: Option<ConfigTrouble>,
}

/// Finds the one that the secret opens, and judges both by its keys.
pub(super) fn unlock(store: &dyn Store, secret: &Secret) -> Result<Unlocked> {
    let found = ObjectName::configs().map(|name| ConfigFile::read(store, name));
    if found
        .iter()
        .all(|one| matches!(one.read, ConfigBytes::Missing))
    {
        return Err(Error::NoRepository(store.place()));
    }
    let is_copied = found[0].bytes().is_some() && found[0].bytes() == found[1].bytes();
    let mut refusals = Vec::new();
    // A copy that is one opens no more than what it is a copy of.
    for one in found.iter().take(if is_copied { 1 } else { 2 }) {
        match one.unlock(store, secret) {
            Ok((slot, keys)) => {
                let judged = judge(store, &found, &keys)?;
                return Ok(Unlocked {
                    slot,
                    keys,
                    config: judged.config,
                    trouble: judged.trouble,
                });
            }
            Err(refusal) => refusals.push(refusal),
        }
    }
    Err(nothing_opens(store, found, refusals))
}

impl Repository {
    /// What was wrong with `config` or its copy when the repository was opened.
    pub fn config_trouble(&self) -> Option<&ConfigTrouble> {
        self.config_trouble.as_ref()
    }

    /// Reads and judges both once more.
    pub fn judge_configs(&self) -> Result<Judged> {
        let store = &*self.store;
        let found = ObjectName::configs().map(|name| ConfigFile::read(store, name));
        judge(store, &found, &self.keys)
    }

    /// The same as often as it takes to believe that one of the two is not sound: `None` if that
    /// was found at first, and not, or not the same, when the store was asked again.
    pub fn judge_configs_surely(&self) -> Result<Option<Judged>> {
        let first = self.judge_configs()?;
        if first.trouble.is_none() {
            return Ok(Some(first));
        }
        for _ in 1..READS_BEFORE_MENDING {
            let again = self.judge_configs()?;
            if again.trouble != first.trouble || again.unsound != first.unsound {
                return Ok(None);
            }
        }
        Ok(Some(first))
    }

    /// Writes again the one that is not sound. A crash in between leaves the sound one, which is
    /// enough.
    pub fn rewrite_config(&self, judged: &Judged, trouble: &ConfigTrouble) -> Result<()> {
        let name = trouble.name;
        if trouble.fault != ConfigFault::Missing {
            (self.store.delete(&name))
                .map_err(|error| Error::Other(format!("{error}: move it away, and try again")))?;
        }
        self.store.put(&name, &judged.bytes)?;
        match self.judge_configs()?.trouble {
            None => Ok(()),
            Some(trouble) => Err(Error::Other(format!(
                "{name} was rewritten, and is still not valid: {}",
                trouble.fault.text()
            ))),
        }
    }
}

/// One of the two as it was read.
struct ConfigFile {
    name: ObjectName,
    read: ConfigBytes,
}

enum ConfigBytes {
    Missing,
    Unreadable(StoreError),
    Bytes(Vec<u8>),
}

/// Why one of the two opens nothing.
enum ConfigRefusal {
    /// It cannot be read.
    Unread,
    /// It does not decode, or its second line is not that of the key that opened.
    Config(FormatError),
    /// A slot has this secret, and does not open under the id.
    Id(Error),
    /// No slot has this secret.
    Keys(Error),
}

/// Proven by the root key.
struct ProvenConfig {
    config: Config,
    line: Vec<u8>,
    bytes: Vec<u8>,
}

impl ConfigFile {
    fn read(store: &dyn Store, name: ObjectName) -> ConfigFile {
        let read = match store.get(&name, CONFIG_BYTES_MAX) {
            Ok(bytes) => ConfigBytes::Bytes(bytes),
            Err(error) if error.is_not_found() => ConfigBytes::Missing,
            Err(error) => ConfigBytes::Unreadable(error),
        };
        ConfigFile { name, read }
    }

    fn bytes(&self) -> Option<&[u8]> {
        match &self.read {
            ConfigBytes::Bytes(bytes) => Some(bytes),
            ConfigBytes::Missing | ConfigBytes::Unreadable(_) => None,
        }
    }

    /// The keys that the secret gives under the id in it, if they prove it.
    fn unlock(
        &self,
        store: &dyn Store,
        secret: &Secret,
    ) -> std::result::Result<(ObjectId, Keys), ConfigRefusal> {
        let bytes = self.bytes().ok_or(ConfigRefusal::Unread)?;
        let config = UnverifiedConfig::decode(bytes).map_err(ConfigRefusal::Config)?;
        let id = config.repository();
        let (slot, root) = find_slot(store, id, secret).map_err(|error| match error {
            Error::Object { .. } => ConfigRefusal::Id(error),
            error => ConfigRefusal::Keys(error),
        })?;
        let keys = Keys::derive(&root, id);
        config.verify(&keys).map_err(ConfigRefusal::Config)?;
        Ok((slot, keys))
    }

    /// Did a holder of these keys write it? If he did, and this program does not understand it,
    /// that is an error.
    fn verify(&self, keys: &Keys) -> Result<std::result::Result<ProvenConfig, ConfigFault>> {
        let bytes = match &self.read {
            ConfigBytes::Bytes(bytes) => bytes,
            ConfigBytes::Missing => return Ok(Err(ConfigFault::Missing)),
            ConfigBytes::Unreadable(error) => {
                return Ok(Err(ConfigFault::Unreadable(error.source.to_string())));
            }
        };
        let damaged = |error: &FormatError| Ok(Err(ConfigFault::Damaged(fault_text(error))));
        let decoded = match UnverifiedConfig::decode(bytes) {
            Ok(decoded) => decoded,
            Err(error) if is_authentic(bytes, keys) => {
                return Err(object_error(self.name.to_string())(error));
            }
            Err(error) => return damaged(&error),
        };
        let (line, id) = (decoded.line().to_vec(), decoded.repository());
        match decoded.verify(keys) {
            Ok(config) => Ok(Ok(ProvenConfig {
                config,
                line,
                bytes: bytes.clone(),
            })),
            Err(_) if id != keys.repository() => {
                let text = "the id in it is that of another repository";
                Ok(Err(ConfigFault::Damaged(text.to_owned())))
            }
            Err(error) => damaged(&error),
        }
    }
}

/// The one that is believed.
fn judge(store: &dyn Store, found: &[ConfigFile; 2], keys: &Keys) -> Result<Judged> {
    let [config, copy] = found;
    let (sound, trouble) = match (config.verify(keys)?, copy.verify(keys)?) {
        (Ok(config), Ok(copy)) if config.line == copy.line => (config, None),
        (Ok(_), Ok(_)) => return Err(Error::ConfigsDiffer(store.place())),
        (Ok(sound), Err(fault)) => (sound, Some((copy.name, fault))),
        (Err(fault), Ok(sound)) => (sound, Some((config.name, fault))),
        (Err(config), Err(copy)) => {
            return Err(Error::ConfigsDamaged {
                place: store.place(),
                config: config.text().to_owned(),
                copy: copy.text().to_owned(),
            });
        }
    };
    Ok(Judged {
        config: sound.config,
        bytes: sound.bytes,
        unsound: trouble.as_ref().and_then(|(name, _)| {
            let unsound = found.iter().find(|one| one.name == *name);
            unsound.and_then(|one| one.bytes().map(<[u8]>::to_vec))
        }),
        trouble: trouble.map(|(name, fault)| ConfigTrouble { name, fault }),
    })
}

/// What to say of a secret and two files that open nothing together: first that the secret is
/// wrong, then that the program is too old, and that files are damaged only if it is neither.
fn nothing_opens(
    store: &dyn Store,
    found: [ConfigFile; 2],
    mut refusals: Vec<ConfigRefusal>,
) -> Error {
    let is_keys = |refusal: &ConfigRefusal| matches!(refusal, ConfigRefusal::Keys(_));
    if let Some(at) = refusals.iter().position(is_keys)
        && let ConfigRefusal::Keys(error) = refusals.swap_remove(at)
    {
        return error;
    }
    let later = |refusal: &ConfigRefusal| {
        matches!(refusal, ConfigRefusal::Config(FormatError::Newer { .. }))
    };
    if refusals.iter().all(later)
        && let Some(ConfigRefusal::Config(error)) = refusals.pop()
    {
        return object_error(ObjectName::config().to_string())(error);
    }
    if found.iter().all(|one| one.bytes().is_none()) {
        let mut read = found.into_iter().map(|one| one.read);
        let unreadable = read.find_map(|read| match read {
            ConfigBytes::Unreadable(error) => Some(Error::Store(error)),
            ConfigBytes::Missing | ConfigBytes::Bytes(_) => None,
        });
        return unreadable.unwrap_or_else(|| Error::NoRepository(store.place()));
    }
    let mut texts = found.iter().enumerate().map(|(number, one)| {
        let refusal = refusals.get(number);
        match (&one.read, refusal) {
            (ConfigBytes::Missing, _) => "missing".to_owned(),
            (ConfigBytes::Unreadable(error), _) => error.source.to_string(),
            (ConfigBytes::Bytes(_), Some(ConfigRefusal::Config(error))) => fault_text(error),
            (
                ConfigBytes::Bytes(_),
                Some(ConfigRefusal::Id(error) | ConfigRefusal::Keys(error)),
            ) => {
                format!("no key slot opens under the id in it ({error})")
            }
            (ConfigBytes::Bytes(_), Some(ConfigRefusal::Unread) | None) => {
                "the same bytes".to_owned()
            }
        }
    });
    Error::ConfigsDamaged {
        place: store.place(),
        config: texts.next().unwrap_or_default(),
        copy: texts.next().unwrap_or_default(),
    }
}

/// What is wrong with a file that was named already.
pub fn fault_text(error: &FormatError) -> String {
    match error {
        FormatError::Damaged { fault, .. } => fault.to_string(),
        error => error.to_string(),
    }
}
