//! `bale ls`

use super::listing::Listing;
use super::ls_sorted::{self, SortOrder};
use super::{listing, ncdu, select, unread_index};
use crate::args::{Global, Ls, SortBy};
use crate::exit::{self, Usage};
use crate::place;
use anyhow::Result;
use bale_format::Kind;
use bale_repository::catalog::CatalogReader;
use bale_repository::repository::Repository;
use std::sync::Arc;

/// Lists a directory of a snapshot, or everything below it, as it is read or sorted on disk: a
/// directory of any size fits.
pub fn run(global: &Global, options: &Ls) -> Result<i32> {
    if options.ncdu && global.json {
        let text = "--ncdu is a format of its own, and --json another: give one of them";
        return Err(Usage(text.to_owned()).into());
    }
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
    if options.ncdu {
        ncdu::print(repository, &catalog, snapshot, &found)?;
        return Ok(exit::COMPLETE);
    }
    let lines = Listing::new(&options.listing, global);
    lines.headings("");
    let rows = match (options.recursive, found.kind) {
        (true, _) => catalog.subtree(&chosen.path)?,
        (false, Kind::Directory) => catalog.list(&chosen.path),
        (false, _) => {
            lines.print(&found);
            return Ok(exit::COMPLETE);
        }
    };
    if let Some(order) = order(options) {
        ls_sorted::print(repository, rows, order, &lines)?;
        return Ok(exit::COMPLETE);
    }
    for entry in rows {
        lines.print(&entry?);
    }
    Ok(exit::COMPLETE)
}

/// The order to sort in, if it is not the one in which a catalog is read.
fn order(options: &Ls) -> Option<SortOrder> {
    let by = match (options.sort, options.reverse) {
        (Some(SortBy::Name), false) if !options.recursive => return None,
        (None, false) => return None,
        (by, _) => by.unwrap_or(SortBy::Name),
    };
    Some(SortOrder {
        by,
        is_reverse: options.reverse,
    })
}
