//! Little-endian integers out of byte slices, without a way to panic: `None` beyond the end.

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let found = bytes.get(at..)?.first_chunk();
    found.map(|found| u16::from_le_bytes(*found))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let found = bytes.get(at..)?.first_chunk();
    found.map(|found| u32::from_le_bytes(*found))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let found = bytes.get(at..)?.first_chunk();
    found.map(|found| u64::from_le_bytes(*found))
}
