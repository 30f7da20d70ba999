//! NTFS: a volume with all its files.

#![no_main]

use bale_fsimage::ntfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::volume(data));
