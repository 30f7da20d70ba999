//! The newest snapshot of each source that this machine has seen in a repository: the store alone
//! cannot say that one is gone, for a missing snapshot looks forgotten, and a store that was set
//! back to last month is a valid store of last month.
//!
//! A file in the cache, sealed with a key of the repository's. Losing it, or having no cache, costs
//! the warning and nothing else; nothing relies on it. While a snapshot is missed, nothing that
//! only it may use is deleted. A snapshot is missed until a newer one of its source is seen or it
//! is forgotten here: rules keep the newest of each source, so one that is gone while nothing newer
//! came is worth a word. What a wrong clock dated into the future is newer than everything, for
//! years: it is remembered apart, and in its shadow nothing else is gone unnoticed.

use super::{SourceKey, is_time_in_future, let_go};
use crate::error::{Error, Result};
use crate::repository::{Named, Readable, Repository, SealedFile};
use crate::store::{Area, ObjectName};
use bale_format::{ObjectId, Snapshot, Time};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A list of [`SeenText`] in JSON.
const FILE: SealedFile = SealedFile {
    magic: b"BALESEE1",
    body_bytes_max: 1 << 20,
};
/// Snapshots that are remembered, the newest: one of each source, and one that is dated in the
/// future.
const REMEMBERED_MAX: usize = 1000;
/// Of a host's name, for people.
const HOST_CHARS_MAX: usize = 100;

/// The newest snapshot of one source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NewestSeen {
    id: ObjectId,
    time: Time,
    host: String,
    /// Keyed hash of the [`SourceKey`].
    source: String,
}

/// A snapshot that this machine saw, and that is not in the repository any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    pub id: ObjectId,
    /// When its run started.
    pub time: Time,
    /// Of which host; the beginning of a long name.
    pub host: String,
    /// For people: which, and what to do.
    pub text: String,
}

/// As it is written: id, time, host, source.
type SeenText = (ObjectId, Time, String, String);

impl From<SeenText> for NewestSeen {
    fn from((id, time, host, source): SeenText) -> NewestSeen {
        NewestSeen {
            id,
            time,
            host,
            source,
        }
    }
}

impl NewestSeen {
    fn to_text(&self) -> SeenText {
        (self.id, self.time, self.host.clone(), self.source.clone())
    }

    fn of(repository: &Repository, id: ObjectId, snapshot: &Snapshot) -> NewestSeen {
        NewestSeen {
            id,
            time: snapshot.time,
            host: snapshot.host.chars().take(HOST_CHARS_MAX).collect(),
            source: source_hash(repository, &SourceKey::of(snapshot)),
        }
    }

    /// Is it of the same source, and both or none dated in the future?
    fn is_like(&self, other: &NewestSeen, today: Time) -> bool {
        let is_ahead = |seen: &NewestSeen| is_time_in_future(seen.time, today);
        self.source == other.source && is_ahead(self) == is_ahead(other)
    }

    /// May it be gone because this one came? A date in the future does not tell when that was.
    fn has_made_place_for(&self, other: &NewestSeen, today: Time) -> bool {
        other.time > self.time && self.is_like(other, today)
    }

    fn missed(&self) -> Missed {
        let time = jiff::Timestamp::new(self.time.seconds, 0);
        let time = time.map_or_else(|_| "an unknown time".to_owned(), |time| time.to_string());
        let id = self.id.short();
        let text = format!(
            "the snapshot {id} of {}, {time}, that this machine saw is not in the repository any \
             more: a forget on another machine removed it, or this is a mirror that is behind \
             (bale mirror brings it up to date), or the store was set back to an older state (bale \
             forget {id} ends this note)",
            self.host
        );
        Missed {
            id: self.id,
            time: self.time,
            host: self.host.clone(),
            text,
        }
    }
}

impl Missed {
    /// Why nothing is deleted now.
    pub fn refusal(&self) -> Error {
        Error::Other(format!(
            "prune refuses: {}. What only that snapshot uses would go: bring it back, or, if it is \
             meant to be gone, say so with bale forget {}, and run it again",
            self.text,
            self.id.short()
        ))
    }
}

/// All snapshots that can be read, and the trouble with the others
/// ([`Repository::snapshots_readable`]); the newest ones are remembered, and of those that this
/// machine remembered it is told which are gone.
pub fn list(repository: &Repository, tell: &dyn Fn(Missed)) -> Result<Readable> {
    // Before the look: what comes while we look is remembered by whoever made it.
    let before = load(repository);
    let mut listing = repository.snapshots_first()?;
    let Some(before) = before else {
        return Ok(listing);
    };
    // That may have been listed before the file was read: what came in between is not gone.
    if !(before.iter()).all(|seen| is_among(&listing, seen.id)) {
        listing = repository.snapshots_readable()?;
    }
    let today = repository.clock().time();
    let mut now: Vec<NewestSeen> = Vec::new();
    // In a mirror they are still there.
    let gone_on_purpose = let_go::ids(repository);
    let is_kept = |(id, snapshot): &&Named| !snapshot.partial && !gone_on_purpose.contains(id);
    for (id, snapshot) in listing.0.iter().filter(is_kept) {
        put(&mut now, NewestSeen::of(repository, *id, snapshot), today);
    }
    for seen in &before {
        let has_made_place = (now.iter()).any(|other| seen.has_made_place_for(other, today));
        if has_made_place || is_replaced(&listing.0, seen.id) {
            continue;
        }
        if !is_among(&listing, seen.id) {
            tell(seen.missed());
        }
        put(&mut now, seen.clone(), today);
    }
    save(repository, &before, now);
    Ok(listing)
}

