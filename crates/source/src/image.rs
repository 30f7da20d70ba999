//! A file system read from its device or image file, without the kernel's help: what the inode scan
//! and its reader need to know of ext4 and XFS, in one vocabulary.
//!
//! [`Image::open`] decides which it is; what is not understood is refused with a sentence, so that
//! the walk is taken instead. A journal that must be replayed first is replayed in memory (ext4) or
//! refused (XFS). Inodes travel as the bytes they are on the device, packed ([`pack_inode`]): what
//! is derived from them is derived when it is needed.

mod content_map;
mod device;
mod ext4;
mod packed;
mod pieces;
mod xfs;
mod xfs_bulkstat;

pub use content_map::{ContentMap, EntryPlace, Extents};
pub use content_map::{set_stat, time_of};
pub use device::{Device, Span};
pub use packed::{pack_inode, unpack_inode};
pub use pieces::{PieceDigest, TablePiece};
pub use xfs_bulkstat::XfsBulkstat;

use bale_fsimage::xfs::LogPlace;
use bale_fsimage::{FileKind, Inode, MappedExtent, Timestamp};
use bytes::Bytes;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Inode tables are read in pieces of at most this size.
pub(crate) const TABLE_PIECE_BYTES: usize = 1 << 20;
/// Directory blocks are read in pieces of at most this size.
pub(crate) const NAMES_PIECE_BYTES: u32 = 1 << 20;
/// Most extents of one file that are held at a time.
pub(crate) const EXTENTS_HELD_MAX: usize = 64 << 10;

/// Why a file system cannot be read from its device; the walk can still read it where it is
/// mounted.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The device or file failed.
    #[error("open {path}: {source}")]
    Open {
        path: String,
        source: std::io::Error,
    },
    /// No file system that this program reads, or one with features it does not know.
    #[error("{0}")]
    Refused(String),
}

/// How a file system is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedAs {
    /// Nothing writes to it while it is read: a journal is replayed, direct reads are as good as
    /// buffered ones.
    Still,
    /// Mounted; a barrier was taken or will be.
    Mounted,
}

/// Names that are read at once: blocks of one directory that lie one behind the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamesPiece {
    /// Inode of the directory.
    pub directory: u64,
    /// Place of the first byte in the directory.
    pub file_offset: u64,
    /// Places on the device; more than one only where a directory block is torn apart.
    pub spans: Vec<Span>,
    /// What else the reader must know of the directory.
    context: [u8; 8],
}

/// Facts about an inode found with its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundInode {
    /// Inode number.
    pub number: u64,
    /// Number of names that it should have.
    pub nlink: u32,
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Anybody can set an mtime.
    pub ctime: Timestamp,
}

impl FoundInode {
    /// `None`: of a type that nobody knows.
    fn new(inode: &Inode) -> Option<FoundInode> {
        Some(FoundInode {
            number: inode.number,
            nlink: inode.nlink,
            kind: FileKind::from_mode(inode.mode)?,
            size: inode.size,
            ctime: inode.ctime,
        })
    }
}

/// Receives what an inode table holds.
pub(crate) trait TableSink {
    /// An inode in use.
    fn inode(&mut self, inode: FoundInode, raw: &[u8]);
    /// Where names of a directory lie.
    fn names(&mut self, piece: NamesPiece);
    /// A name of a directory that lies in its inode.
    fn name(&mut self, directory: u64, name: &[u8], inode: u64);
    /// An inode that cannot be believed.
    fn damaged(&mut self, number: u64, why: String);
    /// A directory of which names are missing.
    fn incomplete(&mut self, directory: u64, why: String);
}

/// Extended attributes.
type NamesAndValues = Vec<(Vec<u8>, Vec<u8>)>;

