//! The encoding threads and what they share: which chunks are known, the open packs, and what
//! awaits an index object.
//!
//! Whether a chunk is known is mostly believed of the index. A writer that verifies reads and opens
//! a copy before it relies on it, once for each chunk: of what is submitted, here in the threads
//! that encode.

mod naming;

use super::jobs::Jobs;
use super::open_pack::{OpenPack, Published};
use super::open_packs::OpenPacks;
use super::stored_before::StoredBefore;
use super::uploads::{Uploaded, Uploads};
use super::verified::Verified;
use super::{
    BUFFER_BYTES, EncodeJob, IfClosed, LookBegun, UploadTotals, WriterCounts, WriterOptions,
};
use crate::error::{Error, Result};
use crate::index::ChunkIndex;
use crate::limits::INDEX_ENTRIES_TARGET;
use crate::repository::{ListedPacks, Repository, UnreliablePacks};
use crate::store::{PackContent, StoreError};
use bale_format::chunk::{Codec, Compressor, Decompressor};
use bale_format::pack::Payload;
use bale_format::{ChunkId, ChunkPlace, ObjectId, TransferLog, Transfers};
use crossbeam_channel::{Receiver, Sender};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Packs that are looked at one by one, where a store can do that at once; of more a listing is
/// made.
const LOOKED_AT_MAX: usize = 256;

/// Shared by the threads of one `ChunkWriter`.
pub(super) struct EncoderShared {
    pub(super) repository: Arc<Repository>,
    pub(super) index: Arc<ChunkIndex>,
    pub(super) options: WriterOptions,
    /// What was read and opened; `None`: the index is believed.
    verified: Option<Verified>,
    /// A bit for each entry of `index`: the snapshot being made relies on it.
    relied: Vec<AtomicU64>,
    /// Chunks stored by this run: 32 bytes for each chunk, freed with the run.
    stored: Mutex<HashSet<ChunkId>>,
    pub(super) open: OpenPacks,
    published: Mutex<Vec<Published>>,
    /// Packs published by this run: 32 bytes for each.
    own: Mutex<HashSet<ObjectId>>,
    uploaded: Mutex<UploadTotals>,
    transfers: Mutex<TransferLog>,
    pub(super) jobs: Jobs,
    /// What segments had taken when `jobs` began to count.
    taken_before: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// The first failure of the store, for whoever learns only that there was one.
    store_trouble: Mutex<Option<StoreError>>,
    chunks_new: AtomicU64,
    chunks_known: AtomicU64,
    bytes_stored: AtomicU64,
    has_named: AtomicBool,
    pub(super) stored_before: StoredBefore,
}

impl EncoderShared {
    pub(super) fn new(
        repository: Arc<Repository>,
        options: WriterOptions,
    ) -> Result<EncoderShared> {
        let index = repository.index()?;
        let words = index.entries().len().div_ceil(64);
        let verifies = options.verify || index.marks_unreadable();
        let stretched = repository.stretched();
        let taken_before = stretched.map_or(0, |stretched| stretched.filling().taken);
        Ok(EncoderShared {
            open: OpenPacks::new(repository.clone(), options.run_age),
            repository,
            verified: verifies.then(|| Verified::new(index.entries().len())),
            relied: (0..words).map(|_| AtomicU64::new(0)).collect(),
            index,
            options,
            stored: Mutex::default(),
            published: Mutex::default(),
            own: Mutex::default(),
            uploaded: Mutex::default(),
            transfers: Mutex::default(),
            jobs: Jobs::default(),
            taken_before: AtomicU64::new(taken_before),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
            store_trouble: Mutex::default(),
            chunks_new: AtomicU64::new(0),
            chunks_known: AtomicU64::new(0),
            bytes_stored: AtomicU64::new(0),
            has_named: AtomicBool::new(false),
            stored_before: StoredBefore::new(),
        })
    }

    /// The first failure, once; after that a word that there was one.
    pub(super) fn check(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let told = || Error::Other("storing chunks failed earlier".to_owned());
        Err(lock(&self.failure).take().unwrap_or_else(told))
    }

