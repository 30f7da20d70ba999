//! Sealed objects: index, snapshots, runs, condemned, damaged, stretched. One seal over the whole
//! plaintext, its length and padding. docs/FORMAT.md, section 4.

use crate::aead::SealKey;
use crate::chunk::{Codec, Compressor, Decompressor, LEVEL_DEFAULT};
use crate::error::FormatError;
use crate::fields::Fields;
use crate::id::RepositoryId;
use crate::keys::Keys;
use crate::limits::{OBJECT_PLAIN_BYTES_MAX, TAG_BYTES};
use crate::padding::padded;
use zeroize::Zeroize;

const MAGIC: &[u8; 8] = b"BALEOBJ1";
const VERSION: u16 = 1;
/// Before the sealed bytes.
pub(crate) const OBJECT_HEADER_BYTES: usize = 48;
/// Sealed before the payload: its length, the plaintext's, the codec.
const INNER_BYTES: usize = 16;
/// No object is shorter: the smallest take one block of most file systems.
pub(crate) const OBJECT_BYTES_MIN: usize = 4096;
/// Each plaintext has its own key, so the nonce may always be the same.
const NONCE: [u8; 12] = [0; 12];
const WHAT: &str = "sealed object";

/// What an object is. The numbers are format; a reader asks for the type that the object's
/// place implies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObjectType {
    /// `index/`.
    Index = 1,
    /// `snapshots/`.
    Snapshot = 2,
    /// `condemned/`.
    Condemned = 3,
    /// `runs/`.
    Run = 4,
    /// `damaged/`.
    Damaged = 5,
    /// At the end of an object of `stretches/`.
    StretchTable = 6,
    /// `stretched/`.
    Stretched = 7,
}

/// Longest object that can be legal, for bounding a read.
pub const OBJECT_BYTES_MAX: usize = object_bytes(OBJECT_PLAIN_BYTES_MAX);

/// Length of the object that seals a payload.
pub(crate) const fn object_bytes(payload_bytes: usize) -> usize {
    let bytes = OBJECT_HEADER_BYTES + INNER_BYTES + payload_bytes + TAG_BYTES;
    if bytes < OBJECT_BYTES_MIN {
        return OBJECT_BYTES_MIN;
    }
    padded(bytes)
}

impl Keys {
    /// The object's bytes, already read back and compared. `random` must be random; the salt is
    /// made of it and of the plaintext, so that a machine set back to an earlier moment, which
    /// draws the same again, seals nothing else with it.
    pub fn seal_object(
        &self,
        object_type: ObjectType,
        plain: &[u8],
        random: [u8; 32],
    ) -> Result<Vec<u8>, FormatError> {
        if plain.len() > OBJECT_PLAIN_BYTES_MAX {
            return Err(FormatError::TooLarge {
                what: WHAT,
                found: plain.len() as u64,
                max: OBJECT_PLAIN_BYTES_MAX as u64,
            });
        }
        let mut compressor = Compressor::new(LEVEL_DEFAULT);
        let (codec, payload) = compressor.compress_any(plain);
        let object_bytes = object_bytes(payload.len());
        let mut bytes = Vec::with_capacity(object_bytes);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(object_type as u8);
        bytes.resize(16, 0);
        let salt = self.object_salt(&random, object_type as u8, plain);
        bytes.extend_from_slice(&salt);
        let aad = aad(&bytes, self.repository());
        bytes.extend_from_slice(&(plain.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.push(codec as u8);
        bytes.resize(OBJECT_HEADER_BYTES + INNER_BYTES, 0);
        bytes.extend_from_slice(payload);
        bytes.resize(object_bytes - TAG_BYTES, 0);
        self.object_key(&salt)
            .seal_from(NONCE, &aad, OBJECT_HEADER_BYTES, &mut bytes);
        match self.open_object(object_type, &bytes, plain.len()) {
            Ok(read_back) if read_back == plain => Ok(bytes),
            _ => Err(FormatError::NotVerified { what: WHAT }),
        }
    }

    /// The plaintext, at most `plain_bytes_max` of it.
    pub fn open_object(
        &self,
        object_type: ObjectType,
        bytes: &[u8],
        plain_bytes_max: usize,
    ) -> Result<Vec<u8>, FormatError> {
        let mut fields = Fields::new(WHAT, bytes);
        fields.magic(MAGIC)?;
        fields.version(VERSION)?;
        let found_type = fields.u8()?;
        if found_type != object_type as u8 {
            return Err(fields.value("type", u64::from(found_type)));
        }
        fields.zero(5)?;
        let salt = fields.array()?;
        let sealed = fields.rest();
        if bytes.len() > OBJECT_BYTES_MAX {
            return Err(FormatError::over(
                WHAT,
                "length",
                bytes.len(),
                OBJECT_BYTES_MAX,
            ));
        }
        let aad = aad(&bytes[..OBJECT_HEADER_BYTES], self.repository());
        let mut contexts = Decompressor::new();
        self.object_key(&salt)
            .open(WHAT, NONCE, &aad, sealed, &mut contexts.opened)?;
        let inner = Inner::decode(&contexts.opened, plain_bytes_max)?;
        contexts.opened.drain(..INNER_BYTES);
        contexts.decompress_opened(WHAT, inner.codec, inner.payload_bytes, inner.plain_bytes)
    }

    fn object_key(&self, salt: &[u8; 32]) -> SealKey {
        let mut key = self.object_seal_key(salt);
        let seal_key = SealKey::new(&key);
        key.zeroize();
        seal_key
    }
}

/// What is sealed before the payload.
struct Inner {
    plain_bytes: usize,
    payload_bytes: usize,
    codec: Codec,
}

impl Inner {
    /// From the start of what was opened; both lengths are within their bounds.
    fn decode(opened: &[u8], plain_bytes_max: usize) -> Result<Inner, FormatError> {
        let mut fields = Fields::new(WHAT, opened);
        let plain_bytes = fields.u32()? as usize;
        let payload_bytes = fields.u32()? as usize;
        let codec = fields.u8()?;
        fields.zero(7)?;
        let codec =
            Codec::from_number(codec).ok_or_else(|| fields.value("codec", u64::from(codec)))?;
        let plain_bytes_max = plain_bytes_max.min(OBJECT_PLAIN_BYTES_MAX);
        if plain_bytes > plain_bytes_max {
            return Err(FormatError::over(
                WHAT,
                "plain length",
                plain_bytes,
                plain_bytes_max,
            ));
        }
        let payload_bytes_max = plain_bytes.min(fields.left());
        if payload_bytes > payload_bytes_max {
            return Err(FormatError::over(
                WHAT,
                "payload's length",
                payload_bytes,
                payload_bytes_max,
            ));
        }
        Ok(Inner {
            plain_bytes,
            payload_bytes,
            codec,
        })
    }
}

fn aad(header: &[u8], repository: RepositoryId) -> [u8; OBJECT_HEADER_BYTES + 16] {
    let mut aad = [0; OBJECT_HEADER_BYTES + 16];
    aad[..OBJECT_HEADER_BYTES].copy_from_slice(header);
    aad[OBJECT_HEADER_BYTES..].copy_from_slice(&repository.0);
    aad
}
