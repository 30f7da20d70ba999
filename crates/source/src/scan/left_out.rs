//! What no backup should hold: the repository that it goes to, its cache and its key, which would
//! store every backup once more in the next one; and other repositories, by the tag that `init`
//! puts beside their `config` and its copy.
//!
//! What is in use is known by device and inode, so links and bind mounts lead to the same answer.
//! What is left out is named, and the row of a directory says that its content is not here. A
//! source that was named is never left out.

use super::identity::Identity;
use bale_pipeline::filter::RepositoryMarks;
use rustix::fs::Statx;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Links of the directory of a repository, where subdirectories are counted: itself, its name, and
/// its areas.
const REPOSITORY_LINKS_MIN: u32 = 9;

/// What to leave out.
#[derive(Clone, Debug, Default)]
pub struct LeftOut {
    in_use: Vec<Identity>,
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
        if let Ok(metadata) = std::fs::metadata(path) {
            self.in_use.push(identity_of_metadata(&metadata));
        }
        self
    }

    /// Tells apart what leaves out different things.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut in_use: Vec<_> = (self.in_use.iter())
            .map(|identity| (identity.device, identity.inode))
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

    pub(super) fn is_in_use(&self, identity: Identity) -> bool {
        self.in_use.contains(&identity)
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
        marks.is_some_and(|marks| marks.are_borne(|mark| mark.is_in(directory, name)))
    }
}

fn identity_of_metadata(metadata: &std::fs::Metadata) -> Identity {
    use std::os::unix::fs::MetadataExt;
    let device = metadata.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    Identity {
        device: u64::from(major) << 32 | u64::from(minor),
        inode: metadata.ino(),
    }
}
