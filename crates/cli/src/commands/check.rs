//! `bale check`

use crate::args::{Check, Global};
use crate::exit::{self, Usage};
use crate::place::Use;
use crate::progress::Console;
use crate::{output, place, run_record, sizes};
use anyhow::Result;
use bale_engine::verify::{
    self, CheckFinding, CheckReport, Foreign, ForeignFound, LostPath, Marked, MendedBy, Subset,
    UnreadObjects,
};
use bale_repository::repository::Repository;
use serde_json::json;

/// Looks for damage; exit 4 if there is any.
pub fn run(global: &Global, options: &Check) -> Result<i32> {
    let subset = subset(options)?;
    let console = Console::new(global);
    if options.scrub {
        if subset.is_some() {
            return Err(
                Usage("--scrub reads everything: it goes with no other part".to_owned()).into(),
            );
        }
        return scrub(global, &console);
    }
    let repository = place::open_for(global, Use::Configs)?;
    let report = verify::check(&repository, subset, &console)?;
    console.finish();
    print_damage(global, &report.damage);
    print_unread(global, &report.unread);
    print_lost(global, &report.lost, report.lost_count);
    print_foreign(global, &report.foreign);
    let marked = mark(&repository, &report, options.no_mark);
    let summary = json!({
        "type": "summary", "snapshots": report.snapshots, "segments": report.segments,
        "packs": report.packs,
        "chunks": report.chunks, "packs_read": report.packs_read,
        "bytes_read": report.bytes_read, "packs_archived": report.packs_archived,
        "objects_archived": report.objects_archived,
        "packs_unindexed": report.packs_unindexed, "damage": report.damage.len(),
        "paths_lost": report.lost_count, "not_objects": report.foreign.count,
        "packs_damaged": report.packs_damaged.len(), "unread": report.unread.count,
        "packs_not_needed": report.packs_not_needed,
        "packs_marked": marked.as_ref().map_or(0, |marked| marked.marked),
        "packs_unmarked": marked.as_ref().map_or(0, |marked| marked.unmarked),
    });
    run_record::keep(&summary);
    if global.json {
        output::object(&summary);
    } else if !global.quiet {
        print_summary(&report);
        print_advice(&report, &marked);
    }
    let is_clean = report.is_clean() && report.foreign.in_the_way == 0;
    Ok(
        match (is_clean, report.packs_archived + report.unread.count) {
            (true, 0) => exit::COMPLETE,
            (true, _) => exit::INCOMPLETE,
            (false, _) => exit::DAMAGE,
        },
    )
}

fn scrub(global: &Global, console: &Console) -> Result<i32> {
    let store = place::open_store(global)?;
    let report = verify::scrub(&*store, console)?;
    console.finish();
    print_damage(global, &report.damage);
    print_unread(global, &report.unread);
    print_foreign(global, &report.foreign);
    let summary = json!({
        "type": "summary", "not_objects": report.foreign.count,
        "objects": report.objects, "bytes_read": report.bytes,
        "damage": report.damage.len(), "segments_not_read": report.segments_not_read,
        "objects_archived": report.archived, "unread": report.unread.count,
    });
    run_record::keep(&summary);
    if global.json {
        output::object(&summary);
    } else if !global.quiet {
        let (objects, bytes) = (
            sizes::counted(report.objects, "object"),
            sizes::bytes(report.bytes),
        );
        report!("read {objects}, {bytes}: {} damaged", report.damage.len());
        if report.segments_not_read > 0 {
            report!(
                "{} not read: what is in them is checked with a key (bale check --read-data)",
                sizes::counted(report.segments_not_read, "segment")
            );
        }
        if report.archived > 0 {
            report!(
                "NOT READ: {}, archived in a cold storage class",
                sizes::counted(report.archived, "object")
            );
        }
        advise_on_unread(&report.unread);
        if !advise_on_two_stores(&report.damage) && !report.damage.is_empty() {
            report!("What that takes away, and what helps, needs the key: bale check --read-data");
        }
    }
    let is_clean = report.damage.is_empty() && report.foreign.in_the_way == 0;
    Ok(match (is_clean, report.archived + report.unread.count) {
        (true, 0) => exit::COMPLETE,
        (true, _) => exit::INCOMPLETE,
        (false, _) => exit::DAMAGE,
    })
}

