//! What no backup should hold: the repository that it goes to, its cache and its key, which would
//! store every backup once more in the next one; and other repositories, by the tag that `init`
//! puts beside their `config` and its copy. Marks count that the owner of the directory or root
//! has: where everybody may write, nobody else takes what others have there out of the backup.
//!
//! What is in use is known by device and inode, so links and bind mounts lead to the same answer;
//! another inode of that number, in a view of several file systems, is told apart by its handle and
//! the time when it was made.
//! What is left out is named, and the row of a directory says that its content is not here. A
//! source that was named is never left out.

use super::identity::{Evidence, Identity, identity_of};
use bale_pipeline::filter::{Mark, RepositoryMarks};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Links of the directory of a repository, where subdirectories are counted: itself, its name, and
/// its areas.
const REPOSITORY_LINKS_MIN: u32 = 9;

/// What to leave out.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    in_use: Vec<(Identity, Evidence)>,
    repositories: Option<RepositoryMarks>,
}

impl LeftOut {
    /// The same, and every directory that is marked as a repository.
    pub fn and_repositories(self) -> LeftOut {
        LeftOut {
            repositories: Some(RepositoryMarks::default()),
            ..self
        }
    }

    /// The same, and what a path leads to, if it is there.
    pub fn and_in_use(mut self, path: &Path) -> LeftOut {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let Ok(opened) = rustix::fs::openat(CWD, path, flags, Mode::empty())
            && let Ok(stat) = rustix::fs::statx(&opened, c"", AtFlags::EMPTY_PATH, StatxFlags::INO)
        {
            let evidence = Evidence::of(opened.as_fd(), c"");
            self.in_use.push((identity_of(&stat), evidence));
        }
        self
    }

    /// Tells apart what leaves out different things.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut in_use: Vec<_> = (self.in_use.iter())
            .map(|(identity, _)| (identity.device, identity.inode))
            .collect();
        in_use.sort_unstable();
        let mut hash = blake3::Hasher::new();
        hash.update(&[u8::from(self.repositories.is_some())]);
        for (device, inode) in in_use {
            hash.update(&device.to_le_bytes());
            hash.update(&inode.to_le_bytes());
        }
        *hash.finalize().as_bytes()
    }

    /// Where numbers of inodes are what they say.
    pub(super) fn is_in_use(&self, identity: Identity) -> bool {
        self.in_use.iter().any(|(in_use, _)| *in_use == identity)
    }

    /// Whether a name leads to what is in use, and not to another inode of that number.
    pub(super) fn is_in_use_at(
        &self,
        directory: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        identity: Identity,
    ) -> bool {
        self.is_in_use(identity) && {
            let evidence = Evidence::of(directory, name);
            let mut in_use = self.in_use.iter();
            in_use.any(|(in_use, its)| *in_use == identity && !its.differs(&evidence))
        }
    }

    /// Marks of a directory that is a repository; none: it is not one, or repositories are wanted.
    pub(super) fn marks_of(&self, links: u32) -> Option<&RepositoryMarks> {
        // Some file systems do not count subdirectories and say 1.
        let may_be_one = links == 1 || links >= REPOSITORY_LINKS_MIN;
        self.repositories.as_ref().filter(|_| may_be_one)
    }

    /// Is a subdirectory a repository?
    pub(super) fn is_repository(
        &self,
        directory: BorrowedFd<'_>,
        name: &std::ffi::CStr,
        stat: &Statx,
    ) -> bool {
        let marks = self.marks_of(stat.stx_nlink);
        let is_borne = |mark: &Mark| {
            let owner = mark.owner_in(directory, name);
            owner.is_some_and(|owner| may_mark(owner, stat.stx_uid)) && mark.is_in(directory, name)
        };
        marks.is_some_and(|marks| marks.are_borne(is_borne))
    }
}

/// Whether the owner of a file may mark the directory that it is in, and of which the other is
/// owner.
pub(super) fn may_mark(owner: u32, directory_owner: u32) -> bool {
    owner == 0 || owner == directory_owner
}
