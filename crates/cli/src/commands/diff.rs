//! `bale diff`

use super::diff_content::{self, ContentComparison};
use super::diff_rows::{Differs, ImageViews};
use super::{listing, select, unread_index};
use crate::args::{Diff, Global};
use crate::exit::{self, Usage};
use crate::{interrupt, output, place, sizes};
use anyhow::Result;
use bale_engine::dump::FileContents;
use bale_format::entry::is_below;
use bale_format::{Entry, Kind, ObjectId};
use bale_pipeline::monitor::Problem;
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
    let mut report = Report {
        global,
        shows_metadata: options.metadata,
        views: ImageViews::of([&old.named.1, &new.named.1]),
        contents: match options.content {
            true => Some(FileContents::of(repository)?),
            false => None,
        },
        ids: [&old, &new].map(|side| side.named.0),
        tally: Tally::default(),
    };
    let mut images = Images::default();
    for difference in diff(&old_catalog, &new_catalog) {
        if interrupt::is_requested() {
            return Err(Error::Interrupted.into());
        }
        let difference = difference?;
        if !is_below(&difference.entry().path_to_name(), &new.path) {
            continue;
        }
        match images.take(difference, &report.views, &mut report.tally) {
            None => {}
            Some(ImageDifference::Row(difference)) => report.row(&difference),
            Some(ImageDifference::Content(path)) => {
                if let Some(entry) = new_catalog.lookup(&path)? {
                    report.tally.changed += 1;
                    report.print("M", &entry, None);
                }
            }
        }
    }
    images.held.iter().for_each(|held| report.row(held));
    report.summary();
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
#[derive(Default)]
struct Images {
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
    fn take(
        &mut self,
        difference: Difference,
        views: &ImageViews,
        tally: &mut Tally,
    ) -> Option<ImageDifference> {
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
            Difference::Changed { old, new } if views.compare(old, new) != Differs::Content => {
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

/// Prints differences, and counts them.
struct Report<'a> {
    global: &'a Global,
    shows_metadata: bool,
    views: ImageViews,
    /// With `--content`.
    contents: Option<FileContents>,
    /// Of the snapshots.
    ids: [ObjectId; 2],
    tally: Tally,
}

impl Report<'_> {
    fn row(&mut self, difference: &Difference) {
        let tally = &mut self.tally;
        match difference {
            Difference::Added(entry) => {
                tally.added += 1;
                tally.bytes_added += size(entry);
                self.print("+", entry, None);
            }
            Difference::Removed(entry) => {
                tally.removed += 1;
                tally.bytes_removed += size(entry);
                self.print("-", entry, None);
            }
            Difference::Changed { old, new } => self.changed(old, new),
        }
    }

    fn changed(&mut self, old: &Entry, new: &Entry) {
        let mut differs = self.views.compare(old, new);
        let mut compared = None;
        if differs == Differs::Content
            && let Some(contents) = &self.contents
        {
            compared = diff_content::compare(contents, old, new);
            if let Some(ContentComparison::Same) = compared {
                differs = self.views.compare_metadata(old, new);
            }
        }
        match differs {
            Differs::Nowhere => {}
            Differs::Content => {
                self.tally.changed += 1;
                self.tally.bytes_removed += size(old);
                self.tally.bytes_added += size(new);
                let mark = if old.kind == new.kind { "M" } else { "T" };
                self.print(mark, new, compared.as_ref());
            }
            Differs::Metadata => {
                self.tally.metadata += 1;
                if self.shows_metadata {
                    self.print("U", new, None);
                }
            }
        }
    }

    fn print(&self, mark: &str, entry: &Entry, compared: Option<&ContentComparison>) {
        let path = listing::absolute(entry);
        if self.global.json {
            let mut value = json!({"type": "change", "change": mark,
                "kind": listing::kind_name(entry.kind), "size": entry.size});
            output::put_path(&mut value, "path", &path);
            if let Some(ContentComparison::Differs { first, lines }) = compared {
                value["first_difference"] = json!(first);
                value["diff"] = json!(lines.as_deref().map(diff_content::joined));
            }
            output::object(&value);
        } else {
            let slash = if entry.kind == Kind::Directory && path != b"/" {
                "/"
            } else {
                ""
            };
            let path = output::escape(&path);
            output::line(&format!("{mark}  {path}{slash}"));
            if let Some(ContentComparison::Differs { first, lines }) = compared {
                self.print_lines(&path, *first, lines.as_deref());
            }
        }
        if let Some(ContentComparison::Unknown(why)) = compared {
            let problem = Problem {
                path,
                action: "compare",
                text: why.clone(),
            };
            exit::something_is_missing();
            output::problem(&problem, self.global.json);
        }
    }

    fn print_lines(&self, path: &str, first: u64, lines: Option<&[String]>) {
        let Some(lines) = lines else {
            let first = sizes::count(first + 1);
            return output::line(&format!("   the bytes differ from byte {first} on"));
        };
        let [old, new] = self.ids.map(|id| id.short());
        output::line(&format!("--- {old}:{path}"));
        output::line(&format!("+++ {new}:{path}"));
        for line in lines {
            output::line(&diff_content::shown(line));
        }
    }

    fn summary(&self) {
        let tally = &self.tally;
        if self.global.json {
            let [old, new] = self.ids.map(|id| id.to_string());
            return output::object(&json!({
                "type": "summary", "old": old, "new": new, "added": tally.added,
                "removed": tally.removed, "changed": tally.changed,
                "metadata": tally.metadata, "bytes_added": tally.bytes_added,
                "bytes_removed": tally.bytes_removed,
            }));
        }
        if !self.global.quiet {
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
}

/// Bytes of images are those of their extents.
fn size(entry: &Entry) -> u64 {
    match entry.kind == Kind::File && !entry.is_image() {
        true => entry.size,
        false => 0,
    }
}
