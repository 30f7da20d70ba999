//! NTFS: what is compressed together.

#![no_main]

use bale_fsimage::ntfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::compressed(data));
