//! Files of a window on their way: in buckets, of which full blocks are sealed and written, until
//! each is put in order.
//!
//! Each thread that fills buckets has a file of its own to write to: the kernel lets only one at a
//! time write to a file. Where a bucket was that has been put in order, others are written: fresh
//! pages of the page cache cost more than copying does. Keeping full blocks in memory instead
//! gained nothing, not with room for all of them.

use super::HASH_BYTES;
use super::sizes::WindowSizes;
use crate::read::SMALL_BYTES_MAX;
use bale_format::scratch::{SCRATCH_EXTRA_BYTES, ScratchKey};
use bale_pipeline::spill::unnamed_file;
use bale_sys::buffer::AlignedBuffer;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Place in the bucket, length.
const HEAD_BYTES: usize = 8;
/// A room for blocks in a file is whole pages.
const PAGE_BYTES: usize = 4096;
/// A file that is a block by itself.
pub(super) const ALONE_BYTES_MAX: usize =
    HEAD_BYTES + HASH_BYTES + SMALL_BYTES_MAX as usize + SCRATCH_EXTRA_BYTES;

/// What waits of one window.
pub(super) struct ArrangedScratch {
    parts: Vec<ScratchPart>,
    /// Fillers so far.
    fillers: AtomicUsize,
    buckets: Vec<Mutex<FillingBucket>>,
    sizes: WindowSizes,
}

/// An unnamed file.
struct ScratchPart {
    file: File,
    key: ScratchKey,
    places: Mutex<FreeBlocks>,
}

/// Where the next block goes, and under which number.
struct FreeBlocks {
    /// Room for a block.
    slot_bytes: usize,
    /// Slots that are free again.
    free: Vec<u64>,
    end: u64,
    /// No two blocks have the same.
    number: u64,
}

#[derive(Default)]
struct FillingBucket {
    /// Bytes that wait to be written.
    block: Vec<u8>,
    written: Vec<WrittenBlock>,
    bytes: usize,
}

/// A block in a file.
struct WrittenBlock {
    offset: u64,
    number: u64,
    part: u32,
    /// Sealed.
    len: u32,
}

/// What is remembered of it.
pub(super) const WRITTEN_BLOCK_BYTES: usize = size_of::<WrittenBlock>();

/// What one thread fills buckets with.
pub(super) struct Filler<'a> {
    scratch: &'a ArrangedScratch,
    part: usize,
    /// An empty block, to be exchanged for a full one.
    spare: Vec<u8>,
    /// For a file that is larger than a block: it is one by itself, or what waits would be of any
    /// size.
    alone: Vec<u8>,
}

impl ArrangedScratch {
    pub(super) fn create(
        spill: &Path,
        buckets: usize,
        sizes: WindowSizes,
    ) -> io::Result<ArrangedScratch> {
        let part = |_| {
            let random = bale_pipeline::random::draw(&bale_pipeline::random::OsRandom)?;
            Ok(ScratchPart {
                file: unnamed_file(spill)?,
                key: ScratchKey::new(&random),
                places: Mutex::new(FreeBlocks::of(sizes.block_bytes)),
            })
        };
        Ok(ArrangedScratch {
            parts: (0..sizes.threads).map(part).collect::<io::Result<_>>()?,
            fillers: AtomicUsize::new(0),
            buckets: (0..buckets).map(|_| Mutex::default()).collect(),
            sizes,
        })
    }

    pub(super) fn sizes(&self) -> &WindowSizes {
        &self.sizes
    }

    pub(super) fn filler(&self) -> Filler<'_> {
        let number = self.fillers.fetch_add(1, Ordering::Relaxed);
        Filler {
            scratch: self,
            part: number % self.parts.len(),
            spare: Vec::new(),
            alone: Vec::new(),
        }
    }

    /// Seals a block where it is and writes it; the block is empty afterwards.
    fn write(&self, part: usize, block: &mut Vec<u8>) -> io::Result<WrittenBlock> {
        let ScratchPart { file, key, places } = &self.parts[part];
        let len = block.len() + SCRATCH_EXTRA_BYTES;
        let (offset, number) = lock(places).take(len);
        key.seal_in_place(number, block);
        file.write_all_at(block, offset)?;
        block.clear();
        Ok(WrittenBlock {
            offset,
            number,
            part: part as u32,
            len: len as u32,
        })
    }
}

impl FreeBlocks {
    fn of(block_bytes: usize) -> FreeBlocks {
        let slot_bytes = (block_bytes + SCRATCH_EXTRA_BYTES).next_multiple_of(PAGE_BYTES);
        FreeBlocks {
            slot_bytes,
            free: Vec::new(),
            end: 0,
            number: 0,
        }
    }

