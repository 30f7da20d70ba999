//! The encodings of Parquet that segments use: deltas, dictionary indices, byte strings.
//!
//! Each writes the body of one page. Bytes depend on the values alone.

use super::file::Physical;
use std::collections::HashMap;
use std::hash::Hash;

/// Miniblocks of a block of deltas.
const MINIBLOCKS: usize = 4;
/// Values of a miniblock, at most.
const MINIBLOCK_VALUES_MAX: usize = 64;
/// Values that are packed together at least, and the shortest run that is written as a run.
const GROUP_VALUES: usize = 8;
/// Groups of one packed run: their number fits one byte.
const GROUPS_MAX: usize = 63;

/// An integer of a column.
pub(super) trait Integer: Copy + Eq + Hash {
    /// Its type in a file.
    const PHYSICAL: Physical;
    const MINIBLOCK_VALUES: usize;
    /// Bits beyond which differences wrap.
    const MASK: u64;
    /// For the start of a page.
    fn wide(self) -> i64;
    /// Difference to the value before, wrapping within the type.
    fn delta(self, before: Self) -> i64;
    fn push_plain(self, out: &mut Vec<u8>);
}

impl Integer for i32 {
    const PHYSICAL: Physical = Physical::Int32;
    const MINIBLOCK_VALUES: usize = 32;
    const MASK: u64 = u32::MAX as u64;
    fn wide(self) -> i64 {
        i64::from(self)
    }
    fn delta(self, before: i32) -> i64 {
        i64::from(self.wrapping_sub(before))
    }
    fn push_plain(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

impl Integer for i64 {
    const PHYSICAL: Physical = Physical::Int64;
    const MINIBLOCK_VALUES: usize = MINIBLOCK_VALUES_MAX;
    const MASK: u64 = u64::MAX;
    fn wide(self) -> i64 {
        self
    }
    fn delta(self, before: i64) -> i64 {
        self.wrapping_sub(before)
    }
    fn push_plain(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_le_bytes());
    }
}

/// DELTA_BINARY_PACKED.
pub(super) fn push_deltas<T: Integer>(values: &[T], out: &mut Vec<u8>) {
    let block_values = MINIBLOCKS * T::MINIBLOCK_VALUES;
    push_varint(block_values as u64, out);
    push_varint(MINIBLOCKS as u64, out);
    push_varint(values.len() as u64, out);
    let Some(first) = values.first() else {
        return push_varint(0, out);
    };
    push_zigzag(first.wide(), out);
    let mut before = *first;
    let mut deltas = [0i64; MINIBLOCKS * MINIBLOCK_VALUES_MAX];
    for block in values[1..].chunks(block_values) {
        let mut delta_min = i64::MAX;
        for (delta, value) in deltas.iter_mut().zip(block) {
            *delta = value.delta(before);
            delta_min = delta_min.min(*delta);
            before = *value;
        }
        push_zigzag(delta_min, out);
        let widths_at = out.len();
        out.extend_from_slice(&[0; MINIBLOCKS]);
        let miniblocks = deltas[..block.len()].chunks(T::MINIBLOCK_VALUES);
        for (number, miniblock) in miniblocks.enumerate() {
            let mut packed = [0u64; MINIBLOCK_VALUES_MAX];
            let mut all = 0;
            for (packed, delta) in packed.iter_mut().zip(miniblock) {
                *packed = delta.wrapping_sub(delta_min) as u64 & T::MASK;
                all |= *packed;
            }
            let width = u64::BITS - all.leading_zeros();
            out[widths_at + number] = width as u8;
            push_packed(&packed[..T::MINIBLOCK_VALUES], width, out);
        }
    }
}

/// Values of `width` bits each, lowest bit first. Their number is a multiple of eight.
fn push_packed(values: &[u64], width: u32, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    out.reserve(values.len() / 8 * width as usize + 8);
    let end = out.len() + values.len() / 8 * width as usize;
    let (mut word, mut filled) = (0u64, 0);
    for value in values {
        word |= value << filled;
        filled += width;
        if filled >= u64::BITS {
            out.extend_from_slice(&word.to_le_bytes());
            filled -= u64::BITS;
            // Of a value that ended exactly here nothing is left: shifting by all bits is not
            // defined.
            word = value.checked_shr(width - filled).unwrap_or(0);
        }
    }
    out.extend_from_slice(&word.to_le_bytes());
    out.truncate(end);
}

/// The different values of a column, in the order in which they first occur, and each row's among
/// them.
pub(super) struct Dictionary<T> {
    pub(super) values: Vec<T>,
    pub(super) indices: Vec<u32>,
}

impl<T: Copy + Eq + Hash> Dictionary<T> {
    /// Of all rows.
    pub(super) fn of(column: impl ExactSizeIterator<Item = T>) -> Dictionary<T> {
        let mut found = Dictionary {
            values: Vec::new(),
            indices: Vec::with_capacity(column.len()),
        };
        let mut numbers = HashMap::new();
        let mut before = None;
        for value in column {
            // Most rows are like the one before.
            let number = match before {
                Some((same, number)) if same == value => number,
                _ => *numbers.entry(value).or_insert_with(|| {
                    found.values.push(value);
                    found.values.len() as u32 - 1
                }),
            };
            before = Some((value, number));
            found.indices.push(number);
        }
        found
    }
}

/// RLE_DICTIONARY: the width, then runs of equal indices and runs of packed ones.
pub(super) fn push_indices(indices: &[u32], width: u32, out: &mut Vec<u8>) {
    out.push(width as u8);
    let mut rest = indices;
    let mut packed = Vec::with_capacity(GROUPS_MAX * GROUP_VALUES);
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|index| *index == first).count();
        if count >= GROUP_VALUES || packed.is_empty() && count == rest.len() {
            push_packed_run(&mut packed, width, out);
            push_varint((count as u64) << 1, out);
            let value_bytes = width.div_ceil(8) as usize;
            out.extend_from_slice(&first.to_le_bytes()[..value_bytes]);
            rest = &rest[count..];
            continue;
        }
        let (group, behind) = rest.split_at(rest.len().min(GROUP_VALUES));
        packed.extend(group.iter().map(|index| u64::from(*index)));
        packed.resize(packed.len().next_multiple_of(GROUP_VALUES), 0);
        if packed.len() >= GROUPS_MAX * GROUP_VALUES {
            push_packed_run(&mut packed, width, out);
        }
        rest = behind;
    }
    push_packed_run(&mut packed, width, out);
}

