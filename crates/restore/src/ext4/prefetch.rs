//! Prefetch: small files whose chunk holds little else that is needed nearby are extracted early,
//! in the order of the packs, into scratch space.
//!
//! A chunk holds thousands of small files, mostly neighbours. But a file with the content of an
//! earlier one points into the chunk of that one, and what many backups stored lies in a chunk of
//! each. To open a chunk of megabytes for every such file would take many times longer than all
//! other work. So the first reading of the catalog finds them; each of their chunks is opened once,
//! in the order of the packs; and their bytes, sorted by where they come, wait in scratch space.
//!
//! This only saves time. Without the scratch space, or beyond its bound, chunks are fetched where
//! they are needed.

use super::linked_rows::differs;
use super::work::{Work, ahead_bytes};
use crate::row::bundled;
use crate::scratch::{PairSorter, SortedPairs};
use crate::seams::text_of;
use crate::{ChunkSource, RestoreError};
use bale_format::limits::{BUNDLE_BYTES_MAX, BUNDLE_BYTES_MIN};
use bale_format::scratch::ScratchKey;
use bale_format::{ChunkId, ChunkKind, Content, Entry, Kind};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::ordered::in_order;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;

/// Chunks that are taken to be kept by the reading that fetches: fewer than it keeps, for some are
/// still on their way.
const fn chunks_kept(ahead_bytes: usize) -> usize {
    ahead_bytes / BUNDLE_BYTES_MAX * 7 / 8
}
const _: () = assert!(chunks_kept(ahead_bytes(&MemoryPlan::USUAL, false)) == 16);
const _: () = assert!(chunks_kept(ahead_bytes(&MemoryPlan::USUAL, true)) == 6);
/// A chunk of which so much is needed before it makes way is worth being fetched.
const VISIT_BYTES_MIN: u64 = BUNDLE_BYTES_MIN as u64 / 4;
/// And one that so many files need.
const VISIT_FILES_MIN: usize = 4096;
/// Content that may wait in scratch space.
const PREFETCH_BYTES_MAX: u64 = 16 << 30;
/// Memory of each of the two sorters, which follow each other.
const SORTER_BYTES: usize = 8 << 20;
/// Files of one chunk that are taken out together; for more it is opened again.
const TASK_FILES_MAX: usize = 16 << 10;
/// And their bytes.
const TASK_BYTES_MAX: u64 = BUNDLE_BYTES_MAX as u64;
/// Tasks whose chunks are said to be expected before their turn, where they are far away: 256 KiB
/// each at most.
const TASKS_AHEAD_MAX: usize = 16;

const _: () = assert!(VISIT_BYTES_MIN < u32::MAX as u64 && BUNDLE_BYTES_MAX < u32::MAX as usize);

/// Finds files worth prefetching while the catalog is read for counting.
pub struct PrefetchPlanner {
    /// The chunk needed last is the last.
    visits: VecDeque<ChunkVisit>,
    by_place: PairSorter,
    bytes: u64,
    files: u64,
}

/// What a chunk is needed for while it is kept.
struct ChunkVisit {
    chunk: ChunkId,
    /// Empty when it is worth being fetched.
    files: Vec<FileInChunk>,
    bytes: u64,
}

/// A file in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileInChunk {
    /// Of its row.
    position: u64,
    offset: u32,
    bytes: u32,
}

