//! Records: one sealed chunk inside a pack, or the pack's trailer. docs/FORMAT.md, section 5.
//!
//! A record's slot is its nonce: whoever seals makes sure that a slot is used once in a pack ([`crate::pack::PackLayout`]).

use crate::aead::SealKey;
use crate::chunk::{ChunkKind, Codec, Decompressor};
use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::{ChunkId, RepositoryId};
use crate::keys::Keys;
use crate::limits::{CHUNK_BYTES_MAX, PACK_CHUNKS_MAX, TAG_BYTES};
use crate::pack::{PACK_ENTRY_BYTES, PackEntry};
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroize;

/// Before the sealed bytes.
pub const RECORD_HEAD_BYTES: usize = 16;
/// The trailer's slot.
pub(crate) const TRAILER_SLOT: u32 = u32::MAX;
const TRAILER_KIND: u8 = 255;
const AAD_START: &[u8; 16] = b"bale pack record";
const AAD_BYTES: usize = 16 + 16 + RECORD_HEAD_BYTES;
const WHAT: &str = "pack record";

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// A chunk.
    Chunk(ChunkKind),
    /// The list of the chunks before it.
    Trailer,
}

impl RecordKind {
    fn number(self) -> u8 {
        match self {
            RecordKind::Chunk(kind) => kind as u8,
            RecordKind::Trailer => TRAILER_KIND,
        }
    }

    fn plain_bytes_max(self) -> usize {
        match self {
            RecordKind::Chunk(_) => CHUNK_BYTES_MAX,
            RecordKind::Trailer => PACK_CHUNKS_MAX * PACK_ENTRY_BYTES,
        }
    }
}

/// The clear 16 bytes before a record. Untrusted until the record is opened: the seal covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordHead {
    /// Length of what follows, tag included.
    pub sealed_bytes: u32,
    /// Place in the pack's sequence; the nonce.
    pub slot: u32,
    /// What it holds.
    pub kind: RecordKind,
    /// How it is written.
    pub codec: Codec,
    /// Length after decompression.
    pub plain_bytes: u32,
}

impl RecordHead {
    /// Head and sealed bytes together.
    pub fn record_bytes(&self) -> u64 {
        RECORD_HEAD_BYTES as u64 + u64::from(self.sealed_bytes)
    }

    /// The bytes in the pack.
    pub fn encode(&self) -> [u8; RECORD_HEAD_BYTES] {
        let mut bytes = [0; RECORD_HEAD_BYTES];
        bytes[0..4].copy_from_slice(&self.sealed_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.slot.to_le_bytes());
        bytes[8] = self.kind.number();
        bytes[9] = self.codec as u8;
        bytes[12..16].copy_from_slice(&self.plain_bytes.to_le_bytes());
        bytes
    }

    /// From the first [`RECORD_HEAD_BYTES`] of `bytes`; every length is within its bounds.
    pub fn decode(bytes: &[u8]) -> Result<RecordHead, FormatError> {
        let mut fields = Fields::new(WHAT, bytes);
        let sealed_bytes = fields.u32()?;
        let slot = fields.u32()?;
        let kind = fields.u8()?;
        let codec = fields.u8()?;
        fields.zero(2)?;
        let plain_bytes = fields.u32()?;
        let codec =
            Codec::from_number(codec).ok_or_else(|| fields.value("codec", u64::from(codec)))?;
        let kind = match kind {
            TRAILER_KIND => RecordKind::Trailer,
            number => RecordKind::Chunk(
                ChunkKind::from_number(number)
                    .ok_or_else(|| fields.value("kind", u64::from(number)))?,
            ),
        };
        if (slot == TRAILER_SLOT) != (kind == RecordKind::Trailer) {
            return Err(fields.value("slot", u64::from(slot)));
        }
        let head = RecordHead {
            sealed_bytes,
            slot,
            kind,
            codec,
            plain_bytes,
        };
        head.check_lengths()?;
        Ok(head)
    }

    pub(crate) fn check_lengths(&self) -> Result<(), FormatError> {
        let plain_bytes = self.plain_bytes as usize;
        let plain_bytes_max = self.kind.plain_bytes_max();
        if plain_bytes > plain_bytes_max {
            return Err(FormatError::over(
                WHAT,
                "plain length",
                plain_bytes,
                plain_bytes_max,
            ));
        }
        let sealed_bytes = self.sealed_bytes as usize;
        let as_stored = plain_bytes + TAG_BYTES;
        let fits = match self.codec {
            Codec::Stored => sealed_bytes == as_stored,
            Codec::Zstd => sealed_bytes > TAG_BYTES && sealed_bytes <= as_stored,
        };
        if plain_bytes == 0 || !fits {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Length {
                    expected: as_stored as u64,
                    found: sealed_bytes as u64,
                },
            ));
        }
        Ok(())
    }

    fn nonce(&self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&u64::from(self.slot).to_le_bytes());
        nonce
    }
}

/// The key of one pack. A clone is a reference.
#[derive(Clone)]
pub struct PackKey(Arc<PackKeyInner>);

struct PackKeyInner {
    key: SealKey,
    repository: RepositoryId,
}

impl fmt::Debug for PackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PackKey(..)")
    }
}

impl Keys {
    /// The key of the pack with this salt.
    pub fn pack_key(&self, salt: &[u8; 32]) -> PackKey {
        let mut key = self.pack_seal_key(salt);
        let seal_key = SealKey::new(&key);
        key.zeroize();
        PackKey(Arc::new(PackKeyInner {
            key: seal_key,
            repository: self.repository(),
        }))
    }
}

