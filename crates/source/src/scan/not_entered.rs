//! Directories that are not entered though nobody said so: those whose content is somewhere else,
//! and those that may be one above them once more.

use super::identity::{Evidence, identity_of};
use super::pending::ChildrenReach;
use super::stat::Part;
use super::statted::Statted;
use super::statx::mount_of;
use super::{Note, NoteKind, ScanProblem};
use crate::magic::is_of_kind;
use bale_format::entry::{Entry, EntryFlags, Kind};
use bale_sys::open::open_beneath;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxAttributes, StatxFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

/// Inode number of a directory that stands in a snapshot of btrfs where a subvolume was
/// (BTRFS_EMPTY_SUBVOL_DIR_OBJECTID).
const BTRFS_NO_SUBVOLUME: u64 = 2;

/// Why an encrypted directory is not entered.
pub(super) const LOCKED: &str =
    "it is encrypted, and its key is not there: unlock it, or leave it out";

/// A directory with the number of one above it.
pub(super) enum SameAbove {
    /// That one is mounted here.
    Mounted,
    /// It may be that one.
    Perhaps,
}

impl Part<'_> {
    /// What is bound from the same file system is not, and neither is a part of the same mount with
    /// a number of its own: a subvolume, a file of an overlay.
    pub(super) fn is_elsewhere(&self, stat: &Statx) -> bool {
        match self.reach {
            ChildrenReach::All(Some(source)) | ChildrenReach::AllAnd(Some(source), _) => {
                source.device != identity_of(stat).device && source.mount != mount_of(stat)
            }
            _ => false,
        }
    }

    /// A directory in which something is mounted when it is entered. Those of autofs do not say so.
    pub(super) fn is_automount(&self, stat: &Statx) -> bool {
        /// `AUTOFS_SUPER_MAGIC` (linux/magic.h).
        const AUTOFS: u32 = 0x0187;
        if stat.stx_attributes.contains(StatxAttributes::AUTOMOUNT) {
            return true;
        }
        let is_directory = Kind::from_mode(u32::from(stat.stx_mode)) == Some(Kind::Directory);
        // Without a device, as all that only the kernel has.
        is_directory
            && stat.stx_dev_major == 0
            && identity_of(stat).device == self.directory.identity().device
            && is_of_kind(self.fd, &[AUTOFS])
    }

    /// Of an encrypted directory whose key is not there, names and contents are ciphers.
    pub(super) fn is_locked(&self, c_name: &CStr) -> bool {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let opened = open_beneath(self.fd.as_fd(), c_name, flags, Mode::empty());
        let answer = opened.map(|fd| bale_sys::inode::is_locked(fd.as_fd()));
        matches!(answer, Ok(Ok(Some(true))))
    }

    /// What would be in a directory is somewhere else: not mounted yet, where one file system is
    /// wanted; a subvolume that a snapshot does not have; snapshots of a repository that are
    /// mounted.
    pub(super) fn not_here(&self, c_name: &CStr, stat: &Statx) -> Option<NoteKind> {
        if self.rules.one_file_system && self.is_automount(stat) {
            return Some(NoteKind::OtherFilesystem);
        }
        let filesystems = &self.rules.filesystems;
        if stat.stx_ino == BTRFS_NO_SUBVOLUME {
            let number = self.filesystem_number(identity_of(stat).device, mount_of(stat), c_name);
            let is_btrfs = filesystems.get(number).kind == "btrfs";
            return is_btrfs.then_some(NoteKind::NoSubvolume);
        }
        let is_other = identity_of(stat).device != self.directory.identity().device;
        let is_mount = is_other && filesystems.is_of_bale(identity_of(stat).device, mount_of(stat));
        is_mount.then_some(NoteKind::OwnMount)
    }

    /// What a directory is that has the number of one above it; `None`: none has, or it is another
    /// one for all that.
    pub(super) fn same_above(&self, c_name: &CStr, stat: &Statx) -> Option<SameAbove> {
        let above = self.directory.or_above_with(identity_of(stat))?;
        let flags = AtFlags::EMPTY_PATH;
        let here = rustix::fs::statx(self.fd, c"", flags, StatxFlags::MNT_ID);
        if here.is_ok_and(|here| mount_of(&here) != mount_of(stat)) {
            return Some(SameAbove::Mounted);
        }
        let Ok(opened) = above.open() else {
            return Some(SameAbove::Perhaps);
        };
        let evidence = Evidence::of(self.fd.as_fd(), c_name);
        let differs = Evidence::of(opened.as_fd(), c"").differs(&evidence);
        (!differs).then_some(SameAbove::Perhaps)
    }

    pub(super) fn not_entered_again(&self, entry: &mut Entry, why: SameAbove, out: &mut Statted) {
        entry.flags.set(EntryFlags::NOT_CROSSED);
        let path = entry.path();
        let error = match why {
            // Whoever stays on a file system wants it once.
            SameAbove::Mounted if self.rules.one_file_system => {
                return out.notes.push(Note {
                    path,
                    kind: NoteKind::Above,
                    has_row: true,
                });
            }
            SameAbove::Mounted => "a directory above this one is mounted here",
            SameAbove::Perhaps => {
                "its file system gives it the number of a directory above it, and nothing tells \
                 the two apart: back it up by its other path, or as a source of its own"
            }
        };
        out.problems.push(ScanProblem {
            path,
            action: "enter",
            error: io::Error::other(error),
        });
    }
}
