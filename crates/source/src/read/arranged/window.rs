//! One window: what is read of a device in its order is handed out in that of the catalog, bucket
//! by bucket.

use super::plan::{List, PlannedWindow};
use super::reading::Reading;
use super::scratch::{ArrangedScratch, Buffers, Loader};
use super::sizes::WindowSizes;
use super::{GroupHasher, HASH_BYTES};
use crate::image::Image;
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

pub(super) enum NextFile {
    File {
        hash: Option<[u8; HASH_BYTES]>,
        bytes: Bytes,
    },
    /// Another file is next.
    Other,
    End,
}

pub(super) struct ArrangedWindow {
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
    /// Begins to read a window.
    pub(super) fn begin(
        planned: PlannedWindow,
        image: &Arc<Image>,
        spill: &Path,
        sizes: WindowSizes,
        hasher: Option<&GroupHasher>,
    ) -> io::Result<ArrangedWindow> {
        let PlannedWindow {
            list,
            places,
            buckets,
            ..
        } = planned;
        let bucket_bytes = sizes.bucket_bytes;
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
        let scratch = Arc::new(ArrangedScratch::create(spill, buckets, sizes)?);
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
        Ok(window)
    }

    fn start(&mut self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let thread = std::thread::Builder::new().spawn(work)?;
        self.threads.push(thread);
        Ok(())
    }

    /// The next file, if it is this one.
    pub(super) fn take(&mut self, inode: u64) -> io::Result<NextFile> {
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
