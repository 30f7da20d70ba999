//! When a row of the last backup stands for what is there now: the rule alone, without a repository or a kernel.
//!
//! A row is kept if nothing went wrong when it was made, it was settled then, and the inode is what it was: by everything
//! that `stat` tells, or by its digest. `model` tries this against a kernel, a device and a scanner in small steps, in every
//! order. That what the row points at is in the repository is `compare`'s concern.

#[cfg(test)]
mod model;

use bale_format::{Entry, EntryFlags, Glance, Time};

/// Flags of a row that something went wrong with.
pub(super) const DOUBTFUL: u32 = EntryFlags::RACY.0
    | EntryFlags::CHANGED.0
    | EntryFlags::UNREADABLE.0
    | EntryFlags::INCOMPLETE.0
    | EntryFlags::XATTRS_UNREADABLE.0;

/// Did nothing go wrong when the row was made?
pub(super) fn is_sound(old: &Glance) -> bool {
    old.flags.0 & DOUBTFUL == 0
}

/// The same of a row that this very run made: a file that somebody may be writing to is read by the next backup, however
/// often this one reads it.
pub(super) fn is_sound_within_run(old: &Glance) -> bool {
    old.flags.0 & DOUBTFUL & !EntryFlags::RACY.0 == 0
}

/// Could nothing change after the barrier of the run that made the row, and leave the ctime that it has? Without a barrier
/// nothing is certain.
pub(super) fn is_settled(ctime: Time, barrier: Option<Time>) -> bool {
    barrier.is_some_and(|barrier| ctime.is_stamped_before(barrier))
}

/// Is it what it was, for all that is told of it?
pub(super) fn is_what_it_was(new: &Entry, old: &Glance) -> bool {
    let mark = EntryFlags::NOT_CROSSED.0;
    old.flags.0 & mark == new.flags.0 & mark
        && new.flags.0 & DOUBTFUL == 0
        && stat_is_equal(new, old)
}

/// A change that the kernel tells of before it tells its ctime: it is under way, as truncating is from the new length on to the
/// new time. The row would pass for settled, and be kept should the inode ever be again what its digest says (after a crash
/// that undoes the change, say).
pub(super) fn is_half_changed(new: &Entry, old: &Glance) -> bool {
    new.ctime == old.ctime
        && (new.inode, new.filesystem) == (old.inode, old.filesystem)
        && new.kind == old.kind
        && !stat_is_equal(new, old)
}

/// Is everything equal that `stat` tells?
fn stat_is_equal(new: &Entry, old: &Glance) -> bool {
    new.kind == old.kind
        && new.ctime == old.ctime
        && new.mtime == old.mtime
        && new.size == old.size
        && new.inode == old.inode
        && new.filesystem == old.filesystem
        && new.mode == old.mode
        && new.uid == old.uid
        && new.gid == old.gid
        && new.nlink == old.nlink
        && new.rdev == old.rdev
}
