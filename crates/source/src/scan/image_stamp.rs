//! Whether anybody wrote to an image while it was read: what it looked like before, and after.
//!
//! Times, size and inode of a file; of a device the kernel's count of writes, too. What cannot be
//! seen: writes to a device that the kernel does not count.

use super::{ScanProblem, barrier_now};
use crate::raw::state::Use;
use bale_format::entry::Time;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the stamp of an image is waited for until no further write can leave the same one, and
/// how often it is looked at.
const STAMP_WAIT_MAX: Duration = Duration::from_millis(2_100);
const STAMP_PAUSE: Duration = Duration::from_millis(5);

/// What an image looked like before it was read.
pub struct ImageStamp {
    path: PathBuf,
    before: WriteCount,
    /// Who used it then, if that was asked.
    used: Option<Use>,
}

#[derive(PartialEq, Eq)]
struct WriteCount {
    inode: u64,
    size: u64,
    mtime: (i64, i64),
    ctime: Time,
    /// Writes to a device, whose times say nothing of them.
    writes: Option<[u64; 2]>,
}

impl ImageStamp {
    /// Waits a little where the image was written to just now. One that is written to all the time
    /// is another one afterwards in any case.
    pub(crate) fn of(path: &Path) -> io::Result<ImageStamp> {
        let began = Instant::now();
        loop {
            let before = WriteCount::of(path)?;
            if before.is_not_racy() || began.elapsed() > STAMP_WAIT_MAX {
                let path = path.to_path_buf();
                return Ok(ImageStamp {
                    path,
                    before,
                    used: None,
                });
            }
            std::thread::sleep(STAMP_PAUSE);
        }
    }

    /// The same, which knows who uses a file. A device is held by who reads it.
    pub(super) fn with_users(self) -> io::Result<ImageStamp> {
        let metadata = std::fs::metadata(&self.path)?;
        let used = metadata.is_file().then(|| Use::of(&self.path, &metadata));
        Ok(ImageStamp { used, ..self })
    }

    /// Who uses it now, or did when it was asked first.
    fn user(&self) -> Option<String> {
        match self.used.as_ref()? {
            Use::Others(user) => Some(user.clone()),
            Use::Nobody(_) => {
                let metadata = std::fs::metadata(&self.path).ok()?;
                match Use::of(&self.path, &metadata) {
                    Use::Others(user) => Some(user),
                    Use::Nobody(_) => None,
                }
            }
        }
    }

    /// A problem if the image was modified since `before`, or somebody may have who is not seen.
    pub fn check(&self) -> Option<ScanProblem> {
        let error = match WriteCount::of(&self.path) {
            Ok(now) if now == self.before => io::Error::other(format!(
                "it {}: what was stored may belong to different moments",
                self.user()?
            )),
            Ok(_) => io::Error::other(
                "the image was written to while it was read: what was stored may belong to \
                 different moments",
            ),
            Err(error) => error,
        };
        Some(ScanProblem {
            path: without_slash(&self.path),
            action: "read",
            error,
        })
    }
}

impl WriteCount {
    fn is_not_racy(&self) -> bool {
        self.ctime.is_stamped_before(barrier_now())
    }

    fn of(path: &Path) -> io::Result<WriteCount> {
        let metadata = std::fs::metadata(path)?;
        Ok(WriteCount {
            inode: metadata.ino(),
            size: metadata.size(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            ctime: Time {
                seconds: metadata.ctime(),
                nanos: u32::try_from(metadata.ctime_nsec()).unwrap_or_default(),
            },
            writes: match metadata.file_type().is_block_device() {
                true => writes_to(metadata.rdev()),
                false => None,
            },
        })
    }
}

/// Writes and discards that a block device has taken so far, as far as the kernel counts them.
fn writes_to(device: u64) -> Option<[u64; 2]> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    let counted = |at: usize| text.split_whitespace().nth(at)?.parse().ok();
    Some([counted(4)?, counted(11).unwrap_or(0)])
}

/// As entries have it.
pub(super) fn without_slash(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec()
}
