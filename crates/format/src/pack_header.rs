//! The head of a pack, which stands at both its ends: the copy with which a seal opens is believed.
//! docs/FORMAT.md, section 5.

use crate::error::FormatError;
use crate::fields::Fields;
use crate::keys::Keys;
use crate::record::{PackKey, RECORD_HEAD_BYTES};

const MAGIC: &[u8; 8] = b"BALEPACK";
const VERSION: u16 = 1;
/// Before the first record.
pub const PACK_HEADER_BYTES: usize = 48;
/// The first bytes: the header, and the head of the first record, which shows that its salt is
/// right.
pub const PACK_FRONT_BYTES: usize = PACK_HEADER_BYTES + RECORD_HEAD_BYTES;
/// The last bytes, after the trailer record: its head once more, which shows the same, and the
/// header once more.
pub const PACK_FOOTER_BYTES: usize = RECORD_HEAD_BYTES + PACK_HEADER_BYTES;
/// Where the salt is in a header.
const SALT_AT: usize = 16;

/// The first bytes of a pack, and its last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Random: makes the pack's key.
    pub salt: [u8; 32],
}

impl PackHeader {
    /// The bytes in the pack.
    pub fn encode(&self) -> [u8; PACK_HEADER_BYTES] {
        let mut bytes = [0; PACK_HEADER_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[SALT_AT..].copy_from_slice(&self.salt);
        bytes
    }

    /// From [`PACK_HEADER_BYTES`] of a pack.
    pub fn decode(bytes: &[u8]) -> Result<PackHeader, FormatError> {
        let mut fields = Fields::new("pack", bytes);
        fields.magic(MAGIC)?;
        fields.version(VERSION)?;
        fields.zero(6)?;
        Ok(PackHeader {
            salt: fields.array()?,
        })
    }

    /// Whatever stands before the salt.
    fn of_salt(bytes: &[u8; PACK_HEADER_BYTES]) -> PackHeader {
        let salt = bytes[SALT_AT..].try_into();
        PackHeader {
            salt: salt.expect("a header ends with its salt"),
        }
    }
}

/// The key of a pack whose ends were both looked at, and which of them hold its header as it was
/// written.
#[derive(Clone, Debug)]
pub struct KeyOfEnds {
    /// Opens its records.
    pub key: PackKey,
    /// The header at the start is right.
    pub is_front_right: bool,
    /// The one at the end is.
    pub is_footer_right: bool,
}

impl Keys {
    /// The key of a pack, if its first bytes alone show that their header is right.
    pub fn pack_key_by_front(&self, front: &[u8; PACK_FRONT_BYTES]) -> Option<PackKey> {
        let header = PackHeader::decode(front).ok()?;
        let key = self.pack_key(&header.salt);
        key.open_head(&front[PACK_HEADER_BYTES..]).ok()?;
        Some(key)
    }

    /// The key of a pack with both its ends, as far as they could be read.
    pub fn pack_key_by_ends(
        &self,
        front: Option<&[u8; PACK_FRONT_BYTES]>,
        footer: Option<&[u8; PACK_FOOTER_BYTES]>,
    ) -> Result<KeyOfEnds, FormatError> {
        let in_front = front.and_then(|front| front.first_chunk());
        let in_footer = footer.and_then(|footer| footer.last_chunk());
        let copies: [Option<&[u8; PACK_HEADER_BYTES]>; 2] = [in_front, in_footer];
        let records = [
            front.map(|front| &front[PACK_HEADER_BYTES..]),
            footer.map(|footer| &footer[..RECORD_HEAD_BYTES]),
        ];
        if are_later(&copies) {
            return Err(sound_one(copies).expect_err("a later version is not decoded"));
        }
        let opens_one = |header: &PackHeader| {
            let key = self.pack_key(&header.salt);
            let mut heads = records.iter().flatten();
            heads.any(|head| key.open_head(head).is_ok())
        };
        let mut proven = copies.into_iter().flatten().map(PackHeader::of_salt);
        let header = match proven.find(opens_one) {
            Some(header) => header,
            None => sound_one(copies)?,
        };
        let bytes = header.encode();
        Ok(KeyOfEnds {
            key: self.pack_key(&header.salt),
            is_front_right: in_front == Some(&bytes),
            is_footer_right: in_footer == Some(&bytes),
        })
    }
}

/// All copies that could be read are a later version's: one alone may have a byte flipped.
fn are_later(copies: &[Option<&[u8; PACK_HEADER_BYTES]>]) -> bool {
    let mut there = copies.iter().flatten().peekable();
    there.peek().is_some()
        && there.all(|copy| matches!(PackHeader::decode(*copy), Err(FormatError::Newer { .. })))
}

/// Nothing opens: a copy that looks like one. A later version is said before damage.
fn sound_one(copies: [Option<&[u8; PACK_HEADER_BYTES]>; 2]) -> Result<PackHeader, FormatError> {
    let mut trouble = None;
    for copy in copies {
        match PackHeader::decode(copy.map_or(&[], |copy| copy)) {
            Ok(header) => return Ok(header),
            Err(error @ FormatError::Newer { .. }) => trouble = Some(error),
            Err(error) => drop(trouble.get_or_insert(error)),
        }
    }
    Err(trouble.expect("two copies were looked at"))
}
