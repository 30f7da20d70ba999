//! `bale repair hot`

use crate::args::Global;
use crate::exit::{self, Usage};
use crate::progress::Console;
use crate::{output, place, sizes};
use anyhow::Result;
use bale_engine::repair::repair_hot;
use bale_repository::store::{Area, ObjectName};
use serde_json::json;

/// Copies what the hot store should have; exit 4 if some of it is damaged in the cold one.
pub fn run(global: &Global, dry_run: bool) -> Result<i32> {
    let Some(cold) = place::cold_location(global)? else {
        let text = "repair hot needs both stores: the hot one as --repo, the other with --cold";
        return Err(Usage(text.to_owned()).into());
    };
    let repository = place::open_cold(global, &cold)?;
    let hot = place::hot_to_be_made(global, &repository, dry_run)?;
    let console = Console::new(global);
    let report = repair_hot(&repository, &*hot, dry_run, &console)?;
    console.finish();
    for name in &report.came_among_others {
        print(global, name);
    }
    if global.json {
        output::object(&json!({
            "type": "summary", "objects": report.objects, "bytes": report.bytes,
            "replaced": report.replaced, "intact": report.intact, "beside": report.beside,
            "problems": report.problems, "dry_run": dry_run,
        }));
    } else if !global.quiet {
        let word = if dry_run { "would copy" } else { "copied" };
        report!(
            "{word} {} with {} into the hot store, {} of them in the place of damaged ones; {} \
             were there and intact",
            sizes::counted(report.objects, "object"),
            sizes::bytes(report.bytes),
            sizes::count(report.replaced),
            sizes::count(report.intact),
        );
        if report.beside > 0 {
            report!(
                "left alone: {} of the hot store that the cold one does not have",
                sizes::counted(report.beside, "object")
            );
        }
    }
    Ok(match report.problems {
        0 => exit::COMPLETE,
        _ => exit::DAMAGE,
    })
}

/// One that was half forgotten when a forget or a key remove was cut off comes back, too.
fn print(global: &Global, name: &ObjectName) {
    let short = name.id().map(|id| id.short()).unwrap_or_default();
    if global.json {
        return output::object(&json!({
            "type": "only-cold", "object": name.to_string(),
            "id": name.id().map(|id| id.to_string()),
        }));
    }
    if global.quiet {
        return;
    }
    let (what, remove) = match name.area {
        Area::Keys => ("key", "key remove"),
        _ => ("snapshot", "forget"),
    };
    output::line(&format!(
        "{what} {short}  was in the cold store alone (bale {remove} {short} removes it again)"
    ));
}
