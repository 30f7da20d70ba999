//! Integers packed by their bits: deltas, and indices into a dictionary. Untrusted, as all of a
//! segment.

use super::thrift::{read_varint, unzigzag};
use super::{SegmentError, damage};

type Result<T> = std::result::Result<T, SegmentError>;

/// Values of one delta block; writers use 128.
const DELTA_BLOCK_VALUES_MAX: u64 = 1 << 16;

/// DELTA_BINARY_PACKED: calls `push` exactly `count` times and returns the bytes used.
pub(super) fn unpack_deltas(body: &[u8], count: usize, mut push: impl FnMut(i64)) -> Result<usize> {
    let damaged = || damage("page of deltas");
    let mut at = 0;
    let varint = |at: &mut usize| -> Result<u64> {
        let (value, len) = read_varint(&body[*at..])?;
        *at += len;
        Ok(value)
    };
    let block_values = varint(&mut at)?;
    let miniblocks = varint(&mut at)?;
    let total = varint(&mut at)?;
    let mut value = unzigzag(varint(&mut at)?);
    let sane = (1..=DELTA_BLOCK_VALUES_MAX).contains(&block_values)
        && (1..=block_values).contains(&miniblocks)
        && block_values.is_multiple_of(miniblocks)
        && (block_values / miniblocks).is_multiple_of(8)
        && total == count as u64;
    if !sane {
        return Err(damaged());
    }
    let miniblock_values = (block_values / miniblocks) as usize;
    let mut left = count;
    if left > 0 {
        push(value);
        left -= 1;
    }
    while left > 0 {
        let delta_min = unzigzag(varint(&mut at)?);
        let widths = body.get(at..at + miniblocks as usize).ok_or_else(damaged)?;
        at += miniblocks as usize;
        for width in widths {
            if left == 0 {
                break;
            }
            let width = u32::from(*width);
            let len = miniblock_values / 8 * width as usize;
            let packed = body
                .get(at..at + len)
                .filter(|_| width <= 64)
                .ok_or_else(damaged)?;
            at += len;
            let here = left.min(miniblock_values);
            for index in 0..here {
                let delta = if width == 0 {
                    0
                } else {
                    unpack(packed, index, width) as i64
                };
                value = value.wrapping_add(delta_min).wrapping_add(delta);
                push(value);
            }
            left -= here;
        }
    }
    Ok(at)
}

/// Dictionary indices: a width, then runs of one value and runs of packed values. `push` is told an
/// index and of how many rows it is.
pub(super) fn unpack_indices(
    body: &[u8],
    count: usize,
    mut push: impl FnMut(u32, usize) -> Result<()>,
) -> Result<()> {
    let damaged = || damage("page of dictionary indices");
    let (width, mut rest) = body.split_first().ok_or_else(damaged)?;
    let width = u32::from(*width);
    if width > 32 {
        return Err(damaged());
    }
    let mut left = count as u64;
    while left > 0 {
        let (head, len) = read_varint(rest)?;
        rest = &rest[len..];
        if head & 1 == 0 {
            let value_len = width.div_ceil(8) as usize;
            let value = rest.get(..value_len).ok_or_else(damaged)?;
            rest = &rest[value_len..];
            let value = value
                .iter()
                .rev()
                .fold(0u32, |value, byte| value << 8 | u32::from(*byte));
            let here = left.min(head >> 1);
            push(value, here as usize)?;
            left -= here;
        } else {
            let here = left.min((head >> 1).saturating_mul(8));
            // The last run may be cut short of its padding.
            let len = (here * u64::from(width)).div_ceil(8);
            let full = ((head >> 1).saturating_mul(u64::from(width))).max(len);
            let packed = rest.get(..len as usize).ok_or_else(damaged)?;
            for index in 0..here as usize {
                push(unpack(packed, index, width) as u32, 1)?;
            }
            rest = &rest[(full.min(rest.len() as u64)) as usize..];
            left -= here;
        }
    }
    Ok(())
}

/// The value at `index` of values of `width` bits, lowest bit first. The caller has checked that it
/// is there.
#[inline]
fn unpack(packed: &[u8], index: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let bit = index * width as usize;
    let (at, shift) = (bit / 8, (bit % 8) as u32);
    let mask = u64::MAX >> (64 - width);
    if width <= 56
        && let Some(eight) = packed[at..].first_chunk::<8>()
    {
        return u64::from_le_bytes(*eight) >> shift & mask;
    }
    let mut wide = [0; 16];
    let len = (packed.len() - at).min(16);
    wide[..len].copy_from_slice(&packed[at..at + len]);
    (u128::from_le_bytes(wide) >> shift) as u64 & mask
}
