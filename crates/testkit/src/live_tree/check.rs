//! Whether what was read is what was there.

use super::content::{BLOCK_BYTES, FileContent, recognize};
use super::log::{Log, Manner, Step, now};
use bale_format::Time;
use std::collections::BTreeSet;

/// Faults that are told in words.
const FAULTS_REPORTED_MAX: usize = 12;

/// The moment that something claims to show.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Not earlier than this: the clock of ctimes, which lags behind by a tick or so.
    coarse: i128,
    /// Not later than this.
    fine: i128,
    /// Reading was over.
    end: i128,
}

impl Moment {
    /// Of a barrier. Reading is over now.
    pub fn of_barrier(coarse: Time, fine: Time) -> Moment {
        let nanos = |time: Time| i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanos);
        Moment {
            coarse: nanos(coarse),
            fine: nanos(fine),
            end: now(),
        }
    }

    /// This moment, when nobody writes.
    pub fn now() -> Moment {
        let now = now();
        Moment {
            coarse: now,
            fine: now,
            end: now,
        }
    }
}

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// From the root of the tree.
    pub path: Vec<u8>,
    /// It is said to be what it was at the moment. Otherwise it was read later, at no certain time.
    pub settled: bool,
    /// Bytes; `None`: it is said that they could not be read.
    pub content: Option<Vec<u8>>,
    /// What else is known of it, for who has to find out what went wrong.
    pub told: String,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveTreeReport {
    /// Files that were right at the moment.
    pub settled: usize,
    /// Files that were read later.
    pub unsettled: usize,
    /// Of these, those that are of no single moment: must be read again.
    pub unsettled_torn: usize,
    /// Files that could not be read: gone while they were looked for.
    pub unread: usize,
    /// Settled files that mix versions.
    pub torn: usize,
    /// Settled files of another moment.
    pub stale: usize,
    /// Files with bytes that were never theirs.
    pub foreign: usize,
    /// Files that were there all the time and were not seen.
    pub missing: usize,
    /// Files that were seen and were not there all the time.
    pub extra: usize,
    /// The first of the faults.
    pub faults: Vec<String>,
}

impl LiveTreeReport {
    /// Files that are wrong.
    pub fn wrong(&self) -> usize {
        self.torn + self.stale + self.foreign + self.missing + self.extra
    }

    fn report(&mut self, fault: String) {
        if self.faults.len() < FAULTS_REPORTED_MAX {
            self.faults.push(fault);
        }
    }
}

pub(super) fn check(
    log: &Log,
    moment: Moment,
    seen: impl IntoIterator<Item = Seen>,
) -> LiveTreeReport {
    let mut report = LiveTreeReport::default();
    let mut unseen: BTreeSet<String> = log.paths().into_iter().collect();
    for seen in seen {
        let path = String::from_utf8_lossy(&seen.path).into_owned();
        let steps = log.of(&path);
        // Not logged: nothing is known of it.
        if unseen.remove(&path) {
            check_file(&mut report, &path, &steps, moment, &seen);
        }
    }
    for path in unseen {
        let steps = log.of(&path);
        let possible = possible(&steps, moment.coarse, moment.end);
        if !possible.is_empty() && possible.iter().all(|content| content.is_some()) {
            report.missing += 1;
            report.report(format!("{path} is missing; {}", story(&steps, moment)));
        }
    }
    report
}

fn check_file(
    report: &mut LiveTreeReport,
    path: &str,
    steps: &[Step],
    moment: Moment,
    seen: &Seen,
) {
    let Some(bytes) = &seen.content else {
        report.unread += 1;
        return;
    };
    let until = if seen.settled {
        moment.fine
    } else {
        moment.end
    };
    let possible = possible(steps, moment.coarse, until);
    let ever = self::possible(steps, moment.coarse, moment.end);
    let is_one_of = |contents: &[Option<&FileContent>]| {
        contents.iter().flatten().any(|content| content.is(bytes))
    };
    if ever.iter().all(|content| content.is_none()) {
        report.extra += 1;
        return report.report(format!("{path} was not there; {}", story(steps, moment)));
    }
    if is_one_of(&possible) || seen.settled && is_under_way(steps, moment, bytes) {
        report.settled += usize::from(seen.settled);
        report.unsettled += usize::from(!seen.settled);
        return;
    }
    if seen.settled && is_being_truncated(steps, moment, bytes) {
        report.unsettled += 1;
        return;
    }
    let contents: Vec<_> = steps.iter().map(|step| step.content.as_ref()).collect();
    let what = if !is_theirs(&contents, bytes) {
        report.foreign += 1;
        "foreign"
    } else if !seen.settled {
        report.unsettled += 1;
        report.unsettled_torn += 1;
        return;
    } else if is_one_of(&contents) {
        report.stale += 1;
        "of another moment"
    } else {
        report.torn += 1;
        "torn"
    };
    let blocks: Vec<_> = bytes.chunks(BLOCK_BYTES).map(recognize).take(3).collect();
    let len = bytes.len();
    report.report(format!(
        "{path} is {what}: {len} bytes, {blocks:?} ...; {}; {}",
        seen.told,
        story(steps, moment)
    ));
}

