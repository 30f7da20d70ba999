//! LZNT1, the compression of NTFS: chunks that are 4 KiB each once they are decompressed.

const CHUNK_BYTES: usize = 4096;
const COMPRESSED: u16 = 0x8000;
const LENGTH: u16 = 0x0fff;
const SHORTEST: usize = 3;

/// Decompresses into all of `out`; chunks that are short or not there are zeros. `None` if it is
/// damaged.
pub(super) fn decompress(bytes: &[u8], out: &mut [u8]) -> Option<()> {
    out.fill(0);
    let mut rest = bytes;
    for chunk in out.chunks_mut(CHUNK_BYTES) {
        let Some((head, after)) = rest.split_first_chunk::<2>() else {
            return Some(());
        };
        let head = u16::from_le_bytes(*head);
        if head == 0 {
            return Some(());
        }
        let (packed, after) = after.split_at_checked(usize::from(head & LENGTH) + 1)?;
        rest = after;
        match head & COMPRESSED != 0 {
            true => decompress_chunk(packed, chunk)?,
            false => chunk.get_mut(..packed.len())?.copy_from_slice(packed),
        }
    }
    Some(())
}

/// Groups of eight, each a byte or a pair of distance and length; how many bits either has depends
/// on how far the chunk is.
fn decompress_chunk(packed: &[u8], chunk: &mut [u8]) -> Option<()> {
    let mut at = 0;
    let mut rest = packed;
    while let Some((&kinds, after)) = rest.split_first() {
        rest = after;
        for number in 0..8 {
            if rest.is_empty() {
                return Some(());
            }
            if kinds >> number & 1 == 0 {
                let (&byte, after) = rest.split_first()?;
                rest = after;
                *chunk.get_mut(at)? = byte;
                at += 1;
                continue;
            }
            let (pair, after) = rest.split_first_chunk::<2>()?;
            rest = after;
            let pair = u16::from_le_bytes(*pair);
            let length_bits = length_bits(at)?;
            let distance = usize::from(pair >> length_bits) + 1;
            let length = usize::from(pair & ((1 << length_bits) - 1)) + SHORTEST;
            let from = at.checked_sub(distance)?;
            chunk.get(at..at + length)?;
            // It may overlap itself: what was just written is read again.
            for step in 0..length {
                chunk[at + step] = chunk[from + step];
            }
            at += length;
        }
    }
    Some(())
}

/// Bits of the length in a pair that stands for what comes at `at`; the others are the distance.
fn length_bits(at: usize) -> Option<u32> {
    let last = u32::try_from(at.checked_sub(1)?).ok()?;
    // Four bits of distance for the first 16 bytes, one more each time their number doubles.
    let distance_bits = (u32::BITS - last.leading_zeros()).max(4);
    16u32.checked_sub(distance_bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_reach_back_and_into_what_they_make() {
        // "abc", then 9 bytes from 3 back; a chunk of 8 bytes in all of the stream.
        let pair: u16 = (2 << 12) | 6;
        let mut bytes = vec![0b1000, b'a', b'b', b'c'];
        bytes.extend(pair.to_le_bytes());
        let head = COMPRESSED | 0x3000 | (bytes.len() as u16 - 1);
        let stream = [&head.to_le_bytes()[..], &bytes].concat();
        let mut out = vec![9; 5000];
        decompress(&stream, &mut out).unwrap();
        assert_eq!(&out[..12], b"abcabcabcabc");
        assert!(out[12..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_pair_that_reaches_too_far_is_damage() {
        for bytes in [
            &[0x02, 0xb0, 0x01, 0x00, 0x00][..],
            &[0x03, 0xb0, 0x02, b'a', 0x00, 0x20],
            &[0x04, 0xb0, 0x02, b'a', 0xff, 0x0f, 0x00],
            &[0xff, 0xbf, 0x00],
        ] {
            assert_eq!(decompress(bytes, &mut [0; 4096]), None, "{bytes:x?}");
        }
    }
}
