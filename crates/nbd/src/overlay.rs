//! An overlay: what is written to an export that cannot be written to, in a file beside it.
//!
//! The file is sparse: a head that says whose overlay it is, a map with a bit for each block that
//! the overlay has, and behind that every block at its place. A block is there whole or not at all:
//! who writes a part of one copies the rest from below.
//!
//! ```text
//! 0     head (4096)     says size, identity and name of what is below: always the same bytes
//! 4096  map             one bit for 64 KiB, the lowest of a byte first; up to the next 64 KiB
//! ...   blocks          each at its own offset on the device
//! ```
//!
//! What was flushed stays, whatever ends the process or the machine: blocks are made durable before
//! the map names them. Of what was not flushed each block is as it was then, or as it was written
//! last. Rot of the file is not noticed: it is a work space and no backup.

mod bits;

use crate::export::{AllocationRun, NbdExport};
use bits::BlockBits;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, fallocate, flock};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the overlay has or has not, as a whole.
const BLOCK_BYTES: u64 = 64 << 10;
const MAGIC: &[u8; 8] = b"BALEOVL1";
const HEAD_BYTES: usize = 4096;
/// Of the map, what is written at once.
const PAGE_BYTES: usize = 4096;
/// Blocks that are said by one page of the map: 2 GiB of a device.
const PAGE_BLOCKS: u64 = 8 * PAGE_BYTES as u64;
/// Bytes of the name of what is below.
const NAME_BYTES_MAX: usize = 1024;
/// Where the name begins, behind magic, size, identity and its length.
const NAME_AT: usize = 8 + 8 + 32 + 2;
/// Of 128 TiB the map, which is in memory, has 256 MiB.
const DEVICE_BYTES_MAX: u64 = 1 << 47;
/// Writers of different blocks rarely wait for each other.
const LOCKS: usize = 64;
/// Zeros that are written at once where nothing can be punched.
const ZEROS_BYTES: usize = 1 << 20;

/// Why there is no overlay.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    #[error("{action} the overlay {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is in use by another export", .0.display())]
    InUse(PathBuf),
    #[error("{} is no overlay: name a file that is not there, and it will be made", .0.display())]
    NoOverlay(PathBuf),
    #[error(
        "{} is an overlay of {found}, and not of {wanted}: name that, or another file",
        path.display()
    )]
    OfAnother {
        path: PathBuf,
        found: String,
        wanted: String,
    },
    #[error("{} is cut short: it has {bytes} bytes of {expected}", path.display())]
    CutShort {
        path: PathBuf,
        bytes: u64,
        expected: u64,
    },
    #[error("a device of {0} bytes is too large for an overlay")]
    TooLarge(u64),
}

/// What an overlay is of: nobody may lay it over anything else.
#[derive(Clone, Debug)]
pub struct OverlayOf {
    pub identity: [u8; 32],
    /// For people; cut after a kibibyte.
    pub name: String,
}

/// An export with an overlay over it, which takes what is written.
pub struct NbdOverlay {
    below: Arc<dyn NbdExport>,
    file: File,
    len: u64,
    blocks_at: u64,
    /// One for each block: 2 MiB of memory a tebibyte.
    bits: BlockBits,
    /// By the number of a block: held while it is taken from below.
    locks: [Mutex<()>; LOCKS],
    /// Pages of the map that the file does not have as they are.
    dirty: Mutex<BTreeSet<u64>>,
    flushing: Mutex<()>,
    /// Nobody knows what the file holds.
    has_failed: AtomicBool,
}

