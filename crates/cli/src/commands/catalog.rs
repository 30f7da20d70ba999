//! `bale catalog`

use super::{listing, select};
use crate::args::{Catalog, Global};
use crate::named_paths::NamedPath;
use crate::{exit, output, place, sizes};
use anyhow::Result;
use bale_repository::catalog::{CatalogReader, KeyRange, export};
use serde_json::json;

/// Writes a snapshot's catalog as Parquet files that any tool of that kind can query.
pub fn run(global: &Global, command: &Catalog) -> Result<i32> {
    let Catalog::Export {
        address,
        dir,
        select,
    } = command;
    let target = NamedPath {
        by: "DIR",
        attempt: "write the catalog to",
        path: dir,
        advice: "Name a new or an empty directory",
    };
    require_empty(&target)?;
    let repository = place::open(global)?;
    let chosen = select::choose(&repository, address, select, global.json)?;
    let catalog = CatalogReader::open(
        repository.segment_source_wherever(),
        chosen.named.1.layers.clone(),
    )?;
    listing::require(&catalog, &chosen)?;
    std::fs::create_dir_all(dir).map_err(|error| target.trouble(error))?;
    let range = match chosen.path.is_empty() {
        true => KeyRange::all(),
        false => KeyRange::below(&chosen.path),
    };
    let exported = export(&catalog, range, dir)?;
    if global.json {
        output::object(&json!({
            "type": "summary", "files": exported.files, "rows": exported.rows,
            "bytes": exported.bytes,
        }));
    } else if !global.quiet {
        let files = sizes::counted(exported.files, "file");
        let rows = sizes::counted(exported.rows, "row");
        report!(
            "wrote {files} with {rows}, {}",
            sizes::bytes(exported.bytes)
        );
    }
    Ok(exit::COMPLETE)
}

/// What reads `*.parquet` there later must find one catalog, and no other's files are replaced.
fn require_empty(target: &NamedPath) -> Result<()> {
    target.require_directory()?;
    match std::fs::read_dir(target.path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(target.trouble(error)),
        Ok(mut names) => match names.next() {
            None => Ok(()),
            Some(Err(error)) => Err(target.trouble(error)),
            Some(Ok(entry)) => {
                let name = output::escape(entry.file_name().as_encoded_bytes());
                Err(target.trouble(format!("it holds other things ({name})")))
            }
        },
    }
}
