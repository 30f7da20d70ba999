//! How each source of a repository is doing, from the records of its snapshots alone.
//!
//! A source is what rules of keeping take for one: host, paths, file systems. Nothing here reads
//! content, and nothing decides by what is dated in the future, unless all is.

mod judge;
mod sudden;
mod trend;

pub use judge::{
    BackupLimit, Expectation, Finding, Judgement, MissedMoment, ScheduleMoments, judge, unmet,
};
pub use sudden::{SuddenChange, later_ones, sudden_change_of, sudden_changes, unconfirmed};
pub use trend::{TREND_SNAPSHOTS_MAX, Trend, trend};

use bale_format::Time;
use bale_repository::repository::Named;
use bale_repository::snapshots::{SourceKey, newest_first};
use std::collections::BTreeMap;

/// What a repository has of one source.
#[derive(Clone, Debug)]
pub struct SourceHistory<'a> {
    pub key: SourceKey,
    /// Whole snapshots, newest first. Those dated in the future are not among them, unless all are.
    pub snapshots: Vec<&'a Named>,
    /// Dated in the future.
    pub in_future: Vec<&'a Named>,
    /// The newest record of a run that is newer than the newest snapshot, and did not end, or has
    /// not yet.
    pub unfinished: Option<&'a Named>,
    /// The same paths of this host were backed up later, from another file system.
    pub is_replaced: bool,
}

impl<'a> SourceHistory<'a> {
    /// The last backup that was committed.
    pub fn last(&self) -> Option<&'a Named> {
        self.snapshots.first().copied()
    }

    /// All snapshots are dated in the future: it is our own clock that is wrong, probably.
    pub fn is_clock_behind(&self) -> bool {
        self.last()
            .is_some_and(|(last, _)| self.in_future.iter().any(|(id, _)| id == last))
    }
}

/// Snapshots and unfinished runs by their source, in the order of hosts and paths.
pub fn histories<'a>(
    all: impl IntoIterator<Item = &'a Named>,
    now: Time,
) -> Vec<SourceHistory<'a>> {
    let mut sources: BTreeMap<SourceKey, Vec<&Named>> = BTreeMap::new();
    for named in all {
        let key = SourceKey::of(&named.1);
        sources.entry(key).or_default().push(named);
    }
    let histories = sources.into_iter().map(|(key, all)| history(key, all, now));
    let mut histories: Vec<_> = histories.collect();
    let mut last_of_places: BTreeMap<_, Time> = BTreeMap::new();
    for history in &histories {
        if let Some((_, last)) = history.last() {
            let newest = last_of_places.entry(place_of(history)).or_insert(last.time);
            *newest = last.time.max(*newest);
        }
    }
    for history in &mut histories {
        let own = history.last().map(|(_, last)| last.time);
        let newest = last_of_places.get(&place_of(history)).copied();
        history.is_replaced = newest > own;
    }
    histories
}

/// Host and paths, whatever file system was there.
fn place_of(history: &SourceHistory<'_>) -> (String, Vec<Vec<u8>>) {
    (history.key.host.clone(), history.key.paths.clone())
}

fn history<'a>(key: SourceKey, all: Vec<&'a Named>, now: Time) -> SourceHistory<'a> {
    let (runs, whole): (Vec<_>, Vec<_>) =
        (all.into_iter()).partition(|(_, snapshot)| snapshot.partial);
    let newest = newest_first(whole, now);
    let last = newest.in_order.first().map(|(_, snapshot)| snapshot.time);
    let is_newer = |(_, run): &&&Named| last.is_none_or(|last| run.time > last);
    let newer = runs.iter().filter(is_newer);
    SourceHistory {
        key,
        unfinished: newer
            .max_by_key(|(_, run)| (run.time, run.finished))
            .copied(),
        snapshots: newest.in_order,
        in_future: newest.in_future,
        is_replaced: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::snapshot::PathText;
    use bale_format::{ObjectId, Snapshot};

    fn named(number: u8, seconds: i64, disk: &str) -> Named {
        let time = Time { seconds, nanos: 0 };
        let snapshot = Snapshot {
            host: "web1".to_owned(),
            paths: vec![PathText(b"/srv".to_vec())],
            source_filesystems: vec![disk.to_owned()],
            ..Snapshot::begun([number; 16], time)
        };
        (ObjectId([number; 32]), snapshot)
    }

    const NOW: Time = Time {
        seconds: 1_000_000,
        nanos: 0,
    };

    #[test]
    fn a_snapshot_of_the_future_is_not_the_last_one_unless_all_are() {
        let all = [named(1, 900_000, "a"), named(2, 5_000_000, "a")];
        let found = histories(&all, NOW);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].last().unwrap().0, ObjectId([1; 32]));
        assert_eq!(found[0].in_future.len(), 1);
        assert!(!found[0].is_clock_behind());
        let found = histories(&all[1..], NOW);
        assert_eq!(found[0].last().unwrap().0, ObjectId([2; 32]));
        assert!(found[0].is_clock_behind());
    }

    #[test]
    fn an_unfinished_run_counts_only_if_it_is_newer_than_the_last_snapshot() {
        let mut run = named(3, 950_000, "a");
        run.1.partial = true;
        let before = [named(1, 900_000, "a"), run.clone()];
        assert_eq!(histories(&before, NOW)[0].unfinished.unwrap().0, run.0);
        let after = [named(1, 960_000, "a"), run.clone()];
        assert!(histories(&after, NOW)[0].unfinished.is_none());
        let alone = [run];
        let found = histories(&alone, NOW);
        assert!(found[0].last().is_none() && found[0].unfinished.is_some());
    }

    #[test]
    fn a_disk_that_gave_way_to_another_is_a_source_that_was_replaced() {
        let all = [named(1, 900_000, "a"), named(2, 950_000, "b")];
        let found = histories(&all, NOW);
        let replaced: Vec<bool> = found.iter().map(|history| history.is_replaced).collect();
        assert_eq!(replaced, [true, false]);
    }
}
