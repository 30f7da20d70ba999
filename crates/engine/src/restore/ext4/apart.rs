//! Small files of chunks that are needed for little else where these files come.
//!
//! A chunk holds thousands of small files, mostly neighbours. But a file with the content of an earlier one points into the
//! chunk of that one, and what many backups stored lies in a chunk of each. To open a chunk of megabytes for every such
//! file would take many times longer than all other work. So the first reading of the catalog finds them; each of their
//! chunks is opened once, in the order of the packs; and their bytes, sorted by where they come, wait in scratch space.
//!
//! This only saves time. Without the scratch space, or beyond its bound, chunks are fetched where they are needed.

use super::content::bundled;
use super::links::differs;
use super::work::Work;
use crate::limits::{BUNDLE_BYTES_MAX, BUNDLE_BYTES_MIN};
use crate::restore::plan::text_of;
use crate::restore::sort::{Sorted, Sorter};
use crate::restore::{ChunkSource, ChunkUse, RestoreError};
use bale_format::{ChunkId, Content, Entry, Kind};
use bytes::Bytes;
use crossbeam_channel::{Receiver, bounded};
use std::collections::VecDeque;
use std::io;
use std::sync::Mutex;

/// Chunks that are taken to be kept by the reading that fetches: fewer than it keeps, for some are still on their way.
const CHUNKS_KEPT: usize = 16;
/// A chunk of which so much is needed before it makes way is worth being fetched.
const VISIT_BYTES_MIN: u64 = BUNDLE_BYTES_MIN as u64 / 4;
/// And one that so many files need.
const VISIT_FILES_MIN: usize = 4096;
/// Content that may wait in scratch space.
const APART_BYTES_MAX: u64 = 16 << 30;
/// Memory of each of the two sorters, which follow each other.
const SORTER_BYTES: usize = 16 << 20;
/// Files of one chunk that are taken out together; for more it is opened again.
const TASK_FILES_MAX: usize = 16 << 10;
/// Chunks waiting for a thread, for each thread.
const TASKS_WAITING_MAX: usize = 2;
/// Threads that open chunks, at 4 MiB each and as much again while they are opened.
const THREADS_MAX: usize = 8;

const _: () = assert!(VISIT_BYTES_MIN < u32::MAX as u64 && BUNDLE_BYTES_MAX < u32::MAX as usize);

/// Looks for them while the catalog is read.
pub struct ApartFinder {
    /// The chunk needed last is the last.
    visits: VecDeque<Visit>,
    by_place: Box<dyn Sorter>,
    bytes: u64,
    files: u64,
}

/// What a chunk is needed for while it is kept.
struct Visit {
    chunk: ChunkId,
    /// Empty when it is worth being fetched.
    files: Vec<Part>,
    bytes: u64,
}

/// A file in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// Of its row.
    position: u64,
    offset: u32,
    bytes: u32,
}

impl ApartFinder {
    pub fn new(work: &Work) -> Result<ApartFinder, RestoreError> {
        let by_place = work.scratch.sorter(SORTER_BYTES);
        Ok(ApartFinder {
            visits: VecDeque::with_capacity(CHUNKS_KEPT),
            by_place: by_place.map_err(RestoreError::Scratch)?,
            bytes: 0,
            files: 0,
        })
    }

    /// Takes note of the row at this position.
    pub fn see(&mut self, position: u64, entry: &Entry, work: &Work) -> Result<(), RestoreError> {
        let Content::Bundled { chunk, offset } = &entry.content else {
            return Ok(());
        };
        if entry.kind != Kind::File || entry.size == 0 {
            return Ok(());
        }
        let mut visit = match self.visits.iter().rposition(|visit| visit.chunk == *chunk) {
            Some(at) => self.visits.remove(at).expect("the position was just found"),
            None => self.begin(*chunk, work)?,
        };
        visit.add(position, *offset, entry.size);
        self.visits.push_back(visit);
        Ok(())
    }

    /// A new visit. The one that this chunk makes way for has ended.
    fn begin(&mut self, chunk: ChunkId, work: &Work) -> Result<Visit, RestoreError> {
        let mut files = Vec::new();
        if self.visits.len() == CHUNKS_KEPT
            && let Some(ended) = self.visits.pop_front()
        {
            self.set_apart(&ended, work)
                .map_err(RestoreError::Scratch)?;
            files = ended.files;
            files.clear();
        }
        Ok(Visit {
            chunk,
            files,
            bytes: 0,
        })
    }

