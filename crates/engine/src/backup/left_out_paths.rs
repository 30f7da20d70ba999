//! Paths that the record of a snapshot names as left out, for there is no row that says so, and no
//! pattern. The same whatever order they were met in: of more than fit, the first by name stay.

use bale_format::Snapshot;
use bale_format::snapshot::{PathText, WITHHELD_LISTED_MAX};
use std::collections::BTreeSet;

/// None is a directory, for a directory that is not entered has a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Withheld {
    paths: BTreeSet<Vec<u8>>,
    has_more: bool,
}

impl Withheld {
    /// As a snapshot says it.
    pub(super) fn of(snapshot: &Snapshot) -> Withheld {
        let paths = snapshot.withheld.iter().map(|path| path.0.clone());
        Withheld {
            paths: paths.collect(),
            has_more: snapshot.withheld_more,
        }
    }

    /// Without leading slash. A second pass meets most of them again.
    pub(super) fn add(&mut self, path: &[u8]) {
        self.paths.insert(absolute(path));
        if self.paths.len() > WITHHELD_LISTED_MAX {
            self.paths.pop_last();
            self.has_more = true;
        }
    }

    /// Of at most [`WITHHELD_LISTED_MAX`], sorted, and whether there are more.
    pub(super) fn recorded(&self) -> (Vec<PathText>, bool) {
        let paths = self.paths.iter().cloned().map(PathText);
        (paths.collect(), self.has_more)
    }
}

/// With a leading slash.
pub(super) fn absolute(path: &[u8]) -> Vec<u8> {
    [b"/".as_slice(), path].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(numbers: impl Iterator<Item = usize>) -> (Vec<PathText>, bool) {
        let mut withheld = Withheld::default();
        numbers.for_each(|number| withheld.add(format!("file-{number:05}").as_bytes()));
        withheld.recorded()
    }

    #[test]
    fn what_is_withheld_is_named_once_and_more_than_fits_is_admitted() {
        let (paths, has_more) = of((0..WITHHELD_LISTED_MAX).chain(0..WITHHELD_LISTED_MAX));
        assert_eq!((paths.len(), has_more), (WITHHELD_LISTED_MAX, false));
        assert_eq!(paths[0].0, b"/file-00000");
        let (paths, has_more) = of(0..WITHHELD_LISTED_MAX + 1);
        assert_eq!((paths.len(), has_more), (WITHHELD_LISTED_MAX, true));
    }

    #[test]
    fn which_are_named_does_not_depend_on_the_order_in_which_they_were_met() {
        let ascending = of(0..2 * WITHHELD_LISTED_MAX);
        assert_eq!(of((0..2 * WITHHELD_LISTED_MAX).rev()), ascending);
        assert_eq!(ascending.0[999].0, b"/file-00999");
    }
}
