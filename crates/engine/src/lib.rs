//! The operations of Bale and the stages they are made of, in the order the data flows.
//!
//! No terminal, no environment, no exit codes: those belong to the command line. Each operation is a story function in
//! the module of its name; each effect has one door (`store` writes, `clock` tells the time, `random` draws salts).

pub mod clock;
pub mod filter;
pub mod random;
pub mod scan;
pub mod store;
