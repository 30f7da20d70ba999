//! ext4: a superblock, then inodes.

#![no_main]

use bale_fsimage::ext4::fuzz_entry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzz_entry::inode_table(data);
});
