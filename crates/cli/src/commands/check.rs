//! `bale check`

use crate::args::{Check, Global};
use crate::exit::{self, Usage};
use crate::progress::Console;
use crate::{output, place, sizes};
use anyhow::Result;
use bale_engine::verify::{self, CheckReport, Damage, Subset};
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
    let repository = place::open(global)?;
    let report = verify::check(&repository, subset, &console)?;
    console.finish();
    print_damage(global, &report.damage);
    print_lost(global, &report);
    if global.json {
        output::object(&json!({
            "type": "summary", "snapshots": report.snapshots, "segments": report.segments, "packs": report.packs,
            "chunks": report.chunks, "packs_read": report.packs_read, "bytes_read": report.bytes_read,
            "packs_unindexed": report.packs_unindexed, "damage": report.damage.len(), "paths_lost": report.lost_count,
        }));
    } else if !global.quiet {
        print_summary(&report);
    }
    Ok(if report.is_clean() {
        exit::COMPLETE
    } else {
        exit::DAMAGE
    })
}

fn scrub(global: &Global, console: &Console) -> Result<i32> {
    let store = place::open_store(global)?;
    let report = verify::scrub(&store, console)?;
    console.finish();
    print_damage(global, &report.damage);
    if global.json {
        let (objects, bytes, damage) = (report.objects, report.bytes, report.damage.len());
        output::object(
            &json!({"type": "summary", "objects": objects, "bytes_read": bytes, "damage": damage}),
        );
    } else if !global.quiet {
        let (objects, bytes) = (sizes::count(report.objects), sizes::bytes(report.bytes));
        tell!(
            "read {objects} objects, {bytes}: {} damaged",
            report.damage.len()
        );
    }
    Ok(if report.damage.is_empty() {
        exit::COMPLETE
    } else {
        exit::DAMAGE
    })
}

fn print_damage(global: &Global, damage: &[Damage]) {
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

fn print_lost(global: &Global, report: &CheckReport) {
    for lost in &report.lost {
        let path = [b"/".as_slice(), &lost.path].concat();
        if global.json {
            let mut value = json!({"type": "lost", "snapshot": lost.snapshot.to_string(), "message": lost.text});
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
        output::and_more(report.lost.len(), report.lost_count, |more| {
            output::line(&format!("lost: {more}"));
        });
    }
}

fn print_summary(report: &CheckReport) {
    tell!(
        "looked at {} snapshots, {} catalog segments, {} packs, {} chunks",
        report.snapshots,
        sizes::count(report.segments),
        sizes::count(report.packs),
        sizes::count(report.chunks)
    );
    if report.packs_read > 0 {
        tell!(
            "read and verified {} packs, {}",
            sizes::count(report.packs_read),
            sizes::bytes(report.bytes_read)
        );
    }
    if report.packs_unindexed > 0 {
        tell!(
            "{} packs are named by no index: no damage, a prune sees to them",
            report.packs_unindexed
        );
    }
    match report.is_clean() {
        true => tell!("no damage found"),
        false => tell!(
            "DAMAGE: {} objects or chunks; {} paths cannot be restored whole. The next backup stores again what still exists.",
            report.damage.len(),
            sizes::count(report.lost_count)
        ),
    }
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
