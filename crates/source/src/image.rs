//! A file system read from its device or image file, without the kernel's help: what the inode scan
//! and its reader need to know of ext4, XFS and NTFS, in one vocabulary.
//!
//! [`Image::open`] decides which it is; what is not understood is refused with a sentence, so that
//! the walk is taken instead. A journal that must be replayed first is replayed in memory (ext4) or
//! refused (XFS, NTFS). Inodes travel as the bytes they are on the device, packed ([`pack_inode`]):
//! what is derived from them is derived when it is needed.

mod content_map;
mod device;
mod ext4;
mod ntfs;
mod packed;
mod pieces;
mod volume;
mod xfs;
mod xfs_bulkstat;

pub use content_map::time_of;
pub use content_map::{ContentMap, EntryPlace, Extents};
pub(crate) use device::Device;
pub use device::Span;
pub use packed::{pack_inode, unpack_inode};
pub use pieces::{PieceDigest, TablePiece};
pub use volume::InodeLog;
pub(crate) use volume::{
    DirectoryNames, FoundInode, InodeContent, InodeTables, TableSink, VolumeFacts,
};
pub use xfs_bulkstat::XfsBulkstat;

use crate::scan::Atime;
use bale_format::Entry;
use bale_fsimage::{ByteSource, Inode};
use bytes::Bytes;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use volume::Volume;

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

/// An opened file system.
pub struct Image {
    volume: Box<dyn Volume>,
    facts: VolumeFacts,
    device: Arc<Device>,
    state: OpenedAs,
    direct: bool,
    atime: Atime,
}

impl Image {
    /// The same, whose rows say when inodes were last accessed: then that is part of what an inode
    /// is compared by.
    pub fn keeping_atimes(self, are_kept: bool) -> Image {
        let atime = Atime::taken_if(are_kept);
        Image { atime, ..self }
    }

    /// Do its rows say when inodes were last accessed?
    pub(crate) fn atime(&self) -> Atime {
        self.atime
    }

    /// Overwrites what `stat` tells of an inode.
    pub(crate) fn set_stat(&self, entry: &mut Entry, inode: &Inode) {
        content_map::set_stat(entry, inode);
        if self.atime == Atime::Taken {
            entry.atime = time_of(inode.atime).into();
        }
    }

    /// For tests: content through the page cache, which may be stale.
    pub fn reading(self, direct: bool) -> Image {
        Image { direct, ..self }
    }

    /// Opens the file system in a device or image file.
    pub fn open(path: &Path, state: OpenedAs) -> Result<Image, ImageError> {
        let device = Arc::new(Device::open(path, state)?);
        let volume = open_volume(&device, state)?;
        Ok(Image::new(volume, device, state))
    }

    /// Opens the file system in a part of an image that is open already and stands still.
    pub fn of_part(part: Arc<dyn ByteSource>) -> Result<Image, ImageError> {
        let device = Arc::new(Device::of_part(part));
        let volume = match ntfs::is_ntfs(&device) {
            true => Box::new(ntfs::open(device.clone()).map_err(ImageError::Refused)?),
            false => open_volume(&device, OpenedAs::Still)?,
        };
        Ok(Image::new(volume, device, OpenedAs::Still))
    }

    /// Was it opened with [`Image::of_part`]?
    pub(crate) fn is_part(&self) -> bool {
        self.device.is_part()
    }

    /// A mounted XFS read through bulkstat; `directory` is any directory of it.
    pub(crate) fn from_bulkstat(
        path: &Path,
        directory: OwnedFd,
        uuid: [u8; 16],
        atime: Atime,
    ) -> Result<Image, ImageError> {
        let volume = XfsBulkstat::new(directory, uuid, atime).map_err(|error| {
            ImageError::Refused(format!("the kernel does not list its inodes: {error}"))
        })?;
        let device = Arc::new(Device::open(path, OpenedAs::Mounted)?);
        let image = Image::new(Box::new(volume), device, OpenedAs::Mounted);
        Ok(image.keeping_atimes(atime == Atime::Taken))
    }

    fn new(volume: Box<dyn Volume>, device: Arc<Device>, state: OpenedAs) -> Image {
        Image {
            facts: volume.facts(),
            volume,
            device,
            state,
            direct: true,
            atime: Atime::LeftOut,
        }
    }

    pub(crate) fn facts(&self) -> &VolumeFacts {
        &self.facts
    }

    /// To find all inodes.
    pub(crate) fn tables(&self) -> &dyn InodeTables {
        &*self.volume
    }

    /// To find their names.
    pub(crate) fn names(&self) -> &dyn DirectoryNames {
        &*self.volume
    }

    /// To look closer at one inode. Where its content lies, [`Image::extents`] says in the way that
    /// reading through the kernel does.
    pub(crate) fn content(&self) -> &dyn InodeContent {
        &*self.volume
    }

    /// To find what was changed, where a log says so.
    pub fn log(&self) -> Option<&dyn InodeLog> {
        self.volume.log()
    }

    /// The device, for those who read content past the page cache on their own. `None` where that
    /// is not what a replayed journal gives.
    pub(crate) fn direct_for_content(&self) -> Option<&Arc<OwnedFd>> {
        let direct = self.device.direct();
        direct.filter(|_| !self.facts.is_replayed)
    }

    /// Are bytes of this range other than those of the device, as a replayed journal has them?
    pub fn differs_from_device(&self, range: &Range<u64>) -> bool {
        self.volume.differs_from_device(range)
    }

    pub fn state(&self) -> OpenedAs {
        self.state
    }

    /// Reads a piece of the inode tables.
    pub(crate) fn read_table(
        &self,
        piece: &TablePiece,
        buffer: &mut bale_sys::buffer::AlignedBuffer,
    ) -> std::io::Result<std::ops::Range<usize>> {
        match self.names().bulkstat() {
            Some(bulkstat) => bulkstat.read_table(piece, buffer).map(|len| 0..len),
            None => self.read_metadata(piece.span, buffer),
        }
    }

    /// Reads metadata: past the page cache where nothing writes, through it where that is the truth
    /// (a mounted ext4).
    pub(crate) fn read_metadata(
        &self,
        span: Span,
        buffer: &mut bale_sys::buffer::AlignedBuffer,
    ) -> std::io::Result<std::ops::Range<usize>> {
        let facts = &self.facts;
        let through_cache = self.state == OpenedAs::Mounted && facts.has_metadata_in_page_cache;
        match facts.is_replayed || through_cache {
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
        match (self.facts.is_replayed, self.direct) {
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
        Err(xfs::XfsRefusal::NotXfs) if ntfs::is_ntfs(device) => {
            let why = "files of NTFS are listed where all of it is backed up: bale backup --image";
            Err(ImageError::Refused(why.to_owned()))
        }
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
