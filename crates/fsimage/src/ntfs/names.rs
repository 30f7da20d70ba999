//! Names and times of NTFS as everybody else has them.

use super::bytes::{u16_at, u64_at};
use super::record::MftReference;
use crate::inode::Timestamp;

const NAME_AT: usize = 66;
const NAME_LENGTH_AT: usize = 64;
const NAMESPACE_AT: usize = 65;
/// A second name in 8.3 form, for programs of another age.
const DOS: u8 = 2;
/// From 1601 to 1970, in units of 100 nanoseconds.
const EPOCH: i128 = 116_444_736_000_000_000;
const UNITS_A_SECOND: i128 = 10_000_000;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtfsName {
    pub parent: MftReference,
    /// UTF-8; halves of surrogate pairs, of which Windows takes any, as three bytes each.
    pub name: Vec<u8>,
}

/// Decodes a $FILE_NAME. The outer `None`: it is damaged; the inner one: it is the 8.3 form of
/// another name.
pub(super) fn decode_name(value: &[u8]) -> Option<Option<NtfsName>> {
    let len = usize::from(*value.get(NAME_LENGTH_AT)?) * 2;
    let units = value.get(NAME_AT..)?.get(..len)?;
    if *value.get(NAMESPACE_AT)? == DOS {
        return Some(None);
    }
    let name = utf8(units);
    let is_good = !name.is_empty() && !name.iter().any(|byte| matches!(byte, 0 | b'/'));
    is_good.then_some(Some(NtfsName {
        parent: MftReference::from_u64(u64_at(value, 0)?),
        name,
    }))
}

/// Of UTF-16, little-endian.
pub(super) fn utf8(units: &[u8]) -> Vec<u8> {
    let units = units.as_chunks::<2>().0;
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
    let mut name = Vec::new();
    let mut buffer = [0; 4];
    for found in char::decode_utf16(units) {
        match found {
            Ok(letter) => name.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes()),
            Err(half) => {
                let unit = half.unpaired_surrogate();
                let six = |shift: u32| 0x80 | (unit >> shift & 0x3f) as u8;
                name.extend([0xe0 | (unit >> 12) as u8, six(6), six(0)]);
            }
        }
    }
    name
}

/// The same, of text that must be there up to its length.
pub(super) fn text_at(bytes: &[u8], at: usize, len: usize) -> Option<Vec<u8>> {
    let text = bytes.get(at..)?.get(..len)?;
    u16_at(text, 0)?;
    Some(utf8(text))
}

pub(super) fn timestamp(units: u64) -> Timestamp {
    let since = i128::from(units) - EPOCH;
    Timestamp {
        // Some 58,000 years at most.
        seconds: since.div_euclid(UNITS_A_SECOND) as i64,
        nanos: since.rem_euclid(UNITS_A_SECOND) as u32 * 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_any_units_are_told_apart() {
        let bytes = |units: &[u16]| -> Vec<u8> {
            units.iter().flat_map(|unit| unit.to_le_bytes()).collect()
        };
        assert_eq!(utf8(&bytes(&[0x61, 0xe4, 0x20ac])), "aä€".as_bytes());
        assert_eq!(utf8(&bytes(&[0xd83d, 0xde00])), "😀".as_bytes());
        assert_eq!(utf8(&bytes(&[0xd83d, 0x61])), [0xed, 0xa0, 0xbd, b'a']);
        assert_ne!(utf8(&bytes(&[0xde00])), utf8(&bytes(&[0xde01])));
    }

    #[test]
    fn times_are_exact_on_both_sides_of_1970() {
        let time = |units, seconds, nanos| {
            assert_eq!(timestamp(units), Timestamp { seconds, nanos });
        };
        time(116_444_736_000_000_000, 0, 0);
        time(116_444_735_999_999_999, -1, 999_999_900);
        time(0, -11_644_473_600, 0);
        time(132_537_600_000_000_007, 1_609_286_400, 700);
    }
}
