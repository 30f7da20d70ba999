//! Sealing of what waits in temporary files: with a key that is drawn for the run and never leaves
//! its memory.

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

    /// Turns the block into its sealed form.
    pub fn seal_in_place(&self, number: u64, block: &mut Vec<u8>) {
        self.0.seal_in_place(nonce(number), b"scratch", block);
    }

    /// Turns the sealed block into its plaintext; what is behind the slice returned means nothing.
    pub fn open_in_place<'a>(
        &self,
        number: u64,
        block: &'a mut [u8],
    ) -> Result<&'a mut [u8], FormatError> {
        self.0
            .open_in_place("temporary file", nonce(number), b"scratch", block)
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
        let mut block = b"content".to_vec();
        key.seal_in_place(3, &mut block);
        assert_eq!(block.len(), 7 + SCRATCH_EXTRA_BYTES);
        assert!(!block.windows(7).any(|window| window == b"content"));
        assert!(key.open_in_place(4, &mut block.clone()).is_err());
        assert_eq!(key.open_in_place(3, &mut block).unwrap(), b"content");
    }
}
