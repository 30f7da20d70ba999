//! The plan of a forget: groups, and for each snapshot whether it stays and why.

use super::policy::{Candidate, Policy};
use crate::snapshots::is_in_future;
use bale_format::{ObjectId, Snapshot, Time};
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
    /// Same tags.
    pub tags: bool,
}

impl Default for GroupBy {
    fn default() -> GroupBy {
        GroupBy {
            host: true,
            paths: true,
            tags: false,
        }
    }
}

impl GroupBy {
    /// Reads `host,paths,tags` in any order, or an empty text for one group of everything.
    pub fn parse(text: &str) -> Result<GroupBy, String> {
        let mut by = GroupBy {
            host: false,
            paths: false,
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
                "tag" | "tags" => by.tags = true,
                other => return Err(format!("cannot group by {other:?}: use host, paths, tags")),
            }
        }
        Ok(by)
    }
}

/// Snapshots that belong together, newest first.
#[derive(Clone, Debug)]
pub struct Group {
    /// Host, if grouped by it.
    pub host: Option<String>,
    /// Paths, if grouped by them.
    pub paths: Option<Vec<Vec<u8>>>,
    /// Tags, if grouped by them.
    pub tags: Option<Vec<String>>,
    /// What happens to each.
    pub decisions: Vec<Decision>,
}

/// What happens to one snapshot.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Which.
    pub id: ObjectId,
    /// When it was made.
    pub time: Timestamp,
    /// Its host.
    pub host: String,
    /// Its paths.
    pub paths: Vec<Vec<u8>>,
    /// Its tags.
    pub tags: Vec<String>,
    /// Why it stays; empty: it goes.
    pub reasons: Vec<String>,
    /// Dated later than clocks may differ: it stays, and rules are applied as if it were not there.
    pub is_in_future: bool,
}

/// Everything a forget would do.
#[derive(Clone, Debug, Default)]
pub struct ForgetPlan {
    /// Groups, ordered by what makes them.
    pub groups: Vec<Group>,
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

/// Host, paths and tags, as far as groups are made by them.
type GroupKey = (Option<String>, Option<Vec<Vec<u8>>>, Option<Vec<String>>);

/// Applies a policy to snapshots, group by group. A policy without rules keeps everything. `now`: by the clock of this machine;
/// nothing goes because of it, later snapshots only stay.
pub fn plan(
    snapshots: &[(ObjectId, Snapshot)],
    policy: &Policy,
    by: GroupBy,
    zone: &TimeZone,
    now: Time,
) -> ForgetPlan {
    let mut groups: BTreeMap<GroupKey, Vec<Decision>> = BTreeMap::new();
    for (id, snapshot) in snapshots {
        let decision = decision(*id, snapshot, now);
        let key = (
            by.host.then(|| decision.host.clone()),
            by.paths.then(|| sorted(&decision.paths)),
            by.tags.then(|| sorted(&decision.tags)),
        );
        groups.entry(key).or_default().push(decision);
    }
    let groups = groups
        .into_iter()
        .map(|((host, paths, tags), mut decisions)| {
            decisions.sort_by_key(|decision| (std::cmp::Reverse(decision.time), decision.id));
            give_reasons(&mut decisions, policy, zone);
            Group {
                host,
                paths,
                tags,
                decisions,
            }
        });
    ForgetPlan {
        groups: groups.collect(),
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
    let candidates: Vec<_> = decisions
        .iter()
        .map(|decision| Candidate {
            time: decision.time,
            tags: &decision.tags,
        })
        .collect();
    let reasons = policy.reasons(&candidates, zone);
    for (decision, reasons) in decisions.into_iter().zip(reasons) {
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
    use crate::forget::policy::Keep;
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

    /// One that a wrong clock dated into the future stays, and takes no place of another in any rule.
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

    /// The clock of whoever forgets is years behind or ahead: nothing goes that would stay by the right one.
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
