//! Chunks that are kept while they may be wanted again, and threads that read some of them before.
//!
//! Each is read by one thread at a time, whoever waits for it. One that cannot be read is not
//! remembered: who wants it again tries again.

use crate::ChunkSource;
use crate::seams::text_of;
use bale_format::{ChunkId, ChunkKind};
use bale_pipeline::memory::MemoryPlan;
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Chunks that wait to be read ahead; the oldest are forgotten.
const WAITING_MAX: usize = 64;

/// Dropping it ends its threads.
pub struct CachedChunks {
    shared: Arc<SharedChunks>,
    threads: Vec<JoinHandle<()>>,
}

struct SharedChunks {
    source: Arc<dyn ChunkSource + Send>,
    bytes_max: usize,
    /// By all threads together: each takes memory.
    reads_max: usize,
    state: Mutex<State>,
    /// A chunk is there or is not coming, and another may be read.
    arrived: Condvar,
    /// Something waits to be read ahead, or all is over.
    called: Condvar,
}

#[derive(Default)]
struct State {
    chunks: HashMap<ChunkId, Slot>,
    /// Those that are there, by when they were used.
    by_use: BTreeMap<u64, ChunkId>,
    uses: u64,
    bytes: usize,
    reads: usize,
    waiting: VecDeque<ChunkId>,
    is_over: bool,
}

enum Slot {
    Coming,
    Here { bytes: Bytes, used: u64 },
}

impl CachedChunks {
    /// Keeps what a plan has memory for.
    pub fn start(
        source: Arc<dyn ChunkSource + Send>,
        memory: &MemoryPlan,
    ) -> io::Result<CachedChunks> {
        let threads = super::reads_at_once(memory);
        let shared = Arc::new(SharedChunks {
            source,
            bytes_max: super::chunks_bytes(memory),
            reads_max: threads,
            state: Mutex::default(),
            arrived: Condvar::new(),
            called: Condvar::new(),
        });
        let mut chunks = CachedChunks {
            shared,
            threads: Vec::new(),
        };
        for _ in 0..threads {
            let shared = chunks.shared.clone();
            let thread = std::thread::Builder::new().name("image-ahead".to_owned());
            chunks
                .threads
                .push(thread.spawn(move || shared.read_what_waits())?);
        }
        Ok(chunks)
    }

    /// Without a thread: nothing is read ahead. So many are read at once, and so many bytes kept.
    pub fn without_threads(
        source: Arc<dyn ChunkSource + Send>,
        reads_max: usize,
        bytes_max: usize,
    ) -> CachedChunks {
        CachedChunks {
            shared: Arc::new(SharedChunks {
                source,
                bytes_max,
                reads_max,
                state: Mutex::default(),
                arrived: Condvar::new(),
                called: Condvar::new(),
            }),
            threads: Vec::new(),
        }
    }

    /// One chunk, whole; why not, if it cannot be had.
    pub fn read(&self, id: &ChunkId) -> Result<Bytes, String> {
        self.shared.read(id)
    }

    /// These will be read next, in this order.
    pub fn read_ahead(&self, ids: &[ChunkId]) {
        let mut state = self.shared.lock();
        let unknown = |id: &&ChunkId| !state.chunks.contains_key(id) && !state.waiting.contains(id);
        let new: Vec<ChunkId> = ids.iter().filter(unknown).copied().collect();
        if new.is_empty() {
            return;
        }
        if self.shared.source.is_far_away() {
            drop(state);
            self.shared.source.expect(&new);
            state = self.shared.lock();
        }
        state.waiting.extend(new);
        let excess = state.waiting.len().saturating_sub(WAITING_MAX);
        state.waiting.drain(..excess);
        drop(state);
        self.shared.called.notify_all();
    }
}

impl Drop for CachedChunks {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.called.notify_all();
        for thread in self.threads.drain(..) {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl SharedChunks {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_what_waits(&self) {
        let mut state = self.lock();
        while !state.is_over {
            let Some(id) = state.waiting.pop_front() else {
                let woken = self.called.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            if state.chunks.contains_key(&id) {
                continue;
            }
            drop(state);
            // Whoever wants it will be told why.
            let _ = self.read(&id);
            state = self.lock();
        }
    }

    fn read(&self, id: &ChunkId) -> Result<Bytes, String> {
        let mut state = self.lock();
        loop {
            match state.used(id) {
                Some(Some(bytes)) => return Ok(bytes),
                None if state.reads < self.reads_max => break,
                _ => {
                    let woken = self.arrived.wait(state);
                    state = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
        state.chunks.insert(*id, Slot::Coming);
        state.reads += 1;
        drop(state);
        let coming = Coming { chunks: self, id };
        let read = self.source.read(id, ChunkKind::Data);
        if let Ok(bytes) = &read {
            self.lock().keep(*id, bytes.clone(), self.bytes_max);
        }
        drop(coming);
        read.map_err(|trouble| text_of(&trouble))
    }
}

/// A chunk that a thread reads; whatever becomes of that, others do not wait for it for ever.
struct Coming<'a> {
    chunks: &'a SharedChunks,
    id: &'a ChunkId,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        let mut state = self.chunks.lock();
        state.reads -= 1;
        if matches!(state.chunks.get(self.id), Some(Slot::Coming)) {
            state.chunks.remove(self.id);
        }
        drop(state);
        self.chunks.arrived.notify_all();
    }
}

impl State {
    /// `Some(None)`: it is coming.
    fn used(&mut self, id: &ChunkId) -> Option<Option<Bytes>> {
        match self.chunks.get_mut(id)? {
            Slot::Coming => Some(None),
            Slot::Here { bytes, used } => {
                self.by_use.remove(used);
                self.uses += 1;
                *used = self.uses;
                self.by_use.insert(self.uses, *id);
                Some(Some(bytes.clone()))
            }
        }
    }

    fn keep(&mut self, id: ChunkId, bytes: Bytes, bytes_max: usize) {
        self.uses += 1;
        self.bytes += bytes.len();
        self.by_use.insert(self.uses, id);
        let used = self.uses;
        self.chunks.insert(id, Slot::Here { bytes, used });
        while self.bytes > bytes_max
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            if let Some(Slot::Here { bytes, .. }) = self.chunks.remove(&oldest) {
                self.bytes -= bytes.len();
            }
        }
    }
}
