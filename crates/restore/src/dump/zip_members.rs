//! Members of a zip archive: deflated, without holes, hard links, nodes and attributes, which a zip
//! does not have.
//!
//! Written here and not by a library: those that there are hold a record of every member until the
//! end, and take names as text. The directory at the end grows on disk.

use super::DumpError;
use super::members::{Members, Sink};
use super::zip::{self, Lengths, Method, NAME_BYTES_MAX, Packed, ZIP32_CONTENT_MAX, ZipMember};
use crate::{LossKind, ScratchSpace};
use bale_format::{ChunkId, Entry, Kind};
use bytes::Bytes;
use flate2::write::DeflateEncoder;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};

/// Beside what a dump has in any case: a small file packed, the state of packing, what waits for
/// the disk.
pub const MEMORY_BYTES: usize =
    bale_format::limits::BUNDLE_BYTES_MAX + DEFLATE_BYTES + 2 * COPY_BYTES;

/// Window, hash chains and output of two deflaters, generously.
const DEFLATE_BYTES: usize = 2 << 20;

/// Bytes of the directory on their way to the disk, and back.
const COPY_BYTES: usize = 64 << 10;

/// What tells how far the archive has come, and the records of its members.
pub struct ZipMembers {
    written: u64,
    directory: BufWriter<File>,
    directory_bytes: u64,
    members: u64,
    /// Used again for every small file: a new one costs more than packing that.
    deflater: Compress,
}

impl ZipMembers {
    pub fn new(scratch: &ScratchSpace) -> io::Result<ZipMembers> {
        let file = scratch.unnamed_file()?;
        Ok(ZipMembers {
            written: 0,
            directory: BufWriter::with_capacity(COPY_BYTES, file),
            directory_bytes: 0,
            members: 0,
            deflater: Compress::new(Compression::default(), false),
        })
    }
}

impl Members for ZipMembers {
    /// Each name is a file of its own.
    fn link(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        _name: &[u8],
        _first: &[u8],
    ) -> Result<bool, DumpError> {
        let text = "a zip has none: each of their names is a file of its own";
        sink.contents
            .losses
            .add(LossKind::HardLink, &entry.path(), text);
        Ok(false)
    }

    fn without_content(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
    ) -> Result<(), DumpError> {
        match entry.kind {
            // What is dumped has no name in it.
            Kind::Directory if name == b"./" => Ok(()),
            Kind::Directory | Kind::File => self.put(sink, entry, name, &Bytes::new()),
            Kind::Symlink => self.put(sink, entry, name, &entry.target),
            _ => {
                let losses = &sink.contents.losses;
                losses.add(LossKind::Special, &entry.path(), "a zip holds none");
                Ok(())
            }
        }
    }

    fn small(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        bytes: &Bytes,
    ) -> Result<(), DumpError> {
        sink.contents.count(bytes.len() as u64)?;
        self.put(sink, entry, name, bytes)
    }

    fn large(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        list: &ChunkId,
    ) -> Result<(), DumpError> {
        self.stream(sink, entry, name, |sink, path, out| {
            let whole = [(0, entry.size)];
            (sink.contents).write_ranges(list, entry.size, &whole, path, out)
        })
    }

    fn image(&mut self, sink: &mut Sink, entry: &Entry, name: &[u8]) -> Result<(), DumpError> {
        self.stream(sink, entry, name, |sink, path, out| {
            let whole = [(0, entry.size)];
            (sink.contents).write_image_ranges(sink.catalog, entry, path, &whole, out)
        })
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), DumpError> {
        self.directory.flush().map_err(DumpError::Scratch)?;
        let file = self.directory.get_mut();
        file.rewind().map_err(DumpError::Scratch)?;
        let mut buffer = vec![0; COPY_BYTES];
        loop {
            if sink.contents.monitor.interrupted() {
                return Err(DumpError::Stopped);
            }
            match file.read(&mut buffer).map_err(DumpError::Scratch)? {
                0 => break,
                bytes => sink.write(&buffer[..bytes])?,
            }
        }
        sink.write(&zip::end(self.members, self.written, self.directory_bytes))
    }
}

impl ZipMembers {
    /// May it have this name, and what of it has no place in a zip?
    fn begin(&mut self, sink: &mut Sink, entry: &Entry, name: &[u8]) -> bool {
        if name.len() > NAME_BYTES_MAX {
            let text =
                format!("left out: its name is longer than the {NAME_BYTES_MAX} bytes of a zip");
            sink.contents.problem(&entry.path(), &text);
            return false;
        }
        if !entry.xattrs.is_empty() {
            let text = "a zip holds none; a tar does";
            sink.contents
                .losses
                .add(LossKind::NotInZip, &entry.path(), text);
        }
        sink.count_member();
        true
    }

