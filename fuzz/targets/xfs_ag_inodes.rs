//! XFS: an allocation group's header of inodes.

#![no_main]

use bale_fsimage::xfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzz::ag_inodes(data);
});
