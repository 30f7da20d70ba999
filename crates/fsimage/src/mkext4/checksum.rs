//! The checksums of `metadata_csum`: CRC-32C without the final inversion, chained from a seed.

/// Continues a CRC-32C from `seed`; the file system stores the running value, not its complement.
pub(super) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

/// Seed of everything on the file system: its UUID.
pub(super) fn file_system_seed(uuid: &[u8; 16]) -> u32 {
    crc32c(!0, uuid)
}

/// Seed of an inode and of the blocks that belong to it.
pub(super) fn inode_seed(file_system_seed: u32, inode: u32, generation: u32) -> u32 {
    crc32c(
        crc32c(file_system_seed, &inode.to_le_bytes()),
        &generation.to_le_bytes(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chained_checksum_is_the_checksum_of_the_whole() {
        let whole = crc32c(!0, b"123456789");
        assert_eq!(whole, !0xe306_9283);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), whole);
    }
}
