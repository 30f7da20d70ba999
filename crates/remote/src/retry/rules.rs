//! When a request is made again: pauses that double and are drawn by lot, and their end.

use std::time::Duration;

/// When to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryRules {
    /// Pause before the second try.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// From the first failure of a request; then its error is final. Half as long after each time
    /// that was waited in vain, so a command waits at most twice as long for nothing.
    pub give_up_after: Duration,
}

impl Default for RetryRules {
    fn default() -> Self {
        RetryRules {
            first: Duration::from_secs(1),
            longest: Duration::from_secs(60),
            give_up_after: Duration::from_secs(15 * 60),
        }
    }
}

impl RetryRules {
    /// Every request is made once.
    pub const ONCE: RetryRules = RetryRules {
        first: Duration::ZERO,
        longest: Duration::ZERO,
        give_up_after: Duration::ZERO,
    };

    /// Pause after so many tries: it doubles, and between half of it and all is drawn by `lot`
    /// (0 to `u64::MAX`), so that clients who failed together do not come back together.
    pub(super) fn pause(&self, tries: u32, lot: u64) -> Duration {
        let doubled = 1u32
            .checked_shl(tries.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(doubled).min(self.longest);
        let part = lot as f64 / u64::MAX as f64;
        whole / 2 + (whole / 2).mul_f64(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_drawn_between_half_and_whole() {
        let rules = RetryRules::default();
        assert_eq!(rules.pause(1, 0), Duration::from_millis(500));
        assert_eq!(rules.pause(1, u64::MAX), Duration::from_secs(1));
        assert_eq!(rules.pause(200, u64::MAX), Duration::from_secs(60));
    }
}
