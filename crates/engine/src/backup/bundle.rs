//! Bundles: many small files as one chunk, closed at places that content chooses.
//!
//! Two bundles are open at a time, one for files that compress and one for files that do not:
//! mixed, the random bytes of one file spoil the statistics of the next, and every byte would go
//! through the compressor.

use super::dedup_cache::{ChunkNumber, ChunkNumbers};
use crate::limits::{BUNDLE_BYTES_EXTRA_MEAN, BUNDLE_FILES_MAX};
use bale_format::chunk::ChunkKind;
use bale_format::limits::{BUNDLE_BYTES_MAX, BUNDLE_BYTES_MIN};
use bale_repository::error::Result;
use bale_repository::pack::ChunkWriter;

/// Bytes of a file that decide whether it compresses.
const SAMPLE_BYTES: usize = 256;
/// They are taken from as many places, all over the file: the head of a compressed file is often
/// text.
const SAMPLE_PLACES: usize = 4;
/// A sample below this says nothing; such files go with those that compress.
const SAMPLE_BYTES_MIN: usize = 64;

/// The open bundles.
pub struct Bundles {
    lanes: [Bundle; 2],
}

struct Bundle {
    bytes: Vec<u8>,
    files: usize,
    number: Option<ChunkNumber>,
}

impl Bundles {
    /// Nothing open.
    pub fn new() -> Bundles {
        let empty = || Bundle {
            bytes: Vec::new(),
            files: 0,
            number: None,
        };
        Bundles {
            lanes: [empty(), empty()],
        }
    }

    /// Appends a file; tells the bundle's number and the file's offset in it.
    pub fn push(
        &mut self,
        content: &[u8],
        hash: &[u8; 16],
        chunks: &mut ChunkNumbers,
        writer: &ChunkWriter,
    ) -> Result<(ChunkNumber, u32)> {
        let lane = usize::from(!compresses(content));
        if self.lanes[lane].bytes.len() + content.len() > BUNDLE_BYTES_MAX {
            self.lanes[lane].close(chunks, writer)?;
        }
        let bundle = &mut self.lanes[lane];
        if bundle.number.is_none() {
            bundle.bytes = writer.buffer(BUNDLE_BYTES_MAX);
        }
        let number = *bundle.number.get_or_insert_with(|| chunks.open());
        let offset = u32::try_from(bundle.bytes.len()).expect("bundles end at BUNDLE_BYTES_MAX");
        bundle.bytes.extend_from_slice(content);
        bundle.files += 1;
        if bundle.ends_after(content.len(), hash) {
            bundle.close(chunks, writer)?;
        }
        Ok((number, offset))
    }

    /// Bytes in both.
    pub fn bytes(&self) -> usize {
        self.lanes.iter().map(|bundle| bundle.bytes.len()).sum()
    }

    /// Closes both.
    pub fn close(&mut self, chunks: &mut ChunkNumbers, writer: &ChunkWriter) -> Result<()> {
        self.lanes
            .iter_mut()
            .try_for_each(|bundle| bundle.close(chunks, writer))
    }
}

impl Bundle {
    /// A file ends a bundle with a chance in proportion to its size, decided by its content: so
    /// equal runs of files end at equal places, and the places are as dense per byte for tiny files
    /// as for middling ones.
    fn ends_after(&self, file_bytes: usize, hash: &[u8; 16]) -> bool {
        if self.files >= BUNDLE_FILES_MAX {
            return true;
        }
        if self.bytes.len() < BUNDLE_BYTES_MIN {
            return false;
        }
        let lot = u64::from_le_bytes(hash[..8].try_into().expect("8 of 16 bytes"));
        let chance = (file_bytes as u128) << 64 >> BUNDLE_BYTES_EXTRA_MEAN.trailing_zeros();
        u128::from(lot) < chance
    }

    fn close(&mut self, chunks: &mut ChunkNumbers, writer: &ChunkWriter) -> Result<()> {
        let Some(number) = self.number.take() else {
            return Ok(());
        };
        self.files = 0;
        let id = writer.store(ChunkKind::Data, std::mem::take(&mut self.bytes))?;
        chunks.close(number, id);
        Ok(())
    }
}

/// Does a file look as if it compressed? Where every byte has its highest bit unused, it does.
/// Otherwise counts how often two bytes of the sample are equal: 1 in 256 for random bytes, more
/// than 1 in 30 for text.
fn compresses(content: &[u8]) -> bool {
    if content.len() < SAMPLE_BYTES_MIN {
        return true;
    }
    let samples = samples_of(content);
    if samples.iter().all(|sample| sample.is_ascii()) {
        return true;
    }
    let mut counts = [0u16; 256];
    for byte in samples.into_iter().flatten() {
        counts[usize::from(*byte)] += 1;
    }
    let pairs: u32 = counts
        .iter()
        .map(|count| u32::from(*count) * u32::from(*count))
        .sum();
    let bytes = content.len().min(SAMPLE_BYTES) as u32;
    let pairs_of_random = bytes * (bytes - 1) / 256;
    pairs - bytes > pairs_of_random * 2
}

/// Parts of a file from all over it, or the whole of a tiny one.
fn samples_of(content: &[u8]) -> [&[u8]; SAMPLE_PLACES] {
    if content.len() <= SAMPLE_BYTES {
        return [content, &[], &[], &[]];
    }
    let sample_bytes = SAMPLE_BYTES / SAMPLE_PLACES;
    let last = content.len() - sample_bytes;
    std::array::from_fn(|place| {
        &content[last * (2 * place + 1) / (2 * SAMPLE_PLACES)..][..sample_bytes]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_are_told_from_text() {
        let mut state = 1u64;
        let random: Vec<u8> = (0..1500)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .collect();
        assert!(!compresses(&random));
        assert!(compresses(
            &b"a line of a log file, like many others\n".repeat(40)
        ));
        assert!(compresses(b"tiny"));
        for len in [64, 100, 255, 256, 257, 1000] {
            assert!(!compresses(&random[..len]), "{len} random bytes");
            assert!(compresses(&b"a line of a log file "[..].repeat(50)[..len]));
        }
    }

    #[test]
    fn a_head_of_text_does_not_make_a_compressed_file_text() {
        let mut file = vec![0; 40_000];
        blake3::Hasher::new()
            .update(b"compressed")
            .finalize_xof()
            .fill(&mut file);
        file[..64].copy_from_slice(&b"JFIF, made by some camera "[..].repeat(3)[..64]);
        assert!(!compresses(&file));
    }
}
