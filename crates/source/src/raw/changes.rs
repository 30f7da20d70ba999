//! What changed on a device since a snapshot: the seam behind which trackers are.
//!
//! A tracker never says less than what changed. One that does not know says so, and everything is
//! read and compared; one that is wrong in the other direction would make snapshots of a device
//! that never was.

use bale_format::ObjectId;
use std::ops::Range;

/// What may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changes {
    /// Nobody knows, and why: all is read.
    Everything(String),
    /// Nothing beside these ranges, which are sorted and apart.
    Ranges(Vec<Range<u64>>),
}

/// Says what changed on one device. Whoever implements it passes `crate::raw`'s tests of what a
/// tracker must say.
pub trait ChangeTracker: Send {
    /// As the record of a snapshot names it.
    fn name(&self) -> &'static str;

    /// A superset of what changed since the snapshot that recorded this basis; `None`: it recorded
    /// none. What is written from now on belongs to the basis after the next.
    fn changed_since(&mut self, basis: Option<&str>) -> Changes;

    /// What the snapshot that is being made records, for the next one; `None`: there is nothing to
    /// go on from. It is believed once that snapshot is committed, never before.
    fn next_basis(&self) -> Option<String>;

    /// If what it says is of a snapshot that somebody named, and not of a basis: which. It is then
    /// believed with that snapshot as the parent alone.
    fn since_snapshot(&self) -> Option<ObjectId> {
        None
    }

    /// May a snapshot that is of several moments be gone on from? Only if whatever is written after
    /// the basis began is in the next list, at whichever moment a block was read.
    fn allows_fuzzy(&self) -> bool {
        false
    }

    /// The snapshot with the next basis is committed: what is older may be forgotten.
    fn committed(&mut self) {}
}

/// Knows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTracker;

impl ChangeTracker for NoTracker {
    fn name(&self) -> &'static str {
        "none"
    }

    fn changed_since(&mut self, _basis: Option<&str>) -> Changes {
        Changes::Everything("nobody keeps account of what changes".to_owned())
    }

    fn next_basis(&self) -> Option<String> {
        None
    }
}
