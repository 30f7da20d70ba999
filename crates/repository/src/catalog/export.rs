//! Writes a catalog as Parquet files for other programs: its merged rows, in order.
//!
//! The columns are those of segments. `read_parquet('DIR/*.parquet')` in DuckDB is the whole table;
//! names are BLOBs.

use super::{CatalogReader, KeyRange, SegmentWriter};
use crate::error::Error;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// A catalog could not be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The catalog could not be read, or a row not encoded.
    #[error("export the catalog")]
    Catalog(#[from] super::CatalogError),
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub files: u64,
    pub rows: u64,
    pub bytes: u64,
}

/// Writes the rows of a range to `catalog-000000.parquet` and so on in a directory, which must
/// exist. No file of that name may exist yet.
pub fn export(
    reader: &CatalogReader,
    range: KeyRange,
    directory: &Path,
) -> Result<Exported, ExportError> {
    let mut exported = Exported::default();
    let mut writer = SegmentWriter::new();
    let mut sink = |segment: Vec<u8>| {
        let path = directory.join(format!("catalog-{:06}.parquet", exported.files));
        // Names are content: for their owner alone.
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path).map_err(Error::local("create", &path))?;
        (file.write_all(&segment)).map_err(Error::local("write", &path))?;
        exported.files += 1;
        exported.bytes += segment.len() as u64;
        Ok(bale_format::ChunkId::default())
    };
    let mut rows = 0;
    for entry in reader.rows(range) {
        writer.push(&entry?, &mut sink)?;
        rows += 1;
    }
    writer.close(&mut sink)?;
    exported.rows = rows;
    Ok(exported)
}
