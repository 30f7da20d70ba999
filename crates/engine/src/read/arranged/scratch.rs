//! Files of a window on their way: in buckets, of which full blocks are sealed and written, until each is put in order.
//!
//! Each thread that fills buckets has a file of its own to write to: the kernel lets only one at a time write to a file.
//! Where a bucket was that has been put in order, others are written: fresh pages of the page cache cost more than copying
//! does. Keeping full blocks in memory instead gained nothing, not with room for all of them.

use super::{BLOCK_BYTES, BUCKET_BYTES, HASH_BYTES};
use crate::read::SMALL_BYTES_MAX;
use crate::scan::inode::THREADS_MAX;
use crate::spill::unnamed_file;
use bale_format::scratch::{SCRATCH_EXTRA_BYTES, ScratchKey};
use bale_sys::buffer::AlignedBuffer;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Place in the bucket, length.
const HEAD_BYTES: usize = 8;
/// Room for a block in a file: whole pages.
const SLOT_BYTES: usize = BLOCK_BYTES + 4096;
const _: () = assert!(BLOCK_BYTES + SCRATCH_EXTRA_BYTES <= SLOT_BYTES);

/// What waits of one window.
pub(super) struct Scratch {
    parts: Vec<Part>,
    /// Fillers so far.
    fillers: AtomicUsize,
    buckets: Vec<Mutex<Bucket>>,
}

/// An unnamed file.
struct Part {
    file: File,
    key: ScratchKey,
    places: Mutex<Places>,
}

/// Where the next block goes, and under which number.
#[derive(Default)]
struct Places {
    /// Slots that are free again.
    free: Vec<u64>,
    end: u64,
    /// No two blocks have the same.
    number: u64,
}

#[derive(Default)]
struct Bucket {
    /// Bytes that wait to be written.
    block: Vec<u8>,
    written: Vec<Written>,
    bytes: usize,
}

/// A block in a file.
struct Written {
    part: usize,
    offset: u64,
    number: u64,
    /// Sealed.
    len: u32,
}

/// What one thread fills buckets with.
pub(super) struct Filler<'a> {
    scratch: &'a Scratch,
    part: usize,
    /// An empty block, to be exchanged for a full one.
    spare: Vec<u8>,
}

impl Scratch {
    pub(super) fn create(spill: &Path, buckets: usize) -> io::Result<Scratch> {
        let part = |_| {
            let random = crate::random::draw(&crate::random::OsRandom)?;
            Ok(Part {
                file: unnamed_file(spill)?,
                key: ScratchKey::new(&random),
                places: Mutex::default(),
            })
        };
        Ok(Scratch {
            parts: (0..THREADS_MAX).map(part).collect::<io::Result<_>>()?,
            fillers: AtomicUsize::new(0),
            buckets: (0..buckets).map(|_| Mutex::default()).collect(),
        })
    }

    pub(super) fn filler(&self) -> Filler<'_> {
        let number = self.fillers.fetch_add(1, Ordering::Relaxed);
        Filler {
            scratch: self,
            part: number % self.parts.len(),
            spare: Vec::new(),
        }
    }

    /// Seals a block where it is and writes it; the block is empty afterwards.
    fn write(&self, part: usize, block: &mut Vec<u8>) -> io::Result<Written> {
        let Part { file, key, places } = &self.parts[part];
        let len = block.len() + SCRATCH_EXTRA_BYTES;
        let (offset, number) = lock(places).take(len);
        key.seal_in_place(number, block);
        file.write_all_at(block, offset)?;
        block.clear();
        Ok(Written {
            part,
            offset,
            number,
            len: len as u32,
        })
    }
}

impl Places {
    fn take(&mut self, len: usize) -> (u64, u64) {
        self.number += 1;
        if len <= SLOT_BYTES
            && let Some(offset) = self.free.pop()
        {
            return (offset, self.number);
        }
        let offset = self.end;
        self.end += len.next_multiple_of(SLOT_BYTES) as u64;
        (offset, self.number)
    }

