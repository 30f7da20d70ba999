//! `bale diff`

use super::diff_rows::{Differs, ImageViews};
use super::{listing, select, unread_index};
use crate::args::{Diff, Global};
use crate::exit::{self, Usage};
use crate::{interrupt, output, place, sizes};
use anyhow::Result;
use bale_format::entry::is_below;
use bale_format::{Entry, Kind, ObjectId};
use bale_repository::catalog::{CatalogReader, Difference, diff};
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;

/// Counts of a comparison.
#[derive(Default)]
struct Tally {
    added: u64,
    removed: u64,
    changed: u64,
    metadata: u64,
    bytes_added: u64,
    bytes_removed: u64,
}

/// Compares two catalogs; what they share is not read.
pub fn run(global: &Global, options: &Diff) -> Result<i32> {
    let repository = place::open_for(global, place::Use::Look)?;
    let compared = compare(global, options, &repository);
    unread_index::report_with(&repository, global.json, compared)
}

fn compare(global: &Global, options: &Diff, repository: &Arc<Repository>) -> Result<i32> {
    let listed = select::Listed::of(repository)?;
    let old = listed.choose(&options.old, &options.select, global.json)?;
    let new = listed.choose(&options.new, &options.select, global.json)?;
    if old.path != new.path {
        let [old, new] = [&old, &new].map(|side| output::escape(&[b"/", &side.path[..]].concat()));
        let text = format!(
            "both sides must name the same path: the older is of {old}, the newer of {new}"
        );
        return Err(Usage(text).into());
    }
    if !global.json && !global.quiet {
        report!("from {}\n  to {}", side(&old), side(&new));
    }
    let open = |chosen: &select::SelectedSnapshots| {
        CatalogReader::open(
            repository.segment_source_wherever(),
            chosen.named.1.layers.clone(),
        )
    };
    let (old_catalog, new_catalog) = (open(&old)?, open(&new)?);
    must_have_path(global, [(&old, &old_catalog), (&new, &new_catalog)])?;
    let mut tally = Tally::default();
    let mut images = Images {
        views: ImageViews::of([&old.named.1, &new.named.1]),
        held: Vec::new(),
        reported: HashSet::new(),
    };
    for difference in diff(&old_catalog, &new_catalog) {
        if interrupt::is_requested() {
            return Err(Error::Interrupted.into());
        }
        let difference = difference?;
        if !is_below(&difference.entry().path_to_name(), &new.path) {
            continue;
        }
        match images.take(difference, &mut tally) {
            None => {}
            Some(ImageDifference::Row(difference)) => {
                report(global, options, (&difference, &images.views), &mut tally);
            }
            Some(ImageDifference::Content(path)) => {
                if let Some(entry) = new_catalog.lookup(&path)? {
                    tally.changed += 1;
                    print(global, "M", &entry);
                }
            }
        }
    }
    let Images { views, held, .. } = images;
    for difference in held {
        report(global, options, (&difference, &views), &mut tally);
    }
    summary(global, &tally, [&old, &new].map(|side| side.named.0));
    Ok(exit::COMPLETE)
}

/// A path that neither side has is a slip; one that only one of them has may be.
fn must_have_path(
    global: &Global,
    sides: [(&select::SelectedSnapshots, &CatalogReader); 2],
) -> Result<()> {
    let path = &sides[0].0.path;
    let mut lacking = Vec::new();
    for (chosen, catalog) in sides {
        if !path.is_empty() && catalog.lookup(path)?.is_none() {
            lacking.push(chosen.named.0.short());
        }
    }
    let shown = output::escape(&[b"/", &path[..]].concat());
    match &lacking[..] {
        [] => {}
        [one] if global.json => {
            let text = format!("there is no {shown} in snapshot {one}");
            output::object(&json!({"type": "note", "message": text}));
        }
        [one] => report!("bale: there is no {shown} in snapshot {one}"),
        _ => {
            let text = format!(
                "no {shown} in either snapshot (bale ls names what is there; --path selects \
                 snapshots of one source)"
            );
            return Err(anyhow::anyhow!(text));
        }
    }
    Ok(())
}

/// Extents are the content of their image, and no paths.
struct Images {
    views: ImageViews,
    /// Rows of images that differ in metadata: their extents, which come later, say in what else.
    /// Few, as images are.
    held: Vec<Difference>,
    /// Images that were reported as having come, gone or changed.
    reported: HashSet<Vec<u8>>,
}

