//! What `bale run` keeps on this machine: the record of each profile, and the locks by which two
//! runs of one profile, or of one source into one repository, are never under way at once.

use crate::args::StateDir;
use crate::exit::Usage;
use crate::{place, variables};
use anyhow::{Context, Result};
use bale_pipeline::private_dir::{self, DirPurpose};
use bale_profile::record::{RECORD_BYTES_MAX, RunRecord};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Of root.
const OF_ROOT: &str = "/var/lib/bale";

/// For whoever must be told that the place is none.
const PURPOSE: DirPurpose = DirPurpose {
    what: "the record of runs",
    advice: "name a directory of your own with --state-dir",
};

/// Another run holds the lock: ends with exit code 11.
#[derive(Debug, thiserror::Error)]
#[error("{what} (the lock is {}): wait for its end", lock.display())]
pub struct Locked {
    what: String,
    lock: PathBuf,
}

/// The directory of state, and what is in it.
pub struct StateOfRuns {
    dir: PathBuf,
}

impl StateOfRuns {
    /// Named, else of root or of the user. Nothing is made.
    pub fn find(options: &StateDir) -> Result<StateOfRuns> {
        let named = match &options.state_dir {
            Some(dir) => Some(dir.clone()),
            None => variables::read("BALE_STATE_DIR")?.map(PathBuf::from),
        };
        let of_user = || place::user_dir("XDG_STATE_HOME", ".local/state");
        let dir = match named {
            Some(dir) => dir,
            None if rustix::process::geteuid().is_root() => OF_ROOT.into(),
            None => match of_user() {
                Some(dir) => dir.join("bale"),
                None => {
                    let text = "no home directory for the record of runs: set HOME, or name a \
                                directory with --state-dir";
                    return Err(Usage(text.to_owned()).into());
                }
            },
        };
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        Ok(StateOfRuns { dir })
    }

    /// Is it the one of root, that units of the system have?
    pub fn is_default(&self) -> bool {
        self.dir == Path::new(OF_ROOT)
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn record_path(&self, profile: &str) -> PathBuf {
        self.dir.join("runs").join(format!("{profile}.json"))
    }

    /// Is there a record of it at all, whatever it is worth?
    pub fn has_record(&self, profile: &str) -> bool {
        self.record_path(profile).symlink_metadata().is_ok()
    }

    /// The record of a profile; why there is none that counts, if one was there and does not.
    pub fn record(&self, profile: &str, repository: &str) -> (RunRecord, Option<String>) {
        let path = self.record_path(profile);
        let fresh = RunRecord::new(profile, repository);
        let why = match private_dir::read(&path, RECORD_BYTES_MAX) {
            Ok(bytes) => match RunRecord::parse(&bytes, profile, repository) {
                Ok(record) => return (record, None),
                Err(why) => why,
            },
            Err(error) if error.kind() == ErrorKind::NotFound => return (fresh, None),
            Err(error) => format!("cannot be read ({error})"),
        };
        let text = format!(
            "the record of past runs {} {why}: everything is taken to be due, and the next run \
             (bale run {profile}) writes a new one; nothing in the repository depends on it",
            path.display()
        );
        (fresh, Some(text))
    }

    /// Replaces the record as a whole.
    pub fn store(&self, record: &RunRecord) -> Result<()> {
        let path = self.record_path(&record.profile);
        let stored = self.make("runs").and_then(|_| {
            private_dir::replace(&path, &record.bytes()).map_err(anyhow::Error::from)
        });
        stored.with_context(|| {
            format!(
                "write the record of runs {} (without it, the next run takes everything to be due)",
                path.display()
            )
        })
    }

    /// The lock of this name, held as long as the file is open anywhere; else [`Locked`].
    pub fn lock(&self, name: &str, what: &str) -> Result<File> {
        let path = self.make("locks")?.join(format!("{name}.lock"));
        let attempt = || format!("lock {}", path.display());
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32);
        let file = options.open(&path).with_context(attempt)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Locked {
                what: what.to_owned(),
                lock: path,
            }
            .into()),
            Err(TryLockError::Error(error)) => Err(error).with_context(attempt),
        }
    }

    fn make(&self, below: &str) -> Result<PathBuf> {
        private_dir::make_for(&self.dir, PURPOSE)?;
        let dir = self.dir.join(below);
        private_dir::make_for(&dir, PURPOSE)?;
        Ok(dir)
    }
}
