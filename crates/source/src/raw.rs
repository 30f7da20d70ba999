//! A raw image: the bytes of a block device, of a file that is one, or of an export of a server, as
//! they are, in blocks.
//!
//! What its file systems know of it is for others: [`allocation`](DeviceRanges) says which ranges
//! hold anything, a [`ChangeTracker`] which may have changed, and [`plan`] makes of both what is
//! read of the device and what is not. Nothing here interprets a byte. Whether somebody else may
//! write meanwhile is looked at before (a device is held, so that nobody mounts it) and after.

mod block_buffer;
mod block_ranges;
mod blocks;
pub mod change_list;
mod changed_parts;
mod changes;
mod device;
mod export;
mod export_reader;
mod local;
mod qemu_disk;
mod qemu_file;
pub(crate) mod state;
pub mod tracking;

pub use bale_nbd::ImageFormat;
pub use block_ranges::BlockRanges;
pub use blocks::{BlockPlan, BlockWork, plan};
pub use changed_parts::{BitmapChanges, UnreadPart};
pub use changes::{ChangeTracker, Changes, NoTracker};
pub use export_reader::extents_memory_bytes;
pub use qemu_disk::{QemuSource, open_disks};

use crate::read::SPARE_BLOCKS_MAX;
use bale_format::entry::{Entry, Kind};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::snapshot::ImageState;
use bale_fsimage::ByteSource;
use bale_nbd::NbdUri;
use bale_sys::buffer::ALIGNMENT;
use block_buffer::BlockBuffer;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use device::{DeviceBytes, DeviceRead, ImageDevice};
use export::ExportDevice;
use local::LocalDevice;
use qemu_file::QemuFileDevice;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ranges of a device that are to be read, sorted and apart; what is between them is zeros, or
/// nobody's. Whoever does not know a part of the device hands it out.
pub type DeviceRanges = Box<dyn Iterator<Item = Range<u64>> + Send>;

/// Does this name an export of an NBD server, and no device or file?
pub fn is_export(path: &Path) -> bool {
    path.to_str().is_some_and(NbdUri::is_meant)
}

/// Does this name something else than a device or a file of this machine?
pub fn is_of_server(path: &Path) -> bool {
    is_export(path) || QemuSource::is_meant(path)
}

/// Does this name an export with a bitmap that says what changed?
pub fn has_bitmap(path: &Path) -> bool {
    let uri = path.to_str().filter(|text| NbdUri::is_meant(text));
    let uri = uri.and_then(|text| NbdUri::parse(text).ok());
    uri.is_some_and(|uri| uri.bitmap.is_some())
}

