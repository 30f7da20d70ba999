//! The plan of a forget: groups, and for each snapshot whether it stays and why.

use super::policy::{Candidate, Policy};
use bale_format::snapshot::SOURCE_IS_STREAM;
use bale_format::{ObjectId, Snapshot, Time};
use bale_repository::snapshots::{SourceKey, is_in_future};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;

/// What makes a group of snapshots that a policy is applied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBy {
    /// Same host.
    pub host: bool,
    /// Same paths.
    pub paths: bool,
    /// Same file systems below the sources, as far as known. Two disks that were mounted at one
    /// place, two containers of one name, or an image and what is in it, are then not thinned as if
    /// they were one.
    pub filesystems: bool,
    /// Same tags.
    pub tags: bool,
}

impl Default for GroupBy {
    fn default() -> GroupBy {
        GroupBy {
            host: true,
            paths: true,
            filesystems: true,
            tags: false,
        }
    }
}

impl GroupBy {
    /// Reads `host,paths,filesystems,tags` in any order, or an empty text for one group of
    /// everything.
    pub fn parse(text: &str) -> Result<GroupBy, String> {
        let mut by = GroupBy {
            host: false,
            paths: false,
            filesystems: false,
            tags: false,
        };
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            match word {
                "host" => by.host = true,
                "path" | "paths" => by.paths = true,
                "filesystem" | "filesystems" => by.filesystems = true,
                "tag" | "tags" => by.tags = true,
                other => {
                    return Err(format!(
                        "cannot group by {other:?}: use host, paths, filesystems, tags"
                    ));
                }
            }
        }
        Ok(by)
    }
}

/// Snapshots that belong together, newest first.
#[derive(Clone, Debug)]
pub struct SnapshotGroup {
    /// Host, if grouped by it.
    pub host: Option<String>,
    /// Paths, if grouped by them.
    pub paths: Option<Vec<Vec<u8>>>,
    /// File systems, if grouped by them; empty: unknown.
    pub filesystems: Option<Vec<String>>,
    /// Tags, if grouped by them.
    pub tags: Option<Vec<String>>,
    /// What happens to each.
    pub decisions: Vec<Decision>,
}

/// What happens to one snapshot.
#[derive(Clone, Debug)]
pub struct Decision {
    pub id: ObjectId,
    /// When it was made.
    pub time: Timestamp,
    pub host: String,
    pub paths: Vec<Vec<u8>>,
    pub tags: Vec<String>,
    /// It stays whatever the rules say, which count it as any other.
    pub is_pinned: bool,
    /// In the place of so many others it was put.
    pub replaces: usize,
    /// The run that made it, or what it was put in the place of, or copied from.
    pub run: String,
    /// Why it stays; empty: it goes.
    pub reasons: Vec<String>,
    /// Dated later than clocks may differ: it stays, and rules are applied as if it were not there.
    pub is_in_future: bool,
}

/// Everything a forget would do.
#[derive(Clone, Debug, Default)]
pub struct ForgetPlan {
    /// Groups, ordered by what makes them.
    pub groups: Vec<SnapshotGroup>,
}

impl ForgetPlan {
    /// Snapshots that go.
    pub fn removed(&self) -> impl Iterator<Item = &Decision> {
        self.groups
            .iter()
            .flat_map(|group| &group.decisions)
            .filter(|decision| decision.reasons.is_empty())
    }

    /// Snapshots that stay.
    pub fn kept(&self) -> impl Iterator<Item = &Decision> {
        self.groups
            .iter()
            .flat_map(|group| &group.decisions)
            .filter(|decision| !decision.reasons.is_empty())
    }
}

/// What a group has in common, as far as groups are made by it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    host: Option<String>,
    paths: Option<Vec<Vec<u8>>>,
    filesystems: Option<Vec<String>>,
    tags: Option<Vec<String>>,
    /// Nothing is in it, and nothing says that this is how it was: another file system may not have
    /// been mounted there, or what wrote the stream failed.
    may_be_nothing: bool,
}

