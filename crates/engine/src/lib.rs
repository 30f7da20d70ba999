//! The operations of Bale and the stages they are made of, in the order the data flows.
//!
//! No terminal, no environment, no exit codes: those belong to the command line. Each operation is a story function in
//! the module of its name; each effect has one door (`store` writes, `clock` tells the time, `random` draws salts).

#![forbid(unsafe_code)]

mod ahead;
pub mod amount;
pub mod backup;
pub mod catalog;
pub mod clock;
pub mod dump;
pub mod error;
pub mod filter;
pub mod forget;
pub mod image;
pub mod index;
pub mod limits;
pub mod monitor;
pub mod pack;
mod private_dir;
pub mod prune;
pub mod random;
pub mod read;
pub mod repair;
pub mod repository;
pub mod restore;
pub mod scan;
pub mod snapshots;
pub mod spill;
pub mod store;
pub mod used;
pub mod verify;