    /// What was there has been read. Of several slots only the first is used again.
    fn give_back(&mut self, offset: u64) {
        self.free.push(offset);
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
            std::mem::swap(&mut bucket.block, &mut self.spare);
        }
        let block = &mut bucket.block;
        if block.capacity() == 0 {
            block.reserve_exact(BLOCK_BYTES + SCRATCH_EXTRA_BYTES);
        }
        block.extend_from_slice(&place.to_le_bytes());
        block.extend_from_slice(&(len as u32).to_le_bytes());
        block.extend_from_slice(hash);
        block.extend_from_slice(content);
        bucket.bytes = bucket.bytes.max(place as usize + len);
        if is_full {
            // Others may fill the bucket while this is sealed and written.
            drop(bucket);
            let written = self.scratch.write(self.part, &mut self.spare)?;
            lock(shared).written.push(written);
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
        for written in bucket.written {
            let Part { file, key, places } = &scratch.parts[written.part];
            self.block.resize(written.len as usize, 0);
            file.read_exact_at(&mut self.block, written.offset)?;
            lock(places).give_back(written.offset);
            let opened = key.open_in_place(written.number, &mut self.block);
            put_in_order(opened.map_err(|_| damaged())?, &mut arranged)?;
        }
        // What was not enough to be written.
        put_in_order(&bucket.block, &mut arranged)?;
        Ok(Bytes::from_owner(Loaded {
            buffer: Some(arranged),
            len: bucket.bytes,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_back_in_order_whoever_filled_the_bucket() {
        const BUCKETS: usize = 3;
        const FILE_BYTES: usize = 3000;
        let spill = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(spill.path(), BUCKETS).unwrap();
        let files = BUCKETS * BUCKET_BYTES as usize / (HASH_BYTES + FILE_BYTES);
        let at = |file: usize| (file * (HASH_BYTES + FILE_BYTES)) as u64;
        let content = |file: usize| vec![file as u8; FILE_BYTES];
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let mut filler = scratch.filler();
                scope.spawn(move || {
                    for file in (0..files).filter(|file| file % 3 == thread) {
                        let file = (file * 7919) % files;
                        let hash = [file as u8; HASH_BYTES];
                        filler.add(at(file), &hash, &content(file)).unwrap();
                    }
                });
            }
        });
        let mut loader = Loader::default();
        let mut file = 0;
        for number in 0..BUCKETS {
            let bucket = loader.load(&scratch, number).unwrap();
            while file < files && at(file) / BUCKET_BYTES == number as u64 {
                let place = (at(file) % BUCKET_BYTES) as usize;
                let (hash, bytes) = bucket[place..].split_first_chunk().unwrap();
                assert_eq!(*hash, [file as u8; HASH_BYTES]);
                assert_eq!(bytes[..FILE_BYTES], content(file));
                file += 1;
            }
        }
        assert_eq!(file, files);
    }

    #[test]
    fn room_is_used_again_under_new_numbers() {
        let mut places = Places::default();
        let all: Vec<(u64, u64)> = (0..3).map(|_| places.take(SLOT_BYTES - 1)).collect();
        assert_eq!(places.end, 3 * SLOT_BYTES as u64);
        places.give_back(all[1].0);
        let (long, _) = places.take(2 * SLOT_BYTES);
        assert_eq!(long, 3 * SLOT_BYTES as u64, "a long block fits no slot");
        let (again, number) = places.take(SLOT_BYTES);
        assert_eq!(again, all[1].0);
        assert!(all.iter().all(|(_, used)| *used != number));
    }

    #[test]
    fn a_block_of_another_file_does_not_open() {
        let spill = tempfile::tempdir().unwrap();
        let scratch = Scratch::create(spill.path(), 1).unwrap();
        let mut filler = scratch.filler();
        for at in 0..2 * BLOCK_BYTES as u64 / 1016 {
            filler.add(at * 1016, &[1; HASH_BYTES], &[2; 1000]).unwrap();
        }
        lock(&scratch.buckets[0]).written[0].part += 1;
        let other = &scratch.parts[1].file;
        other.write_all_at(&vec![0; 2 * BLOCK_BYTES], 0).unwrap();
        assert!(Loader::default().load(&scratch, 0).is_err());
    }
}
