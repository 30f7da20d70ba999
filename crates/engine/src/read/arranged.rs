//! Many small files of a device: read once through in the order of the device, handed out in the order of the catalog.
//!
//! The two orders may have nothing in common, and no window that fits in memory would help: so the bytes wait in an unnamed
//! file, arranged by where they belong in the catalog's order, coarsely: in buckets that are put in order in memory one
//! after the other. What waits is sealed with a key of this run. A window is as much as there may be buckets for; a tree
//! that is larger is read in several.

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
                    Ok(Taken::Bytes(bytes)) => {
                        let hash = bytes.first_chunk().copied();
                        let hash = hash.filter(|_| self.hasher.is_some());
                        return Some((bytes.slice(HASH_BYTES..), hash));
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
    Bytes(Bytes),
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
        let mut scratch = Scratch::create(spill, buckets)?;
        let mut missing = HashSet::new();
        read_all(image, places, hasher, &mut scratch, &mut missing)?;
        scratch.end()?;
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
                return Ok(Taken::Bytes(bytes.slice(place..end)));
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

/// What a group became: for each file place (8), length (4), bytes; or the places that are missing.
struct Parsed {
    records: Vec<u8>,
    missing: Vec<u64>,
}

fn read_all(
    image: &Image,
    places: Sorted,
    hasher: Option<&Hasher>,
    scratch: &mut Scratch,
    missing: &mut HashSet<u64>,
) -> io::Result<()> {
    let mut groups = Groups {
        places,
        waiting: None,
        failed: false,
    };
    in_order(
        &mut groups,
        || AlignedBuffer::new(GROUP_BUFFER_BYTES),
        |buffer, group| read_group(image, group, hasher, buffer),
        |parsed| -> io::Result<()> {
            let mut rest = &parsed.records[..];
            while let Some((head, behind)) = rest.split_first_chunk::<12>() {
                let at = u64::from_le_bytes(head[..8].try_into().expect("8 of 12 bytes"));
                let len = u32::from_le_bytes(head[8..].try_into().expect("4 of 12 bytes"));
                let (bytes, behind) = behind.split_at(len as usize);
                scratch.add(at, bytes)?;
                rest = behind;
            }
            missing.extend(parsed.missing);
            match missing.len() > MISSING_MAX {
                true => Err(io::Error::other("much of the device cannot be read")),
                false => Ok(()),
            }
        },
    )?;
    match groups.failed {
        true => Err(io::Error::other("a temporary file cannot be read")),
        false => Ok(()),
    }
}

fn read_group(
    image: &Image,
    group: Vec<Placed>,
    hasher: Option<&Hasher>,
    buffer: &mut AlignedBuffer,
) -> Parsed {
    let mut parsed = Parsed {
        records: Vec::new(),
        missing: Vec::new(),
    };
    let start = group.first().map_or(0, |placed| placed.span.offset);
    let end = group.iter().map(|placed| placed.span.end()).max();
    let span = Span {
        offset: start,
        len: (end.unwrap_or(start) - start) as u32,
    };
    match image.read_content(span, buffer) {
        Ok(range) => {
            let bytes: usize = group.iter().map(|placed| placed.span.len as usize).sum();
            let heads = (12 + HASH_BYTES) * group.len();
            parsed.records.reserve_exact(bytes + heads);
            for placed in group {
                let at = range.start + (placed.span.offset - start) as usize;
                let content = &buffer[at..at + placed.span.len as usize];
                let hash = hasher.map_or([0; HASH_BYTES], |hasher| hasher(content));
                let records = &mut parsed.records;
                records.extend_from_slice(&placed.at.to_le_bytes());
                records.extend_from_slice(&(placed.span.len + HASH_BYTES as u32).to_le_bytes());
                records.extend_from_slice(&hash);
                records.extend_from_slice(content);
            }
        }
        // Each is read on its own later, around what is bad.
        Err(_) => parsed.missing.extend(group.iter().map(|placed| placed.at)),
    }
    parsed
}

/// The unnamed file of one window.
struct Scratch {
    file: File,
    key: ScratchKey,
    buckets: Vec<Bucket>,
    end: u64,
}

#[derive(Default)]
struct Bucket {
    /// Bytes that wait to be written.
    block: Vec<u8>,
    /// Where written blocks are, and how long they are sealed.
    blocks: Vec<(u64, u32)>,
    bytes: usize,
}

impl Scratch {
    fn create(spill: &Path, buckets: usize) -> io::Result<Scratch> {
        let random = crate::random::draw(&crate::random::OsRandom)?;
        Ok(Scratch {
            file: unnamed_file(spill)?,
            key: ScratchKey::new(&random),
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            end: 0,
        })
    }

    fn add(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let number = (at / BUCKET_BYTES) as usize;
        let place = (at % BUCKET_BYTES) as u32;
        let bucket = &mut self.buckets[number];
        let full = bucket.block.len() + HEAD_BYTES + bytes.len() > BLOCK_BYTES;
        if full && !bucket.block.is_empty() {
            self.write_block(number)?;
        }
        let bucket = &mut self.buckets[number];
        bucket.block.extend_from_slice(&place.to_le_bytes());
        bucket
            .block
            .extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        bucket.block.extend_from_slice(bytes);
        bucket.bytes = bucket.bytes.max(place as usize + bytes.len());
        Ok(())
    }

    fn write_block(&mut self, number: usize) -> io::Result<()> {
        let bucket = &mut self.buckets[number];
        let mut sealed = Vec::with_capacity(bucket.block.len() + SCRATCH_EXTRA_BYTES);
        // The offset in the file is a number that no other block has.
        self.key.seal(self.end, &bucket.block, &mut sealed);
        self.file.write_all_at(&sealed, self.end)?;
        bucket.blocks.push((self.end, sealed.len() as u32));
        bucket.block.clear();
        self.end += sealed.len() as u64;
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        for number in 0..self.buckets.len() {
            if !self.buckets[number].block.is_empty() {
                self.write_block(number)?;
            }
            self.buckets[number].block = Vec::new();
        }
        Ok(())
    }
}

/// Puts buckets in order, one after the other.
#[derive(Default)]
struct Loader {
    sealed: Vec<u8>,
    plain: Vec<u8>,
    spare: Arc<Mutex<Vec<AlignedBuffer>>>,
}

impl Loader {
    /// All bytes of a bucket, in order.
    fn load(&mut self, scratch: &Scratch, number: usize) -> io::Result<Bytes> {
        let bucket = &scratch.buckets[number];
        let spare = lock(&self.spare).pop();
        let room = (BUCKET_BYTES + SMALL_BYTES_MAX) as usize + HASH_BYTES;
        let mut arranged = spare.unwrap_or_else(|| AlignedBuffer::new(room));
        let damaged = || io::Error::other("a temporary file is damaged");
        for (offset, len) in &bucket.blocks {
            self.sealed.resize(*len as usize, 0);
            scratch.file.read_exact_at(&mut self.sealed, *offset)?;
            scratch
                .key
                .open(*offset, &self.sealed, &mut self.plain)
                .map_err(|_| damaged())?;
            let mut rest = &self.plain[..];
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
