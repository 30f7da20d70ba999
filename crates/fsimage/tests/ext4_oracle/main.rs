//! The ext4 reader against the kernel and the ext tools: file systems made, mounted, changed and
//! broken for real.
//!
//! These tests need root, loop devices and e2fsprogs. Where something is missing they say
//! `SKIPPED:` on stderr, or fail if `BALE_REQUIRE_ALL_TESTS` is 1.

mod compare;
mod damage;
mod differential;
mod encrypted;
mod fixture;
mod histories;
mod image;
mod journal;
#[path = "../mounting/mod.rs"]
mod mounting;
mod scan;
mod unmounted;
