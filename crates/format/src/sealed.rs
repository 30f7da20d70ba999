//! Sealed objects: index, snapshots, runs, condemned, damaged. One seal over the whole plaintext. docs/FORMAT.md, section 4.

use crate::aead::SealKey;
use crate::chunk::{Codec, Compressor, Decompressor, LEVEL_DEFAULT};
use crate::error::{Fault, FormatError};
use crate::fields::Fields;
use crate::id::RepositoryId;
use crate::keys::Keys;
use crate::limits::{OBJECT_PLAIN_BYTES_MAX, TAG_BYTES};
use zeroize::Zeroize;

const MAGIC: &[u8; 8] = b"BALEOBJ1";
const VERSION: u16 = 1;
/// Before the sealed bytes.
pub const OBJECT_HEADER_BYTES: usize = 48;
/// Each object has its own key, so the nonce may always be the same.
const NONCE: [u8; 12] = [0; 12];
const WHAT: &str = "sealed object";

/// What an object is. The numbers are format; a reader asks for the type that the object's directory implies.
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
}

/// Longest object that can be legal, for bounding a read.
pub const OBJECT_BYTES_MAX: usize = OBJECT_HEADER_BYTES + OBJECT_PLAIN_BYTES_MAX + TAG_BYTES;

impl Keys {
    /// The object's bytes, already read back and compared. `salt` must be random and is never used again.
    pub fn seal_object(
        &self,
        object_type: ObjectType,
        plain: &[u8],
        salt: [u8; 32],
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
        let mut bytes = Vec::with_capacity(OBJECT_HEADER_BYTES + payload.len() + TAG_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.push(object_type as u8);
        bytes.push(codec as u8);
        bytes.extend_from_slice(&(plain.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&salt);
        let aad = aad(&bytes, self.repository());
        self.object_key(&salt)
            .seal(NONCE, &aad, payload, &mut bytes);
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
        let codec = fields.u8()?;
        let codec =
            Codec::from_number(codec).ok_or_else(|| fields.value("codec", u64::from(codec)))?;
        let plain_bytes = fields.u32()? as usize;
        let plain_bytes_max = plain_bytes_max.min(OBJECT_PLAIN_BYTES_MAX);
        if plain_bytes > plain_bytes_max {
            return Err(FormatError::over(
                WHAT,
                "plain length",
                plain_bytes,
                plain_bytes_max,
            ));
        }
        let salt = fields.array()?;
        let sealed = fields.rest();
        if sealed.len() > plain_bytes + TAG_BYTES {
            return Err(FormatError::damaged(
                WHAT,
                Fault::Length {
                    expected: (plain_bytes + TAG_BYTES) as u64,
                    found: sealed.len() as u64,
                },
            ));
        }
        let aad = aad(&bytes[..OBJECT_HEADER_BYTES], self.repository());
        let mut contexts = Decompressor::new();
        self.object_key(&salt)
            .open(WHAT, NONCE, &aad, sealed, &mut contexts.opened)?;
        contexts.decompress_opened(WHAT, codec, plain_bytes)
    }

    fn object_key(&self, salt: &[u8; 32]) -> SealKey {
        let mut key = self.object_seal_key(salt);
        let seal_key = SealKey::new(&key);
        key.zeroize();
        seal_key
    }
}

fn aad(header: &[u8], repository: RepositoryId) -> [u8; OBJECT_HEADER_BYTES + 16] {
    let mut aad = [0; OBJECT_HEADER_BYTES + 16];
    aad[..OBJECT_HEADER_BYTES].copy_from_slice(header);
    aad[OBJECT_HEADER_BYTES..].copy_from_slice(&repository.0);
    aad
}
