//! Parsers of NTFS.

use bale_fsimage::ntfs::fuzz;

/// NTFS: a record of the MFT; the same bytes as a boot sector and as the head of a log.
pub fn record(data: &[u8]) {
    fuzz::record(data);
    fuzz::boot(data);
    fuzz::log_head(data);
}

/// NTFS: what is compressed together.
pub fn compressed(data: &[u8]) {
    fuzz::compressed(data);
}

/// NTFS: a volume with all its files.
pub fn volume(data: &[u8]) {
    fuzz::volume(data);
}
