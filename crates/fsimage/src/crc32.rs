//! CRC-32 of Ethernet, as partition tables and LVM2 have it.

/// Reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let mut value = at as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (POLYNOMIAL * (value & 1));
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};

/// From a start, without the inversions at both ends.
pub(crate) fn crc32_from(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |value, byte| {
        (value >> 8) ^ TABLE[((value ^ u32::from(*byte)) & 0xff) as usize]
    })
}

/// As everybody else has it.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !crc32_from(u32::MAX, bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(super::crc32(b"123456789"), 0xcbf4_3926);
    }
}
