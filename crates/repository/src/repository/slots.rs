//! Key slots: tried, listed, added and removed.
//!
//! A slot is sound if its bytes are those its name was made of, and decode. A key is removed only
//! while a sound slot stays that opened in this process. A damaged slot is shown and can be
//! removed, and it is still tried, behind the sound ones: nobody is shut out over a letter of a
//! label.

use super::opening::created;
use super::{NewSlot, Repository, Secret, draw};
use crate::error::{Error, Result, is_inconclusive, is_missing, object_error};
use crate::limits::SLOT_BYTES_MAX;
use crate::store::{Area, ObjectName, Store};
use bale_format::config::Access;
use bale_format::error::FormatError;
use bale_format::key_slot::{KeySlot, PasswordCost, SlotKind, SlotParameters};
use bale_format::keys::RootKey;
use bale_format::recovery::RecoveryKey;
use bale_format::{ObjectId, RepositoryId};
use std::sync::PoisonError;

/// Password slots at most: each that is tried costs a key derivation. The oldest are tried.
const PASSWORD_SLOTS_MAX: usize = 64;
/// Slots of all kinds at most: each is read whenever the repository is opened.
const SLOTS_MAX: usize = 1024;
/// Damaged slots named in one error.
const DAMAGED_NAMED_MAX: usize = 8;

/// Whether a slot's bytes match its name and decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Its bytes are those its name was made of.
    Sound,
    /// They are not, or cannot be read; why.
    Damaged(String),
    /// The store does not hand it out, and why: it may be whole.
    Unread(String),
    /// Made by a later version; which.
    Newer(String),
}

/// A slot as it is listed.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    pub id: ObjectId,
    /// `password`, `keyfile`, `recovery`; none if it cannot be read.
    pub kind: Option<&'static str>,
    /// For people; empty if it cannot be read.
    pub label: String,
    /// Seconds since 1970; none if it cannot be read.
    pub created: Option<i64>,
    /// The one that opened this repository.
    pub current: bool,
    /// As found.
    pub state: SlotState,
}

impl SlotInfo {
    fn is_sound(&self) -> bool {
        self.state == SlotState::Sound
    }
}

/// A slot as read: what decodes of it is there even if it is damaged.
struct ReadSlot {
    id: ObjectId,
    slot: Option<KeySlot>,
    state: SlotState,
}

impl ReadSlot {
    fn is_sound(&self) -> bool {
        self.state == SlotState::Sound
    }
}

