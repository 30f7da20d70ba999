//! Is a source well? What is expected of it comes from whoever knows: an option, a profile.

use super::{SourceHistory, SuddenChange};
use bale_format::{ObjectId, Time};
use bale_pipeline::clock::moment_of;
use bale_repository::snapshots::SourceKey;
use std::time::Duration;

/// A run without a sign of life for so long was stopped, probably: it shows one every five minutes.
const SILENT_SECONDS_MAX: i64 = 3600;

/// That a source is backed up, and often enough.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The profile that expects it; an option does otherwise.
    pub profile: Option<String>,
    /// Of this host alone.
    pub host: Option<String>,
    /// Of exactly these paths alone, in any order.
    pub paths: Option<Vec<Vec<u8>>>,
    /// When its last backup is too old, if ever.
    pub limit: Option<BackupLimit>,
    /// When a run found nothing new and so made no snapshot: as good as a backup.
    pub unchanged_since: Option<Time>,
}

/// When a last backup is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupLimit {
    /// If it began longer ago.
    Age(Duration),
    /// If it began before a moment of a schedule.
    Schedule(ScheduleMoments),
}

/// What a schedule is at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleMoments {
    /// The last one of which the backup should be there by now.
    pub missed_if_before: Time,
    /// The last one: its backup may be under way.
    pub latest: Time,
    /// The one to come.
    pub next: Option<Time>,
}

impl BackupLimit {
    /// Begun earlier, a backup is late.
    fn begun_min(self, now: Time) -> Time {
        match self {
            BackupLimit::Age(age) => Time {
                seconds: now.seconds.saturating_sub_unsigned(age.as_secs()),
                nanos: now.nanos,
            },
            BackupLimit::Schedule(moments) => moments.missed_if_before,
        }
    }

    /// When the one after the last is due.
    fn due(self, last: Time) -> Option<Time> {
        match self {
            BackupLimit::Age(age) => Some(Time {
                seconds: last.seconds.saturating_add_unsigned(age.as_secs()),
                ..last
            }),
            BackupLimit::Schedule(moments) if last < moments.latest => Some(moments.latest),
            BackupLimit::Schedule(moments) => moments.next,
        }
    }
}

impl Expectation {
    /// Is it about this source?
    pub fn is_of(&self, key: &SourceKey) -> bool {
        let is_host = self.host.as_ref().is_none_or(|host| *host == key.host);
        let is_paths = self.paths.as_ref().is_none_or(|paths| {
            let mut paths = paths.clone();
            paths.sort();
            paths == key.paths
        });
        is_host && is_paths
    }

    /// The last backup, or the last run that had nothing to back up.
    fn last(&self, begun: Time) -> Time {
        self.unchanged_since.map_or(begun, |seen| seen.max(begun))
    }

    fn due(&self, begun: Time) -> Option<Time> {
        self.limit?.due(self.last(begun))
    }

    /// That it is late, if it is, and since when a backup would have been in time.
    fn late(&self, begun: Time, age: Duration, now: Time) -> Option<(Time, Finding)> {
        let limit = self.limit?;
        let begun_min = limit.begun_min(now);
        let is_late = match limit {
            // To the nanosecond.
            BackupLimit::Age(age_max) => age > age_max && self.last(begun) == begun,
            BackupLimit::Schedule(_) => self.last(begun) < begun_min,
        };
        let age_max = match limit {
            BackupLimit::Age(age_max) => age_max,
            BackupLimit::Schedule(_) => self::age(begun_min, now),
        };
        let missed = self.profile.clone().map(|profile| MissedMoment {
            profile,
            moment: begun_min,
        });
        let late = Finding::Late {
            age,
            age_max,
            missed,
        };
        is_late.then_some((begun_min, late))
    }
}

/// Something about a source that whoever looks after it should know.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// No backup of it was ever finished.
    NeverFinished,
    /// A profile names it, and there is nothing of it.
    NeverBackedUp { profile: String },
    /// Its last backup is older than is expected; of a schedule, whose, and the moment.
    Late {
        age: Duration,
        age_max: Duration,
        missed: Option<MissedMoment>,
    },
    /// Its last backup met problems.
    Problems { snapshot: ObjectId, problems: u64 },
    /// Its snapshots are all dated in the future: how old the last one is, nobody knows.
    ClockBehind,
    /// Some are, and count for nothing.
    InFuture { snapshots: Vec<ObjectId> },
    /// A run that began after the last snapshot; silent: it was stopped, probably.
    Unfinished { run: ObjectId, is_silent: bool },
    /// A recent run replaced its files by data that does not compress, and nobody confirmed it.
    SuddenChange(SuddenChange),
    /// Its place is that of another file system now: how old it is does not count.
    Replaced,
}

/// A moment of a profile's schedule that no backup followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedMoment {
    pub profile: String,
    pub moment: Time,
}

