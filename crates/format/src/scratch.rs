//! Sealing of what waits in temporary files: with a key that is drawn for the run and never leaves its memory.

use crate::aead::SealKey;
use crate::error::FormatError;

/// Bytes that a sealed block is longer than its plaintext.
pub const SCRATCH_EXTRA_BYTES: usize = crate::limits::TAG_BYTES;

/// Key of one temporary file. A block number must be used once only.
pub struct ScratchKey(SealKey);

impl ScratchKey {
    /// From 32 random bytes.
    pub fn new(random: &[u8; 32]) -> ScratchKey {
        ScratchKey(SealKey::new(random))
    }

    /// Appends the sealed block to `out`.
    pub fn seal(&self, number: u64, plain: &[u8], out: &mut Vec<u8>) {
        self.0.seal(nonce(number), b"scratch", plain, out);
    }

    /// Puts the plaintext in `out`, replacing what was there.
    pub fn open(&self, number: u64, sealed: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        self.0
            .open("temporary file", nonce(number), b"scratch", sealed, out)
    }
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&number.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_opens_under_its_own_number_only() {
        let key = ScratchKey::new(&[7; 32]);
        let (mut sealed, mut plain) = (Vec::new(), Vec::new());
        key.seal(3, b"content", &mut sealed);
        assert!(!sealed.windows(7).any(|window| window == b"content"));
        key.open(3, &sealed, &mut plain).unwrap();
        assert_eq!(plain, b"content");
        assert!(key.open(4, &sealed, &mut plain).is_err());
    }
}