/// What is to be reported.
#[expect(
    clippy::large_enum_variant,
    reason = "one lives for one step of a loop"
)]
enum ImageDifference {
    Row(Difference),
    /// The bytes of the image at this path differ.
    Content(Vec<u8>),
}

impl Images {
    fn take(&mut self, difference: Difference, tally: &mut Tally) -> Option<ImageDifference> {
        let entry = difference.entry();
        if entry.kind == Kind::Extent {
            let (old, new) = match &difference {
                Difference::Added(new) => (0, new.size),
                Difference::Removed(old) => (old.size, 0),
                Difference::Changed { old, new } => (old.size, new.size),
            };
            tally.bytes_removed += old;
            tally.bytes_added += new;
            let path = entry.parent.to_vec();
            self.held.retain(|held| held.entry().path() != path);
            let is_news = self.reported.insert(path.clone());
            return is_news.then_some(ImageDifference::Content(path));
        }
        if !entry.is_image() {
            return Some(ImageDifference::Row(difference));
        }
        match &difference {
            Difference::Changed { old, new }
                if self.views.compare(old, new) != Differs::Content =>
            {
                self.held.push(difference);
                None
            }
            _ => {
                self.reported.insert(entry.path());
                Some(ImageDifference::Row(difference))
            }
        }
    }
}

/// Which snapshot it is: `latest` may be of another source than was thought.
fn side(chosen: &select::SelectedSnapshots) -> String {
    let (id, snapshot) = &chosen.named;
    let paths: Vec<_> = (snapshot.paths.iter())
        .map(|path| output::escape(&path.0))
        .collect();
    format!(
        "snapshot {} of {}, {} {}",
        id.short(),
        crate::times::local_time(snapshot.time),
        output::escape(snapshot.host.as_bytes()),
        paths.join(" ")
    )
}

fn report(
    global: &Global,
    options: &Diff,
    (difference, views): (&Difference, &ImageViews),
    tally: &mut Tally,
) {
    let size = |entry: &Entry| {
        // Bytes of images are those of their extents.
        if entry.kind == Kind::File && !entry.is_image() {
            entry.size
        } else {
            0
        }
    };
    let mark = match difference {
        Difference::Added(entry) => {
            tally.added += 1;
            tally.bytes_added += size(entry);
            "+"
        }
        Difference::Removed(entry) => {
            tally.removed += 1;
            tally.bytes_removed += size(entry);
            "-"
        }
        Difference::Changed { old, new } => match views.compare(old, new) {
            Differs::Nowhere => return,
            Differs::Content => {
                tally.changed += 1;
                tally.bytes_removed += size(old);
                tally.bytes_added += size(new);
                if old.kind == new.kind { "M" } else { "T" }
            }
            Differs::Metadata => {
                tally.metadata += 1;
                if !options.metadata {
                    return;
                }
                "U"
            }
        },
    };
    print(global, mark, difference.entry());
}

fn print(global: &Global, mark: &str, entry: &Entry) {
    let path = listing::absolute(entry);
    if global.json {
        let mut value = json!({"type": "change", "change": mark,
            "kind": listing::kind_name(entry.kind), "size": entry.size});
        output::put_path(&mut value, "path", &path);
        output::object(&value);
    } else {
        let slash = if entry.kind == Kind::Directory && path != b"/" {
            "/"
        } else {
            ""
        };
        output::line(&format!("{mark}  {}{slash}", output::escape(&path)));
    }
}

fn summary(global: &Global, tally: &Tally, [old, new]: [ObjectId; 2]) {
    if global.json {
        return output::object(&json!({
            "type": "summary", "old": old.to_string(), "new": new.to_string(), "added": tally.added,
            "removed": tally.removed, "changed": tally.changed,
            "metadata": tally.metadata, "bytes_added": tally.bytes_added,
            "bytes_removed": tally.bytes_removed,
        }));
    }
    if !global.quiet {
        report!(
            "{} added, {} removed, {} changed, {} only in metadata; {} came, {} went",
            sizes::count(tally.added),
            sizes::count(tally.removed),
            sizes::count(tally.changed),
            sizes::count(tally.metadata),
            sizes::bytes(tally.bytes_added),
            sizes::bytes(tally.bytes_removed),
        );
    }
}
