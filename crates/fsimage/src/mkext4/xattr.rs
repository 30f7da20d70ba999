//! Extended attributes: as many as fit behind the inode, the rest in one block, and where that is
//! too small the largest values each in an inode of its own (`ea_inode`).

use super::checksum::crc32c;
use super::entry::NewXattr;
use super::error::EntryError;
use super::field::{get_u32, put_u16, put_u32};
use super::inode::{BASE_INODE_BYTES, EXTRA_BYTES};

const MAGIC: u32 = 0xea02_0000;
const ENTRY_BYTES: usize = 16;
/// Largest value that an inode of its own may hold.
const LARGE_VALUE_BYTES_MAX: usize = 1 << 24;
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
    /// Values that need inodes of their own, largest first.
    pub large: Vec<LargeValue>,
}

/// A value in an inode of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LargeValue {
    pub value: Vec<u8>,
    pub hash: u32,
    in_block: bool,
    /// Where its entry lies.
    entry: usize,
}

impl EncodedXattrs {
    pub fn none() -> EncodedXattrs {
        EncodedXattrs {
            in_inode: Vec::new(),
            block: None,
            large: Vec::new(),
        }
    }

    pub fn blocks(&self) -> u64 {
        u64::from(self.block.is_some())
    }

    /// Blocks of large values. They count among those of the inode that has the attributes, their
    /// trees do not.
    pub fn large_blocks(&self, block_size: u32) -> u64 {
        let blocks =
            |large: &LargeValue| (large.value.len() as u64).div_ceil(u64::from(block_size));
        self.large.iter().map(blocks).sum()
    }

    /// Tells an entry which inode holds its value.
    pub fn set_inode_of_large(&mut self, position: usize, inode: u32) {
        let LargeValue {
            in_block, entry, ..
        } = self.large[position];
        let bytes = if in_block {
            self.block.as_mut()
        } else {
            Some(&mut self.in_inode)
        };
        put_u32(bytes.expect("the entry was put there"), entry + 4, inode);
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
    /// The value goes into an inode of its own.
    is_large: bool,
}

impl Attribute<'_> {
    fn space(&self) -> usize {
        ENTRY_BYTES + padded(self.suffix.len()) + padded(self.value_bytes_here())
    }

    /// Bytes of the value that lie beside the entries.
    fn value_bytes_here(&self) -> usize {
        if self.is_large { 0 } else { self.value.len() }
    }
}

/// Distributes attributes over inode, block and inodes of their own.
pub(super) fn encode(
    xattrs: &[NewXattr<'_>],
    (inode_size, block_size): (u32, u32),
    file_system_seed: u32,
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
    let limit = block_size as usize - BLOCK_HEADER_BYTES - 4;
    loop {
        let is_inside = fitting_inside(&attributes, area);
        let outside = attributes
            .iter()
            .zip(&is_inside)
            .filter(|(_, inside)| !**inside);
        let needed: usize = outside.map(|(attribute, _)| attribute.space()).sum();
        if needed <= limit {
            return Ok(encoded(
                &attributes,
                &is_inside,
                (area, block_size as usize),
                file_system_seed,
            ));
        }
        let candidates = attributes
            .iter_mut()
            .filter(|attribute| !attribute.is_large && !attribute.value.is_empty());
        match candidates.max_by_key(|attribute| attribute.value.len()) {
            Some(largest) if largest.value.len() <= LARGE_VALUE_BYTES_MAX => {
                largest.is_large = true
            }
            _ => {
                return Err(EntryError::XattrSpace {
                    total_bytes: needed,
                });
            }
        }
    }
}

/// Which attributes lie in the inode: each that still fits, in their order.
fn fitting_inside(attributes: &[Attribute<'_>], area: usize) -> Vec<bool> {
    // The magic in front and the zero word that ends the entries.
    let mut room = area.saturating_sub(2 * 4);
    let fits = |attribute: &Attribute<'_>| {
        let fits = attribute.space() <= room;
        if fits {
            room -= attribute.space();
        }
        fits
    };
    attributes.iter().map(fits).collect()
}

fn encoded(
    attributes: &[Attribute<'_>],
    is_inside: &[bool],
    sizes: (usize, usize),
    seed: u32,
) -> EncodedXattrs {
    let mut out = EncodedXattrs::none();
    let (inside, outside): (Vec<_>, Vec<_>) = attributes
        .iter()
        .zip(is_inside)
        .partition(|(_, inside)| **inside);
    if !inside.is_empty() {
        out.in_inode = vec![0; sizes.0];
        put_u32(&mut out.in_inode, 0, MAGIC);
        // Offsets of values count from the first entry.
        let area = Area {
            bytes: &mut out.in_inode,
            entry: 4,
            offset_base: 4,
            in_block: false,
        };
        area.put_all(
            inside.iter().map(|(attribute, _)| *attribute),
            seed,
            &mut out.large,
        );
    }
    if !outside.is_empty() {
        let mut block = vec![0; sizes.1];
        put_u32(&mut block, 0, MAGIC);
        put_u32(&mut block, 4, 1); // One inode refers to it,
        put_u32(&mut block, 8, 1); // and it is one block.
        let area = Area {
            bytes: &mut block,
            entry: BLOCK_HEADER_BYTES,
            offset_base: 0,
            in_block: true,
        };
        let hash = area.put_all(
            outside.iter().map(|(attribute, _)| *attribute),
            seed,
            &mut out.large,
        );
        put_u32(&mut block, BLOCK_HASH, hash);
        out.block = Some(block);
    }
    out
}

/// Entries from the front, values from the back.
struct Area<'a> {
    bytes: &'a mut [u8],
    entry: usize,
    offset_base: usize,
    in_block: bool,
}

impl Area<'_> {
    /// Gives the hash of all entries.
    fn put_all<'b>(
        mut self,
        attributes: impl Iterator<Item = &'b Attribute<'b>>,
        seed: u32,
        large: &mut Vec<LargeValue>,
    ) -> u32 {
        let mut value_end = self.bytes.len();
        let mut all = 0u32;
        for attribute in attributes {
            value_end -= padded(attribute.value_bytes_here());
            let entry = self.entry;
            let hash = if attribute.is_large {
                let hash = crc32c(seed, &attribute.value);
                large.push(LargeValue {
                    value: attribute.value.to_vec(),
                    hash,
                    in_block: self.in_block,
                    entry,
                });
                entry_hash(attribute.suffix, &hash.to_le_bytes())
            } else {
                self.bytes[value_end..value_end + attribute.value.len()]
                    .copy_from_slice(&attribute.value);
                let has_place = !attribute.value.is_empty();
                put_u16(
                    self.bytes,
                    entry + 2,
                    if has_place {
                        (value_end - self.offset_base) as u16
                    } else {
                        0
                    },
                );
                let padded_value =
                    &self.bytes[value_end..value_end + padded(attribute.value.len())];
                // Entries in an inode carry no hash.
                if self.in_block {
                    entry_hash(attribute.suffix, padded_value)
                } else {
                    0
                }
            };
            self.bytes[entry] = attribute.suffix.len() as u8;
            self.bytes[entry + 1] = attribute.index;
            put_u32(self.bytes, entry + 8, attribute.value.len() as u32);
            put_u32(self.bytes, entry + 12, hash);
            let name = entry + ENTRY_BYTES;
            self.bytes[name..name + attribute.suffix.len()].copy_from_slice(attribute.suffix);
            self.entry = name + padded(attribute.suffix.len());
            all = all.rotate_left(16) ^ hash;
        }
        all
    }
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

