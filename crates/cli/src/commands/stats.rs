//! `bale stats`

mod transfers;

use super::{listing, select, unread_index};
use crate::args::{Global, Stats};
use crate::{exit, output, place, sizes};
use anyhow::Result;
use bale_format::snapshot::Totals;
use bale_format::{Entry, Kind};
use bale_repository::catalog::CatalogReader;
use bale_repository::repository::Repository;
use bale_repository::store::Area;
use serde_json::json;
use std::sync::Arc;

/// Counts what the repository holds, or one snapshot, or one subtree of it.
pub fn run(global: &Global, options: &Stats) -> Result<i32> {
    let repository = place::open_for(global, place::Use::Look)?;
    if options.transfers {
        return transfers::run(global, &repository, options);
    }
    let Some(address) = &options.address else {
        // Packs and chunks are counted by it.
        unread_index::report(&repository, global.json)?;
        whole(global, &repository)?;
        return Ok(exit::COMPLETE);
    };
    let chosen = select::choose(&repository, address, &options.select, global.json)?;
    let totals = unread_index::report_with(&repository, global.json, totals(&repository, &chosen))?;
    print(global, &chosen.named.0.to_string(), &totals);
    Ok(exit::COMPLETE)
}

/// Of a snapshot, or of what is at a path in it.
fn totals(repository: &Arc<Repository>, chosen: &select::SelectedSnapshots) -> Result<Totals> {
    let (_, snapshot) = &chosen.named;
    if chosen.path.is_empty() {
        return Ok(snapshot.totals);
    }
    let catalog = CatalogReader::open(
        repository.segment_source_wherever(),
        snapshot.layers.clone(),
    )?;
    let found = listing::require(&catalog, chosen)?;
    let mut totals = Totals::default();
    if found.kind != Kind::Directory {
        add(&mut totals, &found);
        return Ok(totals);
    }
    for entry in catalog.subtree(&chosen.path)? {
        add(&mut totals, &entry?);
    }
    Ok(totals)
}

fn add(totals: &mut Totals, entry: &Entry) {
    match entry.kind {
        Kind::File => totals.files += 1,
        Kind::Directory => totals.dirs += 1,
        _ => totals.others += 1,
    }
    if entry.kind == Kind::File {
        totals.bytes += entry.size;
    }
    if entry.is_hard_link() {
        totals.hard_links += 1;
    }
}

fn print(global: &Global, id: &str, totals: &Totals) {
    if global.json {
        output::object(&json!({
            "type": "summary", "snapshot": id, "files": totals.files, "dirs": totals.dirs,
            "others": totals.others,
            "bytes": totals.bytes, "hard_links": totals.hard_links,
        }));
    } else {
        output::line(&format!("files        {}", sizes::count(totals.files)));
        output::line(&format!("directories  {}", sizes::count(totals.dirs)));
        output::line(&format!("others       {}", sizes::count(totals.others)));
        output::line(&format!(
            "hard-linked  {} (entries whose inode has more than one name)",
            sizes::count(totals.hard_links)
        ));
        output::line(&format!(
            "bytes        {} ({})",
            sizes::count(totals.bytes),
            sizes::bytes(totals.bytes)
        ));
    }
}

fn whole(global: &Global, repository: &Repository) -> Result<()> {
    let index = repository.index()?;
    let (mut plain, mut sealed) = (0u64, 0u64);
    for place in index.entries() {
        plain += u64::from(place.chunk.plain_bytes);
        sealed += u64::from(place.chunk.sealed_bytes);
    }
    let mut stored = 0u64;
    for area in Area::ALL {
        repository
            .store()
            .list(area, &mut |info| stored += info.len)?;
    }
    let snapshots = select::Listed::of(repository)?.all();
    let ratio = if sealed > 0 {
        plain as f64 / sealed as f64
    } else {
        1.0
    };
    if global.json {
        output::object(&json!({
            "type": "summary", "snapshots": snapshots.len(), "packs": index.packs().len(),
            "chunks": index.entries().len(),
            "bytes_plain": plain, "bytes_sealed": sealed, "bytes_stored": stored,
            "compression": ratio,
        }));
        return Ok(());
    }
    output::line(&format!(
        "snapshots    {}",
        sizes::count(snapshots.len() as u64)
    ));
    output::line(&format!(
        "packs        {}",
        sizes::count(index.packs().len() as u64)
    ));
    output::line(&format!(
        "chunks       {}",
        sizes::count(index.entries().len() as u64)
    ));
    output::line(&format!(
        "stored       {} of {}{}",
        sizes::bytes(stored),
        sizes::bytes(plain),
        match plain {
            0 => String::new(),
            plain => format!(" ({:.0} %)", stored as f64 * 100.0 / plain as f64),
        }
    ));
    Ok(())
}
