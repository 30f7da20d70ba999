//! Many small files of a device: read once through in the order of the device, handed out in the order of the catalog.
//!
//! The two orders may have nothing in common, and no window that fits in memory would help: so the bytes wait in an unnamed
//! file, arranged by where they belong in the catalog's order, coarsely: in buckets that are put in order in memory one
//! after the other. What waits is sealed with a key of this run. A window is as much as there may be buckets for; a tree
//! that is larger is read in several. The threads that read put files into buckets themselves: all processors hash, copy
//! and seal while the device works.

use super::SMALL_BYTES_MAX;
use super::device::{GROUP_BUFFER_BYTES, GROUP_BYTES_MAX, GROUP_GAP_BYTES_MAX};
use crate::image::{Image, Span};
use crate::scan::inode::in_order;
use crate::spill::{Sorted, Sorter, unnamed_file};
use bale_format::scratch::{SCRATCH_EXTRA_BYTES, ScratchKey};
use bale_sys::buffer::AlignedBuffer;
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of files in one bucket.
pub const BUCKET_BYTES: u64 = 16 << 20;
/// Buckets of one window.
pub const BUCKETS_MAX: usize = 256;
/// Bytes of a bucket that wait in memory to be written together.
pub const BLOCK_BYTES: usize = 128 << 10;
/// Memory for sorting places on the device.
pub const SORT_BYTES: usize = 24 << 20;
/// Files of a window that could not be read at once, before the window is given up.
const MISSING_MAX: usize = 64 << 10;
/// Place in the bucket, length.
const HEAD_BYTES: usize = 8;
/// Hash of a file's content, in front of it.
const HASH_BYTES: usize = 16;

/// Memory of arranging: blocks being filled, two buckets being put in order, or, before that, the sort.
pub const ARRANGED_BYTES_MAX: usize = 80 << 20;
const _: () = assert!(
    BUCKETS_MAX * BLOCK_BYTES + SORT_BYTES + 16 * GROUP_BUFFER_BYTES <= ARRANGED_BYTES_MAX
        && 3 * (BUCKET_BYTES + SMALL_BYTES_MAX) as usize <= ARRANGED_BYTES_MAX
);

/// A file that will be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Its inode.
    pub inode: u64,
    /// Its only extent.
    pub span: Span,
}

/// Hashes content as a row wants it.
pub type Hasher = Arc<dyn Fn(&[u8]) -> [u8; HASH_BYTES] + Send + Sync>;

/// Hands out small files in the order in which `wanted` names them.
pub struct Arranged {
    wanted: Box<dyn Iterator<Item = Wanted> + Send>,
    image: Arc<Image>,
    spill: PathBuf,
    hasher: Option<Hasher>,
    window: Option<Window>,
    ended: bool,
}

impl Arranged {
    /// Nothing is read before the first file is asked for.
    pub fn new(
        image: Arc<Image>,
        wanted: Box<dyn Iterator<Item = Wanted> + Send>,
        spill: &Path,
    ) -> Arranged {
        Arranged {
            wanted,
            image,
            spill: spill.to_path_buf(),
            hasher: None,
            window: None,
            ended: false,
        }
    }

    /// Has content hashed while it is read, when processors wait for the device.
    pub fn hashing(self, hasher: Hasher) -> Arranged {
        Arranged {
            hasher: Some(hasher),
            ..self
        }
    }

    /// The content of the next file that was wanted, if it is this one and could be read. Otherwise it must be read on its own.
    pub(super) fn take(&mut self, inode: u64) -> Option<(Bytes, Option<[u8; HASH_BYTES]>)> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(window) = &mut self.window {
                match window.take(inode) {
                    Ok(Taken::File { hash, bytes }) => {
                        return Some((bytes, hash.filter(|_| self.hasher.is_some())));
                    }
                    Ok(Taken::Other) => return None,
                    Ok(Taken::End) => self.window = None,
                    // Whatever is the matter with the temporary file: the device is still there.
                    Err(_) => {
                        self.ended = true;
                        return None;
                    }
                }
            }
            match Window::gather(
                &self.image,
                &mut self.wanted,
                &self.spill,
                self.hasher.as_ref(),
            ) {
                Ok(Some(window)) => self.window = Some(window),
                Ok(None) | Err(_) => self.ended = true,
            }
        }
    }
}

enum Taken {
    File {
        hash: Option<[u8; HASH_BYTES]>,
        bytes: Bytes,
    },
    /// Another file is next.
    Other,
    End,
}