impl PrefetchPlanner {
    pub fn new(work: &Work) -> PrefetchPlanner {
        PrefetchPlanner {
            visits: VecDeque::new(),
            by_place: work.scratch.sorter(SORTER_BYTES),
            bytes: 0,
            files: 0,
        }
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
    fn begin(&mut self, chunk: ChunkId, work: &Work) -> Result<ChunkVisit, RestoreError> {
        let mut files = Vec::new();
        if self.visits.len() >= chunks_kept(work.ahead_bytes())
            && let Some(ended) = self.visits.pop_front()
        {
            self.plan_prefetch(&ended, work)
                .map_err(RestoreError::Scratch)?;
            files = ended.files;
            files.clear();
        }
        Ok(ChunkVisit {
            chunk,
            files,
            bytes: 0,
        })
    }

    fn plan_prefetch(&mut self, visit: &ChunkVisit, work: &Work) -> io::Result<()> {
        let Some(place) = work.chunks.place(&visit.chunk) else {
            return Ok(()); // Told when its turn comes.
        };
        if visit.is_worth_fetching() || self.bytes + visit.bytes > PREFETCH_BYTES_MAX {
            return Ok(());
        }
        self.bytes += visit.bytes;
        self.files += visit.files.len() as u64;
        for part in &visit.files {
            let mut key = [0; 20];
            key[..12].copy_from_slice(&place.sort_key());
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
    pub fn fetch(self, work: &Work) -> Result<PrefetchedFiles, RestoreError> {
        if self.files == 0 {
            return Ok(PrefetchedFiles::nothing());
        }
        match fetch(self.by_place, work) {
            // It was to save time only.
            Err(RestoreError::Scratch(_)) => Ok(PrefetchedFiles::nothing()),
            fetched => fetched,
        }
    }
}

impl ChunkVisit {
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
        self.files.push(FileInChunk {
            position,
            offset,
            bytes: size as u32,
        });
    }
}

/// Files of one chunk.
struct PrefetchTask {
    chunk: ChunkId,
    parts: Vec<FileInChunk>,
}

fn fetch(by_place: PairSorter, work: &Work) -> Result<PrefetchedFiles, RestoreError> {
    let tasks = Tasks {
        rows: by_place.finish().map_err(RestoreError::Scratch)?,
        next: None,
        chunks: work.chunks,
        waiting: VecDeque::new(),
    };
    let mut by_position = work.scratch.sorter(SORTER_BYTES);
    let random = bale_pipeline::random::draw(&bale_pipeline::random::OsRandom)
        .map_err(RestoreError::Scratch)?;
    let key = ScratchKey::new(&random);
    in_order(
        tasks,
        || (),
        |(), task| {
            Ok((
                task_done(&task?, work.chunks, &key),
                work.monitor.interrupted(),
            ))
        },
        |done: io::Result<(Vec<Record>, bool)>| {
            let (records, stop) = done.map_err(RestoreError::Scratch)?;
            if stop {
                return Err(RestoreError::Stopped);
            }
            for record in records {
                let pushed = by_position.push(&record.position.to_be_bytes(), &record.bytes);
                pushed.map_err(RestoreError::Scratch)?;
            }
            work.progress.add(0, 0);
            Ok(())
        },
    )?;
    Ok(PrefetchedFiles {
        sorted: by_position.finish().map_err(RestoreError::Scratch)?,
        key: Some(key),
        next: None,
    })
}

/// Puts files of one chunk together.
struct Tasks<'a> {
    rows: SortedPairs,
    next: Option<(ChunkId, FileInChunk)>,
    chunks: &'a dyn ChunkSource,
    waiting: VecDeque<io::Result<PrefetchTask>>,
}

impl Tasks<'_> {
    fn expect_more(&mut self) {
        while self.waiting.len() < TASKS_AHEAD_MAX
            && let Some(task) = self.next_task().transpose()
        {
            if let Ok(task) = &task {
                self.chunks.expect(&[task.chunk]);
            }
            self.waiting.push_back(task);
        }
    }

    fn next_part(&mut self) -> io::Result<Option<(ChunkId, FileInChunk)>> {
        if let Some(next) = self.next.take() {
            return Ok(Some(next));
        }
        let Some((key, value)) = self.rows.next().transpose()? else {
            return Ok(None);
        };
        decode(&key, &value).map(Some).ok_or_else(damaged)
    }

    fn next_task(&mut self) -> io::Result<Option<PrefetchTask>> {
        let Some((chunk, first)) = self.next_part()? else {
            return Ok(None);
        };
        let (mut parts, mut bytes) = (vec![first], u64::from(first.bytes));
        while let Some((other, part)) = self.next_part()? {
            bytes += u64::from(part.bytes);
            let is_full = parts.len() == TASK_FILES_MAX || bytes > TASK_BYTES_MAX;
            if other != chunk || is_full {
                self.next = Some((other, part));
                break;
            }
            parts.push(part);
        }
        Ok(Some(PrefetchTask { chunk, parts }))
    }
}

