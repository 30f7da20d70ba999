//! Piece lists and sets of extended attributes byte by byte, as FORMAT.md has them: also such as no
//! writer makes.

use bale_format::ChunkId;

/// One stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The whole of a data chunk.
    Data(ChunkId),
    /// Bytes of a data chunk from this one on.
    Part(ChunkId, u32),
    /// Nothing allocated.
    Hole,
    /// Could not be read when the backup ran.
    Unreadable,
}

/// A list of pieces.
pub fn encode_leaf(pieces: &[(u64, Piece)]) -> Vec<u8> {
    let mut list = vec![0; 4];
    list.extend_from_slice(&(pieces.len() as u32).to_le_bytes());
    for (length, piece) in pieces {
        let (tag, id) = match piece {
            Piece::Data(id) => (0, Some(id)),
            Piece::Part(id, _) => (3, Some(id)),
            Piece::Hole => (1, None),
            Piece::Unreadable => (2, None),
        };
        list.push(tag);
        list.extend_from_slice(&length.to_le_bytes());
        list.extend(id.iter().flat_map(|id| id.0));
        if let Piece::Part(_, start) = piece {
            list.extend_from_slice(&start.to_le_bytes());
        }
    }
    list
}

/// A list of lists.
pub fn encode_node(depth: u8, lists: &[(u64, ChunkId)]) -> Vec<u8> {
    let mut list = vec![depth, 0, 0, 0];
    list.extend_from_slice(&(lists.len() as u32).to_le_bytes());
    for (length, id) in lists {
        list.extend_from_slice(&length.to_le_bytes());
        list.extend_from_slice(&id.0);
    }
    list
}

/// The set's bytes: entries sorted by name.
pub fn encode_set(xattrs: &[(&[u8], &[u8])]) -> Vec<u8> {
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