impl NbdOverlay {
    /// Over what is below; makes the file if it is not there. It is held as long as this lives.
    pub fn open(
        path: &Path,
        below: Arc<dyn NbdExport>,
        of: &OverlayOf,
    ) -> Result<NbdOverlay, OverlayError> {
        let len = below.len();
        if len > DEVICE_BYTES_MAX {
            return Err(OverlayError::TooLarge(len));
        }
        let failed = |action| {
            let path = path.to_owned();
            move |source| OverlayError::Io {
                action,
                path,
                source,
            }
        };
        let blocks = len.div_ceil(BLOCK_BYTES);
        let map_bytes = blocks.div_ceil(8).next_multiple_of(PAGE_BYTES as u64);
        let blocks_at = (HEAD_BYTES as u64 + map_bytes).next_multiple_of(BLOCK_BYTES);
        let head = head(len, of);
        let file = match File::options().read(true).write(true).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create(path, &head, blocks_at + len).map_err(failed("make"))?
            }
            Err(error) => return Err(failed("open")(error)),
        };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(OverlayError::InUse(path.to_owned()));
        }
        check(path, &file, &head, of, blocks_at + len)?;
        let mut map = vec![0; map_bytes as usize];
        let read = file.read_exact_at(&mut map, HEAD_BYTES as u64);
        read.map_err(failed("read the map of"))?;
        Ok(NbdOverlay {
            below,
            file,
            len,
            blocks_at,
            bits: BlockBits::from_bytes(&map, blocks),
            locks: std::array::from_fn(|_| Mutex::default()),
            dirty: Mutex::default(),
            flushing: Mutex::default(),
            has_failed: AtomicBool::new(false),
        })
    }

    fn lock(&self, block: u64) -> MutexGuard<'_, ()> {
        let lock = &self.locks[(block % LOCKS as u64) as usize];
        lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The part of the device that a block is; the last one may be shorter.
    fn range_of(&self, block: u64) -> Range<u64> {
        block * BLOCK_BYTES..((block + 1) * BLOCK_BYTES).min(self.len)
    }

    /// These blocks are in the file from now on.
    fn has_blocks(&self, blocks: Range<u64>) {
        self.bits.set(blocks.clone());
        let pages = blocks.start / PAGE_BLOCKS..blocks.end.div_ceil(PAGE_BLOCKS);
        let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
        dirty.extend(pages);
    }

    fn refuse_after_failure(&self) -> io::Result<()> {
        match self.has_failed.load(Ordering::Relaxed) {
            true => Err(io::Error::other(
                "the overlay could not be made durable before: it takes nothing more",
            )),
            false => Ok(()),
        }
    }

    /// Writes within one block.
    fn write_in_block(&self, block: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        let range = self.range_of(block);
        let is_whole = offset == range.start && data.len() as u64 == range.end - range.start;
        let _lock = self.lock(block);
        if self.bits.has(block) || is_whole {
            self.file.write_all_at(data, self.blocks_at + offset)?;
        } else {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.below.read_at(range.start, &mut bytes)?;
            let from = (offset - range.start) as usize;
            bytes[from..from + data.len()].copy_from_slice(data);
            self.file
                .write_all_at(&bytes, self.blocks_at + range.start)?;
        }
        if !self.bits.has(block) {
            self.has_blocks(block..block + 1);
        }
        Ok(())
    }

    /// Makes whole blocks zero.
    fn zero_blocks(&self, blocks: Range<u64>, is_allocated: bool) -> io::Result<()> {
        // In the order of the locks; who has one of them waits for none.
        let _locks: Vec<_> = (0..LOCKS as u64).map(|lock| self.lock(lock)).collect();
        let range = self.range_of(blocks.start).start..self.range_of(blocks.end - 1).end;
        let (at, bytes) = (self.blocks_at + range.start, range.end - range.start);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if is_allocated || fallocate(&self.file, flags, at, bytes).is_err() {
            self.write_zeros(at..at + bytes)?;
        }
        self.has_blocks(blocks);
        Ok(())
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<()> {
        let zeros = vec![0; ZEROS_BYTES.min((range.end - range.start) as usize)];
        let mut at = range.start;
        while at < range.end {
            let len = zeros.len().min((range.end - at) as usize);
            self.file.write_all_at(&zeros[..len], at)?;
            at += len as u64;
        }
        Ok(())
    }

    /// Makes a part of a block zero, unless that is what it is.
    fn zero_in_block(&self, range: Range<u64>, is_allocated: bool) -> io::Result<()> {
        let run = self.run_at(range.start)?;
        if !is_allocated && run.is_hole && run.bytes >= range.end - range.start {
            return Ok(());
        }
        let zeros = vec![0; (range.end - range.start) as usize];
        self.write_in_block(range.start / BLOCK_BYTES, range.start, &zeros)
    }

    fn write_map(&self) -> io::Result<()> {
        let taken = {
            let mut dirty = self.dirty.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *dirty)
        };
        // As it is now: of every block that it names the bytes have been written.
        let pages: Vec<(u64, Vec<u8>)> = taken
            .into_iter()
            .map(|page| (page, self.bits.page(page, PAGE_BYTES)))
            .collect();
        self.file.sync_all()?;
        if pages.is_empty() {
            return Ok(());
        }
        for (page, bytes) in &pages {
            let at = HEAD_BYTES as u64 + page * PAGE_BYTES as u64;
            self.file.write_all_at(bytes, at)?;
        }
        self.file.sync_data()
    }
}

