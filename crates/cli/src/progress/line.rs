//! The line that shows how far a command is: a pure function of what is known and of the width.
//!
//! What is known of the end decides what is said: without a total there is a number of things found
//! and no bar, which would claim an end. A narrow terminal loses details, never the number.

use crate::{output, sizes};
use bale_pipeline::monitor::{Phase, Progress};
use std::time::Duration;

/// Between the brackets of a bar.
const BAR_COLUMNS: usize = 20;
/// A place in fewer columns says nothing.
const PLACE_COLUMNS_MIN: usize = 12;
/// Rates of the first moment are noise.
const RATE_AFTER: Duration = Duration::from_secs(1);
/// Part that must be done before an end is foretold.
const PART_MIN: f64 = 0.01;

/// What is known of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    pub phase: Phase,
    pub progress: Progress,
    /// Since the phase began.
    pub elapsed: Duration,
    /// Directory that is worked on; empty: unknown.
    pub place: &'a [u8],
}

impl Shown<'_> {
    /// Is it known how much there is?
    pub fn is_total_known(&self) -> bool {
        self.progress.total > 0 || self.progress.bytes_total > 0
    }

    /// Part of the work that is done, by bytes if their total is known.
    fn part(&self) -> Option<f64> {
        let progress = &self.progress;
        match (progress.bytes_total, progress.total) {
            (0, 0) => None,
            (0, total) => Some(progress.done as f64 / total as f64),
            (bytes_total, _) => Some(progress.bytes_done as f64 / bytes_total as f64),
        }
    }

    /// From the rate so far; only once a hundredth is done and a second has passed.
    pub fn seconds_left(&self) -> Option<f64> {
        let (part, seconds) = (self.part()?, self.elapsed.as_secs_f64());
        let is_known = (PART_MIN..=1.0).contains(&part) && self.elapsed > RATE_AFTER;
        is_known.then(|| seconds / part - seconds)
    }

    /// Entries and bytes a second, on average since the phase began.
    pub fn per_second(&self) -> Option<(f64, f64)> {
        let seconds = self.elapsed.as_secs_f64();
        let rate = |number: u64| number as f64 / seconds;
        (self.elapsed > RATE_AFTER)
            .then(|| (rate(self.progress.done), rate(self.progress.bytes_done)))
    }

    /// Fits into so many columns, unless the number alone does not.
    pub fn line(&self, columns: usize) -> String {
        let number = self.number(columns);
        let (count, bytes) = (self.count(), self.bytes());
        let left = self.seconds_left();
        let left = left.map(|seconds| format!("{} left", sizes::duration(seconds)));
        let rates = self.per_second();
        let bytes_rate = rates.filter(|(_, bytes)| *bytes >= 1.0);
        let bytes_rate = bytes_rate.map(|(_, bytes)| format!("{}/s", sizes::bytes(bytes as u64)));
        let rate = rates.filter(|(entries, _)| *entries >= 1.0);
        let rate = rate.map(|(entries, _)| self.rate(entries as u64));
        let mut fitted = Fitted::new(columns, number);
        // In the order of what is worth its columns.
        let phase = fitted.take(Some(format!("{}: ", phase_name(self.phase))), 0);
        let left = fitted.take(left, 2);
        let bytes = fitted.take(bytes, 2);
        let count = fitted.take(count, 2);
        let bytes_rate = fitted.take(bytes_rate, 2);
        let rate = fitted.take(rate, 2);
        let bar = fitted.take(self.part().map(bar), 0);
        let place = fitted.place(self.place);
        let first = [phase, bar, Some(fitted.number)];
        let details = [count, bytes, rate, bytes_rate, left, place];
        let details: Vec<String> = details.into_iter().flatten().collect();
        let first: String = first.into_iter().flatten().collect();
        [vec![first], details].concat().join(", ")
    }

    /// What is never left out: a percentage, or how much was found.
    fn number(&self, columns: usize) -> String {
        if let Some(part) = self.part() {
            return format!("{:>3} %", percent(part));
        }
        let progress = &self.progress;
        match (progress.done, progress.bytes_done) {
            (0, 0) => "under way".to_owned(),
            (0, bytes) => format!("{} so far", sizes::bytes(bytes)),
            (done, _) => match self.found(done) {
                text if text.chars().count() <= columns => text,
                _ => sizes::count(done),
            },
        }
    }

    fn found(&self, done: u64) -> String {
        match self.phase {
            Phase::Backup => format!("{} found", sizes::counted(done, "file")),
            Phase::Scan => format!("{} found", sizes::counted(done, "inode")),
            _ => format!("{} so far", sizes::count(done)),
        }
    }

    /// Beside a percentage.
    fn count(&self) -> Option<String> {
        let progress = &self.progress;
        let is_shown = self.is_total_known() && (progress.done > 0 || progress.total > 0);
        is_shown.then(|| match progress.total {
            0 => sizes::count(progress.done),
            total => format!("{} of {}", sizes::count(progress.done), sizes::count(total)),
        })
    }

    fn bytes(&self) -> Option<String> {
        let progress = &self.progress;
        match (progress.bytes_done, progress.bytes_total) {
            (0, 0) => None,
            (done, 0) if progress.done > 0 || self.is_total_known() => Some(sizes::bytes(done)),
            (_, 0) => None,
            (done, total) => Some(format!("{} of {}", sizes::bytes(done), sizes::bytes(total))),
        }
    }

    fn rate(&self, entries: u64) -> String {
        let noun = match self.phase {
            Phase::Backup => " files",
            _ => "",
        };
        format!("{}{noun}/s", sizes::count(entries))
    }
}

