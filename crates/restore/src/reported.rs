//! Problems already reported by a restore, so that the verification after it reports only new ones.

use std::collections::HashSet;
use std::sync::Mutex;

/// Remembered problems, 16 bytes each; beyond it one may be reported twice.
const REPORTED_MAX: usize = 1 << 17;

/// Shared by all threads; the lock is only taken when something is wrong.
#[derive(Default)]
pub struct ReportedProblems {
    seen: Mutex<HashSet<u64>>,
}

impl ReportedProblems {
    /// Remembers a trouble, and its path.
    pub fn add(&self, path: &[u8], action: &str, text: &str) {
        let mut seen = self.seen.lock().expect("no holder of this lock panics");
        if seen.len() < REPORTED_MAX {
            seen.extend([key(path, action, text), key(path, "", "")]);
        }
    }

    /// Is this known? What differs of an entry that did not come back as it should follows from
    /// that; but not its content, where it has some.
    pub fn covers(&self, path: &[u8], action: &str, text: &str) -> bool {
        let seen = self.seen.lock().expect("no holder of this lock panics");
        let follows = action == "verify" && !text.contains("content differs");
        seen.contains(&key(path, action, text)) || follows && seen.contains(&key(path, "", ""))
    }
}

fn key(path: &[u8], action: &str, text: &str) -> u64 {
    let mut hash = blake3::Hasher::new();
    for part in [path, action.as_bytes(), text.as_bytes()] {
        hash.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let mut key = [0; 8];
    key.copy_from_slice(&hash.finalize().as_bytes()[..8]);
    u64::from_le_bytes(key)
}
