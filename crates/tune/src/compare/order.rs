//! Who runs when: every tool once before any tool runs twice, and nobody always first; and what fits into the time.

use std::time::{Duration, Instant};

use super::options::Case;

/// Kept for the report and for cleaning up.
const RESERVE: Duration = Duration::from_secs(15);
/// What a run may take of which nothing is known.
const UNKNOWN_SECONDS: f64 = 10.0;
/// Caches dropped, mounted, counted: what every run takes besides itself.
const AROUND_SECONDS: f64 = 1.5;
/// Of another tool at the same work, or of itself at another time: it may be slower.
const CAUTION: f64 = 1.5;

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
}

impl Budget {
    pub fn new(began: Instant, length: Option<Duration>) -> Budget {
        let deadline = length.map(|length| began + length.saturating_sub(RESERVE));
        Budget {
            deadline,
            known: Vec::new(),
        }
    }

    /// When a run that goes on is ended.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub fn note(&mut self, case: Case, tool: &'static str, seconds: f64) {
        self.known.push((case, tool, seconds));
    }

    /// Would such a run end in time?
    pub fn allows(&self, case: Case, tool: &str, now: Instant) -> bool {
        let seconds = self.expected_seconds(case, tool) + AROUND_SECONDS;
        self.deadline
            .is_none_or(|deadline| now + Duration::from_secs_f64(seconds) <= deadline)
    }

    /// Of the same tool at the same work; else the slowest tool at that work; else a guess.
    fn expected_seconds(&self, case: Case, tool: &str) -> f64 {
        let slowest = |is_meant: &dyn Fn(&str) -> bool| {
            let runs = self
                .known
                .iter()
                .filter(|(other, name, _)| *other == case && is_meant(name));
            runs.map(|(_, _, seconds)| *seconds).max_by(f64::total_cmp)
        };
        let own = slowest(&|name| name == tool);
        own.or_else(|| slowest(&|_| true))
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
        budget.note(Case::First, "a", 70.0);
        assert!(
            !budget.allows(Case::First, "a", began),
            "itself was too slow before"
        );
        assert!(
            !budget.allows(Case::First, "b", began),
            "nothing better is known of it"
        );
        budget.note(Case::First, "b", 2.0);
        assert!(budget.allows(Case::First, "b", began + Duration::from_secs(90)));
        assert!(!budget.allows(Case::First, "b", began + Duration::from_secs(97)));
        assert!(Budget::new(began, None).allows(Case::First, "a", began));
    }
}
