//! `bale find`: patterns mean what they mean to `--exclude` (docs/SCRIPTING.md, "Patterns").

use super::find_conditions::Conditions;
use super::find_once::FoundOnce;
use super::listing::Listing;
use super::{select, unmatched, unread_index};
use crate::args::{Find, Global};
use crate::exit::{self, Usage};
use crate::{interrupt, output, place, sizes};
use anyhow::Result;
use bale_format::{Entry, Key};
use bale_pipeline::clock::{Clock, SystemClock};
use bale_pipeline::filter::{Filter, FilterOptions, Pattern, Reach, distinct};
use bale_pipeline::monitor::Problem;
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_repository::error::{Error, is_inconclusive};
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::Address;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Looks through catalogs, newest snapshot first; exit 1 if nothing matches.
pub fn run(global: &Global, options: &Find) -> Result<i32> {
    if options.patterns.is_empty() && Conditions::is_none(&options.conditions) {
        let text = "nothing to look for: give a pattern ('*.mbox'), or a condition (--min-size, \
                    --newer-than, --type ...)";
        return Err(Usage(text.to_owned()).into());
    }
    let matcher = matcher(options)?;
    let below = below(options)?;
    let conditions = |now| Conditions::parse(&options.conditions, now);
    conditions(SystemClock.time())?; // Before anything is asked of a person or a server.
    let repository = place::open_for(global, place::Use::Look)?;
    let mut snapshots = snapshots(global, &repository, options, &below)?;
    snapshots.reverse();
    let search = Search {
        reaches: reaches(&matcher, &below),
        matcher,
        conditions: conditions(repository.clock().time())?,
        below,
    };
    let found = search.all(global, options, &repository, &snapshots)?;
    if found.has_any {
        return Ok(exit::COMPLETE);
    }
    let searched = sizes::counted(snapshots.len() as u64, "snapshot");
    let is_nowhere = !found.is_below_there && !search.below.is_empty();
    if is_nowhere && !snapshots.is_empty() && !exit::is_something_missing() {
        let below = output::escape(&[b"/", &search.below[..]].concat());
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

/// What became of a search.
#[derive(Default)]
struct Found {
    has_any: bool,
    /// Did any snapshot have the path below which was searched?
    is_below_there: bool,
}

/// What is looked for in each snapshot.
struct Search {
    /// Without patterns it excludes nothing, and everything matches.
    matcher: Filter,
    reaches: Vec<Reach>,
    conditions: Conditions,
    /// Empty: everywhere.
    below: Vec<u8>,
}

impl Search {
    /// Looks through all snapshots, and prints what matches: at once, or when all of it is known.
    fn all(
        &self,
        global: &Global,
        options: &Find,
        repository: &Arc<Repository>,
        snapshots: &[Named],
    ) -> Result<Found> {
        let lines = Listing::new(&options.listing, global);
        let mut once = match (options.latest, options.earliest) {
            (false, false) => None,
            (_, is_earliest) => Some(FoundOnce::new(repository, is_earliest)?),
        };
        let mut found = Found::default();
        let mut is_left_out = false;
        for named in snapshots {
            let mut take = |entry: &Entry, is_first: bool| {
                if !std::mem::replace(&mut found.has_any, true) {
                    lines.headings(if once.is_some() {
                        SNAPSHOT_HEADINGS
                    } else {
                        ""
                    });
                }
                if let Some(once) = &mut once {
                    return once.push(named, entry);
                }
                if is_first && !global.json {
                    print_heading(named);
                }
                print(global, &lines, named, entry);
                Ok(())
            };
            match self.through(repository, named, &mut take) {
                Ok(is_there) => found.is_below_there |= is_there,
                Err(error) => {
                    leave_out(global, named, error)?;
                    is_left_out = true;
                }
            }
        }
        if is_left_out {
            unread_index::report(repository, global.json)?;
        }
        if let Some(once) = once {
            once.print(snapshots, |named, entry| match global.json {
                true => print(global, &lines, named, entry),
                false => print_with_snapshot(&lines, named, entry),
            })?;
        }
        Ok(found)
    }

    /// Hands out what matches; is the path there below which it searches?
    fn through(
        &self,
        repository: &Arc<Repository>,
        named: &Named,
        take: &mut dyn FnMut(&Entry, bool) -> Result<()>,
    ) -> Result<bool> {
        let layers = named.1.layers.clone();
        let catalog = CatalogReader::open(repository.segment_source_wherever(), layers)?;
        let is_there = !self.below.is_empty() && catalog.lookup(&self.below)?.is_some();
        let mut is_first = true;
        for entry in rows(&catalog, &self.reaches)? {
            if interrupt::is_requested() {
                return Err(Error::Interrupted.into());
            }
            let entry = entry?;
            if self.matches(&entry) {
                take(&entry, std::mem::take(&mut is_first))?;
            }
        }
        Ok(is_there)
    }

    fn matches(&self, entry: &Entry) -> bool {
        // What costs least comes first.
        self.conditions.hold(entry)
            && (!self.matcher.has_patterns() || self.matcher.excludes(&entry.path()))
    }
}

/// A catalog that is damaged says nothing of the others. A store that does not answer does.
fn leave_out(global: &Global, (id, _): &Named, error: anyhow::Error) -> Result<()> {
    let is_of_the_store = |cause: &Error| is_inconclusive(cause);
    let mut causes = error.chain();
    if causes.any(|cause| cause.downcast_ref().is_some_and(is_of_the_store)) {
        return Err(error);
    }
    exit::something_is_missing();
    let problem = Problem {
        path: Vec::new(),
        action: "search",
        text: format!("snapshot {}, not searched whole: {error:#}", id.short()),
    };
    output::problem(&problem, global.json);
    Ok(())
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
    let reaches = match matcher.has_patterns() {
        true => matcher.reaches().unwrap_or(&everywhere),
        false => &everywhere,
    };
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

fn print(global: &Global, lines: &Listing, (id, _): &Named, entry: &Entry) {
    if !global.json {
        return lines.print(entry);
    }
    let mut value = lines.object(entry);
    value["snapshot"] = json!(id.to_string());
    output::object(&value);
}

/// As wide as what [`print_with_snapshot`] prints.
const SNAPSHOT_HEADINGS: &str = "Snapshot  Time                 ";

/// Each line is of another snapshot.
fn print_with_snapshot(lines: &Listing, (id, snapshot): &Named, entry: &Entry) {
    output::line(&format!(
        "{}  {}  {}",
        id.short(),
        crate::times::local_time(snapshot.time),
        lines.line(entry)
    ));
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
