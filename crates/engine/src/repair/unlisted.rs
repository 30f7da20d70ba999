//! What opens of a pack that no index names.
//!
//! Its trailer says where the records are; where that is damaged, the head of each record says where the next one is, up to
//! the first head that is damaged itself; no record is listed then that was not opened. Layout: docs/FORMAT.md, section 5.

use crate::error::Error;
use crate::prune::trailer;
use crate::repository::Repository;
use crate::store::{ObjectInfo, ObjectName};
use bale_format::chunk::Decompressor;
use bale_format::pack::PackEntry;
use bale_format::record::RECORD_HEAD_BYTES;
use bale_format::{ObjectId, PackKey, SalvageScan, salvage_record};

/// Records of a pack.
pub(super) struct Opened {
    /// Those of chunks that open, or that the trailer names and the store cannot give.
    pub(super) entries: Vec<PackEntry>,
    /// How many do not; one that says where others are counts as one.
    pub(super) bad: u64,
}

/// Reads and opens all records. An error if none opens: the pack is left alone.
pub(super) fn open(
    repository: &Repository,
    info: &ObjectInfo,
    id: ObjectId,
) -> Result<Opened, String> {
    let key = repository.pack_key(id).map_err(|error| error.to_string())?;
    let mut pack = Pack {
        repository,
        key,
        name: ObjectName::pack(id),
        len: info.len,
        contexts: Decompressor::new(),
        trouble: None,
    };
    let opened = match trailer::entries(repository, id, info.len) {
        Ok(entries) => pack.listed(entries),
        Err(error) => {
            pack.trouble = Some(error.to_string());
            pack.walked(!matches!(error, Error::Store(_)))
        }
    };
    match (opened, pack.trouble) {
        (None, trouble) => Err(trouble.unwrap_or_default()),
        (Some(opened), _) => Ok(opened),
    }
}

struct Pack<'r> {
    repository: &'r Repository,
    key: PackKey,
    name: ObjectName,
    len: u64,
    contexts: Decompressor,
    /// The first.
    trouble: Option<String>,
}

impl Pack<'_> {
    /// What a store cannot give now it may give later: such a chunk keeps its name, and counts as one that does not open.
    fn listed(&mut self, entries: Vec<PackEntry>) -> Option<Opened> {
        let (listed, mut bad) = (entries.len() as u64, 0);
        let mut named = Vec::with_capacity(entries.len());
        for entry in entries {
            let range = entry.range();
            let Some(record) = self.read(range.start, range.end - range.start) else {
                bad += 1;
                named.push(entry);
                continue;
            };
            let keys = self.repository.keys();
            match (self.key).open_chunk(keys, &entry, &record, &mut self.contexts) {
                Ok(_) => named.push(entry),
                Err(error) => {
                    bad += 1;
                    self.trouble.get_or_insert(error.to_string());
                }
            }
        }
        let entries = named;
        (listed == 0 || bad < listed).then_some(Opened { entries, bad })
    }

    /// From head to head; the trailer counts as a record that does not open. Who lists a pack in part takes it from every
    /// later repair: so nothing is listed while something could not be read, which may work another time.
    fn walked(&mut self, trailer_was_read: bool) -> Option<Opened> {
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
        (is_all && !entries.is_empty()).then_some(Opened { entries, bad })
    }

    /// `len` is of a record that ends in the pack: its head or its entry was opened.
    fn read(&mut self, at: u64, len: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        match self.repository.store().read_at(&self.name, at, &mut bytes) {
            Ok(()) => Some(bytes),
            Err(error) => {
                self.trouble.get_or_insert(error.to_string());
                None
            }
        }
    }
}
