//! Giving back the bytes of stretches of which little is left: what is left is copied, pack by
//! pack, as it is, into a new stretch, and the old one is deleted.
//!
//! Each pack is hashed on its way: one that is not what its name says is not copied, and its
//! stretch stays. Readers who knew the old place look again. Nothing in the index changes.

use super::StretchedStore;
use crate::store::{ObjectName, Result};
use bale_format::ObjectId;
use bale_format::stretch::{StretchEntry, StretchName};

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 4 << 20;

/// Of a table and a trailer: a stretch that holds little else is not copied to hold as little
/// again.
const TABLE_BYTES: u64 = 8 << 10;

/// How much of a stretch is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StretchUse {
    pub name: StretchName,
    /// Bytes of the object.
    pub len: u64,
    /// Bytes of the packs in it that were not deleted.
    pub used: u64,
}

impl StretchUse {
    /// Is so small a part of it left?
    pub fn is_below(&self, percent: u8) -> bool {
        let len = self.len.saturating_sub(TABLE_BYTES);
        self.used.saturating_mul(100) < len.saturating_mul(u64::from(percent))
    }
}

/// What became of a stretch that was to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaimed {
    /// It is deleted; so many bytes of packs were copied.
    Copied(u64),
    /// A pack in it is damaged: it stays.
    Damaged(ObjectId),
    /// Others have changed it meanwhile: it stays.
    Changed,
}

impl StretchedStore {
    /// All stretches of which a record is there, by name.
    pub fn uses(&self) -> Result<Vec<StretchUse>> {
        self.refresh()?;
        let known = self.known();
        let used = known.bytes_by_stretch();
        let stretches = known.stretches().iter().zip(used);
        let said = stretches.filter(|(stretch, _)| !stretch.records.is_empty());
        let mut uses: Vec<StretchUse> = said
            .map(|(stretch, used)| StretchUse {
                name: stretch.name,
                len: stretch.len,
                used,
            })
            .collect();
        uses.sort_by_key(|stretch| stretch.name);
        Ok(uses)
    }

    /// Copies what is left of a stretch into the one that is being written. Call
    /// [`StretchedStore::settle`] after the last of them, and only then
    /// [`StretchedStore::let_go`].
    pub fn copy_rest(&self, name: &StretchName) -> Result<Reclaimed> {
        let entries = {
            let known = self.known();
            let Some(number) = known.number(name) else {
                return Ok(Reclaimed::Changed);
            };
            known.entries_of(number)
        };
        let mut copied = 0;
        for entry in &entries {
            if !self.copy_entry(name, entry)? {
                return Ok(Reclaimed::Damaged(entry.pack));
            }
            copied += entry.len;
        }
        Ok(Reclaimed::Copied(copied))
    }

    fn copy_entry(&self, stretch: &StretchName, entry: &StretchEntry) -> Result<bool> {
        let stretch = ObjectName::stretch(*stretch);
        self.append_parts(entry.pack, entry.len, &mut |append| {
            let mut hasher = blake3::Hasher::new();
            let mut buffer = vec![0; COPY_BYTES];
            let mut done = 0;
            while done < entry.len {
                let rest = usize::try_from(entry.len - done).unwrap_or(COPY_BYTES);
                let part = &mut buffer[..rest.min(COPY_BYTES)];
                match self.base.read_at(&stretch, entry.offset + done, part) {
                    Ok(()) => {}
                    Err(error) if error.may_pass() => return Err(error),
                    Err(_) => return Ok(false),
                }
                hasher.update(part);
                append(part)?;
                done += part.len() as u64;
            }
            Ok(*hasher.finalize().as_bytes() == entry.pack.0)
        })
    }

    /// Deletes a stretch all of whose packs are in another one, too; false if that is not so.
    pub fn let_go(&self, name: &StretchName) -> Result<bool> {
        self.refresh()?;
        let _no_other_changes_it = self.writing();
        let number = {
            let known = self.known();
            let Some(number) = known.number(name) else {
                return Ok(true);
            };
            let has_another = |entry: &StretchEntry| {
                let mut places = known.places_of(&entry.pack);
                places.any(|place| {
                    let stretch = known.stretch(place.stretch);
                    place.stretch != number
                        && place.len == entry.len
                        && place.len_within(stretch.len) == entry.len
                        && !stretch.records.is_empty()
                })
            };
            if !known.entries_of(number).iter().all(has_another) {
                return Ok(false);
            }
            number
        };
        self.delete_stretch(number, *name)
    }
}
