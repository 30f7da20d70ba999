//! `bale ls`

use super::{listing, select, unread_index};
use crate::args::{Global, Ls};
use crate::{exit, place};
use anyhow::Result;
use bale_format::Kind;
use bale_repository::catalog::CatalogReader;
use bale_repository::repository::Repository;
use std::sync::Arc;

/// Lists a directory of a snapshot, or everything below it, as it is read: a directory of any size
/// fits.
pub fn run(global: &Global, options: &Ls) -> Result<i32> {
    let repository = place::open_for(global, place::Use::Look)?;
    let listed = list(global, options, &repository);
    unread_index::report_with(&repository, global.json, listed)
}

fn list(global: &Global, options: &Ls, repository: &Arc<Repository>) -> Result<i32> {
    let chosen = select::choose(repository, &options.address, &options.select, global.json)?;
    let snapshot = &chosen.named.1;
    let catalog = CatalogReader::open(
        repository.segment_source_wherever(),
        snapshot.layers.clone(),
    )?;
    let found = listing::require(&catalog, &chosen)?;
    let rows = match (options.recursive, found.kind) {
        (true, _) => catalog.subtree(&chosen.path)?,
        (false, Kind::Directory) => catalog.list(&chosen.path),
        (false, _) => {
            listing::print(&found, options.long, global.json);
            return Ok(exit::COMPLETE);
        }
    };
    for entry in rows {
        listing::print(&entry?, options.long, global.json);
    }
    Ok(exit::COMPLETE)
}