/// What may be shown of a source of an image: its URI without user and password, or its absolute
/// path. It is what a snapshot records, if the image can be opened.
pub fn shown_source(path: &Path) -> PathBuf {
    if let (true, Ok(source)) = (QemuSource::is_meant(path), QemuSource::parse(path)) {
        return source.shown().into();
    }
    match path.to_str().filter(|text| NbdUri::is_meant(text)) {
        Some(text) => match export::uri_of(text) {
            Ok(uri) => uri.to_string().into(),
            Err(_) => NbdUri::shown(text).into(),
        },
        None => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

/// How an image is opened.
#[derive(Clone, Debug, Default)]
pub struct RawImageOptions {
    /// Somebody holds the export of a server still: all its bytes are of one moment.
    pub is_point_in_time: bool,
    /// The server of an export with a bitmap gives nothing but what that has as changed.
    pub changes_only: bool,
    pub format: SourceFormat,
    /// May an image of a format of QEMU name files outside of its own directory?
    pub allows_files_elsewhere: bool,
}

/// What is in a file that is an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceFormat {
    /// As the end of its name says: `.qcow2`, `.vmdk`, `.vdi`, `.vhdx`, and raw otherwise.
    #[default]
    ByName,
    /// The bytes of the disk, as they are.
    Raw,
    /// A format of QEMU: the disk is what QEMU reads out of it.
    Qemu(ImageFormat),
}

impl SourceFormat {
    /// `None`: raw.
    fn of(self, path: &Path) -> Option<ImageFormat> {
        match self {
            SourceFormat::ByName if path.is_file() => ImageFormat::by_name(path),
            SourceFormat::ByName | SourceFormat::Raw => None,
            SourceFormat::Qemu(format) => Some(format),
        }
    }
}

/// An open device, file or export of a server.
pub struct RawImage {
    device: Arc<dyn ImageDevice>,
    changes_only: bool,
    give_back: Sender<Vec<u8>>,
    spare: Receiver<Vec<u8>>,
}

impl RawImage {
    /// Opens a device or a file for reading, or an export that a URI of NBD names.
    pub fn open(path: &Path) -> io::Result<RawImage> {
        RawImage::open_with(path, &RawImageOptions::default())
    }

    /// The same with options. What it is called in a snapshot is the last part of its path as it
    /// was given, of a device and of what QEMU reads with `.raw` behind; of an export the last part
    /// of the export's name, with `.raw` behind.
    pub fn open_with(path: &Path, options: &RawImageOptions) -> io::Result<RawImage> {
        let uri = path.to_str().filter(|text| NbdUri::is_meant(text));
        let device: Arc<dyn ImageDevice> = match (uri, options.format.of(path)) {
            (Some(uri), _) => {
                let (still, part) = (options.is_point_in_time, options.changes_only);
                Arc::new(ExportDevice::connect(uri, still, part)?)
            }
            (None, None) => Arc::new(LocalDevice::open(path)?),
            (None, Some(format)) => {
                let elsewhere = options.allows_files_elsewhere;
                Arc::new(QemuFileDevice::open(path, format, elsewhere)?)
            }
        };
        Ok(RawImage {
            changes_only: options.changes_only && device.tracked().is_some(),
            ..RawImage::of(device)
        })
    }

    fn of(device: Arc<dyn ImageDevice>) -> RawImage {
        let (give_back, spare) = bounded(SPARE_BLOCKS_MAX);
        RawImage {
            device,
            changes_only: false,
            give_back,
            spare,
        }
    }

    /// Absolute, as it was given; of an export its URI.
    pub fn path(&self) -> &Path {
        self.device.path()
    }

    /// Of its row, which is below the root.
    pub fn name(&self) -> &Bytes {
        self.device.name()
    }

    pub fn len_bytes(&self) -> u64 {
        self.device.len_bytes()
    }

    /// Its row, without flags.
    pub fn row(&self) -> Entry {
        let mut row = Entry::new(Bytes::new(), self.name().clone(), Kind::File);
        row.size = self.len_bytes();
        row.content = bale_format::Content::Image;
        row.mode = 0o600;
        self.device.describe(&mut row);
        row
    }

    /// Whether its bytes are of one moment, as far as can be said before they are read.
    pub fn state(&self) -> ImageState {
        self.device.state()
    }

    /// Why its bytes may be of several moments: who uses it, or, after it was read, that it
    /// changed.
    pub fn disturbance(&self) -> Option<String> {
        self.device.disturbance()
    }

    /// The ranges that hold anything: no holes of the file that it is in, nothing that a server
    /// says to be zeros. Where nobody knows, all.
    pub fn data_ranges(&self) -> DeviceRanges {
        self.device.data_ranges()
    }

    /// Size of a sector of a device, which partition tables count in. Of a file nobody knows it.
    pub fn sector_bytes(&self) -> Option<u32> {
        self.device.sector_bytes()
    }

    /// Its bytes, for readers of file systems.
    pub fn byte_source(&self) -> Arc<dyn ByteSource> {
        Arc::new(DeviceBytes(self.device.clone()))
    }

    /// Reads within one block: past the page cache where that is possible. What the device cannot
    /// give is zeros, and named; fewer bytes than asked for: it ends there.
    pub fn read(&self, range: Range<u64>) -> io::Result<RawBlock> {
        let wanted = (range.end - range.start) as usize;
        debug_assert!(wanted as u64 <= IMAGE_BLOCK_BYTES);
        let mut buffer = self.buffer();
        let read = self
            .device
            .read_into(range.start, buffer.block_mut(), wanted)?;
        Ok(self.block(buffer, read, wanted))
    }

    fn buffer(&self) -> BlockBuffer {
        BlockBuffer::of(self.spare.try_recv().ok())
    }

    fn block(&self, buffer: BlockBuffer, read: DeviceRead, wanted: usize) -> RawBlock {
        RawBlock {
            len: read.len.min(wanted),
            bad: read.bad,
            error: read.error,
            buffer: Some(buffer),
            give_back: self.give_back.clone(),
        }
    }
}

/// Bytes of an image, in a buffer that is used again.
pub struct RawBlock {
    buffer: Option<BlockBuffer>,
    len: usize,
    /// Ranges of these bytes that could not be read and are zeros.
    pub bad: Vec<Range<usize>>,
    /// Why.
    pub error: Option<io::Error>,
    give_back: Sender<Vec<u8>>,
}

/// The bytes of a block for whoever needs them longer: the end of a buffer, with room behind them
/// to be sealed. The buffer goes back to its owner when it is spent.
pub struct TakenBlock {
    pub buffer: Vec<u8>,
    pub start: usize,
    pub owner: Sender<Vec<u8>>,
}

impl RawBlock {
    /// # Panics
    ///
    /// After they were taken.
    pub fn bytes(&self) -> &[u8] {
        let buffer = self
            .buffer
            .as_ref()
            .expect("asked for before they are taken");
        &buffer.block()[..self.len]
    }

    /// How many bytes there are, also after they were taken.
    pub fn len_bytes(&self) -> usize {
        self.len
    }

    /// # Panics
    ///
    /// The second time.
    pub fn take_bytes(&mut self) -> TakenBlock {
        let BlockBuffer { mut bytes, start } = self.buffer.take().expect("taken once");
        bytes.truncate(start + self.len);
        TakenBlock {
            buffer: bytes,
            start,
            owner: self.give_back.clone(),
        }
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
            let _one_more_is_made_when_needed = self.give_back.try_send(buffer.bytes);
        }
    }
}