/// Files in order: inode (8), length (4).
struct List {
    file: BufReader<File>,
    next: Option<(u64, u32)>,
}

impl List {
    fn advance(&mut self) -> io::Result<()> {
        let mut record = [0; 12];
        self.next = match self.file.read_exact(&mut record) {
            Ok(()) => Some((
                u64::from_le_bytes(record[..8].try_into().expect("8 of 12 bytes")),
                u32::from_le_bytes(record[8..].try_into().expect("4 of 12 bytes")),
            )),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }
}

struct Window {
    list: List,
    /// Place of the next file in all of the window's bytes.
    at: u64,
    missing: HashSet<u64>,
    loaded: Receiver<io::Result<Bytes>>,
    /// Number of the bucket at hand, and its bytes.
    bucket: Option<(u64, Bytes)>,
    next_bucket: u64,
}

impl Window {
    /// Reads as many files as one window holds; `None` if none are wanted any more.
    fn gather(
        image: &Arc<Image>,
        wanted: &mut dyn Iterator<Item = Wanted>,
        spill: &Path,
        hasher: Option<&Hasher>,
    ) -> io::Result<Option<Window>> {
        let mut list = BufWriter::new(unnamed_file(spill)?);
        let mut places = Sorter::new(spill, SORT_BYTES);
        let mut end = 0;
        while end < (BUCKETS_MAX as u64 - 1) * BUCKET_BYTES
            && let Some(file) = wanted.next()
        {
            list.write_all(&file.inode.to_le_bytes())?;
            list.write_all(&file.span.len.to_le_bytes())?;
            let mut value = [0; 12];
            value[..4].copy_from_slice(&file.span.len.to_le_bytes());
            value[4..].copy_from_slice(&u64::to_le_bytes(end));
            places
                .push(&file.span.offset.to_be_bytes(), &value)
                .map_err(io::Error::other)?;
            end += HASH_BYTES as u64 + u64::from(file.span.len);
        }
        if places.records() == 0 {
            return Ok(None);
        }
        let places = places.finish().map_err(io::Error::other)?;
        let buckets = end.div_ceil(BUCKET_BYTES) as usize;
        let scratch = Scratch::create(spill, buckets)?;
        let missing = read_all(image, places, hasher, &scratch)?;
        let scratch = scratch.end()?;
        let (sender, loaded) = bounded(0);
        std::thread::spawn(move || {
            let mut loader = Loader::default();
            for bucket in 0..buckets {
                if sender.send(loader.load(&scratch, bucket)).is_err() {
                    return;
                }
            }
        });
        let mut file = list.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut list = List {
            file: BufReader::new(file),
            next: None,
        };
        list.advance()?;
        Ok(Some(Window {
            list,
            at: 0,
            missing,
            loaded,
            bucket: None,
            next_bucket: 0,
        }))
    }

    fn take(&mut self, inode: u64) -> io::Result<Taken> {
        let Some((next, len)) = self.list.next else {
            return Ok(Taken::End);
        };
        if next != inode {
            return Ok(Taken::Other);
        }
        let at = self.at;
        let len = HASH_BYTES as u32 + len;
        self.at += u64::from(len);
        self.list.advance()?;
        if self.missing.contains(&at) {
            return Ok(Taken::Other);
        }
        let (number, place) = (at / BUCKET_BYTES, (at % BUCKET_BYTES) as usize);
        loop {
            if let Some((loaded, bytes)) = &self.bucket
                && *loaded == number
            {
                let end = place + len as usize;
                if end > bytes.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                return Ok(Taken::File {
                    hash: bytes[place..].first_chunk().copied(),
                    bytes: bytes.slice(place + HASH_BYTES..end),
                });
            }
            // The old bucket goes before the next one comes.
            self.bucket = None;
            let gone = |_| io::Error::other("a thread that loads a temporary file is gone");
            let bytes = self.loaded.recv().map_err(gone)??;
            self.bucket = Some((self.next_bucket, bytes));
            self.next_bucket += 1;
        }
    }
}

/// A file and where it belongs.
struct Placed {
    span: Span,
    at: u64,
}

/// Puts neighbours together.
struct Groups {
    places: Sorted,
    waiting: Option<Placed>,
    failed: bool,
}

impl Groups {
    fn next_placed(&mut self) -> Option<Placed> {
        if let Some(placed) = self.waiting.take() {
            return Some(placed);
        }
        match self.places.next_record() {
            Ok(Some((key, value))) => Some(Placed {
                span: Span {
                    offset: u64::from_be_bytes(key.try_into().expect("keys of 8 bytes")),
                    len: u32::from_le_bytes(value[..4].try_into().expect("4 of 12 bytes")),
                },
                at: u64::from_le_bytes(value[4..].try_into().expect("8 of 12 bytes")),
            }),
            Ok(None) => None,
            Err(_) => {
                self.failed = true;
                None
            }
        }
    }
}

impl Iterator for Groups {
    type Item = Vec<Placed>;

