//! NTFS: a record of the MFT; the same bytes as a boot sector and as the head of a log.

#![no_main]

use bale_fsimage::ntfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzz::record(data);
    fuzz::boot(data);
    fuzz::log_head(data);
});
