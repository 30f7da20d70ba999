//! Chooses the parent: the newest snapshot of the same source whose date is credible, and an
//! unfinished run to resume. Snapshots that are skipped are reported by name.

use super::run::{BackupOptions, BackupRun};
use bale_format::{ObjectId, Snapshot, Time};
use bale_pipeline::error::without_name;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::{Newest, SourceKey, newest_first, remembered};
use bale_repository::store::ObjectName;

/// Records that cannot be read, or not be believed, named one by one; of more only the number.
const NAMED_MAX: usize = 3;

/// What to compare with.
#[derive(Default)]
pub(super) struct Choice {
    pub(super) finished: Option<Named>,
    /// `finished` is the newest of its source, as far as all snapshots can be read.
    pub(super) is_newest: bool,
    /// Newer than `finished`.
    pub(super) unfinished: Option<Named>,
}

/// Chooses among the records that pass.
pub(super) fn choose(
    repository: &Repository,
    run: &BackupRun,
    options: &BackupOptions,
    passes: &dyn Fn(&Named) -> bool,
    note: &dyn Fn(&str),
) -> Result<Choice> {
    let (mut snapshots, damaged) = remembered::list(repository, &|missed| note(&missed.text))?;
    let now = repository.clock().time();
    if let Some(id) = options.parent {
        let newest = newest_first(of_source(&snapshots, &run.draft, &|_| ()), now);
        let newest = newest.in_order.first().map(|(id, _)| *id);
        return Ok(Choice {
            finished: Some(by_id(snapshots, id)?).filter(passes),
            is_newest: newest == Some(id) && damaged.is_empty(),
            unfinished: None,
        });
    }
    note_damaged(&damaged, note);
    let of_source = of_source(&snapshots, &run.draft, note);
    let newest = newest_first(of_source, now);
    note_future(&newest, now, note);
    let latest = newest.in_order.first().map(|(id, _)| *id);
    let finished = newest.in_order.into_iter().find(|named| passes(named));
    let finished = finished.map(|(id, _)| *id);
    let is_newest = finished == latest && damaged.is_empty();
    let finished = finished.map(|id| by_id(std::mem::take(&mut snapshots), id));
    let finished = finished.transpose()?;
    let runs = repository.runs_readable()?.0;
    let key = SourceKey::of(&run.draft);
    let is_ours = |named: &&Named| passes(named) && key.may_be(&SourceKey::of(&named.1));
    let newest = newest_first(runs.iter().filter(is_ours), now).in_order;
    let is_newer = |run: &Snapshot| {
        let finished = finished.as_ref().map(|(_, snapshot)| snapshot.time);
        run.until.is_some() && finished.is_none_or(|time| run.time > time)
    };
    let unfinished = newest.into_iter().find(|(_, run)| is_newer(run)).cloned();
    Ok(Choice {
        finished,
        is_newest,
        unfinished,
    })
}

fn by_id(snapshots: Vec<Named>, id: ObjectId) -> Result<Named> {
    let found = snapshots.into_iter().find(|(other, _)| *other == id);
    found.ok_or_else(|| Error::NoSnapshot(id.short()))
}

/// Snapshots of this source; said if there are only those of another file system at its place.
fn of_source<'a>(snapshots: &'a [Named], draft: &Snapshot, note: &dyn Fn(&str)) -> Vec<&'a Named> {
    let key = SourceKey::of(draft);
    let is_at_place = |named: &&Named| {
        let other = SourceKey::of(&named.1);
        other.host == key.host && other.paths == key.paths
    };
    let (ours, others): (Vec<&Named>, Vec<&Named>) = snapshots
        .iter()
        .filter(is_at_place)
        .partition(|(_, snapshot)| key.may_be(&SourceKey::of(snapshot)));
    let newest = ours.iter().max_by_key(|(_, snapshot)| snapshot.time);
    if let Some((id, snapshot)) = newest
        && key.filesystems.is_empty()
        && !snapshot.source_filesystems.is_empty()
    {
        note(&format!(
            "nothing says which file system the source is on, and in snapshot {} of {} it was on \
             {}: is it mounted?",
            id.short(),
            text_of(snapshot.time),
            snapshot.source_filesystems.join(", ")
        ));
    }
    if ours.is_empty()
        && let Some((id, snapshot)) = others.last()
    {
        note(&format!(
            "the source is on another file system than in snapshot {} of {}: reading every file",
            id.short(),
            text_of(snapshot.time)
        ));
    }
    ours
}

/// What cannot be read may be the newest one.
fn note_damaged(damaged: &[(ObjectName, Error)], note: &dyn Fn(&str)) {
    for (name, error) in damaged.iter().take(NAMED_MAX) {
        note(&format!(
            "{name} cannot be read ({}): this backup may compare with an older snapshot (bale \
             check tells what is lost)",
            without_name(&name.to_string(), &error.to_string())
        ));
    }
    if damaged.len() > NAMED_MAX {
        let more = damaged.len() - NAMED_MAX;
        note(&format!("snapshots that cannot be read, too: {more} more"));
    }
}

fn note_future(newest: &Newest<'_>, now: Time, note: &dyn Fn(&str)) {
    let Some((id, latest)) = newest.in_future.first() else {
        return;
    };
    let (id, dated, now) = (id.short(), text_of(latest.time), text_of(now));
    if newest.is_clock_behind() {
        return note(&format!(
            "the clock of this machine says {now}, and every snapshot of this source is of later, \
             the newest ({id}) of {dated}: is the clock wrong? What is backed up now is dated by \
             it, so it is not \"latest\""
        ));
    }
    for (id, snapshot) in newest.in_future.iter().take(NAMED_MAX) {
        note(&format!(
            "snapshot {} is dated {}, in the future (it is {now} here): it is not compared with, \
             nor is it \"latest\"; if its date is wrong, forget it by its id",
            id.short(),
            text_of(snapshot.time)
        ));
    }
    if newest.in_future.len() > NAMED_MAX {
        let more = newest.in_future.len() - NAMED_MAX;
        note(&format!("dated in the future, too: {more} more"));
    }
}

/// In UTC, to the second.
pub(crate) fn text_of(time: Time) -> String {
    jiff::Timestamp::new(time.seconds, 0).map_or_else(
        |_| format!("{} seconds after 1970", time.seconds),
        |timestamp| timestamp.to_string(),
    )
}