/// Applies a policy to snapshots, group by group. A policy without rules keeps everything. `now`:
/// by the clock of this machine; nothing goes because of it, later snapshots only stay.
pub fn plan(
    snapshots: &[(ObjectId, Snapshot)],
    policy: &Policy,
    by: GroupBy,
    zone: &TimeZone,
    now: Time,
) -> ForgetPlan {
    let mut groups: BTreeMap<GroupKey, Vec<Decision>> = BTreeMap::new();
    for (id, snapshot) in snapshots {
        let source = SourceKey::of(snapshot);
        let decision = decision(*id, snapshot, now);
        let key = GroupKey {
            host: by.host.then_some(source.host),
            paths: by.paths.then(|| sorted(&source.paths)),
            may_be_nothing: by.filesystems && may_be_nothing(snapshot),
            filesystems: by.filesystems.then_some(source.filesystems),
            tags: by.tags.then(|| sorted(&decision.tags)),
        };
        groups.entry(key).or_default().push(decision);
    }
    let groups = groups.into_iter().map(|(key, mut decisions)| {
        // What is of one backup stands together, and what was put in the place of others first.
        decisions.sort_by(|one, other| {
            let successors_first = || other.replaces.cmp(&one.replaces);
            (other.time.cmp(&one.time))
                .then_with(|| one.run.cmp(&other.run))
                .then_with(successors_first)
                .then_with(|| one.id.cmp(&other.id))
        });
        give_reasons(&mut decisions, policy, zone);
        SnapshotGroup {
            host: key.host,
            paths: key.paths,
            filesystems: key.filesystems,
            tags: key.tags,
            decisions,
        }
    });
    ForgetPlan {
        groups: groups.collect(),
    }
}

fn may_be_nothing(snapshot: &Snapshot) -> bool {
    let totals = &snapshot.totals;
    let has_nothing = totals.files == 0 && totals.others == 0 && snapshot.images.is_empty();
    match &snapshot.source_filesystems[..] {
        [] => has_nothing,
        [kind] => kind == SOURCE_IS_STREAM && totals.bytes == 0,
        _ => false,
    }
}

fn decision(id: ObjectId, snapshot: &Snapshot, now: Time) -> Decision {
    let time = Timestamp::new(snapshot.time.seconds, snapshot.time.nanos as i32);
    // Beyond the years of the calendar: the nearest that there is.
    let time = time.unwrap_or(match snapshot.time.seconds > 0 {
        true => Timestamp::MAX,
        false => Timestamp::MIN,
    });
    Decision {
        id,
        time,
        host: snapshot.host.clone(),
        paths: snapshot.paths.iter().map(|path| path.0.clone()).collect(),
        tags: snapshot.tags.clone(),
        is_pinned: snapshot.pinned,
        replaces: snapshot.replaces.len(),
        run: snapshot.run.clone(),
        reasons: Vec::new(),
        is_in_future: is_in_future(snapshot, now),
    }
}

fn give_reasons(decisions: &mut [Decision], policy: &Policy, zone: &TimeZone) {
    if policy.is_empty() {
        decisions
            .iter_mut()
            .for_each(|decision| decision.reasons.push("no rule was given".to_owned()));
        return;
    }
    let (future, decisions): (Vec<_>, Vec<_>) =
        (decisions.iter_mut()).partition(|decision| decision.is_in_future);
    for decision in future {
        let reason = "dated in the future: no rule counts it, its id removes it";
        decision.reasons.push(reason.to_owned());
    }
    // What is of one backup, with other tags or without something, counts once and stays together.
    let is_same =
        |one: &Decision, other: &Decision| (one.time, &one.run) == (other.time, &other.run);
    let mut numbers: Vec<usize> = Vec::with_capacity(decisions.len());
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for (at, decision) in decisions.iter().enumerate() {
        if at == 0 || !is_same(decision, decisions[at - 1]) {
            candidates.push(Candidate {
                time: decision.time,
                tags: &decision.tags,
            });
        }
        numbers.push(candidates.len() - 1);
    }
    let reasons = policy.reasons(&candidates, zone);
    for (decision, number) in decisions.into_iter().zip(numbers) {
        let mut reasons = reasons[number].clone();
        if decision.is_pinned {
            reasons.insert(0, "pinned".to_owned());
        }
        decision.reasons = reasons;
    }
}

