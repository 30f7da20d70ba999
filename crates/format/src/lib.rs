//! The bytes of a Bale repository: encoding and checked decoding of every object. docs/FORMAT.md is the contract.
//!
//! Pure: no I/O, no clock, no threads, no randomness (salts are passed in). Whatever is decoded here is untrusted:
//! lengths are checked before anything is allocated, and a newer version is never called damage.

#![forbid(unsafe_code)]

pub mod entry;
pub mod id;
pub mod segment;
pub mod snapshot;

pub use entry::{Content, Entry, EntryFlags, Key, Kind, Time};
pub use id::{ChunkId, ObjectId, RepositoryId};
pub use segment::{Segment, SegmentBuilder, SegmentError, SegmentKeys};
pub use snapshot::{Layer, SegmentRef, Snapshot};
