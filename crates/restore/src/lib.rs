//! A snapshot becomes files again: through the kernel, as a new ext4 file system, or as a stream.
//!
//! Knows no repository: catalog and content come through [`CatalogSource`] and [`ChunkSource`].

#![forbid(unsafe_code)]

pub mod dump;
pub mod ext4;
mod extents;
mod guard;
pub mod image_reader;
mod image_writer;
mod kernel;
mod losses;
pub mod names;
mod options;
mod pack_reads;
pub mod pieces;
mod plan;
mod progress;
mod reads;
mod report;
mod reported;
mod row;
mod rows_ahead;
mod scratch;
mod seams;
pub mod select;
mod shared_device;
mod totals;
mod warm;
pub mod xattrs;

pub use guard::{DeviceAndInode, Protected};
pub use kernel::{memory_bytes, restore, restore_image, verify, verify_image};
pub use losses::{LOSS_PATHS_LISTED_MAX, Loss, LossKind};
pub use options::{Overwrite, RestoreOptions};
pub use pack_reads::{PackReads, ReadsTotals};
pub use reads::{PackReadsTaker, make_readable, plan_reads};
pub use report::{RestoreError, RestoreReport};
pub use reported::ReportedProblems;
pub use row::{decode as decode_row, encode as encode_row};
pub use scratch::ScratchSpace;
pub use seams::{CatalogRows, CatalogSource, ChunkSource, ChunkTrouble};
pub use select::{Everything, Selection};
pub use warm::{Arrival, ReadableChunks, Warmer};
