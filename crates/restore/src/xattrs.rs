//! The `xattrs` column: none, the set itself, or the id of a chunk that is the set.

use crate::ChunkSource;
use bale_format::xattrs::decode_xattrs;
use bale_format::{ChunkKind, Xattr, XattrsColumn};
use bytes::Bytes;

/// The set that a row's column means. `Err` says why it cannot be had.
pub fn of_column(column: &Bytes, chunks: &dyn ChunkSource) -> Result<Vec<Xattr>, String> {
    let set = match XattrsColumn::decode(column).map_err(|error| error.to_string())? {
        XattrsColumn::None => return Ok(Vec::new()),
        XattrsColumn::Inline(set) => set,
        XattrsColumn::Chunk(id) => chunks
            .read(&id, ChunkKind::Xattrs)
            .map_err(|trouble| trouble.to_string())?,
    };
    decode_xattrs(&set).map_err(|error| error.to_string())
}
