//! Pieces of inode tables: what is read at once, and by what it is known again.

use super::Span;
use bale_fsimage::xfs::{CHUNK_INODES, InodeChunk};
use std::ops::Range;

/// Inodes that are read at once.
#[derive(Clone, Debug)]
pub struct TablePiece {
    /// Place on the device; of inodes that the kernel tells, their numbers.
    pub span: Span,
    /// Number of the first inode.
    pub first_inode: u64,
    /// XFS: the chunks within the span, and where in it their inodes are.
    pub(super) chunks: Vec<InodeChunk>,
    /// What is between them is not looked at; none: all of the span.
    pub(super) parts: Vec<Range<usize>>,
}

/// Digests of the bytes of a piece, and of what else tells which of them are inodes in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PieceDigest {
    bytes: [u8; 24],
    chunks: [u8; 8],
}

impl TablePiece {
    /// Of its bytes, and of what else tells which of them are inodes in use.
    pub fn digest(&self, bytes: &[u8]) -> PieceDigest {
        let mut hasher = blake3::Hasher::new();
        match self.parts.is_empty() {
            true => drop(hasher.update(bytes)),
            false => self.parts.iter().for_each(|part| {
                hasher.update(bytes.get(part.clone()).unwrap_or_default());
            }),
        }
        let hash = *hasher.finalize().as_bytes();
        PieceDigest {
            bytes: *hash.first_chunk().expect("24 of 32 bytes"),
            chunks: self.chunks_digest(),
        }
    }

    /// Has it the same chunks, with the same inodes in use? Asked of XFS.
    pub fn has_chunks_of(&self, seen: &PieceDigest) -> bool {
        !self.chunks.is_empty() && self.chunks_digest() == seen.chunks
    }

    /// Of all that tells which bytes are its inodes; the key says what they mean.
    pub(crate) fn fingerprint(&self, key: &[u8; 16]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(key).update(format!("{self:?}").as_bytes());
        let hash = hasher.finalize();
        *hash.as_bytes().first_chunk().expect("16 of 32 bytes")
    }

    fn chunks_digest(&self) -> [u8; 8] {
        let hash = blake3::hash(format!("{:?}", self.chunks).as_bytes());
        *hash.as_bytes().first_chunk().expect("8 of 32 bytes")
    }

    /// Inodes that it has at most.
    pub fn inodes_max(&self) -> usize {
        match self.chunks.is_empty() {
            true => self.span.len as usize / INODE_BYTES_MIN,
            false => self.chunks.len() * CHUNK_INODES as usize,
        }
    }

    /// Is one of these inodes, which are sorted, in it? Asked of XFS.
    pub fn has_any_of(&self, inodes: &[u64]) -> bool {
        let end = self.chunks.last().map_or(u64::MAX, |chunk| {
            chunk.first_inode.saturating_add(CHUNK_INODES.into())
        });
        let first = self.chunks.first().map_or(0, |chunk| chunk.first_inode);
        let from = inodes.partition_point(|inode| *inode < first);
        inodes.get(from).is_some_and(|inode| *inode < end)
    }
}

/// Size of the smallest inode in a table.
const INODE_BYTES_MIN: usize = 128;
