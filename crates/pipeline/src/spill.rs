//! Sorts more records than fit in memory.
//!
//! Records are collected in a buffer. A full one is sorted by an index of (first sixteen bytes of
//! the key, place) and written to a temporary file by a thread of its own, while the next one
//! fills; the last one, for which everybody waits, is sorted in two halves at once; at the end the
//! runs are merged. Records of equal keys stay in the order in which they came. Memory is bounded
//! by what the caller allows, disk by the records themselves. The files have no name, so nothing is
//! left behind, whatever happens; there are a few of them, however many records come.
//!
//! Three ways to read what was sorted: all of it in order ([`Sorter`]), at any place once all of it
//! is there ([`RunsSorter`]), by key while more comes ([`LookupRuns`]).

mod blocks;
mod levels;
mod lookup;
mod merge;
mod run;

pub use blocks::Runs;
pub use lookup::LookupRuns;
pub use run::{BLOCK_BYTES, Block, unnamed_file};

use crate::memory::MemoryPlan;
use levels::Levels;
use merge::Merge;
use run::{Layout, RunPlace, RunWriter, SortedRun};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;

/// Runs merged at once; more are merged in several passes.
pub(crate) const FAN_IN_MAX: usize = 64;
/// Less memory than this is not worth the trouble.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;
/// Places in the buffer are 32 bits wide.
pub(crate) const MEMORY_BYTES_MAX: usize = 4 << 30;
/// From here on a buffer is expected to become full.
const GROWN_BYTES: usize = 1 << 20;
/// Fewer records than this are sorted sooner than a thread begins.
const HALVED_RECORDS_MIN: usize = 64 << 10;
/// Key and value of one record together.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// What a sorter takes at most that is given so much: its buffers, those of merging, and what goes
/// to a file.
pub const fn sorter_bytes(memory_bytes: usize) -> usize {
    let buffers = match memory_bytes {
        ..MEMORY_BYTES_MIN => MEMORY_BYTES_MIN,
        _ => memory_bytes,
    };
    buffers + 2 * run::WRITE_BUFFER_BYTES
}

/// Where temporary files go, and the plan that says what is held in memory before.
#[derive(Clone, Copy, Debug)]
pub struct Spill<'a> {
    /// A directory on a disk.
    pub directory: &'a Path,
    /// What sorting is a part of.
    pub memory: MemoryPlan,
}

/// Sorting failed: a temporary file could not be made, written or read.
#[derive(Debug, thiserror::Error)]
#[error("{action} a temporary file in {}", directory.display())]
pub struct SpillError {
    /// `create`, `write`, `read`.
    pub action: &'static str,
    pub directory: PathBuf,
    pub source: io::Error,
}

/// Result of sorting.
pub type Result<T> = std::result::Result<T, SpillError>;

/// Collects records to be sorted by key, as bytes.
pub struct Sorter {
    directory: PathBuf,
    /// Bytes of one of the two buffers and its index; the rest of the memory is for merging.
    buffer_bytes_max: usize,
    buffer: Buffer,
    /// The other buffer, on its way to a file.
    writing: Option<JoinHandle<(Buffer, Result<SortedRun>)>>,
    /// The other buffer, empty again.
    spare: Buffer,
    levels: Levels,
    records: u64,
}

impl Sorter {
    /// Keeps about `memory_bytes` in memory and the rest in unnamed files in `directory`.
    pub fn new(directory: &Path, memory_bytes: usize) -> Sorter {
        Sorter::with_layout(directory, memory_bytes, Layout::TO_BE_MERGED)
    }

