//! Extended attributes: in the inode's own tail, in one shared block, and large values in inodes of
//! their own.
//!
//! Names come out in full (`user.x`), POSIX ACLs in the form that `getxattr` returns, everything
//! sorted by name so that equal sets are equal bytes. What the kernel hides (`system.data`, the
//! encryption context) is hidden here too.

use super::acl;
use super::bytes::{u16_at, u32_at};
use super::checksum::crc32c;
use super::error::{Damage, Structure};
use super::inodes::RawInode;
use super::limits::*;
use super::superblock::Superblock;

/// One extended attribute as the kernel would return it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InodeXattr {
    /// Full name, such as `user.comment` or `system.posix_acl_access`.
    pub name: Vec<u8>,
    pub value: Vec<u8>,
}

/// An entry before its value is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) index: u8,
    pub(super) name: &'a [u8],
    pub(super) value: Value<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Here(&'a [u8]),
    /// In an inode of its own.
    InInode {
        inode: u32,
        len_bytes: u32,
    },
}

const MAGIC: u32 = 0xEA02_0000;
const ENTRY_HEAD_BYTES: usize = 16;
const BLOCK_HEAD_BYTES: usize = 32;
const BLOCK_CHECKSUM_OFFSET: usize = 16;
const INDEX_ACL_ACCESS: u8 = 2;
const INDEX_ACL_DEFAULT: u8 = 3;
const INDEX_SYSTEM: u8 = 7;

/// Entries in the tail of an inode.
pub(super) fn in_inode<'a>(raw: &RawInode<'a>, f: &mut dyn FnMut(Entry<'a>)) -> Result<(), Damage> {
    let tail = raw.bytes().get(128 + raw.extra_bytes()..).unwrap_or(&[]);
    match tail.split_at_checked(4) {
        Some((magic, entries)) if raw.extra_bytes() > 0 && u32_at(magic, 0) == MAGIC => {
            parse(entries, 0, f)
        }
        _ => Ok(()),
    }
}

/// Entries in an xattr block, which is checked first.
pub(super) fn in_block<'a>(
    sb: &Superblock,
    block: u64,
    bytes: &'a [u8],
    f: &mut dyn FnMut(Entry<'a>),
) -> Result<(), Damage> {
    if u32_at(bytes, 0) != MAGIC || u32_at(bytes, 8) != 1 || bytes.len() < BLOCK_HEAD_BYTES {
        return Err(Damage::Header(Structure::XattrBlock));
    }
    if sb.has_checksums() {
        let crc = crc32c(sb.checksum_seed, &block.to_le_bytes());
        let crc = crc32c(crc, &bytes[..BLOCK_CHECKSUM_OFFSET]);
        let crc = crc32c(crc32c(crc, &[0; 4]), &bytes[BLOCK_CHECKSUM_OFFSET + 4..]);
        if crc != u32_at(bytes, BLOCK_CHECKSUM_OFFSET) {
            return Err(Damage::Checksum(Structure::XattrBlock));
        }
    }
    parse(bytes, BLOCK_HEAD_BYTES, f)
}

/// Value of `system.data`: the part of inline content that does not fit into the block map.
pub(super) fn inline_data<'a>(raw: &RawInode<'a>) -> Result<Option<&'a [u8]>, Damage> {
    let mut found = None;
    in_inode(raw, &mut |entry| {
        if let (INDEX_SYSTEM, b"data", Value::Here(value)) = (entry.index, entry.name, entry.value)
        {
            found = Some(value);
        }
    })?;
    Ok(found)
}

/// Walks entries from `start`; values are addressed from the beginning of `region`.
fn parse<'a>(region: &'a [u8], start: usize, f: &mut dyn FnMut(Entry<'a>)) -> Result<(), Damage> {
    let mut at = start;
    loop {
        // Four zero bytes end the list.
        let head = region.get(at..at + 4).ok_or(Damage::XattrEntry)?;
        if head == [0; 4] {
            return Ok(());
        }
        let (entry, next) = parse_entry(region, at).ok_or(Damage::XattrEntry)?;
        f(entry);
        at = next;
    }
}