/// Does a snapshot say that it is in the place of this one?
fn is_replaced(readable: &[Named], id: ObjectId) -> bool {
    let mut whole = readable.iter().filter(|(_, snapshot)| !snapshot.partial);
    whole.any(|(_, snapshot)| snapshot.replaces.contains(&id))
}

fn is_among((readable, damaged): &Readable, id: ObjectId) -> bool {
    readable.iter().any(|(other, _)| *other == id)
        || damaged.iter().any(|(name, _)| name.id() == Some(id))
}

/// Those that are remembered and gone, and nothing newer came. Snapshots are read only if one is
/// gone.
pub fn missed_now(repository: &Repository) -> Result<Vec<Missed>> {
    // Before the look, as above.
    let mut gone = load(repository).unwrap_or_default();
    let is_listed = listed(repository)?;
    gone.retain(|seen| !is_listed(seen.id));
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    let (readable, _) = repository.snapshots_readable()?;
    let whole = readable.iter().filter(|(_, snapshot)| !snapshot.partial);
    let now: Vec<NewestSeen> = whole
        .map(|(id, snapshot)| NewestSeen::of(repository, *id, snapshot))
        .collect();
    let today = repository.clock().time();
    gone.retain(|seen| {
        let is_as_good =
            |other: &NewestSeen| other.id == seen.id || seen.has_made_place_for(other, today);
        !now.iter().any(is_as_good) && !is_replaced(&readable, seen.id)
    });
    // What was forgotten here in the meantime is not missed.
    let still = load(repository).unwrap_or_default();
    gone.retain(|seen| still.contains(seen));
    Ok(gone.iter().map(NewestSeen::missed).collect())
}

/// Names of snapshots that the store gives, whether they can be read or not.
fn listed(repository: &Repository) -> Result<impl Fn(ObjectId) -> bool> {
    let infos = repository.list(Area::Snapshots)?;
    let ids: BTreeSet<ObjectId> = infos.iter().filter_map(|info| info.name.id()).collect();
    Ok(move |id| ids.contains(&id))
}

/// Remembers a snapshot that was made here.
pub fn made(repository: &Repository, id: ObjectId, snapshot: &Snapshot) {
    if let Some(before) = load(repository) {
        let mut now = before.clone();
        let today = repository.clock().time();
        put(&mut now, NewestSeen::of(repository, id, snapshot), today);
        save(repository, &before, now);
    }
}

/// The one snapshot whose id begins so that is remembered and not in the repository any more.
pub fn missed(repository: &Repository, digits: &str) -> Result<Option<ObjectId>> {
    let digits = digits.to_ascii_lowercase();
    let begins = |seen: &NewestSeen| !digits.is_empty() && seen.id.to_string().starts_with(&digits);
    let mut found = load(repository).unwrap_or_default();
    found.retain(begins);
    let [seen] = found.as_slice() else {
        return Ok(None);
    };
    let stat = repository.store().stat(&ObjectName::snapshot(seen.id))?;
    Ok(stat.is_none().then_some(seen.id))
}

/// A snapshot is removed on purpose, by this machine, or known to be gone: it is not missed from
/// now on.
pub fn forgotten(repository: &Repository, id: ObjectId) {
    if let Some(before) = load(repository) {
        let mut now = before.clone();
        now.retain(|seen| seen.id != id);
        save(repository, &before, now);
    }
}

/// The same once it is gone: nor is it remembered again by whoever sees it in a mirror.
pub fn let_go(repository: &Repository, id: ObjectId) {
    forgotten(repository, id);
    let_go::add(repository, id);
}

/// One of each source, the newest, and one that is dated in the future; of two of one time the one
/// that is put later.
fn put(all: &mut Vec<NewestSeen>, seen: NewestSeen, today: Time) {
    match (all.iter_mut()).find(|other| other.is_like(&seen, today)) {
        Some(other) if other.time > seen.time => {}
        Some(other) => *other = seen,
        None => all.push(seen),
    }
}

fn source_hash(repository: &Repository, key: &SourceKey) -> String {
    let mut text = b"source of snapshots".to_vec();
    let mut add = |part: &[u8]| {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    };
    add(key.host.as_bytes());
    add(&(key.paths.len() as u64).to_le_bytes());
    key.paths.iter().for_each(|path| add(path));
    key.filesystems.iter().for_each(|name| add(name.as_bytes()));
    bale_format::id::hex(&repository.keys().content_hash(&text))
}

fn path(repository: &Repository) -> Option<PathBuf> {
    Some(repository.cache_dir().ok()?.join("newest-snapshots"))
}

/// `None`: there is no cache. What is not sealed with our key counts as empty.
fn load(repository: &Repository) -> Option<Vec<NewestSeen>> {
    let path = path(repository)?;
    let read = || {
        let json = FILE.load(repository, &path)?;
        let texts: Vec<SeenText> = serde_json::from_slice(&json).ok()?;
        Some(texts.into_iter().map(NewestSeen::from).collect())
    };
    let seen: Option<Vec<NewestSeen>> = read();
    Some(seen.unwrap_or_default())
}

/// What cannot be saved costs the warning.
fn save(repository: &Repository, before: &[NewestSeen], mut now: Vec<NewestSeen>) {
    now.sort_by_key(|seen| (std::cmp::Reverse(seen.time), seen.id));
    now.truncate(REMEMBERED_MAX);
    if now == before {
        return;
    }
    let texts: Vec<SeenText> = now.iter().map(NewestSeen::to_text).collect();
    let (Some(path), Ok(json)) = (path(repository), serde_json::to_vec(&texts)) else {
        return;
    };
    let _costs_the_warning_only = FILE.save(repository, &path, &json);
}
