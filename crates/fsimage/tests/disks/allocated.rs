//! What of a disk is to be read, against the programs that make and check file systems: an image of
//! which only those ranges were copied, with garbage everywhere else, is as good as the whole.
//!
//! These tests need root, loop devices, e2fsprogs, xfsprogs and ntfs-3g. Where something is missing
//! they say `SKIPPED:` on stderr, or fail if `BALE_REQUIRE_ALL_TESTS` is 1.

mod disks;
mod doubt;
mod ext4;
pub mod image;
mod ntfs;
mod size;
pub mod tree;
mod xfs;
