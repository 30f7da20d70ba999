//! What is in a pack that no index names.
//!
//! Its trailer says where the records are; where that is damaged, the head of each record says
//! where the next one is, up to the first head that is damaged itself; no record is listed then
//! that was not opened. Layout: docs/FORMAT.md, section 5.

use crate::prune::trailer;
use bale_format::chunk::Decompressor;
use bale_format::pack::PackEntry;
use bale_format::record::RECORD_HEAD_BYTES;
use bale_format::{ObjectId, PackKey, SalvageScan, salvage_record};
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use bale_repository::store::{ObjectInfo, ObjectName};

pub(super) struct PackRecords {
    /// All that the trailer names; without a trailer, those that open.
    pub(super) entries: Vec<PackEntry>,
    /// How many are damaged; one that says where others are counts as one.
    pub(super) bad: u64,
}

/// Why a pack is left alone.
pub(super) struct Unopened {
    /// The first trouble.
    pub(super) text: String,
    /// The store could not give some of it: another time it may.
    pub(super) is_passing: bool,
}

/// Reads and opens all records. An error if nothing says what is in it: the pack is left alone.
pub(super) fn open(
    repository: &Repository,
    info: &ObjectInfo,
    id: ObjectId,
) -> Result<PackRecords, Unopened> {
    let key = repository.pack_key(id).map_err(|error| Unopened {
        is_passing: matches!(error, Error::Store(_)),
        text: error.to_string(),
    })?;
    let mut pack = Pack {
        repository,
        key,
        name: ObjectName::pack(id),
        len: info.len,
        contexts: Decompressor::new(),
        trouble: None,
        is_passing: false,
        is_inconclusive: false,
    };
    let opened = match trailer::entries(repository, id, info.len) {
        Ok(entries) => Some(pack.listed(entries)),
        Err(error) => {
            pack.trouble = Some(error.to_string());
            pack.is_passing = matches!(error, Error::Store(_));
            pack.walked(!pack.is_passing)
        }
    };
    opened.ok_or_else(|| Unopened {
        text: pack.trouble.unwrap_or_default(),
        is_passing: pack.is_passing,
    })
}

struct Pack<'r> {
    repository: &'r Repository,
    key: PackKey,
    name: ObjectName,
    len: u64,
    contexts: Decompressor,
    /// The first.
    trouble: Option<String>,
    /// The store could not give something.
    is_passing: bool,
    /// The last thing that it could not give may be whole.
    is_inconclusive: bool,
}

impl Pack<'_> {
    /// A trailer that opens tells the truth: what it names keeps its name, also where a record does
    /// not open. A chunk that nobody names would be unknown to every later repair, and a prune
    /// could not tell which pack to leave alone.
    fn listed(&mut self, entries: Vec<PackEntry>) -> PackRecords {
        let mut bad = 0;
        for entry in &entries {
            let range = entry.range();
            let record = self.read(range.start, range.end - range.start);
            let is_unread = record.is_none() && self.is_inconclusive;
            let keys = self.repository.keys();
            let contexts = &mut self.contexts;
            let is_good = record
                .is_some_and(|record| self.key.open_chunk(keys, entry, &record, contexts).is_ok());
            bad += u64::from(!is_good && !is_unread);
        }
        PackRecords { entries, bad }
    }

    /// From head to head; the trailer counts as a record that does not open. Who lists a pack in
    /// part takes it from every later repair: so nothing is listed while something could not be
    /// read, which may work another time.
    fn walked(&mut self, trailer_was_read: bool) -> Option<PackRecords> {
        let (mut entries, mut bad) = (Vec::new(), 1);
        let mut is_at_trailer = false;
        let mut scan = SalvageScan::new(self.len);
        while let Some(at) = scan.next_head_at() {
            let head = self.read(at, RECORD_HEAD_BYTES as u64)?;
            let head = match scan.take(&self.key, &head) {
                Ok(Some(head)) => head,
                at_its_end => {
                    is_at_trailer = at_its_end.is_ok();
                    break;
                }
            };
            let record = self.read(at, head.record_bytes())?;
            let keys = self.repository.keys();
            match salvage_record(keys, &self.key, at, &record, &mut self.contexts) {
                Ok(entry) => entries.push(entry),
                Err(_) => bad += 1,
            }
        }
        let is_all = trailer_was_read || is_at_trailer;
        (is_all && !entries.is_empty()).then_some(PackRecords { entries, bad })
    }

    /// `len` is of a record that ends in the pack: its head or its entry was opened.
    fn read(&mut self, at: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        match self.repository.store().read_at(&self.name, at, &mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                self.is_passing = true;
                self.is_inconclusive = error.is_inconclusive();
                self.trouble.get_or_insert(error.to_string());
                None
            }
        }
    }
}
