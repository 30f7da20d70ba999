//! The device or file that a file system is in: read through the page cache, or past it.

use super::{ImageError, OpenedAs};
use bale_fsimage::ByteSource;
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use bale_sys::cache::forget_cached;
use bale_sys::open::open_exclusively;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// A run of bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// The byte behind.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Bytes that a buffer needs for a direct read of this.
    pub fn aligned_len(&self) -> usize {
        let alignment = ALIGNMENT as u64;
        let start = self.offset - self.offset % alignment;
        (self.end().next_multiple_of(alignment) - start) as usize
    }
}

/// An open device or image file, or a part of one.
pub struct Device {
    bytes: DeviceBytes,
    len_bytes: u64,
}

enum DeviceBytes {
    Opened(OpenedFile),
    /// Of an image that somebody else has open.
    Part(Arc<dyn ByteSource>),
}

struct OpenedFile {
    buffered: File,
    /// `None`: the file system it is on has no direct reads.
    direct: Option<Arc<OwnedFd>>,
    /// What cannot be read past the page cache may be read through it: nobody writes.
    may_be_cached: bool,
}

impl Device {
    /// Opens for reading. A block device that nothing may write to is opened exclusively: whoever
    /// has it mounted would. Of a mounted one the page cache may show what is long gone, so it must
    /// be readable past it.
    pub fn open(path: &Path, state: OpenedAs) -> Result<Device, ImageError> {
        let error = |source| ImageError::Open {
            path: path.display().to_string(),
            source,
        };
        let kind = std::fs::metadata(path).map_err(error)?.file_type();
        if !kind.is_block_device() && !kind.is_file() {
            return Err(ImageError::Refused(
                "neither a block device nor a file".to_owned(),
            ));
        }
        let buffered = match state == OpenedAs::Still && kind.is_block_device() {
            true => open_exclusively(path, false),
            false => File::open(path),
        };
        let buffered = buffered.map_err(error)?;
        if state == OpenedAs::Still && kind.is_block_device() {
            forget_cached(&buffered);
        }
        let direct = File::options()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(path);
        let may_be_cached = state == OpenedAs::Still;
        let direct = match direct {
            Ok(file) => Some(Arc::new(OwnedFd::from(file))),
            Err(_) if may_be_cached => None,
            Err(source) => return Err(error(source)),
        };
        let len_bytes = buffered.len_bytes();
        Ok(Device {
            bytes: DeviceBytes::Opened(OpenedFile {
                buffered,
                direct,
                may_be_cached,
            }),
            len_bytes,
        })
    }

    /// A part of an image, to which nobody writes.
    pub fn of_part(part: Arc<dyn ByteSource>) -> Device {
        Device {
            len_bytes: part.len_bytes(),
            bytes: DeviceBytes::Part(part),
        }
    }

    /// Was it made with [`Device::of_part`]?
    pub fn is_part(&self) -> bool {
        matches!(self.bytes, DeviceBytes::Part(_))
    }

    /// For direct reads elsewhere.
    pub fn direct(&self) -> Option<&Arc<OwnedFd>> {
        match &self.bytes {
            DeviceBytes::Opened(opened) => opened.direct.as_ref(),
            DeviceBytes::Part(_) => None,
        }
    }

    /// Reads past the page cache where that is possible. Tells where in the buffer, which must have
    /// room for [`Span::aligned_len`], the bytes are.
    pub fn read_direct(&self, span: Span, buffer: &mut AlignedBuffer) -> io::Result<Range<usize>> {
        let (direct, may_be_cached) = match &self.bytes {
            DeviceBytes::Opened(OpenedFile {
                direct: Some(direct),
                may_be_cached,
                ..
            }) => (direct, *may_be_cached),
            DeviceBytes::Part(part) => return read_of_part(&**part, span, buffer),
            DeviceBytes::Opened(_) => return self.read_buffered(span, buffer),
        };
        let lead = (span.offset % ALIGNMENT as u64) as usize;
        let wanted = lead + span.len as usize;
        let start = span.offset - lead as u64;
        let mut filled = 0;
        while filled < wanted {
            let room = &mut buffer[filled..span.aligned_len()];
            match rustix::io::pread(direct, room, start + filled as u64) {
                // Where the file ends within a block, or its blocks are larger than ours.
                Ok(0) | Err(Errno::INVAL) if may_be_cached => {
                    return self.read_buffered(span, buffer);
                }
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => filled += got,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(lead..wanted)
    }

    /// Reads through the page cache.
    pub(super) fn read_buffered(
        &self,
        span: Span,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<Range<usize>> {
        let len = span.len as usize;
        self.read_exact_at(span.offset, &mut buffer[..len])?;
        Ok(0..len)
    }
}

impl ByteSource for Device {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        match &self.bytes {
            DeviceBytes::Opened(opened) => FileExt::read_exact_at(&opened.buffered, buf, offset),
            DeviceBytes::Part(part) => part.read_exact_at(offset, buf),
        }
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }
}

/// Reads whole pages where a part has them, so that whoever has it can read past the page cache.
fn read_of_part(
    part: &dyn ByteSource,
    span: Span,
    buffer: &mut AlignedBuffer,
) -> io::Result<Range<usize>> {
    let lead = (span.offset % ALIGNMENT as u64) as usize;
    let (start, aligned) = (span.offset - lead as u64, span.aligned_len());
    let is_inside = start.saturating_add(aligned as u64) <= part.len_bytes();
    // A page that cannot be read need not be one that is asked for.
    if is_inside && part.read_exact_at(start, &mut buffer[..aligned]).is_ok() {
        return Ok(lead..lead + span.len as usize);
    }
    let len = span.len as usize;
    part.read_exact_at(span.offset, &mut buffer[..len])?;
    Ok(0..len)
}

/// Reads metadata past the page cache: of a mounted XFS, which has a cache of its own.
pub(super) struct DirectMetadata(pub(super) Arc<Device>);

impl ByteSource for DirectMetadata {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = u32::try_from(buf.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let span = Span { offset, len };
        let mut buffer = AlignedBuffer::new(span.aligned_len());
        let range = self.0.read_direct(span, &mut buffer)?;
        buf.copy_from_slice(&buffer[range]);
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        self.0.len_bytes
    }
}
