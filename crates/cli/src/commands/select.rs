//! From the words that choose snapshots to the snapshots.
//!
//! `latest` is a promise about all of them: while one cannot be read it is refused, or answered
//! with exit code 3 where that was asked for. An id means the same whatever else is damaged.

use super::{snapshot_owner, unmatched};
use crate::args::{Pick, Select};
use crate::{exit, output, sizes};
use anyhow::Result;
use bale_format::Time;
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::remembered::Missed;
use bale_repository::snapshots::{
    Address, SnapshotFilter, find_holding, is_by_order, newest_first, remembered,
};
use bale_source::raw::{is_of_server, shown_source};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A snapshot and a path in it, found.
pub struct SelectedSnapshots {
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

/// Finds `SNAP` or `SNAP:/path`; unfinished runs can be named by id. `json`: notes are objects on
/// standard output.
pub fn choose(
    repository: &Repository,
    address: &OsStr,
    pick: &Pick,
    json: bool,
) -> Result<SelectedSnapshots> {
    Listed::of(repository)?.choose(address, pick, json)
}

/// The same for what is brought back: of whose files, if they are of another host.
pub fn choose_to_restore(
    repository: &Repository,
    address: &OsStr,
    pick: &Pick,
    json: bool,
) -> Result<SelectedSnapshots> {
    let listed = Listed::of(repository)?;
    let chosen = listed.choose(address, pick, json)?;
    let text = Address::parse(address.as_bytes()).snapshot;
    if let Some(own) = listed.other_than(&text, &chosen.named, &pick.select)? {
        let whose = snapshot_owner::text(&text, &chosen.named, &own);
        listed.note(&format!("{whose}: --host says whose is meant"), json);
    }
    Ok(chosen)
}

/// The same for what deletes by it: it must be of this host, and nothing newer that this machine
/// saw may be gone.
pub fn choose_to_delete(
    repository: &Repository,
    address: &OsStr,
    pick: &Pick,
    json: bool,
) -> Result<SelectedSnapshots> {
    let address = Address::parse(address.as_bytes());
    let listed = Listed::of(repository)?;
    let named = listed.find_holding(&address, pick, json)?;
    let text = &address.snapshot;
    listed.need_own(text, &named, &pick.select, DELETING_OURS)?;
    listed.need_newer(text, &named, &pick.select, DELETING)?;
    Ok(SelectedSnapshots {
        named,
        path: address.path,
    })
}

const DELETING: &str =
    "--delete would remove what is newer than it, and a restore without --delete would not";
const DELETING_OURS: &str = "--delete would put the files of that one in the place of others";

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
    /// Snapshots with a date in the future are reported once, however many are looked for.
    is_future_reported: Cell<bool>,
    /// Each note once, too.
    noted: RefCell<BTreeSet<String>>,
    now: Time,
}

impl Listed {
    /// Reads them all; what cannot be read is reported on stderr.
    pub fn of(repository: &Repository) -> Result<Listed> {
        let missed = RefCell::new(Vec::new());
        let report = |text: &str| report!("bale: {}", output::escape(text.as_bytes()));
        let (mut readable, damaged) = remembered::list(repository, &|snapshot| {
            report(&snapshot.text);
            missed.borrow_mut().push(snapshot);
        })?;
        let (runs, damaged_runs) = repository.runs_readable()?;
        let (running, runs): (Vec<_>, Vec<_>) =
            (runs.into_iter()).partition(|(_, run)| run.is_sign_of_life());
        readable.extend(runs);
        let report_of = |error: &bale_repository::error::Error| {
            let text = error.to_string();
            report(&text);
            text
        };
        let damaged = damaged.iter().map(|(_, error)| report_of(error)).collect();
        for (_, error) in &damaged_runs {
            report_of(error);
        }
        Ok(Listed {
            readable,
            running,
            damaged,
            missed: missed.into_inner(),
            is_future_reported: Cell::new(false),
            noted: RefCell::default(),
            now: repository.clock().time(),
        })
    }

    /// Of each snapshot that this machine saw and that is gone, which and what to do.
    pub fn missed_texts(&self) -> Vec<String> {
        self.missed
            .iter()
            .map(|missed| missed.text.clone())
            .collect()
    }

    /// All that can be read. The command then goes on to end with 3 if others cannot.
    pub fn all(self) -> Vec<Named> {
        if !self.damaged.is_empty() {
            exit::something_is_missing();
        }
        self.readable
    }

    /// Finds `SNAP` or `SNAP:/path` among them.
    pub fn choose(&self, address: &OsStr, pick: &Pick, json: bool) -> Result<SelectedSnapshots> {
        let address = Address::parse(address.as_bytes());
        let named = self.find_holding(&address, pick, json)?;
        report_unfinished(&named);
        Ok(SelectedSnapshots {
            named,
            path: address.path,
        })
    }