    pub(super) fn fail(&self, error: Error) {
        if let Error::Store(trouble) = &error {
            lock(&self.store_trouble).get_or_insert_with(|| trouble.copied());
        }
        lock(&self.failure).get_or_insert(error);
        self.failed.store(true, Ordering::Release);
        if let Some(uploads) = self.open.uploads() {
            uploads.end();
        }
    }

    /// Must this chunk be stored? If not, it is relied on.
    pub(super) fn is_new(&self, id: &ChunkId) -> bool {
        // What is to be verified goes to the threads, once.
        let is_relied_on = self.verified.is_none() && self.rely_on_indexed(id);
        if is_relied_on || !lock(&self.stored).insert(*id) {
            self.chunks_known.fetch_add(1, Ordering::Relaxed);
            self.stored_before.count(&self.index, id, u64::MAX);
            return false;
        }
        true
    }

    pub(super) fn rely_on(&self, id: &ChunkId) -> bool {
        let is_submitted = || lock(&self.stored).contains(id);
        match self.verified {
            Some(_) => is_submitted() || self.rely_on_indexed(id),
            None => self.rely_on_indexed(id) || is_submitted(),
        }
    }

    fn rely_on_indexed(&self, id: &ChunkId) -> bool {
        let position = match &self.verified {
            Some(verified) => verified.position(&self.repository, &self.index, id),
            None => self.index.reliable_position(id),
        };
        let Some(position) = position else {
            return false;
        };
        self.relied[position / 64].fetch_or(1 << (position % 64), Ordering::Relaxed);
        true
    }

    /// Chunks relied on whose pack a prune has condemned, or deleted, since the index was loaded.
    /// Call after a flush. The packs that it named are looked at, too.
    pub(super) fn lost_since_start(&self, begun: LookBegun) -> Result<Vec<ChunkPlace>> {
        let LookBegun { named, unreliable } = begun;
        let mut now = self.packs_behind(unreliable)?;
        self.repository.look_at_named_in(&named, &now)?;
        if now.marks_unreadable && self.verified.is_none() {
            return Err(Error::Other(
                "a mark of damaged packs cannot be read any more: run it again".to_owned(),
            ));
        }
        let own: Vec<ObjectId> = lock(&self.own).iter().copied().collect();
        let relied = || self.relied_on().map(|place| self.index.pack(place.pack).id);
        self.repository
            .find_unlisted(&mut now, relied().chain(own))?;
        let reliable = now.reliable;
        let is_lost = |place: &&ChunkPlace| !reliable.contains(&self.index.pack(place.pack).id);
        let mut lost: Vec<ChunkPlace> = self.relied_on().filter(is_lost).copied().collect();
        lost.extend(self.own_lost(&reliable)?);
        Ok(lost)
    }

    /// What is relied on, and perhaps more.
    fn packs_behind(&self, unreliable: Option<UnreliablePacks>) -> Result<ListedPacks> {
        let unreliable = match unreliable {
            Some(unreliable) => unreliable,
            None => self.repository.unreliable_packs()?,
        };
        let mut wanted: HashSet<ObjectId> = lock(&self.own).clone();
        let mut relied = self.relied_on();
        while wanted.len() <= LOOKED_AT_MAX
            && let Some(place) = relied.next()
        {
            wanted.insert(self.index.pack(place.pack).id);
        }
        if wanted.len() > LOOKED_AT_MAX {
            return self.repository.packs_behind(unreliable);
        }
        let among = self.repository.packs_among(unreliable, wanted);
        among.unwrap_or_else(|unreliable| self.repository.packs_behind(unreliable))
    }

    pub(super) fn relies_on_others(&self) -> bool {
        let relied = &mut self.relied.iter();
        relied.any(|bits| bits.load(Ordering::Relaxed) != 0)
    }

    fn relied_on(&self) -> impl Iterator<Item = &ChunkPlace> {
        let places = self.index.entries().iter().enumerate();
        let is_relied_on = |position: usize| {
            self.relied[position / 64].load(Ordering::Relaxed) >> (position % 64) & 1 == 1
        };
        let relied = places.filter(move |(position, _)| is_relied_on(*position));
        relied.map(|(_, place)| place)
    }

