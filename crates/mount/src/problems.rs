//! What could not be read, for whoever serves the mount: each thing once, and not more than a
//! bound.

use crate::limits::PROBLEMS_NAMED_MAX;
use bale_format::ObjectId;
use bale_pipeline::error::with_causes;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One thing that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountProblem {
    /// Below the mount, without leading slash; empty for all of it.
    pub path: Vec<u8>,
    /// What was attempted: `read`, `list` ...
    pub action: &'static str,
    /// Why it failed, and what to do.
    pub text: String,
}

/// Collected by the threads that answer, taken by the one that reports.
#[derive(Default)]
pub struct MountProblems(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    /// Hashes of what was named.
    named: HashSet<u64>,
    new: Vec<MountProblem>,
    is_list_unreadable: bool,
}

impl MountProblems {
    /// Since the last call.
    pub fn take(&self) -> Vec<MountProblem> {
        std::mem::take(&mut self.lock().new)
    }

    /// Of a file or a directory.
    pub fn add(&self, path: Vec<u8>, action: &'static str, text: String) {
        self.lock().add(MountProblem { path, action, text });
    }

    pub fn snapshot_cannot_be_read(&self, id: &ObjectId, trouble: &dyn std::error::Error) {
        let text = format!(
            "the snapshot {} is not shown: {}; bale check says what is damaged",
            id.short(),
            with_causes(trouble)
        );
        self.add(b"snapshots".to_vec(), "list", text);
    }

    pub fn too_many_snapshots(&self, max: usize) {
        let text = format!("a mount shows {max} snapshots in its life: mount again to see more");
        self.add(b"snapshots".to_vec(), "list", text);
    }

    /// Once until it can be read again.
    pub fn list_cannot_be_read(&self, trouble: &dyn std::error::Error) {
        let mut noted = self.lock();
        if std::mem::replace(&mut noted.is_list_unreadable, true) {
            return;
        }
        let text = format!(
            "which snapshots there are is not known now, and shown is what was there before: {}",
            with_causes(trouble)
        );
        if noted.new.len() < PROBLEMS_NAMED_MAX {
            noted.new.push(MountProblem {
                path: b"snapshots".to_vec(),
                action: "list",
                text,
            });
        }
    }

    pub fn list_can_be_read(&self) {
        self.lock().is_list_unreadable = false;
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Noted {
    fn add(&mut self, mut problem: MountProblem) {
        let mut hasher = DefaultHasher::new();
        (&problem.path, problem.action).hash(&mut hasher);
        let named = self.named.len();
        if named > PROBLEMS_NAMED_MAX || !self.named.insert(hasher.finish()) {
            return;
        }
        if named == PROBLEMS_NAMED_MAX {
            (problem.text).push_str("; what else cannot be read is not named");
        }
        self.new.push(problem);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_is_named_once_and_all_of_them_are_bounded() {
        let problems = MountProblems::default();
        for number in 0..2 * PROBLEMS_NAMED_MAX {
            let path = number.to_string().into_bytes();
            problems.add(path.clone(), "read", "damaged".to_owned());
            problems.add(path, "read", "damaged again".to_owned());
        }
        let taken = problems.take();
        assert_eq!(taken.len(), PROBLEMS_NAMED_MAX + 1);
        assert!(taken.iter().all(|problem| !problem.text.contains("again")));
        assert!(taken[PROBLEMS_NAMED_MAX].text.contains("not named"));
        assert!(problems.take().is_empty());
    }

    #[test]
    fn a_list_that_cannot_be_read_is_said_once_until_it_can() {
        let problems = MountProblems::default();
        let trouble = std::io::Error::other("gone");
        problems.list_cannot_be_read(&trouble);
        problems.list_cannot_be_read(&trouble);
        assert_eq!(problems.take().len(), 1);
        problems.list_can_be_read();
        problems.list_cannot_be_read(&trouble);
        assert_eq!(problems.take().len(), 1);
    }
}
