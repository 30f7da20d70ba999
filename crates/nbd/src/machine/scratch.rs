//! The directory in which QEMU makes what belongs to a run: scratch images, and the socket of its
//! server.
//!
//! It is of one machine alone, locked as long as a run lasts, and nobody but QEMU's user and the
//! one that runs this may write there: who could would serve other bytes.

use super::{MachineError, PREFIX, Result};
use crate::qmp::QmpClient;
use rustix::fs::{FlockOperation, Gid, Mode, OFlags, Uid};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// It listens here.
const SOCKET: &str = "bale-nbd";

/// Locked during a run.
const LOCK: &str = "bale-lock";

/// Ends of names of scratch images.
const IMAGE: &str = ".qcow2";

pub(super) struct ScratchDirectory {
    path: PathBuf,
    /// Whom QEMU's files belong to.
    owner: (u32, u32),
    _lock: File,
}

impl ScratchDirectory {
    pub(super) fn open(path: &Path, qmp: &QmpClient) -> Result<ScratchDirectory> {
        let failed = |action| {
            move |source| MachineError::Local {
                action,
                path: path.to_owned(),
                source,
            }
        };
        let path_of = path
            .canonicalize()
            .map_err(failed("look up the scratch directory"))?;
        let owner = qmp.owner().map_err(failed("ask who runs QEMU, for"))?;
        let metadata = path_of.metadata().map_err(failed("look at"))?;
        let own = rustix::process::geteuid().as_raw();
        let refused = |why| MachineError::Scratch {
            path: path_of.clone(),
            why,
        };
        if !metadata.is_dir() {
            return Err(refused("is no directory"));
        }
        if ![0, own, owner.0].contains(&metadata.uid()) || metadata.mode() & 0o022 != 0 {
            return Err(refused(
                "can be written to by others: make a directory that belongs to QEMU's user, with \
                 mode 0700",
            ));
        }
        let lock = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32)
            .open(path_of.join(LOCK))
            .map_err(failed("lock"))?;
        let locked = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
        if locked.is_err() {
            return Err(refused("is in use by another backup of this machine"));
        }
        Ok(ScratchDirectory {
            path: path_of,
            owner,
            _lock: lock,
        })
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// QEMU's server is the one that a run began here.
    pub(super) fn is_listened_to(&self) -> bool {
        UnixStream::connect(self.socket()).is_ok()
    }

    /// Nobody listens there any more.
    pub(super) fn remove_socket(&self) {
        let found = self.socket().symlink_metadata();
        if found.is_ok_and(|found| found.file_type().is_socket()) {
            let _left = std::fs::remove_file(self.socket());
        }
    }

    /// An empty file for QEMU; its path.
    pub(super) fn create(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(format!("{name}{IMAGE}"));
        let create = || -> io::Result<()> {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)?;
            if rustix::process::geteuid().is_root() {
                let (uid, gid) = (Uid::from_raw(self.owner.0), Gid::from_raw(self.owner.1));
                rustix::fs::fchown(&file, Some(uid), Some(gid))?;
            }
            Ok(())
        };
        match create() {
            Ok(()) => Ok(path),
            Err(source) => Err(MachineError::Local {
                action: "make the scratch image",
                path,
                source,
            }),
        }
    }

    /// Images of this run and of others that were killed.
    pub(super) fn remove_files(&self) {
        let found = std::fs::read_dir(&self.path)
            .into_iter()
            .flatten()
            .flatten();
        for entry in found {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(PREFIX) && name.ends_with(IMAGE) {
                let _left = std::fs::remove_file(entry.path());
            }
        }
    }
}