/// Everything that a path may have been between two times.
fn possible(steps: &[Step], from: i128, until: i128) -> Vec<Option<&FileContent>> {
    let before = steps.iter().rfind(|step| step.end < from);
    let during = steps
        .iter()
        .filter(|step| step.start <= until && step.end >= from);
    let first = before.and_then(|step| step.content.as_ref());
    std::iter::once(first)
        .chain(during.map(|step| step.content.as_ref()))
        .collect()
}

/// Whether these are blocks of before and after a change that goes block by block, at the moment it
/// was under way.
fn is_under_way(steps: &[Step], moment: Moment, bytes: &[u8]) -> bool {
    steps.windows(2).any(|pair| {
        let (Some(old), Some(new)) = (&pair[0].content, &pair[1].content) else {
            return false;
        };
        let is_then = pair[1].start <= moment.fine && pair[1].end >= moment.coarse;
        let mut blocks = bytes.chunks(BLOCK_BYTES).enumerate();
        pair[1].manner == Manner::ByBlock
            && is_then
            && old.len_bytes() == bytes.len() as u64
            && blocks.all(|(at, block)| {
                recognize(block)
                    .is_some_and(|stamp| [old.stamp(at), new.stamp(at)].contains(&stamp))
            })
    })
}

/// Whether this is what a truncation after the moment left: who asks while it is under way is told
/// the ctime of before.
fn is_being_truncated(steps: &[Step], moment: Moment, bytes: &[u8]) -> bool {
    let mut later = steps.iter().filter(|step| {
        step.manner == Manner::Truncation && step.end >= moment.coarse && step.start <= moment.end
    });
    later.any(|step| {
        step.content
            .as_ref()
            .is_some_and(|content| content.is(bytes))
    })
}

/// Whether each block is one that the file ever had, or zeroes.
fn is_theirs(contents: &[Option<&FileContent>], bytes: &[u8]) -> bool {
    let files: BTreeSet<u32> = contents
        .iter()
        .flatten()
        .flat_map(|content| (0..content.blocks()).filter_map(|at| content.stamp(at)))
        .map(|stamp| stamp.file)
        .collect();
    bytes
        .chunks(BLOCK_BYTES)
        .all(|block| match recognize(block) {
            Some(Some(stamp)) => files.contains(&stamp.file),
            // A page may be half written while the kernel reads it; its first half tells whose it
            // is.
            None => files
                .iter()
                .any(|file| block.starts_with(format!("{file:08} ").as_bytes())),
            Some(None) => true,
        })
}