    /// To a prune, packs of a run that sleeps longer than the grace period are nobody's. Told once:
    /// the caller stores again.
    fn own_lost(&self, reliable: &HashSet<ObjectId>) -> Result<Vec<ChunkPlace>> {
        let mut own = lock(&self.own);
        let lost: HashSet<ObjectId> = own.difference(reliable).copied().collect();
        if lost.is_empty() {
            return Ok(Vec::new());
        }
        own.retain(|pack| reliable.contains(pack));
        let index = self.repository.reload_index_as_far_as_possible()?;
        if let Some(pack) = lost.iter().find(|pack| index.pack_number(pack).is_none()) {
            return Err(Error::Other(format!(
                "a prune has removed what this backup stored (pack {}): run it again",
                pack.short()
            )));
        }
        let is_lost = |place: &&ChunkPlace| lost.contains(&index.pack(place.pack).id);
        Ok(index.entries().iter().filter(is_lost).copied().collect())
    }

    pub(super) fn forget_reliance(&self, places: &[ChunkPlace]) {
        for place in places {
            let mut copies = self.index.positions(&place.chunk.id);
            if let Some(position) = copies.find(|at| self.index.entries()[*at] == *place) {
                self.relied[position / 64].fetch_and(!(1 << (position % 64)), Ordering::Relaxed);
            }
        }
    }

    /// Packs that hold something which did not open when it was to be relied on.
    pub(super) fn packs_found_damaged(&self) -> Vec<ObjectId> {
        let found = self.verified.as_ref().map(Verified::packs_found_damaged);
        found.unwrap_or_default()
    }

    /// What would come of the open segment, with all that is on its way to it, and `more`.
    pub(super) fn if_closed(&self, more: u64) -> IfClosed {
        let Some(stretched) = self.repository.stretched() else {
            return IfClosed::Nothing;
        };
        let filling = stretched.filling();
        let taken = filling.taken - self.taken_before.load(Ordering::Relaxed);
        // Trailers of packs were not counted in jobs.
        let on_its_way = self.jobs.data_bytes().saturating_sub(taken);
        match filling.open + on_its_way + more {
            0 => IfClosed::Nothing,
            len if stretched.is_long(len) => IfClosed::Long,
            _ => IfClosed::Short,
        }
    }

    pub(super) fn written(&self) -> WriterCounts {
        WriterCounts {
            chunks_new: self.chunks_new.load(Ordering::Relaxed),
            chunks_known: self.chunks_known.load(Ordering::Relaxed),
            bytes_stored: self.bytes_stored.load(Ordering::Relaxed),
            bytes_stored_before: self.stored_before.bytes(),
        }
    }

    pub(super) fn uploads(&self) -> UploadTotals {
        let waited = self.open.uploads().map(Uploads::waited);
        UploadTotals {
            waited: waited.unwrap_or_default(),
            ..*lock(&self.uploaded)
        }
    }

    pub(super) fn transfers(&self) -> Transfers {
        lock(&self.transfers).transfers().clone()
    }

