//! Which rows are in a source, and which are directories that lead to one.
//!
//! Sources are many where a list was given: each row is asked by its own path and those above it,
//! and its parent answers for all names in it.

use bale_format::Entry;
use bytes::Bytes;
use std::collections::HashSet;

/// Paths of the sources, without leading slash.
pub(super) struct SourcePaths {
    paths: HashSet<Vec<u8>>,
    /// The directory asked for last, and whether it is in a source.
    last: Option<(Bytes, bool)>,
}

impl SourcePaths {
    pub(super) fn new(sources: Vec<Vec<u8>>) -> SourcePaths {
        SourcePaths {
            paths: sources.into_iter().collect(),
            last: None,
        }
    }

    /// Whether an entry is a source or below one.
    pub(super) fn have(&mut self, entry: &Entry) -> bool {
        self.has_directory(&entry.parent) || self.paths.contains(&entry.path())
    }

    fn has_directory(&mut self, path: &Bytes) -> bool {
        if let Some((last, is_in)) = &self.last
            && last == path
        {
            return *is_in;
        }
        let is_in = self.is_in(path);
        self.last = Some((path.clone(), is_in));
        is_in
    }

    fn is_in(&self, path: &[u8]) -> bool {
        let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
        let mut above = slashes.map(|at| &path[..at]);
        self.paths.contains(path) || self.paths.contains(&b""[..]) || {
            above.any(|above| self.paths.contains(above))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::Kind;

    fn have(sources: &[&str], parent: &'static str, name: &'static str) -> bool {
        let sources = sources.iter().map(|source| source.as_bytes().to_vec());
        let entry = Entry::new(parent.into(), name.into(), Kind::File);
        SourcePaths::new(sources.collect()).have(&entry)
    }

    #[test]
    fn sources_and_what_is_below_them_are_in_them() {
        assert!(have(&["a/b"], "a", "b"));
        assert!(have(&["a/b"], "a/b", "c"));
        assert!(have(&["x", "a/b"], "a/b/c/d", "e"));
        assert!(have(&[""], "", "a"));
        assert!(have(&["a"], "", "a"));
        assert!(!have(&["a/b"], "", "a"));
        assert!(!have(&["a/b"], "a", "bc"));
        assert!(!have(&["a/b"], "a/bc", "d"));
    }
}
