//! The operations of Bale, each a story function in the module of its name.
//!
//! No terminal, no environment, no exit codes: those belong to the command line. What a source, a
//! repository and a target are is not known here but in the crates of these names; the engine
//! brings them together.

#![forbid(unsafe_code)]

pub mod backup;
pub mod copy;
pub mod dump;
pub mod export;
pub mod forget;
mod heartbeat;
pub mod limits;
pub mod mirror;
pub mod mount;
pub mod prune;
mod read_again;
mod relied;
pub mod repair;
pub mod replace;
pub mod restore;
pub mod retain;
pub mod rewrite;
pub mod status;
mod two_clocks;
mod two_stores;
pub mod used;
pub mod verify;
mod whole;
