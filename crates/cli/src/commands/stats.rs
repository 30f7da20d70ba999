//! `bale stats`

mod modes;
mod transfers;

use super::{backup_images, listing, select, unread_index};
use crate::args::{Global, Stats, StatsMode};
use crate::{exit, output, place, sizes};
use anyhow::Result;
use bale_format::snapshot::{DenseDirectory, ImageRecord, Totals};
use bale_format::{Entry, Kind};
use bale_repository::catalog::{CatalogReader, DensestDirectories};
use bale_repository::repository::Repository;
use bale_repository::store::Area;
use serde_json::{Value, json};
use std::sync::Arc;

/// Counts what the repository holds, or one snapshot, or one subtree of it.
pub fn run(global: &Global, options: &Stats) -> Result<i32> {
    let repository = place::open_for(global, place::Use::Look)?;
    if options.transfers {
        return transfers::run(global, &repository, options);
    }
    if let Some(mode) = mode(options) {
        return modes::run(global, &repository, options, mode);
    }
    let Some(address) = &options.address else {
        // Packs and chunks are counted by it.
        unread_index::report(&repository, global.json)?;
        whole(global, &repository)?;
        return Ok(exit::COMPLETE);
    };
    let chosen = select::choose(&repository, address, &options.select, global.json)?;
    let counted = unread_index::report_with(&repository, global.json, count(&repository, &chosen))?;
    let snapshot = &chosen.named.1;
    let images = chosen.path.is_empty().then_some(&snapshot.images[..]);
    match global.json {
        true => {
            let mut value = object(&chosen.named.0.to_string(), &counted);
            if images.is_some() {
                backup_images::put(&mut value, snapshot);
            }
            output::object(&value);
        }
        false => {
            print(&counted);
            images.unwrap_or_default().iter().for_each(print_image);
        }
    }
    Ok(exit::COMPLETE)
}

/// What to count, if it is neither the whole repository nor what restoring one address would bring.
fn mode(options: &Stats) -> Option<StatsMode> {
    let select = &options.select.select;
    let is_chosen = !(select.hosts.is_empty() && select.paths.is_empty() && select.tags.is_empty());
    match (options.mode, &options.address) {
        (Some(StatsMode::RestoreSize), Some(_)) => None,
        (None, None) if is_chosen => Some(StatsMode::RestoreSize),
        (mode, _) => mode,
    }
}

/// What is in a snapshot, or at a path in it.
struct Counted {
    totals: Totals,
    /// Where rows were read.
    densest: Option<Vec<DenseDirectory>>,
}

fn count(repository: &Arc<Repository>, chosen: &select::SelectedSnapshots) -> Result<Counted> {
    let (_, snapshot) = &chosen.named;
    if chosen.path.is_empty() {
        return Ok(Counted {
            totals: snapshot.totals,
            densest: None,
        });
    }
    let catalog = CatalogReader::open(
        repository.segment_source_wherever(),
        snapshot.layers.clone(),
    )?;
    let found = listing::require(&catalog, chosen)?;
    let mut totals = Totals::default();
    if found.kind != Kind::Directory {
        add(&mut totals, &found);
        return Ok(Counted {
            totals,
            densest: None,
        });
    }
    let mut densest = DensestDirectories::default();
    for entry in catalog.subtree(&chosen.path)? {
        let entry = entry?;
        add(&mut totals, &entry);
        // The directory itself is in none of those that are counted.
        if entry.path() != chosen.path {
            densest.add(&entry);
        }
    }
    Ok(Counted {
        totals,
        densest: Some(densest.finish()),
    })
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

/// For scripts. Fields: docs/SCRIPTING.md.
fn object(id: &str, counted: &Counted) -> Value {
    let totals = &counted.totals;
    let mut value = json!({
        "type": "summary", "snapshot": id, "files": totals.files, "dirs": totals.dirs,
        "others": totals.others,
        "bytes": totals.bytes, "hard_links": totals.hard_links,
    });
    if let Some(densest) = &counted.densest {
        value["densest"] = backup_images::densest(densest);
    }
    value
}

fn print(counted: &Counted) {
    print_totals(&counted.totals);
    print_densest(counted.densest.as_deref().unwrap_or_default());
}

/// A line of a number with its name.
fn print_line(name: &str, text: &str) {
    output::line(&format!("{name:<11}  {text}"));
}

fn print_totals(totals: &Totals) {
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

/// The files in it, which the totals do not count.
fn print_image(image: &ImageRecord) {
    for view in &image.views {
        let path = output::escape(&view.path.0);
        match &view.not_listed {
            Some(why) => output::line(&format!("{path}: {}, not listed: {why}", view.kind)),
            None => output::line(&format!(
                "{path}: {}, {}, {}, {}",
                view.kind,
                sizes::counted(view.totals.files, "file"),
                match sizes::count(view.totals.dirs) {
                    dirs if view.totals.dirs == 1 => format!("{dirs} directory"),
                    dirs => format!("{dirs} directories"),
                },
                sizes::bytes(view.totals.bytes)
            )),
        }
        print_densest(&view.densest);
    }
}

/// Directories with the most entries.
fn print_densest(densest: &[DenseDirectory]) {
    for (at, one) in densest.iter().enumerate() {
        let heading = if at == 0 { "densest" } else { "" };
        let (children, path) = (sizes::count(one.children), output::escape(&one.path.0));
        output::line(&format!("{heading:<11}  {children:>11} in {path}"));
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