    fn take(&mut self, len: usize) -> (u64, u64) {
        self.number += 1;
        if len <= self.slot_bytes
            && let Some(offset) = self.free.pop()
        {
            return (offset, self.number);
        }
        let offset = self.end;
        self.end += len.next_multiple_of(self.slot_bytes) as u64;
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
        let WindowSizes {
            bucket_bytes,
            block_bytes,
            ..
        } = self.scratch.sizes;
        let place = (at % bucket_bytes) as u32;
        let len = HASH_BYTES + content.len();
        let parts = [
            &place.to_le_bytes(),
            &(len as u32).to_le_bytes(),
            &hash[..],
            content,
        ];
        let shared = &self.scratch.buckets[(at / bucket_bytes) as usize];
        if HEAD_BYTES + len > block_bytes {
            self.alone.reserve_exact(ALONE_BYTES_MAX);
            parts
                .iter()
                .for_each(|part| self.alone.extend_from_slice(part));
            let written = self.scratch.write(self.part, &mut self.alone)?;
            let mut bucket = lock(shared);
            bucket.bytes = bucket.bytes.max(place as usize + len);
            bucket.written.push(written);
            return Ok(());
        }
        let mut bucket = lock(shared);
        let is_full = bucket.block.len() + HEAD_BYTES + len > block_bytes;
        if is_full {
            std::mem::swap(&mut bucket.block, &mut self.spare);
        }
        let block = &mut bucket.block;
        if block.capacity() == 0 {
            block.reserve_exact(block_bytes + SCRATCH_EXTRA_BYTES);
        }
        parts.iter().for_each(|part| block.extend_from_slice(part));
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

/// Buckets in memory: one being put in order, and those of which files are in use. What waits to be
/// packed is of two at most, or whoever waits for a bucket would wait for himself.
pub(super) const BUCKETS_LOADED_MAX: usize = 3;

/// Buffers of buckets: a few, which are used again.
#[derive(Default)]
pub(super) struct Buffers {
    state: Mutex<BufferState>,
    changed: Condvar,
}

#[derive(Default)]
struct BufferState {
    spare: Vec<AlignedBuffer>,
    made: usize,
    /// Nobody wants one any more.
    is_stopped: bool,
}

impl Buffers {
    /// Waits until one is free; an error if nobody wants it any more.
    fn take(&self, bytes: usize) -> io::Result<AlignedBuffer> {
        let mut state = lock(&self.state);
        loop {
            if state.is_stopped {
                return Err(io::ErrorKind::Interrupted.into());
            }
            if let Some(buffer) = state.spare.pop() {
                return Ok(buffer);
            }
            if state.made < BUCKETS_LOADED_MAX {
                state.made += 1;
                return Ok(AlignedBuffer::new(bytes));
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, buffer: AlignedBuffer) {
        lock(&self.state).spare.push(buffer);
        self.changed.notify_one();
    }

    /// Whoever waits for a buffer waits no longer.
    pub(super) fn stop(&self) {
        lock(&self.state).is_stopped = true;
        self.changed.notify_all();
    }
}

/// Puts buckets in order, one after the other.
#[derive(Default)]
pub(super) struct Loader {
    block: Vec<u8>,
    buffers: Arc<Buffers>,
}

impl Loader {
    pub(super) fn new(buffers: Arc<Buffers>) -> Loader {
        Loader {
            block: Vec::new(),
            buffers,
        }
    }

    /// All bytes of a bucket, in order.
    pub(super) fn load(&mut self, scratch: &ArrangedScratch, number: usize) -> io::Result<Bytes> {
        let bucket = std::mem::take(&mut *lock(&scratch.buckets[number]));
        let mut arranged = Loaded {
            buffer: Some(self.buffers.take(scratch.sizes.loaded_bytes())?),
            len: bucket.bytes,
            buffers: self.buffers.clone(),
        };
        for written in bucket.written {
            let ScratchPart { file, key, places } = &scratch.parts[written.part as usize];
            self.block.resize(written.len as usize, 0);
            file.read_exact_at(&mut self.block, written.offset)?;
            lock(places).give_back(written.offset);
            let opened = key.open_in_place(written.number, &mut self.block);
            put_in_order(opened.map_err(|_| damaged())?, arranged.room())?;
        }
        // What was not enough to be written.
        put_in_order(&bucket.block, arranged.room())?;
        Ok(Bytes::from_owner(arranged))
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
    buffers: Arc<Buffers>,
}

impl Loaded {
    fn room(&mut self) -> &mut [u8] {
        self.buffer.as_mut().expect("taken only by drop")
    }
}

impl AsRef<[u8]> for Loaded {
    fn as_ref(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("taken only by drop");
        &buffer[..self.len]
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.buffers.give_back(buffer);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::memory::{MEMORY_BYTES_MIN, MemoryPlan};

    const SIZES: WindowSizes = WindowSizes::USUAL;
    const BLOCK_BYTES: usize = SIZES.block_bytes;

    #[test]
    fn files_come_back_in_order_whoever_filled_the_bucket() {
        files_come_back(SIZES, 3000);
    }

    #[test]
    fn files_come_back_in_order_also_with_little_memory() {
        // The least, and one of which no part is a round number.
        for bytes in [MEMORY_BYTES_MIN, (201 << 20) + 12_345] {
            let sizes = WindowSizes::of(&MemoryPlan::new(bytes, 1).unwrap());
            files_come_back(sizes, 3000);
            files_come_back(sizes, sizes.block_bytes + 1);
            files_come_back(sizes, SMALL_BYTES_MAX as usize);
        }
    }

    fn files_come_back(sizes: WindowSizes, file_bytes: usize) {
        const BUCKETS: usize = 3;
        let bucket_bytes = sizes.bucket_bytes;
        let spill = tempfile::tempdir().unwrap();
        let scratch = ArrangedScratch::create(spill.path(), BUCKETS, sizes).unwrap();
        let files = BUCKETS * bucket_bytes as usize / (HASH_BYTES + file_bytes);
        let at = |file: usize| (file * (HASH_BYTES + file_bytes)) as u64;
        let content = |file: usize| vec![file as u8; file_bytes];
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
            assert!(bucket.len() <= sizes.loaded_bytes());
            while file < files && at(file) / bucket_bytes == number as u64 {
                let place = (at(file) % bucket_bytes) as usize;
                let (hash, bytes) = bucket[place..].split_first_chunk().unwrap();
                assert_eq!(*hash, [file as u8; HASH_BYTES]);
                assert_eq!(bytes[..file_bytes], content(file));
                file += 1;
            }
        }
        assert_eq!(file, files);
    }

    #[test]
    fn what_waits_of_large_files_is_no_more_than_of_small_ones() {
        let spill = tempfile::tempdir().unwrap();
        let scratch = ArrangedScratch::create(spill.path(), 1, SIZES).unwrap();
        let mut filler = scratch.filler();
        let sizes = [70 << 10, SMALL_BYTES_MAX as usize, 1000, 60 << 10, 8000];
        let mut at = 0;
        for (number, size) in sizes.into_iter().enumerate() {
            let content = vec![number as u8; size];
            filler.add(at, &[0; HASH_BYTES], &content).unwrap();
            at += (HASH_BYTES + size) as u64;
        }
        assert!(lock(&scratch.buckets[0]).block.capacity() <= BLOCK_BYTES + SCRATCH_EXTRA_BYTES);
        let bucket = Loader::default().load(&scratch, 0).unwrap();
        let mut at = 0;
        for (number, size) in sizes.into_iter().enumerate() {
            assert_eq!(bucket[at + HASH_BYTES..][..size], vec![number as u8; size]);
            at += HASH_BYTES + size;
        }
    }

    #[test]
    fn whoever_loads_waits_for_a_bucket_to_be_free_and_not_for_nobody() {
        let buffers = Arc::new(Buffers::default());
        let mut held: Vec<_> = (0..BUCKETS_LOADED_MAX)
            .map(|_| buffers.take(1).unwrap())
            .collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| buffers.take(1));
            buffers.give_back(held.pop().unwrap());
            held.push(waiting.join().unwrap().unwrap());
            let waiting = scope.spawn(|| buffers.take(1).map(drop));
            buffers.stop();
            assert!(waiting.join().unwrap().is_err());
        });
    }

    #[test]
    fn room_is_used_again_under_new_numbers() {
        let mut places = FreeBlocks::of(BLOCK_BYTES);
        let slot_bytes = places.slot_bytes;
        let all: Vec<(u64, u64)> = (0..3).map(|_| places.take(slot_bytes - 1)).collect();
        assert_eq!(places.end, 3 * slot_bytes as u64);
        places.give_back(all[1].0);
        let (long, _) = places.take(2 * slot_bytes);
        assert_eq!(long, 3 * slot_bytes as u64, "a long block fits no slot");
        let (again, number) = places.take(slot_bytes);
        assert_eq!(again, all[1].0);
        assert!(all.iter().all(|(_, used)| *used != number));
    }

    #[test]
    fn a_block_of_another_file_does_not_open() {
        let spill = tempfile::tempdir().unwrap();
        let scratch = ArrangedScratch::create(spill.path(), 1, SIZES).unwrap();
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
