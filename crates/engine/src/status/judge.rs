//! Is a source well? What is expected of it comes from whoever knows: an option, a profile.

use super::{SourceHistory, SuddenChange};
use bale_format::{ObjectId, Time};
use bale_pipeline::clock::moment_of;
use bale_repository::snapshots::SourceKey;
use std::time::Duration;

/// A run without a sign of life for so long was stopped, probably: it shows one every five minutes.
const SILENT_SECONDS_MAX: i64 = 3600;

/// That a source is backed up often enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// Of this host alone.
    pub host: Option<String>,
    /// Of exactly these paths alone, in any order.
    pub paths: Option<Vec<Vec<u8>>>,
    /// Its last backup may have begun so long ago.
    pub age_max: Duration,
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
}

/// Something about a source that whoever looks after it should know.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// No backup of it was ever finished.
    NeverFinished,
    /// Its last backup is older than is expected.
    Late { age: Duration, age_max: Duration },
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

impl Finding {
    /// Is it a reason to do something?
    pub fn is_trouble(&self) -> bool {
        match self {
            Finding::NeverFinished
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
    let age_max = ours.map(|one| one.age_max).min();
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
    } else if let (Some(age), Some(age_max)) = (age, age_max)
        && age > age_max
    {
        findings.insert(0, Finding::Late { age, age_max });
    }
    let due = age_max.map(|age_max| Time {
        seconds: (last.time.seconds).saturating_add_unsigned(age_max.as_secs()),
        ..last.time
    });
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
    expected.iter().filter(is_unmet).collect()
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
            host: None,
            paths: None,
            age_max: Duration::from_secs(hours * 3600),
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