fn print_damage(global: &Global, damage: &[CheckFinding]) {
    for damage in damage {
        if global.json {
            output::object(&json!({"type": "damage", "what": damage.what, "message": damage.text}));
        } else {
            output::line(&format!(
                "damaged: {}: {}",
                output::escape(damage.what.as_bytes()),
                output::escape(damage.text.as_bytes())
            ));
        }
    }
}

/// What could not be read: nobody knows whether it is whole.
fn print_unread(global: &Global, unread: &UnreadObjects) {
    for object in &unread.listed {
        if global.json {
            output::object(&json!({"type": "unread", "what": object.what, "message": object.text}));
        } else {
            output::line(&format!(
                "could not be read: {}: {}",
                output::escape(object.what.as_bytes()),
                output::escape(object.text.as_bytes())
            ));
        }
    }
    if !global.json {
        output::and_more(unread.listed.len(), unread.count, |more| {
            output::line(&format!("could not be read: {more}"));
        });
    }
}

fn advise_on_unread(unread: &UnreadObjects) {
    if unread.count > 0 {
        report!(
            "COULD NOT BE READ: {}: whether {} whole is not known, and nothing was marked as \
             damaged for that. See to what the store says (rights, the way to it), and check \
             again.",
            sizes::counted(unread.count, "object"),
            sizes::one_or_more(unread.count, "it is", "they are")
        );
    }
}

/// What is harmless is no problem, and quiet means problems only.
fn print_foreign(global: &Global, foreign: &Foreign) {
    let is_printed =
        |found: &&ForeignFound| global.json || !global.quiet || found.entry.kind.is_in_the_way();
    for ForeignFound { entry, store } in foreign.listed.iter().filter(is_printed) {
        if global.json {
            output::object(&json!({
                "type": "not_object", "path": entry.path, "kind": entry.kind.text(), "store": store,
            }));
        } else {
            let entry = match store {
                Some(store) => format!("{entry} in the {store}"),
                None => entry.to_string(),
            };
            output::line(&format!(
                "not an object of this repository: {}",
                output::escape(entry.as_bytes())
            ));
        }
    }
    if !global.json && (!global.quiet || foreign.in_the_way > 0) {
        output::and_more(foreign.listed.len(), foreign.count, |more| {
            output::line(&format!("not an object of this repository: {more}"));
        });
    }
    if foreign.in_the_way > 0 && !global.json && !global.quiet {
        report!(
            "{} in the place of {}: put the object back, or remove what stands there",
            sizes::either(
                foreign.in_the_way,
                "link or other thing",
                "links or other things"
            ),
            sizes::one_or_more(foreign.in_the_way, "an object", "objects"),
        );
    }
}

pub(super) fn print_lost(global: &Global, listed: &[LostPath], count: u64) {
    for lost in listed {
        let path = [b"/".as_slice(), &lost.path].concat();
        if global.json {
            let mut value = json!({"type": "lost", "snapshot": lost.snapshot.to_string(),
                "paths": lost.paths, "message": lost.text});
            output::put_path(&mut value, "path", &path);
            output::object(&value);
        } else {
            output::line(&format!(
                "lost: {}:{}: {}",
                lost.snapshot.short(),
                output::escape(&path),
                output::escape(lost.text.as_bytes())
            ));
        }
    }
    if !global.json {
        let listed = listed.iter().map(|lost| lost.paths).sum::<u64>();
        output::and_more(listed as usize, count, |more| {
            output::line(&format!("lost: {more}"));
        });
    }
}

