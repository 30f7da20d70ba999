//! From the words that choose snapshots to the snapshots.
//!
//! `latest` is a promise about all of them: while one cannot be read it is refused, or answered with exit code 3 where that
//! was asked for. An id means the same whatever else is damaged.

use super::unmatched;
use crate::args::{Pick, Select};
use crate::{exit, output, sizes};
use anyhow::Result;
use bale_engine::repository::{Named, Repository};
use bale_engine::snapshots::remembered::Missed;
use bale_engine::snapshots::{
    Address, SnapshotFilter, find, is_by_order, newest_first, remembered,
};
use bale_format::Time;
use std::cell::{Cell, RefCell};
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
pub fn choose(repository: &Repository, address: &OsStr, pick: &Pick) -> Result<Chosen> {
    Listed::of(repository)?.choose(address, pick)
}

/// The same for what deletes by it: nothing newer that this machine saw may be gone.
pub fn choose_to_delete(repository: &Repository, address: &OsStr, pick: &Pick) -> Result<Chosen> {
    let address = Address::parse(address.as_bytes());
    let listed = Listed::of(repository)?;
    let named = listed.find(&address.snapshot, pick)?;
    listed.need_newer(&address.snapshot, &named, &pick.select, DELETING)?;
    Ok(Chosen {
        named,
        path: address.path,
    })
}

const DELETING: &str =
    "--delete would remove what is newer than it, and a restore without --delete would not";

/// Snapshots and unfinished runs that can be read, and how many snapshots cannot.
pub struct Listed {
    /// Those that can, and hold something.
    pub readable: Vec<Named>,
    /// Signs of life of runs that are under way, or were killed: nothing can be restored of them.
    pub running: Vec<Named>,
    /// Why each of the other snapshots cannot be read, or whatever is in its place.
    pub damaged: Vec<String>,
    /// Those that this machine saw and that are gone.
    missed: Vec<Missed>,
    /// Of the future is told once, however many are looked for.
    is_future_told: Cell<bool>,
    now: Time,
}

impl Listed {
    /// Reads them all; what cannot be read is told on stderr.
    pub fn of(repository: &Repository) -> Result<Listed> {
        let missed = RefCell::new(Vec::new());
        let tell = |text: &str| tell!("bale: {}", output::escape(text.as_bytes()));
        let (mut readable, damaged) = remembered::list(repository, &|told| {
            tell(&told.text);
            missed.borrow_mut().push(told);
        })?;
        let (runs, damaged_runs) = repository.runs_readable()?;
        let (running, runs): (Vec<_>, Vec<_>) =
            (runs.into_iter()).partition(|(_, run)| run.is_sign_of_life());
        readable.extend(runs);
        let tell_of = |error: &bale_engine::error::Error| {
            let text = error.to_string();
            tell(&text);
            text
        };
        let damaged = damaged.iter().map(|(_, error)| tell_of(error)).collect();
        for (_, error) in &damaged_runs {
            tell_of(error);
        }
        Ok(Listed {
            readable,
            running,
            damaged,
            missed: missed.into_inner(),
            is_future_told: Cell::new(false),
            now: repository.clock().time(),
        })
    }

    /// All that can be read. The command then goes on to end with 3 if others cannot.
    pub fn all(self) -> Vec<Named> {
        if !self.damaged.is_empty() {
            exit::something_is_missing();
        }
        self.readable
    }

    /// Finds `SNAP` or `SNAP:/path` among them.
    pub fn choose(&self, address: &OsStr, pick: &Pick) -> Result<Chosen> {
        let address = Address::parse(address.as_bytes());
        let named = self.find(&address.snapshot, pick)?;
        tell_of_unfinished(&named);
        Ok(Chosen {
            named,
            path: address.path,
        })
    }

    /// Finds one by its id, or by its place in the order of times. Nobody knows the place of one that cannot be read.
    pub fn find(&self, text: &str, pick: &Pick) -> Result<Named> {
        let filter = filter(&pick.select);
        if is_by_order(text) {
            self.need_all(text, pick)?;
            if !self.is_future_told.replace(true) {
                tell_of_the_future(&self.readable, &filter, self.now);
            }
        }
        let found = find(&self.readable, text, &filter, self.now);
        let found = found.map_err(
            |error| match unmatched::text(&pick.select, &self.readable) {
                Some(why) if is_by_order(text) => anyhow::anyhow!("no {text}: {why}"),
                _ => error.into(),
            },
        );
        Ok(found?.clone())
    }

    fn need_all(&self, text: &str, pick: &Pick) -> Result<()> {
        if self.damaged.is_empty() {
            return Ok(());
        }
        if pick.ignore_damaged {
            exit::something_is_missing();
            return Ok(());
        }
        let damaged = sizes::counted(self.damaged.len() as u64, "snapshot");
        Err(anyhow::anyhow!(
            "{text} may mean another snapshot: {damaged} cannot be read. Name one by its id (bale snapshots lists them), or \
             take what can be read with --ignore-damaged"
        ))
    }

    /// An old snapshot in place of the newest one: `would` says what that would do, and what else there is.
    pub fn need_newer(
        &self,
        text: &str,
        (id, found): &Named,
        select: &Select,
        would: &str,
    ) -> Result<()> {
        let hosts = &select.hosts;
        let is_newer = |missed: &&Missed| {
            let may_be_meant =
                hosts.is_empty() || hosts.iter().any(|host| host.starts_with(&missed.host));
            missed.time >= found.time && may_be_meant
        };
        let newer = self.missed.iter().filter(is_newer).count() as u64;
        if newer == 0 || !is_by_order(text) {
            return Ok(());
        }
        Err(anyhow::anyhow!(
            "{text} is {} now, and {} that this machine saw {} gone: {would}. Name {} if it is meant",
            id.short(),
            sizes::counted(newer, "newer snapshot"),
            if newer == 1 { "is" } else { "are" },
            id.short(),
        ))
    }
}

/// Named by its id it may be taken for a snapshot.
fn tell_of_unfinished((id, run): &Named) {
    if run.partial {
        tell!(
            "bale: {} is an unfinished run: what the backup had not come to is not in it",
            id.short()
        );
    }
}

/// A clock was wrong, ours or another: which snapshots are not taken for the newest.
fn tell_of_the_future(all: &[Named], filter: &SnapshotFilter, now: Time) {
    let passing = all
        .iter()
        .filter(|(_, snapshot)| filter.passes(snapshot) && !snapshot.partial);
    let newest = newest_first(passing, now);
    if newest.is_clock_behind() {
        tell!("bale: all snapshots are dated in the future: is the clock of this machine right?");
        return;
    }
    for (id, snapshot) in newest.in_future {
        tell!(
            "bale: snapshot {} is dated in the future ({}) and not taken for the latest: name it by its id if it is meant",
            id.short(),
            super::listing::time_text(snapshot.time)
        );
    }
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
