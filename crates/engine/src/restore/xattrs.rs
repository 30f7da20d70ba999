//! The `xattrs` column: none, the set itself, or the id of a chunk that is the set.

use super::{ChunkSource, ChunkUse};
use bale_format::ChunkId;
use bytes::Bytes;

/// Linux' `XATTR_NAME_MAX`.
const NAME_BYTES_MAX: usize = 255;

/// One extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// With its namespace: `user.x`.
    pub name: Bytes,
    /// Any bytes.
    pub value: Bytes,
}

/// The set that a row's column means. `Err` says why it cannot be had.
pub fn of_column(column: &Bytes, chunks: &dyn ChunkSource) -> Result<Vec<Xattr>, String> {
    match column.first() {
        None => Ok(Vec::new()),
        Some(1) => decode(column.slice(1..)),
        Some(2) => {
            let id = ChunkId::from_slice(&column[1..]).map_err(|_| "damaged id".to_owned())?;
            let set = chunks
                .read(&id, ChunkUse::Xattrs)
                .map_err(|trouble| trouble.to_string())?;
            decode(set)
        }
        Some(other) => Err(format!("unknown form {other}")),
    }
}

/// Name length (2), value length (4), name, value, again and again.
pub fn decode(mut set: Bytes) -> Result<Vec<Xattr>, String> {
    let mut xattrs = Vec::new();
    while !set.is_empty() {
        if set.len() < 6 {
            return Err("damaged set".to_owned());
        }
        let name_len = usize::from(u16::from_le_bytes([set[0], set[1]]));
        let value_len = u32::from_le_bytes([set[2], set[3], set[4], set[5]]) as usize;
        let _head = set.split_to(6);
        if name_len == 0
            || name_len > NAME_BYTES_MAX
            || set.len() - name_len.min(set.len()) < value_len
            || set.len() < name_len
        {
            return Err("damaged set".to_owned());
        }
        let name = set.split_to(name_len);
        if name.contains(&0) {
            return Err("damaged name".to_owned());
        }
        xattrs.push(Xattr {
            name,
            value: set.split_to(value_len),
        });
    }
    Ok(xattrs)
}

/// The set's bytes: entries sorted by name.
pub fn encode(xattrs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut sorted = xattrs.to_vec();
    sorted.sort();
    let mut set = Vec::new();
    for (name, value) in sorted {
        set.extend_from_slice(&(name.len() as u16).to_le_bytes());
        set.extend_from_slice(&(value.len() as u32).to_le_bytes());
        set.extend_from_slice(name);
        set.extend_from_slice(value);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_comes_back_and_a_cut_one_is_refused() {
        let set = encode(&[(b"user.b", b"2"), (b"user.a", b"")]);
        let xattrs = decode(Bytes::from(set.clone())).unwrap();
        assert_eq!(xattrs[0].name, "user.a");
        assert_eq!(xattrs[1].value, "2");
        for len in 1..set.len() {
            if len != 12 {
                assert!(
                    decode(Bytes::copy_from_slice(&set[..len])).is_err(),
                    "{len}"
                );
            }
        }
        let huge = [1, 0, 255, 255, 255, 255, b'a'];
        assert!(decode(Bytes::copy_from_slice(&huge)).is_err());
    }
}
