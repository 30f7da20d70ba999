//! What an image is read from: the seam behind which devices of this machine and exports of servers
//! are.

use super::DeviceRanges;
use super::export_reader::ExportReader;
use bale_format::entry::Entry;
use bale_format::snapshot::ImageState;
use bale_fsimage::ByteSource;
use bytes::Bytes;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Names of rows have no more.
const NAME_BYTES_MAX: usize = 255;

/// What a read of a range gave.
#[derive(Debug, Default)]
pub(super) struct DeviceRead {
    /// Bytes in the buffer; fewer than asked for: the device ends there.
    pub(super) len: usize,
    /// Ranges of the buffer that could not be read and are zero.
    pub(super) bad: Vec<Range<usize>>,
    /// The first reason.
    pub(super) error: Option<io::Error>,
}

/// A device of a fixed length, read by several threads at once.
pub(super) trait ImageDevice: Send + Sync {
    /// As a snapshot names its source.
    fn path(&self) -> &Path;

    /// Of its row.
    fn name(&self) -> &Bytes;

    fn len_bytes(&self) -> u64;

    /// Gives its row the times, owner and mode that the device has.
    fn describe(&self, row: &mut Entry);

    /// Whether its bytes are of one moment, as far as can be said before they are read.
    fn state(&self) -> ImageState;

    /// Why its bytes may be of several moments, as far as is known now.
    fn disturbance(&self) -> Option<String>;

    /// Size of a sector of a device, bytes.
    fn sector_bytes(&self) -> Option<u32> {
        None
    }

    /// A superset of what is not zeros.
    fn data_ranges(&self) -> DeviceRanges;

    /// Reads `wanted` bytes, or up to the end, into a buffer that may be longer, and is aligned for
    /// direct reads. An error is one of the device as a whole; a place that cannot be read is named
    /// in the result.
    fn read_into(&self, start: u64, buffer: &mut [u8], wanted: usize) -> io::Result<DeviceRead>;

    /// Fills all of the buffer, wherever it begins.
    fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// If it is an export with a bitmap that says what changed: that.
    fn tracked(&self) -> Option<&ExportReader> {
        None
    }
}

/// The device as readers of file systems take it.
pub(super) struct DeviceBytes(pub(super) Arc<dyn ImageDevice>);

impl ByteSource for DeviceBytes {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, buf)
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
}

/// The name of a row; `.raw` behind it if it is none of a file.
pub(super) fn row_name(name: &[u8], is_file: bool) -> io::Result<Bytes> {
    let behind: &[u8] = if is_file { b"" } else { b".raw" };
    let name = [name, behind].concat();
    match name.len() <= NAME_BYTES_MAX {
        true => Ok(name.into()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "its name with .raw is too long for a file",
        )),
    }
}
