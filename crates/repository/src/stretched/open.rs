//! The stretch that is being written: packs are appended as they come, then the table, and its
//! record makes them known.
//!
//! What it holds is durable only once it is closed. Its bytes are nowhere else, so it cannot be
//! sent again: a failure gives up all of it, and after one nothing more is written through this
//! store. The packs that were lost with it must be named by nobody: whoever names packs learns it
//! from `settle`, and which they are from `is_lost`.

use super::StretchedStore;
use crate::store::{ObjectInfo, ObjectName, ObjectWriter, Result, StoreError};
use bale_format::ObjectId;
use bale_format::sealed::ObjectType;
use bale_format::stretch::{
    STRETCH_LEN_MAX, STRETCH_PACKS_MAX, StretchEntry, StretchName, StretchRecord, StretchTable,
};
use std::collections::HashSet;
use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Room for the table of as many packs as there may be, and what is around it.
const TABLE_ROOM_BYTES: u64 = 8 << 20;

/// What this process writes.
#[derive(Default)]
pub(super) struct Writing {
    /// Of all stretches that it makes; drawn with the first.
    run: Option<[u8; 16]>,
    next: u32,
    open: Option<OpenStretch>,
    is_broken: bool,
    /// Bytes of packs that were appended.
    taken: u64,
    /// Packs in the stretch that was given up: 32 bytes for each, 2 MiB at most.
    lost: HashSet<ObjectId>,
}

/// How far the writing has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filling {
    /// Bytes in the open stretch; 0: none is open.
    pub open: u64,
    /// Bytes of packs that were appended to all stretches.
    pub taken: u64,
}

/// A stretch that has no name in the store yet.
struct OpenStretch {
    name: StretchName,
    writer: Box<dyn ObjectWriter>,
    hasher: blake3::Hasher,
    len: u64,
    /// 48 bytes for each pack, 3 MiB at most.
    entries: Vec<StretchEntry>,
    /// When the last byte was appended.
    last: Instant,
}

/// Takes the next part of a pack.
pub type Append<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

impl OpenStretch {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.writer.append(bytes)?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        self.last = Instant::now();
        Ok(())
    }

    fn packs(&self) -> HashSet<ObjectId> {
        self.entries.iter().map(|entry| entry.pack).collect()
    }
}

impl StretchedStore {
    /// Closes the open stretch: what was uploaded before is durable, and found, on return. An error
    /// says that some of it is lost.
    pub fn settle(&self) -> Result<()> {
        self.write(|store, writing| store.close(writing))
    }

    /// What the open stretch holds, without waiting for whoever appends to it.
    pub fn filling(&self) -> Filling {
        let filling = self.filling.lock();
        *filling.unwrap_or_else(PoisonError::into_inner)
    }

    /// Is a stretch of this length one that has most of its size, and would it not have been closed
    /// before?
    pub fn is_long(&self, len: u64) -> bool {
        self.fill_one(len) && len < self.len_target
    }

    /// Is it so short that it should be put together with others?
    pub fn is_short(&self, len: u64) -> bool {
        len < self.len_target / 4
    }

    /// Do so many bytes make a stretch that has most of its size?
    pub fn fill_one(&self, bytes: u64) -> bool {
        bytes >= self.len_target / 4 * 3
    }

    /// Is a stretch open to another machine, which has heard nothing of it for so long? Servers end
    /// transfers that stand still, and all that was in them is lost.
    pub fn stands_still(&self, time: Duration) -> bool {
        if !self.base.is_remote() {
            return false;
        }
        // Whoever appends a pack has it meanwhile, for as long as that takes on its line.
        let Ok(writing) = self.writing.try_lock() else {
            return false;
        };
        let open = writing.open.as_ref();
        open.is_some_and(|open| open.last.elapsed() >= time)
    }

    /// Was this pack, which was uploaded, in a stretch that was given up?
    pub fn is_lost(&self, pack: &ObjectId) -> bool {
        let writing = self.writing();
        // Open still: whoever wrote it panicked.
        let open = writing.open.iter().flat_map(|open| &open.entries);
        let is_in_open = || open.map(|entry| entry.pack).any(|lost| lost == *pack);
        writing.is_broken && (writing.lost.contains(pack) || is_in_open())
    }

    /// Appends a pack to the open stretch.
    pub(super) fn append_pack(&self, id: ObjectId, pack: &[u8]) -> Result<()> {
        let len = pack.len() as u64;
        self.append_parts(id, len, &mut |append| append(pack).map(|()| true))
            .map(drop)
    }

