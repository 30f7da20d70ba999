//! What is due: a function of the schedule, of the record and of the moment.

use crate::calendar::Times;
use crate::record::StepRecord;
use jiff::{SignedDuration, Zoned};
use std::fmt;

/// Clocks of one machine differ from themselves by no more, when they are set right.
const CLOCK_SLACK: SignedDuration = SignedDuration::from_mins(5);

/// Is a step due, and why?
#[derive(Clone, Debug, PartialEq)]
pub enum DueAnswer {
    /// It has no schedule: it is a part of every run.
    Always,
    /// It never succeeded, as far as is known.
    Never,
    /// Nobody knows: there is a record, and it does not count.
    RecordDoesNotCount,
    /// It succeeded after this moment: a clock was wrong.
    Future(Zoned),
    /// A moment of its schedule has come since it last succeeded.
    Since {
        /// The moment.
        moment: Zoned,
        /// When it succeeded.
        last: Zoned,
    },
    /// It has succeeded since the last moment of its schedule.
    Not {
        /// When it succeeded.
        last: Zoned,
        /// When it is due, if its schedule has another moment.
        next: Option<Zoned>,
    },
}

impl DueAnswer {
    /// Is it?
    pub fn is_due(&self) -> bool {
        !matches!(self, DueAnswer::Not { .. })
    }
}

impl fmt::Display for DueAnswer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DueAnswer::Always => write!(to, "it has no schedule, and is a part of every run"),
            DueAnswer::Never => write!(to, "it has not succeeded before, as far as is known here"),
            DueAnswer::RecordDoesNotCount => write!(
                to,
                "when it succeeded is not known, as the record of past runs does not count"
            ),
            DueAnswer::Future(last) => write!(
                to,
                "its last success is dated in the future ({}): a clock was wrong",
                shown(last)
            ),
            DueAnswer::Since { moment, last } => write!(
                to,
                "due since {}, last success {}",
                shown(moment),
                shown(last)
            ),
            DueAnswer::Not { last, next: None } => write!(to, "last success {}", shown(last)),
            DueAnswer::Not {
                last,
                next: Some(next),
            } => write!(to, "next {}, last success {}", shown(next), shown(last)),
        }
    }
}

/// Local time, to the minute.
pub fn shown(moment: &Zoned) -> String {
    moment.strftime("%a %Y-%m-%d %H:%M").to_string()
}

/// Is a step of this schedule and record due at this moment?
pub fn due(times: &[Times], record: Option<&StepRecord>, now: &Zoned) -> DueAnswer {
    if times.is_empty() {
        return DueAnswer::Always;
    }
    let Some(success) = record.and_then(|record| record.last_success.as_ref()) else {
        return DueAnswer::Never;
    };
    // Not when it ended: what changed while it ran is for the next one.
    let last = success.started.to_zoned(now.time_zone().clone());
    if last.timestamp()
        > now
            .timestamp()
            .saturating_add(CLOCK_SLACK)
            .unwrap_or(now.timestamp())
    {
        return DueAnswer::Future(last);
    }
    match latest(times, now) {
        Some(moment) if moment > last => DueAnswer::Since { moment, last },
        _ => DueAnswer::Not {
            last,
            next: next(times, now),
        },
    }
}

/// The last moment of any of them that is not after this one.
pub fn latest(times: &[Times], now: &Zoned) -> Option<Zoned> {
    times.iter().filter_map(|times| times.latest(now)).max()
}

/// The moment since which a step is late: one that is longer ago than a start may be delayed and a
/// run may take, and that no success followed: it is after the last one, or after whatever began
/// instead where there was none.
pub fn late_since(
    times: &[Times],
    last_success: Option<&Zoned>,
    slack: SignedDuration,
    now: &Zoned,
) -> Option<Zoned> {
    let moment = latest(times, &now.saturating_sub(slack))?;
    (last_success.is_none_or(|last| *last < moment)).then_some(moment)
}

/// The first moment of any of them after this one.
pub fn next(times: &[Times], now: &Zoned) -> Option<Zoned> {
    times.iter().filter_map(|times| times.next(now)).min()
}

