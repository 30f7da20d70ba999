//! How far a comparison is.

use super::report::Run;

/// Is told what happens; always from the calling thread.
pub trait CompareMonitor {
    /// Preparations and decisions, a line each.
    fn say(&self, text: &str);
    /// A run begins; `run` of `runs` that the comparison will make at most.
    fn begins(&self, title: &str, run: u64, runs: u64);
    /// A run ended, well or not.
    fn ended(&self, run: &Run);
    /// Several times a second: `true` ends the comparison with a report of what there is.
    fn interrupted(&self) -> bool;
}
