//! Many small files of a device: read once through in the order of the device, handed out in the
//! order of the catalog.
//!
//! The two orders may have nothing in common, and no window that fits in memory would help: so the
//! bytes wait in an unnamed file, arranged by where they belong in the catalog's order, coarsely:
//! in buckets that are put in order in memory one after the other. What waits is sealed with a key
//! of this run. A window is as much as there may be buckets for; a tree that is larger is read in
//! several. The threads that read put files into buckets themselves: all processors hash, copy and
//! seal while the device works.
//!
//! Mostly the two orders have much in common: what is in one directory lies together. So stretches
//! of the device are read in the order in which the catalog needs the first of them, and a bucket
//! is handed out as soon as the stretches it needs have been read. Where every bucket needs every
//! stretch, that is the order of the device.

mod reading;
mod scratch;
mod sizes;

pub use sizes::{arranged_bytes, bucket_bytes};

use crate::image::{Image, Span};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::spill::{Sorter, Spill, unnamed_file};
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use reading::{Reading, Stretches};
use scratch::{ArrangedScratch, Buffers, Loader};
use sizes::WindowSizes;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Files of a window that could not be read at once, before the window is given up.
const MISSING_MAX: usize = 64 << 10;
/// Hash of a file's content, in front of it.
const HASH_BYTES: usize = 16;

/// A file that the stream will need.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRead {
    pub inode: u64,
    /// Its only extent.
    pub span: Span,
}

/// Hashes the contents of a group; a row wants the first [`HASH_BYTES`] of each hash.
pub type GroupHasher = Arc<dyn Fn(&[&[u8]], &mut Vec<[u8; 32]>) + Send + Sync>;

/// Hands out small files in the order in which `wanted` names them.
pub struct Arranged {
    wanted: Box<dyn Iterator<Item = PlannedRead> + Send>,
    image: Arc<Image>,
    spill: PathBuf,
    hasher: Option<GroupHasher>,
    window: Option<ArrangedWindow>,
    ended: bool,
    memory: MemoryPlan,
}

impl Arranged {
    /// Nothing is read before the first file is asked for.
    pub fn new(
        image: Arc<Image>,
        wanted: Box<dyn Iterator<Item = PlannedRead> + Send>,
        spill: &Path,
    ) -> Arranged {
        Arranged {
            wanted,
            image,
            spill: spill.to_path_buf(),
            hasher: None,
            window: None,
            ended: false,
            memory: MemoryPlan::default(),
        }
    }

    /// The same with its part of this.
    pub fn within(self, memory: MemoryPlan) -> Arranged {
        Arranged { memory, ..self }
    }

    /// Has content hashed while it is read, when processors wait for the device.
    pub fn hashing(self, hasher: GroupHasher) -> Arranged {
        Arranged {
            hasher: Some(hasher),
            ..self
        }
    }

    /// The content of the next file that was wanted, if it is this one and could be read. Otherwise
    /// it must be read on its own.
    pub(super) fn take(&mut self, inode: u64) -> Option<(Bytes, Option<[u8; HASH_BYTES]>)> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(window) = &mut self.window {
                match window.take(inode) {
                    Ok(NextFile::File { hash, bytes }) => {
                        return Some((bytes, hash.filter(|_| self.hasher.is_some())));
                    }
                    Ok(NextFile::Other) => return None,
                    Ok(NextFile::End) => self.window = None,
                    // Whatever is the matter with the temporary file: the device is still there.
                    Err(_) => {
                        self.ended = true;
                        return None;
                    }
                }
            }
            match ArrangedWindow::gather(
                &self.image,
                &mut self.wanted,
                Spill {
                    directory: &self.spill,
                    memory: self.memory,
                },
                self.hasher.as_ref(),
            ) {
                Ok(Some(window)) => self.window = Some(window),
                Ok(None) | Err(_) => self.ended = true,
            }
        }
    }
}

