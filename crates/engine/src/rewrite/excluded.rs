//! Which rows go: those whose path, or a directory that it is in, is matched by a pattern.

use bale_format::{Key, SegmentKeys, SegmentRef};
use bale_pipeline::filter::{Filter, Reach};
use bale_repository::catalog::KeyRange;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Named;
use std::ops::Range;

/// Asked about rows in the order of a catalog: what is known of a directory is kept until the next.
#[derive(Clone)]
pub(super) struct Excluded<'f> {
    filter: &'f Filter,
    /// Keys outside of these match nothing; `None`: they may be anywhere.
    reaches: Option<Vec<KeyRange>>,
    parent: Option<Vec<u8>>,
    is_parent_out: bool,
    path: Vec<u8>,
}

impl<'f> Excluded<'f> {
    pub(super) fn new(filter: &'f Filter) -> Excluded<'f> {
        let ranges = |reaches: &[Reach]| reaches.iter().flat_map(ranges_of).collect();
        Excluded {
            reaches: filter.reaches().map(ranges),
            filter,
            parent: None,
            is_parent_out: false,
            path: Vec::new(),
        }
    }

    /// What was named as a source is no part of something else: who wants it gone forgets the
    /// snapshot.
    pub(super) fn refuse_sources(&self, chosen: &[Named]) -> Result<()> {
        for (id, snapshot) in chosen {
            for source in &snapshot.paths {
                let path = source.0.strip_prefix(b"/").unwrap_or(&source.0);
                if self.clone().excludes_path(path) {
                    return Err(Error::Other(format!(
                        "the patterns match {}, a source of snapshot {} or what it is in: that \
                         would be all of it. Write a pattern that begins with / for what is meant, \
                         or forget the snapshot",
                        String::from_utf8_lossy(&source.0).escape_debug(),
                        id.short()
                    )));
                }
            }
        }
        Ok(())
    }

    /// Does a row go?
    pub(super) fn excludes(&mut self, parent: &[u8], name: &[u8]) -> bool {
        if self.parent.as_deref() != Some(parent) {
            self.is_parent_out = self.is_out_with_ancestors(parent);
            self.parent = Some(parent.to_vec());
        }
        if self.is_parent_out || name.is_empty() {
            return self.is_parent_out;
        }
        self.path.clear();
        self.path.extend_from_slice(parent);
        if !parent.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        self.filter.excludes(&self.path)
    }

    /// The same of a path, with or without a leading slash.
    pub(super) fn excludes_path(&mut self, path: &[u8]) -> bool {
        self.is_out_with_ancestors(path.strip_prefix(b"/").unwrap_or(path))
    }

    fn is_out_with_ancestors(&self, path: &[u8]) -> bool {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let mut ends = ends.map(|(at, _)| at).chain([path.len()]);
        !path.is_empty() && ends.any(|end| self.filter.excludes(&path[..end]))
    }

    /// May a segment hold such rows at all?
    pub(super) fn may_be_in(&self, segment: &SegmentRef) -> bool {
        let Some(reaches) = &self.reaches else {
            return true;
        };
        let overlaps = |range: &KeyRange| {
            range
                .start
                .as_ref()
                .is_none_or(|start| *start <= segment.last)
                && range.end.as_ref().is_none_or(|end| segment.first < *end)
        };
        reaches.iter().any(overlaps)
    }

    /// Rows of a segment that go, of a range.
    pub(super) fn rows<'k>(
        &'k mut self,
        keys: &'k SegmentKeys,
        rows: Range<usize>,
    ) -> impl Iterator<Item = usize> + 'k {
        rows.filter(|row| self.excludes(keys.parent(*row), keys.name(*row)))
    }
}

/// Of what is matched, all that is below goes, too.
fn ranges_of(reach: &Reach) -> Vec<KeyRange> {
    let path = reach.path();
    match reach {
        Reach::Children(_) => vec![KeyRange::below(path)],
        _ => vec![KeyRange::one(&Key::of_path(path)), KeyRange::below(path)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::filter::{FilterOptions, Pattern};

    fn filter(texts: &[&str]) -> Filter {
        let pattern = |text: &&str| Pattern {
            text: (*text).to_owned(),
            ignore_case: false,
        };
        Filter::new(&FilterOptions {
            patterns: texts.iter().map(pattern).collect(),
            ..FilterOptions::default()
        })
        .unwrap()
    }

    #[test]
    fn what_is_in_a_directory_that_goes_goes_with_it() {
        let filter = filter(&["/home/me/secret", "*.key", "!keep.key"]);
        let mut excluded = Excluded::new(&filter);
        for (parent, name, goes) in [
            ("home/me", "secret", true),
            ("home/me/secret", "a", true),
            ("home/me/secret/b/c", "d", true),
            ("home/me/secret2", "a", false),
            ("home/me", "other", false),
            ("srv", "a.key", true),
            ("srv/a.key", "below", true),
            ("srv", "keep.key", false),
            ("", "", false),
            ("", "x.key", true),
        ] {
            let (parent, name) = (parent.as_bytes(), name.as_bytes());
            assert_eq!(excluded.excludes(parent, name), goes, "{parent:?} {name:?}");
        }
        assert!(excluded.excludes_path(b"/home/me/secret/b"));
        assert!(!excluded.excludes_path(b"/home/me"));
    }

    #[test]
    fn segments_far_from_the_patterns_are_not_looked_at() {
        let filter = filter(&["/home/me/secret"]);
        let excluded = Excluded::new(&filter);
        let segment = |first: &[u8], last: &[u8]| SegmentRef {
            id: bale_format::ChunkId([1; 32]),
            rows: 2,
            bytes: 0,
            first: Key::of_path(first),
            last: Key::of_path(last),
            from: None,
            to: None,
        };
        assert!(excluded.may_be_in(&segment(b"home/me/a", b"home/me/z")));
        assert!(excluded.may_be_in(&segment(b"home/me/secret/d/e", b"home/me/secret/d/f")));
        assert!(!excluded.may_be_in(&segment(b"home/me/t", b"home/me/z")));
        assert!(!excluded.may_be_in(&segment(b"etc/a", b"etc/z")));
    }
}
