//! Finding snapshots: `latest`, `latest~2`, the beginning of an id, and filters by host, path and tag.

use crate::error::{Error, Result};
use bale_format::{ObjectId, Snapshot};

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

/// A path without leading, trailing and repeated slashes and `.` components. `..` is kept: it matches nothing.
pub fn clean_path(path: &[u8]) -> Vec<u8> {
    let parts = path
        .split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty() && *part != b".");
    parts.collect::<Vec<_>>().join(&b'/')
}

/// Finds one snapshot among `all`. Times order them; equal times are ordered by id.
pub fn find<'a>(
    all: &'a [(ObjectId, Snapshot)],
    text: &str,
    filter: &SnapshotFilter,
) -> Result<&'a (ObjectId, Snapshot)> {
    if let Some(back) = steps_back(text) {
        let mut passing: Vec<_> = all
            .iter()
            .filter(|(_, snapshot)| filter.passes(snapshot) && !snapshot.partial)
            .collect();
        passing.sort_by_key(|(id, snapshot)| (std::cmp::Reverse(snapshot.time), *id));
        return passing
            .get(back)
            .copied()
            .ok_or_else(|| Error::NoSnapshot(text.to_owned()));
    }
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
