//! Records: one sealed chunk inside a pack, or the pack's trailer. docs/FORMAT.md, section 5.
//!
//! Lengths and kinds are sealed like the rest, and the length of a record is one of few. The nonce
//! of a record is a keyed hash of what it is: who is set back to an earlier moment and seals
//! something else does so under another nonce (docs/decisions/0008).

use crate::aead::SealKey;
use crate::chunk::{ChunkKind, Codec, Decompressor};
use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::{ChunkId, RepositoryId};
use crate::keys::Keys;
use crate::limits::{CHUNK_BYTES_MAX, CHUNK_RECORD_BYTES_MAX, PACK_CHUNKS_MAX, TAG_BYTES};
use crate::pack::{PACK_ENTRY_BYTES, PackEntry};
use crate::padding::padded;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Before the sealed body: nonce, sealed lengths and kind, tag.
pub const RECORD_HEAD_BYTES: usize = NONCE_BYTES + HEAD_PLAIN_BYTES + TAG_BYTES;
/// No record is shorter.
const RECORD_BYTES_MIN: usize = 1024;
const NONCE_BYTES: usize = 12;
const HEAD_PLAIN_BYTES: usize = 20;
/// The trailer's slot.
pub(crate) const TRAILER_SLOT: u32 = u32::MAX;
const TRAILER_KIND: u8 = 255;
const HEAD_AAD_START: &[u8; 16] = b"bale record head";
const AAD_START: &[u8; 16] = b"bale pack record";
const WHAT: &str = "pack record";

type HeadBytes = [u8; RECORD_HEAD_BYTES];

/// Length of the record of a payload, head and all.
pub const fn record_bytes(payload_bytes: usize) -> usize {
    let bytes = RECORD_HEAD_BYTES + payload_bytes + TAG_BYTES;
    if bytes < RECORD_BYTES_MIN {
        return RECORD_BYTES_MIN;
    }
    padded(bytes)
}

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
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

    fn record_bytes_max(self) -> usize {
        match self {
            RecordKind::Chunk(_) => CHUNK_RECORD_BYTES_MAX,
            RecordKind::Trailer => record_bytes(PACK_CHUNKS_MAX * PACK_ENTRY_BYTES),
        }
    }
}

/// What the head of a record says, once opened: what is sealed in the body that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecordHead {
    /// Length of the body that follows, tag included.
    pub sealed_bytes: u32,
    /// Length of the payload at the body's start; zeros follow it.
    pub payload_bytes: u32,
    /// Length after decompression.
    pub plain_bytes: u32,
    /// Place in the pack's sequence.
    pub slot: u32,
    /// What it holds.
    pub kind: RecordKind,
    /// How the payload is written.
    pub codec: Codec,
}

impl RecordHead {
    /// Head and body together.
    pub fn record_bytes(&self) -> u64 {
        RECORD_HEAD_BYTES as u64 + u64::from(self.sealed_bytes)
    }

    /// The bytes that are sealed.
    fn encode(&self) -> [u8; HEAD_PLAIN_BYTES] {
        let mut bytes = [0; HEAD_PLAIN_BYTES];
        bytes[0..4].copy_from_slice(&self.sealed_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.plain_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.slot.to_le_bytes());
        bytes[16] = self.kind.number();
        bytes[17] = self.codec as u8;
        bytes
    }

    /// From the opened bytes of a head; every length is within its bounds.
    pub fn decode(bytes: &[u8]) -> Result<RecordHead, FormatError> {
        let mut fields = Fields::new(WHAT, bytes);
        let sealed_bytes = fields.u32()?;
        let payload_bytes = fields.u32()?;
        let plain_bytes = fields.u32()?;
        let slot = fields.u32()?;
        let kind = fields.u8()?;
        let codec = fields.u8()?;
        fields.zero(2)?;
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
        fields.end()?;
        let head = RecordHead {
            sealed_bytes,
            payload_bytes,
            plain_bytes,
            slot,
            kind,
            codec,
        };
        head.check_lengths()?;
        Ok(head)
    }

