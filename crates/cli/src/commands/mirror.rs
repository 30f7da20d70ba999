//! `bale mirror`

use crate::args::{Global, Mirror};
use crate::exit;
use crate::place::Use;
use crate::progress::Console;
use crate::{output, place, run_record, sizes};
use anyhow::Result;
use bale_engine::mirror::{self as engine, MirrorOptions, Mirrored};
use serde_json::json;

/// Brings every object to the second place and prints how many.
pub fn run(global: &Global, options: &Mirror) -> Result<i32> {
    let source = place::open_for(global, Use::Read)?;
    // Before a place is made for it.
    engine::refuse_unfit(&source)?;
    let target = place::mirror_store(global, options)?;
    let engine_options = MirrorOptions {
        verify: options.verify,
        delete: options.delete,
        dry_run: options.dry_run,
    };
    let console = Console::new(global);
    let mirrored = engine::mirror(&source, &target, &engine_options, &console)?;
    console.finish();
    summary(global, options, &mirrored);
    Ok(match mirrored.problems {
        0 => exit::COMPLETE,
        _ => exit::INCOMPLETE,
    })
}

fn summary(global: &Global, options: &Mirror, mirrored: &Mirrored) {
    let summary = json!({
        "type": "summary", "dry_run": options.dry_run, "objects_sent": mirrored.objects_sent,
        "bytes_sent": mirrored.bytes_sent, "objects_there": mirrored.objects_there,
        "objects_replaced": mirrored.objects_replaced,
        "objects_deleted": mirrored.objects_deleted,
        "segments_given_back": mirrored.segments_given_back,
        "snapshots_withheld": mirrored.snapshots_withheld, "problems": mirrored.problems,
        "deleting_refused": mirrored.is_deleting_refused,
    });
    run_record::keep(&summary);
    if global.json {
        return output::object(&summary);
    }
    if global.quiet {
        return;
    }
    let would = if options.dry_run { "would be " } else { "" };
    let objects = |number| sizes::counted(number, "object");
    let mut text = format!(
        "{} ({}) {would}sent; {} there already",
        objects(mirrored.objects_sent),
        sizes::bytes(mirrored.bytes_sent),
        objects(mirrored.objects_there),
    );
    if mirrored.objects_replaced > 0 {
        let replaced = objects(mirrored.objects_replaced);
        text.push_str(&format!(
            "; of those sent, {replaced} in the place of damaged ones"
        ));
    }
    if options.delete {
        text.push_str(&format!(
            "; {} {would}deleted",
            objects(mirrored.objects_deleted)
        ));
    }
    if mirrored.segments_given_back > 0 {
        text.push_str(&format!(
            "; {} of which little was left given back",
            sizes::counted(mirrored.segments_given_back, "segment")
        ));
    }
    report!("{text}");
    if mirrored.problems > u64::from(mirrored.is_deleting_refused) {
        report!(
            "what is damaged in the source is named above: bale check says what it costs, bale \
             repair brings back what can be had; then mirror again"
        );
    } else if mirrored.is_deleting_refused {
        report!("everything of the source is there; nothing was deleted, for what is named above");
    }
}
