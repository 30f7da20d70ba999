//! A block device or a file of this machine.

use super::DeviceRanges;
use super::device::{DeviceRead, ImageDevice, row_name};
use super::state::Use;
use crate::read::{Filled, map_is_sane, may_have_holes, next_data, read_range, stat_of};
use crate::scan::ImageStamp;
use bale_format::entry::{Entry, Time};
use bale_format::snapshot::ImageState;
use bale_sys::buffer::ALIGNMENT;
use bale_sys::cache::forget_cached;
use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What is smaller goes through the page cache: tables of file systems are read around each other.
const DIRECT_BYTES_MIN: usize = 64 << 10;

/// An open device or file.
pub(super) struct LocalDevice {
    path: PathBuf,
    name: Bytes,
    metadata: Metadata,
    buffered: File,
    /// `None`: the file system it is on has no direct reads.
    direct: Option<OwnedFd>,
    len_bytes: u64,
    used: Use,
    stamp: ImageStamp,
}

impl LocalDevice {
    pub(super) fn open(path: &Path) -> io::Result<LocalDevice> {
        let path = absolute(path)?;
        let metadata = std::fs::metadata(&path)?;
        let kind = metadata.file_type();
        if !kind.is_block_device() && !kind.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it is neither a block device nor a file",
            ));
        }
        let mut buffered = File::open(&path)?;
        let used = Use::of(&path, &metadata);
        if kind.is_block_device() && matches!(used, Use::Nobody(_)) {
            // Bitmaps and inodes are read through it.
            forget_cached(&buffered);
        }
        let stamp = ImageStamp::of(&path)?;
        let len_bytes = match kind.is_block_device() {
            true => buffered.seek(SeekFrom::End(0))?,
            false => buffered.metadata()?.len(),
        };
        let direct = File::options()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(&path);
        let last = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(LocalDevice {
            name: row_name(last.as_bytes(), kind.is_file())?,
            path,
            metadata,
            buffered,
            direct: direct.ok().map(OwnedFd::from),
            len_bytes,
            used,
            stamp,
        })
    }

    fn fill(&self, start: u64, buffer: &mut [u8], wanted: usize) -> io::Result<Filled> {
        let is_aligned = start.is_multiple_of(ALIGNMENT as u64);
        if let Some(direct) = self.direct.as_ref().filter(|_| is_aligned) {
            let len = wanted.next_multiple_of(ALIGNMENT).min(buffer.len());
            match read_range(direct.as_fd(), start, &mut buffer[..len], wanted) {
                // Blocks that are larger than ours, or an end within one.
                Err(Errno::INVAL) => {}
                filled => return Ok(filled?),
            }
        }
        let buffer = &mut buffer[..wanted];
        Ok(read_range(self.buffered.as_fd(), start, buffer, wanted)?)
    }
}

impl ImageDevice for LocalDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn name(&self) -> &Bytes {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    fn describe(&self, row: &mut Entry) {
        describe_file(&self.metadata, row);
    }

    fn state(&self) -> ImageState {
        match (&self.used, self.metadata.is_file()) {
            (Use::Others(_), _) => ImageState::Fuzzy,
            (Use::Nobody(_), true) => ImageState::Still,
            (Use::Nobody(_), false) => ImageState::Unmounted,
        }
    }

    fn disturbance(&self) -> Option<String> {
        if let Use::Others(text) = &self.used {
            return Some(format!("it {text}"));
        }
        let problem = self.stamp.check()?;
        Some(problem.error.to_string())
    }

    fn sector_bytes(&self) -> Option<u32> {
        match self.metadata.is_file() {
            true => None,
            false => rustix::fs::ioctl_blksszget(&self.buffered).ok(),
        }
    }

    /// What is no hole of the file; of a device all.
    fn data_ranges(&self) -> DeviceRanges {
        let whole = 0..self.len_bytes;
        let is_sparse = stat_of(self.buffered.as_fd()).is_ok_and(|stat| {
            self.metadata.is_file() && may_have_holes(&stat) && map_is_sane(&self.buffered, &stat)
        });
        let file = self.buffered.try_clone().ok().filter(|_| is_sparse);
        let Some(file) = file else {
            return Box::new(std::iter::once(whole).filter(|range| !range.is_empty()));
        };
        let (mut at, end) = (0, whole.end);
        Box::new(std::iter::from_fn(move || {
            let data = match next_data(file.as_fd(), at, end) {
                Ok(data) => data?,
                // What is not known to be a hole is read.
                Err(_) if at < end => at..end,
                Err(_) => return None,
            };
            at = data.end;
            Some(data)
        }))
    }

    fn read_into(&self, start: u64, buffer: &mut [u8], wanted: usize) -> io::Result<DeviceRead> {
        let filled = self.fill(start, buffer, wanted)?;
        Ok(DeviceRead {
            len: filled.len,
            bad: filled.bad,
            error: filled.error.map(io::Error::from),
        })
    }

    /// Much at once is read past the page cache, if it lies as direct reads want it.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let is_aligned = |number: u64| number.is_multiple_of(ALIGNMENT as u64);
        let (address, len) = (buffer.as_ptr().addr() as u64, buffer.len() as u64);
        if let Some(direct) = &self.direct
            && buffer.len() >= DIRECT_BYTES_MIN
            && is_aligned(offset)
            && is_aligned(address)
            && is_aligned(len)
        {
            let read = read_range(direct.as_fd(), offset, buffer, buffer.len());
            if read.is_ok_and(|read| read.len == buffer.len() && read.bad.is_empty()) {
                return Ok(());
            }
        }
        self.buffered.read_exact_at(buffer, offset)
    }
}

/// Times, owner and mode of a device or a file.
pub(super) fn describe_file(metadata: &Metadata, row: &mut Entry) {
    row.mtime = time_of(metadata.mtime(), metadata.mtime_nsec());
    row.ctime = row.mtime;
    (row.uid, row.gid) = (metadata.uid(), metadata.gid());
    if metadata.is_file() {
        row.mode = metadata.mode() & 0o777;
        row.ctime = time_of(metadata.ctime(), metadata.ctime_nsec());
        row.inode = metadata.ino();
    }
}

fn time_of(seconds: i64, nanos: i64) -> Time {
    Time {
        seconds,
        nanos: u32::try_from(nanos).unwrap_or_default(),
    }
}

/// Links in the directories above are resolved; the last part is as it was given.
pub(super) fn absolute(path: &Path) -> io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = match parent.as_os_str().is_empty() {
                true => Path::new("."),
                false => parent,
            };
            Ok(std::fs::canonicalize(parent)?.join(name))
        }
        _ => std::fs::canonicalize(path),
    }
}
