//! Big-endian fields, checksums, and the self-describing headers that every version 5 metadata
//! block carries.

use super::Xfs;
use super::error::{Result, XfsError};
use crate::ByteSource;

/// Units in which block headers tell their own address.
pub(super) const BASIC_BLOCK_BYTES: u64 = 512;

/// Big-endian u16 at `at`; the caller has checked the length.
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("a slice of two bytes"))
}

/// Big-endian u32 at `at`; the caller has checked the length.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("a slice of four bytes"))
}

/// Big-endian u64 at `at`; the caller has checked the length.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(
        bytes[at..at + 8]
            .try_into()
            .expect("a slice of eight bytes"),
    )
}

/// Whether the little-endian CRC-32C at `crc_at` is that of `bytes` with the field itself taken as
/// zero.
pub(super) fn crc_matches(bytes: &[u8], crc_at: usize) -> bool {
    let crc = crc32c::crc32c(&bytes[..crc_at]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    let crc = crc32c::crc32c_append(crc, &bytes[crc_at + 4..]);
    bytes[crc_at..crc_at + 4] == crc.to_le_bytes()
}

/// Where a kind of version 5 block keeps the fields that prove what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seal {
    /// Name for messages.
    pub structure: &'static str,
    /// Bytes of header; a shorter buffer is never looked at.
    pub header_bytes: usize,
    crc_at: usize,
    address_at: usize,
    uuid_at: usize,
    owner_at: usize,
    owner_is_u64: bool,
}

/// Inode btree block.
pub(super) const SEAL_INOBT: Seal = Seal {
    structure: "inode btree block",
    header_bytes: 56,
    crc_at: 52,
    address_at: 16,
    uuid_at: 32,
    owner_at: 48,
    owner_is_u64: false,
};

/// Free-space btree block, by the start of stretches.
pub(super) const SEAL_BNOBT: Seal = Seal {
    structure: "free space btree block",
    ..SEAL_INOBT
};

/// Block map btree block.
pub(super) const SEAL_BMBT: Seal = Seal {
    structure: "extent btree block",
    header_bytes: 72,
    crc_at: 64,
    address_at: 24,
    uuid_at: 40,
    owner_at: 56,
    owner_is_u64: true,
};

/// Directory block with names.
pub(super) const SEAL_DIR: Seal = Seal {
    structure: "directory block",
    header_bytes: 64,
    crc_at: 4,
    address_at: 8,
    uuid_at: 24,
    owner_at: 40,
    owner_is_u64: true,
};

/// Leaf or node of an attribute fork.
pub(super) const SEAL_ATTR: Seal = Seal {
    structure: "attribute block",
    header_bytes: 64,
    crc_at: 12,
    address_at: 16,
    uuid_at: 32,
    owner_at: 48,
    owner_is_u64: true,
};

/// Block of a remote attribute value.
pub(super) const SEAL_ATTR_VALUE: Seal = Seal {
    structure: "attribute value block",
    header_bytes: 56,
    crc_at: 12,
    address_at: 40,
    uuid_at: 16,
    owner_at: 32,
    owner_is_u64: true,
};

/// Block of a symbolic link's target.
pub(super) const SEAL_SYMLINK: Seal = Seal {
    structure: "symbolic link block",
    ..SEAL_ATTR_VALUE
};

impl Seal {
    /// Checks checksum, address, file system and owner of a version 5 block that was read at
    /// `device_offset`.
    pub(super) fn check(
        &self,
        xfs: &Xfs,
        bytes: &[u8],
        device_offset: u64,
        owner: u64,
    ) -> Result<()> {
        let fault = if bytes.len() < self.header_bytes {
            "too short for its header"
        } else if !crc_matches(bytes, self.crc_at) {
            "checksum does not match"
        } else if bytes[self.uuid_at..self.uuid_at + 16] != xfs.superblock().metadata_uuid {
            "belongs to another file system"
        } else if be64(bytes, self.address_at) != device_offset / BASIC_BLOCK_BYTES {
            "tells another address"
        } else if self.owner(bytes) != owner {
            "belongs to another owner"
        } else {
            return Ok(());
        };
        Err(XfsError::damaged(self.structure, device_offset, fault))
    }

    fn owner(&self, bytes: &[u8]) -> u64 {
        if self.owner_is_u64 {
            be64(bytes, self.owner_at)
        } else {
            u64::from(be32(bytes, self.owner_at))
        }
    }
}

/// Reads exactly `len_bytes` at `offset` into `buffer`, reusing its memory.
pub(super) fn read_into(
    source: &dyn ByteSource,
    offset: u64,
    len_bytes: usize,
    buffer: &mut Vec<u8>,
) -> Result<()> {
    buffer.resize(len_bytes, 0);
    source
        .read_exact_at(offset, buffer)
        .map_err(|source| XfsError::Read {
            offset,
            len_bytes,
            source,
        })
}
