//! XFS: a block of a directory.

#![no_main]

use bale_fsimage::xfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = fuzz::dir_block(data);
});