impl Finding {
    /// Is it a reason to do something?
    pub fn is_trouble(&self) -> bool {
        match self {
            Finding::NeverFinished
            | Finding::NeverBackedUp { .. }
            | Finding::Late { .. }
            | Finding::Problems { .. }
            | Finding::ClockBehind
            | Finding::SuddenChange(_)
            | Finding::InFuture { .. } => true,
            Finding::Unfinished { .. } | Finding::Replaced => false,
        }
    }
}

/// What is to be said of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Since its last backup began; `None`: there is none, or the clock is wrong.
    pub age: Option<Duration>,
    /// When the next one is due, if anything is expected.
    pub due: Option<Time>,
    pub findings: Vec<Finding>,
}

impl Judgement {
    /// Is nothing to be done?
    pub fn is_well(&self) -> bool {
        !self.findings.iter().any(Finding::is_trouble)
    }
}

/// Judges a source by what is expected; of several expectations about it the strictest counts.
pub fn judge(history: &SourceHistory<'_>, expected: &[Expectation], now: Time) -> Judgement {
    let ours = expected.iter().filter(|one| one.is_of(&history.key));
    let ours: Vec<&Expectation> = ours.collect();
    let mut findings = Vec::new();
    if let Some((run, record)) = history.unfinished {
        findings.push(Finding::Unfinished {
            run: *run,
            is_silent: now.seconds.saturating_sub(record.finished.seconds) > SILENT_SECONDS_MAX,
        });
    }
    let Some((id, last)) = history.last() else {
        findings.insert(0, Finding::NeverFinished);
        return Judgement {
            findings,
            ..Judgement::default()
        };
    };
    match history.is_clock_behind() {
        true => findings.push(Finding::ClockBehind),
        false if !history.in_future.is_empty() => findings.push(Finding::InFuture {
            snapshots: history.in_future.iter().map(|(id, _)| *id).collect(),
        }),
        false => {}
    }
    if last.counts.problems > 0 {
        findings.insert(
            0,
            Finding::Problems {
                snapshot: *id,
                problems: last.counts.problems,
            },
        );
    }
    let age = age(last.time, now);
    let age = (!history.is_clock_behind()).then_some(age);
    if history.is_replaced {
        findings.push(Finding::Replaced);
    } else if let Some(age) = age {
        let late = ours.iter().filter_map(|one| one.late(last.time, age, now));
        findings.splice(
            0..0,
            late.max_by_key(|(begun_min, _)| *begun_min)
                .map(|(_, late)| late),
        );
    }
    let due = ours.iter().filter_map(|one| one.due(last.time)).min();
    Judgement {
        age,
        due: due.filter(|_| !history.is_replaced),
        findings,
    }
}

/// Nothing of what is ahead, within what clocks may differ.
fn age(time: Time, now: Time) -> Duration {
    let since = moment_of(now).duration_since(moment_of(time));
    since.unwrap_or_default()
}

