//! How many bytes the files below the served directory may have, all repositories together.
//!
//! They are counted once, when the server starts; after that what comes and goes through it is
//! added and taken. What others change meanwhile is seen at the next start.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Directories below one another at most: a repository's name and its own two.
const DEPTH_MAX: usize = 32;

/// Counts bytes, and keeps them below a maximum where there is one.
pub struct Quota {
    used: Arc<AtomicU64>,
    max: Option<u64>,
}

/// Bytes taken for an upload; given back unless it is kept.
pub struct Reserved {
    used: Arc<AtomicU64>,
    len: u64,
}

impl Quota {
    /// Counts what is there, if there is a maximum: without one nobody wants to know.
    pub fn new(dir: &Path, max: Option<u64>) -> io::Result<Quota> {
        let used = match max {
            Some(_) => count(dir, 0)?,
            None => 0,
        };
        Ok(Quota {
            used: Arc::new(AtomicU64::new(used)),
            max,
        })
    }

    /// Takes bytes for an upload; `None` if there are no more so many.
    pub fn reserve(&self, len: u64) -> Option<Reserved> {
        let max = self.max.unwrap_or(u64::MAX);
        let more = |used: u64| used.checked_add(len).filter(|used| *used <= max);
        let (order, read) = (Ordering::SeqCst, Ordering::SeqCst);
        self.used.fetch_update(order, read, more).ok()?;
        Some(Reserved {
            used: self.used.clone(),
            len,
        })
    }

    /// An object of this length was deleted.
    pub fn give_back(&self, len: u64) {
        take(&self.used, len);
    }

    /// Used bytes and the maximum, where there is one.
    pub fn state(&self) -> Option<(u64, u64)> {
        self.max.map(|max| (self.used.load(Ordering::SeqCst), max))
    }
}

impl Reserved {
    /// The upload is an object now.
    pub fn keep(mut self) {
        self.len = 0;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        take(&self.used, self.len);
    }
}

fn take(used: &AtomicU64, len: u64) {
    let less = |used: u64| Some(used.saturating_sub(len));
    let _always = used.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
}

/// Links count as nothing and are not followed.
fn count(dir: &Path, depth: usize) -> io::Result<u64> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!(
            "{} is too deep for a repository",
            dir.display()
        )));
    }
    let mut bytes = 0_u64;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let meta = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            meta => meta?,
        };
        if meta.is_dir() {
            bytes = bytes.saturating_add(count(&entry.path(), depth + 1)?);
        } else if meta.is_file() {
            bytes = bytes.saturating_add(meta.len());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_counts_and_what_is_not_kept_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), [0; 60]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("c")).unwrap();
        let quota = Quota::new(dir.path(), Some(100)).unwrap();
        assert!(quota.reserve(41).is_none());
        let reserved = quota.reserve(40).unwrap();
        assert!(quota.reserve(1).is_none());
        drop(reserved);
        quota.reserve(30).unwrap().keep();
        assert_eq!(quota.state(), Some((90, 100)));
        quota.give_back(50);
        assert_eq!(quota.state(), Some((40, 100)));
        assert!(quota.reserve(u64::MAX).is_none());
    }
}