    /// Publishes every open pack.
    pub(super) fn publish_all(&self) -> Result<()> {
        self.open.close_all(|pack| self.publish(pack))?;
        // What was uploaded by others may have failed.
        self.check()?;
        if let Some(stretched) = self.repository.stretched() {
            // Nothing is on its way.
            self.jobs.count_from_here();
            let taken = stretched.filling().taken;
            self.taken_before.store(taken, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn store_trouble(&self) -> Option<StoreError> {
        lock(&self.store_trouble).as_ref().map(StoreError::copied)
    }

    fn publish(&self, pack: OpenPack) -> Result<()> {
        self.is_durable(self.open.publish(pack)?)
    }

    /// Of a pack that a thread has uploaded, or could not.
    pub(super) fn uploaded(&self, uploaded: Result<Uploaded>) {
        let named = uploaded.and_then(|uploaded| {
            let transfer = uploaded.transfer;
            let mut totals = lock(&self.uploaded);
            totals.uploads += 1;
            totals.bytes += transfer.bytes;
            totals.retries += transfer.tries - 1;
            drop(totals);
            lock(&self.transfers).push(transfer);
            self.is_durable(uploaded.published)
        });
        if let Err(error) = named {
            self.fail(error);
        }
    }

    /// Only now may an index object name it.
    fn is_durable(&self, published: Published) -> Result<()> {
        self.bytes_stored
            .fetch_add(published.bytes, Ordering::Relaxed);
        lock(&self.own).insert(published.id);
        lock(&self.published).push(published);
        self.write_index(match self.has_closed_a_segment() {
            // So that the next run need not send it again, whatever comes of this one.
            true => 1,
            false => INDEX_ENTRIES_TARGET,
        })
    }
}

/// The contexts of one thread.
struct Contexts {
    compressor: Compressor,
    decompressor: Decompressor,
}

/// Encodes jobs until there are no more. After a failure it only takes them, so that nobody waits
/// for ever.
pub(super) fn work(shared: &EncoderShared, queue: &Receiver<EncodeJob>, spent: &Sender<Vec<u8>>) {
    let mut contexts = Contexts {
        compressor: Compressor::of(shared.repository.compression()),
        decompressor: Decompressor::new(),
    };
    for job in queue {
        let job = AssertUnwindSafe(|| work_on(shared, &mut contexts, job, spent));
        // It has failed by then, and the rest of the jobs is taken all the same.
        let _told_by_its_end = catch_unwind(job);
    }
}

fn work_on(
    shared: &EncoderShared,
    contexts: &mut Contexts,
    mut job: EncodeJob,
    spent: &Sender<Vec<u8>>,
) {
    let mut end = EndOfJob {
        shared,
        plain_bytes: job.data_bytes(),
        stored_bytes: 0,
    };
    if !shared.failed.load(Ordering::Acquire) {
        match encode(shared, contexts, &mut job) {
            Ok(bytes) => end.stored_bytes = bytes,
            Err(error) => shared.fail(error),
        }
    }
    if job.bytes.is_free(BUFFER_BYTES) {
        let _enough_are_spent = spent.try_send(job.bytes.into_buffer());
    }
    drop(end);
}

/// Uploads packs until there will be no more.
pub(super) fn upload(shared: &EncoderShared) {
    if let Some(uploads) = shared.open.uploads() {
        let store = &**shared.repository.store();
        uploads.work(store, &|uploaded| shared.uploaded(uploaded));
    }
}

/// Counts a job as ended also when encoding it panics.
struct EndOfJob<'a> {
    shared: &'a EncoderShared,
    plain_bytes: u64,
    stored_bytes: u64,
}

impl Drop for EndOfJob<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(Error::Other(
                "storing chunks: an encoding thread panicked, by a defect of Bale".to_owned(),
            ));
        }
        self.shared.jobs.ends(self.plain_bytes, self.stored_bytes);
    }
}

/// Returns how many bytes of data were appended to a pack.
fn encode(shared: &EncoderShared, contexts: &mut Contexts, job: &mut EncodeJob) -> Result<u64> {
    if shared.verified.is_some() && !job.again && shared.rely_on_indexed(&job.id) {
        shared.chunks_known.fetch_add(1, Ordering::Relaxed);
        return Ok(0);
    }
    let (codec, bytes) = contexts.compressor.compress(job.kind, job.bytes.plain());
    let (repository, decompressor) = (&shared.repository, &mut contexts.decompressor);
    let payload_bytes = bytes.len();
    let content = match job.kind.is_metadata() {
        true => PackContent::Metadata,
        false => PackContent::Data,
    };
    let full = match codec {
        Codec::Stored => shared.open.append(content, payload_bytes, |pack| {
            pack.append_stored(repository, job, decompressor)
        })?,
        Codec::Zstd => {
            let payload = Payload {
                codec,
                bytes,
                plain_bytes: job.bytes.plain().len(),
            };
            shared.open.append(content, payload_bytes, |pack| {
                pack.append(repository, job, &payload, decompressor)
            })?
        }
    };
    shared.chunks_new.fetch_add(1, Ordering::Relaxed);
    full.map_or(Ok(()), |pack| shared.publish(pack))?;
    Ok(match content {
        PackContent::Data => payload_bytes as u64,
        PackContent::Metadata => 0,
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("holders do not panic")
}
