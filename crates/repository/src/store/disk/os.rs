//! `OsDisk`: a directory of the operating system, every operation relative to one open descriptor.
//!
//! The root may be reached through links. Below it, only regular files are opened, so a pipe or a
//! device that carries an object's name neither blocks nor is read. Directories below the root may
//! be links, unless it was opened for a server (`within`).

use std::fs::File;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, RenameFlags, Stat};
use rustix::io::Errno;

use super::direct::{BufferPool, DirectFile};
use super::{DirEntryKind, Disk, Expect, FileStat, NewFile, OpenFile};

/// Bytes of directory entries fetched by one system call; about 300 names of 64 digits.
const LIST_BYTES: usize = 32 << 10;

/// Files are for their owner only.
const FILE_MODE: u32 = 0o600;

/// So are directories.
const DIR_MODE: u32 = 0o700;

/// A directory of the operating system.
pub struct OsDisk {
    root: OwnedFd,
    path: PathBuf,
    pieces: Arc<BufferPool>,
    follows_links: bool,
}

/// The directory that a name is looked up in.
enum At<'disk> {
    Root(BorrowedFd<'disk>),
    Below(OwnedFd),
}

impl AsFd for At<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            At::Root(fd) => *fd,
            At::Below(fd) => fd.as_fd(),
        }
    }
}

impl OsDisk {
    /// Opens a directory that exists.
    pub fn open(path: &Path) -> io::Result<Self> {
        let root = open_dir(path)?;
        Ok(Self {
            root,
            path: path.to_owned(),
            pieces: Arc::default(),
            follows_links: true,
        })
    }

    /// A directory that is open already, in which no symbolic link is followed. `path` is for
    /// messages.
    pub fn within(root: OwnedFd, path: &Path) -> Self {
        Self {
            root,
            path: path.to_owned(),
            pieces: Arc::default(),
            follows_links: false,
        }
    }

    /// Opens a directory, making it and its parents, durably, where they are missing.
    pub fn create(path: &Path) -> io::Result<Self> {
        make_dirs(path)?;
        Self::open(path)
    }

    fn open_dir(&self, path: &str) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { "." } else { path };
        if !self.follows_links {
            let (at, name) = self.at(path)?;
            return open_real_dir(&at, name);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.root, path, flags, Mode::empty())?)
    }

    /// Where a path is looked up, and under which name: all of it at the root, or its last part in
    /// a directory that was reached without following a link.
    fn at<'path>(&self, path: &'path str) -> io::Result<(At<'_>, &'path str)> {
        let mut at = At::Root(self.root.as_fd());
        let Some((dirs, name)) = path.rsplit_once('/').filter(|_| !self.follows_links) else {
            return Ok((at, path));
        };
        for dir in dirs.split('/') {
            at = At::Below(open_real_dir(&at, dir)?);
        }
        Ok((at, name))
    }

    /// For file systems without `RENAME_NOREPLACE`: a second name, then the first one goes.
    fn link_then_unlink(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from_at, from_name), (to_at, to_name)) = (self.at(from)?, self.at(to)?);
        match rustix::fs::linkat(&from_at, from_name, &to_at, to_name, AtFlags::empty()) {
            Ok(()) => Ok(rustix::fs::unlinkat(&from_at, from_name, AtFlags::empty())?),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => self.look_then_rename(from, to),
            Err(errno) => Err(errno.into()),
        }
    }

    /// For file systems that have no links either. Two writers of one name may both pass the look;
    /// the later one replaces the earlier one's bytes, which by the name's hash are the same bytes.
    fn look_then_rename(&self, from: &str, to: &str) -> io::Result<()> {
        if self.stat(to)?.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ((from_at, from_name), (to_at, to_name)) = (self.at(from)?, self.at(to)?);
        Ok(rustix::fs::renameat(&from_at, from_name, &to_at, to_name)?)
    }
}

