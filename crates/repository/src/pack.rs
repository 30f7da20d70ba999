//! Storing chunks: threads that hash, compress, seal, read back and append them to packs, and
//! threads that upload packs to stores that take them whole.
//!
//! A chunk that the repository has already, in a pack that lasts, is not stored again. Packs are
//! published once they are full, and named by an index object only after that. Which pack a chunk
//! goes to depends on threads; its id does not, and is known at once: hashing is thirty times
//! faster than compressing, so it is done by whoever submits the chunk.

mod chunk_bytes;
mod encode;
mod jobs;
mod open_pack;
mod open_packs;
mod pace;
mod plan;
mod stored_before;
mod uploads;
mod verified;

pub use chunk_bytes::ChunkBytes;
pub use open_pack::Published;
pub use plan::PackPlan;

use crate::error::{Error, Result};
use crate::limits::ENCODE_QUEUE_PER_WORKER;
use crate::repository::{NamedPacks, Repository, UnreliablePacks};
use crate::store::{Next, StoreError};
use bale_format::chunk::ChunkKind;
use bale_format::keys::Keys;
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_format::record::record_bytes;
use bale_format::{ChunkId, ChunkPlace, ObjectId, Transfers};
use crossbeam_channel::{Receiver, Sender, bounded};
use encode::EncoderShared;
use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What a writer has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounts {
    pub chunks_new: u64,
    /// Chunks that the repository had.
    pub chunks_known: u64,
    /// Bytes added to the repository, packs and index objects.
    pub bytes_stored: u64,
    /// What chunks take that the repository had, and were wanted again, in whole or in part.
    pub bytes_stored_before: u64,
}

/// Packs that were uploaded whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UploadTotals {
    pub uploads: u64,
    pub bytes: u64,
    /// Tries that failed and were followed by another.
    pub retries: u64,
    /// How long those who fill packs waited for the store, and whoever wanted all of them to be
    /// there.
    pub waited: Duration,
}

/// A look whether what a snapshot will rely on is there, begun: packs that nobody has looked at
/// since they were named, and those that were not to be relied on a moment ago.
#[derive(Debug, Default)]
pub struct LookBegun {
    pub named: NamedPacks,
    pub(crate) unreliable: Option<UnreliablePacks>,
}

impl LookBegun {
    /// The look at what is not to be relied on begins again.
    pub fn afresh(self) -> LookBegun {
        LookBegun {
            unreliable: None,
            ..self
        }
    }

    /// These packs are marked as damaged since: the look at what is not to be relied on begins
    /// again.
    pub fn before_marks(self, marked: &[ObjectId]) -> LookBegun {
        let unreliable = self.unreliable.filter(|_| marked.is_empty());
        LookBegun { unreliable, ..self }
    }
}

/// What a buffer holds that is used again: a chunk as it is sealed. Smaller ones, of segments,
/// would become as large.
const BUFFER_BYTES: usize = record_bytes(BUNDLE_BYTES_MAX);

/// A chunk on its way to an encoding thread.
struct EncodeJob {
    kind: ChunkKind,
    id: ChunkId,
    bytes: ChunkBytes,
    /// Stored whatever the index names.
    again: bool,
}

impl EncodeJob {
    /// Bytes that go to a pack of data.
    fn data_bytes(&self) -> u64 {
        match self.kind.is_metadata() {
            true => 0,
            false => self.bytes.plain().len() as u64,
        }
    }
}

/// What would come of closing the open segment now, with all that is on its way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IfClosed {
    /// Nothing is on its way, or the repository has no segments.
    Nothing,
    /// A short one, also where a full one comes before it.
    Short,
    /// One that has most of its size.
    Long,
}

/// How a writer decides what it stores.
#[derive(Default)]
pub struct WriterOptions {
    /// Bundles not to be relied on, because their files are being stored afresh.
    pub thin: HashSet<ChunkId>,
    /// Ids are computed, nothing is stored.
    pub dry_run: bool,
    /// A chunk that the index names is read and opened before it is relied on, and stored again if
    /// it does not open. So it is in any case where a mark of damaged packs cannot be read.
    pub verify: bool,
    /// How long the run has lasted when the writer starts.
    pub run_age: Duration,
}

/// Stores chunks through a bounded queue and a few threads.
pub struct ChunkWriter {
    shared: Arc<EncoderShared>,
    jobs: Option<Sender<EncodeJob>>,
    spent: Receiver<Vec<u8>>,
    workers: Vec<JoinHandle<()>>,
    /// Threads that upload packs, where they are uploaded whole.
    uploaders: Vec<JoinHandle<()>>,
}

