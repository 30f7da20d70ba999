//! ext4: a superblock, then a block of extended attributes.

#![no_main]

use bale_fsimage::ext4::fuzz_entry;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    fuzz_entry::xattr_block(data);
});