/// What a file system's reader does for the scan.
trait Volume: Send + Sync {
    /// Some if inodes are listed through XFS_IOC_BULKSTAT, not read from the device. Names must
    /// then be listed through the kernel, and content read through it.
    fn bulkstat(&self) -> Option<&XfsBulkstat> {
        None
    }
    fn kind(&self) -> &'static str;
    fn uuid(&self) -> [u8; 16];
    fn root(&self) -> u64;
    /// Bytes that an inode number takes in a sort key.
    fn number_bytes(&self) -> usize;
    /// Inodes in use, as the file system counts them.
    fn inodes_expected(&self) -> u64;
    /// Pieces of inode tables in the order of inode numbers; an error stands for inodes that cannot
    /// be found.
    fn tables(&self) -> Box<dyn Iterator<Item = Result<TablePiece, String>> + Send + '_>;
    fn parse_table(&self, piece: &TablePiece, bytes: &[u8], sink: &mut dyn TableSink);
    /// A moment from which on its log can tell which inodes are changed.
    fn log_place(&self) -> Option<LogPlace> {
        None
    }
    /// Inodes that the log tells of since then, sorted; `None` if that cannot be told.
    fn inodes_logged_since(&self, _: LogPlace) -> Option<Vec<u64>> {
        None
    }
    /// `bytes` are those of all spans. An error for each part whose names are missing.
    fn parse_names(
        &self,
        piece: &NamesPiece,
        bytes: &[u8],
        name: &mut dyn FnMut(&[u8], u64),
    ) -> Vec<String>;
    /// Of bytes that were found sound: those of a table, or of `read_inode`.
    fn inode(&self, number: u64, raw: &[u8]) -> Result<Inode, String>;
    fn read_inode(&self, number: u64) -> Result<Vec<u8>, String>;
    /// 512-byte units taken, as `st_blocks` tells.
    fn sectors(&self, number: u64, raw: &[u8]) -> u64;
    /// Must metadata be read to find the content?
    fn mapping_has_nodes(&self, number: u64, raw: &[u8]) -> bool;
    /// Extents from a file offset on, in file order, until `extent` says stop.
    fn extents(
        &self,
        number: u64,
        raw: &[u8],
        extent: &mut dyn FnMut(MappedExtent) -> bool,
    ) -> Result<(), String>;
    fn target(&self, number: u64, raw: &[u8]) -> Result<Vec<u8>, String>;
    /// Names and values, sorted by name.
    fn xattrs(&self, number: u64, raw: &[u8]) -> Result<NamesAndValues, String>;
    /// Zeroes what reading a file changes in its inode.
    fn forget_atime(&self, raw: &mut [u8]);
    /// Content must be read from the view that a replayed journal gives, not from the device.
    fn is_replayed(&self) -> bool;
    /// No kernel ever wrote to it: its times are what a tool made them.
    fn was_never_mounted(&self) -> bool {
        false
    }
    /// It was neither unmounted nor frozen: times may be there whose bytes are not.
    fn was_in_use(&self) -> bool {
        self.is_replayed()
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()>;
}

/// An opened file system.
pub struct Image {
    volume: Box<dyn Volume>,
    device: Arc<Device>,
    state: OpenedAs,
    direct: bool,
}

impl Image {
    /// For tests: content through the page cache, which may be stale.
    pub fn reading(self, direct: bool) -> Image {
        Image { direct, ..self }
    }

    /// Opens the file system in a device or image file.
    pub fn open(path: &Path, state: OpenedAs) -> Result<Image, ImageError> {
        let device = Arc::new(Device::open(path, state)?);
        let volume = open_volume(&device, state)?;
        Ok(Image {
            volume,
            device,
            state,
            direct: true,
        })
    }

    /// A mounted XFS read through bulkstat; `directory` is any directory of it.
    pub(crate) fn from_bulkstat(
        path: &Path,
        directory: OwnedFd,
        uuid: [u8; 16],
    ) -> Result<Image, ImageError> {
        let volume = XfsBulkstat::new(directory, uuid).map_err(|error| {
            ImageError::Refused(format!("the kernel does not list its inodes: {error}"))
        })?;
        Ok(Image {
            volume: Box::new(volume),
            device: Arc::new(Device::open(path, OpenedAs::Mounted)?),
            state: OpenedAs::Mounted,
            direct: true,
        })
    }

