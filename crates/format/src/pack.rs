//! Packs: many sealed chunks in one object, and a trailer from which the index can be rebuilt. docs/FORMAT.md, section 5.
//!
//! Everything here works on bytes and offsets; who reads and writes them is the engine's business.

use crate::chunk::{ChunkKind, Codec, Compressor, Decompressor};
use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::ChunkId;
use crate::keys::Keys;
use crate::limits::{CHUNK_BYTES_MAX, PACK_BYTES_MAX, PACK_CHUNKS_MAX, TAG_BYTES};
use crate::record::{PackKey, RECORD_HEAD_BYTES, RecordHead, RecordKind, TRAILER_SLOT};
use std::ops::Range;

const MAGIC: &[u8; 8] = b"BALEPACK";
const FOOTER_MAGIC: &[u8; 4] = b"BPKF";
const VERSION: u16 = 1;
const WHAT: &str = "pack";
/// Before the first record.
pub const PACK_HEADER_BYTES: usize = 48;
/// After the trailer record.
pub const PACK_FOOTER_BYTES: usize = 16;
/// One entry of a trailer.
pub const PACK_ENTRY_BYTES: usize = 56;
/// What a trailer may add to a pack, at most.
const TRAILER_ROOM_BYTES: u64 =
    (RECORD_HEAD_BYTES + PACK_CHUNKS_MAX * PACK_ENTRY_BYTES + TAG_BYTES + PACK_FOOTER_BYTES) as u64;

/// The first bytes of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Random: makes the pack's key.
    pub salt: [u8; 32],
}

impl PackHeader {
    /// The bytes in the pack.
    pub fn encode(&self) -> [u8; PACK_HEADER_BYTES] {
        let mut bytes = [0; PACK_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..].copy_from_slice(&self.salt);
        bytes
    }

    /// From the first [`PACK_HEADER_BYTES`] of a pack.
    pub fn decode(bytes: &[u8]) -> Result<PackHeader, FormatError> {
        let mut fields = Fields::new(WHAT, bytes);
        fields.magic(MAGIC)?;
        fields.version(VERSION)?;
        fields.zero(6)?;
        Ok(PackHeader {
            salt: fields.array()?,
        })
    }
}

/// Where one chunk is in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackEntry {
    /// Name.
    pub id: ChunkId,
    /// Of the record head.
    pub offset: u64,
    /// Without the head, with the tag.
    pub sealed_bytes: u32,
    /// After decompression.
    pub plain_bytes: u32,
    /// Nonce.
    pub slot: u32,
    /// What it is.
    pub kind: ChunkKind,
    /// How it is written.
    pub codec: Codec,
}

impl PackEntry {
    /// The head that must stand at `offset`.
    pub fn head(&self) -> RecordHead {
        RecordHead {
            sealed_bytes: self.sealed_bytes,
            slot: self.slot,
            kind: RecordKind::Chunk(self.kind),
            codec: self.codec,
            plain_bytes: self.plain_bytes,
        }
    }

    /// Bytes of the pack that hold head and sealed bytes.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + RECORD_HEAD_BYTES as u64 + u64::from(self.sealed_bytes)
    }

    /// The fields after the id, shared by trailer and index.
    pub(crate) fn encode_tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&self.sealed_bytes.to_le_bytes());
        out.extend_from_slice(&self.plain_bytes.to_le_bytes());
        out.extend_from_slice(&self.slot.to_le_bytes());
        out.push(self.kind as u8);
        out.push(self.codec as u8);
        out.extend_from_slice(&[0; 2]);
    }

    /// Reads what [`PackEntry::encode_tail`] wrote, with every length checked against the pack's.
    pub(crate) fn decode_tail(
        id: ChunkId,
        pack_bytes: u64,
        fields: &mut Fields<'_>,
    ) -> Result<PackEntry, FormatError> {
        let offset = fields.u64()?;
        let sealed_bytes = fields.u32()?;
        let plain_bytes = fields.u32()?;
        let slot = fields.u32()?;
        let kind = fields.u8()?;
        let codec = fields.u8()?;
        fields.zero(2)?;
        let entry = PackEntry {
            id,
            offset,
            sealed_bytes,
            plain_bytes,
            slot,
            kind: ChunkKind::from_number(kind)
                .ok_or_else(|| fields.value("kind", u64::from(kind)))?,
            codec: Codec::from_number(codec)
                .ok_or_else(|| fields.value("codec", u64::from(codec)))?,
        };
        if slot == TRAILER_SLOT {
            return Err(fields.value("slot", u64::from(slot)));
        }
        entry.head().check_lengths()?;
        let records_end = pack_bytes.saturating_sub(PACK_FOOTER_BYTES as u64);
        let end = offset.checked_add(entry.head().record_bytes());
        if offset < PACK_HEADER_BYTES as u64 || end.is_none_or(|end| end > records_end) {
            return Err(fields.value("offset", offset));
        }
        Ok(entry)
    }
}