fn print_summary(report: &CheckReport) {
    report!(
        "checked {}, {}, {}, {}",
        sizes::counted(report.snapshots, "snapshot"),
        sizes::counted(report.segments, "catalog segment"),
        sizes::counted(report.packs, "pack"),
        sizes::counted(report.chunks, "chunk")
    );
    if report.packs_read > 0 {
        report!(
            "read and verified {}, {}",
            sizes::counted(report.packs_read, "pack"),
            sizes::bytes(report.bytes_read)
        );
    }
    if report.packs_archived > 0 {
        report!(
            "NOT READ: {}, archived in a cold storage class: whether they are whole is not known",
            sizes::counted(report.packs_archived, "pack")
        );
    }
    if report.objects_archived > 0 {
        report!(
            "not looked at in the cold store: {}, archived in a cold storage class",
            sizes::counted(report.objects_archived, "object")
        );
    }
    advise_on_unread(&report.unread);
    match report.is_clean() {
        // What is in the way was said, and may hide damage.
        true if report.foreign.in_the_way > 0 => {}
        true if report.packs_not_needed > 0 || !report.packs_damaged.is_empty() => {
            report!("nothing that a snapshot needs is lost or damaged")
        }
        true if report.unread.count > 0 => report!("no damage found in what was read"),
        true => report!("no damage found"),
        false => report!(
            "DAMAGE: {}; {}{} cannot be restored whole",
            sizes::either(
                report.damage.len() as u64,
                "object or chunk",
                "objects or chunks"
            ),
            match report.records_unreadable {
                0 => String::new(),
                snapshots => format!("all of {}, and ", sizes::counted(snapshots, "snapshot")),
            },
            sizes::counted(report.lost_count, "path")
        ),
    }
}

/// Marks what was found damaged; why not, if it is not to be or cannot be.
fn mark(
    repository: &Repository,
    report: &CheckReport,
    no_mark: bool,
) -> std::result::Result<Marked, String> {
    match no_mark {
        true => Err("--no-mark was given".to_owned()),
        false => verify::mark(repository, report).map_err(|error| format!("{error:#}")),
    }
}

/// What one of two stores has whole: which repair brings it to the other. Says whether there was
/// something.
fn advise_on_two_stores(damage: &[CheckFinding]) -> bool {
    let count = |is_meant: &dyn Fn(MendedBy) -> bool| {
        let mended = damage.iter().filter_map(|finding| finding.mended_by);
        mended.filter(|by| is_meant(*by)).count() as u64
    };
    let by_hot = count(&|by| by == MendedBy::RepairHot);
    let by_reading = count(&|by| by == MendedBy::RepairCold { read_data: true });
    let by_cold = by_reading + count(&|by| by == MendedBy::RepairCold { read_data: false });
    if by_cold > 0 {
        report!(
            "The cold store lost or has damaged {} that the hot one has: `bale repair cold{}` says \
             which and brings {} back (--dry-run writes nothing). Do that first, and check again.",
            sizes::counted(by_cold, "object"),
            if by_reading > 0 { " --read-data" } else { "" },
            sizes::one_or_more(by_cold, "it", "them")
        );
    }
    if by_hot > 0 {
        report!(
            "The hot store has damaged {} that the cold one has: `bale repair hot` writes {} \
             again. Do that first, and check again.",
            sizes::counted(by_hot, "object"),
            sizes::one_or_more(by_hot, "it", "them")
        );
    }
    by_cold + by_hot > 0
}

