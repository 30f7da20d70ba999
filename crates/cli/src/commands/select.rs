//! From the words that choose snapshots to the snapshots.

use crate::args::Select;
use anyhow::Result;
use bale_engine::repository::{Named, Repository};
use bale_engine::snapshots::{Address, SnapshotFilter, find};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A snapshot and a path in it, found.
pub struct Chosen {
    /// Snapshot with its id.
    pub named: Named,
    /// Without leading slash; empty for everything.
    pub path: Vec<u8>,
}

/// The filter that the options describe.
pub fn filter(select: &Select) -> SnapshotFilter {
    SnapshotFilter {
        hosts: select.hosts.clone(),
        paths: select.paths.iter().map(|path| absolute(path)).collect(),
        tags: select.tags.iter().map(|tags| split_tags(tags)).collect(),
    }
}

/// Finds `SNAP` or `SNAP:/path`; unfinished runs can be named by id.
pub fn choose(repository: &Repository, address: &OsStr, select: &Select) -> Result<Chosen> {
    let address = Address::parse(address.as_bytes());
    let all = with_runs(repository)?;
    let now = repository.clock().time();
    let named = find(&all, &address.snapshot, &filter(select), now)?.clone();
    Ok(Chosen {
        named,
        path: address.path,
    })
}

/// Snapshots and unfinished runs that can be read; what cannot is told on stderr.
pub fn with_runs(repository: &Repository) -> Result<Vec<Named>> {
    let (mut all, damaged) = repository.snapshots_readable()?;
    let (runs, damaged_runs) = repository.runs_readable()?;
    all.extend(runs);
    for (_, error) in damaged.into_iter().chain(damaged_runs) {
        tell!(
            "bale: {}",
            crate::output::escape(error.to_string().as_bytes())
        );
    }
    Ok(all)
}

/// Tags separated by commas.
pub fn split_tags(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|tag| !tag.is_empty())
        .map(str::to_owned)
        .collect()
}

fn absolute(path: &Path) -> Vec<u8> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let clean = bale_engine::snapshots::clean_path(path.as_os_str().as_bytes());
    [b"/".as_slice(), &clean].concat()
}