    fn with_layout(directory: &Path, memory_bytes: usize, layout: Layout) -> Sorter {
        let memory_bytes = memory_bytes.clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX);
        Sorter {
            directory: directory.to_path_buf(),
            buffer_bytes_max: memory_bytes / 16 * 7,
            buffer: Buffer::default(),
            writing: None,
            spare: Buffer::default(),
            levels: Levels::new(directory, layout, FAN_IN_MAX, memory_bytes / 8),
            records: 0,
        }
    }

    /// Adds a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push_parts([key, &[]], [value, &[], &[]])
    }

    /// Adds a record whose key and value are in two and three parts.
    pub fn push_parts(&mut self, key: [&[u8]; 2], value: [&[u8]; 3]) -> Result<()> {
        let len = |parts: &[&[u8]]| parts.iter().map(|part| part.len()).sum::<usize>();
        let (key_len, value_len) = (len(&key), len(&value));
        if key_len.saturating_add(value_len) > RECORD_BYTES_MAX {
            return Err(self.error("write")(io::ErrorKind::InvalidInput.into()));
        }
        self.make_room(key_len + value_len)?;
        self.buffer.push_parts(key, value);
        self.records += 1;
        Ok(())
    }

    fn make_room(&mut self, record_bytes: usize) -> Result<()> {
        let bytes = record_bytes + size_of::<RecordIndex>();
        if self.buffer.bytes() + bytes > self.buffer_bytes_max && !self.buffer.slots.is_empty() {
            self.spill()?;
        }
        self.buffer.grow_at_once(self.buffer_bytes_max);
        Ok(())
    }

    /// Records so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Sorts what is left and begins to hand out all records.
    pub fn finish(mut self) -> Result<Sorted> {
        if self.levels.is_empty() && self.writing.is_none() {
            self.buffer.sort();
            return Ok(Sorted {
                records: self.records,
                directory: self.directory,
                from: From::Memory {
                    buffer: self.buffer,
                    next: 0,
                },
            });
        }
        let merge_bytes = self.levels.merge_bytes();
        let runs = self.write_rest()?.into_runs(FAN_IN_MAX)?;
        let merge = Merge::new(runs, merge_bytes).map_err(self.error("read"))?;
        Ok(Sorted {
            records: self.records,
            directory: self.directory,
            from: From::Runs(merge),
        })
    }

    /// All records as runs.
    fn write_rest(&mut self) -> Result<Levels> {
        // Before the one that is being written is waited for.
        let last = std::mem::take(&mut self.buffer);
        let last = last.write_halves(self.levels.layout(), &self.directory)?;
        self.await_run()?;
        self.spare = Buffer::default();
        for run in last {
            self.levels.add(run)?;
        }
        let none = Levels::new(&self.directory, self.levels.layout(), FAN_IN_MAX, 0);
        Ok(std::mem::replace(&mut self.levels, none))
    }

    /// Lets a thread write the buffer as a run, once the one before is written.
    fn spill(&mut self) -> Result<()> {
        if self.buffer.slots.is_empty() {
            return Ok(());
        }
        self.await_run()?;
        let full = std::mem::replace(&mut self.buffer, std::mem::take(&mut self.spare));
        let place = self.levels.place()?;
        let (layout, directory) = (self.levels.layout(), self.directory.clone());
        let write = move |mut full: Buffer| {
            let mut slots = std::mem::take(&mut full.slots);
            let run = full.write_sorted(&mut slots, place, layout, &directory);
            full.slots = slots;
            full.clear();
            (full, run)
        };
        let (give, given) = sync_channel(1);
        let in_thread = {
            let write = write.clone();
            move || write(given.recv().expect("the buffer follows at once"))
        };
        let Ok(thread) = std::thread::Builder::new().spawn(in_thread) else {
            // There are no more threads.
            let (spare, run) = write(full);
            self.spare = spare;
            return self.levels.add(run?);
        };
        give.send(full).expect("the thread waits for it");
        self.writing = Some(thread);
        Ok(())
    }

    /// Takes the run that is being written.
    fn await_run(&mut self) -> Result<()> {
        let Some(writing) = self.writing.take() else {
            return Ok(());
        };
        let (spare, run) = writing.join().expect("sorting and writing do not panic");
        self.spare = spare;
        self.levels.add(run?)
    }

    fn error(&self, action: &'static str) -> impl Fn(io::Error) -> SpillError + use<> {
        error(action, &self.directory)
    }
}

fn error(action: &'static str, directory: &Path) -> impl Fn(io::Error) -> SpillError + use<> {
    let directory = directory.to_path_buf();
    move |source| SpillError {
        action,
        directory: directory.clone(),
        source,
    }
}

/// Collects records that are read at any place once they are sorted.
pub struct RunsSorter(Sorter);

impl RunsSorter {
    /// As [`Sorter::new`].
    pub fn new(directory: &Path, memory_bytes: usize) -> RunsSorter {
        let sorter = Sorter::with_layout(directory, memory_bytes, Layout::IN_BLOCKS);
        RunsSorter(sorter)
    }

    /// Adds a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.push(key, value)
    }

    /// Adds a record whose key and value are in two and three parts.
    pub fn push_parts(&mut self, key: [&[u8]; 2], value: [&[u8]; 3]) -> Result<()> {
        self.0.push_parts(key, value)
    }

    /// Sorts what is left; the sorted runs are merged until they are at most so many.
    pub fn finish(mut self, runs_max: usize) -> Result<Runs> {
        Ok(Runs::new(self.0.write_rest()?.into_runs(runs_max)?))
    }
}

/// Sorted records, to be taken one by one.
pub struct Sorted {
    records: u64,
    directory: PathBuf,
    from: From,
}

enum From {
    Memory { buffer: Buffer, next: usize },
    Runs(Merge),
}

impl Sorted {
    /// Number of all records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The next record, key and value; valid until the next call.
    #[allow(
        clippy::type_complexity,
        reason = "a name would say less than the two slices"
    )]
    pub fn next_record(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.from {
            From::Memory { buffer, next } => {
                *next += 1;
                let slot = buffer.slots.get(*next - 1);
                Ok(slot.map(|slot| buffer.record(slot)))
            }
            From::Runs(merge) => merge.next_record().map_err(error("read", &self.directory)),
        }
    }

    /// The record that was handed out last; `None` before the first and after the last.
    #[allow(
        clippy::type_complexity,
        reason = "a name would say less than the two slices"
    )]
    pub fn current(&self) -> Option<(&[u8], &[u8])> {
        match &self.from {
            From::Memory { buffer, next } => {
                let slot = buffer.slots.get(next.checked_sub(1)?);
                slot.map(|slot| buffer.record(slot))
            }
            From::Runs(merge) => merge.current(),
        }
    }
}