impl NbdExport for NbdOverlay {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        let mut at = offset;
        while at < end {
            let (blocks_end, is_here) = self.bits.alike(at / BLOCK_BYTES);
            let to = (blocks_end * BLOCK_BYTES).min(end);
            let part = &mut buffer[(at - offset) as usize..(to - offset) as usize];
            match is_here {
                true => self.file.read_exact_at(part, self.blocks_at + at)?,
                false => self.below.read_at(at, part)?,
            }
            at = to;
        }
        Ok(())
    }

    fn run_at(&self, offset: u64) -> io::Result<AllocationRun> {
        let (blocks_end, is_here) = self.bits.alike(offset / BLOCK_BYTES);
        let end = (blocks_end * BLOCK_BYTES).min(self.len);
        if !is_here {
            let run = self.below.run_at(offset)?;
            return Ok(AllocationRun {
                bytes: run.bytes.min(end - offset),
                is_hole: run.is_hole,
            });
        }
        let at = self.blocks_at + offset;
        let whole = AllocationRun {
            bytes: end - offset,
            is_hole: false,
        };
        let data = rustix::fs::seek(&self.file, SeekFrom::Data(at));
        let (next, is_hole) = match data {
            Ok(data) if data > at => (data, true),
            Err(rustix::io::Errno::NXIO) => (self.blocks_at + end, true),
            Ok(_) => match rustix::fs::seek(&self.file, SeekFrom::Hole(at)) {
                Ok(hole) => (hole, false),
                Err(_) => return Ok(whole),
            },
            Err(_) => return Ok(whole),
        };
        Ok(AllocationRun {
            bytes: (next - at).min(end - offset).max(1),
            is_hole,
        })
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.refuse_after_failure()?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let block = at / BLOCK_BYTES;
            let len = (self.range_of(block).end - at).min(rest.len() as u64) as usize;
            self.write_in_block(block, at, &rest[..len])?;
            (at, rest) = (at + len as u64, &rest[len..]);
        }
        Ok(())
    }

    fn zero(&self, offset: u64, bytes: u64, is_allocated: bool) -> io::Result<()> {
        self.refuse_after_failure()?;
        let end = offset + bytes;
        let blocks_end = match end == self.len {
            true => end.div_ceil(BLOCK_BYTES),
            false => end / BLOCK_BYTES,
        };
        let blocks = offset.div_ceil(BLOCK_BYTES)..blocks_end;
        let mut edges = [offset..end, end..end];
        if blocks.start < blocks.end {
            self.zero_blocks(blocks.clone(), is_allocated)?;
            let behind = (blocks.end * BLOCK_BYTES).min(end);
            edges = [offset..blocks.start * BLOCK_BYTES, behind..end];
        }
        for edge in edges {
            let mut at = edge.start;
            while at < edge.end {
                let to = self.range_of(at / BLOCK_BYTES).end.min(edge.end);
                self.zero_in_block(at..to, is_allocated)?;
                at = to;
            }
        }
        Ok(())
    }

    /// Gives whole blocks back.
    fn trim(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let first = offset.next_multiple_of(BLOCK_BYTES);
        let end = match offset + bytes == self.len {
            true => self.len,
            false => (offset + bytes) / BLOCK_BYTES * BLOCK_BYTES,
        };
        match first < end {
            true => self.zero(first, end - first, false),
            false => Ok(()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        let _one_at_a_time = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
        self.refuse_after_failure()?;
        let written = self.write_map();
        if written.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        written
    }
}

/// What an overlay of this begins with.
fn head(len: u64, of: &OverlayOf) -> Vec<u8> {
    let mut name = of.name.as_str();
    while name.len() > NAME_BYTES_MAX {
        name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
    }
    let mut head = Vec::with_capacity(HEAD_BYTES);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&len.to_le_bytes());
    head.extend_from_slice(&of.identity);
    head.extend_from_slice(&(name.len() as u16).to_le_bytes());
    head.extend_from_slice(name.as_bytes());
    head.resize(HEAD_BYTES, 0);
    head
}

/// Under another name first: whoever finds the file finds all of its head.
fn create(path: &Path, head: &[u8], len: u64) -> io::Result<File> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let made = tempfile::Builder::new()
        .prefix(".bale-overlay-")
        .tempfile_in(directory)?;
    made.as_file().set_len(len)?;
    made.as_file().write_all_at(head, 0)?;
    made.as_file().sync_all()?;
    let file = made.persist_noclobber(path).map_err(|error| error.error)?;
    File::open(directory)?.sync_all()?;
    Ok(file)
}

/// Only an overlay of this export, whole, is written to.
fn check(
    path: &Path,
    file: &File,
    head: &[u8],
    of: &OverlayOf,
    expected: u64,
) -> Result<(), OverlayError> {
    let failed = |source| OverlayError::Io {
        action: "read the head of",
        path: path.to_owned(),
        source,
    };
    let metadata = file.metadata().map_err(failed)?;
    let mut found = vec![0; HEAD_BYTES];
    let is_whole = metadata.is_file() && metadata.len() >= HEAD_BYTES as u64;
    if is_whole {
        file.read_exact_at(&mut found, 0).map_err(failed)?;
    }
    if !is_whole || !found.starts_with(MAGIC) {
        return Err(OverlayError::NoOverlay(path.to_owned()));
    }
    if found != head {
        return Err(OverlayError::OfAnother {
            path: path.to_owned(),
            found: name_in(&found),
            wanted: of.name.clone(),
        });
    }
    match metadata.len() {
        bytes if bytes < expected => Err(OverlayError::CutShort {
            path: path.to_owned(),
            bytes,
            expected,
        }),
        _ => Ok(()),
    }
}

/// What a head says it is of.
fn name_in(head: &[u8]) -> String {
    let len = u16::from_le_bytes([head[NAME_AT - 2], head[NAME_AT - 1]]);
    let name = head.get(NAME_AT..NAME_AT + usize::from(len).min(NAME_BYTES_MAX));
    let name = String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
    name.escape_debug().to_string()
}
