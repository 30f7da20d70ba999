//! Extended attributes: as many as fit behind the inode, the rest in one block.

use super::checksum::crc32c;
use super::entry::Xattr;
use super::error::EntryError;
use super::field::{get_u32, put_u16, put_u32};
use super::inode::{BASE_INODE_BYTES, EXTRA_BYTES};

const MAGIC: u32 = 0xea02_0000;
const ENTRY_BYTES: usize = 16;
const BLOCK_HEADER_BYTES: usize = 32;
const BLOCK_HASH: usize = 12;
const BLOCK_CHECKSUM: usize = 16;
/// Names and values are padded to this.
const PAD_BYTES: usize = 4;
/// An ACL of the kernel's interface.
const ACL_VERSION_USER: u32 = 2;
/// An ACL as ext4 stores it.
const ACL_VERSION_DISK: u32 = 1;
const ACL_USER: u16 = 0x02;
const ACL_GROUP: u16 = 0x08;
const ACL_TAGS_WITHOUT_ID: [u16; 4] = [0x01, 0x04, 0x10, 0x20];

/// Attributes ready to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EncodedXattrs {
    /// What follows the fixed part of the inode.
    pub in_inode: Vec<u8>,
    /// A block, complete but for its checksum.
    pub block: Option<Vec<u8>>,
}

impl EncodedXattrs {
    pub fn none() -> EncodedXattrs {
        EncodedXattrs {
            in_inode: Vec::new(),
            block: None,
        }
    }

    pub fn blocks(&self) -> u64 {
        u64::from(self.block.is_some())
    }
}

/// A name split and a value converted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attribute<'a> {
    index: u8,
    // The order that a block must keep: index, length of the name, name.
    suffix_bytes: usize,
    suffix: &'a [u8],
    value: std::borrow::Cow<'a, [u8]>,
}

impl Attribute<'_> {
    fn space(&self) -> usize {
        ENTRY_BYTES + padded(self.suffix.len()) + padded(self.value.len())
    }
}