enum NextFile {
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

struct ArrangedWindow {
    list: List,
    /// Place of the next file in all of the window's bytes.
    at: u64,
    loaded: Option<Receiver<io::Result<WindowPart>>>,
    /// Number of the bucket at hand, and the bucket.
    bucket: Option<(u64, WindowPart)>,
    next_bucket: u64,
    bucket_bytes: u64,
    reading: Arc<Reading>,
    buffers: Arc<Buffers>,
    threads: Vec<JoinHandle<()>>,
}

/// A part of the window, in order.
struct WindowPart {
    bytes: Bytes,
    /// Places of files that could not be read.
    missing: HashSet<u64>,
}

fn load_part(
    loader: &mut Loader,
    scratch: &ArrangedScratch,
    number: usize,
    missing: io::Result<HashSet<u64>>,
) -> io::Result<WindowPart> {
    let missing = missing?;
    let bytes = loader.load(scratch, number)?;
    Ok(WindowPart { bytes, missing })
}

impl ArrangedWindow {
    /// Begins to read as many files as one window holds; `None` if none are wanted any more.
    fn gather(
        image: &Arc<Image>,
        wanted: &mut dyn Iterator<Item = PlannedRead>,
        spill: Spill<'_>,
        hasher: Option<&GroupHasher>,
    ) -> io::Result<Option<ArrangedWindow>> {
        let sizes = WindowSizes::of(&spill.memory);
        let bucket_bytes = sizes.bucket_bytes;
        let mut list = BufWriter::new(unnamed_file(spill.directory)?);
        let mut places = Sorter::new(spill.directory, sizes.sort_bytes);
        let mut stretches = Stretches::new(&sizes);
        let mut end = 0;
        while end < (sizes.buckets_max as u64 - 1) * bucket_bytes
            && let Some(file) = wanted.next()
        {
            list.write_all(&file.inode.to_le_bytes())?;
            list.write_all(&file.span.len.to_le_bytes())?;
            let (key, value) = stretches.record(file.span, end);
            places.push(&key, &value).map_err(io::Error::other)?;
            end += HASH_BYTES as u64 + u64::from(file.span.len);
        }
        if places.records() == 0 {
            return Ok(None);
        }
        let places = places.finish().map_err(io::Error::other)?;
        let buckets = end.div_ceil(bucket_bytes) as usize;
        let mut file = list.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut list = List {
            file: BufReader::new(file),
            next: None,
        };
        list.advance()?;
        let mut window = ArrangedWindow {
            list,
            at: 0,
            loaded: None,
            bucket: None,
            next_bucket: 0,
            bucket_bytes,
            reading: Arc::default(),
            buffers: Arc::default(),
            threads: Vec::new(),
        };
        let scratch = ArrangedScratch::create(spill.directory, buckets, sizes)?;
        let scratch = Arc::new(scratch);
        let (reading, shared) = (window.reading.clone(), scratch.clone());
        let (image, hasher) = (image.clone(), hasher.cloned());
        window.start(move || reading.read_all(&image, places, hasher.as_ref(), &shared))?;
        let (sender, loaded) = bounded(0);
        window.loaded = Some(loaded);
        let (reading, buffers) = (window.reading.clone(), window.buffers.clone());
        window.start(move || {
            let mut loader = Loader::new(buffers);
            for number in 0..buckets {
                let missing = reading.await_bucket(number, bucket_bytes);
                let part = load_part(&mut loader, &scratch, number, missing);
                let is_last = part.is_err();
                if sender.send(part).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Some(window))
    }

    fn start(&mut self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }

    fn take(&mut self, inode: u64) -> io::Result<NextFile> {
        let Some((next, len)) = self.list.next else {
            return Ok(NextFile::End);
        };
        if next != inode {
            return Ok(NextFile::Other);
        }
        let at = self.at;
        let len = HASH_BYTES as u32 + len;
        self.at += u64::from(len);
        self.list.advance()?;
        let (number, place) = (at / self.bucket_bytes, (at % self.bucket_bytes) as usize);
        loop {
            if let Some((loaded, bucket)) = &self.bucket
                && *loaded == number
            {
                if bucket.missing.contains(&at) {
                    return Ok(NextFile::Other);
                }
                let (bytes, end) = (&bucket.bytes, place + len as usize);
                if end > bytes.len() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                return Ok(NextFile::File {
                    hash: bytes[place..].first_chunk().copied(),
                    bytes: bytes.slice(place + HASH_BYTES..end),
                });
            }
            // The old bucket goes before the next one comes.
            self.bucket = None;
            let gone = || io::Error::other("a thread that loads a temporary file is gone");
            let loaded = self.loaded.as_ref().ok_or_else(gone)?;
            let bucket = loaded.recv().map_err(|_| gone())??;
            self.bucket = Some((self.next_bucket, bucket));
            self.next_bucket += 1;
        }
    }
}

impl Drop for ArrangedWindow {
    /// Whoever still reads stops, and holds the device no longer.
    fn drop(&mut self) {
        self.loaded = None;
        self.reading.stop();
        self.buffers.stop();
        for thread in self.threads.drain(..) {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}
