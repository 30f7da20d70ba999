//! Directories and files of our own on this machine: the cache, where what can be rebuilt is kept.
//!
//! Somebody else who could replace a file there would choose what we believe, or where we write. So
//! the directory must belong to whoever runs us, and only he may change what is in it and where it
//! is; no link is followed in it; new files get names that nobody can guess, and take the place of
//! old ones whole.

use crate::error::{Failure, Result};
use crate::random::{OsRandom, draw};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const ROOT: u32 = 0;
const STICKY: u32 = 0o1000;
const WRITABLE_BY_OTHERS: u32 = 0o022;
const WRITABLE_BY_ALL: u32 = 0o002;
const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
const NO_WAIT: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

/// What a directory is for, where it is refused.
#[derive(Clone, Copy, Debug)]
pub struct DirPurpose {
    /// As in "no place for a cache".
    pub what: &'static str,
    /// What to do instead.
    pub advice: &'static str,
}

const OF_CACHE: DirPurpose = DirPurpose {
    what: "a cache",
    advice: "name a directory of your own with --cache-dir",
};

/// Makes a directory, or takes one that is ours alone. One that is not is an error that says what
/// to do.
pub fn make(dir: &Path) -> Result<()> {
    make_for(dir, OF_CACHE)
}

/// The same for something else than a cache.
pub fn make_for(dir: &Path, purpose: DirPurpose) -> Result<()> {
    let refuse = |dir: &Path, why| refuse(dir, why, purpose);
    let failed = Failure::local("create", dir);
    check_way_to(dir, purpose)?;
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    if let Some(parent) = dir.parent() {
        // Of a single name: the working directory.
        let parent = match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        };
        if let Some((file, why)) = parent.ancestors().find_map(why_no_directory) {
            refuse(file, Some(why.to_owned()))?;
        }
        let made = builder.recursive(true).create(parent);
        made.map_err(Failure::local("create", parent))?;
        // A link to the parent is what its owner chose; who owns the parent decides what stands in
        // it.
        let meta = std::fs::metadata(parent).map_err(Failure::local("look at", parent))?;
        refuse(parent, why_not_parent(&meta))?;
    }
    match builder.recursive(false).create(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let meta = std::fs::symlink_metadata(dir).map_err(failed)?;
    refuse(dir, why_not_ours(&meta))?;
    if meta.mode() & WRITABLE_BY_OTHERS != 0 {
        let private = Permissions::from_mode(0o700);
        std::fs::set_permissions(dir, private).map_err(Failure::local("make private", dir))?;
    }
    Ok(())
}

/// Everything on the way, links and where they lead, must be in nobody else's hands, before
/// anything is made through it. Group members may change directories further up: many systems give
/// every user a group of his own.
fn check_way_to(dir: &Path, purpose: DirPurpose) -> Result<()> {
    let written = std::path::absolute(dir).map_err(Failure::local("look at", dir))?;
    let mut ways = vec![written.clone()];
    ways.extend(written.ancestors().find_map(|at| at.canonicalize().ok()));
    for step in ways.iter().flat_map(|way| way.ancestors().skip(1)) {
        let Ok(meta) = std::fs::symlink_metadata(step) else {
            continue;
        };
        let own = rustix::process::geteuid().as_raw();
        let is_open = meta.is_dir() && meta.mode() & (WRITABLE_BY_ALL | STICKY) == WRITABLE_BY_ALL;
        let why = match [own, ROOT].contains(&meta.uid()) {
            false => Some(format!("belongs to user {}", meta.uid())),
            true => is_open.then(|| "can be changed by everybody".to_owned()),
        };
        refuse(step, why, purpose)?;
    }
    Ok(())
}

/// Something is there, and nothing can be made in it.
fn why_no_directory(at: &Path) -> Option<(&Path, &'static str)> {
    match std::fs::metadata(at) {
        Ok(meta) => (!meta.is_dir()).then_some((at, "is no directory")),
        Err(_) => {
            let meta = std::fs::symlink_metadata(at);
            let is_link = meta.is_ok_and(|meta| meta.is_symlink());
            is_link.then_some((at, "is a link that leads nowhere"))
        }
    }
}

