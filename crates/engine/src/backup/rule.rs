//! When a row of the last backup stands for what is there now: the rule alone, without a repository
//! or a kernel.
//!
//! A row of the parent is reused if no trouble flag is set in it, it is not racy (its ctime is
//! before the barrier of the run that made it), and the inode is unchanged: everything `stat`
//! reports is equal, or its digest is. `model` tries this against a kernel, a device and a scanner
//! in small steps, in every order. Whether the chunk that a row points at is still in the
//! repository is checked by `compare`.

#[cfg(test)]
mod model;

use bale_format::{Entry, EntryFlags, Kind, RowView, Time};

/// Flags that forbid reusing a row: its content or metadata may not be what the file had.
pub(super) const TROUBLE_FLAGS: u32 = EntryFlags::RACY.0
    | EntryFlags::CHANGED.0
    | EntryFlags::UNREADABLE.0
    | EntryFlags::INCOMPLETE.0
    | EntryFlags::XATTRS_UNREADABLE.0;

/// No trouble flag: the row was made from a complete, undisturbed read.
pub(super) fn has_no_trouble(old: &RowView) -> bool {
    old.flags.0 & TROUBLE_FLAGS == 0
}

/// The same, but racy rows pass: for the second pass of a run, which would otherwise read a file
/// that is being written to again and again. The next backup reads it.
pub(super) fn has_no_trouble_but_racy(old: &RowView) -> bool {
    old.flags.0 & TROUBLE_FLAGS & !EntryFlags::RACY.0 == 0
}

/// Is this row of the name of an unchanged child, which is no directory, of its inode too?
pub(super) fn is_of_inode(old: &RowView, inode: u64, filesystem: u32) -> bool {
    (old.inode, old.filesystem) == (inode, filesystem) && old.kind != Kind::Directory
}

/// True if no change after the barrier can have left this ctime. Without a barrier every row is
/// racy.
pub(super) fn is_not_racy(ctime: Time, barrier: Option<Time>) -> bool {
    barrier.is_some_and(|barrier| ctime.is_stamped_before(barrier))
}

/// Unchanged: no trouble now, and everything that `stat` reports is equal.
pub(super) fn metadata_is_unchanged(new: &Entry, old: &RowView) -> bool {
    let mark = EntryFlags::NOT_CROSSED.0;
    old.flags.0 & mark == new.flags.0 & mark
        && new.flags.0 & TROUBLE_FLAGS == 0
        && stat_is_equal(new, old)
}

/// Does the row say what is known of the last access? Where nothing is asked, and nothing stored,
/// it does.
pub(super) fn atime_is_unchanged(new: &Entry, old: Option<Time>) -> bool {
    new.atime.get() == old
}

/// True if the kernel reports a change but still the old ctime: truncation is under way, which sets
/// the length first and the time later. Such a row must not be reusable: a crash could undo the
/// change, and the inode would match its digest again.
pub(super) fn is_change_under_way(new: &Entry, old: &RowView) -> bool {
    new.ctime == old.ctime
        && (new.inode, new.filesystem) == (old.inode, old.filesystem)
        && new.kind == old.kind
        && !stat_is_equal(new, old)
}

/// Everything `stat` reports but atime.
fn stat_is_equal(new: &Entry, old: &RowView) -> bool {
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