    pub(crate) fn check_lengths(&self) -> Result<(), FormatError> {
        let plain_bytes = self.plain_bytes as usize;
        let payload_bytes = self.payload_bytes as usize;
        let record_bytes = RECORD_HEAD_BYTES + self.sealed_bytes as usize;
        for (field, found, max) in [
            ("plain length", plain_bytes, self.kind.plain_bytes_max()),
            ("sealed length", record_bytes, self.kind.record_bytes_max()),
        ] {
            if found > max {
                return Err(FormatError::over(WHAT, field, found, max));
            }
        }
        let is_payload = match self.codec {
            Codec::Stored => payload_bytes == plain_bytes,
            Codec::Zstd => payload_bytes <= plain_bytes,
        };
        let fits = RECORD_HEAD_BYTES + payload_bytes + TAG_BYTES <= record_bytes;
        if payload_bytes == 0 || !is_payload || !fits {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Length {
                    expected: plain_bytes as u64,
                    found: payload_bytes as u64,
                },
            ));
        }
        Ok(())
    }

    fn body_bytes(&self) -> usize {
        self.sealed_bytes as usize - TAG_BYTES
    }
}

/// The keys of one pack. A clone is a reference.
#[derive(Clone)]
pub struct PackKey(Arc<PackKeyInner>);

struct PackKeyInner {
    heads: SealKey,
    bodies: SealKey,
    nonces: Zeroizing<[u8; 32]>,
    repository: RepositoryId,
}

impl fmt::Debug for PackKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PackKey(..)")
    }
}

impl Keys {
    /// The keys of the pack with this salt.
    pub fn pack_key(&self, salt: &[u8; 32]) -> PackKey {
        let keys = self.pack_seal_keys(salt);
        PackKey(Arc::new(PackKeyInner {
            heads: SealKey::new(&keys[0]),
            bodies: SealKey::new(&keys[1]),
            nonces: Zeroizing::new(keys[2]),
            repository: self.repository(),
        }))
    }
}

impl PackKey {
    /// Appends the record of a chunk to `out`. `payload` is the plaintext as `entry.codec` writes
    /// it.
    pub fn seal_record(&self, entry: &PackEntry, payload: &[u8], out: &mut Vec<u8>) {
        let head = entry.head(payload.len() as u32);
        self.seal_payload(&head, &entry.id.0, payload, out);
    }