/// The last bytes of a pack: where its trailer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFooter {
    /// Of the trailer's record head.
    pub trailer_offset: u64,
    /// Without the head, with the tag.
    pub trailer_sealed_bytes: u32,
}

impl PackFooter {
    /// The bytes in the pack.
    pub fn encode(&self) -> [u8; PACK_FOOTER_BYTES] {
        let mut bytes = [0; PACK_FOOTER_BYTES];
        bytes[..8].copy_from_slice(&self.trailer_offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.trailer_sealed_bytes.to_le_bytes());
        bytes[12..].copy_from_slice(FOOTER_MAGIC);
        bytes
    }

    /// From the last [`PACK_FOOTER_BYTES`] of a pack of `pack_bytes`; the trailer it names ends where the footer starts.
    pub fn decode(bytes: &[u8], pack_bytes: u64) -> Result<PackFooter, FormatError> {
        let mut fields = Fields::new("pack footer", bytes);
        let footer = PackFooter {
            trailer_offset: fields.u64()?,
            trailer_sealed_bytes: fields.u32()?,
        };
        fields.magic(FOOTER_MAGIC)?;
        fields.end()?;
        let end = footer
            .trailer_offset
            .checked_add(RECORD_HEAD_BYTES as u64)
            .and_then(|at| at.checked_add(u64::from(footer.trailer_sealed_bytes)))
            .and_then(|at| at.checked_add(PACK_FOOTER_BYTES as u64));
        if footer.trailer_offset < PACK_HEADER_BYTES as u64
            || end != Some(pack_bytes)
            || pack_bytes > PACK_BYTES_MAX
        {
            return Err(FormatError::damaged(
                "pack footer",
                Fault::Value {
                    field: "trailer offset",
                    found: footer.trailer_offset,
                },
            ));
        }
        Ok(footer)
    }

    /// Bytes of the pack that hold the trailer record.
    pub fn trailer_range(&self) -> Range<u64> {
        let length = RECORD_HEAD_BYTES as u64 + u64::from(self.trailer_sealed_bytes);
        self.trailer_offset..self.trailer_offset + length
    }
}

/// Gives every record of a pack under construction its slot and offset, and remembers them for the trailer.
///
/// 72 bytes for every chunk of the pack, at most 72 MiB; 64 KiB for a usual one.
#[derive(Debug)]
pub struct PackLayout {
    key: PackKey,
    header: PackHeader,
    offset: u64,
    entries: Vec<PackEntry>,
}

impl PackLayout {
    /// Of an empty pack. `salt` must be random and is never used again. [`PackHeader::encode`] goes first.
    pub fn new(keys: &Keys, salt: [u8; 32]) -> PackLayout {
        PackLayout {
            key: keys.pack_key(&salt),
            header: PackHeader { salt },
            offset: PACK_HEADER_BYTES as u64,
            entries: Vec::new(),
        }
    }

    /// What the pack starts with.
    pub fn header(&self) -> PackHeader {
        self.header
    }

    /// Seals this pack's records.
    pub fn key(&self) -> &PackKey {
        &self.key
    }

    /// Bytes placed so far, header included.
    pub fn bytes(&self) -> u64 {
        self.offset
    }

    /// Chunks placed so far.
    pub fn entries(&self) -> &[PackEntry] {
        &self.entries
    }

    /// Takes the next slot for a chunk. The caller writes the record at once, in order:
    /// `layout.key().seal_record(&entry.head(), payload, out)`.
    pub fn place(
        &mut self,
        id: ChunkId,
        kind: ChunkKind,
        compressed: &Payload<'_>,
    ) -> Result<PackEntry, FormatError> {
        let Payload {
            codec,
            bytes,
            plain_bytes,
        } = *compressed;
        too_large("chunks in a pack", self.entries.len() + 1, PACK_CHUNKS_MAX)?;
        too_large("chunk", plain_bytes, CHUNK_BYTES_MAX)?;
        too_large("chunk as compressed", bytes.len(), plain_bytes)?;
        let entry = PackEntry {
            id,
            offset: self.offset,
            sealed_bytes: (bytes.len() + TAG_BYTES) as u32,
            plain_bytes: plain_bytes as u32,
            slot: self.entries.len() as u32,
            kind,
            codec,
        };
        entry.head().check_lengths()?;
        let end = entry.range().end;
        if end + TRAILER_ROOM_BYTES > PACK_BYTES_MAX {
            return Err(FormatError::TooLarge {
                what: WHAT,
                found: end + TRAILER_ROOM_BYTES,
                max: PACK_BYTES_MAX,
            });
        }
        self.offset = end;
        self.entries.push(entry);
        Ok(entry)
    }

    /// Places and seals in one step.
    pub fn push(
        &mut self,
        id: ChunkId,
        kind: ChunkKind,
        compressed: &Payload<'_>,
        out: &mut Vec<u8>,
    ) -> Result<PackEntry, FormatError> {
        let entry = self.place(id, kind, compressed)?;
        self.key.seal_record(&entry.head(), compressed.bytes, out);
        Ok(entry)
    }