impl Iterator for Tasks<'_> {
    type Item = io::Result<PrefetchTask>;

    fn next(&mut self) -> Option<io::Result<PrefetchTask>> {
        if !self.chunks.is_far_away() {
            return self.next_task().transpose();
        }
        self.expect_more();
        self.waiting.pop_front()
    }
}

fn decode(key: &[u8], value: &[u8]) -> Option<(ChunkId, FileInChunk)> {
    let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
    let part = FileInChunk {
        position: u64::from_be_bytes(key.get(12..)?.try_into().ok()?),
        offset: number(value.get(32..36)?)?,
        bytes: number(value.get(36..)?)?,
    };
    Some((ChunkId::from_slice(value.get(..32)?).ok()?, part))
}

/// First byte of what waits: after the check, the bytes of a file follow, or why they cannot be
/// had.
const FETCHED: u8 = 0;
const FAILED: u8 = 1;
/// That byte, and what tells whether it is still the same row: the beginning of the chunk's id, and
/// the offset.
const HEAD_BYTES: usize = 13;

fn head_of(is: u8, chunk: &ChunkId, offset: u32) -> [u8; HEAD_BYTES] {
    let mut head = [is; HEAD_BYTES];
    head[1..9].copy_from_slice(&chunk.0[..8]);
    head[9..].copy_from_slice(&offset.to_le_bytes());
    head
}

/// What waits for the row at a position.
struct Record {
    position: u64,
    bytes: Vec<u8>,
}

/// Takes files out of their chunk. What waits is sealed with a key of this run.
fn task_done(task: &PrefetchTask, chunks: &dyn ChunkSource, key: &ScratchKey) -> Vec<Record> {
    let chunk = chunks.read(&task.chunk, ChunkKind::Data);
    let chunk = chunk.map_err(|trouble| text_of(&trouble));
    let record = |part: &FileInChunk| {
        let chunk = chunk.as_ref().map_err(String::clone);
        let found = chunk.and_then(|chunk| bundled(chunk, part.offset, u64::from(part.bytes)));
        let (is, content) = match &found {
            Ok(bytes) => (FETCHED, *bytes),
            Err(text) => (FAILED, text.as_bytes()),
        };
        let mut bytes = [&head_of(is, &task.chunk, part.offset)[..], content].concat();
        // No two rows have one position.
        key.seal_in_place(part.position, &mut bytes);
        Record {
            position: part.position,
            bytes,
        }
    };
    task.parts.iter().map(record).collect()
}

/// Contents by the position of their rows.
pub struct PrefetchedFiles {
    sorted: SortedPairs,
    /// There is one if anything was set apart.
    key: Option<ScratchKey>,
    next: Option<(u64, Vec<u8>)>,
}

/// The bytes of a small file, or why they cannot be had.
pub type Fetched = Result<Bytes, String>;

impl PrefetchedFiles {
    /// Everything is fetched where it is needed.
    pub fn nothing() -> PrefetchedFiles {
        PrefetchedFiles {
            sorted: Box::new(std::iter::empty()),
            key: None,
            next: None,
        }
    }

    /// Was nothing set apart?
    pub fn is_nothing(&self) -> bool {
        self.key.is_none()
    }

    /// The content of the row at this position, which is at `offset` of a chunk, if it is here;
    /// positions ascend.
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
            let at = key
                .try_into()
                .map_err(|_| RestoreError::Scratch(damaged()))?;
            self.next = Some((u64::from_be_bytes(at), record));
        }
        let Some((_, record)) = self.next.take_if(|next| next.0 == position) else {
            return Ok(None);
        };
        let mut record = record;
        let key = self.key.as_ref();
        let opened = key.and_then(|key| key.open_in_place(position, &mut record).ok());
        let len = opened.map(|plain| plain.len());
        record.truncate(len.ok_or_else(|| RestoreError::Scratch(damaged()))?);
        let mut bytes = Bytes::from(record);
        if bytes.len() < HEAD_BYTES {
            return Err(RestoreError::Scratch(damaged()));
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

fn damaged() -> io::Error {
    let what = "a row of the contents set apart is damaged";
    io::Error::new(io::ErrorKind::InvalidData, what)
}
