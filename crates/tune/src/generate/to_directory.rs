//! A tree into a directory, through the kernel, on all cores.
//!
//! Directories are made in parallel; whoever comes first to a directory makes it. What exists
//! already is left alone, so a further run with another seed adds density.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use super::content::{FileContent, Pool};
use super::error::{GenerateError, Result, at_path};
use super::file::{Attributes, Kind, XATTR_NAME};
use super::monitor::{GenerateMonitor, GenerateProgress};
use super::options::GenerateOptions;
use super::rows::{FileRow, FilledDirectory, What, batches, for_each_filled};
use super::tree::{Shape, snapshot_name};
use super::workers::threads_that_wait_for;

/// Pieces of content in one system call: as many as Linux takes.
const WRITE_SLICES_MAX: usize = 1024;

/// Writes the tree below `root`, which must exist.
pub(super) fn write(
    options: &GenerateOptions,
    pool: &Pool,
    root: &Path,
    monitor: &dyn GenerateMonitor,
) -> Result<GenerateProgress> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let descriptor = fs::open(root, flags, Mode::empty())
        .map_err(|errno| at_path("open", root)(errno.into()))?;
    let writer = Writer {
        options,
        pool,
        root: descriptor,
        root_path: root,
    };
    let shape = Shape::new(options);
    let mut progress = GenerateProgress::default();
    let mut note = |done: Result<GenerateProgress>| {
        progress += done?;
        if monitor.progress(&progress) {
            Ok(())
        } else {
            Err(GenerateError::Stopped)
        }
    };
    let work =
        |directories: &mut dyn Iterator<Item = FilledDirectory>| writer.write_batch(directories);
    let threads = threads_that_wait_for(options.threads);
    if options.snapshots > 0 {
        for_each_filled(
            options,
            1,
            std::iter::once(vec![shape.farm_root()]),
            work,
            &mut note,
        )?;
    }
    // A snapshot must be complete before the next can link to it.
    for snapshot in 0..options.snapshots.max(1) {
        for_each_filled(
            options,
            threads,
            batches(shape.snapshot_plans(snapshot)),
            work,
            &mut note,
        )?;
    }
    Ok(progress)
}

struct Writer<'a> {
    options: &'a GenerateOptions,
    pool: &'a Pool,
    root: OwnedFd,
    root_path: &'a Path,
}

impl<'a> Writer<'a> {
    fn write_batch(
        &self,
        directories: &mut dyn Iterator<Item = FilledDirectory>,
    ) -> Result<GenerateProgress> {
        let mut progress = GenerateProgress::default();
        let mut slices = Vec::new();
        for directory in directories {
            self.write_directory(&directory, &mut slices, &mut progress)?;
        }
        Ok(progress)
    }

    fn write_directory(
        &self,
        directory: &FilledDirectory,
        slices: &mut Vec<IoSlice<'a>>,
        progress: &mut GenerateProgress,
    ) -> Result<()> {
        let path = &directory.plan.path;
        let descriptor = self.open_directory(path)?;
        progress.directories += u64::from(directory.plan.is_first_part);
        for row in &directory.rows {
            let done = match &row.what {
                What::Directory(..) => match fs::mkdirat(
                    &descriptor,
                    OsStr::from_bytes(&row.name),
                    Mode::from_raw_mode(0o755),
                ) {
                    Err(Errno::EXIST) => Ok(()),
                    other => other,
                },
                What::File(file) if directory.is_link(file) => {
                    self.link(directory, descriptor.as_fd(), &row.name, file, progress)
                }
                What::File(file) => {
                    self.write_file(descriptor.as_fd(), &row.name, file, slices, progress)
                }
            };
            done.map_err(|errno| GenerateError::Path {
                what: "create",
                path: self.full_path(path).join(OsStr::from_bytes(&row.name)),
                source: errno.into(),
            })?;
        }
        if !path.is_empty() {
            let attributes = Attributes::of_directory(directory.plan.dice, self.options);
            self.set_attributes(descriptor.as_fd(), &attributes)
                .map_err(|errno| {
                    at_path("set attributes of", &self.full_path(path))(errno.into())
                })?;
        }
        Ok(())
    }