    fn next(&mut self) -> Option<Vec<Placed>> {
        let first = self.next_placed()?;
        let (start, mut end) = (first.span.offset, first.span.end());
        let mut group = vec![first];
        while let Some(next) = self.next_placed() {
            let far = next.span.offset > end + GROUP_GAP_BYTES_MAX;
            if far || next.span.end().max(end) - start > GROUP_BYTES_MAX {
                self.waiting = Some(next);
                break;
            }
            end = end.max(next.span.end());
            group.push(next);
        }
        Some(group)
    }
}

/// Reads all files into their buckets. Returns the places of those that could not be read.
fn read_all(
    image: &Image,
    places: Sorted,
    hasher: Option<&Hasher>,
    scratch: &Scratch,
) -> io::Result<HashSet<u64>> {
    let mut groups = Groups {
        places,
        waiting: None,
        failed: false,
    };
    let mut missing = HashSet::new();
    in_order(
        &mut groups,
        || (AlignedBuffer::new(GROUP_BUFFER_BYTES), Vec::new()),
        |(buffer, spare), group| {
            read_group(image, &group, hasher, buffer, &mut scratch.filler(spare))
        },
        |missed: io::Result<Vec<u64>>| -> io::Result<()> {
            missing.extend(missed?);
            match missing.len() > MISSING_MAX {
                true => Err(io::Error::other("much of the device cannot be read")),
                false => Ok(()),
            }
        },
    )?;
    match groups.failed {
        true => Err(io::Error::other("a temporary file cannot be read")),
        false => Ok(missing),
    }
}

/// Returns the places that are missing.
fn read_group(
    image: &Image,
    group: &[Placed],
    hasher: Option<&Hasher>,
    buffer: &mut AlignedBuffer,
    filler: &mut Filler,
) -> io::Result<Vec<u64>> {
    let start = group.first().map_or(0, |placed| placed.span.offset);
    let end = group.iter().map(|placed| placed.span.end()).max();
    let span = Span {
        offset: start,
        len: (end.unwrap_or(start) - start) as u32,
    };
    let Ok(range) = image.read_content(span, buffer) else {
        // Each is read on its own later, around what is bad.
        return Ok(group.iter().map(|placed| placed.at).collect());
    };
    for placed in group {
        let at = range.start + (placed.span.offset - start) as usize;
        let content = &buffer[at..at + placed.span.len as usize];
        let hash = hasher.map_or([0; HASH_BYTES], |hasher| hasher(content));
        filler.add(placed.at, &hash, content)?;
    }
    Ok(Vec::new())
}

/// The unnamed file of one window, while it is filled.
struct Scratch {
    file: File,
    key: ScratchKey,
    buckets: Vec<Mutex<Bucket>>,
    /// Where the next block goes.
    end: AtomicU64,
}

#[derive(Default)]
struct Bucket {
    /// Bytes that wait to be written.
    block: Vec<u8>,
    written: Written,
}

/// What of a bucket is in the file.
#[derive(Default)]
struct Written {
    /// Where blocks are, and how long they are sealed.
    blocks: Vec<(u64, u32)>,
    bytes: usize,
}

/// The unnamed file of one window, complete.
struct Filled {
    file: File,
    key: ScratchKey,
    buckets: Vec<Written>,
}

/// What one thread fills buckets with.
struct Filler<'a> {
    scratch: &'a Scratch,
    /// An empty block, to be exchanged for a full one.
    spare: &'a mut Vec<u8>,
}

impl Scratch {
    fn create(spill: &Path, buckets: usize) -> io::Result<Scratch> {
        let random = crate::random::draw(&crate::random::OsRandom)?;
        Ok(Scratch {
            file: unnamed_file(spill)?,
            key: ScratchKey::new(&random),
            buckets: (0..buckets).map(|_| Mutex::default()).collect(),
            end: AtomicU64::new(0),
        })
    }

    fn filler<'a>(&'a self, spare: &'a mut Vec<u8>) -> Filler<'a> {
        Filler {
            scratch: self,
            spare,
        }
    }

