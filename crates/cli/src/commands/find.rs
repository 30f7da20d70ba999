//! `bale find`

use super::{listing, select, unmatched};
use crate::args::{Find, Global};
use crate::exit::{self, Usage};
use crate::{interrupt, output, place};
use anyhow::Result;
use bale_engine::catalog::{CatalogReader, KeyRange};
use bale_engine::error::Error;
use bale_engine::filter::{Reach, distinct};
use bale_engine::repository::Named;
use bale_format::{Entry, Key};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::json;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Characters of a pattern that do not stand for themselves.
const WILDCARDS: [char; 5] = ['*', '?', '[', '{', '}'];

/// Looks through catalogs, newest snapshot first; exit 1 if nothing matches.
pub fn run(global: &Global, options: &Find) -> Result<i32> {
    let matcher = Matcher::new(options)?;
    let repository = place::open(global)?;
    let mut snapshots = snapshots(global, &repository, options)?;
    snapshots.reverse();
    let below = options
        .below
        .as_ref()
        .map(|path| bale_engine::snapshots::clean_path(path.as_os_str().as_bytes()));
    let reaches = reaches(options, &below.unwrap_or_default());
    let mut found = false;
    for (id, snapshot) in &snapshots {
        let catalog = CatalogReader::open(repository.segment_source(), snapshot.layers.clone())?;
        let mut told = false;
        for entry in rows(&catalog, &reaches)? {
            if interrupt::asked() {
                return Err(Error::Interrupted.into());
            }
            let entry = entry?;
            if !matcher.matches(&entry.name, &entry.path()) {
                continue;
            }
            if !std::mem::replace(&mut told, true) && !global.json {
                output::line(&format!(
                    "snapshot {}  {}",
                    id.short(),
                    listing::local_time(snapshot.time)
                ));
            }
            found = true;
            if global.json {
                let mut value = listing::object(&entry);
                value["snapshot"] = json!(id.to_string());
                output::object(&value);
            } else {
                listing::print(&entry, options.long, false);
            }
        }
    }
    // Nothing was found, but not everywhere: that is no answer.
    let none = match exit::with_what_is_missing(exit::COMPLETE) {
        exit::COMPLETE => exit::FAILED,
        incomplete => incomplete,
    };
    Ok(if found { exit::COMPLETE } else { none })
}

/// Where matching paths can be: the rest of a catalog is not read.
fn reaches(options: &Find, below: &[u8]) -> Vec<Reach> {
    let reach = |pattern: &String| match pattern.contains('/') && !options.iname {
        true => Reach::of(pattern, &WILDCARDS),
        false => Reach::Subtree(Vec::new()),
    };
    let patterns = options.patterns.iter();
    distinct(
        patterns
            .filter_map(|pattern| reach(pattern).within(below))
            .collect(),
    )
}

fn rows<'r>(
    catalog: &'r CatalogReader,
    reaches: &'r [Reach],
) -> bale_engine::catalog::Result<impl Iterator<Item = bale_engine::catalog::Result<Entry>> + 'r> {
    let rows = reaches.iter().map(|reach| match reach {
        Reach::One(path) => Ok(catalog.rows(KeyRange::one(&Key::of_path(path)))),
        Reach::Children(path) => Ok(catalog.list(path)),
        Reach::Subtree(path) => catalog.subtree(path),
    });
    Ok(rows
        .collect::<bale_engine::catalog::Result<Vec<_>>>()?
        .into_iter()
        .flatten())
}

fn snapshots(
    global: &Global,
    repository: &bale_engine::repository::Repository,
    options: &Find,
) -> Result<Vec<Named>> {
    let listed = select::Listed::of(repository)?;
    if options.snapshot.is_empty() {
        let filter = select::filter(&options.select.select);
        let all = listed.all();
        unmatched::tell(global, &options.select.select, &all);
        return Ok(all
            .into_iter()
            .filter(|(_, snapshot)| filter.passes(snapshot))
            .collect());
    }
    let texts = options.snapshot.iter();
    texts
        .map(|text| listed.find(text, &options.select))
        .collect()
}

struct Matcher {
    names: GlobSet,
    paths: GlobSet,
}

impl Matcher {
    fn new(options: &Find) -> Result<Matcher> {
        let (mut names, mut paths) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for text in &options.patterns {
            let whole = text.contains('/');
            let pattern = text.strip_prefix('/').unwrap_or(text);
            let glob = GlobBuilder::new(pattern)
                .case_insensitive(options.iname)
                .literal_separator(true)
                .build();
            let glob = glob.map_err(|error| Usage(format!("pattern {text:?}: {error}")))?;
            if whole { &mut paths } else { &mut names }.add(glob);
        }
        let build =
            |builder: GlobSetBuilder| builder.build().map_err(|error| Usage(error.to_string()));
        Ok(Matcher {
            names: build(names)?,
            paths: build(paths)?,
        })
    }

    fn matches(&self, name: &[u8], path: &[u8]) -> bool {
        let as_path = |bytes| Path::new(OsStr::from_bytes(bytes)).to_owned();
        self.names.is_match(as_path(name))
            || (!self.paths.is_empty() && self.paths.is_match(as_path(path)))
    }
}
