//! `bale repair cold`

use crate::args::Global;
use crate::exit::{self, Usage};
use crate::progress::Console;
use crate::times::local_time;
use crate::{output, place, sizes};
use anyhow::Result;
use bale_engine::repair::{ColdOptions, ColdReport, OnlyHot, repair_cold};
use bale_repository::store::Area;
use serde_json::json;

/// Brings back what the hot store has; exit 4 if some of it cannot be, 3 if some was left for the
/// user to decide, or is archived.
pub fn run(global: &Global, options: ColdOptions) -> Result<i32> {
    let Some(location) = place::cold_location(global)? else {
        let text = "repair cold needs both stores: the hot one as --repo, the other with --cold";
        return Err(Usage(text.to_owned()).into());
    };
    let two = place::hot_and_cold(global, &location, options.dry_run)?;
    let console = Console::new(global);
    let report = repair_cold(&two.repository, [&two.hot, &two.cold], options, &console)?;
    console.finish();
    for object in &report.only_hot {
        print(global, object, options.dry_run);
    }
    summary(global, &report, options);
    let is_left = report.left().next().is_some();
    Ok(match (report.problems, is_left || report.archived > 0) {
        (0, false) => exit::COMPLETE,
        (0, true) => exit::INCOMPLETE,
        _ => exit::DAMAGE,
    })
}

fn print(global: &Global, object: &OnlyHot, dry_run: bool) {
    let fate = match (object.is_brought, dry_run) {
        (true, false) => "brought-back",
        (true, true) => "would-bring-back",
        (false, _) => "left",
    };
    let short = object.name.id().map(|id| id.short()).unwrap_or_default();
    if global.json {
        let snapshot = object.snapshot.as_ref();
        return output::object(&json!({
            "type": "only-hot", "object": object.name.to_string(), "fate": fate,
            "id": object.name.id().map(|id| id.to_string()),
            "time": snapshot.map(|snapshot| crate::times::time_text(snapshot.time)),
            "host": snapshot.map(|snapshot| &snapshot.host),
            "paths": snapshot.map(|snapshot| {
                let paths = snapshot.paths.iter();
                paths.map(|path| String::from_utf8_lossy(&path.0)).collect::<Vec<_>>()
            }),
            "whole": snapshot.map(|_| object.is_whole),
        }));
    }
    if global.quiet {
        return;
    }
    let kind = match object.name.area {
        Area::Keys => "key",
        Area::Runs => "unfinished run",
        _ => "snapshot",
    };
    let mut text = format!("{kind} {short}");
    if let Some(snapshot) = &object.snapshot {
        let paths = snapshot.paths.iter().map(|path| output::escape(&path.0));
        text.push_str(&format!(
            "  {}  {}  {}",
            local_time(snapshot.time),
            output::escape(snapshot.host.as_bytes()),
            paths.collect::<Vec<_>>().join(" ")
        ));
        if !object.is_whole {
            text.push_str("  (something that it needs is in neither store)");
        }
    }
    let fate = match (object.is_brought, dry_run) {
        (true, false) => "brought back",
        (true, true) => "would be brought back",
        (false, _) => "only in the hot store, left",
    };
    output::line(&format!("{text}  {fate}"));
}

fn summary(global: &Global, report: &ColdReport, options: ColdOptions) {
    let dry_run = options.dry_run;
    let is_key = |object: &&OnlyHot| object.name.area == Area::Keys;
    let keys = report.left().filter(is_key).count() as u64;
    let records = report.left().count() as u64 - keys;
    if global.json {
        return output::object(&json!({
            "type": "summary", "objects": report.objects, "bytes": report.bytes,
            "replaced": report.replaced, "intact": report.intact,
            "snapshots_left": records, "keys_left": keys, "archived": report.archived,
            "problems": report.problems, "dry_run": dry_run,
        }));
    }
    if global.quiet {
        return;
    }
    let word = if dry_run { "would bring" } else { "brought" };
    report!(
        "{word} {} with {} back into the cold store, {} of them in the place of damaged ones; {} \
         were there and intact",
        sizes::counted(report.objects, "object"),
        sizes::bytes(report.bytes),
        sizes::count(report.replaced),
        sizes::count(report.intact),
    );
    if !options.read_data {
        report!("of packs the lengths were compared: --read-data reads them");
    }
    if report.archived > 0 {
        report!(
            "archived, and so not looked at: {}",
            sizes::counted(report.archived, "object")
        );
    }
    if records > 0 {
        report!(
            "left: {} that only the hot store has. The cold store lost them, or they were \
             forgotten, and the hot store was set back to an older state since: with --snapshots \
             they come back, and bale forget lets go of those that are not wanted. Until then no \
             prune begins",
            sizes::counted(records, "snapshot or unfinished run"),
        );
    }
    if keys > 0 {
        report!(
            "left: {} that only the hot store has. The cold store lost them, or they were removed, \
             and the hot store was set back to an older state since: with --keys they come back",
            sizes::counted(keys, "key"),
        );
    }
}
