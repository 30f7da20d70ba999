//! Packs: many sealed chunks in one object, and a trailer from which the index can be rebuilt.
//! docs/FORMAT.md, section 5.
//!
//! Everything here works on bytes and offsets; who reads and writes them is the engine's business.

use crate::chunk::{ChunkKind, Codec, Compressor, Decompressor};
use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::ChunkId;
use crate::keys::Keys;
use crate::limits::{CHUNK_BYTES_MAX, PACK_BYTES_MAX, PACK_CHUNKS_MAX};
pub use crate::pack_header::{
    KeyOfEnds, PACK_FOOTER_BYTES, PACK_FRONT_BYTES, PACK_HEADER_BYTES, PackHeader,
};
use crate::record::{
    PackKey, RECORD_HEAD_BYTES, RecordHead, RecordKind, TRAILER_SLOT, record_bytes,
};
use std::ops::Range;

const WHAT: &str = "pack";
/// One entry of a trailer.
pub(crate) const PACK_ENTRY_BYTES: usize = 56;
/// What a trailer may add to a pack, at most.
const TRAILER_ROOM_BYTES: u64 =
    (record_bytes(PACK_CHUNKS_MAX * PACK_ENTRY_BYTES) + PACK_FOOTER_BYTES) as u64;

/// Where one chunk is in its pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PackEntry {
    pub id: ChunkId,
    /// Of the record head.
    pub offset: u64,
    /// Without the head, with padding and tag.
    pub sealed_bytes: u32,
    /// After decompression.
    pub plain_bytes: u32,
    /// Place in the pack's sequence.
    pub slot: u32,
    pub kind: ChunkKind,
    /// How it is written.
    pub codec: Codec,
}

impl PackEntry {
    /// The head that must stand at `offset`, of a payload of this length.
    pub(crate) fn head(&self, payload_bytes: u32) -> RecordHead {
        RecordHead {
            sealed_bytes: self.sealed_bytes,
            payload_bytes,
            plain_bytes: self.plain_bytes,
            slot: self.slot,
            kind: RecordKind::Chunk(self.kind),
            codec: self.codec,
        }
    }

    /// Bounds all lengths by those of a head whose payload is as short as can be.
    fn check_lengths(&self) -> Result<(), FormatError> {
        let payload_bytes = match self.codec {
            Codec::Stored => self.plain_bytes,
            Codec::Zstd => self.plain_bytes.min(1),
        };
        self.head(payload_bytes).check_lengths()
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
        entry.check_lengths()?;
        let records_end = pack_bytes.saturating_sub(PACK_FOOTER_BYTES as u64);
        let end = offset.checked_add(RECORD_HEAD_BYTES as u64 + u64::from(sealed_bytes));
        if offset < PACK_HEADER_BYTES as u64 || end.is_none_or(|end| end > records_end) {
            return Err(fields.value("offset", offset));
        }
        Ok(entry)
    }
}

/// Near the end of a pack, before its header stands there once more: where its trailer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFooter {
    /// Of the trailer's record head.
    pub trailer_offset: u64,
    /// Without the head, with the tag.
    pub trailer_sealed_bytes: u32,
}

impl PackFooter {
    /// From the last [`PACK_FOOTER_BYTES`] of a pack of `pack_bytes`; the trailer it names ends
    /// where the footer starts.
    pub fn open(key: &PackKey, bytes: &[u8], pack_bytes: u64) -> Result<PackFooter, FormatError> {
        const WHAT: &str = "pack footer";
        let head = key.open_head(bytes)?;
        if head.kind != RecordKind::Trailer {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Mismatch { field: "kind" },
            ));
        }
        let trailer_offset = pack_bytes
            .checked_sub(PACK_FOOTER_BYTES as u64 + head.record_bytes())
            .filter(|offset| *offset >= PACK_HEADER_BYTES as u64 && pack_bytes <= PACK_BYTES_MAX);
        let Some(trailer_offset) = trailer_offset else {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Value {
                    field: "trailer's length",
                    found: head.record_bytes(),
                },
            ));
        };
        Ok(PackFooter {
            trailer_offset,
            trailer_sealed_bytes: head.sealed_bytes,
        })
    }

    /// Bytes of the pack that hold the trailer record.
    pub fn trailer_range(&self) -> Range<u64> {
        let length = RECORD_HEAD_BYTES as u64 + u64::from(self.trailer_sealed_bytes);
        self.trailer_offset..self.trailer_offset + length
    }
}

/// Gives every record of a pack under construction its slot and offset, and remembers them for the
/// trailer.
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
    /// Of an empty pack. `salt` must be random and is never used again. [`PackHeader::encode`] goes
    /// first.
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
    /// `layout.key().seal_record(&entry, payload, out)`.
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
            sealed_bytes: sealed_bytes(bytes.len()),
            plain_bytes: plain_bytes as u32,
            slot: self.entries.len() as u32,
            kind,
            codec,
        };
        entry.head(bytes.len() as u32).check_lengths()?;
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
        self.key.seal_record(&entry, compressed.bytes, out);
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
            sealed_bytes: sealed_bytes(payload.len()),
            payload_bytes: payload.len() as u32,
            plain_bytes: plain.len() as u32,
            slot: TRAILER_SLOT,
            kind: RecordKind::Trailer,
            codec,
        };
        let pack_bytes = self.offset + head.record_bytes() + PACK_FOOTER_BYTES as u64;
        let start = out.len();
        let footer = self.key.seal_trailer(&head, &plain, payload, out);
        let read_back = open_trailer(&self.key, &out[start..], pack_bytes);
        if read_back.as_deref() != Ok(&self.entries) {
            return Err(FormatError::NotVerified {
                what: "pack trailer",
            });
        }
        out.extend_from_slice(&footer);
        out.extend_from_slice(&self.header.encode());
        Ok(FinishedPack {
            bytes: pack_bytes,
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

/// Without the head, with padding and tag.
fn sealed_bytes(payload_bytes: usize) -> u32 {
    (record_bytes(payload_bytes) - RECORD_HEAD_BYTES) as u32
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

/// Entries of a trailer's plaintext, in slot order, not overlapping, all inside a pack of
/// `pack_bytes`.
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