/// What is expected of a host or of paths of which there is nothing at all.
pub fn unmet<'e>(
    expected: &'e [Expectation],
    histories: &[SourceHistory<'_>],
) -> Vec<&'e Expectation> {
    let is_unmet = |one: &&Expectation| !histories.iter().any(|history| one.is_of(&history.key));
    let is_of_some = |one: &&Expectation| one.host.is_some() || one.paths.is_some();
    expected
        .iter()
        .filter(is_of_some)
        .filter(is_unmet)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::histories;
    use super::*;
    use bale_format::Snapshot;
    use bale_format::snapshot::PathText;
    use bale_repository::repository::Named;

    const HOUR: i64 = 3600;
    const NOW: Time = Time {
        seconds: 1_000 * HOUR,
        nanos: 0,
    };

    fn named(number: u8, hours_ago: i64, disk: &str) -> Named {
        let time = Time {
            seconds: NOW.seconds - hours_ago * HOUR,
            nanos: 0,
        };
        let snapshot = Snapshot {
            host: "web1".to_owned(),
            paths: vec![PathText(b"/srv".to_vec()), PathText(b"/etc".to_vec())],
            source_filesystems: vec![disk.to_owned()],
            finished: time,
            ..Snapshot::begun([number; 16], time)
        };
        (ObjectId([number; 32]), snapshot)
    }

    fn every(hours: u64) -> Expectation {
        Expectation {
            limit: Some(BackupLimit::Age(Duration::from_secs(hours * 3600))),
            ..Expectation::default()
        }
    }

    fn judged(all: &[Named], expected: &[Expectation]) -> Vec<Judgement> {
        let histories = histories(all, NOW);
        let judgements = histories.iter().map(|one| judge(one, expected, NOW));
        judgements.collect()
    }

    #[test]
    fn a_source_is_late_once_it_is_older_than_the_strictest_expectation_about_it() {
        let all = [named(1, 25, "a")];
        assert!(judged(&all, &[])[0].is_well());
        assert!(judged(&all, &[every(26)])[0].is_well());
        let late = &judged(&all, &[every(26), every(24)])[0];
        assert!(!late.is_well());
        assert_eq!(late.due.unwrap().seconds, NOW.seconds - HOUR);
        let elsewhere = Expectation {
            host: Some("web2".to_owned()),
            ..every(24)
        };
        assert!(judged(&all, std::slice::from_ref(&elsewhere))[0].is_well());
        let of_it = Expectation {
            paths: Some(vec![b"/srv".to_vec(), b"/etc".to_vec()]),
            ..every(24)
        };
        assert!(!judged(&all, std::slice::from_ref(&of_it))[0].is_well());
        let histories = histories(&all, NOW);
        let both = [elsewhere.clone(), of_it];
        assert_eq!(unmet(&both, &histories), [&elsewhere]);
    }

    fn hours_ago(hours: i64) -> Time {
        Time {
            seconds: NOW.seconds - hours * HOUR,
            nanos: 0,
        }
    }

    /// A profile whose last moments were 10 and 34 hours ago, and whose backups take no time.
    fn scheduled() -> Expectation {
        Expectation {
            profile: Some("home".to_owned()),
            limit: Some(BackupLimit::Schedule(ScheduleMoments {
                missed_if_before: hours_ago(10),
                latest: hours_ago(10),
                next: Some(hours_ago(-14)),
            })),
            ..Expectation::default()
        }
    }

    #[test]
    fn a_schedule_is_met_by_a_backup_since_its_last_moment_however_old_that_is() {
        let met = &judged(&[named(1, 9, "a")], &[scheduled()])[0];
        assert!(met.is_well());
        assert_eq!(met.due, Some(hours_ago(-14)));
        let late = &judged(&[named(1, 11, "a")], &[scheduled()])[0];
        let [Finding::Late { missed, .. }] = &late.findings[..] else {
            panic!("{late:?}");
        };
        let missed = missed.as_ref().unwrap();
        assert_eq!(
            (&missed.profile[..], missed.moment),
            ("home", hours_ago(10))
        );
        assert_eq!(late.due, Some(hours_ago(10)));
        // The backup of the last moment may be under way: due, and not late.
        let mut slow = scheduled();
        slow.limit = Some(BackupLimit::Schedule(ScheduleMoments {
            missed_if_before: hours_ago(34),
            latest: hours_ago(10),
            next: None,
        }));
        let due = &judged(&[named(1, 11, "a")], &[slow])[0];
        assert!(due.is_well());
        assert_eq!(due.due, Some(hours_ago(10)));
        // A run that found nothing new is as good as a snapshot.
        let unchanged = Expectation {
            unchanged_since: Some(hours_ago(1)),
            ..scheduled()
        };
        assert!(judged(&[named(1, 500, "a")], &[unchanged])[0].is_well());
    }

    #[test]
    fn problems_of_the_last_backup_count_and_those_of_older_ones_do_not() {
        let mut all = [named(1, 2, "a"), named(2, 1, "a")];
        all[0].1.counts.problems = 7;
        assert!(judged(&all, &[])[0].is_well());
        all[1].1.counts.problems = 3;
        let found = &judged(&all, &[])[0].findings;
        let problems = Finding::Problems {
            snapshot: all[1].0,
            problems: 3,
        };
        assert_eq!(*found, [problems]);
    }

    #[test]
    fn a_clock_that_is_wrong_makes_nothing_look_well() {
        let ahead = [named(1, 30, "a"), named(2, -1000, "a")];
        let found = &judged(&ahead, &[every(24)])[0];
        let [Finding::Late { .. }, Finding::InFuture { snapshots }] = &found.findings[..] else {
            panic!("{found:?}");
        };
        assert_eq!(*snapshots, [ahead[1].0]);
        let behind = &judged(&ahead[1..], &[every(24)])[0];
        assert_eq!(
            (&behind.findings[..], behind.age),
            (&[Finding::ClockBehind][..], None)
        );
        assert!(!behind.is_well());
    }

    #[test]
    fn a_run_that_did_not_end_is_named_and_one_alone_is_no_success() {
        let mut run = named(2, 3, "a");
        run.1.partial = true;
        let both = [named(1, 25, "a"), run.clone()];
        let stopped = Finding::Unfinished {
            run: run.0,
            is_silent: true,
        };
        assert_eq!(
            judged(&both, &[])[0].findings,
            std::slice::from_ref(&stopped)
        );
        let alone = &judged(&[run], &[])[0];
        assert_eq!(alone.findings, [Finding::NeverFinished, stopped]);
        assert!(!alone.is_well());
    }

    #[test]
    fn a_disk_that_gave_way_to_another_is_not_late_for_ever() {
        let all = [named(1, 500, "a"), named(2, 1, "b")];
        let judged = judged(&all, &[every(24)]);
        assert_eq!(judged[0].findings, [Finding::Replaced]);
        assert!(judged.iter().all(Judgement::is_well));
    }
}