    /// Is it the kernel that tells? Then names must be listed, and content cannot be read from
    /// here.
    pub fn bulkstat(&self) -> Option<&XfsBulkstat> {
        self.volume.bulkstat()
    }

    /// `ext4`, `xfs` ...
    pub fn kind(&self) -> &'static str {
        self.volume.kind()
    }

    /// The file system's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.volume.uuid()
    }

    /// Inode number of the root directory.
    pub fn root(&self) -> u64 {
        self.volume.root()
    }

    /// Bytes that an inode number takes in a sort key.
    pub fn number_bytes(&self) -> usize {
        self.volume.number_bytes()
    }

    /// Inodes in use, as the file system counts them, a few internal ones included.
    pub(crate) fn inodes_expected(&self) -> u64 {
        self.volume.inodes_expected()
    }

    /// Where its bytes come from.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub fn state(&self) -> OpenedAs {
        self.state
    }

    /// Pieces of the inode tables in the order of inode numbers.
    pub fn tables(&self) -> impl Iterator<Item = Result<TablePiece, String>> + Send + '_ {
        self.volume.tables()
    }

    /// A moment from which on the log can tell which inodes are changed. `None`: it cannot.
    pub fn log_place(&self) -> Option<LogPlace> {
        self.volume.log_place()
    }

    /// Inodes that the log tells of since then, sorted: behind a freeze, no other one was changed.
    /// `None` if that cannot be told.
    pub fn inodes_logged_since(&self, place: LogPlace) -> Option<Vec<u64>> {
        self.volume.inodes_logged_since(place)
    }

    /// Takes a piece of an inode table apart.
    pub(crate) fn parse_table(&self, piece: &TablePiece, bytes: &[u8], sink: &mut dyn TableSink) {
        self.volume.parse_table(piece, bytes, sink);
    }

    /// Decodes a piece of a directory; reports what is missing.
    pub(crate) fn parse_names(
        &self,
        piece: &NamesPiece,
        bytes: &[u8],
        name: &mut dyn FnMut(&[u8], u64),
    ) -> Vec<String> {
        self.volume.parse_names(piece, bytes, name)
    }

    /// Decodes an inode whose bytes were found sound when they were read.
    pub fn inode(&self, number: u64, raw: &[u8]) -> Result<Inode, String> {
        self.volume.inode(number, raw)
    }

    /// Reads one inode again.
    pub fn read_inode(&self, number: u64) -> std::io::Result<Vec<u8>> {
        self.volume
            .read_inode(number)
            .map_err(std::io::Error::other)
    }

    /// Must metadata be read to find a file's content?
    pub fn mapping_has_nodes(&self, number: u64, raw: &[u8]) -> bool {
        self.volume.mapping_has_nodes(number, raw)
    }

    /// Zeroes what reading a file changes in its inode.
    pub(crate) fn forget_atime(&self, raw: &mut [u8]) {
        self.volume.forget_atime(raw);
    }

    /// Did no kernel ever write to it? Then its times are what a tool made them: who builds an
    /// image anew may give other bytes the same times, numbers and UUID on purpose.
    pub(crate) fn was_never_mounted(&self) -> bool {
        self.volume.was_never_mounted()
    }

    /// Was it neither unmounted nor frozen when it was left or copied? Then bytes may be missing
    /// whose times are there.
    pub(crate) fn was_in_use(&self) -> bool {
        self.volume.was_in_use()
    }

    /// Must content be read through the replayed journal?
    pub(crate) fn is_replayed(&self) -> bool {
        self.volume.is_replayed()
    }

    /// Reads a piece of the inode tables.
    pub(crate) fn read_table(
        &self,
        piece: &TablePiece,
        buffer: &mut bale_sys::buffer::AlignedBuffer,
    ) -> std::io::Result<std::ops::Range<usize>> {
        match self.bulkstat() {
            Some(bulkstat) => bulkstat.read_table(piece, buffer).map(|len| 0..len),
            None => self.read_metadata(piece.span, buffer),
        }
    }

    /// Reads metadata: past the page cache where nothing writes, through it on a mounted ext4,
    /// whose page cache is the truth.
    pub(crate) fn read_metadata(
        &self,
        span: Span,
        buffer: &mut bale_sys::buffer::AlignedBuffer,
    ) -> std::io::Result<std::ops::Range<usize>> {
        let through_cache = self.state == OpenedAs::Mounted && self.kind() == "ext4";
        match self.is_replayed() || through_cache {
            true => self.read_view(span, buffer),
            false => self.device.read_direct(span, buffer),
        }
    }

    /// Reads content: past the page cache, whose copy of a mounted device may be stale.
    pub fn read_content(
        &self,
        span: Span,
        buffer: &mut bale_sys::buffer::AlignedBuffer,
    ) -> std::io::Result<std::ops::Range<usize>> {
        match (self.is_replayed(), self.direct) {
            (true, _) => self.read_view(span, buffer),
            (false, true) => self.device.read_direct(span, buffer),
            (false, false) => self.device.read_buffered(span, buffer),
        }
    }

    fn read_view(
        &self,
        span: Span,
        buffer: &mut bale_sys::buffer::AlignedBuffer,
    ) -> std::io::Result<std::ops::Range<usize>> {
        let len = span.len as usize;
        self.volume.read(span.offset, &mut buffer[..len])?;
        Ok(0..len)
    }
}