impl ChunkWriter {
    /// Starts as many threads as the repository's [`MemoryPlan`](bale_pipeline::memory::MemoryPlan)
    /// has. `thin`: bundles not to be relied on, because their files are being stored afresh. A dry
    /// run computes ids and stores nothing.
    pub fn start(
        repository: Arc<Repository>,
        thin: HashSet<ChunkId>,
        dry_run: bool,
    ) -> Result<ChunkWriter> {
        let options = WriterOptions {
            thin,
            dry_run,
            ..WriterOptions::default()
        };
        ChunkWriter::start_with(repository, options)
    }

    /// The same with all options.
    pub fn start_with(repository: Arc<Repository>, options: WriterOptions) -> Result<ChunkWriter> {
        let count = repository.memory().workers();
        let (jobs, queue) = bounded::<EncodeJob>(count * ENCODE_QUEUE_PER_WORKER);
        let (give_back, spent) = bounded(count);
        let shared = Arc::new(EncoderShared::new(repository, options)?);
        if !shared.options.dry_run {
            shared.repository.store().expect(Next::Upload);
        }
        let mut writer = ChunkWriter {
            shared,
            jobs: Some(jobs),
            spent,
            workers: Vec::new(),
            uploaders: Vec::new(),
        };
        // Whatever fails from here on ends the threads that were started.
        for number in 0..count {
            let (shared, queue, give_back) =
                (writer.shared.clone(), queue.clone(), give_back.clone());
            let work = move || encode::work(&shared, &queue, &give_back);
            writer
                .workers
                .push(start(format!("encode-{number}"), work)?);
        }
        for number in 0..writer.shared.open.upload_threads() {
            let shared = writer.shared.clone();
            let work = move || encode::upload(&shared);
            writer
                .uploaders
                .push(start(format!("upload-{number}"), work)?);
        }
        Ok(writer)
    }

    /// Takes a chunk and tells its id. It is stored and indexed after `flush`. Blocks while all
    /// threads are busy.
    pub fn store(&self, kind: ChunkKind, bytes: Vec<u8>) -> Result<ChunkId> {
        let id = self.keys().chunk_id(kind, &bytes);
        self.store_as(kind, id, bytes)
    }

    /// As [`ChunkWriter::store`], of a chunk whose id is known already.
    pub fn store_as(
        &self,
        kind: ChunkKind,
        id: ChunkId,
        bytes: impl Into<ChunkBytes>,
    ) -> Result<ChunkId> {
        self.shared.check()?;
        if !self.shared.is_new(&id) || self.shared.options.dry_run {
            return Ok(id);
        }
        self.submit(EncodeJob {
            kind,
            id,
            bytes: bytes.into(),
            again: false,
        })?;
        Ok(id)
    }

    fn submit(&self, job: EncodeJob) -> Result<()> {
        let data_bytes = job.data_bytes();
        self.shared.jobs.begins(data_bytes);
        let jobs = self.jobs.as_ref().expect("present until finish");
        jobs.send(job).map_err(|_| {
            self.shared.jobs.ends(data_bytes, 0);
            ended()
        })
    }

    /// The repository that is written to.
    pub fn repository(&self) -> &Arc<Repository> {
        &self.shared.repository
    }

    /// Does it store nothing?
    pub fn is_dry_run(&self) -> bool {
        self.shared.options.dry_run
    }

    pub fn keys(&self) -> &Keys {
        self.shared.repository.keys()
    }

    /// Is this a bundle whose files are being stored afresh?
    pub fn is_thin(&self, id: &ChunkId) -> bool {
        self.shared.options.thin.contains(id)
    }

    /// These were stored again and need not be where they were.
    pub fn forget_reliance(&self, places: &[ChunkPlace]) {
        self.shared.forget_reliance(places);
    }

    /// An empty buffer, if possible one that has been used before.
    pub fn buffer(&self, capacity: usize) -> Vec<u8> {
        let mut buffer = self.spent.try_recv().unwrap_or_default();
        buffer.clear();
        // Sealing appends padding and a tag.
        buffer.reserve_exact(record_bytes(capacity));
        buffer
    }

    /// Does the repository have this chunk, in a pack that lasts, or has it been submitted? If so,
    /// remembers that the snapshot being made relies on it.
    pub fn rely_on(&self, id: &ChunkId) -> bool {
        self.shared.rely_on(id)
    }