    fn set_apart(&mut self, visit: &Visit, work: &Work) -> io::Result<()> {
        let Some(place) = work.chunks.place(&visit.chunk) else {
            return Ok(()); // Told when its turn comes.
        };
        if visit.is_worth_fetching() || self.bytes + visit.bytes > APART_BYTES_MAX {
            return Ok(());
        }
        self.bytes += visit.bytes;
        self.files += visit.files.len() as u64;
        for part in &visit.files {
            let mut key = [0; 20];
            key[..4].copy_from_slice(&place.pack.to_be_bytes());
            key[4..12].copy_from_slice(&place.offset.to_be_bytes());
            key[12..].copy_from_slice(&part.position.to_be_bytes());
            let mut value = [0; 40];
            value[..32].copy_from_slice(&visit.chunk.0);
            value[32..36].copy_from_slice(&part.offset.to_le_bytes());
            value[36..].copy_from_slice(&part.bytes.to_le_bytes());
            self.by_place.push(&key, &value)?;
        }
        Ok(())
    }

    /// Takes what was found out of its chunks.
    pub fn fetch(self, work: &Work) -> Result<Apart, RestoreError> {
        if self.files == 0 {
            return Ok(Apart::nothing());
        }
        match fetch(self.by_place, work) {
            // It was to save time only.
            Err(RestoreError::Scratch(_)) => Ok(Apart::nothing()),
            fetched => fetched,
        }
    }
}

impl Visit {
    fn is_worth_fetching(&self) -> bool {
        self.bytes >= VISIT_BYTES_MIN || self.files.is_empty()
    }

    fn add(&mut self, position: u64, offset: u32, size: u64) {
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes >= VISIT_BYTES_MIN || self.files.len() == VISIT_FILES_MIN {
            self.bytes = self.bytes.max(VISIT_BYTES_MIN);
            self.files.clear();
            return;
        }
        self.files.push(Part {
            position,
            offset,
            bytes: size as u32,
        });
    }
}

/// Files of one chunk.
struct Task {
    chunk: ChunkId,
    parts: Vec<Part>,
}

fn fetch(by_place: Box<dyn Sorter>, work: &Work) -> Result<Apart, RestoreError> {
    let rows = by_place.finish().map_err(RestoreError::Scratch)?;
    let sorter = work.scratch.sorter(SORTER_BYTES);
    let by_position = Mutex::new(sorter.map_err(RestoreError::Scratch)?);
    let threads = work.fetchers().min(THREADS_MAX);
    let (tasks, waiting) = bounded(threads * TASKS_WAITING_MAX);
    std::thread::scope(|scope| {
        let mut workers = Vec::new();
        for number in 0..threads {
            let (waiting, by_position) = (waiting.clone(), &by_position);
            let take_out = move || take_out(&waiting, work.chunks, by_position);
            match std::thread::Builder::new().spawn_scoped(scope, take_out) {
                Ok(worker) => workers.push(worker),
                // Fewer take longer.
                Err(error) if number == 0 => return Err(RestoreError::Threads(error)),
                Err(_) => break,
            }
        }
        drop(waiting);
        let fed = feed(rows, work, |task| tasks.send(task).is_ok());
        drop(tasks);
        let ended = workers
            .into_iter()
            .map(|worker| worker.join().expect("taking out does not panic"));
        let done: io::Result<Vec<()>> = ended.collect();
        fed?;
        done.map_err(RestoreError::Scratch).map(|_| ())
    })?;
    let sorter = by_position.into_inner();
    let sorter = sorter.expect("no holder of this lock panics");
    Ok(Apart {
        sorted: sorter.finish().map_err(RestoreError::Scratch)?,
        next: None,
    })
}

/// Hands over the files of each chunk, until nobody takes them.
fn feed(rows: Sorted, work: &Work, mut send: impl FnMut(Task) -> bool) -> Result<(), RestoreError> {
    let mut task: Option<Task> = None;
    for pair in rows {
        let (key, value) = pair.map_err(RestoreError::Scratch)?;
        let (chunk, part) = decode(&key, &value).ok_or_else(damaged)?;
        let is_other = |task: &Task| task.chunk != chunk || task.parts.len() == TASK_FILES_MAX;
        if let Some(full) = task.take_if(|task| is_other(task)) {
            if work.monitor.stop() {
                return Err(RestoreError::Stopped);
            }
            work.monitor.progress(0, 0);
            if !send(full) {
                return Ok(());
            }
        }
        let new = || Task {
            chunk,
            parts: Vec::new(),
        };
        task.get_or_insert_with(new).parts.push(part);
    }
    if let Some(last) = task {
        let _whoever_left_tells_why = send(last);
    }
    Ok(())
}