/// Rounded down: all is only all at the end.
fn percent(part: f64) -> u64 {
    (part.clamp(0.0, 1.0) * 100.0) as u64
}

fn bar(part: f64) -> String {
    let full = (part.clamp(0.0, 1.0) * BAR_COLUMNS as f64) as usize;
    let head = if full < BAR_COLUMNS { ">" } else { "" };
    let bar = format!("{}{head}", "=".repeat(full));
    format!("[{bar:<BAR_COLUMNS$}] ")
}

/// What has found room.
struct Fitted {
    columns_left: usize,
    number: String,
}

impl Fitted {
    fn new(columns: usize, number: String) -> Fitted {
        Fitted {
            columns_left: columns.saturating_sub(number.chars().count()),
            number,
        }
    }

    /// The text, if there is room for it and what separates it from others.
    fn take(&mut self, text: Option<String>, separator: usize) -> Option<String> {
        let text = text?;
        let columns = text.chars().count() + separator;
        let left = self.columns_left.checked_sub(columns)?;
        self.columns_left = left;
        Some(text)
    }

    /// The end of a path, in whatever room is left.
    fn place(&mut self, path: &[u8]) -> Option<String> {
        let room = self.columns_left.saturating_sub(2);
        if path.is_empty() || room < PLACE_COLUMNS_MIN {
            return None;
        }
        let path = output::escape(path);
        let wide: usize = path.chars().map(columns).sum();
        if wide <= room {
            return Some(path);
        }
        let mut kept = 1;
        let end = path.char_indices().rev().find(|(_, letter)| {
            kept += columns(*letter);
            kept > room
        });
        let (at, letter) = end?;
        Some(format!("…{}", &path[at + letter.len_utf8()..]))
    }
}

/// Of a letter, at most: those of Asia are twice as wide.
fn columns(letter: char) -> usize {
    if letter.is_ascii() { 1 } else { 2 }
}

