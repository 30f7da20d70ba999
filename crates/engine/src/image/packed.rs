//! Inodes packed for temporary files: an inode is mostly zeros, so a bitmap says which eight bytes are not.

/// Largest inode of either file system.
pub const INODE_BYTES_MAX: usize = 64 << 10;

const WORD_BYTES: usize = 8;

/// Appends the packed form: length in words (2 bytes), bitmap, the words that are not zero. An inode's length is a multiple
/// of eight.
pub fn pack_inode(raw: &[u8], packed: &mut Vec<u8>) {
    let words = raw.len() / WORD_BYTES;
    packed.extend_from_slice(&(words as u16).to_le_bytes());
    let bitmap_at = packed.len();
    packed.resize(bitmap_at + words.div_ceil(8), 0);
    for (at, word) in raw.chunks_exact(WORD_BYTES).enumerate() {
        if word != [0; WORD_BYTES] {
            packed[bitmap_at + at / 8] |= 1 << (at % 8);
            packed.extend_from_slice(word);
        }
    }
}

/// The inode again, in a buffer that is used for many. `None` if that is no packed inode.
pub fn unpack_inode<'a>(packed: &[u8], raw: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let (words, rest) = packed.split_first_chunk::<2>()?;
    let words = usize::from(u16::from_le_bytes(*words));
    if words * WORD_BYTES > INODE_BYTES_MAX {
        return None;
    }
    let (bitmap, mut rest) = rest.split_at_checked(words.div_ceil(8))?;
    raw.clear();
    raw.resize(words * WORD_BYTES, 0);
    for (at, word) in raw.chunks_exact_mut(WORD_BYTES).enumerate() {
        if bitmap[at / 8] >> (at % 8) & 1 != 0 {
            let (next, behind) = rest.split_at_checked(WORD_BYTES)?;
            word.copy_from_slice(next);
            rest = behind;
        }
    }
    rest.is_empty().then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_comes_back_as_it_was() {
        for len in [128, 256, 264, 512, 4096] {
            let raw: Vec<u8> = (0..len)
                .map(|at| if at % 40 < 9 { (at % 251) as u8 } else { 0 })
                .collect();
            let mut packed = Vec::new();
            pack_inode(&raw, &mut packed);
            assert!(packed.len() < raw.len());
            assert_eq!(unpack_inode(&packed, &mut Vec::new()), Some(&raw[..]));
            assert_eq!(
                unpack_inode(&packed[..packed.len() - 1], &mut Vec::new()),
                None
            );
        }
        assert_eq!(unpack_inode(&[255, 255], &mut Vec::new()), None);
    }
}