/// Could others change what stands in the parent?
fn why_not_parent(meta: &Metadata) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    if ![own, ROOT].contains(&meta.uid()) {
        return Some(format!("belongs to user {}", meta.uid()));
    }
    let is_open = meta.mode() & WRITABLE_BY_OTHERS != 0 && meta.mode() & STICKY == 0;
    is_open.then(|| "can be changed by others (chmod go-w makes it yours)".to_owned())
}

fn why_not_ours(meta: &Metadata) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    if !meta.is_dir() {
        return Some("is a link, or no directory".to_owned());
    }
    (meta.uid() != own).then(|| format!("belongs to user {}", meta.uid()))
}

fn refuse(dir: &Path, why: Option<String>, purpose: DirPurpose) -> Result<()> {
    let DirPurpose { what, advice } = purpose;
    why.map_or(Ok(()), |why| {
        let dir = dir.display();
        Err(Failure::Other(format!(
            "{dir} is no place for {what}, it {why}: {advice}"
        )))
    })
}

/// Opens a file that is no link. What is no regular file is `InvalidInput`, and never waited for: a
/// FIFO has no end.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true))
}

/// The same of a name that a person gave, whose links are meant.
pub fn open_following(path: &Path) -> io::Result<File> {
    regular(
        OpenOptions::new()
            .read(true)
            .custom_flags(NO_WAIT)
            .open(path)?,
    )
}

/// The same, to write a part of it again. What is torn by a crash is for whoever reads it to find.
pub fn open_to_change(path: &Path) -> io::Result<File> {
    open_as(path, OpenOptions::new().read(true).write(true))
}

fn open_as(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    regular(options.custom_flags(NO_FOLLOW | NO_WAIT).open(path)?)
}

fn regular(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file",
        )),
    }
}

/// Makes a file where nothing was, not even a link.
pub fn create_new(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.custom_flags(NO_FOLLOW).open(path)
}

/// The whole of a file of at most so many bytes.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let len = file.metadata()?.len();
    if len > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A name beside a file that nobody can guess.
pub fn name_beside(path: &Path) -> io::Result<PathBuf> {
    let random: [u8; 16] = draw(&OsRandom)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", bale_format::id::hex(&random)));
    Ok(PathBuf::from(name))
}

/// The old file or the new one is there, and nothing in between.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = name_beside(path)?;
    let written = create_new(&new).and_then(|mut file| file.write_all(bytes));
    let placed = written.and_then(|()| std::fs::rename(&new, path));
    if placed.is_err() {
        // Whatever is the matter, there may be little room.
        let _ = std::fs::remove_file(&new);
    }
    placed
}