fn sorted<T: Ord + Clone>(items: &[T]) -> Vec<T> {
    let mut items = items.to_vec();
    items.sort();
    items.dedup();
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forget::policy::{Keep, Within};
    use jiff::ToSpan;

    fn snapshot(number: u8, time: &str, tags: &[&str]) -> (ObjectId, Snapshot) {
        let time: Timestamp = time.parse().unwrap();
        let json = serde_json::json!({
            "version": 1, "run": "00", "time": [time.as_second(), 0], "finished": [0, 0],
            "host": "h", "user": "u", "program": "p", "tags": tags, "paths": [],
        });
        (
            ObjectId([number; 32]),
            serde_json::from_value(json).unwrap(),
        )
    }

    fn kept(snapshots: &[(ObjectId, Snapshot)], policy: &Policy) -> Vec<u8> {
        kept_at(snapshots, policy, "2026-03-01T00:00:00Z")
    }

    fn kept_at(snapshots: &[(ObjectId, Snapshot)], policy: &Policy, now: &str) -> Vec<u8> {
        let now: Timestamp = now.parse().unwrap();
        let now = Time {
            seconds: now.as_second(),
            nanos: 0,
        };
        let plan = plan(snapshots, policy, GroupBy::default(), &TimeZone::UTC, now);
        let mut kept: Vec<u8> = plan.kept().map(|decision| decision.id.0[0]).collect();
        kept.sort();
        kept
    }

    fn series() -> Vec<(ObjectId, Snapshot)> {
        vec![
            snapshot(1, "2026-01-01T08:00:00Z", &["keep"]),
            snapshot(2, "2026-01-01T20:00:00Z", &[]),
            snapshot(3, "2026-01-02T08:00:00Z", &[]),
            snapshot(4, "2026-02-01T08:00:00Z", &[]),
            snapshot(5, "2026-02-01T08:30:00Z", &[]),
        ]
    }

    #[test]
    fn no_rule_keeps_everything() {
        assert_eq!(kept(&series(), &Policy::default()), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn what_is_pinned_stays_and_counts_as_any_other() {
        let mut series = series();
        series[0].1.pinned = true;
        series[4].1.pinned = true;
        let last = Policy {
            last: 1,
            ..Policy::default()
        };
        assert_eq!(kept(&series, &last), [1, 5]);
    }

    #[test]
    fn what_is_of_one_backup_counts_once_and_stays_together() {
        let mut all = series();
        let (mut successor, mut copied) = (all[4].clone(), all[4].clone());
        (successor.0, successor.1.replaces) = (ObjectId([6; 32]), vec![ObjectId([5; 32])]);
        copied.0 = ObjectId([7; 32]);
        all.extend([successor, copied]);
        let last = Policy {
            last: 2,
            ..Policy::default()
        };
        assert_eq!(kept(&all, &last), [4, 5, 6, 7]);
        // Another run of the same moment is another backup.
        all[4].1.run = "01".to_owned();
        assert_eq!(kept(&all, &last), [5, 6, 7]);
    }

    #[test]
    fn one_of_each_period_within_a_time() {
        let daily = Policy {
            within_each: Within {
                daily: Some(40.days()),
                ..Within::default()
            },
            ..Policy::default()
        };
        assert!(!daily.is_empty());
        // The newest of each day, and no others, of forty days before the newest.
        assert_eq!(kept(&series(), &daily), [2, 3, 5]);
        let shorter = Policy {
            within_each: Within {
                daily: Some(20.days()),
                ..Within::default()
            },
            ..Policy::default()
        };
        assert_eq!(kept(&series(), &shorter), [5]);
        let hourly = Policy {
            within_each: Within {
                hourly: Some(20.days()),
                monthly: Some(1.years()),
                ..Within::default()
            },
            ..Policy::default()
        };
        assert_eq!(kept(&series(), &hourly), [3, 5]);
    }

    #[test]
    fn last_keeps_the_newest() {
        assert_eq!(
            kept(
                &series(),
                &Policy {
                    last: 2,
                    ..Policy::default()
                }
            ),
            [4, 5]
        );
    }

    #[test]
    fn daily_keeps_the_newest_of_each_day() {
        assert_eq!(
            kept(
                &series(),
                &Policy {
                    daily: 2,
                    ..Policy::default()
                }
            ),
            [3, 5]
        );
        assert_eq!(
            kept(
                &series(),
                &Policy {
                    daily: Keep::UNLIMITED,
                    ..Policy::default()
                }
            ),
            [2, 3, 5]
        );
    }

    #[test]
    fn a_young_series_keeps_its_oldest_while_periods_are_owed() {
        assert_eq!(
            kept(
                &series(),
                &Policy {
                    yearly: 3,
                    ..Policy::default()
                }
            ),
            [1, 5]
        );
    }

    #[test]
    fn within_counts_from_the_newest_not_from_now() {
        let policy = Policy {
            within: Some(1.hours()),
            ..Policy::default()
        };
        assert_eq!(kept(&series(), &policy), [4, 5]);
    }

    #[test]
    fn tags_keep_whatever_has_them() {
        let policy = Policy {
            last: 1,
            tags: vec![vec!["keep".to_owned()]],
            ..Policy::default()
        };
        assert_eq!(kept(&series(), &policy), [1, 5]);
    }

    #[test]
    fn groups_are_thinned_each_for_itself() {
        let mut all = series();
        all[0].1.host = "other".to_owned();
        assert_eq!(
            kept(
                &all,
                &Policy {
                    last: 1,
                    ..Policy::default()
                }
            ),
            [1, 5]
        );
    }

    /// The numbers of what stays of pairs: first of one file system, then of another.
    fn kept_of(filesystems: [&[&str]; 4], by: GroupBy) -> Vec<u8> {
        let mut all = series()[1..].to_vec();
        for ((_, snapshot), names) in all.iter_mut().zip(filesystems) {
            snapshot.source_filesystems = names.iter().map(|name| (*name).to_owned()).collect();
        }
        let policy = Policy {
            last: 1,
            ..Policy::default()
        };
        let now = Time {
            seconds: i64::MAX,
            nanos: 0,
        };
        let plan = plan(&all, &policy, by, &TimeZone::UTC, now);
        let mut kept: Vec<u8> = plan.kept().map(|decision| decision.id.0[0]).collect();
        kept.sort();
        kept
    }

    /// Issue 13, 19: another disk at the place of the first one made all snapshots of the first go.
    #[test]
    fn what_was_on_another_file_system_is_thinned_for_itself() {
        let by = GroupBy::default();
        assert_eq!(kept_of([&["a"], &["a"], &["b"], &["b"]], by), [3, 5]);
        assert_eq!(kept_of([&["a"], &["a", "b"], &["a"], &["a"]], by), [3, 5]);
        assert_eq!(kept_of([&["a"], &[], &["b"], &["b"]], by), [2, 3, 5]);
        assert_eq!(
            kept_of([&["a"], &[], &[], &["a"]], by),
            [4, 5],
            "what is in its place while it is not mounted may be on a disk that nobody knows"
        );
        let by_host = GroupBy::parse("host,paths").unwrap();
        assert_eq!(kept_of([&["a"], &["a"], &["b"], &["b"]], by_host), [5]);
        let by_all = GroupBy::parse("host, paths, filesystems").unwrap();
        assert_eq!(by_all, by);
    }

    /// Of four, the last of each group, after `change` of each.
    fn kept_last(change: impl Fn(usize, &mut Snapshot)) -> Vec<u8> {
        let mut all = series()[1..].to_vec();
        let each = all.iter_mut().enumerate();
        each.for_each(|(at, (_, snapshot))| change(at, snapshot));
        let policy = Policy {
            last: 1,
            ..Policy::default()
        };
        let now = Time {
            seconds: i64::MAX,
            nanos: 0,
        };
        let plan = plan(&all, &policy, GroupBy::default(), &TimeZone::UTC, now);
        let mut kept: Vec<u8> = plan.kept().map(|decision| decision.id.0[0]).collect();
        kept.sort();
        kept
    }

    /// The third and the fourth are empty: nobody mounted what was there.
    #[test]
    fn what_is_empty_where_nothing_tells_the_file_system_pushes_out_nothing_that_is_not() {
        let kept = |filesystem: &[&str]| {
            kept_last(|at, snapshot| {
                snapshot.source_filesystems =
                    filesystem.iter().map(|name| (*name).to_owned()).collect();
                snapshot.totals.files = if at < 2 { 10 } else { 0 };
            })
        };
        assert_eq!(kept(&[]), [3, 5]);
        assert_eq!(
            kept(&["a"]),
            [5],
            "it was emptied, and is known to be the same"
        );
    }

    /// What wrote the last two failed, behind a pipe.
    #[test]
    fn an_empty_stream_pushes_out_none_that_is_not() {
        let kept = kept_last(|at, snapshot| {
            snapshot.source_filesystems = vec![SOURCE_IS_STREAM.to_owned()];
            (snapshot.totals.files, snapshot.totals.bytes) = (1, if at < 2 { 10 } else { 0 });
        });
        assert_eq!(kept, [3, 5]);
    }

    /// Issue 13, 19: also where nobody knows on which file system the image lies.
    #[test]
    fn an_image_and_the_file_systems_in_it_are_thinned_for_themselves() {
        let by = GroupBy::default();
        assert_eq!(kept_of([&["image"], &[], &["image"], &[]], by), [4, 5]);
        assert_eq!(
            kept_of([&["image"], &["a"], &["image"], &[]], by),
            [3, 4, 5]
        );
    }

    /// One that a wrong clock dated into the future stays, and takes no place of another in any
    /// rule.
    #[test]
    fn what_is_dated_in_the_future_makes_no_good_one_go() {
        let rules = [
            Policy {
                last: 2,
                ..Policy::default()
            },
            Policy {
                hourly: 2,
                ..Policy::default()
            },
            Policy {
                daily: 2,
                ..Policy::default()
            },
            Policy {
                weekly: 2,
                ..Policy::default()
            },
            Policy {
                monthly: 1,
                ..Policy::default()
            },
            Policy {
                yearly: 1,
                ..Policy::default()
            },
            Policy {
                within: Some(30.days()),
                ..Policy::default()
            },
        ];
        for policy in rules {
            let mut all = series();
            let mut expected = kept(&all, &policy);
            all.push(snapshot(9, "2099-01-01T00:00:00Z", &[]));
            all.push(snapshot(10, "2026-03-01T01:00:00Z", &[]));
            let beyond = snapshot(11, "2026-01-01T00:00:00Z", &[]);
            all.push(beyond);
            all.last_mut().unwrap().1.time.seconds = i64::MAX;
            expected.extend([9, 10, 11]);
            assert_eq!(kept(&all, &policy), expected, "{policy:?}");
        }
    }

    /// The clock of whoever forgets is years behind or ahead: nothing goes that would stay by the
    /// right one.
    #[test]
    fn a_wrong_clock_of_whoever_forgets_makes_nothing_go() {
        for policy in [
            Policy {
                within: Some(30.days()),
                ..Policy::default()
            },
            Policy {
                daily: 2,
                ..Policy::default()
            },
        ] {
            let right = kept(&series(), &policy);
            assert_eq!(kept_at(&series(), &policy, "2099-01-01T00:00:00Z"), right);
            let behind = kept_at(&series(), &policy, "1970-01-02T00:00:00Z");
            assert_eq!(behind, [1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn within_more_than_all_of_time_keeps_everything() {
        for span in [15_000.years(), 19_998.years()] {
            let policy = Policy {
                within: Some(span),
                ..Policy::default()
            };
            assert_eq!(kept(&series(), &policy), [1, 2, 3, 4, 5]);
        }
    }
}