    /// Appends a pack of this length, of which `parts` brings one part after the other. It returns
    /// false for one that is given up: no entry names what came of it. One that is in the open
    /// stretch already is not appended again: a prune that was stopped leaves two of a pack, and
    /// both may be copied.
    pub fn append_parts(
        &self,
        id: ObjectId,
        len: u64,
        parts: &mut dyn FnMut(&mut Append<'_>) -> Result<bool>,
    ) -> Result<bool> {
        self.write(|store, writing| {
            let would_be = writing
                .open
                .as_ref()
                .map(|open| open.len.saturating_add(len));
            if would_be.is_some_and(|len| len > STRETCH_LEN_MAX - TABLE_ROOM_BYTES) {
                store.close(writing)?;
            }
            let open = store.open(writing)?;
            if open.entries.iter().any(|entry| entry.pack == id) {
                return Ok(true);
            }
            let offset = open.len;
            let is_whole = parts(&mut |part| open.append(part))?;
            let taken = open.len - offset;
            if is_whole {
                open.entries.push(StretchEntry {
                    pack: id,
                    offset,
                    len: open.len - offset,
                });
            }
            let is_full = open.len >= store.len_target || open.entries.len() >= STRETCH_PACKS_MAX;
            writing.taken += taken;
            if is_full {
                store.close(writing)?;
            }
            Ok(is_whole)
        })
    }

    /// For whoever changes what is in the store.
    pub(super) fn writing(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a failure nothing more is written.
    fn write<T>(&self, work: impl FnOnce(&Self, &mut Writing) -> Result<T>) -> Result<T> {
        let mut writing = self.writing();
        if writing.is_broken {
            let text = "a segment could not be written earlier: what was to be in it is lost, and \
                nothing more is written (run it again)";
            let source = io::Error::other(text);
            return Err(self.failed("write", "a segment".to_owned(), source));
        }
        // Also if it panics.
        writing.is_broken = true;
        let done = work(self, &mut writing);
        writing.is_broken = done.is_err();
        let filling = Filling {
            open: writing.open.as_ref().map_or(0, |open| open.len),
            taken: writing.taken,
        };
        *(self.filling.lock()).unwrap_or_else(PoisonError::into_inner) = filling;
        let open = writing.open.take_if(|_| done.is_err());
        done.map_err(|error| match open {
            Some(open) => {
                writing.lost = open.packs();
                lost_with(error, open.len)
            }
            None => error,
        })
    }

    fn open<'w>(&self, writing: &'w mut Writing) -> Result<&'w mut OpenStretch> {
        if writing.open.is_none() {
            let run = match writing.run {
                Some(run) => run,
                None => *writing.run.insert(self.draw("a segment")?),
            };
            let number = writing.next;
            writing.next = number.checked_add(1).ok_or_else(|| {
                let source = io::Error::other("a run writes 2^32 segments at most");
                self.failed("write", "a segment".to_owned(), source)
            })?;
            writing.open = Some(OpenStretch {
                name: StretchName { run, number },
                writer: self.base.begin_stream()?,
                hasher: blake3::Hasher::new(),
                len: 0,
                entries: Vec::new(),
                last: Instant::now(),
            });
        }
        Ok(writing.open.as_mut().expect("opened just now"))
    }

    fn close(&self, writing: &mut Writing) -> Result<()> {
        let Some(open) = writing.open.take() else {
            return Ok(());
        };
        if open.entries.is_empty() {
            // Nothing but what was given up.
            return Ok(());
        }
        writing.lost = open.packs();
        let len = open.len;
        self.publish(open).map_err(|error| lost_with(error, len))?;
        writing.lost.clear();
        Ok(())
    }

    /// The table, the stretch, its record.
    fn publish(&self, mut open: OpenStretch) -> Result<()> {
        let name = ObjectName::stretch(open.name);
        let record = self.append_table(&mut open)?;
        open.writer.publish(&name)?;
        let id = self.put_record(&record)?;
        let there = self.base.stat(&name)?;
        let info = there.unwrap_or(ObjectInfo {
            name,
            len: record.len,
            modified: None,
        });
        let mut known = self.known();
        let number = known.add_stretch(record.stretch, &info);
        known.add_packs(number, Some(id), record.table.entries());
        known.sort();
        Ok(())
    }

    /// Ends the bytes of a stretch; its record.
    fn append_table(&self, open: &mut OpenStretch) -> Result<StretchRecord> {
        let name = ObjectName::stretch(open.name);
        let not_sealed = |error| self.not_sealed(&name, &error);
        let table = StretchTable::new(open.entries.clone()).map_err(not_sealed)?;
        let random = self.draw("the table of a segment")?;
        let end = self.keys.seal_stretch_end(&table, open.len, random);
        open.append(&end.map_err(not_sealed)?)?;
        Ok(StretchRecord {
            stretch: open.name,
            len: open.len,
            hash: *open.hasher.finalize().as_bytes(),
            table,
        })
    }

    /// Seals and stores a record.
    pub(super) fn put_record(&self, record: &StretchRecord) -> Result<ObjectId> {
        let stretch = ObjectName::stretch(record.stretch);
        let not_sealed = |error| self.not_sealed(&stretch, &error);
        let random = self.draw("the record of a segment")?;
        let plain = record.encode().map_err(not_sealed)?;
        let sealed = (self.keys).seal_object(ObjectType::Stretched, &plain, random);
        let sealed = sealed.map_err(not_sealed)?;
        let id = ObjectId(*blake3::hash(&sealed).as_bytes());
        self.base.put(&ObjectName::stretched(id), &sealed)?;
        Ok(id)
    }
}

/// Says what else a failure has cost.
fn lost_with(error: StoreError, len: u64) -> StoreError {
    let text = format!(
        "{}; the segment that was being written is lost with it, {len} bytes so far, and what was \
         in it is sent again by the next run",
        error.source
    );
    StoreError {
        source: io::Error::new(error.kind(), text),
        ..error
    }
}
