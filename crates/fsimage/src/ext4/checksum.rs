//! The three checksums found in ext4: crc32c nearly everywhere, crc16 in the descriptors of older
//! file systems, big-endian crc32 in the commit blocks of the oldest checksummed journals.

/// crc32c as ext4 chains it: from a running value, without the final inversion.
#[inline]
pub(super) fn crc32c(running: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!running, bytes)
}

/// Start of everything that belongs to one inode: its extent nodes, its directory blocks, itself.
#[inline]
pub(super) fn inode_seed(file_system_seed: u32, number: u32, generation: u32) -> u32 {
    let mut key = [0; 8];
    key[..4].copy_from_slice(&number.to_le_bytes());
    key[4..].copy_from_slice(&generation.to_le_bytes());
    crc32c(file_system_seed, &key)
}

/// crc16 (reflected 0x8005) of group descriptors before metadata_csum.
pub(super) fn crc16(running: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(running, |crc, byte| {
        (crc >> 8) ^ CRC16_TABLE[usize::from((crc as u8) ^ byte)]
    })
}

/// crc32 with the most significant bit first, no inversion: version 1 journal checksums.
pub(super) fn crc32_be(running: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(running, |crc, byte| {
        (crc << 8) ^ CRC32_BE_TABLE[usize::from((crc >> 24) as u8 ^ byte)]
    })
}

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 {
                (crc >> 1) ^ 0xA001
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

const CRC32_BE_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 != 0 {
                (crc << 1) ^ 0x04C1_1DB7
            } else {
                crc << 1
            };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the published catalogue of CRC parameters: the input is always
    /// "123456789".
    #[test]
    fn checksums_have_their_catalogued_check_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(!crc32_be(!0, b"123456789"), 0xFC89_1918);
    }

    #[test]
    fn chained_crc32c_equals_crc32c_of_the_whole() {
        assert_eq!(
            crc32c(crc32c(7, b"1234"), b"56789"),
            crc32c(7, b"123456789")
        );
    }
}