/// As in `--json`.
pub fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Scan => "scan",
        Phase::Backup => "backup",
        Phase::Commit => "commit",
        Phase::Plan => "plan",
        Phase::Restore => "restore",
        Phase::Finish => "finish",
        Phase::Structure => "structure",
        Phase::ReadData => "read-data",
        Phase::FindUsed => "find-used",
        Phase::Repack => "repack",
        Phase::Delete => "delete",
        Phase::Copy => "copy",
        Phase::Generate => "generate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(progress: [u64; 4], seconds: u64) -> Shown<'static> {
        let [done, total, bytes_done, bytes_total] = progress;
        Shown {
            phase: Phase::Backup,
            progress: Progress {
                done,
                total,
                bytes_done,
                bytes_total,
            },
            elapsed: Duration::from_secs(seconds),
            place: b"/home/me/mail/archive/2024/inbox",
        }
    }

    const GIB: u64 = 1 << 30;

    #[test]
    fn without_a_total_nothing_claims_an_end() {
        let walk = shown([12_345_678, 0, 3 * GIB, 0], 100);
        for columns in 0..200 {
            let line = walk.line(columns);
            assert!(
                !line.contains(['%', '[']) && !line.contains("left"),
                "{line}"
            );
            assert!(line.contains("12,345,678"), "{columns}: {line}");
        }
        assert_eq!(
            walk.line(120),
            "backup: 12,345,678 files found, 3.0 GiB, 123,456 files/s, 30.7 MiB/s, \
             /home/me/mail/archive/2024/inbox"
        );
        assert!(!walk.is_total_known());
        assert_eq!(walk.seconds_left(), None);
    }

    #[test]
    fn with_a_total_there_is_an_end_in_sight_and_all_is_said_only_at_the_end() {
        let half = shown([500, 1000, GIB, 2 * GIB], 60);
        assert_eq!(
            half.line(200),
            "backup: [==========>         ]  50 %, 500 of 1,000, 1.0 GiB of 2.0 GiB, 8 files/s, \
             17.1 MiB/s, 60.0 s left, /home/me/mail/archive/2024/inbox"
        );
        let nearly = shown([999, 1000, 2 * GIB - 1, 2 * GIB], 60);
        assert!(nearly.line(30).contains(" 99 %"), "{}", nearly.line(30));
        assert!(shown([9, 9, 5, 5], 60).line(30).contains("100 %"));
        let young = shown([500, 1000, GIB, 2 * GIB], 0);
        assert!(!young.line(200).contains("/s"), "{}", young.line(200));
    }

    #[test]
    fn a_narrow_terminal_loses_details_and_not_the_number() {
        for (columns, walk, half) in [
            (0, "12,345", " 50 %"),
            (18, "12,345 files found", "backup:  50 %"),
            (
                38,
                "backup: 12,345 files found, 1.0 GiB",
                "backup:  50 %, 17.1 MiB/s, 60.0 s left",
            ),
            (
                78,
                "backup: 12,345 files found, 1.0 GiB, 205 files/s, 17.1 MiB/s, …hive/2024/inbox",
                "backup:  50 %, 500 of 1,000, 1.0 GiB of 2.0 GiB, 17.1 MiB/s, 60.0 s left",
            ),
        ] {
            assert_eq!(shown([12_345, 0, GIB, 0], 60).line(columns), walk);
            assert_eq!(shown([500, 1000, GIB, 2 * GIB], 60).line(columns), half);
        }
        for columns in 18..300 {
            for one in [shown([12_345, 0, GIB, 0], 60), shown([5, 9, 3, 7], 60)] {
                let line = one.line(columns);
                assert!(line.chars().count() <= columns, "{columns}: {line}");
            }
        }
    }

    #[test]
    fn odd_names_cannot_make_the_line_longer_or_steer_the_terminal() {
        for name in [
            "/a\x1b[2J\n",
            "/\u{6587}\u{5b57}\u{6587}\u{5b57}\u{6587}\u{5b57}\u{6587}",
        ] {
            let one = Shown {
                place: name.as_bytes(),
                ..shown([5, 0, 0, 0], 0)
            };
            for columns in 20..80 {
                let line = one.line(columns);
                let wide: usize = line.chars().map(super::columns).sum();
                assert!(wide <= columns + 1, "{columns}: {line}");
                assert!(!line.contains(char::is_control), "{line:?}");
            }
        }
    }
}
