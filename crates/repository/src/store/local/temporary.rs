//! Files that have no name yet: written in `tmp/`, given their name at the end or removed, swept
//! when left over.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bale_format::id::{from_hex, hex};

use super::{Core, LocalStore, ignore_missing, ignore_present};
use crate::store::disk::{DirEntryKind, Expect, FileStat, NewFile};
use crate::store::{ObjectName, ObjectWriter, Result};
use bale_pipeline::random::draw;

/// Age at which a temporary file counts as left over by a dead process.
pub const TEMPORARY_AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Directory of the files that have no name yet.
pub(super) const TEMPORARY_DIR: &str = "tmp";

/// Start of their names; 32 random hex digits follow.
const TEMPORARY_PREFIX: &str = ".tmp-";

impl LocalStore {
    /// Removes temporary files that were last written more than a day before `now`; says how many.
    pub fn sweep(&self, now: SystemTime) -> Result<u64> {
        let core = &self.core;
        let mut old = Vec::new();
        let mut failed = None;
        let listed = core.disk.list(TEMPORARY_DIR, &mut |name, _| {
            let Some(path) = temporary_path(name) else {
                return;
            };
            match core.disk.stat(&path) {
                Ok(Some(stat)) if is_left_over(&stat, now) => old.push(path),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
        });
        ignore_missing(listed).map_err(|error| core.error("list", TEMPORARY_DIR, error))?;
        if let Some(error) = failed {
            return Err(core.error("list", TEMPORARY_DIR, error));
        }
        for path in &old {
            ignore_missing(core.disk.unlink(path))
                .map_err(|error| core.error("delete", path, error))?;
        }
        Ok(old.len() as u64)
    }
}

impl Core {
    pub(super) fn create_temporary(&self, expect: Expect) -> Result<(String, Box<dyn NewFile>)> {
        let create = || {
            let path = format!(
                "{TEMPORARY_DIR}/{TEMPORARY_PREFIX}{}",
                hex(&draw::<16>(&*self.random)?)
            );
            match self.disk.create(&path, expect) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    ignore_present(self.disk.make_dir(TEMPORARY_DIR))?;
                    Ok((self.disk.create(&path, expect)?, path))
                }
                created => Ok((created?, path)),
            }
        };
        match create() {
            Ok((file, path)) => Ok((path, file)),
            Err(error) => Err(self.error("write", "temporary file", error)),
        }
    }
}

fn temporary_path(name: &[u8]) -> Option<String> {
    let name = str::from_utf8(name).ok()?;
    from_hex::<16>(name.strip_prefix(TEMPORARY_PREFIX)?).ok()?;
    Some(format!("{TEMPORARY_DIR}/{name}"))
}

fn is_left_over(stat: &FileStat, now: SystemTime) -> bool {
    let age = stat
        .modified
        .and_then(|modified| now.duration_since(modified).ok());
    stat.kind == DirEntryKind::File && age.is_some_and(|age| age > TEMPORARY_AGE_MAX)
}

/// The name in `tmp/`; removed with the value, whatever became of the file.
struct Temporary {
    path: String,
    core: Arc<Core>,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After a rename there is nothing of that name. What cannot be removed is swept another
        // day.
        let _ = self.core.disk.unlink(&self.path);
    }
}

/// An object until it is published.
pub(super) struct LocalWriter {
    core: Arc<Core>,
    temporary: Temporary,
    /// `None` after an error.
    file: Option<Box<dyn NewFile>>,
}

impl LocalWriter {
    pub(super) fn new(core: &Arc<Core>, expect: Expect) -> Result<Self> {
        core.check_not_refusing("write")?;
        let (path, file) = core.create_temporary(expect)?;
        let temporary = Temporary {
            path,
            core: core.clone(),
        };
        Ok(Self {
            core: core.clone(),
            temporary,
            file: Some(file),
        })
    }
}

impl ObjectWriter for LocalWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let written = match &mut self.file {
            Some(file) => file.append(bytes),
            None => Err(refused()),
        };
        written.map_err(|error| {
            self.file = None;
            self.core.error("write", &self.temporary.path, error)
        })
    }

    fn publish(self: Box<Self>, name: &ObjectName) -> Result<()> {
        let Self {
            core,
            temporary,
            file,
        } = *self;
        core.check_not_refusing("write")?;
        let synced = file.map_or_else(|| Err(refused()), |file| file.sync());
        synced.map_err(|error| core.error("write", name, error))?;
        core.give_name(&temporary.path, name)
    }
}

fn refused() -> io::Error {
    io::Error::other("refused after an earlier error")
}
