//! Which paths of a snapshot are wanted.

use bale_format::entry::split;

/// Chooses paths. Both questions are asked for a path and for each directory above it.
pub trait Selection: Sync {
    /// Is this path, and so everything below it, wanted? Paths are the snapshot's, without leading slash.
    fn includes(&self, path: &[u8], is_directory: bool) -> bool;

    /// Is this path, and so everything below it, unwanted? Stronger than `includes`.
    fn excludes(&self, path: &[u8], is_directory: bool) -> bool;

    /// Paths at or below which everything lies that is included, none below another; `None` if it may be anywhere. Saves
    /// reading the rest of the catalog.
    fn within(&self) -> Option<Vec<Vec<u8>>> {
        None
    }

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

/// Is a path wanted, given what its directories say?
pub fn chosen(selection: &dyn Selection, above: Above, path: &[u8], is_directory: bool) -> bool {
    match above {
        Above::Excluded => false,
        Above::Included => !selection.excludes(path, is_directory),
        Above::Open => {
            selection.includes(path, is_directory) && !selection.excludes(path, is_directory)
        }
    }
}
