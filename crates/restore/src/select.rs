//! Which paths of a snapshot are wanted.

use bale_format::entry::split;

/// Chooses paths. Both questions are asked for a path and for each directory above it.
pub trait Selection: Sync {
    /// Is this path, and so everything below it, wanted? Paths are the snapshot's, without leading
    /// slash.
    fn includes(&self, path: &[u8], is_directory: bool) -> bool;

    /// Is this path, and so everything below it, unwanted? Stronger than `includes`.
    fn excludes(&self, path: &[u8], is_directory: bool) -> bool;

    /// Paths at or below which everything lies that is included, none below another; `None` if it
    /// may be anywhere. Saves reading the rest of the catalog.
    fn within(&self) -> Option<Vec<Vec<u8>>> {
        None
    }

    /// Every path that is looked at comes by here, wanted or not: who wants by patterns learns
    /// which of them match.
    fn pass(&self, _path: &[u8]) {}

    /// Is everything wanted? Saves asking.
    fn is_everything(&self) -> bool {
        false
    }
}

/// Wants everything.
pub struct Everything;

impl Selection for Everything {
    fn includes(&self, _path: &[u8], _is_directory: bool) -> bool {
        true
    }

    fn excludes(&self, _path: &[u8], _is_directory: bool) -> bool {
        false
    }

    fn is_everything(&self) -> bool {
        true
    }
}

/// What the directories above a path say about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Above {
    /// One of them is excluded.
    Excluded,
    /// One of them is included.
    Included,
    /// Nothing.
    Open,
}

/// Asks `selection` about `parent` and everything above it.
pub fn above(selection: &dyn Selection, parent: &[u8]) -> Above {
    let mut verdict = Above::Open;
    let mut path = parent;
    while !path.is_empty() {
        if selection.excludes(path, true) {
            return Above::Excluded;
        }
        if selection.includes(path, true) {
            verdict = Above::Included;
        }
        path = split(path).0;
    }
    verdict
}

/// Directories that are looked up in a row and are not in the catalog, until those below them are
/// not looked up. No path that a kernel takes has so many above a source; a hostile catalog may
/// have any number, and each costs as much as it is long.
pub(crate) const VAIN_LOOKUPS_MAX: usize = 4096;

/// The directories above `parent`, and itself, without those of `last`, from the top down. Of the
/// path that begins both, the first `strip_len` bytes are no directory of the target.
pub(crate) fn above_anew<'p>(
    parent: &'p [u8],
    last: &[u8],
    strip_len: usize,
) -> impl Iterator<Item = &'p [u8]> + use<'p> {
    let same = (parent.iter().zip(last)).take_while(|(one, other)| one == other);
    let same = same.count();
    let ends = |path: &[u8]| path.get(same).is_none_or(|byte| *byte == b'/');
    let shared = match ends(parent) && ends(last) {
        true => same,
        false => (parent[..same].iter().rposition(|byte| *byte == b'/')).unwrap_or(0),
    };
    let start = shared.max(strip_len);
    let ends =
        (start + 1..=parent.len()).filter(|at| parent.get(*at).is_none_or(|byte| *byte == b'/'));
    ends.map(|at| &parent[..at])
}

/// Is a path wanted, given what its directories say?
pub fn chosen(selection: &dyn Selection, above: Above, path: &[u8], is_directory: bool) -> bool {
    selection.pass(path);
    match above {
        Above::Excluded => false,
        Above::Included => !selection.excludes(path, is_directory),
        Above::Open => {
            selection.includes(path, is_directory) && !selection.excludes(path, is_directory)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_above_come_once_and_from_the_top() {
        let anew = |parent: &str, last: &str, strip_len: usize| {
            let all = above_anew(parent.as_bytes(), last.as_bytes(), strip_len);
            all.map(|path| String::from_utf8(path.to_vec()).unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(anew("a/b/c", "", 0), ["a", "a/b", "a/b/c"]);
        assert_eq!(anew("a/b/c", "a/b", 0), ["a/b/c"]);
        assert_eq!(anew("a/b/c", "a/bb/c", 0), ["a/b", "a/b/c"]);
        assert_eq!(anew("a/bb", "a/b", 0), ["a/bb"]);
        assert_eq!(anew("a/b", "a/b/c", 0), Vec::<String>::new());
        assert_eq!(anew("a/b/c", "", 1), ["a/b", "a/b/c"]);
        assert_eq!(anew("a", "", 1), Vec::<String>::new());
        assert_eq!(anew("", "a", 0), Vec::<String>::new());
    }
}
