//! New key files: readable by their owner alone, there as a whole or not at all, and never in the
//! place of another file.

use crate::exit::Usage;
use crate::named_paths::NamedPath;
use crate::output;
use anyhow::{Context, Result};
use bale_pipeline::random::OsRandom;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// Bytes of a generated key file, before it is written as hex digits.
const KEY_FILE_BYTES: usize = 32;

/// Writes a new random key file; refuses to replace one.
pub fn write(path: &Path) -> Result<Vec<u8>> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::create_dir_all(directory)
        .with_context(|| format!("create {}", directory.display()))?;
    let mut bytes = [0; KEY_FILE_BYTES];
    bale_pipeline::random::Random::fill(&OsRandom, &mut bytes).context("draw random bytes")?;
    let text = format!("{}\n", bale_format::id::hex(&bytes)).into_bytes();
    // Nobody else can have made a file of this name, or a link, to have the key written there.
    let unfinished = directory.join(format!(".bale-key-{}.new", super::unguessable()?));
    let written = write_unfinished(&unfinished, &text).and_then(|()| publish(&unfinished, path));
    if let Err(error) = written {
        let _only_litter = std::fs::remove_file(&unfinished);
        return Err(error).with_context(|| format!("create key file {}", path.display()));
    }
    let synced = std::fs::File::open(directory).and_then(|directory| directory.sync_all());
    synced.with_context(|| format!("write {} to the disk", directory.display()))?;
    Ok(text)
}

/// The same for a repository, in whose directory it must not be.
pub fn write_beside(path: &Path, repository: Option<&Path>) -> Result<Vec<u8>> {
    require_beside(path, repository)?;
    write(path)
}

/// Can a new key be written there? Asked before anything is made.
pub fn require_beside(path: &Path, repository: Option<&Path>) -> Result<()> {
    if repository.is_some_and(|repository| is_within(path, repository)) {
        return Err(Usage(format!(
            "{} is in the repository that it opens: whoever has one has the other. Keep the key \
             elsewhere",
            output::path(path)
        ))
        .into());
    }
    let named = NamedPath {
        by: "--new-key-file",
        attempt: "write a new key to",
        path,
        advice: "Name a file that is not there yet",
    };
    named.require_parent()?;
    // A key that is there opens something.
    if path.symlink_metadata().is_ok() {
        return Err(named.trouble("it is there already, and no file is replaced by a key"));
    }
    Ok(())
}

fn write_unfinished(unfinished: &PathBuf, text: &[u8]) -> io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits() as i32)
        .open(unfinished)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Gives it its name, where nothing has that.
fn publish(unfinished: &Path, path: &Path) -> io::Result<()> {
    match renameat_with(CWD, unfinished, CWD, path, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            std::fs::hard_link(unfinished, path)?;
            std::fs::remove_file(unfinished)
        }
        renamed => Ok(renamed?),
    }
}

/// Is this path, or will it be when both are made, within a directory?
fn is_within(path: &Path, directory: &Path) -> bool {
    resolved(path).starts_with(resolved(directory))
}

/// As far as it exists without links, `.` and `..`.
pub fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut found = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                found.pop();
            }
            part => found.push(part),
        }
        found = found.canonicalize().unwrap_or(found);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn a_key_file_is_its_owners_alone_and_replaces_nothing() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/key");
        let text = write(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), text);
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
        assert!(write(&path).is_err(), "there is one");
        assert_eq!(std::fs::read(&path).unwrap(), text);
        let names = std::fs::read_dir(place.path().join("new")).unwrap();
        assert_eq!(names.count(), 1, "nothing half made is left");
    }

    #[test]
    fn a_link_that_waits_at_the_name_gets_no_key() {
        let place = tempfile::tempdir().unwrap();
        let (path, victim) = (place.path().join("key"), place.path().join("victim"));
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        assert!(write(&path).is_err());
        assert!(!victim.exists());
    }

    #[test]
    fn what_stands_at_the_temporary_name_is_never_written_to() {
        let place = tempfile::tempdir().unwrap();
        let taken = place.path().join("taken");
        std::fs::write(&taken, "another's").unwrap();
        let refused = write_unfinished(&taken, b"key").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&taken).unwrap(), b"another's");
    }
}
