//! Stores of the clouds: S3 and its likes, B2, Google Cloud Storage, Azure Blob.
//!
//! An object is one request: whole in memory before its first byte leaves, never in parts, and made
//! only if it is not there. The protocols and their signatures are opendal's, which three files
//! know (`service.rs`, `signed.rs` and `transport.rs`); what goes over the wire, how long it may
//! take and what an answer means are decided here. Requests are made once: making them again is for
//! a decorator. Calls block, from any number of threads.

mod b2;
mod certificate;
mod connect;
mod credentials;
mod dates;
mod pace;
mod place;
mod policy;
mod refusal;
mod s3_access;
mod service;
mod signed;
mod store;
mod transport;
mod variables;
mod watch;

pub use certificate::{HOW_TO_MAKE, refused_certificate_text};
pub use connect::CloudOptions;
pub use pace::Pace;
pub use place::{Cloud, CloudPlace, CloudPlaceError};
pub use policy::{CLIENT, put_only_policy};
pub use refusal::{Answer, Refusal, refusal};
pub use store::CloudStore;
pub use variables::Variables;
