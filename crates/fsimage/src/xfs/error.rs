//! What can go wrong while XFS is read. Damage names the structure, its place and the fault:
//! nothing is skipped in silence.

use std::io;

/// Result of this reader.
pub type Result<T> = std::result::Result<T, XfsError>;

/// Why a structure could not be read or believed.
#[derive(Debug, thiserror::Error)]
pub enum XfsError {
    /// The source failed.
    #[error("read {len_bytes} bytes at {offset}")]
    Read {
        /// Device offset of the read.
        offset: u64,
        len_bytes: usize,
        /// What the source said.
        #[source]
        source: io::Error,
    },
    /// No XFS superblock at the start of the source.
    #[error("not an XFS file system")]
    NotXfs,
    /// A valid file system that this reader does not read; let the kernel do it.
    #[error("unsupported in XFS: {feature}")]
    Unsupported {
        /// Feature, in words.
        feature: &'static str,
        /// Bits of the field that were not known, or zero.
        bits: u64,
    },
    /// A structure contradicts itself or its place. On a device that is being written this may be a
    /// torn or an old read.
    #[error("{structure} at byte {offset}: {fault}")]
    Damaged {
        structure: &'static str,
        /// Device offset where it lies.
        offset: u64,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The inode btree of an allocation group holds other numbers of inodes than the group's header
    /// says.
    #[error(
        "allocation group {ag}: header counts {expected} inodes ({expected_free} free), its btree \
         {found} ({found_free} free)"
    )]
    Incomplete {
        /// Allocation group.
        ag: u32,
        /// Inodes by the header.
        expected: u64,
        /// Free inodes by the header.
        expected_free: u64,
        /// Inodes in the btree.
        found: u64,
        /// Free inodes in the btree.
        found_free: u64,
    },
}

impl XfsError {
    /// Shorthand for damage.
    pub(super) fn damaged(structure: &'static str, offset: u64, fault: &'static str) -> XfsError {
        XfsError::Damaged {
            structure,
            offset,
            fault,
        }
    }

    /// Shorthand for a feature that is refused without naming bits.
    pub(super) fn unsupported(feature: &'static str) -> XfsError {
        XfsError::Unsupported { feature, bits: 0 }
    }
}