/// Of parts that are checked in turn the one after the last, from 1 on.
pub fn next_part(record: Option<&StepRecord>, parts: u32) -> u32 {
    match record.and_then(|record| record.part) {
        Some((last, of)) if of == parts && last < parts => last + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Attempt;

    fn zoned(text: &str) -> Zoned {
        format!("{text}[UTC]").parse().unwrap()
    }

    fn success(started: &str) -> StepRecord {
        let started = zoned(started).timestamp();
        StepRecord {
            last_success: Some(Attempt {
                started,
                finished: started,
                exit_code: 0,
                seconds: 0.0,
                summary: serde_json::Map::new(),
            }),
            ..StepRecord::default()
        }
    }

    fn is_due(schedule: &str, last: &str, now: &str) -> bool {
        let times = [Times::parse(schedule).unwrap()];
        due(&times, Some(&success(last)), &zoned(now)).is_due()
    }

    #[test]
    fn a_step_is_due_once_for_each_moment_however_late_or_early_its_runs_were() {
        // Spread by a quarter of an hour: yesterday late, today early.
        assert!(is_due(
            "daily 02:00",
            "2026-11-26T02:14",
            "2026-11-27T02:01"
        ));
        assert!(!is_due(
            "daily 02:00",
            "2026-11-27T02:01",
            "2026-11-27T02:30"
        ));
        assert!(!is_due(
            "daily 02:00",
            "2026-11-27T02:01",
            "2026-11-28T01:59"
        ));
        // Missed, and made up for in the afternoon: the next is at its time.
        assert!(is_due(
            "daily 02:00",
            "2026-11-25T02:00",
            "2026-11-27T15:00"
        ));
        assert!(is_due(
            "daily 02:00",
            "2026-11-27T15:00",
            "2026-11-28T02:00"
        ));
        assert!(!is_due(
            "sunday 04:00",
            "2026-11-22T04:10",
            "2026-11-28T23:00"
        ));
        assert!(is_due(
            "sunday 04:00",
            "2026-11-22T03:59",
            "2026-11-28T23:00"
        ));
    }

    #[test]
    fn a_machine_that_was_off_for_months_is_due_once() {
        let times = [Times::parse("daily 02:00").unwrap()];
        let now = zoned("2026-11-27T03:00");
        let answer = due(&times, Some(&success("2026-01-01T00:00")), &now);
        let DueAnswer::Since { moment, .. } = &answer else {
            panic!("{answer:?}");
        };
        assert_eq!(*moment, zoned("2026-11-27T02:00"));
        assert!(!due(&times, Some(&success("2026-11-27T03:00")), &now).is_due());
    }

    #[test]
    fn what_is_not_known_or_cannot_be_is_due() {
        let times = [Times::parse("daily 02:00").unwrap()];
        let now = zoned("2026-11-27T03:00");
        assert_eq!(due(&times, None, &now), DueAnswer::Never);
        assert_eq!(
            due(&times, Some(&StepRecord::default()), &now),
            DueAnswer::Never
        );
        assert_eq!(
            due(&[], Some(&success("2026-11-27T02:59")), &now),
            DueAnswer::Always
        );
        let answer = due(&times, Some(&success("2026-11-28T03:00")), &now);
        assert!(matches!(answer, DueAnswer::Future(_)), "{answer:?}");
        assert!(
            answer.is_due() && answer.to_string().contains("clock"),
            "{answer}"
        );
        // A clock that was set back by a minute is no reason.
        assert!(!due(&times, Some(&success("2026-11-27T03:01")), &now).is_due());
    }

    #[test]
    fn a_step_is_late_only_when_its_moment_is_longer_ago_than_a_run_may_take() {
        let times = [Times::parse("daily 02:00").unwrap()];
        let late = |last: &str, now: &str| {
            let hours = SignedDuration::from_hours(3);
            late_since(&times, Some(&zoned(last)), hours, &zoned(now))
        };
        let yesterday = "2026-11-26T02:10";
        assert_eq!(late(yesterday, "2026-11-27T02:00"), None);
        assert_eq!(late(yesterday, "2026-11-27T04:59"), None);
        let since = late(yesterday, "2026-11-27T05:00");
        assert_eq!(since, Some(zoned("2026-11-27T02:00")));
        assert_eq!(late("2026-11-27T02:00", "2026-11-28T04:00"), None);
        assert!(late_since(&times, None, SignedDuration::ZERO, &zoned(yesterday)).is_some());
    }

    #[test]
    fn the_first_of_several_schedules_counts() {
        let times = ["daily 02:00", "daily 14:00"].map(|text| Times::parse(text).unwrap());
        let answer = due(
            &times,
            Some(&success("2026-11-27T02:00")),
            &zoned("2026-11-27T03:00"),
        );
        assert_eq!(
            answer.to_string(),
            "next Fri 2026-11-27 14:00, last success Fri 2026-11-27 02:00"
        );
        assert!(
            due(
                &times,
                Some(&success("2026-11-27T02:00")),
                &zoned("2026-11-27T14:00")
            )
            .is_due()
        );
    }

    #[test]
    fn parts_come_in_turn() {
        let mut record = StepRecord::default();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let part = next_part(Some(&record), 3);
            seen.push(part);
            record.part = Some((part, 3));
        }
        assert_eq!(seen, [1, 2, 3, 1]);
        assert_eq!(
            next_part(Some(&record), 7),
            1,
            "another division begins anew"
        );
        record.part = Some((9, 3));
        assert_eq!(next_part(Some(&record), 3), 1);
    }
}