    /// Appends trailer and footer to `out`; what is left is the pack's content for the index.
    pub fn finish(
        self,
        compressor: &mut Compressor,
        out: &mut Vec<u8>,
    ) -> Result<FinishedPack, FormatError> {
        if self.entries.is_empty() {
            return Err(FormatError::Unfit {
                what: WHAT,
                fault: Fault::Value {
                    field: "number of chunks",
                    found: 0,
                },
            });
        }
        let plain = encode_trailer(&self.entries);
        let (codec, payload) = compressor.compress_any(&plain);
        let head = RecordHead {
            sealed_bytes: (payload.len() + TAG_BYTES) as u32,
            slot: TRAILER_SLOT,
            kind: RecordKind::Trailer,
            codec,
            plain_bytes: plain.len() as u32,
        };
        let start = out.len();
        self.key.seal_record(&head, payload, out);
        let read_back = open_trailer(
            &self.key,
            &out[start..],
            self.offset + head.record_bytes() + PACK_FOOTER_BYTES as u64,
        );
        if read_back.as_deref() != Ok(&self.entries) {
            return Err(FormatError::NotVerified {
                what: "pack trailer",
            });
        }
        let footer = PackFooter {
            trailer_offset: self.offset,
            trailer_sealed_bytes: head.sealed_bytes,
        };
        out.extend_from_slice(&footer.encode());
        Ok(FinishedPack {
            bytes: self.offset + head.record_bytes() + PACK_FOOTER_BYTES as u64,
            entries: self.entries,
        })
    }
}

/// A chunk as it will be sealed.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// How it is written.
    pub codec: Codec,
    /// As written.
    pub bytes: &'a [u8],
    /// Length after decompression.
    pub plain_bytes: usize,
}

/// What the index needs to know of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedPack {
    /// Length of the object.
    pub bytes: u64,
    /// Its chunks.
    pub entries: Vec<PackEntry>,
}

fn too_large(what: &'static str, found: usize, max: usize) -> Result<(), FormatError> {
    if found > max {
        return Err(FormatError::TooLarge {
            what,
            found: found as u64,
            max: max as u64,
        });
    }
    Ok(())
}

/// Plaintext of a trailer.
pub fn encode_trailer(entries: &[PackEntry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * PACK_ENTRY_BYTES);
    for entry in entries {
        bytes.extend_from_slice(&entry.id.0);
        entry.encode_tail(&mut bytes);
    }
    bytes
}

/// Entries of a trailer's plaintext, in slot order, not overlapping, all inside a pack of `pack_bytes`.
pub fn decode_trailer(plain: &[u8], pack_bytes: u64) -> Result<Vec<PackEntry>, FormatError> {
    const WHAT: &str = "pack trailer";
    let count = plain.len() / PACK_ENTRY_BYTES;
    if count > PACK_CHUNKS_MAX {
        return Err(FormatError::over(
            WHAT,
            "number of chunks",
            count,
            PACK_CHUNKS_MAX,
        ));
    }
    let mut fields = Fields::new(WHAT, plain);
    let mut entries: Vec<PackEntry> = Vec::with_capacity(count);
    while fields.left() > 0 {
        let id = ChunkId(fields.array()?);
        let entry = PackEntry::decode_tail(id, pack_bytes, &mut fields)?;
        if let Some(last) = entries.last()
            && (entry.slot <= last.slot || entry.offset < last.range().end)
        {
            return Err(FormatError::damaged(WHAT, Fault::Order { field: "slots" }));
        }
        entries.push(entry);
    }
    Ok(entries)
}

/// Opens a trailer record, given [`PackFooter::trailer_range`] of a pack of `pack_bytes`.
pub fn open_trailer(
    key: &PackKey,
    record: &[u8],
    pack_bytes: u64,
) -> Result<Vec<PackEntry>, FormatError> {
    let (head, plain) = key.open_record(record, &mut Decompressor::new())?;
    if head.kind != RecordKind::Trailer {
        return Err(FormatError::damaged(
            "pack trailer",
            Fault::Mismatch { field: "kind" },
        ));
    }
    decode_trailer(&plain, pack_bytes)
}

/// Walks the record heads of a pack whose trailer is lost: the caller reads, this says where.
///
/// Heads are not trusted: what comes out must still be opened, and only then has an id.
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

    /// Takes the head found there. `Ok(None)` at the trailer. After an error the scan is over: nothing marks where the next record starts.
    pub fn take(&mut self, head: &[u8]) -> Result<Option<RecordHead>, FormatError> {
        let at = self.offset;
        self.offset = u64::MAX;
        let head = RecordHead::decode(head)?;
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

/// The entry of a record that a [`SalvageScan`] came upon at `offset`, once opened: damaged ones give an error.
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
