//! Blocks of the files in the cache that tell of inodes: `length 4 | seal 16 | records`.

use std::io::{self, Read, Write};

pub(super) const SEAL_BYTES: usize = 16;
/// Of a block.
pub(super) type Seal = [u8; SEAL_BYTES];

/// Writes a block of these records.
pub(super) fn write_block(out: &mut impl Write, seal: &Seal, records: &[u8]) -> io::Result<()> {
    out.write_all(&(records.len() as u32).to_le_bytes())?;
    out.write_all(seal)?;
    out.write_all(records)
}

/// Reads the records of the next block, if it is whole, no longer than `len_max`, and has the seal
/// that `seal` makes of them; what is in `records` otherwise is nothing.
pub(super) fn read_block(
    from: &mut impl Read,
    len_max: usize,
    records: &mut Vec<u8>,
    seal: impl FnOnce(&[u8]) -> Seal,
) -> Option<()> {
    let mut head = [0; 4 + SEAL_BYTES];
    from.read_exact(&mut head).ok()?;
    let (len, found) = head.split_first_chunk::<4>()?;
    let len = u32::from_le_bytes(*len) as usize;
    if len == 0 || len > len_max {
        return None;
    }
    records.resize(len, 0);
    from.read_exact(records).ok()?;
    (*found == seal(records)).then_some(())
}
