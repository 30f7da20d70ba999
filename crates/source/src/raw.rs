//! A raw image: the bytes of a block device, or of a file that is one, as they are, in blocks.
//!
//! What its file systems know of it is for others: [`allocation`](DeviceRanges) says which ranges
//! hold anything, a [`ChangeTracker`] which may have changed, and [`plan`] makes of both what is
//! read of the device and what is not. Nothing here interprets a byte. Whether somebody else may
//! write meanwhile is looked at before (a device is held, so that nobody mounts it) and after.

mod blocks;
mod changes;
mod state;

pub use blocks::{BlockPlan, BlockWork, plan};
pub use changes::{ChangeTracker, Changes, NoTracker};

use crate::read::{
    Filled, SPARE_BLOCKS_MAX, map_is_sane, may_have_holes, next_data, read_range, stat_of,
};
use crate::scan::ImageStamp;
use bale_format::entry::{Entry, Kind, Time};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::snapshot::ImageState;
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use rustix::fs::OFlags;
use rustix::io::Errno;
use state::Use;
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Ranges of a device that are to be read, sorted and apart; what is between them is zeros, or
/// nobody's. Whoever does not know a part of the device hands it out.
pub type DeviceRanges = Box<dyn Iterator<Item = Range<u64>> + Send>;

/// An open device or file.
pub struct RawImage {
    path: PathBuf,
    name: Bytes,
    metadata: Metadata,
    buffered: File,
    /// `None`: the file system it is on has no direct reads.
    direct: Option<OwnedFd>,
    len_bytes: u64,
    used: Use,
    stamp: ImageStamp,
    give_back: Sender<AlignedBuffer>,
    spare: Receiver<AlignedBuffer>,
}

impl RawImage {
    /// Opens a device or a file for reading. What it is called in a snapshot is the last part of
    /// its path as it was given, of a device with `.raw` behind.
    pub fn open(path: &Path) -> io::Result<RawImage> {
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
        let stamp = ImageStamp::of(&path)?;
        let len_bytes = match kind.is_block_device() {
            true => buffered.seek(SeekFrom::End(0))?,
            false => buffered.metadata()?.len(),
        };
        let direct = File::options()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(&path);
        let (give_back, spare) = bounded(SPARE_BLOCKS_MAX);
        Ok(RawImage {
            name: name_of(&path, kind.is_block_device())?,
            path,
            metadata,
            buffered,
            direct: direct.ok().map(OwnedFd::from),
            len_bytes,
            used,
            stamp,
            give_back,
            spare,
        })
    }

    /// Absolute, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Of its row, which is below the root.
    pub fn name(&self) -> &Bytes {
        &self.name
    }

    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Its row, without flags.
    pub fn row(&self) -> Entry {
        let mut row = Entry::new(Bytes::new(), self.name.clone(), Kind::File);
        row.size = self.len_bytes;
        row.content = bale_format::Content::Image;
        row.mtime = time_of(self.metadata.mtime(), self.metadata.mtime_nsec());
        row.ctime = row.mtime;
        (row.uid, row.gid) = (self.metadata.uid(), self.metadata.gid());
        row.mode = 0o600;
        if self.metadata.is_file() {
            row.mode = self.metadata.mode() & 0o777;
            row.ctime = time_of(self.metadata.ctime(), self.metadata.ctime_nsec());
            row.inode = self.metadata.ino();
        }
        row
    }

    /// Whether its bytes are of one moment, as far as can be said before they are read.
    pub fn state(&self) -> ImageState {
        match (&self.used, self.metadata.is_file()) {
            (Use::Others(_), _) => ImageState::Fuzzy,
            (Use::Nobody(_), true) => ImageState::Still,
            (Use::Nobody(_), false) => ImageState::Unmounted,
        }
    }

    /// Why its bytes may be of several moments: who uses it, or, after it was read, that it
    /// changed.
    pub fn disturbance(&self) -> Option<String> {
        if let Use::Others(text) = &self.used {
            return Some(format!("it {text}"));
        }
        let problem = self.stamp.check()?;
        Some(problem.error.to_string())
    }

    /// The ranges that are no holes of the file that it is in. Of a device, and where nobody knows,
    /// all.
    pub fn data_ranges(&self) -> DeviceRanges {
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

    /// Reads within one block: past the page cache where that is possible. What the device cannot
    /// give is zeros, and named; fewer bytes than asked for: it ends there.
    pub fn read(&self, range: Range<u64>) -> io::Result<RawBlock> {
        let wanted = (range.end - range.start) as usize;
        debug_assert!(wanted as u64 <= IMAGE_BLOCK_BYTES);
        let buffer = self.spare.try_recv().ok();
        let mut buffer = buffer.unwrap_or_else(|| AlignedBuffer::new(IMAGE_BLOCK_BYTES as usize));
        let filled = self.read_into(range.start, &mut buffer, wanted)?;
        Ok(RawBlock {
            len: filled.len.min(wanted),
            bad: filled.bad,
            error: filled.error.map(io::Error::from),
            buffer: Some(buffer),
            give_back: self.give_back.clone(),
        })
    }

    fn read_into(
        &self,
        start: u64,
        buffer: &mut AlignedBuffer,
        wanted: usize,
    ) -> io::Result<Filled> {
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

/// Bytes of an image, in a buffer that is used again.
pub struct RawBlock {
    buffer: Option<AlignedBuffer>,
    len: usize,
    /// Ranges of these bytes that could not be read and are zeros.
    pub bad: Vec<Range<usize>>,
    /// Why.
    pub error: Option<io::Error>,
    give_back: Sender<AlignedBuffer>,
}

impl RawBlock {
    pub fn bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("taken only by drop");
        &buffer[..self.len]
    }

    /// Nothing but zeros?
    pub fn is_zero(&self) -> bool {
        let bytes = self.bytes();
        // Without an early exit the compiler looks at many bytes at once.
        let is_zero = |part: &[u8]| part.iter().fold(0, |sum, byte| sum | byte) == 0;
        bytes.chunks(ALIGNMENT).all(is_zero)
    }
}

impl Drop for RawBlock {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            let _one_more_is_made_when_needed = self.give_back.try_send(buffer);
        }
    }
}

fn time_of(seconds: i64, nanos: i64) -> Time {
    Time {
        seconds,
        nanos: u32::try_from(nanos).unwrap_or_default(),
    }
}

/// Links in the directories above are resolved; the last part is as it was given.
fn absolute(path: &Path) -> io::Result<PathBuf> {
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

fn name_of(path: &Path, is_device: bool) -> io::Result<Bytes> {
    const NAME_BYTES_MAX: usize = 255;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut name = name.as_bytes().to_vec();
    if is_device {
        name.extend_from_slice(b".raw");
    }
    match name.len() <= NAME_BYTES_MAX {
        true => Ok(name.into()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "its name with .raw is too long for a file",
        )),
    }
}
