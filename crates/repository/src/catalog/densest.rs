//! The densest directories among rows: those with the most entries directly in them.
//!
//! The entries of a directory come one after the other, as rows in the order of keys do; what is
//! held are the densest so far. In what order the directories come makes no difference.

use bale_format::Entry;
use bale_format::entry::compare_parents;
use bale_format::snapshot::{DENSEST_MAX, DENSEST_PATH_BYTES_MAX, DenseDirectory, PathText};
use bytes::Bytes;

/// Takes rows and counts.
#[derive(Debug, Default)]
pub struct DensestDirectories {
    /// Densest first, then in the order of keys.
    densest: Vec<DenseDirectory>,
    directory: Bytes,
    children: u64,
}

impl DensestDirectories {
    /// The next row. Those of the root are in no directory that has a row.
    pub fn add(&mut self, row: &Entry) {
        self.add_child(&row.parent);
    }

    /// The next row, in the directory of this path.
    pub fn add_child(&mut self, directory: &Bytes) {
        if *directory != self.directory {
            self.end();
            self.directory = directory.clone();
        }
        self.children += 1;
    }

    /// Densest first.
    pub fn finish(mut self) -> Vec<DenseDirectory> {
        self.end();
        self.densest
    }

    fn end(&mut self) {
        let children = std::mem::take(&mut self.children);
        let is_known = !self.directory.is_empty() && self.directory.len() < DENSEST_PATH_BYTES_MAX;
        let fewer = |other: &DenseDirectory| children.cmp(&other.children);
        let is_full = self.densest.len() >= DENSEST_MAX;
        let is_least = is_full && self.densest.last().is_some_and(|last| fewer(last).is_lt());
        if children == 0 || !is_known || is_least {
            return;
        }
        let path = PathText([b"/", &self.directory[..]].concat());
        let is_before = |other: &DenseDirectory| {
            fewer(other)
                .then_with(|| compare_parents(&other.path.0, &path.0))
                .is_lt()
        };
        let place = self.densest.partition_point(is_before);
        self.densest
            .insert(place, DenseDirectory { path, children });
        self.densest.truncate(DENSEST_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::Kind;

    fn densest(directories: &[(&'static str, u64)]) -> Vec<(String, u64)> {
        let mut found = DensestDirectories::default();
        for (directory, entries) in directories {
            for number in 0..*entries {
                let name = Bytes::from(format!("{number:04}"));
                let directory = Bytes::from(*directory);
                found.add(&Entry::new(directory, name, Kind::File));
            }
        }
        let found = found.finish().into_iter();
        found
            .map(|one| (String::from_utf8(one.path.0).unwrap(), one.children))
            .collect()
    }

    #[test]
    fn the_densest_come_first_and_no_more_than_are_held() {
        let few = densest(&[("", 9), ("p1", 2), ("p1/a", 5), ("p1/b", 5), ("p1/c", 1)]);
        let expected = [("/p1/a", 5), ("/p1/b", 5), ("/p1", 2), ("/p1/c", 1)];
        let expected = expected.map(|(path, entries)| (path.to_owned(), entries));
        assert_eq!(few, expected);
        let turned = densest(&[("p1/c", 1), ("p1/b", 5), ("p1", 2), ("", 9), ("p1/a", 5)]);
        assert_eq!(turned, expected);
        let names: Vec<String> = (0..40).map(|number| format!("p1/{number:02}")).collect();
        let many: Vec<(&'static str, u64)> = (names.into_iter().zip(0..))
            .map(|(name, number)| (&*name.leak(), 1 + number * 7 % 40))
            .collect();
        let found = densest(&many);
        let entries: Vec<u64> = found.iter().map(|(_, entries)| *entries).collect();
        assert_eq!(entries, (31..=40).rev().collect::<Vec<_>>());
        assert_eq!(densest(&[("", 3)]), []);
    }
}
