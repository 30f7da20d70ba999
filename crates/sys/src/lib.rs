//! The only unsafe code of Bale: system calls that no safe crate offers, and vector registers.
//!
//! Every function is a thin, safe wrapper: it takes borrowed file descriptors, returns
//! `std::io::Result`, and never keeps state beyond "this kernel does not know that call". No policy
//! lives here.

pub mod bpf;
pub mod buffer;
pub mod bulkstat;
pub mod cache;
pub mod extents;
pub mod freeze;
pub mod handle;
pub mod inode;
pub mod kernel;
pub mod lanes;
pub mod lease;
pub mod mapped;
pub mod memory;
pub mod open;
pub mod reads;
pub mod restore_calls;
pub mod signals;
pub mod users;
pub mod xattr;