    /// As [`PackKey::seal_record`], of the trailer; tells the head's bytes.
    pub(crate) fn seal_trailer(
        &self,
        head: &RecordHead,
        plain: &[u8],
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> HeadBytes {
        self.seal_payload(head, blake3::hash(plain).as_bytes(), payload, out)
    }

    fn seal_payload(
        &self,
        head: &RecordHead,
        id: &[u8; 32],
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> HeadBytes {
        let head_bytes = self.seal_head(head, id);
        out.reserve_exact(head.record_bytes() as usize);
        out.extend_from_slice(&head_bytes);
        let start = out.len();
        out.extend_from_slice(payload);
        out.resize(start + head.body_bytes(), 0);
        self.seal_body(&head_bytes, start, out);
        head_bytes
    }

    /// Seals the payload that is in `buffer` from `start` on where it is, without a copy where
    /// there is room for [`record_bytes`], and returns the head, which goes before it.
    pub fn seal_in_place(
        &self,
        entry: &PackEntry,
        buffer: &mut Vec<u8>,
        start: usize,
    ) -> [u8; RECORD_HEAD_BYTES] {
        let payload_bytes = buffer.len() - start;
        let head = entry.head(payload_bytes as u32);
        let head_bytes = self.seal_head(&head, &entry.id.0);
        buffer.reserve(head.sealed_bytes as usize - payload_bytes);
        buffer.resize(start + head.body_bytes(), 0);
        self.seal_body(&head_bytes, start, buffer);
        head_bytes
    }

    /// `id` stands for the plaintext. What is sealed under one nonce is always the same: the head
    /// and the id are hashed into it, and the payload follows from them.
    fn seal_head(&self, head: &RecordHead, id: &[u8; 32]) -> HeadBytes {
        debug_assert_eq!(head.check_lengths(), Ok(()));
        let plain = head.encode();
        let mut hasher = blake3::Hasher::new_keyed(&self.0.nonces);
        let hash = hasher.update(&plain).update(id).finalize();
        let mut bytes = Vec::with_capacity(RECORD_HEAD_BYTES);
        bytes.extend_from_slice(&hash.as_bytes()[..NONCE_BYTES]);
        bytes.extend_from_slice(&plain);
        let nonce = nonce_of(&bytes);
        self.0
            .heads
            .seal_from(nonce, &self.head_aad(), NONCE_BYTES, &mut bytes);
        bytes.try_into().expect("nonce, plaintext and tag")
    }

    fn seal_body(&self, head: &HeadBytes, start: usize, out: &mut Vec<u8>) {
        let bodies = &self.0.bodies;
        bodies.seal_from(nonce_of(head), &self.body_aad(head), start, out);
    }

    /// What stands at the start of `record`, checked to be of this pack.
    pub fn open_head(&self, record: &[u8]) -> Result<RecordHead, FormatError> {
        let bytes = Fields::new(WHAT, record).bytes(RECORD_HEAD_BYTES)?;
        let mut plain = [0; HEAD_PLAIN_BYTES];
        self.0.heads.open_to(
            WHAT,
            nonce_of(bytes),
            &self.head_aad(),
            &bytes[NONCE_BYTES..],
            &mut plain,
        )?;
        RecordHead::decode(&plain)
    }

    /// The plaintext of a record, given head and body. Its id is not checked: see
    /// [`PackKey::open_chunk`].
    pub(crate) fn open_record(
        &self,
        record: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<(RecordHead, Vec<u8>), FormatError> {
        let head = self.open_head(record)?;
        let (head_bytes, sealed) = record.split_at(RECORD_HEAD_BYTES);
        check_sealed_length(&head, sealed)?;
        self.0.bodies.open(
            WHAT,
            nonce_of(head_bytes),
            &self.body_aad(head_bytes),
            sealed,
            &mut contexts.opened,
        )?;
        let (payload_bytes, plain_bytes) = (head.payload_bytes as usize, head.plain_bytes as usize);
        let plain = contexts.decompress_opened(WHAT, head.codec, payload_bytes, plain_bytes)?;
        Ok((head, plain))
    }

    /// The chunk that `entry` promises, fully checked. `record` is [`PackEntry::range`] of the
    /// pack.
    pub fn open_chunk(
        &self,
        keys: &Keys,
        entry: &PackEntry,
        record: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<Vec<u8>, FormatError> {
        let (head, plain) = self.open_record(record, contexts)?;
        check_head(entry, &head)?;
        check_id(&entry.id, keys.chunk_id(entry.kind, &plain))?;
        Ok(plain)
    }

    /// Reads a record back the whole way before it is published: all that [`PackKey::open_chunk`]
    /// checks.
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
        head_bytes: &[u8],
        sealed: &[u8],
        contexts: &mut Decompressor,
    ) -> Result<(), FormatError> {
        let head = self.open_head(head_bytes)?;
        check_head(entry, &head)?;
        check_sealed_length(&head, sealed)?;
        let plain = contexts.look_at(
            WHAT,
            head.codec,
            head.body_bytes(),
            (head.payload_bytes as usize, head.plain_bytes as usize),
            |out| {
                let aad = self.body_aad(head_bytes);
                let bodies = &self.0.bodies;
                bodies.open_to(WHAT, nonce_of(head_bytes), &aad, sealed, out)
            },
        )?;
        check_id(&entry.id, keys.chunk_id(entry.kind, plain))
    }

    fn head_aad(&self) -> [u8; 32] {
        let mut aad = [0; 32];
        aad[..16].copy_from_slice(HEAD_AAD_START);
        aad[16..].copy_from_slice(&self.0.repository.0);
        aad
    }

    fn body_aad(&self, head_bytes: &[u8]) -> [u8; 32 + RECORD_HEAD_BYTES] {
        let mut aad = [0; 32 + RECORD_HEAD_BYTES];
        aad[..16].copy_from_slice(AAD_START);
        aad[16..32].copy_from_slice(&self.0.repository.0);
        aad[32..].copy_from_slice(&head_bytes[..RECORD_HEAD_BYTES]);
        aad
    }
}

/// The start of a head, which is long enough.
fn nonce_of(head_bytes: &[u8]) -> [u8; NONCE_BYTES] {
    let nonce = head_bytes.first_chunk();
    *nonce.expect("callers have a whole head")
}

fn check_sealed_length(head: &RecordHead, sealed: &[u8]) -> Result<(), FormatError> {
    if sealed.len() != head.sealed_bytes as usize {
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

fn check_head(entry: &PackEntry, head: &RecordHead) -> Result<(), FormatError> {
    if *head != entry.head(head.payload_bytes) {
        return Err(FormatError::damaged(
            WHAT,
            Fault::Mismatch {
                field: "record head",
            },
        ));
    }
    Ok(())
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
