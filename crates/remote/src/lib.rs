//! Stores on a wire. Each protocol is one implementation of `Store` in a file or directory of its
//! name and does every request once; what all of them need on top (retries, limits, counting) are
//! decorators over `Store`. Nothing else in the workspace knows a network.

mod location;
mod retry;
pub mod sftp;
mod whole;

pub use location::{Location, LocationError, Scheme};
pub use retry::{RealWaiting, Retried, RetryRules, Waiting};
pub use whole::WholeWriter;