/// What happened around the moment, in milliseconds from it.
fn story(steps: &[Step], moment: Moment) -> String {
    let near = steps.partition_point(|step| step.end < moment.coarse);
    let near = &steps[near.saturating_sub(2)..(near + 3).min(steps.len())];
    let millis = |time: i128| (time - moment.fine) as f64 / 1e6;
    let steps: Vec<_> = near
        .iter()
        .map(|step| {
            let stamp = step
                .content
                .as_ref()
                .map(|content| (content.len_bytes(), content.stamp(0)));
            format!(
                "{:.3}..{:.3} ms {stamp:?}",
                millis(step.start),
                millis(step.end)
            )
        })
        .collect();
    format!("steps: {}", steps.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Versions 1 and 2 of file 7 at `p`, written at 10..20 and 30..40; `q` always there.
    fn log() -> Log {
        let log = Log::default();
        let step = |start, end, version| Step {
            start,
            end,
            content: Some(FileContent::whole(7, version, 3 * BLOCK_BYTES as u64)),
            manner: Manner::AtOnce,
        };
        log.insert("p", vec![step(10, 20, 1), step(30, 40, 2)]);
        log.insert("q", vec![step(1, 2, 1)]);
        log
    }

    /// Reading was over long after it.
    fn moment_at(moment: i128) -> Moment {
        Moment {
            coarse: moment,
            fine: moment,
            end: 100,
        }
    }

    fn file(path: &str, settled: bool, content: Vec<u8>) -> Seen {
        Seen {
            path: path.as_bytes().to_vec(),
            settled,
            content: Some(content),
            told: String::new(),
        }
    }

    fn at(moment: i128, settled: bool, content: Vec<u8>) -> LiveTreeReport {
        let moment = moment_at(moment);
        let q = FileContent::whole(7, 1, 3 * BLOCK_BYTES as u64).bytes();
        check(
            &log(),
            moment,
            [file("p", settled, content), file("q", true, q)],
        )
    }

    fn version(version: u32) -> Vec<u8> {
        FileContent::whole(7, version, 3 * BLOCK_BYTES as u64).bytes()
    }

    #[test]
    fn a_settled_file_must_be_what_it_was_at_the_moment() {
        assert_eq!(at(25, true, version(1)).wrong(), 0);
        assert_eq!(at(25, true, version(2)).stale, 1);
        assert_eq!(at(50, true, version(1)).stale, 1);
        assert_eq!(at(35, true, version(1)).wrong(), 0);
        assert_eq!(at(35, true, version(2)).wrong(), 0);
        assert_eq!(at(25, false, version(2)).wrong(), 0);
    }

    #[test]
    fn torn_foreign_missing_and_extra_files_are_found() {
        let torn = [&version(1)[..BLOCK_BYTES], &version(2)[BLOCK_BYTES..]].concat();
        assert_eq!(at(50, true, torn.clone()).torn, 1);
        let unsettled = at(25, false, torn);
        assert_eq!((unsettled.wrong(), unsettled.unsettled_torn), (0, 1));
        let foreign = FileContent::whole(8, 1, 3 * BLOCK_BYTES as u64).bytes();
        assert_eq!(at(50, false, foreign).foreign, 1);
        assert_eq!(at(50, true, b"nothing of ours".to_vec()).foreign, 1);
        let moment = Moment {
            coarse: 50,
            fine: 50,
            end: 60,
        };
        assert_eq!(check(&log(), moment, []).missing, 2);
        let early = Moment {
            coarse: 5,
            fine: 5,
            end: 6,
        };
        let seen = file("p", true, version(1));
        assert_eq!(check(&log(), early, [seen]).extra, 1);
    }

    #[test]
    fn a_change_block_by_block_may_be_seen_half_done_only_while_it_is_under_way() {
        let log = Log::default();
        let step = |start, end, version, manner| Step {
            start,
            end,
            content: Some(FileContent::whole(7, version, 3 * BLOCK_BYTES as u64)),
            manner,
        };
        let half = [&version(2)[..BLOCK_BYTES], &version(1)[BLOCK_BYTES..]].concat();
        let (at_once, by_block) = (Manner::AtOnce, Manner::ByBlock);
        for (manner, moment, wrong) in [(by_block, 35, 0), (by_block, 45, 1), (at_once, 35, 1)] {
            log.insert("p", vec![step(10, 20, 1, at_once), step(30, 40, 2, manner)]);
            let moment = moment_at(moment);
            let seen = file("p", true, half.clone());
            assert_eq!(check(&log, moment, [seen]).torn, wrong);
        }
    }

    #[test]
    fn what_a_truncation_left_may_be_seen_with_the_time_of_before() {
        for (manner, moment, stale) in [
            (Manner::Truncation, 25, 0),
            (Manner::AtOnce, 25, 1),
            (Manner::Truncation, 45, 1),
        ] {
            let log = Log::default();
            let step = |start, end, len, manner| Step {
                start,
                end,
                content: Some(FileContent::whole(7, 1, len)),
                manner,
            };
            let steps = vec![
                step(10, 20, BLOCK_BYTES as u64, Manner::AtOnce),
                step(30, 40, 0, manner),
                step(41, 43, BLOCK_BYTES as u64, Manner::AtOnce),
            ];
            log.insert("p", steps);
            let moment = moment_at(moment);
            let seen = file("p", true, Vec::new());
            assert_eq!(check(&log, moment, [seen]).stale, stale, "{manner:?}");
        }
    }
}