fn decode(key: &[u8], value: &[u8]) -> Option<(ChunkId, Part)> {
    let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
    let part = Part {
        position: u64::from_be_bytes(key.get(12..)?.try_into().ok()?),
        offset: number(value.get(32..36)?)?,
        bytes: number(value.get(36..)?)?,
    };
    Some((ChunkId::from_slice(value.get(..32)?).ok()?, part))
}

/// First byte of what waits: after the check, the bytes of a file follow, or why they cannot be had.
const FETCHED: u8 = 0;
const FAILED: u8 = 1;
/// That byte, and what tells whether it is still the same row: the beginning of the chunk's id, and the offset.
const HEAD_BYTES: usize = 13;

fn head_of(is: u8, chunk: &ChunkId, offset: u32) -> [u8; HEAD_BYTES] {
    let mut head = [is; HEAD_BYTES];
    head[1..9].copy_from_slice(&chunk.0[..8]);
    head[9..].copy_from_slice(&offset.to_le_bytes());
    head
}

/// Takes files out of chunks until there are no more.
fn take_out(
    tasks: &Receiver<Task>,
    chunks: &dyn ChunkSource,
    by_position: &Mutex<Box<dyn Sorter>>,
) -> io::Result<()> {
    let mut record = Vec::new();
    for task in tasks {
        let chunk = chunks.read(&task.chunk, ChunkUse::Data);
        let chunk = chunk.map_err(|trouble| text_of(&trouble));
        let mut sorter = by_position.lock().expect("no holder of this lock panics");
        for part in &task.parts {
            let bytes = chunk.as_ref().map_err(String::clone);
            let bytes = bytes.and_then(|chunk| bundled(chunk, part.offset, u64::from(part.bytes)));
            let (is, content) = match &bytes {
                Ok(bytes) => (FETCHED, *bytes),
                Err(text) => (FAILED, text.as_bytes()),
            };
            record.clear();
            record.extend_from_slice(&head_of(is, &task.chunk, part.offset));
            record.extend_from_slice(content);
            sorter.push(&part.position.to_be_bytes(), &record)?;
        }
    }
    Ok(())
}

/// Contents by the position of their rows.
pub struct Apart {
    sorted: Sorted,
    next: Option<(u64, Vec<u8>)>,
}

/// The bytes of a small file, or why they cannot be had.
pub type Fetched = Result<Bytes, String>;

impl Apart {
    /// Everything is fetched where it is needed.
    pub fn nothing() -> Apart {
        Apart {
            sorted: Box::new(std::iter::empty()),
            next: None,
        }
    }

    /// The content of the row at this position, which is at `offset` of a chunk, if it is here; positions ascend.
    pub fn at(
        &mut self,
        position: u64,
        (chunk, offset): (&ChunkId, u32),
    ) -> Result<Option<Fetched>, RestoreError> {
        while self.next.as_ref().is_none_or(|next| next.0 < position) {
            let Some(pair) = self.sorted.next() else {
                return Ok(None);
            };
            let (key, record) = pair.map_err(RestoreError::Scratch)?;
            let at = key.try_into().map_err(|_| damaged())?;
            self.next = Some((u64::from_be_bytes(at), record));
        }
        let Some((_, record)) = self.next.take_if(|next| next.0 == position) else {
            return Ok(None);
        };
        let mut bytes = Bytes::from(record);
        if bytes.len() < HEAD_BYTES {
            return Err(damaged());
        }
        let head = bytes.split_to(HEAD_BYTES);
        if head[1..] != head_of(head[0], chunk, offset)[1..] {
            return Err(differs());
        }
        Ok(Some(match head[0] {
            FETCHED => Ok(bytes),
            _ => Err(String::from_utf8_lossy(&bytes).into_owned()),
        }))
    }
}

fn damaged() -> RestoreError {
    RestoreError::Scratch(io::Error::new(
        io::ErrorKind::InvalidData,
        "a row of the contents set apart is damaged",
    ))
}