    /// So many bytes of a chunk that the repository has are wanted again.
    pub fn count_known(&self, id: &ChunkId, plain_bytes: u64) {
        let shared = &self.shared;
        shared.stored_before.count(&shared.index, id, plain_bytes);
    }

    /// Waits for everything submitted, publishes all open packs, and names them in the index.
    pub fn flush(&self) -> Result<WriterCounts> {
        self.publish_all()?;
        let named = self.shared.name_all()?;
        self.repository().look_at_named(&named)?;
        Ok(self.shared.written())
    }

    /// The same up to the look at the packs that were named last: it is begun, and goes on with
    /// [`ChunkWriter::lost_since_start`] or [`Repository::look_at_named`].
    pub fn flush_before_look(&self) -> Result<LookBegun> {
        self.publish_all()?;
        let repository = self.repository();
        let (unreliable, named) =
            repository.at_once(|| repository.unreliable_packs(), || self.shared.name_all());
        Ok(LookBegun {
            named: named?,
            unreliable: Some(unreliable?),
        })
    }

    fn publish_all(&self) -> Result<()> {
        self.shared.jobs.wait_for_all();
        self.shared.check()?;
        self.shared.publish_all()
    }

    /// What would come of the open segment if [`ChunkWriter::flush`] closed it now, after so many
    /// bytes more were stored. Waits for nobody.
    pub fn if_closed(&self, more: u64) -> IfClosed {
        self.shared.if_closed(more)
    }

    /// Is anything relied on that was in the repository when this writer began?
    pub fn relies_on_others(&self) -> bool {
        self.shared.relies_on_others()
    }

    /// Chunks relied on whose packs have been condemned or have vanished since the index was
    /// loaded.
    pub fn lost_since_start(&self, begun: LookBegun) -> Result<Vec<ChunkPlace>> {
        self.shared.lost_since_start(begun)
    }

    /// Stores a chunk again although the index names it: its pack is condemned or gone.
    pub fn store_again(&self, kind: ChunkKind, id: ChunkId, bytes: Vec<u8>) -> Result<()> {
        self.submit(EncodeJob {
            kind,
            id,
            bytes: bytes.into(),
            again: true,
        })
    }

    /// Packs in which something did not open that was to be relied on. Only a writer that verifies
    /// finds any.
    pub fn packs_found_damaged(&self) -> Vec<ObjectId> {
        self.shared.packs_found_damaged()
    }

    /// What has been done so far.
    pub fn written(&self) -> WriterCounts {
        self.shared.written()
    }

    /// After a failure: names what is durable all the same, so that the next run need not store it
    /// again. What is still on its way ends first.
    pub fn name_durable(&self) -> Result<()> {
        self.shared.name_durable()
    }

    /// Names what is durable by now, and waits for nothing that is on its way.
    pub fn name_so_far(&self) -> Result<()> {
        self.shared.name_so_far()
    }

    /// Does the index name anything that this writer stored? Then another one does not store it
    /// again.
    pub fn has_named(&self) -> bool {
        self.shared.has_named()
    }

    /// The first failure of the store, if that is why storing failed: whoever comes later learns
    /// only that it did.
    pub fn store_trouble(&self) -> Option<StoreError> {
        self.shared.store_trouble()
    }

    /// What was uploaded so far; nothing where packs are streamed.
    pub fn uploads(&self) -> UploadTotals {
        self.shared.uploads()
    }

    /// The same one by one, as the record of a run has them.
    pub fn transfers(&self) -> Transfers {
        self.shared.transfers()
    }

    /// Ends the threads after everything submitted is stored and indexed.
    pub fn finish(mut self) -> Result<WriterCounts> {
        self.join();
        self.flush()
    }

    fn join(&mut self) {
        self.jobs = None;
        for worker in self.workers.drain(..) {
            if worker.join().is_err() {
                self.shared.fail(Error::Other(
                    "storing chunks: an encoding thread panicked, by a defect of Bale".to_owned(),
                ));
            }
        }
    }
}

fn start(name: String, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let failed = format!("start thread {name}");
    let thread = std::thread::Builder::new().name(name);
    let started = thread.spawn(work);
    started.map_err(|error| Error::Other(format!("{failed}: {error}")))
}

fn ended() -> Error {
    Error::Other("storing chunks: all encoding threads ended".to_owned())
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        self.join();
        if let Some(uploads) = self.shared.open.uploads() {
            uploads.end();
        }
        for uploader in self.uploaders.drain(..) {
            let _has_failed_the_run = uploader.join();
        }
    }
}