    /// A member whose content is there.
    fn put(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        bytes: &[u8],
    ) -> Result<(), DumpError> {
        if !self.begin(sink, entry, name) {
            return Ok(());
        }
        let deflated = match entry.kind {
            Kind::File => self.deflate(bytes),
            _ => None,
        };
        let mut crc = Crc::new();
        crc.update(bytes);
        let (method, content) = match &deflated {
            Some(deflated) => (Method::Deflated, &deflated[..]),
            None => (Method::Stored, bytes),
        };
        let member = member(entry, name, method, Lengths::InFront);
        let packed = Packed {
            crc: crc.sum(),
            packed_bytes: content.len() as u64,
            bytes: bytes.len() as u64,
        };
        let header = member.local_header(&packed);
        sink.write(&header)?;
        sink.write(content)?;
        self.record(&member, &packed, header.len() as u64 + packed.packed_bytes)
    }

    /// `None`: it would not be shorter.
    fn deflate(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.deflater.reset();
        // What does not fit into this is not shorter.
        let mut out = Vec::with_capacity(bytes.len());
        let all = FlushCompress::Finish;
        let deflated = self.deflater.compress_vec(bytes, &mut out, all);
        let is_whole = matches!(deflated, Ok(Status::StreamEnd));
        (is_whole && out.len() < bytes.len()).then_some(out)
    }

    /// A member whose content comes bit by bit.
    fn stream(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        write: impl FnOnce(&mut Sink, &[u8], &mut dyn Write) -> Result<(), DumpError>,
    ) -> Result<(), DumpError> {
        let path = entry.path();
        if sink.contents.is_endless(entry.size, &path) || !self.begin(sink, entry, name) {
            return Ok(());
        }
        let lengths = match entry.size > ZIP32_CONTENT_MAX {
            true => Lengths::LongBehind,
            false => Lengths::Behind,
        };
        let member = member(entry, name, Method::Deflated, lengths);
        let header = member.local_header(&Packed::default());
        sink.write(&header)?;
        let Sink {
            catalog,
            contents,
            out,
            ..
        } = sink;
        let mut deflating = Deflating::new(&mut **out);
        let mut nowhere = io::sink();
        let mut inner = Sink {
            catalog: *catalog,
            contents,
            out: &mut nowhere,
            members: 0,
        };
        write(&mut inner, &path, &mut deflating)?;
        let packed = deflating.finish().map_err(DumpError::Output)?;
        let descriptor = member.descriptor(&packed);
        sink.write(&descriptor)?;
        let around = (header.len() + descriptor.len()) as u64;
        self.record(&member, &packed, around + packed.packed_bytes)
    }

    /// Notes a member that was written, with headers so many bytes.
    fn record(
        &mut self,
        member: &ZipMember,
        packed: &Packed,
        written: u64,
    ) -> Result<(), DumpError> {
        let header = member.central_header(packed, self.written);
        let written_down = self.directory.write_all(&header);
        written_down.map_err(DumpError::Scratch)?;
        self.directory_bytes += header.len() as u64;
        self.written += written;
        self.members += 1;
        Ok(())
    }
}

fn member<'m>(entry: &Entry, name: &'m [u8], method: Method, lengths: Lengths) -> ZipMember<'m> {
    ZipMember {
        name,
        mode: entry.kind.mode_bits() | entry.mode & 0o7777,
        mtime: entry.mtime,
        owner: (entry.uid, entry.gid),
        method,
        lengths,
    }
}

/// Deflates what is written to it, and counts.
struct Deflating<'o> {
    encoder: DeflateEncoder<Counted<'o>>,
    crc: Crc,
    bytes: u64,
}

struct Counted<'o> {
    out: &'o mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<'o> Deflating<'o> {
    fn new(out: &'o mut dyn Write) -> Deflating<'o> {
        let counted = Counted { out, bytes: 0 };
        Deflating {
            encoder: DeflateEncoder::new(counted, Compression::default()),
            crc: Crc::new(),
            bytes: 0,
        }
    }

    fn finish(self) -> io::Result<Packed> {
        Ok(Packed {
            crc: self.crc.sum(),
            packed_bytes: self.encoder.finish()?.bytes,
            bytes: self.bytes,
        })
    }
}

impl Write for Deflating<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.encoder.write(bytes)?;
        self.crc.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.flush()
    }
}
