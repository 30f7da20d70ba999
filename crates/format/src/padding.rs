//! Lengths that the store sees: few of them, so that they say little of what was sealed.
//! docs/FORMAT.md, sections 4 and 5.
//!
//! Padmé (PURBs, Nikitin and others, 2019): a length keeps its exponent and as many leading bits as
//! the exponent has. Adds nothing to 6.25 % above a kibibyte, at most 3.2 % above 64 KiB, and half
//! of that on average.

use crate::error::{Fault, FormatError};

/// The next of the few lengths, `bytes` itself if it is one.
pub const fn padded(bytes: usize) -> usize {
    if bytes < 2 {
        return bytes;
    }
    let exponent = bytes.ilog2();
    let kept = exponent.ilog2() + 1;
    let dropped = exponent.saturating_sub(kept);
    let mask = (1_usize << dropped) - 1;
    (bytes + mask) & !mask
}

/// What was sealed is `payload_bytes` of content and zeros.
pub(crate) fn check_padding(
    what: &'static str,
    opened: &[u8],
    payload_bytes: usize,
) -> Result<(), FormatError> {
    let padding = opened.get(payload_bytes..).unwrap_or_default();
    match padding.iter().find(|byte| **byte != 0) {
        None => Ok(()),
        Some(byte) => Err(FormatError::damaged(
            what,
            Fault::Value {
                field: "padding",
                found: u64::from(*byte),
            },
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_padded_to_few_and_by_little() {
        for (bytes, expected) in [
            (0, 0),
            (1, 1),
            (9, 10),
            (1024, 1024),
            (1025, 1088),
            (65_536, 65_536),
            (65_537, 67_584),
            (3_000_000, 3_014_656),
            ((16 << 20) + 64, (16 << 20) + (512 << 10)),
        ] {
            assert_eq!(padded(bytes), expected, "{bytes}");
        }
        let mut lengths = std::collections::BTreeSet::new();
        for bytes in 1024..1 << 20 {
            let length = padded(bytes);
            let share_max = if bytes < 1 << 16 { 16 } else { 32 };
            assert!(
                length >= bytes && (length - bytes) * share_max < bytes,
                "{bytes}"
            );
            assert_eq!(padded(length), length);
            lengths.insert(length);
        }
        // Sixteen for each doubling up to 64 KiB, then 32.
        assert_eq!(lengths.len(), 6 * 16 + 4 * 32 + 1);
    }
}