fn open_volume(device: &Arc<Device>, state: OpenedAs) -> Result<Box<dyn Volume>, ImageError> {
    let not_ext4 = match ext4::open(device.clone(), state) {
        Ok(volume) => return Ok(Box::new(volume)),
        Err(why) => why,
    };
    match xfs::open(device.clone(), state) {
        Ok(volume) => Ok(Box::new(volume)),
        Err(xfs::XfsRefusal::NotXfs) => Err(ImageError::Refused(not_ext4)),
        Err(xfs::XfsRefusal::Because(why)) => Err(ImageError::Refused(why)),
    }
}

/// The bytes of one inode and the file system that they are of.
#[derive(Clone)]
pub struct ImageInode {
    /// The file system.
    pub image: Arc<Image>,
    /// Inode number.
    pub number: u64,
    /// As [`pack_inode`] gave them.
    pub packed: Bytes,
}

impl std::fmt::Debug for ImageInode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImageInode({})", self.number)
    }
}

/// For a temporary file; [`decode_piece`] reads it.
pub(crate) fn encode_piece(piece: &NamesPiece) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24 + 12 * piece.spans.len());
    bytes.extend_from_slice(&piece.directory.to_le_bytes());
    bytes.extend_from_slice(&piece.file_offset.to_le_bytes());
    bytes.extend_from_slice(&piece.context);
    for span in &piece.spans {
        bytes.extend_from_slice(&span.offset.to_le_bytes());
        bytes.extend_from_slice(&span.len.to_le_bytes());
    }
    bytes
}

/// What [`encode_piece`] wrote.
pub(crate) fn decode_piece(bytes: &[u8]) -> Option<NamesPiece> {
    let (directory, rest) = bytes.split_first_chunk::<8>()?;
    let (file_offset, rest) = rest.split_first_chunk::<8>()?;
    let (context, rest) = rest.split_first_chunk::<8>()?;
    let span = |bytes: &[u8]| {
        Some(Span {
            offset: u64::from_le_bytes(*bytes.first_chunk()?),
            len: u32::from_le_bytes(*bytes.last_chunk()?),
        })
    };
    let spans: Option<Vec<Span>> = rest.chunks(12).map(span).collect();
    Some(NamesPiece {
        directory: u64::from_le_bytes(*directory),
        file_offset: u64::from_le_bytes(*file_offset),
        spans: spans.filter(|spans| !spans.is_empty())?,
        context: *context,
    })
}