impl PackKey {
    /// Appends head and sealed bytes to `out`. `payload` is the plaintext as `head.codec` writes it.
    pub fn seal_record(&self, head: &RecordHead, payload: &[u8], out: &mut Vec<u8>) {
        debug_assert_eq!(head.sealed_bytes as usize, payload.len() + TAG_BYTES);
        let head_bytes = head.encode();
        out.reserve(RECORD_HEAD_BYTES + payload.len() + TAG_BYTES);
        out.extend_from_slice(&head_bytes);
        self.0
            .key
            .seal(head.nonce(), &self.aad(&head_bytes), payload, out);
    }

    /// Seals `payload` where it is, without a copy, and returns the head, which goes before it.
    pub fn seal_in_place(
        &self,
        head: &RecordHead,
        payload: &mut Vec<u8>,
    ) -> [u8; RECORD_HEAD_BYTES] {
        debug_assert_eq!(head.sealed_bytes as usize, payload.len() + TAG_BYTES);
        let head_bytes = head.encode();
        self.0
            .key
            .seal_in_place(head.nonce(), &self.aad(&head_bytes), payload);
        head_bytes
    }

    /// The plaintext of a record, given head and sealed bytes. Its id is not checked: see [`PackKey::open_chunk`].
    pub fn open_record(
        &self,
        record: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<(RecordHead, Vec<u8>), FormatError> {
        let head = RecordHead::decode(record)?;
        self.open_sealed(&head, &record[RECORD_HEAD_BYTES..], contexts)?;
        let plain = contexts.decompress_opened(WHAT, head.codec, head.plain_bytes as usize)?;
        Ok((head, plain))
    }

    /// Puts what a record seals into `contexts.opened`.
    fn open_sealed(
        &self,
        head: &RecordHead,
        sealed: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<(), FormatError> {
        check_sealed_length(head, sealed)?;
        let aad = self.aad(&head.encode());
        self.0
            .key
            .open(WHAT, head.nonce(), &aad, sealed, &mut contexts.opened)
    }

    /// The chunk that `entry` promises, fully checked. `record` is [`PackEntry::range`] of the pack.
    pub fn open_chunk(
        &self,
        keys: &Keys,
        entry: &PackEntry,
        record: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<Vec<u8>, FormatError> {
        check_head(entry, record)?;
        let (_, plain) = self.open_record(record, contexts)?;
        check_id(&entry.id, keys.chunk_id(entry.kind, &plain))?;
        Ok(plain)
    }

    /// Reads a record back the whole way before it is published: all that [`PackKey::open_chunk`] checks.
    pub fn verify_record(
        &self,
        keys: &Keys,
        entry: &PackEntry,
        record: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<(), FormatError> {
        let (head, sealed) = record.split_at(record.len().min(RECORD_HEAD_BYTES));
        self.verify_sealed(keys, entry, head, sealed, contexts)
    }

    /// As [`PackKey::verify_record`], of a record in two parts.
    pub fn verify_sealed(
        &self,
        keys: &Keys,
        entry: &PackEntry,
        head: &[u8],
        sealed: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<(), FormatError> {
        self.look_at_chunk(keys, entry, head, sealed, contexts)
            .map_err(|_| FormatError::NotVerified { what: WHAT })
    }

    fn look_at_chunk(
        &self,
        keys: &Keys,
        entry: &PackEntry,
        head: &[u8],
        sealed: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<(), FormatError> {
        let head = check_head(entry, head)?;
        check_sealed_length(&head, sealed)?;
        let plain = contexts.look_at(
            WHAT,
            head.codec,
            sealed.len() - TAG_BYTES,
            head.plain_bytes as usize,
            |out| {
                let aad = self.aad(&head.encode());
                self.0.key.open_to(WHAT, head.nonce(), &aad, sealed, out)
            },
        )?;
        check_id(&entry.id, keys.chunk_id(entry.kind, plain))
    }

    fn aad(&self, head_bytes: &[u8; RECORD_HEAD_BYTES]) -> [u8; AAD_BYTES] {
        let mut aad = [0; AAD_BYTES];
        aad[..16].copy_from_slice(AAD_START);
        aad[16..32].copy_from_slice(&self.0.repository.0);
        aad[32..].copy_from_slice(head_bytes);
        aad
    }
}

fn check_sealed_length(head: &RecordHead, sealed: &[u8]) -> Result<(), FormatError> {
    if sealed.len() != head.sealed_bytes as usize || sealed.len() < TAG_BYTES {
        return Err(FormatError::damaged(
            WHAT,
            Fault::Length {
                expected: u64::from(head.sealed_bytes),
                found: sealed.len() as u64,
            },
        ));
    }
    Ok(())
}

fn check_head(entry: &PackEntry, record: &[u8]) -> Result<RecordHead, FormatError> {
    let head = RecordHead::decode(record)?;
    if head != entry.head() {
        return Err(FormatError::damaged(
            WHAT,
            Fault::Mismatch {
                field: "record head",
            },
        ));
    }
    Ok(head)
}

fn check_id(expected: &ChunkId, found: ChunkId) -> Result<(), FormatError> {
    if *expected != found {
        return Err(FormatError::damaged(
            "chunk",
            Fault::Id {
                expected: expected.0,
                found: found.0,
            },
        ));
    }
    Ok(())
}