/// What is to be done, as far as it is true.
fn print_advice(report: &CheckReport, marked: &std::result::Result<Marked, String>) {
    if advise_on_two_stores(&report.damage) {
        // What else is the matter is known only then.
        return;
    }
    if report.packs_unindexed > 0 || report.index_objects_damaged > 0 {
        match report.is_clean() {
            true => report!(
                "{} that no index names: no damage, a backup or mirror that did not end left {it}. \
                 The next mirror goes on with {it}; in a repository that is no mirror a prune \
                 removes {it} or says what does",
                sizes::counted(report.packs_unindexed, "pack"),
                it = sizes::one_or_more(report.packs_unindexed, "it", "them")
            ),
            // What is lost, and what to do, is known only then.
            false => {
                return report!(
                    "Index objects that cannot be read: {}; packs that no index names: {}. `bale \
                     repair index` lists them again: do that first, and check again.",
                    report.index_objects_damaged,
                    report.packs_unindexed
                );
            }
        }
    }
    if report.packs_not_needed > 0 && report.segments_lost == 0 {
        report!(
            "{} damaged or missing, of which no snapshot needs anything that stands nowhere else: \
             a prune removes {}",
            sizes::counted(report.packs_not_needed, "pack"),
            sizes::one_or_more(report.packs_not_needed, "it", "them")
        );
    }
    match marked {
        Ok(marked) if marked.unmarked > 0 => report!(
            "{} marked as damaged, and whole: not marked any more",
            sizes::counted(marked.unmarked as u64, "pack")
        ),
        _ => {}
    }
    if let (Err(error), false) = (marked, report.packs_damaged.is_empty()) {
        report!(
            "{} not marked ({}): backups go on relying on {}, but for `bale backup --force`.",
            sizes::counted(report.packs_damaged.len() as u64, "damaged pack"),
            output::escape(error.as_bytes()),
            sizes::one_or_more(report.packs_damaged.len() as u64, "it", "them")
        );
    }
    for step in steps(report, marked.is_ok()) {
        report!("{step}");
    }
}

/// What leads to a check that finds no damage, in this order; each only where it may help.
fn steps(report: &CheckReport, is_marked: bool) -> Vec<String> {
    let mut steps = Vec::new();
    let removable = |damage: &&CheckFinding| {
        let areas = ["snapshots/", "runs/", "condemned/", "damaged/"];
        areas.iter().any(|area| damage.what.starts_with(area))
    };
    let objects = report.damage.iter().filter(removable).count() as u64;
    if objects > 0 {
        steps.push(format!(
            "{} cannot be read: bring {} back from a copy of the repository, or let go of {} with \
             `bale forget ID`, the name after the slash.",
            sizes::counted(objects, "object"),
            sizes::one_or_more(objects, "it", "them"),
            sizes::one_or_more(objects, "it", "them"),
        ));
    }
    if report.chunks_in_danger > 0 && is_marked {
        steps.push(match report.lost_count {
            0 => "No path is lost: `bale repair packs` saves what only damaged packs hold."
                .to_owned(),
            _ => "Damaged packs are marked: `bale repair packs` saves what can be read of them."
                .to_owned(),
        });
    }
    if report.lost_count > 0 {
        let stores_again = match is_marked {
            true => "the next backup stores again what the sources still have of it",
            false => {
                "what the sources still have of it is stored again by `bale backup --force`, or by \
                 any backup once a check has marked the packs (`bale repair packs` then saves what \
                 can be read of them)"
            }
        };
        steps.push(format!(
            "What is lost may be in a copy of the repository; {stores_again}."
        ));
        steps.push(
            "What a check names after that does not come back: `bale forget ID` lets go of \
            a snapshot that is named, with all that is in it."
                .to_owned(),
        );
    }
    steps
}

fn subset(options: &Check) -> Result<Option<Subset>> {
    if options.read_data {
        return Ok(Some(Subset::All));
    }
    let Some(text) = &options.read_data_subset else {
        return Ok(None);
    };
    let wrong = || {
        Usage(format!(
            "{text:?} is no part: write n/t (3/12), x% (2.5%) or a size (500M)"
        ))
    };
    if let Some((part, of)) = text.split_once('/') {
        let (part, of): (u64, u64) = (
            part.parse().map_err(|_| wrong())?,
            of.parse().map_err(|_| wrong())?,
        );
        if part == 0 || part > of {
            return Err(wrong().into());
        }
        return Ok(Some(Subset::Part { part, of }));
    }
    if let Some(percent) = text.strip_suffix('%') {
        let percent: f64 = percent.parse().map_err(|_| wrong())?;
        if !(percent > 0.0 && percent <= 100.0) {
            return Err(wrong().into());
        }
        return Ok(Some(Subset::Percent(percent)));
    }
    Ok(Some(Subset::Bytes(
        sizes::parse_bytes(text).map_err(|_| wrong())?,
    )))
}
