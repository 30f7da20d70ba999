//! What was done when.

use super::content::FileContent;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// One change of one path.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Nanoseconds since 1970, before and after the system call.
    pub(super) start: i128,
    pub(super) end: i128,
    /// What it left; `None`: no such path.
    pub(super) content: Option<FileContent>,
    pub(super) manner: Manner,
}

/// How a change comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Everything that can be seen changes at once.
    AtOnce,
    /// In between, some blocks are old and some new.
    ByBlock,
    /// The kernel shows the new length before the new ctime: `ext4_setattr` and `xfs_setattr_size`
    /// set the one, then truncate, then set the other, and `stat` takes no lock.
    Truncation,
}

/// What a path has, by path.
pub(super) type States = BTreeMap<String, Option<FileContent>>;

/// Steps of each path, in order.
#[derive(Default)]
pub(super) struct Log {
    steps: Mutex<BTreeMap<String, Vec<Step>>>,
}

impl Log {
    /// Does something that changes paths, and notes when.
    pub(super) fn step(
        &self,
        changes: &[(&str, Option<FileContent>)],
        manner: Manner,
        act: impl FnOnce(),
    ) {
        let start = now();
        act();
        let end = now();
        let mut steps = self.steps.lock().expect("no writer panicked");
        for (path, content) in changes {
            let step = Step {
                start,
                end,
                content: content.clone(),
                manner,
            };
            steps.entry((*path).to_owned()).or_default().push(step);
        }
    }

    #[cfg(test)]
    pub(super) fn insert(&self, path: &str, steps: Vec<Step>) {
        let mut all = self.steps.lock().expect("no writer panicked");
        all.insert(path.to_owned(), steps);
    }

    pub(super) fn paths(&self) -> Vec<String> {
        let steps = self.steps.lock().expect("no writer panicked");
        steps.keys().cloned().collect()
    }

    pub(super) fn of(&self, path: &str) -> Vec<Step> {
        let steps = self.steps.lock().expect("no writer panicked");
        steps.get(path).cloned().unwrap_or_default()
    }

    pub(super) fn last_states(&self) -> States {
        let steps = self.steps.lock().expect("no writer panicked");
        let last = |steps: &Vec<Step>| steps.last().and_then(|step| step.content.clone());
        steps
            .iter()
            .map(|(path, steps)| (path.clone(), last(steps)))
            .collect()
    }

    pub(super) fn steps(&self) -> usize {
        let steps = self.steps.lock().expect("no writer panicked");
        steps.values().map(Vec::len).sum()
    }
}

/// The fine clock.
pub(super) fn now() -> i128 {
    let now = clock_gettime(ClockId::Realtime);
    i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec)
}
