//! `bale repair`

mod cold;
mod hot;
mod packs;

use crate::args::{Global, Repair};
use crate::place::Use;
use crate::progress::Console;
use crate::{exit, output, place, sizes};
use anyhow::Result;
use bale_engine::repair::ColdOptions;
use bale_pipeline::error::without_name;
use bale_repository::store::ObjectName;
use serde_json::json;

/// Mends what can be mended. Deletes nothing that somebody may need.
pub fn run(global: &Global, command: &Repair) -> Result<i32> {
    match command {
        Repair::Index { dry_run } => index(global, *dry_run),
        Repair::Config { dry_run } => config(global, *dry_run),
        Repair::Hot { dry_run } => hot::run(global, *dry_run),
        Repair::Cold {
            snapshots,
            keys,
            read_data,
            dry_run,
        } => {
            let options = ColdOptions {
                snapshots: *snapshots,
                keys: *keys,
                read_data: *read_data,
                dry_run: *dry_run,
            };
            cold::run(global, options)
        }
        Repair::Packs { ids, dry_run } => packs::run(global, ids, *dry_run),
    }
}

/// Writes again the one of `config` and its copy that is not sound.
fn config(global: &Global, dry_run: bool) -> Result<i32> {
    let repository = place::open_for(global, Use::Configs)?;
    let trouble = bale_engine::repair::repair_config(&repository, dry_run)?;
    if global.json {
        output::object(&json!({
            "type": "summary", "written": trouble.as_ref().map(|trouble| trouble.name.to_string()),
            "message": trouble.as_ref().map(|trouble| trouble.fault.text()), "dry_run": dry_run,
        }));
    } else if !global.quiet {
        match trouble {
            None => report!("config and config.copy are intact and identical: nothing to do"),
            Some(trouble) => report!(
                "{} {} from {}, which the key proves: {}",
                if dry_run { "would write" } else { "wrote" },
                trouble.name,
                trouble.sound(),
                output::escape(trouble.fault.text().as_bytes())
            ),
        }
    }
    Ok(exit::COMPLETE)
}

/// Lists again what no index names. Only adds.
fn index(global: &Global, dry_run: bool) -> Result<i32> {
    let repository = place::open_for(global, Use::unless_dry_run(dry_run))?;
    let console = Console::new(global);
    let report = bale_engine::repair::repair_index(&repository, dry_run, &console)?;
    console.finish();
    for (name, text) in &report.unread {
        let name = name.to_string();
        let text = output::escape(without_name(&name, text).as_bytes());
        report!("bale: {name}: could not be read, and stays: {text}");
    }
    for (pack, text) in &report.unreadable {
        let name = ObjectName::pack(*pack).to_string();
        let text = output::escape(without_name(&name, text).as_bytes());
        report!(
            "bale: pack {pack}: {text}: left alone. If nothing of it opens, bale forget {pack} \
             removes it"
        );
    }
    for (pack, bad) in &report.damaged {
        report!(
            "bale: pack {pack}: records that do not open: {bad}. It is listed without them and \
             marked as damaged; bale repair packs saves the others"
        );
    }
    if global.json {
        output::object(&json!({
            "type": "summary", "packs_listed": report.packs_listed,
            "chunks_listed": report.chunks_listed,
            "packs_unreadable": report.unreadable.len(), "packs_damaged": report.damaged.len(),
            "objects_removed": report.objects_removed, "objects_unread": report.unread.len(),
            "segments_listed": report.segments_listed,
            "segment_records_removed": report.segment_records_removed, "dry_run": dry_run,
        }));
    } else if !global.quiet {
        let word = if dry_run { "would list" } else { "listed" };
        report!(
            "{word} {} with {} again",
            sizes::counted(report.packs_listed, "pack"),
            sizes::counted(report.chunks_listed, "chunk")
        );
        if report.segments_listed + report.segment_records_removed > 0 {
            report!(
                "{word} {} again from its own table; damaged records removed: {}",
                sizes::counted(report.segments_listed, "segment"),
                report.segment_records_removed
            );
        }
        if report.objects_removed > 0 {
            report!(
                "removed index objects that could not be read: {}",
                report.objects_removed
            );
        }
    }
    Ok(
        match report.unreadable.is_empty() && report.damaged.is_empty() {
            true if report.unread.is_empty() => exit::COMPLETE,
            true => exit::INCOMPLETE,
            false => exit::DAMAGE,
        },
    )
}
