//! What every side of Bale shares, and nothing that knows a source, a repository or a target.
//!
//! Running ahead in a thread, work in parallel with results in order, sorting on disk, listening to
//! an operation, and the doors to the clock, to randomness and to private directories. Path filters
//! are here because a backup that leaves paths out and a restore that must not delete them have to
//! agree.

#![forbid(unsafe_code)]

pub mod ahead;
pub mod amount;
pub mod beside;
pub mod clock;
pub mod error;
pub mod filter;
pub mod memory;
pub mod monitor;
pub mod on_panic;
pub mod ordered;
pub mod private_dir;
pub mod random;
pub mod secret_variables;
pub mod spill;
pub mod users;