/// Distributes attributes over inode and block.
pub(super) fn encode(
    xattrs: &[Xattr<'_>],
    inode_size: u32,
    block_size: u32,
) -> Result<EncodedXattrs, EntryError> {
    if xattrs.is_empty() {
        return Ok(EncodedXattrs::none());
    }
    let mut attributes = xattrs
        .iter()
        .map(attribute)
        .collect::<Result<Vec<_>, _>>()?;
    attributes.sort();
    if attributes
        .windows(2)
        .any(|pair| (pair[0].index, pair[0].suffix) == (pair[1].index, pair[1].suffix))
    {
        return Err(EntryError::XattrName("given twice".to_owned()));
    }
    let area = (inode_size as usize).saturating_sub(BASE_INODE_BYTES + EXTRA_BYTES);
    // The magic in front and the zero word that ends the entries.
    let mut room = area.saturating_sub(2 * 4);
    let (inside, outside): (Vec<_>, Vec<_>) = attributes.into_iter().partition(|attribute| {
        let fits = attribute.space() <= room;
        if fits {
            room -= attribute.space();
        }
        fits
    });
    let needed: usize = outside.iter().map(Attribute::space).sum();
    if needed + BLOCK_HEADER_BYTES + 4 > block_size as usize {
        return Err(EntryError::XattrSpace {
            total_bytes: needed,
        });
    }
    Ok(EncodedXattrs {
        in_inode: if inside.is_empty() {
            Vec::new()
        } else {
            in_inode(&inside, area)
        },
        block: (!outside.is_empty()).then(|| block(&outside, block_size as usize)),
    })
}

/// Completes a block with the checksum that depends on its place.
pub(super) fn seal(block: &mut [u8], file_system_seed: u32, block_number: u64) {
    put_u32(block, BLOCK_CHECKSUM, 0);
    let seed = crc32c(file_system_seed, &block_number.to_le_bytes());
    let checksum = crc32c(seed, block);
    put_u32(block, BLOCK_CHECKSUM, checksum);
}

fn padded(len: usize) -> usize {
    len.next_multiple_of(PAD_BYTES)
}

fn in_inode(attributes: &[Attribute<'_>], area: usize) -> Vec<u8> {
    let mut out = vec![0; area];
    put_u32(&mut out, 0, MAGIC);
    let mut entry = 4;
    let mut value_end = area;
    for attribute in attributes {
        value_end -= padded(attribute.value.len());
        // Offsets count from the first entry. Entries in an inode carry no hash.
        entry = put_attribute(&mut out, entry, attribute, value_end, value_end - 4);
    }
    out
}

fn block(attributes: &[Attribute<'_>], block_size: usize) -> Vec<u8> {
    let mut out = vec![0; block_size];
    put_u32(&mut out, 0, MAGIC);
    put_u32(&mut out, 4, 1); // One inode refers to it,
    put_u32(&mut out, 8, 1); // and it is one block.
    let mut entry = BLOCK_HEADER_BYTES;
    let mut value_end = block_size;
    let mut block_hash = 0u32;
    for attribute in attributes {
        value_end -= padded(attribute.value.len());
        let hash = entry_hash(attribute.suffix, &out_value(attribute));
        let start = entry;
        entry = put_attribute(&mut out, entry, attribute, value_end, value_end);
        put_u32(&mut out, start + 12, hash);
        block_hash = block_hash.rotate_left(16) ^ hash;
    }
    put_u32(&mut out, BLOCK_HASH, block_hash);
    out
}

fn out_value(attribute: &Attribute<'_>) -> Vec<u8> {
    let mut value = attribute.value.to_vec();
    value.resize(padded(value.len()), 0);
    value
}

fn put_attribute(
    out: &mut [u8],
    entry: usize,
    attribute: &Attribute<'_>,
    value_start: usize,
    offset: usize,
) -> usize {
    out[entry] = attribute.suffix.len() as u8;
    out[entry + 1] = attribute.index;
    put_u16(
        out,
        entry + 2,
        if attribute.value.is_empty() {
            0
        } else {
            offset as u16
        },
    );
    put_u32(out, entry + 8, attribute.value.len() as u32);
    let name = entry + ENTRY_BYTES;
    out[name..name + attribute.suffix.len()].copy_from_slice(attribute.suffix);
    out[value_start..value_start + attribute.value.len()].copy_from_slice(&attribute.value);
    name + padded(attribute.suffix.len())
}

fn entry_hash(suffix: &[u8], padded_value: &[u8]) -> u32 {
    let name_hash = suffix
        .iter()
        .fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
    (0..padded_value.len() / 4).fold(name_hash, |hash, word| {
        hash.rotate_left(16) ^ get_u32(padded_value, word * 4)
    })
}

fn attribute<'a>(xattr: &Xattr<'a>) -> Result<Attribute<'a>, EntryError> {
    const PREFIXES: [(&[u8], u8); 4] = [
        (b"user.", 1),
        (b"trusted.", 4),
        (b"security.", 6),
        (b"system.", 7),
    ];
    let refuse = || EntryError::XattrName(xattr.name.escape_ascii().to_string());
    let acl = match xattr.name {
        b"system.posix_acl_access" => Some(2),
        b"system.posix_acl_default" => Some(3),
        _ => None,
    };
    if let Some(index) = acl {
        return Ok(Attribute {
            index,
            suffix_bytes: 0,
            suffix: b"",
            value: disk_acl(xattr.value)?.into(),
        });
    }
    let (index, suffix) = PREFIXES
        .iter()
        .find_map(|(prefix, index)| Some((*index, xattr.name.strip_prefix(*prefix)?)))
        .ok_or_else(refuse)?;
    // `system.data` is how inline content is stored; nobody else may claim it.
    if suffix.is_empty()
        || suffix.len() > 255
        || suffix.contains(&0)
        || (index == 7 && suffix == b"data")
    {
        return Err(refuse());
    }
    Ok(Attribute {
        index,
        suffix_bytes: suffix.len(),
        suffix,
        value: xattr.value.into(),
    })
}

/// From eight bytes an entry to four, or eight where there is an id.
fn disk_acl(value: &[u8]) -> Result<Vec<u8>, EntryError> {
    let (version, entries) = value.split_at_checked(4).ok_or(EntryError::Acl)?;
    if get_u32(version, 0) != ACL_VERSION_USER || entries.len() % 8 != 0 {
        return Err(EntryError::Acl);
    }
    let mut out = ACL_VERSION_DISK.to_le_bytes().to_vec();
    for entry in entries.chunks_exact(8) {
        match u16::from_le_bytes([entry[0], entry[1]]) {
            ACL_USER | ACL_GROUP => out.extend_from_slice(entry),
            tag if ACL_TAGS_WITHOUT_ID.contains(&tag) => out.extend_from_slice(&entry[..4]),
            _ => return Err(EntryError::Acl),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xattr<'a>(name: &'a [u8], value: &'a [u8]) -> Xattr<'a> {
        Xattr { name, value }
    }

    #[test]
    fn small_attributes_stay_in_the_inode_and_large_ones_take_a_block() {
        let large = [7; 1000];
        let encoded = encode(
            &[xattr(b"user.a", b"1"), xattr(b"user.b", &large)],
            256,
            4096,
        )
        .unwrap();
        assert_eq!(encoded.in_inode.len(), 96);
        assert!(encoded.block.is_some());
        let encoded = encode(&[xattr(b"user.a", b"1")], 128, 4096).unwrap();
        assert!(encoded.in_inode.is_empty() && encoded.block.is_some());
    }

    #[test]
    fn what_does_not_fit_or_has_no_place_is_refused() {
        let large = [7; 5000];
        assert_eq!(
            encode(&[xattr(b"user.a", &large)], 256, 4096),
            Err(EntryError::XattrSpace { total_bytes: 5020 })
        );
        for name in [&b"nonsense"[..], b"user.", b"system.data", b"other.x"] {
            assert!(matches!(
                encode(&[xattr(name, b"")], 256, 4096),
                Err(EntryError::XattrName(_))
            ));
        }
        assert_eq!(
            encode(
                &[xattr(b"system.posix_acl_access", b"\x02\0\0\0\x01")],
                256,
                4096
            ),
            Err(EntryError::Acl)
        );
    }
}
