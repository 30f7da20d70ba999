//! The keys of packs: by the head at a pack's start, or, where that shows not to be right, by its
//! copy at the end.
//!
//! One read for each pack that is whole. Which packs have a head that is not right is remembered
//! for `check`.

use super::Repository;
use crate::error::{Result, object_error};
use crate::store::{self, ObjectName, StoreError};
use bale_format::ObjectId;
use bale_format::error::{Fault, FormatError};
use bale_format::pack::{PACK_FOOTER_BYTES, PACK_FRONT_BYTES, PACK_HEADER_BYTES, PackHeader};
use bale_format::record::PackKey;
use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::sync::Mutex;

/// Pack keys kept, about 1 KB each.
const PACK_KEYS_MAX: usize = 4096;

/// Nothing shorter is a pack.
const PACK_ENDS_BYTES: u64 = (PACK_FRONT_BYTES + PACK_FOOTER_BYTES) as u64;

type Front = [u8; PACK_FRONT_BYTES];

/// What was learned of the heads of packs.
#[derive(Default)]
pub(super) struct PackKeys {
    found: Mutex<HashMap<ObjectId, FoundKey>>,
    /// Packs whose first bytes are wrong, and how: at most as many as there are packs.
    damaged: Mutex<BTreeMap<ObjectId, String>>,
}

#[derive(Clone)]
struct FoundKey {
    key: PackKey,
    /// Of the head at the pack's start, if that is right.
    salt: Option<[u8; 32]>,
}

/// Both ends of a pack.
struct Ends {
    key: PackKey,
    /// What is wrong with the head at the start.
    front: Option<String>,
    /// What is wrong with its copy at the end.
    footer: Option<String>,
}

impl Repository {
    /// The key of a pack.
    pub fn pack_key(&self, pack: ObjectId) -> Result<PackKey> {
        let found = &self.pack_keys.found;
        if let Some(key) = found.lock().expect("holders do not panic").get(&pack) {
            return Ok(key.key.clone());
        }
        let key = self.find_pack_key(pack)?;
        let mut keys = found.lock().expect("holders do not panic");
        if keys.len() >= PACK_KEYS_MAX {
            keys.clear();
        }
        keys.insert(pack, key.clone());
        Ok(key.key)
    }

    /// Is it known without reading anything?
    pub(super) fn knows_pack_key(&self, pack: &ObjectId) -> bool {
        let found = self.pack_keys.found.lock();
        found.expect("holders do not panic").contains_key(pack)
    }

    /// What the key of a pack was made of, if it is known and its head is right.
    pub(super) fn pack_salt(&self, pack: &ObjectId) -> Option<[u8; 32]> {
        let found = self.pack_keys.found.lock();
        let found = found.expect("holders do not panic");
        found.get(pack).and_then(|found| found.salt)
    }

    /// Packs that were read in this process although their first bytes are wrong, and how they are.
    pub fn damaged_heads(&self) -> BTreeMap<ObjectId, String> {
        let damaged = self.pack_keys.damaged.lock();
        damaged.expect("holders do not panic").clone()
    }

    /// What is wrong with a copy of a pack's head, while the other shows what it should be.
    pub fn trouble_with_head(&self, pack: ObjectId) -> Option<String> {
        let name = ObjectName::pack(pack);
        let ends = self.pack_ends(&name, self.read_front(&name)).ok()?;
        ends.front.or(ends.footer)
    }

    fn find_pack_key(&self, pack: ObjectId) -> Result<FoundKey> {
        let name = ObjectName::pack(pack);
        let front = self.read_front(&name);
        if let Ok(front) = &front
            && let Some(key) = self.keys.pack_key_by_front(front)
        {
            let header = PackHeader::decode(front).ok();
            let salt = header.map(|header| header.salt);
            return Ok(FoundKey { key, salt });
        }
        let ends = self.pack_ends(&name, front)?;
        if let Some(text) = ends.front {
            let mut damaged = self.pack_keys.damaged.lock().expect("holders do not panic");
            damaged.insert(pack, text);
        }
        Ok(FoundKey {
            key: ends.key,
            salt: None,
        })
    }

    fn read_front(&self, name: &ObjectName) -> store::Result<Front> {
        let mut front = [0; PACK_FRONT_BYTES];
        self.store.read_at(name, 0, &mut front)?;
        Ok(front)
    }

    /// `front`: what reading the first bytes gave; they may be on a bad sector.
    fn pack_ends(&self, name: &ObjectName, front: store::Result<Front>) -> Result<Ends> {
        let Some(info) = self.store.stat(name)? else {
            return Err(front.err().unwrap_or_else(|| gone(name)).into());
        };
        if info.len < PACK_ENDS_BYTES {
            let fault = Fault::Short {
                found: info.len,
                need: PACK_ENDS_BYTES,
            };
            let source = FormatError::Damaged {
                what: "pack",
                fault,
            };
            return Err(object_error(name.to_string())(source));
        }
        let mut footer = [0; PACK_FOOTER_BYTES];
        let footer_at = info.len - PACK_FOOTER_BYTES as u64;
        let read = self.store.read_at(name, footer_at, &mut footer);
        let footer = read.map(|()| footer);
        let found = self
            .keys
            .pack_key_by_ends(front.as_ref().ok(), footer.as_ref().ok());
        match (found, front.err()) {
            (Ok(found), trouble) => Ok(Ends {
                key: found.key,
                front: said("first", found.is_front_right, trouble),
                footer: said("last", found.is_footer_right, footer.err()),
            }),
            // What the store does not hand out now, it may another time.
            (Err(_), Some(error)) => Err(error.into()),
            (Err(error), None) => Err(object_error(name.to_string())(error)),
        }
    }
}

/// What is wrong with one of the two, if that is known.
fn said(which: &str, is_right: bool, trouble: Option<StoreError>) -> Option<String> {
    match trouble {
        _ if is_right => None,
        Some(error) if error.is_inconclusive() => None,
        Some(error) => Some(format!(
            "its {which} {PACK_HEADER_BYTES} bytes cannot be read: {}",
            error.source
        )),
        None => Some(format!("its {which} {PACK_HEADER_BYTES} bytes are damaged")),
    }
}

/// A pack that went while it was looked at.
fn gone(name: &ObjectName) -> StoreError {
    StoreError {
        action: "read",
        object: name.to_string(),
        source: ErrorKind::NotFound.into(),
    }
}