impl Iterator for Sorted {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.next_record().transpose()?;
        Some(record.map(|(key, value)| (key.to_vec(), value.to_vec())))
    }
}

/// Records one after the other, and where each is.
#[derive(Default)]
struct Buffer {
    data: Vec<u8>,
    slots: Vec<RecordIndex>,
}

#[derive(Clone, Copy)]
struct RecordIndex {
    prefix: Prefix,
    at: u32,
    key_len: u32,
    value_len: u32,
}

/// First bytes of a key as big-endian numbers: decides most comparisons without touching the
/// record.
type Prefix = (u64, u64);

impl Buffer {
    fn bytes(&self) -> usize {
        self.data.len() + self.slots.len() * size_of::<RecordIndex>()
    }

    fn push_parts(&mut self, key: [&[u8]; 2], value: [&[u8]; 3]) {
        let at = self.data.len();
        key.iter()
            .for_each(|part| self.data.extend_from_slice(part));
        let value_at = self.data.len();
        value
            .iter()
            .for_each(|part| self.data.extend_from_slice(part));
        self.slots.push(RecordIndex {
            prefix: prefix(&self.data[at..value_at]),
            at: at as u32,
            key_len: (value_at - at) as u32,
            value_len: (self.data.len() - value_at) as u32,
        });
    }

    /// A buffer that becomes large gets all its room at once: growing step by step copies it. Room
    /// that is not used takes no memory.
    fn grow_at_once(&mut self, bytes_max: usize) {
        if self.data.len() >= GROWN_BYTES && self.data.capacity() < bytes_max {
            self.data.reserve_exact(bytes_max - self.data.len());
            let slots_max = bytes_max / size_of::<RecordIndex>();
            self.slots.reserve_exact(slots_max - self.slots.len());
        }
    }

    fn key(&self, slot: &RecordIndex) -> &[u8] {
        &self.data[slot.at as usize..][..slot.key_len as usize]
    }

    fn record(&self, slot: &RecordIndex) -> (&[u8], &[u8]) {
        self.data[slot.at as usize..][..(slot.key_len + slot.value_len) as usize]
            .split_at(slot.key_len as usize)
    }

    fn sort(&mut self) {
        let mut slots = std::mem::take(&mut self.slots);
        self.sort_slots(&mut slots);
        self.slots = slots;
    }

    fn sort_slots(&self, slots: &mut [RecordIndex]) {
        slots.sort_unstable_by(|a, b| {
            a.prefix
                .cmp(&b.prefix)
                .then_with(|| self.key(a).cmp(self.key(b)))
                .then(a.at.cmp(&b.at))
        });
    }

    fn write_sorted(
        &self,
        slots: &mut [RecordIndex],
        place: RunPlace,
        layout: Layout,
        directory: &Path,
    ) -> Result<SortedRun> {
        self.sort_slots(slots);
        let mut writer = RunWriter::new(place, layout);
        for slot in slots {
            let (key, value) = self.record(slot);
            let written = writer.push(key, value);
            written.map_err(error("write", directory))?;
        }
        writer.finish().map_err(error("write", directory))
    }

    /// Sorts and writes all records: as two runs at once, the earlier records first, if there are
    /// many.
    fn write_halves(mut self, layout: Layout, directory: &Path) -> Result<Vec<SortedRun>> {
        let mut slots = std::mem::take(&mut self.slots);
        let write = |slots: &mut [RecordIndex]| {
            let place = RunPlace::in_new_file(directory).map_err(error("create", directory))?;
            self.write_sorted(slots, place, layout, directory)
        };
        if slots.is_empty() {
            return Ok(Vec::new());
        }
        if slots.len() < HALVED_RECORDS_MIN {
            return Ok(vec![write(&mut slots)?]);
        }
        let middle = slots.len() / 2;
        let (first, second) = slots.split_at_mut(middle);
        let halves = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, || write(first));
            let thread = thread.ok()?;
            let second = write(second);
            let first = thread.join().expect("sorting and writing do not panic");
            Some([first, second])
        });
        match halves {
            Some(halves) => halves.into_iter().collect(),
            // There are no more threads.
            None => Ok(vec![write(&mut slots)?]),
        }
    }

    fn clear(&mut self) {
        self.data.clear();
        self.slots.clear();
    }
}

/// Equal prefixes say nothing; a lesser prefix is a lesser key.
fn prefix(key: &[u8]) -> Prefix {
    if let Some(first) = key.first_chunk::<16>() {
        let whole = u128::from_be_bytes(*first);
        return ((whole >> 64) as u64, whole as u64);
    }
    let mut first = [0; 16];
    first[..key.len()].copy_from_slice(key);
    let whole = u128::from_be_bytes(first);
    ((whole >> 64) as u64, whole as u64)
}
