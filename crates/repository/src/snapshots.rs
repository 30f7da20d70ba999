//! Finding snapshots: `latest`, `latest~2`, the beginning of an id, and filters by host, path and
//! tag; which of them is the newest, which hold a path, and which are states of the same source.
//!
//! Times order them, and a clock may be wrong: a snapshot dated in the future is never the newest,
//! or it would be that for ever. Who leaves one out says so, by name.

pub mod confirmed;
mod id_list;
mod let_go;
pub mod remembered;

use crate::error::{Error, Result};
use crate::repository::Named;
use bale_format::entry::is_below;
use bale_format::snapshot::{SOURCE_IS_IMAGE, SOURCE_IS_RAW, SOURCE_IS_STREAM};
use bale_format::{Snapshot, Time};
use std::cmp::Reverse;

/// Clocks of machines that share a repository may differ by so many seconds.
pub const CLOCK_SKEW_SECONDS_MAX: i64 = 15 * 60;

/// Which snapshots a command is about. Empty lists do not restrict.
#[derive(Clone, Debug, Default)]
pub struct SnapshotFilter {
    /// Any of these hosts.
    pub hosts: Vec<String>,
    /// All of these paths among the snapshot's sources.
    pub paths: Vec<Vec<u8>>,
    /// All tags of one of these lists.
    pub tags: Vec<Vec<String>>,
}

impl SnapshotFilter {
    /// Does the snapshot pass?
    pub fn passes(&self, snapshot: &Snapshot) -> bool {
        let host = self.hosts.is_empty() || self.hosts.contains(&snapshot.host);
        let paths = self
            .paths
            .iter()
            .all(|path| snapshot.paths.iter().any(|other| &other.0 == path));
        let tags = self.tags.is_empty()
            || self
                .tags
                .iter()
                .any(|wanted| wanted.iter().all(|tag| snapshot.tags.contains(tag)));
        host && paths && tags
    }
}

/// A snapshot, and a path in it: `SNAP` or `SNAP:/path`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `latest`, `latest~N` or the beginning of an id.
    pub snapshot: String,
    /// Without leading slash; empty for everything.
    pub path: Vec<u8>,
}

impl Address {
    /// Splits at the first colon.
    pub fn parse(text: &[u8]) -> Address {
        let (snapshot, path) = match text.iter().position(|byte| *byte == b':') {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => (text, &text[..0]),
        };
        Address {
            snapshot: String::from_utf8_lossy(snapshot).into_owned(),
            path: clean_path(path),
        }
    }
}

/// A path without leading, trailing and repeated slashes and `.` components. `..` is kept: it
/// matches nothing.
pub fn clean_path(path: &[u8]) -> Vec<u8> {
    let parts = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".");
    parts.collect::<Vec<_>>().join(&b'/')
}

/// Is it dated later than clocks may differ?
pub fn is_in_future(snapshot: &Snapshot, now: Time) -> bool {
    is_time_in_future(snapshot.time, now)
}

/// Is a moment later than clocks may differ?
pub fn is_time_in_future(time: Time, now: Time) -> bool {
    let latest = now.seconds.saturating_add(CLOCK_SKEW_SECONDS_MAX);
    (time.seconds, time.nanos) > (latest, now.nanos)
}

/// Snapshots in the order of their times, as far as these can be believed.
#[derive(Clone, Debug, Default)]
pub struct Newest<'a> {
    /// Newest first; of equal times what was put in the place of others, then by id. Those dated in
    /// the future are not among them, unless all are.
    pub in_order: Vec<&'a Named>,
    /// Dated in the future. If `in_order` has them, it is our own clock that is wrong, probably.
    pub in_future: Vec<&'a Named>,
}

impl Newest<'_> {
    /// Are all of them dated in the future, so that our own clock is wrong, probably?
    pub fn is_clock_behind(&self) -> bool {
        let (newest, ahead) = (self.in_order.first(), self.in_future.first());
        ahead.is_some() && newest.map(|(id, _)| id) == ahead.map(|(id, _)| id)
    }
}

/// Orders snapshots. `now`: by the clock of this machine.
pub fn newest_first<'a>(all: impl IntoIterator<Item = &'a Named>, now: Time) -> Newest<'a> {
    let mut all: Vec<&Named> = all.into_iter().collect();
    all.sort_by_key(|(id, snapshot)| {
        let successors_first = Reverse(snapshot.replaces.len());
        (Reverse(snapshot.time), successors_first, *id)
    });
    let (in_future, believed): (Vec<_>, Vec<_>) = all
        .iter()
        .partition(|(_, snapshot)| is_in_future(snapshot, now));
    let in_order = if believed.is_empty() { all } else { believed };
    Newest {
        in_order,
        in_future,
    }
}

/// What distinguishes snapshots of one source from others: host, sources, and the file systems that
/// these were on, as far as they are known. Two containers of one name, or two disks that were
/// mounted at one place, are not states of one thing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceKey {
    pub host: String,
    /// Sources, sorted.
    pub paths: Vec<Vec<u8>>,
    /// `Snapshot::source_filesystems`; empty: unknown, and for that not taken for a known one by
    /// what deletes: it may be the directory that another file system was not mounted on.
    pub filesystems: Vec<String>,
}

