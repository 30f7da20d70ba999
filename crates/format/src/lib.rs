//! The bytes of a Bale repository: encoding and checked decoding of every object. docs/FORMAT.md is
//! the contract.
//!
//! Pure: no I/O, no clock, no threads, no randomness (salts are passed in). Whatever is decoded
//! here is untrusted: lengths are checked before anything is allocated, and a newer version is
//! never called damage.

#![forbid(unsafe_code)]

mod aead;
pub mod chunk;
pub mod config;
pub mod entry;
pub mod error;
pub mod extent;
mod fields;
pub mod gear;
pub mod id;
pub mod index;
pub mod key_slot;
pub mod keys;
pub mod limits;
pub mod pack;
mod pack_header;
pub mod padding;
pub mod pieces;
pub mod record;
pub mod recovery;
pub mod salvage;
pub mod scratch;
pub mod sealed;
pub mod segment;
pub mod snapshot;
pub mod snapshot_json;
pub mod stretch;
pub mod transfers;
pub mod xattrs;

pub use chunk::{ChunkKind, Codec, Compressor, Decompressor};
pub use config::{Access, ChunkSizes, Config, UnverifiedConfig};
pub use entry::{Content, Entry, EntryFlags, Key, Kind, Time};
pub use error::{Fault, FormatError};
pub use extent::{IMAGE_BLOCK_BYTES, ImageExtent};
pub use gear::{Cutter, GearTable};
pub use id::{ChunkId, ObjectId, RepositoryId};
pub use index::{ChunkPlace, Index, IndexEntry, IndexPack, PackNumber, encode_index};
pub use key_slot::{KeySlot, PasswordCost, SlotKind, SlotParameters, SlotSecret};
pub use keys::{Keys, RootKey};
pub use pack::{FinishedPack, KeyOfEnds, PackEntry, PackFooter, PackHeader, PackLayout, Payload};
pub use pieces::{Piece, PieceList, PieceListBuilder, PieceRoot, PieceStep, PieceWalk};
pub use record::{PackKey, RecordHead, RecordKind};
pub use recovery::RecoveryKey;
pub use salvage::{SalvageScan, salvage_record};
pub use sealed::ObjectType;
pub use segment::{Pointer, RowView, Segment, SegmentBuilder, SegmentError, SegmentKeys};
pub use snapshot::{Layer, SegmentRef, Snapshot};
pub use snapshot_json::{Condemned, DamagedPacks};
pub use stretch::{StretchEntry, StretchName, StretchRecord, StretchTable};
pub use transfers::{Transfer, TransferLog, Transfers};
pub use xattrs::{Xattr, XattrsColumn};
