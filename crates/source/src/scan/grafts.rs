//! Directories that are read somewhere else than where they are said to be: in a snapshot.
//!
//! The walk goes down from `/` as ever. Where it enters a source that is read from a snapshot, it
//! opens the snapshot's directory instead; names, paths and filters are those of the source.

use super::identity::{Identity, identity_of};
use super::sources::Sources;
use super::statx::stat_at;
use rustix::fs::{CWD, Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// All of a scan: few, and none without snapshots.
#[derive(Debug, Default)]
pub(super) struct Grafts(Vec<Graft>);

/// One directory.
#[derive(Debug)]
pub(super) struct Graft {
    /// Where it is said to be, without leading slash.
    path: Vec<u8>,
    place: PathBuf,
    identity: Identity,
}

impl Grafts {
    /// Looks where the sources say.
    pub(super) fn find(sources: &Sources) -> io::Result<Grafts> {
        let graft = |(source, place): &(PathBuf, PathBuf)| {
            let path = source.as_os_str().as_bytes();
            Ok(Graft {
                path: path.strip_prefix(b"/").unwrap_or(path).to_vec(),
                identity: identity_of(&stat_at(CWD, &terminated(place)?)?),
                place: place.clone(),
            })
        };
        sources
            .read_at()
            .iter()
            .map(graft)
            .collect::<io::Result<_>>()
            .map(Grafts)
    }

    /// What stands in for a child of a directory.
    pub(super) fn child(&self, parent: &[u8], name: &[u8]) -> Option<&Graft> {
        let is_it = |graft: &&Graft| match parent.is_empty() {
            true => graft.path == name,
            false => {
                let rest = graft.path.strip_prefix(parent);
                rest.and_then(|rest| rest.strip_prefix(b"/")) == Some(name)
            }
        };
        self.0.iter().find(is_it)
    }

    /// Where a directory is opened, if not by its name.
    pub(super) fn place_of(&self, identity: Identity) -> Option<&Path> {
        let graft = self.0.iter().find(|graft| graft.identity == identity);
        graft.map(|graft| graft.place.as_path())
    }
}

impl Graft {
    /// A descriptor of it.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(CWD, &self.place, flags, Mode::empty())?)
    }

    /// The place as the kernel takes it.
    pub(super) fn c_place(&self) -> io::Result<std::ffi::CString> {
        terminated(&self.place)
    }
}

fn terminated(path: &Path) -> io::Result<std::ffi::CString> {
    Ok(std::ffi::CString::new(path.as_os_str().as_bytes())?)
}