impl SourceKey {
    /// Of one snapshot, as it says itself.
    pub fn of(snapshot: &Snapshot) -> SourceKey {
        let mut paths: Vec<_> = snapshot.paths.iter().map(|path| path.0.clone()).collect();
        paths.sort();
        SourceKey {
            host: snapshot.host.clone(),
            paths,
            filesystems: snapshot.source_filesystems.clone(),
        }
    }

    /// Same host and sources, and no file systems that are known to be others?
    pub fn may_be(&self, other: &SourceKey) -> bool {
        let (ours, theirs) = (&self.filesystems, &other.filesystems);
        let is_known_other = !ours.is_empty() && !theirs.is_empty() && ours != theirs;
        let kinds = [SOURCE_IS_IMAGE, SOURCE_IS_RAW, SOURCE_IS_STREAM];
        let is_of_other_kind = kinds
            .iter()
            .any(|kind| self.is_of(kind) != other.is_of(kind));
        let is_known_other = is_known_other || is_of_other_kind;
        self.host == other.host && self.paths == other.paths && !is_known_other
    }

    /// Is it of this kind: what is in an image and not the file that it is, a device byte by byte,
    /// or what a program wrote? Whoever made the snapshot knew.
    fn is_of(&self, kind: &str) -> bool {
        self.filesystems.iter().any(|name| name == kind)
    }
}

/// Does this text name a snapshot by its place in the order of times, so that one that cannot be
/// read changes its meaning?
pub fn is_by_order(text: &str) -> bool {
    steps_back(text).is_some()
}

/// What of a path a snapshot was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The path, or what it is in, was a source.
    All,
    /// Sources were below the path: the rest of it was not looked at.
    Part,
    Nothing,
}

/// Of a path without leading slash.
pub fn holds(snapshot: &Snapshot, path: &[u8]) -> Holds {
    let mut held = Holds::Nothing;
    // Images are not at the paths of their devices.
    let images = snapshot.images.iter().map(|image| &image.path);
    let sources = snapshot.paths.iter().filter(|_| snapshot.images.is_empty());
    for source in sources.chain(images) {
        let source = clean_path(&source.0);
        if is_below(path, &source) {
            return Holds::All;
        }
        if is_below(&source, path) {
            held = Holds::Part;
        }
    }
    held
}

/// A snapshot, and those that are newer and hold less.
#[derive(Clone, Debug)]
pub struct FoundSnapshot<'a> {
    /// The one that is meant.
    pub named: &'a Named,
    /// Passed over for it, newest first: only a part of the path was a source of theirs.
    pub newer_parts: Vec<&'a Named>,
}

/// Finds one snapshot among `all`, as [`find_holding`] does for everything in it.
pub fn find<'a>(
    all: &'a [Named],
    text: &str,
    filter: &SnapshotFilter,
    now: Time,
) -> Result<&'a Named> {
    Ok(find_holding(all, (text, b""), filter, now)?.named)
}

/// Finds one snapshot among `all`, for a path in it. `latest` is the newest that is not dated in
/// the future by `now` ([`newest_first`]); with a path, the newest of these of which a source
/// [`holds`] it all, if there is one. `latest~N` is the Nth before `latest` that may be of the same
/// source.
pub fn find_holding<'a>(
    all: &'a [Named],
    (text, path): (&str, &[u8]),
    filter: &SnapshotFilter,
    now: Time,
) -> Result<FoundSnapshot<'a>> {
    if let Some(back) = steps_back(text) {
        let passing = all
            .iter()
            .filter(|(_, snapshot)| filter.passes(snapshot) && !snapshot.partial);
        let in_order = newest_first(passing, now).in_order;
        let is_whole = |(_, other): &&Named| path.is_empty() || holds(other, path) == Holds::All;
        let latest = in_order.iter().position(is_whole).unwrap_or(0);
        let (newer, in_order) = in_order.split_at(latest);
        let source = in_order.first().map(|(_, latest)| SourceKey::of(latest));
        let is_of_source = |(_, other): &&&Named| {
            let key = SourceKey::of(other);
            source.as_ref().is_some_and(|source| source.may_be(&key))
        };
        let found = in_order.iter().filter(is_of_source).nth(back);
        let too_few = || match in_order.iter().filter(is_of_source).count() {
            0 => Error::NoSnapshot(text.to_owned()),
            count => Error::TooFewSnapshots {
                text: text.to_owned(),
                count,
            },
        };
        let is_part = |(_, other): &&&Named| holds(other, path) == Holds::Part;
        return Ok(FoundSnapshot {
            named: found.ok_or_else(too_few)?,
            newer_parts: newer.iter().filter(is_part).copied().collect(),
        });
    }
    let named = find_by_id(all, text)?;
    Ok(FoundSnapshot {
        named,
        newer_parts: Vec::new(),
    })
}

fn find_by_id<'a>(all: &'a [Named], text: &str) -> Result<&'a Named> {
    let digits = text.to_ascii_lowercase();
    let mut matching = all
        .iter()
        .filter(|(id, _)| !digits.is_empty() && id.to_string().starts_with(&digits));
    let first = matching
        .next()
        .ok_or_else(|| Error::NoSnapshot(text.to_owned()))?;
    match matching.next() {
        None => Ok(first),
        Some(_) => Err(Error::AmbiguousSnapshot(text.to_owned())),
    }
}

fn steps_back(text: &str) -> Option<usize> {
    match text.strip_prefix("latest")? {
        "" => Some(0),
        rest => rest.strip_prefix('~')?.parse().ok(),
    }
}
