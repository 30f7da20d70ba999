//! Snapshots as a read-only file system: directories that the kernel asks for, answered from
//! catalogs and packs.
//!
//! ```text
//! kernel ──▶ adapter ──▶ tree ──▶ shown snapshots, rows by number, contents
//! ```
//!
//! Everything is found again from the number that the kernel knows it by, so nothing is remembered
//! for each file that was looked at. `adapter` alone knows FUSE; where snapshots come from is
//! behind [`SnapshotStore`].

#![forbid(unsafe_code)]

mod above;
mod adapter;
mod attributes;
mod contents;
mod forward_rows;
mod latest_used;
mod limits;
mod link_groups;
mod mount_point;
mod numbers;
mod open_catalogs;
mod piece_windows;
mod problems;
mod pusher;
mod read_listings;
mod recent_places;
mod session;
mod shown;
mod snapshot_names;
mod store;
mod tree;
mod tree_error;

pub use adapter::KernelOptions;
pub use attributes::NodeAttributes;
pub use limits::{memory_bytes, segments_bytes};
pub use mount_point::MountPointError;
pub use problems::MountProblem;
pub use session::{MountSession, Unmounting};
pub use store::{SnapshotCatalogs, SnapshotStore, StoreTrouble};
pub use tree::{ListedNode, SnapshotTree};
pub use tree_error::TreeError;