    /// Finds one by its id, or by its place in the order of times. Nobody knows the place of one
    /// that cannot be read.
    pub fn find(&self, text: &str, pick: &Pick) -> Result<Named> {
        let address = Address {
            snapshot: text.to_owned(),
            path: Vec::new(),
        };
        self.find_holding(&address, pick, false)
    }

    /// The same for a path in it. Reports if not all of the path is there, or more of it than in
    /// newer ones.
    pub fn find_holding(&self, address: &Address, pick: &Pick, json: bool) -> Result<Named> {
        let (text, path) = (&address.snapshot[..], &address.path[..]);
        let filter = filter(&pick.select);
        if is_by_order(text) {
            self.need_all(text, pick)?;
            if !self.is_future_reported.replace(true) {
                report_future_dates(&self.readable, &filter, self.now);
            }
        }
        let found = find_holding(&self.readable, (text, path), &filter, self.now);
        let found = found.map_err(
            |error| match unmatched::text(&pick.select, &self.readable) {
                Some(why) if is_by_order(text) => anyhow::anyhow!("no {text}: {why}"),
                _ => error.into(),
            },
        );
        let found = found?;
        let of_part = snapshot_owner::of_part(text, path, &found).filter(|_| is_by_order(text));
        if let Some(words) = of_part {
            self.note(&words, json);
        }
        Ok(found.named.clone())
    }

    fn note(&self, text: &str, json: bool) {
        if !self.noted.borrow_mut().insert(text.to_owned()) {
            return;
        }
        match json {
            true => output::object(&serde_json::json!({"type": "note", "message": text})),
            false => report!("bale: {text}"),
        }
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
            "{text} may mean another snapshot: {damaged} cannot be read. Name one by its id (bale \
             snapshots lists them), or take what can be read with --ignore-damaged"
        ))
    }

    /// The name of this machine, if a place in the order of times led to another's snapshot.
    fn other_than(&self, text: &str, found: &Named, select: &Select) -> Result<Option<String>> {
        if !is_by_order(text) {
            return Ok(None);
        }
        let mut hosts: BTreeSet<&str> = self.missed.iter().map(|missed| &missed.host[..]).collect();
        hosts.extend(self.readable.iter().map(|(_, other)| &other.host[..]));
        // Whose one is that cannot be read, nobody knows.
        let has_several = hosts.len() > 1 || !self.damaged.is_empty();
        snapshot_owner::is_other_hosts(found, select, has_several)
    }

    /// Another host's snapshot in place of our own: `would` says what that would do.
    pub fn need_own(&self, text: &str, found: &Named, select: &Select, would: &str) -> Result<()> {
        let Some(own) = self.other_than(text, found, select)? else {
            return Ok(());
        };
        let [other, own_escaped] =
            [&found.1.host, &own].map(|name| output::escape(name.as_bytes()));
        Err(anyhow::anyhow!(
            "{}: {would}. If it is meant, say --host {other} or name it by its id; --host \
             {own_escaped} means this machine's own",
            snapshot_owner::text(text, found, &own)
        ))
    }

    /// An old snapshot in place of the newest one: `would` says what that would do, and what else
    /// there is.
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
            "{text} is {} now, and {} that this machine saw {} gone: {would}. Name {} if it is \
             meant",
            id.short(),
            sizes::counted(newer, "newer snapshot"),
            if newer == 1 { "is" } else { "are" },
            id.short(),
        ))
    }
}

/// Named by its id it may be taken for a snapshot.
fn report_unfinished((id, run): &Named) {
    if run.partial {
        report!(
            "bale: {} is an unfinished run: it lacks what the backup had not reached",
            id.short()
        );
    }
}

/// A clock was wrong, ours or another: which snapshots are not taken for the newest.
fn report_future_dates(all: &[Named], filter: &SnapshotFilter, now: Time) {
    let passing = all
        .iter()
        .filter(|(_, snapshot)| filter.passes(snapshot) && !snapshot.partial);
    let newest = newest_first(passing, now);
    if newest.is_clock_behind() {
        report!("bale: all snapshots are dated in the future: is the clock of this machine right?");
        return;
    }
    for (id, snapshot) in newest.in_future {
        report!(
            "bale: snapshot {} is dated in the future ({}) and not taken for the latest: name it \
             by its id if it is meant",
            id.short(),
            crate::times::local_time(snapshot.time)
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
    if is_of_server(path) {
        return shown_source(path).into_os_string().into_encoded_bytes();
    }
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let clean = bale_repository::snapshots::clean_path(path.as_os_str().as_bytes());
    [b"/".as_slice(), &clean].concat()
}