impl Repository {
    /// Adds a slot; the secret that opened this repository proves the right to.
    pub fn add_key(&self, secret: &Secret, new: &NewSlot) -> Result<ObjectId> {
        self.check_access(Access::Write)?;
        let (_, root) = find_slot(&*self.store, self.id(), secret)?;
        self.refuse_too_many(new.secret.kind())?;
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

    /// Refuses where nothing is given up: there a key that is replaced stays valid beside the new
    /// one. What is deleted to see it was never there.
    pub fn require_removable(&self) -> Result<()> {
        self.check_access(Access::Write)?;
        let nothing = ObjectName::key(ObjectId(draw(self.random())?));
        self.store.delete(&nothing).map_err(|error| {
            Error::Other(format!(
                "no key can be removed here ({}), so the present one would go on opening the \
                 repository, and nothing was changed: bale key add adds another beside it, and \
                 whoever may delete there removes the old one",
                error.source
            ))
        })
    }

    /// The slot that a secret opens, if one does: from then on it may be the one that stays.
    pub fn slot_of(&self, secret: &Secret) -> Result<Option<ObjectId>> {
        match find_slot(&*self.store, self.id(), secret) {
            Ok((id, _)) => {
                self.has_opened(id);
                Ok(Some(id))
            }
            Err(error @ Error::Store(_)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    fn has_opened(&self, slot: ObjectId) {
        self.keys_opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(slot);
    }

    /// Removes a slot by the beginning of its id. One stays that is sound and opened in this
    /// process, by the secret that opened the repository or by one added since.
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
        let stays = self.key_that_stays(&slots, slot.id)?;
        self.delete_while(slot, stays)?;
        Ok(slot.id)
    }

    /// All slots, oldest first, those that cannot be read before them. Damage is told slot by slot.
    pub fn list_keys(&self) -> Result<Vec<SlotInfo>> {
        let mut slots = Vec::new();
        for_each_slot(&*self.store, &mut |read| {
            let slot = read.slot.as_ref();
            slots.push(SlotInfo {
                id: read.id,
                kind: slot.map(|slot| kind_name(slot.kind())),
                label: slot.map_or_else(String::new, |slot| slot.label().to_owned()),
                created: slot.map(KeySlot::created),
                current: read.id == self.slot,
                state: read.state,
            });
        })?;
        slots.sort_by_key(|slot| (slot.created, slot.id));
        Ok(slots)
    }

    /// Makes a slot, and opens it as it is read back.
    pub(super) fn add_slot(&self, root: &RootKey, new: &NewSlot) -> Result<ObjectId> {
        let slot = SlotParameters {
            label: &new.label,
            created: created(&self.environment),
            salt: self.salt()?,
            cost: password_cost(),
        };
        let slot = KeySlot::create(root, self.id(), new.secret.as_slot_secret(), &slot);
        let bytes = slot.map_err(object_error("new key slot"))?.encode();
        let id = ObjectId(*blake3::hash(&bytes).as_bytes());
        let name = ObjectName::key(id);
        self.store.put(&name, &bytes)?;
        let stored = self.store.get(&name, SLOT_BYTES_MAX)?;
        KeySlot::decode(&stored)
            .and_then(|slot| slot.open(self.id(), new.secret.as_slot_secret()))
            .map_err(object_error(name.to_string()))?;
        if stored != bytes {
            let text = format!("{name} does not read back as it was written");
            return Err(Error::Other(text));
        }
        self.has_opened(id);
        Ok(id)
    }

    fn refuse_too_many(&self, kind: SlotKind) -> Result<()> {
        let slots = self.list_keys()?;
        let passwords = slots
            .iter()
            .filter(|slot| slot.kind == Some(kind_name(SlotKind::Password)));
        let passwords = passwords.count();
        let (are, of) = match kind {
            SlotKind::Password if passwords >= PASSWORD_SLOTS_MAX => (passwords, "passwords"),
            _ if slots.len() >= SLOTS_MAX => (slots.len(), "keys"),
            _ => return Ok(()),
        };
        Err(Error::Other(format!(
            "the repository has {are} {of} already: a further one might not open it (bale key \
             remove makes room)"
        )))
    }

    /// A sound slot but `removed` that opened in this process.
    fn key_that_stays(&self, slots: &[SlotInfo], removed: ObjectId) -> Result<ObjectId> {
        let opened = self
            .keys_opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let sound = || {
            slots
                .iter()
                .filter(|slot| slot.is_sound() && slot.id != removed)
        };
        match sound().find(|slot| opened.contains(&slot.id)) {
            Some(slot) => Ok(slot.id),
            None if sound().next().is_none() => Err(Error::Other(
                "no other key is sound: without this one nobody could read the backups (bale key \
                 add makes another)"
                    .to_owned(),
            )),
            None => Err(Error::Other(
                "nothing shows that a key which stays opens the repository: remove this one with \
                 such a key (--password-file, --key-file), or replace it with `bale key passwd`"
                    .to_owned(),
            )),
        }
    }

    /// Two who remove each other's key at once must not both succeed.
    fn delete_while(&self, slot: &SlotInfo, stays: ObjectId) -> Result<()> {
        let name = ObjectName::key(slot.id);
        let bytes = match slot.is_sound() {
            true => Some(self.store.get(&name, SLOT_BYTES_MAX)?),
            false => None,
        };
        self.store.delete(&name)?;
        if self.store.stat(&ObjectName::key(stays))?.is_some() {
            return Ok(());
        }
        if let Some(bytes) = bytes {
            self.store.put(&name, &bytes)?;
        }
        Err(Error::Other(format!(
            "{name} stays: {} was removed by another process meanwhile",
            ObjectName::key(stays)
        )))
    }
}

fn kind_name(kind: SlotKind) -> &'static str {
    match kind {
        SlotKind::Password => "password",
        SlotKind::KeyFile => "keyfile",
        SlotKind::Recovery => "recovery",
    }
}

/// Is there a key file that opens the repository? Asked without a key; what cannot be read says no.
pub fn opens_with_key_file(store: &dyn Store) -> bool {
    let mut opens = false;
    let listed = for_each_slot(store, &mut |read| {
        opens |= read
            .slot
            .is_some_and(|slot| slot.kind() == SlotKind::KeyFile);
    });
    listed.is_ok() && opens
}

/// Reads all slots. Trouble with one is its state; one that goes meanwhile is none.
fn for_each_slot(store: &dyn Store, use_slot: &mut dyn FnMut(ReadSlot)) -> Result<()> {
    let mut ids = Vec::new();
    store.list(Area::Keys, &mut |info| ids.extend(info.name.id()))?;
    for id in ids {
        if let Some(read) = read_slot(store, id) {
            use_slot(read);
        }
    }
    Ok(())
}

fn read_slot(store: &dyn Store, id: ObjectId) -> Option<ReadSlot> {
    let bytes = match store
        .get(&ObjectName::key(id), SLOT_BYTES_MAX)
        .map_err(Error::from)
    {
        Ok(bytes) => bytes,
        Err(error) if is_missing(&error) => return None,
        Err(error) => {
            let text = error.to_string();
            let state = match is_inconclusive(&error) {
                true => SlotState::Unread(text),
                false => SlotState::Damaged(text),
            };
            let slot = None;
            return Some(ReadSlot { id, slot, state });
        }
    };
    let (slot, state) = match KeySlot::decode(&bytes) {
        decoded if *blake3::hash(&bytes).as_bytes() != id.0 => (
            decoded.ok(),
            SlotState::Damaged("its content does not match its hash".to_owned()),
        ),
        Ok(slot) => (Some(slot), SlotState::Sound),
        Err(error @ (FormatError::Newer { .. } | FormatError::UnknownFeature { .. })) => {
            (None, SlotState::Newer(error.to_string()))
        }
        Err(error) => (None, SlotState::Damaged(error.to_string())),
    };
    Some(ReadSlot { id, slot, state })
}

/// Tries the slots of the secret's kind, sound ones first, then the oldest. A slot that cannot be
/// read does not hide the others.
pub(super) fn find_slot(
    store: &dyn Store,
    repository: RepositoryId,
    secret: &Secret,
) -> Result<(ObjectId, RootKey)> {
    let (mut fit, mut damaged, mut newer) = (Vec::new(), Vec::new(), None);
    let mut is_empty = true;
    for_each_slot(store, &mut |read| {
        is_empty = false;
        match &read.state {
            SlotState::Sound => {}
            SlotState::Damaged(text) | SlotState::Unread(text) => {
                damaged.push((read.id, text.clone()));
            }
            SlotState::Newer(text) => {
                newer.get_or_insert(format!("{}: {text}", ObjectName::key(read.id)));
            }
        }
        let is_sound = read.is_sound();
        if let Some(slot) = read.slot.filter(|slot| slot.kind() == secret.kind()) {
            fit.push((!is_sound, slot.created(), read.id, slot));
        }
    })?;
    if is_empty {
        return Err(Error::NoKeys(store.place()));
    }
    fit.sort_by_key(|(is_damaged, created, id, _)| (*is_damaged, *created, *id));
    let tried = match secret.kind() {
        SlotKind::Password => PASSWORD_SLOTS_MAX,
        SlotKind::KeyFile | SlotKind::Recovery => fit.len(),
    };
    let mut trouble = None;
    for (is_damaged, _, id, slot) in fit.iter().take(tried) {
        match slot.open(repository, secret.as_slot_secret()) {
            Ok(root) => return Ok((*id, root)),
            Err(FormatError::WrongKey) => {}
            Err(_) if *is_damaged => {}
            Err(error) => {
                trouble.get_or_insert(object_error(ObjectName::key(*id).to_string())(error));
            }
        }
    }
    Err(match trouble {
        Some(error) => error,
        None if !damaged.is_empty() => Error::KeysDamaged(named(&damaged)),
        None if fit.len() > tried => Error::Other(format!(
            "the password opens none of the {tried} oldest password slots, and {} more were not \
             tried: open the repository with another key, and remove some (bale key remove)",
            fit.len() - tried
        )),
        None => newer.map_or(Error::WrongKey, Error::Other),
    })
}

fn named(damaged: &[(ObjectId, String)]) -> String {
    let mut texts: Vec<_> = damaged
        .iter()
        .take(DAMAGED_NAMED_MAX)
        .map(|(id, text)| {
            let name = ObjectName::key(*id).to_string();
            match text.contains(&name) {
                true => text.clone(),
                false => format!("{name}: {text}"),
            }
        })
        .collect();
    if damaged.len() > texts.len() {
        texts.push(format!("and {} more", damaged.len() - texts.len()));
    }
    texts.join("; ")
}

/// What a password costs whoever tries it. Tests start thousands of programs, of which each tries
/// one: where they are built by ./test, without optimisation, it costs next to nothing.
fn password_cost() -> PasswordCost {
    match cfg!(debug_assertions) && option_env!("CHEAP_PASSWORDS_OF_TESTS").is_some() {
        true => PasswordCost {
            m_kib: 8,
            t: 1,
            p: 1,
        },
        false => PasswordCost::default(),
    }
}
