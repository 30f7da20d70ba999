//! XFS: an inode and all it refers to.

#![no_main]

use bale_fsimage::xfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = fuzz::inode(data);
});
