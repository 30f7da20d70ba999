//! The boot sector: sizes of everything, and where the MFT begins.
//!
//! Every size that later code divides or allocates by is bounded here. There is no checksum; a copy
//! in the sector behind the volume is compared by nobody.

use super::bytes::{u16_at, u32_at, u64_at};
use super::error::NtfsError;
use crate::ByteSource;

pub(super) const BOOT_BYTES: usize = 512;
const SECTOR_BYTES_MIN: u32 = 256;
const SECTOR_BYTES_MAX: u32 = 4096;
const CLUSTER_BYTES_MAX: u32 = 2 << 20;
/// Records and index blocks, too.
const RECORD_BYTES_MIN: u32 = 512;
pub(super) const RECORD_BYTES_MAX: u32 = 64 << 10;

/// Checked facts of the boot sector. Sizes are powers of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NtfsBoot {
    pub sector_bytes: u32,
    pub cluster_bytes: u32,
    /// Whole clusters; a rest of sectors behind them is of no file.
    pub clusters: u64,
    /// Sectors of the volume, without the copy of this one behind them.
    pub sectors: u64,
    /// First cluster of the MFT.
    pub mft_cluster: u64,
    /// First cluster of the copy of its first records.
    pub mirror_cluster: u64,
    pub record_bytes: u32,
    pub serial: u64,
}

impl NtfsBoot {
    /// Of the volume at the start of the source.
    pub fn read(source: &dyn ByteSource) -> Result<NtfsBoot, NtfsError> {
        let mut bytes = [0; BOOT_BYTES];
        if source.len_bytes() < BOOT_BYTES as u64 {
            return Err(NtfsError::NotNtfs);
        }
        let read = source.read_exact_at(0, &mut bytes);
        read.map_err(|source| NtfsError::Read {
            what: "boot sector",
            offset: 0,
            source,
        })?;
        NtfsBoot::parse(&bytes, source.len_bytes())
    }

    /// Checks it against itself and the length of the device.
    pub fn parse(bytes: &[u8; BOOT_BYTES], device_bytes: u64) -> Result<NtfsBoot, NtfsError> {
        if &bytes[3..11] != b"NTFS    " || bytes[510..] != [0x55, 0xaa] {
            return Err(NtfsError::NotNtfs);
        }
        let boot = NtfsError::Boot;
        let is_size = |bytes: u32, min: u32, max: u32| {
            bytes.is_power_of_two() && (min..=max).contains(&bytes)
        };
        let sector_bytes = u16_at(bytes, 11).map_or(0, u32::from);
        if !is_size(sector_bytes, SECTOR_BYTES_MIN, SECTOR_BYTES_MAX) {
            return Err(boot("impossible size of sectors"));
        }
        let cluster_bytes = sectors_per_cluster(bytes[13])
            .and_then(|sectors| sectors.checked_mul(sector_bytes))
            .filter(|bytes| is_size(*bytes, sector_bytes, CLUSTER_BYTES_MAX))
            .ok_or(boot("impossible size of clusters"))?;
        let record_bytes = record_bytes(u32_at(bytes, 64).unwrap_or(0) as u8, cluster_bytes)
            .filter(|bytes| is_size(*bytes, RECORD_BYTES_MIN, RECORD_BYTES_MAX))
            .ok_or(boot("impossible size of records"))?;
        let number = |at: usize| u64_at(bytes, at).unwrap_or(0);
        let sectors = number(40);
        let volume_bytes = sectors.checked_mul(sector_bytes.into());
        if volume_bytes.is_none_or(|bytes| bytes > device_bytes) {
            return Err(boot("the volume is longer than its device"));
        }
        let clusters = sectors / u64::from(cluster_bytes / sector_bytes);
        let (mft_cluster, mirror_cluster) = (number(48), number(56));
        if mft_cluster == 0 || mft_cluster >= clusters || mirror_cluster >= clusters {
            return Err(boot("the MFT does not lie within the volume"));
        }
        Ok(NtfsBoot {
            sector_bytes,
            cluster_bytes,
            clusters,
            sectors,
            mft_cluster,
            mirror_cluster,
            record_bytes,
            serial: number(72),
        })
    }

    /// Clusters that so many bytes take.
    pub(super) fn clusters_of(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.cluster_bytes.into())
    }
}

/// As it is, or, for more than 128, as a negative power of two.
fn sectors_per_cluster(byte: u8) -> Option<u32> {
    match byte {
        0 => None,
        1..=128 => Some(byte.into()),
        _ => 1u32.checked_shl(256 - u32::from(byte)),
    }
}

/// In clusters, or as a negative power of two in bytes.
fn record_bytes(byte: u8, cluster_bytes: u32) -> Option<u32> {
    match byte {
        0 => None,
        1..=127 => cluster_bytes.checked_mul(byte.into()),
        _ => 1u32.checked_shl(256 - u32::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_or_powers_of_two() {
        assert_eq!(sectors_per_cluster(8), Some(8));
        assert_eq!(sectors_per_cluster(0xf4), Some(4096));
        assert_eq!(sectors_per_cluster(129), None);
        assert_eq!(record_bytes(0xf6, 4096), Some(1024));
        assert_eq!(record_bytes(1, 4096), Some(4096));
        assert_eq!(record_bytes(0x80, 4096), None);
    }
}
