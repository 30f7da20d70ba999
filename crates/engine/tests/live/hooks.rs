//! Doing something at a certain point of a backup.

use bale_pipeline::monitor::{Monitor, Problem, Recorder};

/// Does something when the inodes were gathered and no row was made yet, and something else after
/// the second look.
pub struct Meddler<'a> {
    pub gathered: &'a (dyn Fn() + Sync),
    pub looked_again: &'a (dyn Fn() + Sync),
    pub recorder: Recorder,
}

impl Monitor for Meddler<'_> {
    fn problem(&self, problem: &Problem) {
        self.recorder.problem(problem);
    }

    fn note(&self, text: &str) {
        if text.starts_with("inode scan of ") {
            (self.gathered)();
        }
        if text.contains("changed while it was read") {
            (self.looked_again)();
        }
        self.recorder.note(text);
    }
}
