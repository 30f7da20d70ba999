//! `bale catalog`

use super::{listing, select};
use crate::args::{Catalog, Global};
use crate::{exit, output, place, sizes};
use anyhow::{Context, Result};
use bale_engine::catalog::{CatalogReader, KeyRange, export};
use serde_json::json;

/// Writes a snapshot's catalog as Parquet files that any tool of that kind can query.
pub fn run(global: &Global, command: &Catalog) -> Result<i32> {
    let Catalog::Export {
        address,
        dir,
        select,
    } = command;
    let repository = place::open(global)?;
    let chosen = select::choose(&repository, address, select)?;
    let catalog = CatalogReader::open(
        repository.segment_source_wherever(),
        chosen.named.1.layers.clone(),
    )?;
    listing::require(&catalog, &chosen)?;
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let range = match chosen.path.is_empty() {
        true => KeyRange::all(),
        false => KeyRange::below(&chosen.path),
    };
    let exported = export(&catalog, range, dir)?;
    if global.json {
        output::object(&json!({
            "type": "summary", "files": exported.files, "rows": exported.rows, "bytes": exported.bytes,
        }));
    } else if !global.quiet {
        let files = sizes::counted(exported.files, "file");
        let rows = sizes::counted(exported.rows, "row");
        tell!(
            "wrote {files} with {rows}, {}",
            sizes::bytes(exported.bytes)
        );
    }
    Ok(exit::COMPLETE)
}
