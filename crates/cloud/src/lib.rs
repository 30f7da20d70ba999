//! Stores of the clouds: S3 and its likes, B2, Google Cloud Storage, Azure Blob.
//!
//! An object is one request: whole in memory before its first byte leaves, never in parts, and made
//! only if it is not there. S3 and its signed requests are ours (`s3.rs`), with reqsign's signer;
//! Google and Azure go through opendal, in builds with the feature `clouds`. What goes over the
//! wire, how long it may take and what an answer means are decided here for all of them. Requests
//! are made once: making them again is for a decorator. Calls block, from any number of threads.
//!
//! `client` and `trust` are for stores on other servers, too: one client for everything on HTTP.

mod b2;
mod certificate;
pub mod client;
mod credentials;
mod dates;
#[cfg(feature = "clouds")]
mod opendal_service;
#[cfg(feature = "clouds")]
mod opendal_transport;
mod options;
mod pace;
mod place;
mod policy;
mod refusal;
mod s3;
mod service;
mod store;
mod transport;
pub mod trust;
mod upload;
mod variables;
mod wait;

pub use certificate::{HOW_TO_MAKE, refused_certificate_text};
pub use options::CloudOptions;
pub use pace::Pace;
pub use place::{Cloud, CloudPlace, CloudPlaceError};
pub use policy::{CLIENT, put_only_policy};
pub use refusal::{Answer, Refusal, refusal};
pub use s3::fuzz_list_page;
pub use store::CloudStore;
pub use variables::Variables;
