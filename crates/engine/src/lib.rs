//! The operations of Bale, each a story function in the module of its name.
//!
//! No terminal, no environment, no exit codes: those belong to the command line. What a source, a
//! repository and a target are is not known here but in the crates of these names; the engine
//! brings them together.

#![forbid(unsafe_code)]

pub mod backup;
pub mod dump;
pub mod forget;
pub mod limits;
pub mod prune;
pub mod repair;
pub mod restore;
pub mod used;
pub mod verify;