fn entry_hash(suffix: &[u8], padded_value: &[u8]) -> u32 {
    let name_hash = suffix
        .iter()
        .fold(0u32, |hash, byte| hash.rotate_left(5) ^ u32::from(*byte));
    (0..padded_value.len() / 4).fold(name_hash, |hash, word| {
        hash.rotate_left(16) ^ get_u32(padded_value, word * 4)
    })
}

fn attribute<'a>(xattr: &NewXattr<'a>) -> Result<Attribute<'a>, EntryError> {
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
            is_large: false,
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
        is_large: false,
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

    fn xattr<'a>(name: &'a [u8], value: &'a [u8]) -> NewXattr<'a> {
        NewXattr { name, value }
    }

    #[test]
    fn small_attributes_stay_in_the_inode_large_ones_take_a_block_and_the_largest_an_inode() {
        let large = [7; 1000];
        let encoded = encode(
            &[xattr(b"user.a", b"1"), xattr(b"user.b", &large)],
            (256, 4096),
            1,
        )
        .unwrap();
        assert_eq!(encoded.in_inode.len(), 96);
        assert!(encoded.block.is_some() && encoded.large.is_empty());
        let encoded = encode(&[xattr(b"user.a", b"1")], (128, 4096), 1).unwrap();
        assert!(encoded.in_inode.is_empty() && encoded.block.is_some());
        let huge = [7; 60_000];
        let encoded = encode(
            &[xattr(b"user.a", &huge), xattr(b"user.b", &large)],
            (256, 4096),
            1,
        )
        .unwrap();
        assert_eq!(
            encoded
                .large
                .iter()
                .map(|large| large.value.len())
                .collect::<Vec<_>>(),
            [60_000]
        );
    }

    #[test]
    fn what_does_not_fit_or_has_no_place_is_refused() {
        let names: Vec<Vec<u8>> = (0..100)
            .map(|name| format!("user.{name:0200}").into_bytes())
            .collect();
        let many: Vec<NewXattr<'_>> = names.iter().map(|name| xattr(name, b"")).collect();
        assert!(matches!(
            encode(&many, (256, 4096), 1),
            Err(EntryError::XattrSpace { .. })
        ));
        for name in [&b"nonsense"[..], b"user.", b"system.data", b"other.x"] {
            assert!(matches!(
                encode(&[xattr(name, b"")], (256, 4096), 1),
                Err(EntryError::XattrName(_))
            ));
        }
        let short = [xattr(b"system.posix_acl_access", b"\x02\0\0\0\x01")];
        assert_eq!(encode(&short, (256, 4096), 1), Err(EntryError::Acl));
    }
}
