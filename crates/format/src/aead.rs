//! AES-256-GCM with an explicit nonce. Each key here seals one object, or the records of one pack
//! under nonces of their own.

use crate::error::{Fault, FormatError};
use crate::limits::TAG_BYTES;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// A key that must never see one nonce twice with different plaintexts.
pub(crate) struct SealKey(LessSafeKey);

impl SealKey {
    pub(crate) fn new(key: &[u8; 32]) -> SealKey {
        let key = UnboundKey::new(&AES_256_GCM, key).expect("32 bytes are a key of AES-256");
        SealKey(LessSafeKey::new(key))
    }

    /// Appends ciphertext and tag to `out`.
    pub(crate) fn seal(&self, nonce: [u8; NONCE_LEN], aad: &[u8], plain: &[u8], out: &mut Vec<u8>) {
        out.reserve(plain.len() + TAG_BYTES);
        let start = out.len();
        out.extend_from_slice(plain);
        self.seal_from(nonce, aad, start, out);
    }

    /// Turns `bytes` into ciphertext and appends the tag.
    pub(crate) fn seal_in_place(&self, nonce: [u8; NONCE_LEN], aad: &[u8], bytes: &mut Vec<u8>) {
        self.seal_from(nonce, aad, 0, bytes);
    }

    /// Turns `bytes` from `start` on into ciphertext and appends the tag.
    pub(crate) fn seal_from(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        start: usize,
        bytes: &mut Vec<u8>,
    ) {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .0
            .seal_in_place_separate_tag(nonce, Aad::from(aad), &mut bytes[start..])
            .expect("lengths here are far below the limit of GCM");
        bytes.extend_from_slice(tag.as_ref());
    }

    /// Turns ciphertext and tag into the plaintext, which is returned. What is in `sealed` after an
    /// error means nothing.
    pub(crate) fn open_in_place<'a>(
        &self,
        what: &'static str,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        sealed: &'a mut [u8],
    ) -> Result<&'a mut [u8], FormatError> {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place(nonce, Aad::from(aad), sealed)
            .map_err(|_| FormatError::damaged(what, Fault::Seal))
    }

    /// Puts the plaintext in `out`, replacing what was there. Nothing is left in `out` if the seal
    /// is broken.
    pub(crate) fn open(
        &self,
        what: &'static str,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        sealed: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), FormatError> {
        // What is there is overwritten: not cleared, so that only growth is filled with zeros.
        out.resize(sealed.len().saturating_sub(TAG_BYTES), 0);
        let opened = self.open_to(what, nonce, aad, sealed, out);
        if opened.is_err() {
            out.clear();
        }
        opened
    }

    /// Puts the plaintext in `out`, which is as long as it. What is in `out` after an error means
    /// nothing.
    pub(crate) fn open_to(
        &self,
        what: &'static str,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        sealed: &[u8],
        out: &mut [u8],
    ) -> Result<(), FormatError> {
        let Some((ciphertext, tag)) = sealed.split_last_chunk::<TAG_BYTES>() else {
            return Err(FormatError::damaged(
                what,
                Fault::Short {
                    found: sealed.len() as u64,
                    need: TAG_BYTES as u64,
                },
            ));
        };
        out.copy_from_slice(ciphertext);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0
            .open_in_place_separate_tag(nonce, Aad::from(aad), (*tag).into(), out, 0..)
            .map_err(|_| FormatError::damaged(what, Fault::Seal))?;
        Ok(())
    }
}
