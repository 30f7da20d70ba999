//! Integers out of byte slices, without a way to panic.
//!
//! A field beyond the end of its structure reads as 0. That is ext4's own rule for structures that
//! grew (short inodes, short descriptors), and callers check the length where 0 would mean
//! something else.

/// Little-endian `u16`, 0 beyond the end.
#[inline]
pub(super) fn u16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes
        .get(offset..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u16::from_le_bytes(*b))
}

/// Little-endian `u32`, 0 beyond the end.
#[inline]
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_le_bytes(*b))
}

/// A 48- or 64-bit number whose halves lie apart.
#[inline]
pub(super) fn join_u64(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Big-endian `u32` (the journal's order), 0 beyond the end.
#[inline]
pub(super) fn be32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes
        .get(offset..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u32::from_be_bytes(*b))
}

/// Big-endian `u16`, 0 beyond the end.
#[inline]
pub(super) fn be16_at(bytes: &[u8], offset: usize) -> u16 {
    bytes
        .get(offset..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u16::from_be_bytes(*b))
}

/// Big-endian `u64`, 0 beyond the end.
#[inline]
pub(super) fn be64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes
        .get(offset..)
        .and_then(|b| b.first_chunk())
        .map_or(0, |b| u64::from_be_bytes(*b))
}