/// The same in a directory that is made if need be.
pub fn keep(path: &Path, bytes: &[u8]) -> Result<()> {
    if let Some(directory) = path.parent() {
        make(directory)?;
    }
    replace(path, bytes).map_err(Failure::local("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    fn refused(dir: &Path) -> bool {
        make(dir).is_err_and(|error| error.to_string().contains("--cache-dir"))
    }

    #[test]
    fn a_directory_is_made_private_and_taken_again() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("a/b/c");
        make(&dir).unwrap();
        make(&dir).unwrap();
        for made in [dir.as_path(), dir.parent().unwrap()] {
            assert_eq!(std::fs::metadata(made).unwrap().mode() & 0o777, 0o700);
        }
        std::fs::set_permissions(&dir, Permissions::from_mode(0o777)).unwrap();
        make(&dir).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_directory_that_others_can_replace_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let parent = place.path().join("parent");
        let dir = parent.join("cache");
        make(&dir).unwrap();
        let open = |mode| std::fs::set_permissions(&parent, Permissions::from_mode(mode)).unwrap();
        for (mode, is_refused) in [
            (0o775, true),
            (0o707, true),
            (0o1777, false),
            (0o755, false),
        ] {
            open(mode);
            assert_eq!(refused(&dir), is_refused, "{mode:o}");
        }
        std::fs::rename(&dir, parent.join("elsewhere")).unwrap();
        symlink(parent.join("elsewhere"), &dir).unwrap();
        assert!(refused(&dir), "a link");
        std::fs::remove_file(&dir).unwrap();
        std::fs::write(&dir, b"a file").unwrap();
        assert!(refused(&dir), "a file");
    }

    #[test]
    fn a_refusal_says_what_the_directory_is_for() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, b"x").unwrap();
        let purpose = DirPurpose {
            what: "the record",
            advice: "name another with --record",
        };
        let text = make_for(&file.join("dir"), purpose)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("no place for the record, it is no directory"),
            "{text}"
        );
        assert!(text.ends_with("name another with --record"), "{text}");
        assert!(refused(&file), "a cache");
    }

    #[test]
    fn a_link_that_a_person_names_is_followed_and_a_fifo_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("file"), place.path().join("link"));
        std::fs::write(&file, b"x").unwrap();
        symlink(&file, &link).unwrap();
        assert!(open(&link).is_err() && open_following(&link).is_ok());
        let fifo = place.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        let kind = open_following(&fifo).unwrap_err().kind();
        assert_eq!(kind, io::ErrorKind::InvalidInput);
    }

    #[test]
    fn what_belongs_to_another_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("parent/cache");
        make(&dir).unwrap();
        for (path, whose) in [(dir.as_path(), "it"), (dir.parent().unwrap(), "its parent")] {
            if chown(path, Some(65534), None).is_err() {
                return assert_ne!(rustix::process::geteuid().as_raw(), ROOT);
            }
            assert!(refused(&dir), "{whose}");
            chown(path, Some(0), None).unwrap();
        }
        make(&dir).unwrap();
    }

    #[test]
    fn nobody_else_can_change_the_way_to_it() {
        let place = tempfile::tempdir().unwrap();
        let (open, lair) = (place.path().join("open"), place.path().join("lair"));
        for made in [&open, &lair] {
            std::fs::create_dir(made).unwrap();
        }
        std::fs::set_permissions(&open, Permissions::from_mode(0o777)).unwrap();
        symlink(&lair, open.join("link")).unwrap();
        for dir in ["own/cache", "link/cache", "link/own/cache"] {
            assert!(refused(&open.join(dir)), "{dir}");
        }
        assert_eq!(
            std::fs::read_dir(&lair).unwrap().count(),
            0,
            "nothing was made"
        );
        std::fs::set_permissions(&open, Permissions::from_mode(0o755)).unwrap();
        make(&open.join("link/own/cache")).unwrap();
        if rustix::process::geteuid().as_raw() == ROOT {
            chown(&open, Some(65534), None).unwrap();
            assert!(refused(&open.join("link/own/cache")), "somebody else's");
        }
    }

    #[test]
    fn no_link_is_read_or_written_through() {
        let place = tempfile::tempdir().unwrap();
        let (victim, link) = (place.path().join("victim"), place.path().join("link"));
        std::fs::write(&victim, b"somebody's").unwrap();
        symlink(&victim, &link).unwrap();
        assert!(open(&link).is_err() && create_new(&link).is_err());
        assert!(open_to_change(&link).is_err());
        assert!(read(&link, 100).is_err());
        replace(&link, b"ours").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"somebody's");
        assert_eq!(read(&link, 4).unwrap(), b"ours");
        assert!(read(&link, 3).is_err());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_is_no_regular_file_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let fifo = place.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
        for path in [fifo.as_path(), place.path()] {
            let kind = open(path).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::InvalidInput, "{path:?}");
            assert!(read(path, 100).is_err(), "{path:?}");
        }
        // What takes its place is read.
        replace(&fifo, b"ours").unwrap();
        assert_eq!(read(&fifo, 4).unwrap(), b"ours");
    }
}