    /// Seals a block where it is and writes it; the block is empty afterwards.
    fn write(&self, block: &mut Vec<u8>) -> io::Result<(u64, u32)> {
        let len = block.len() + SCRATCH_EXTRA_BYTES;
        // The offset in the file is a number that no other block has.
        let offset = self.end.fetch_add(len as u64, Ordering::Relaxed);
        self.key.seal_in_place(offset, block);
        self.file.write_all_at(block, offset)?;
        block.clear();
        Ok((offset, len as u32))
    }

    fn end(self) -> io::Result<Filled> {
        for bucket in &self.buckets {
            let mut bucket = lock(bucket);
            let mut block = std::mem::take(&mut bucket.block);
            if !block.is_empty() {
                let place = self.write(&mut block)?;
                bucket.written.blocks.push(place);
            }
        }
        let written = |bucket: Mutex<Bucket>| {
            let bucket = bucket.into_inner();
            bucket.unwrap_or_else(PoisonError::into_inner).written
        };
        Ok(Filled {
            file: self.file,
            key: self.key,
            buckets: self.buckets.into_iter().map(written).collect(),
        })
    }
}

impl Filler<'_> {
    /// Puts a file in its bucket. In which order a bucket is filled does not matter.
    fn add(&mut self, at: u64, hash: &[u8; HASH_BYTES], content: &[u8]) -> io::Result<()> {
        let place = (at % BUCKET_BYTES) as u32;
        let len = HASH_BYTES + content.len();
        let shared = &self.scratch.buckets[(at / BUCKET_BYTES) as usize];
        let mut bucket = lock(shared);
        let is_full = bucket.block.len() + HEAD_BYTES + len > BLOCK_BYTES;
        let is_full = is_full && !bucket.block.is_empty();
        if is_full {
            std::mem::swap(&mut bucket.block, self.spare);
        }
        let block = &mut bucket.block;
        if block.capacity() == 0 {
            block.reserve_exact(BLOCK_BYTES + SCRATCH_EXTRA_BYTES);
        }
        block.extend_from_slice(&place.to_le_bytes());
        block.extend_from_slice(&(len as u32).to_le_bytes());
        block.extend_from_slice(hash);
        block.extend_from_slice(content);
        bucket.written.bytes = bucket.written.bytes.max(place as usize + len);
        if is_full {
            // Others may fill the bucket while this is sealed and written.
            drop(bucket);
            let place = self.scratch.write(self.spare)?;
            lock(shared).written.blocks.push(place);
        }
        Ok(())
    }
}

/// Puts buckets in order, one after the other.
#[derive(Default)]
struct Loader {
    block: Vec<u8>,
    spare: Arc<Mutex<Vec<AlignedBuffer>>>,
}

impl Loader {
    /// All bytes of a bucket, in order.
    fn load(&mut self, scratch: &Filled, number: usize) -> io::Result<Bytes> {
        let bucket = &scratch.buckets[number];
        let spare = lock(&self.spare).pop();
        let room = (BUCKET_BYTES + SMALL_BYTES_MAX) as usize + HASH_BYTES;
        let mut arranged = spare.unwrap_or_else(|| AlignedBuffer::new(room));
        let damaged = || io::Error::other("a temporary file is damaged");
        for (offset, len) in &bucket.blocks {
            self.block.resize(*len as usize, 0);
            scratch.file.read_exact_at(&mut self.block, *offset)?;
            let opened = scratch.key.open_in_place(*offset, &mut self.block);
            let mut rest = &*opened.map_err(|_| damaged())?;
            while let Some((head, behind)) = rest.split_first_chunk::<HEAD_BYTES>() {
                let place =
                    u32::from_le_bytes(head[..4].try_into().expect("4 of 8 bytes")) as usize;
                let len = u32::from_le_bytes(head[4..].try_into().expect("4 of 8 bytes")) as usize;
                let (bytes, behind) = behind.split_at_checked(len).ok_or_else(damaged)?;
                let room = arranged.get_mut(place..place + len).ok_or_else(damaged)?;
                room.copy_from_slice(bytes);
                rest = behind;
            }
        }
        Ok(Bytes::from_owner(Loaded {
            buffer: Some(arranged),
            len: bucket.bytes,
            spare: self.spare.clone(),
        }))
    }
}

/// A bucket in use; its buffer is used again when the last file of it is gone.
struct Loaded {
    buffer: Option<AlignedBuffer>,
    len: usize,
    spare: Arc<Mutex<Vec<AlignedBuffer>>>,
}

impl AsRef<[u8]> for Loaded {
    fn as_ref(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("taken only by drop");
        &buffer[..self.len]
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        lock(&self.spare).extend(self.buffer.take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
