//! XFS: an allocation group, of which the header of its free space and the btree are read.

#![no_main]

use bale_fsimage::xfs::fuzz;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| fuzz::free_space(data));
