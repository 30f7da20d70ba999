//! The ext4 reader and writer against the kernel and the ext tools: file systems made, mounted,
//! changed and broken for real.
//!
//! Most of these tests need root, loop devices and e2fsprogs. Where something is missing they say
//! `SKIPPED:` on stderr, or fail if `BALE_REQUIRE_ALL_TESTS` is 1.

mod compare;
mod damage;
mod differential;
mod encrypted;
mod fixture;
mod histories;
mod image;
mod journal;
mod mkext4_faults;
mod mkext4_kernel;
mod mkext4_random;
mod mkext4_reader;
mod mkext4_tree;
#[path = "../mounting/mod.rs"]
mod mounting;
mod scan;
mod unmounted;