fn push_packed_run(packed: &mut Vec<u64>, width: u32, out: &mut Vec<u8>) {
    if !packed.is_empty() {
        out.push((packed.len() / GROUP_VALUES * 2 + 1) as u8);
        push_packed(packed, width, out);
        packed.clear();
    }
}

/// DELTA_LENGTH_BYTE_ARRAY.
pub(super) fn push_strings<'a>(values: impl Iterator<Item = &'a [u8]> + Clone, out: &mut Vec<u8>) {
    let lengths: Vec<i32> = values.clone().map(|value| value.len() as i32).collect();
    push_deltas(&lengths, out);
    values.for_each(|value| out.extend_from_slice(value));
}

/// Byte strings as what they share with the one before, and the rest: one page of DELTA_BYTE_ARRAY.
#[derive(Default)]
pub(super) struct PrefixPage {
    shared: Vec<i32>,
    lengths: Vec<i32>,
    rests: Vec<u8>,
}

impl PrefixPage {
    /// Adds a value. `before` is the one before in this page, or empty.
    pub(super) fn push(&mut self, before: &[u8], value: &[u8]) {
        self.push_known(shared_bytes(before, value), value);
    }

    /// Adds a value that shares `shared` bytes with the one before.
    pub(super) fn push_known(&mut self, shared: usize, value: &[u8]) {
        self.shared.push(shared as i32);
        self.lengths.push((value.len() - shared) as i32);
        self.rests.extend_from_slice(&value[shared..]);
    }

    pub(super) fn rows(&self) -> usize {
        self.shared.len()
    }

    /// Bytes that are not shared, without those of the first value: it is whole in every page,
    /// however long.
    pub(super) fn rest_bytes(&self) -> usize {
        let first = self.lengths.first().map_or(0, |length| *length as usize);
        self.rests.len() - first
    }

    /// Writes the page and begins another.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        push_deltas(&self.shared, out);
        push_deltas(&self.lengths, out);
        out.extend_from_slice(&self.rests);
        self.shared.clear();
        self.lengths.clear();
        self.rests.clear();
    }
}

fn shared_bytes(a: &[u8], b: &[u8]) -> usize {
    let pairs = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let words = pairs.take_while(|(a, b)| a == b).count() * 8;
    let rest = a[words..].iter().zip(&b[words..]);
    words + rest.take_while(|(a, b)| a == b).count()
}

pub(super) fn push_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(super) fn push_zigzag(value: i64, out: &mut Vec<u8>) {
    push_varint((value << 1 ^ value >> 63) as u64, out);
}