    /// Its parent may be in work on another thread and not have made it yet.
    fn open_directory(&self, path: &[u8]) -> Result<OwnedFd> {
        let name = OsStr::from_bytes(if path.is_empty() { b"." } else { path });
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let open = || fs::openat(&self.root, name, flags, Mode::empty());
        match open() {
            Err(Errno::NOENT) => {
                for end in path
                    .iter()
                    .enumerate()
                    .filter(|(_, byte)| **byte == b'/')
                    .map(|(at, _)| at)
                    .chain([path.len()])
                {
                    match fs::mkdirat(
                        &self.root,
                        OsStr::from_bytes(&path[..end]),
                        Mode::from_raw_mode(0o755),
                    ) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => {
                            return Err(at_path("create", &self.full_path(&path[..end]))(
                                errno.into(),
                            ));
                        }
                    }
                }
                open()
            }
            other => other,
        }
        .map_err(|errno| at_path("open", &self.full_path(path))(errno.into()))
    }

    fn write_file(
        &self,
        parent: BorrowedFd<'_>,
        name: &[u8],
        file: &FileRow,
        slices: &mut Vec<IoSlice<'a>>,
        progress: &mut GenerateProgress,
    ) -> std::result::Result<(), Errno> {
        let name = OsStr::from_bytes(name);
        let size_bytes = match &file.shape.kind {
            Kind::Symlink { target } => {
                match fs::symlinkat(OsStr::from_bytes(target), parent, name) {
                    Err(Errno::EXIST) => progress.existing += 1,
                    Err(errno) => return Err(errno),
                    Ok(()) => {
                        self.set_symlink_attributes(parent, name, &file.shape.attributes)?;
                        progress.count(&file.shape.kind);
                    }
                }
                return Ok(());
            }
            Kind::Regular { size_bytes, .. } => *size_bytes,
        };
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let descriptor = match fs::openat(parent, name, flags, Mode::from_raw_mode(0o644)) {
            Err(Errno::EXIST) => {
                progress.existing += 1;
                return Ok(());
            }
            other => other?,
        };
        write_content(
            descriptor.as_fd(),
            &file.shape.content(self.pool),
            size_bytes,
            slices,
        )?;
        if let Some(value) = &file.shape.xattr {
            fs::fsetxattr(
                &descriptor,
                OsStr::from_bytes(XATTR_NAME),
                value,
                XattrFlags::empty(),
            )?;
        }
        self.set_attributes(descriptor.as_fd(), &file.shape.attributes)?;
        progress.count(&file.shape.kind);
        Ok(())
    }

    fn link(
        &self,
        directory: &FilledDirectory,
        parent: BorrowedFd<'_>,
        name: &[u8],
        file: &FileRow,
        progress: &mut GenerateProgress,
    ) -> std::result::Result<(), Errno> {
        let prefix = snapshot_name(directory.plan.snapshot).len();
        let mut source = snapshot_name(file.version);
        source.extend_from_slice(&directory.plan.path[prefix..]);
        source.push(b'/');
        source.extend_from_slice(name);
        match fs::linkat(
            &self.root,
            OsStr::from_bytes(&source),
            parent,
            OsStr::from_bytes(name),
            AtFlags::empty(),
        ) {
            Err(Errno::EXIST) => progress.existing += 1,
            other => {
                other?;
                progress.links += 1;
            }
        }
        Ok(())
    }

    /// Only what was asked for: each of these is a system call for every file.
    fn set_attributes(
        &self,
        descriptor: BorrowedFd<'_>,
        attributes: &Attributes,
    ) -> std::result::Result<(), Errno> {
        if self.options.owners > 0 {
            let (uid, gid) = owner(attributes);
            fs::fchown(descriptor, uid, gid)?;
            fs::fchmod(descriptor, Mode::from_raw_mode(attributes.permissions))?;
        }
        if self.options.age_days_max > 0 {
            fs::futimens(descriptor, &times(attributes))?;
        }
        Ok(())
    }

    fn set_symlink_attributes(
        &self,
        parent: BorrowedFd<'_>,
        name: &OsStr,
        attributes: &Attributes,
    ) -> std::result::Result<(), Errno> {
        if self.options.owners > 0 {
            let (uid, gid) = owner(attributes);
            fs::chownat(parent, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if self.options.age_days_max > 0 {
            fs::utimensat(parent, name, &times(attributes), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(())
    }

    fn full_path(&self, path: &[u8]) -> PathBuf {
        self.root_path.join(OsStr::from_bytes(path))
    }
}

fn owner(attributes: &Attributes) -> (Option<fs::Uid>, Option<fs::Gid>) {
    (
        Some(fs::Uid::from_raw(attributes.uid)),
        Some(fs::Gid::from_raw(attributes.gid)),
    )
}

fn times(attributes: &Attributes) -> Timestamps {
    let time = Timespec {
        tv_sec: attributes.mtime.seconds,
        tv_nsec: attributes.mtime.nanos.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Hands the kernel places in the pool, so that it makes the only copy.
fn write_content<'a>(
    descriptor: BorrowedFd<'_>,
    content: &FileContent<'a>,
    size_bytes: u64,
    slices: &mut Vec<IoSlice<'a>>,
) -> std::result::Result<(), Errno> {
    let hole = content.hole.clone();
    if !hole.is_empty() {
        fs::ftruncate(descriptor, size_bytes)?;
    }
    let mut offset = 0;
    while offset < size_bytes {
        if hole.contains(&offset) {
            offset = hole.end;
            continue;
        }
        let end = if offset < hole.start {
            hole.start
        } else {
            size_bytes
        };
        slices.clear();
        let places = content.slices(offset, end).take(WRITE_SLICES_MAX);
        slices.extend(places.map(IoSlice::new));
        offset += match rustix::io::pwritev(descriptor, slices, offset) {
            Err(Errno::INTR) => 0,
            Ok(0) => return Err(Errno::IO),
            other => other? as u64,
        };
    }
    Ok(())
}
