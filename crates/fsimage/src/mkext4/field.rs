//! Little-endian fields at fixed offsets of a structure.
//!
//! Offsets are constants of the format, so a slice that is too short is a mistake of this module
//! and panics.

/// Stores a 16-bit field.
pub(super) fn put_u16(bytes: &mut [u8], offset: usize, value: u16) {
    bytes[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
}

/// Stores a 32-bit field.
pub(super) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
}

/// Stores the lower half at one offset and the upper half at another, as ext4 widened its fields.
pub(super) fn put_split_u32(bytes: &mut [u8], low_offset: usize, high_offset: usize, value: u32) {
    put_u16(bytes, low_offset, value as u16);
    put_u16(bytes, high_offset, (value >> 16) as u16);
}

/// Stores a 64-bit value as two 32-bit fields.
pub(super) fn put_split_u64(bytes: &mut [u8], low_offset: usize, high_offset: usize, value: u64) {
    put_u32(bytes, low_offset, value as u32);
    put_u32(bytes, high_offset, (value >> 32) as u32);
}

/// Reads a 16-bit field.
pub(super) fn get_u16(bytes: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([bytes[offset], bytes[offset + 1]])
}

/// Reads a 32-bit field.
pub(super) fn get_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([
        bytes[offset],
        bytes[offset + 1],
        bytes[offset + 2],
        bytes[offset + 3],
    ])
}
