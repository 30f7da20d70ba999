//! Who runs when: every tool once before any tool runs twice, and nobody always first; and what
//! fits into the time.

use std::time::{Duration, Instant};

use super::options::Case;

/// Kept for the report and for cleaning up.
const RESERVE: Duration = Duration::from_secs(15);
/// What a run may take of which nothing is known.
const UNKNOWN_SECONDS: f64 = 10.0;
/// Caches dropped, mounted, counted: what every run takes besides itself, until that is known.
const AROUND_SECONDS: f64 = 1.5;
/// Of another tool at the same work, or of itself at another time: it may be slower.
const CAUTION: f64 = 1.5;

/// A typical run over a first backup: unchanged ones are faster, some tools slower.
const TYPICAL_SHARE: f64 = 0.6;
/// Runs at the end may be left out rather than begin again for them.
const TOLERANCE: f64 = 1.3;
/// Of the files that would just fit.
const MODESTY: f64 = 0.7;
/// Beginning again takes time too.
const AGAIN_MAX: u32 = 2;
/// With fewer files only the start of programs is measured.
const FILES_MIN: u64 = 2_000;
const TOO_SLOW: Duration = Duration::from_secs(40);

/// Positions `0..count` beginning with another one in each round and for each kind of work.
pub(super) fn rotated(count: usize, round: u32, case: Case) -> impl Iterator<Item = usize> {
    let case = Case::ALL
        .iter()
        .position(|other| *other == case)
        .unwrap_or(0);
    let first = if count == 0 {
        0
    } else {
        (round as usize - 1 + case) % count
    };
    (first..count).chain(0..first)
}

/// The end of the time, and what runs took so far.
pub(super) struct Budget {
    deadline: Option<Instant>,
    known: Vec<(Case, &'static str, f64)>,
    /// What runs take besides themselves.
    around_seconds: f64,
    begun_again: u32,
}

impl Budget {
    pub fn new(began: Instant, length: Option<Duration>) -> Budget {
        let deadline = length.map(|length| began + length.saturating_sub(RESERVE));
        Budget {
            deadline,
            known: Vec::new(),
            around_seconds: AROUND_SECONDS,
            begun_again: 0,
        }
    }

    /// When a run that goes on is ended.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Where a first backup took `first_seconds` and so many runs are to come: how many of `files`
    /// would fit. `None`: all, or nobody waits.
    pub fn fitting_files(
        &self,
        files: u64,
        first_seconds: f64,
        runs: u64,
        now: Instant,
    ) -> Option<u64> {
        let left_seconds = self.deadline?.saturating_duration_since(now).as_secs_f64();
        let work_seconds = runs as f64 * first_seconds * TYPICAL_SHARE;
        let around_seconds = runs as f64 * self.around_seconds;
        let is_enough = work_seconds + around_seconds <= left_seconds * TOLERANCE;
        if is_enough || files <= FILES_MIN || self.begun_again >= AGAIN_MAX {
            return None;
        }
        // Only the work itself becomes less with fewer files.
        let part = (left_seconds * MODESTY - around_seconds) / work_seconds;
        Some(((files as f64 * part) as u64).clamp(FILES_MIN, (files / 2).max(FILES_MIN)))
    }

    /// When a first backup has shown that files are too many, whatever it still does.
    pub fn too_slow(&self, files: u64, now: Instant) -> Option<Instant> {
        (files > FILES_MIN && self.begun_again < AGAIN_MAX).then(|| now + TOO_SLOW)
    }

    /// What larger trees took says nothing.
    pub fn begin_again(&mut self) {
        self.known.clear();
        self.begun_again += 1;
    }

    /// What a run took, and what was needed around it.
    pub fn note(&mut self, case: Case, tool: &'static str, seconds: f64, around_seconds: f64) {
        let runs = self.known.len() as f64;
        self.around_seconds = (self.around_seconds * (runs + 1.0) + around_seconds) / (runs + 2.0);
        self.known.push((case, tool, seconds));
    }

