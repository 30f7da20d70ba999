//! Chunks of a pack whose trailer is lost: the heads lead from record to record. docs/FORMAT.md,
//! section 5.

use crate::chunk::Decompressor;
use crate::error::{Fault, FormatError};
use crate::keys::Keys;
use crate::pack::{PACK_HEADER_BYTES, PackEntry};
use crate::record::{PackKey, RECORD_HEAD_BYTES, RecordHead, RecordKind};

const WHAT: &str = "pack";

/// Walks the record heads of a pack whose trailer is lost: the caller reads, this says where.
///
/// A head that opens is of this pack; its record must still be opened, and only then has an id.
#[derive(Debug)]
pub struct SalvageScan {
    offset: u64,
    pack_bytes: u64,
    slot_min: u32,
}

impl SalvageScan {
    /// Of a pack of `pack_bytes`.
    pub fn new(pack_bytes: u64) -> SalvageScan {
        SalvageScan {
            offset: PACK_HEADER_BYTES as u64,
            pack_bytes,
            slot_min: 0,
        }
    }

    /// Where the next head must be, unless the pack ends before.
    pub fn next_head_at(&self) -> Option<u64> {
        let end = self.offset.checked_add(RECORD_HEAD_BYTES as u64)?;
        (end <= self.pack_bytes).then_some(self.offset)
    }

    /// Takes the head found there. `Ok(None)` at the trailer. After an error the scan is over:
    /// nothing marks where the next record starts.
    pub fn take(&mut self, key: &PackKey, head: &[u8]) -> Result<Option<RecordHead>, FormatError> {
        let at = self.offset;
        self.offset = u64::MAX;
        let head = key.open_head(head)?;
        if head.kind == RecordKind::Trailer {
            return Ok(None);
        }
        let end = at.saturating_add(head.record_bytes());
        if head.slot < self.slot_min {
            return Err(FormatError::damaged(WHAT, Fault::Order { field: "slots" }));
        }
        if end > self.pack_bytes {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Short {
                    found: self.pack_bytes,
                    need: end,
                },
            ));
        }
        self.offset = end;
        self.slot_min = head.slot + 1;
        Ok(Some(head))
    }
}

/// The entry of a record that a [`SalvageScan`] came upon at `offset`, once opened: damaged ones
/// give an error.
pub fn salvage_record(
    keys: &Keys,
    key: &PackKey,
    offset: u64,
    record: &[u8],
    contexts: &mut Decompressor,
) -> Result<PackEntry, FormatError> {
    let (head, plain) = key.open_record(record, contexts)?;
    let RecordKind::Chunk(kind) = head.kind else {
        return Err(FormatError::damaged(
            WHAT,
            Fault::Mismatch { field: "kind" },
        ));
    };
    Ok(PackEntry {
        id: keys.chunk_id(kind, &plain),
        offset,
        sealed_bytes: head.sealed_bytes,
        plain_bytes: head.plain_bytes,
        slot: head.slot,
        kind,
        codec: head.codec,
    })
}
