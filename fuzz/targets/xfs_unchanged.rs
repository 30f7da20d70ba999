//! XFS: a number, and an allocation group with inodes, of which two states are compared that differ
//! in the byte that the number says.

#![no_main]

use bale_fsimage::xfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _how_many = fuzz::unchanged(data);
});