    /// Would such a run end in time?
    pub fn allows(&self, case: Case, tool: &str, now: Instant) -> bool {
        let seconds = self.expected_seconds(case, tool) + self.around_seconds;
        self.deadline
            .is_none_or(|deadline| now + Duration::from_secs_f64(seconds) <= deadline)
    }

    /// Of the same tool at the same work; else from its own first backup, as others compare with
    /// theirs; else the slowest tool at that work; else a guess.
    fn expected_seconds(&self, case: Case, tool: &str) -> f64 {
        let slowest = |case: Case, tool: Option<&str>| {
            let runs = self
                .known
                .iter()
                .filter(|(other, name, _)| *other == case && tool.is_none_or(|tool| tool == *name));
            runs.map(|(_, _, seconds)| *seconds).max_by(f64::total_cmp)
        };
        let over_first = self.known.iter().filter(|(other, ..)| *other == case);
        let over_first = over_first
            .filter_map(|(_, name, seconds)| Some(seconds / slowest(Case::First, Some(name))?))
            .max_by(f64::total_cmp);
        let by_first = slowest(Case::First, Some(tool)).zip(over_first);
        slowest(case, Some(tool))
            .or(by_first.map(|(first, over)| first * over))
            .or_else(|| slowest(case, None))
            .map_or(UNKNOWN_SECONDS, |seconds| seconds * CAUTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_runs_once_a_round_and_everybody_is_first_once() {
        let mut firsts = Vec::new();
        for round in 1..=4 {
            let mut order: Vec<_> = rotated(4, round, Case::First).collect();
            firsts.push(order[0]);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3]);
        }
        firsts.sort_unstable();
        assert_eq!(firsts, [0, 1, 2, 3]);
        assert_eq!(rotated(0, 1, Case::First).count(), 0);
    }

    #[test]
    fn no_run_starts_that_would_end_too_late() {
        let began = Instant::now();
        let mut budget = Budget::new(began, Some(Duration::from_secs(115)));
        assert!(budget.allows(Case::First, "a", began));
        budget.note(Case::First, "a", 70.0, 1.5);
        assert!(
            !budget.allows(Case::First, "a", began),
            "itself was too slow before"
        );
        assert!(
            !budget.allows(Case::First, "b", began),
            "nothing better is known of it"
        );
        budget.note(Case::First, "b", 2.0, 1.5);
        assert!(budget.allows(Case::First, "b", began + Duration::from_secs(90)));
        assert!(!budget.allows(Case::First, "b", began + Duration::from_secs(97)));
        budget.note(Case::Restore, "a", 60.0, 1.5);
        let late = began + Duration::from_secs(90);
        assert!(
            budget.allows(Case::Restore, "b", late),
            "b was faster first"
        );
        assert!(Budget::new(began, None).allows(Case::First, "a", began));
    }

    #[test]
    fn a_tree_shrinks_until_it_fits_and_no_further() {
        let began = Instant::now();
        let mut budget = Budget::new(began, Some(Duration::from_secs(315)));
        let fitting =
            |budget: &Budget, files, seconds| budget.fitting_files(files, seconds, 36, began);
        assert_eq!(fitting(&budget, 25_000, 2.0), None);
        let fewer = fitting(&budget, 25_000, 40.0).unwrap();
        assert!((2_000..12_501).contains(&fewer), "{fewer}");
        assert_eq!(fitting(&budget, FILES_MIN, 40.0), None);
        assert_eq!(fitting(&budget, 25_000, 4000.0), Some(FILES_MIN));
        budget.note(Case::First, "a", 1.0, 1e6);
        assert_eq!(
            fitting(&budget, 25_000, 40.0),
            Some(FILES_MIN),
            "what does not shrink"
        );
        budget.begin_again();
        budget.begin_again();
        assert_eq!(fitting(&budget, 25_000, 40.0), None, "not for ever");
        assert!(budget.too_slow(25_000, began).is_none());
        assert_eq!(fitting(&Budget::new(began, None), 25_000, 1e6), None);
    }
}