impl Disk for OsDisk {
    fn create(&self, path: &str, expect: Expect) -> io::Result<Box<dyn NewFile>> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (at, name) = self.at(path)?;
        let file = rustix::fs::openat(&at, name, flags, Mode::from_raw_mode(FILE_MODE))?;
        let file = File::from(file);
        Ok(match expect {
            Expect::Small => Box::new(BufferedFile { file }),
            Expect::Bulk => Box::new(DirectFile::new(file, &self.pieces)),
        })
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn OpenFile>> {
        // NONBLOCK: opening a pipe for reading would otherwise wait for a writer. Regular files
        // ignore it.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let (at, name) = self.at(path)?;
        let file = rustix::fs::openat(&at, name, flags, Mode::empty())?;
        let stat = file_stat(&rustix::fs::fstat(&file)?);
        if stat.kind != DirEntryKind::File {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        Ok(Arc::new(ReadFile {
            file: File::from(file),
            len: stat.len,
        }))
    }

    fn stat(&self, path: &str) -> io::Result<Option<FileStat>> {
        let (at, name) = match self.at(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            at => at?,
        };
        match rustix::fs::statat(&at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(file_stat(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let ((from_at, from_name), (to_at, to_name)) = (self.at(from)?, self.at(to)?);
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(&from_at, from_name, &to_at, to_name, flags) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => self.link_then_unlink(from, to),
            Err(errno) => Err(errno.into()),
        }
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let (at, name) = self.at(path)?;
        Ok(rustix::fs::unlinkat(&at, name, AtFlags::empty())?)
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let (at, name) = self.at(path)?;
        Ok(rustix::fs::mkdirat(
            &at,
            name,
            Mode::from_raw_mode(DIR_MODE),
        )?)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let (at, name) = self.at(path)?;
        Ok(rustix::fs::unlinkat(&at, name, AtFlags::REMOVEDIR)?)
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        sync_dir_fd(&self.open_dir(path)?)
    }

    fn list(
        &self,
        path: &str,
        found: &mut dyn FnMut(&[u8], Option<DirEntryKind>),
    ) -> io::Result<()> {
        let dir = self.open_dir(path)?;
        let mut buf = [MaybeUninit::<u8>::uninit(); LIST_BYTES];
        let mut entries = RawDir::new(&dir, &mut buf);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                found(name, listed_kind(entry.file_type()));
            }
        }
        Ok(())
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// A directory that is no link.
fn open_real_dir(at: &impl AsFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(at, name, flags, Mode::empty())?)
}

/// Makes a directory and its missing parents; each new name is durable before the next.
fn make_dirs(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    make_dirs(parent)?;
    match rustix::fs::mkdir(path, Mode::from_raw_mode(DIR_MODE)) {
        Ok(()) => sync_dir_fd(&open_dir(parent)?),
        // Another process was faster, or it is no directory, which opening it will say.
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn sync_dir_fd(dir: &OwnedFd) -> io::Result<()> {
    match rustix::fs::fsync(dir) {
        // Some network and FUSE file systems cannot sync a directory and make names durable by
        // themselves.
        Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn listed_kind(kind: FileType) -> Option<DirEntryKind> {
    match kind {
        FileType::Unknown => None,
        known => Some(kind_of(known)),
    }
}

fn kind_of(kind: FileType) -> DirEntryKind {
    match kind {
        FileType::RegularFile => DirEntryKind::File,
        FileType::Directory => DirEntryKind::Dir,
        _ => DirEntryKind::Other,
    }
}

fn file_stat(stat: &Stat) -> FileStat {
    FileStat {
        kind: kind_of(FileType::from_raw_mode(stat.st_mode)),
        len: u64::try_from(stat.st_size).unwrap_or(0),
        modified: moment(
            stat.st_mtime,
            u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        ),
    }
}

fn moment(seconds: i64, nanos: u32) -> Option<SystemTime> {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    start?.checked_add(Duration::from_nanos(u64::from(nanos)))
}

/// A new file written through the page cache.
struct BufferedFile {
    file: File,
}

impl NewFile for BufferedFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn sync(self: Box<Self>) -> io::Result<()> {
        Ok(rustix::fs::fsync(self.file.as_fd())?)
    }
}

struct ReadFile {
    file: File,
    len: u64,
}

impl OpenFile for ReadFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Naming = fn(&OsDisk, &str, &str) -> io::Result<()>;

    /// File systems without the better ways are rare; the ways round them work everywhere.
    #[test]
    fn every_way_of_naming_a_file_keeps_what_is_there() {
        let ways: [Naming; 3] = [
            OsDisk::rename_new,
            OsDisk::link_then_unlink,
            OsDisk::look_then_rename,
        ];
        for way in ways {
            let scratch = tempfile::tempdir().unwrap();
            let disk = OsDisk::create(&scratch.path().join("new/root")).unwrap();
            for (name, bytes) in [("a", b"first"), ("b", b"other")] {
                let mut file = disk.create(name, Expect::Small).unwrap();
                file.append(bytes).unwrap();
                file.sync().unwrap();
            }
            way(&disk, "a", "named").unwrap();
            assert_eq!(
                way(&disk, "b", "named").unwrap_err().kind(),
                io::ErrorKind::AlreadyExists
            );
            assert_eq!(
                way(&disk, "gone", "x").unwrap_err().kind(),
                io::ErrorKind::NotFound
            );
            assert_eq!(
                way(&disk, "b", "gone/x").unwrap_err().kind(),
                io::ErrorKind::NotFound
            );
            assert_eq!(disk.stat("a").unwrap(), None);
            let mut bytes = [0; 5];
            disk.open("named").unwrap().read_at(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"first");
        }
    }

    #[test]
    fn moments_before_1970_are_told() {
        assert_eq!(
            moment(-1, 500_000_000),
            UNIX_EPOCH.checked_sub(Duration::from_millis(500))
        );
        assert_eq!(moment(2, 1), Some(UNIX_EPOCH + Duration::new(2, 1)));
    }
}