/// The entry at `at` and the place of the next one.
fn parse_entry(region: &[u8], at: usize) -> Option<(Entry<'_>, usize)> {
    let head = region.get(at..at + ENTRY_HEAD_BYTES)?;
    let (name_len, index) = (usize::from(head[0]), head[1]);
    let name = region.get(at + ENTRY_HEAD_BYTES..at + ENTRY_HEAD_BYTES + name_len)?;
    let next = at + (ENTRY_HEAD_BYTES + name_len).next_multiple_of(4);
    let (inode, len_bytes) = (u32_at(head, 4), u32_at(head, 8));
    if name.contains(&0) {
        return None;
    }
    let value = match inode {
        0 if len_bytes == 0 => Value::Here(&[]),
        0 => {
            // A value that overlaps the entries is damage; so is one that leaves the region.
            let offset = usize::from(u16_at(head, 2));
            let end = offset.checked_add(usize::try_from(len_bytes).ok()?)?;
            Value::Here(region.get(offset..end).filter(|_| offset >= next)?)
        }
        inode => Value::InInode { inode, len_bytes },
    };
    Some((Entry { index, name, value }, next))
}

/// Full name, or `None` for what the kernel does not list.
pub(super) fn full_name(entry: &Entry<'_>) -> Option<Vec<u8>> {
    let prefix: &[u8] = match entry.index {
        1 => b"user.",
        INDEX_ACL_ACCESS => return Some(b"system.posix_acl_access".to_vec()),
        INDEX_ACL_DEFAULT => return Some(b"system.posix_acl_default".to_vec()),
        4 => b"trusted.",
        6 => b"security.",
        10 => b"gnu.",
        _ => return None,
    };
    Some([prefix, entry.name].concat())
}

/// Value in the form of `getxattr`.
pub(super) fn kernel_value(index: u8, value: Vec<u8>) -> Result<Vec<u8>, Damage> {
    match index {
        INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT => acl::to_xattr(&value).ok_or(Damage::Acl),
        _ => Ok(value),
    }
}

/// Bounds on a value before it is fetched.
pub(super) fn check_len(len_bytes: u64) -> Result<(), Damage> {
    if len_bytes <= XATTR_VALUE_BYTES_MAX {
        Ok(())
    } else {
        Err(Damage::XattrSize(len_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One entry named `user.a` with `value_len` bytes at `value_offset`, in a region of 64 bytes.
    fn region(value_offset: u16, value_len: u32) -> Vec<u8> {
        let mut bytes = vec![1, 1];
        bytes.extend_from_slice(&value_offset.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&value_len.to_le_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, b'a']);
        bytes.resize(60, 0);
        bytes.extend_from_slice(b"tail");
        bytes
    }

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn entries(region: &[u8]) -> Result<Pairs, Damage> {
        let mut found = Vec::new();
        parse(region, 0, &mut |entry| {
            if let Value::Here(value) = entry.value {
                found.push((full_name(&entry).unwrap(), value.to_vec()));
            }
        })?;
        Ok(found)
    }

    #[test]
    fn values_inside_the_region_are_found() {
        assert_eq!(
            entries(&region(60, 4)),
            Ok(vec![(b"user.a".to_vec(), b"tail".to_vec())])
        );
        assert_eq!(
            entries(&region(0, 0)),
            Ok(vec![(b"user.a".to_vec(), vec![])])
        );
    }

    #[test]
    fn values_outside_the_region_or_over_entries_are_damage() {
        for (offset, len) in [
            (60, 5),
            (64, 1),
            (0, 4),
            (19, 4),
            (u16::MAX, 4),
            (60, u32::MAX),
        ] {
            assert_eq!(
                entries(&region(offset, len)),
                Err(Damage::XattrEntry),
                "{offset} {len}"
            );
        }
    }

    #[test]
    fn a_list_without_end_is_damage() {
        assert_eq!(entries(&region(60, 4)[..20]), Err(Damage::XattrEntry));
        assert_eq!(entries(&[]), Err(Damage::XattrEntry));
    }
}
