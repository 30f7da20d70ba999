//! Files of a window on their way: in buckets, of which full blocks are sealed and written, until each is put in order.

use super::{BLOCK_BYTES, BUCKET_BYTES, HASH_BYTES};
use crate::read::SMALL_BYTES_MAX;
use crate::spill::unnamed_file;
use bale_format::scratch::{SCRATCH_EXTRA_BYTES, ScratchKey};
use bale_sys::buffer::AlignedBuffer;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Place in the bucket, length.
const HEAD_BYTES: usize = 8;

/// The unnamed file of one window, and what waits to be written to it.
pub(super) struct Scratch {
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

/// What one thread fills buckets with.
pub(super) struct Filler<'a> {
    scratch: &'a Scratch,
    /// An empty block, to be exchanged for a full one.
    spare: &'a mut Vec<u8>,
}

impl Scratch {
    pub(super) fn create(spill: &Path, buckets: usize) -> io::Result<Scratch> {
        let random = crate::random::draw(&crate::random::OsRandom)?;
        Ok(Scratch {
            file: unnamed_file(spill)?,
            key: ScratchKey::new(&random),
            buckets: (0..buckets).map(|_| Mutex::default()).collect(),
            end: AtomicU64::new(0),
        })
    }

    pub(super) fn filler<'a>(&'a self, spare: &'a mut Vec<u8>) -> Filler<'a> {
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
}

impl Filler<'_> {
    /// Puts a file in its bucket. In which order a bucket is filled does not matter.
    pub(super) fn add(
        &mut self,
        at: u64,
        hash: &[u8; HASH_BYTES],
        content: &[u8],
    ) -> io::Result<()> {
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
pub(super) struct Loader {
    block: Vec<u8>,
    spare: Arc<Mutex<Vec<AlignedBuffer>>>,
}

impl Loader {
    /// All bytes of a bucket, in order.
    pub(super) fn load(&mut self, scratch: &Scratch, number: usize) -> io::Result<Bytes> {
        let bucket = std::mem::take(&mut *lock(&scratch.buckets[number]));
        let spare = lock(&self.spare).pop();
        let room = (BUCKET_BYTES + SMALL_BYTES_MAX) as usize + HASH_BYTES;
        let mut arranged = spare.unwrap_or_else(|| AlignedBuffer::new(room));
        for (offset, len) in &bucket.written.blocks {
            self.block.resize(*len as usize, 0);
            scratch.file.read_exact_at(&mut self.block, *offset)?;
            let opened = scratch.key.open_in_place(*offset, &mut self.block);
            put_in_order(opened.map_err(|_| damaged())?, &mut arranged)?;
        }
        // What was not enough to be written.
        put_in_order(&bucket.block, &mut arranged)?;
        Ok(Bytes::from_owner(Loaded {
            buffer: Some(arranged),
            len: bucket.written.bytes,
            spare: self.spare.clone(),
        }))
    }
}

fn damaged() -> io::Error {
    io::Error::other("a temporary file is damaged")
}

/// Copies the files of a block to where they belong.
fn put_in_order(mut block: &[u8], arranged: &mut [u8]) -> io::Result<()> {
    while let Some((head, behind)) = block.split_first_chunk::<HEAD_BYTES>() {
        let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 of 8 bytes"));
        let (place, len) = (number(&head[..4]) as usize, number(&head[4..]) as usize);
        let (bytes, behind) = behind.split_at_checked(len).ok_or_else(damaged)?;
        let room = arranged.get_mut(place..place + len).ok_or_else(damaged)?;
        room.copy_from_slice(bytes);
        block = behind;
    }
    Ok(())
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

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
