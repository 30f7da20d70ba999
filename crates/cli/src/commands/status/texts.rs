//! What was found of a source, in words.

use crate::sizes;
use crate::times::local_time;
use bale_engine::status::Finding;
use std::time::Duration;

/// In one word, for scripts.
pub(super) fn kind(finding: &Finding) -> &'static str {
    match finding {
        Finding::NeverFinished => "never-finished",
        Finding::NeverBackedUp { .. } => "never-backed-up",
        Finding::Late { .. } => "late",
        Finding::Problems { .. } => "problems",
        Finding::ClockBehind => "clock-behind",
        Finding::InFuture { .. } => "in-future",
        Finding::Unfinished { .. } => "unfinished",
        Finding::Replaced => "replaced",
        Finding::SuddenChange(_) => "sudden-change",
    }
}

/// For people: what, and what to do.
pub(super) fn text(finding: &Finding) -> String {
    match finding {
        Finding::NeverFinished => "no backup of it was ever finished".to_owned(),
        Finding::NeverBackedUp { profile } => format!(
            "never backed up: the profile {profile} names it, and there is no snapshot of it (bale \
             run {profile} makes one; bale schedule status {profile} says whether anything starts \
             it)"
        ),
        Finding::Late {
            age: old,
            missed: Some(missed),
            ..
        } => format!(
            "late: its last backup began {} ago, and the profile {} had one due {}",
            age(*old),
            missed.profile,
            local_time(missed.moment)
        ),
        Finding::Late {
            age: old, age_max, ..
        } => format!(
            "late: its last backup began {} ago, and {} is allowed",
            age(*old),
            age(*age_max)
        ),
        Finding::Problems { snapshot, problems } => format!(
            "{} in snapshot {}: files there may be missing or inconsistent",
            sizes::counted(*problems, "problem"),
            snapshot.short()
        ),
        Finding::ClockBehind => "all its snapshots are dated in the future: is the clock of this \
                                 machine right? How old they are is not known"
            .to_owned(),
        Finding::InFuture { snapshots } => {
            let ids: Vec<_> = snapshots.iter().map(|id| id.short()).collect();
            format!(
                "dated in the future, and not counted: {} (bale forget removes what a wrong clock \
                 made)",
                ids.join(" ")
            )
        }
        Finding::Unfinished { run, is_silent } => match is_silent {
            false => format!(
                "a backup of it ({}) is running, or ended unfinished in the last hour: the next \
                 one goes on from it",
                run.short()
            ),
            true => format!(
                "its last run ({}) was stopped, probably: it showed no sign of life for an hour",
                run.short()
            ),
        },
        Finding::SuddenChange(change) => change.text(),
        Finding::Replaced => "another file system is backed up at its place by now: its age does \
                              not count"
            .to_owned(),
    }
}

/// `45 min`, `5 h`, `3 days`.
pub(super) fn age(age: Duration) -> String {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const DAY: u64 = 24 * HOUR;
    match age.as_secs() {
        seconds if seconds < 2 * MINUTE => format!("{seconds} s"),
        seconds if seconds < 2 * HOUR => format!("{} min", seconds / MINUTE),
        seconds if seconds < 2 * DAY => format!("{} h", seconds / HOUR),
        seconds => format!("{} days", sizes::count(seconds / DAY)),
    }
}

/// `+1.4 GiB`.
pub(super) fn growth(bytes: i64) -> String {
    let sign = match bytes {
        0 => "",
        bytes if bytes > 0 => "+",
        _ => "-",
    };
    format!("{sign}{}", sizes::bytes(bytes.unsigned_abs()))
}

/// Stored a day.
pub(super) fn per_day(bytes: f64) -> String {
    sizes::bytes(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_the_unit_that_people_think_in() {
        for (seconds, text) in [
            (0, "0 s"),
            (119, "119 s"),
            (120, "2 min"),
            (7_199, "119 min"),
            (7_200, "2 h"),
            (172_799, "47 h"),
            (172_800, "2 days"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
        assert_eq!(
            [growth(1024), growth(0), growth(-1)],
            ["+1.0 KiB", "0 B", "-1 B"]
        );
    }
}
