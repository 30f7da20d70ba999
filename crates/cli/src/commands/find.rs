//! `bale find`: patterns mean what they mean to `--exclude` (docs/SCRIPTING.md, "Patterns").

use super::{listing, select, unmatched};
use crate::args::{Find, Global};
use crate::exit::{self, Usage};
use crate::{interrupt, output, place, sizes};
use anyhow::Result;
use bale_format::{Entry, Key};
use bale_pipeline::filter::{Filter, FilterOptions, Pattern, Reach, distinct};
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_repository::error::Error;
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::Address;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;

/// Looks through catalogs, newest snapshot first; exit 1 if nothing matches.
pub fn run(global: &Global, options: &Find) -> Result<i32> {
    let matcher = matcher(options)?;
    let below = below(options)?;
    let repository = place::open(global)?;
    let mut snapshots = snapshots(global, &repository, options, &below)?;
    snapshots.reverse();
    let reaches = reaches(&matcher, &below);
    let (mut found, mut is_below_there) = (false, below.is_empty());
    for named in &snapshots {
        let catalog =
            CatalogReader::open(repository.segment_source_wherever(), named.1.layers.clone())?;
        is_below_there |= !below.is_empty() && catalog.lookup(&below)?.is_some();
        let mut reported = false;
        for entry in rows(&catalog, &reaches)? {
            if interrupt::is_requested() {
                return Err(Error::Interrupted.into());
            }
            let entry = entry?;
            if !matcher.excludes(&entry.path()) {
                continue;
            }
            if !std::mem::replace(&mut reported, true) && !global.json {
                print_heading(named);
            }
            found = true;
            print(global, options, named, &entry);
        }
    }
    if found {
        return Ok(exit::COMPLETE);
    }
    let searched = sizes::counted(snapshots.len() as u64, "snapshot");
    if !is_below_there && !snapshots.is_empty() {
        let below = output::escape(&[b"/", &below[..]].concat());
        anyhow::bail!(
            "no {below} (--below) in the {searched} searched: it takes a path as `bale ls` prints \
             it"
        );
    }
    report_none(global, &searched);
    // Nothing was found, but not everywhere: that is no answer.
    Ok(match exit::with_what_is_missing(exit::COMPLETE) {
        exit::COMPLETE => exit::FAILED,
        incomplete => incomplete,
    })
}

fn matcher(options: &Find) -> Result<Filter> {
    let pattern = |text: &String| Pattern {
        text: text.clone(),
        ignore_case: options.iname,
    };
    let patterns: Vec<_> = options.patterns.iter().map(pattern).collect();
    crate::patterns::check(&patterns)?;
    Ok(crate::patterns::compile(FilterOptions {
        patterns,
        ..FilterOptions::default()
    })?)
}

/// Without leading slash; empty: everything.
fn below(options: &Find) -> Result<Vec<u8>, Usage> {
    let Some(path) = &options.below else {
        return Ok(Vec::new());
    };
    if path.as_os_str().is_empty() {
        return Err(Usage(
            "--below is empty: name a path, or leave it out to search everything".to_owned(),
        ));
    }
    Ok(bale_repository::snapshots::clean_path(
        path.as_os_str().as_bytes(),
    ))
}

/// Where matching paths can be: the rest of a catalog is not read.
fn reaches(matcher: &Filter, below: &[u8]) -> Vec<Reach> {
    let everywhere = [Reach::Subtree(Vec::new())];
    let reaches = matcher.reaches().unwrap_or(&everywhere);
    let within = |reach: &Reach| reach.clone().within(below);
    distinct(reaches.iter().filter_map(within).collect())
}

fn print_heading((id, snapshot): &Named) {
    output::line(&format!(
        "snapshot {}  {}",
        id.short(),
        crate::times::local_time(snapshot.time)
    ));
}

fn print(global: &Global, options: &Find, (id, _): &Named, entry: &Entry) {
    if !global.json {
        return listing::print(entry, options.long, false);
    }
    let mut value = listing::object(entry);
    value["snapshot"] = json!(id.to_string());
    output::object(&value);
}

/// Silence could mean that it did not look.
fn report_none(global: &Global, searched: &str) {
    let text = format!("nothing in {searched} matches");
    if global.json {
        output::object(&json!({"type": "note", "message": text}));
    } else if !global.quiet {
        report!("bale: {text}");
    }
}

fn rows<'r>(
    catalog: &'r CatalogReader,
    reaches: &'r [Reach],
) -> bale_repository::catalog::Result<
    impl Iterator<Item = bale_repository::catalog::Result<Entry>> + 'r,
> {
    let rows = reaches.iter().map(|reach| match reach {
        Reach::One(path) => Ok(catalog.rows(KeyRange::one(&Key::of_path(path)))),
        Reach::Children(path) => Ok(catalog.list(path)),
        Reach::Subtree(path) => catalog.subtree(path),
    });
    Ok(rows
        .collect::<bale_repository::catalog::Result<Vec<_>>>()?
        .into_iter()
        .flatten())
}

fn snapshots(
    global: &Global,
    repository: &Repository,
    options: &Find,
    below: &[u8],
) -> Result<Vec<Named>> {
    let listed = select::Listed::of(repository)?;
    if options.snapshot.is_empty() {
        let filter = select::filter(&options.select.select);
        let all = listed.all();
        unmatched::report(global, &options.select.select, &all);
        return Ok(all
            .into_iter()
            .filter(|(_, snapshot)| filter.passes(snapshot))
            .collect());
    }
    let texts = options.snapshot.iter();
    texts
        .map(|text| {
            let address = Address {
                snapshot: text.clone(),
                path: below.to_vec(),
            };
            listed.find_holding(&address, &options.select, global.json)
        })
        .collect()
}
