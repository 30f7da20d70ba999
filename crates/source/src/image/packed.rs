//! Inodes packed for temporary files: an inode is mostly zeros, so a bitmap says which eight bytes
//! are not.

/// Largest inode of either file system.
pub const INODE_BYTES_MAX: usize = 64 << 10;

const WORD_BYTES: usize = 8;

/// Appends the packed form: length in words (2 bytes), bitmap, the words that are not zero. An
/// inode's length is a multiple of eight.
pub fn pack_inode(raw: &[u8], packed: &mut Vec<u8>) {
    let words = raw.len() / WORD_BYTES;
    packed.reserve(2 + words.div_ceil(8) + raw.len());
    packed.extend_from_slice(&(words as u16).to_le_bytes());
    let bitmap_at = packed.len();
    packed.resize(bitmap_at + words.div_ceil(8), 0);
    for (at, group) in raw.chunks(8 * WORD_BYTES).enumerate() {
        let mut used = 0;
        for (bit, word) in group.as_chunks::<WORD_BYTES>().0.iter().enumerate() {
            if *word != [0; WORD_BYTES] {
                used |= 1 << bit;
                packed.extend_from_slice(word);
            }
        }
        packed[bitmap_at + at] = used;
    }
}

/// The inode again, in a buffer that is used for many. `None` if that is no packed inode.
pub fn unpack_inode<'a>(packed: &[u8], raw: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let (words, rest) = packed.split_first_chunk::<2>()?;
    let words = usize::from(u16::from_le_bytes(*words));
    if words * WORD_BYTES > INODE_BYTES_MAX {
        return None;
    }
    let (bitmap, rest) = rest.split_at_checked(words.div_ceil(8))?;
    let (kept, []) = rest.as_chunks::<WORD_BYTES>() else {
        return None;
    };
    let mut kept = kept.iter();
    raw.clear();
    raw.resize(words * WORD_BYTES, 0);
    let groups = raw.chunks_mut(8 * WORD_BYTES);
    for (group, used) in groups.zip(bitmap) {
        let group = group.as_chunks_mut::<WORD_BYTES>().0;
        let mut used = *used;
        while used != 0 {
            *group.get_mut(used.trailing_zeros() as usize)? = *kept.next()?;
            used &= used - 1;
        }
    }
    kept.next().is_none().then_some(raw)
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
