//! `bale prune`

use super::sudden;
use crate::args::{Global, Prune, PruneChoices};
use crate::exit::{self, Usage};
use crate::place::Use;
use crate::progress::Console;
use crate::{output, place, run_record, sizes};
use anyhow::Result;
use bale_engine::prune::{self as engine, PackFate, PrunePlan, Pruned};
use bale_format::Time;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// Prints the plan, then does what it says.
pub fn run(global: &Global, options: &Prune) -> Result<i32> {
    let engine_options = parsed(&options.options)?;
    let repository = place::open_for(global, Use::unless_dry_run(options.dry_run))?;
    let despite = &options.options.despite_sudden_change;
    sudden::confirm(&repository, despite, options.dry_run)?;
    prune(
        global,
        &repository,
        engine_options,
        options.dry_run,
        "summary",
    )
}

/// Reads the options: before anything is done.
pub fn parsed(options: &PruneChoices) -> Result<engine::PruneOptions> {
    if options.repack_below > 100 {
        return Err(Usage("--repack-below is a percentage: 0 to 100".to_owned()).into());
    }
    Ok(engine::PruneOptions {
        grace: sizes::parse_duration(&options.grace)?,
        repack_below_percent: options.repack_below,
    })
}

/// Also called by `forget --prune`, which has a summary of its own: `summary_type` is the type of
/// this one.
pub fn prune(
    global: &Global,
    repository: &Arc<Repository>,
    engine_options: engine::PruneOptions,
    dry_run: bool,
    summary_type: &str,
) -> Result<i32> {
    let console = Console::new(global);
    let plan = engine::plan(repository, &engine_options, &console)?;
    console.finish();
    print_plan(global, &plan, dry_run);
    if dry_run {
        for missed in &plan.missed {
            console.note(&missed.refusal().to_string());
        }
        for change in &plan.sudden {
            console.note(&change.refusal().to_string());
        }
        return Ok(code(plan.problems));
    }
    let console = Console::new(global);
    let pruned = engine::apply(repository, &plan, &engine_options, &console);
    let pruned = pruned.map_err(with_room_to_write)?;
    console.finish();
    let summary = json!({
        "type": summary_type, "packs_deleted": pruned.packs_deleted,
        "bytes_deleted": pruned.bytes_deleted,
        "packs_condemned": pruned.packs_condemned, "bytes_condemned": pruned.bytes_condemned,
        "bytes_repacked": pruned.bytes_repacked, "problems": pruned.problems,
        "packs_gone": pruned.packs_gone,
        "segments_reclaimed": pruned.segments_reclaimed,
        "segments_joined": pruned.segments_joined,
        "bytes_reclaimed": pruned.bytes_reclaimed,
        "bytes_waiting": pruned.bytes_waiting,
    });
    run_record::keep(&summary);
    if global.json {
        output::object(&summary);
    } else if !global.quiet {
        // What is deleted of a segment is freed with it.
        let verb = match repository.stretched() {
            Some(_) => "deleted",
            None => "freed",
        };
        let now = format!(
            "{verb} {} ({})",
            sizes::bytes(pruned.bytes_deleted),
            sizes::counted(pruned.packs_deleted, "pack")
        );
        match still_condemned(repository, &plan, engine_options.grace)? {
            None => report!("{now}"),
            Some(later) if pruned.problems > pruned.packs_gone => {
                report!("{now}; {later}, but for what is named above")
            }
            Some(later) => report!("{now}; {later}"),
        }
    }
    if !global.json && !global.quiet {
        report_segments(&pruned);
        report_problems(&pruned);
    }
    Ok(code(pruned.problems))
}

/// What is condemned is written down before anything goes.
fn with_room_to_write(error: Error) -> anyhow::Error {
    match &error {
        Error::Store(trouble) if trouble.is_storage_full() => anyhow::Error::from(error).context(
            "a prune writes a little before it frees anything: make room for a few MB there, and \
             run bale prune --grace 0",
        ),
        _ => error.into(),
    }
}

fn report_segments(pruned: &Pruned) {
    if pruned.segments_reclaimed > 0 {
        report!(
            "gave back {} of which little was used ({})",
            sizes::counted(pruned.segments_reclaimed, "segment"),
            sizes::bytes(pruned.bytes_reclaimed)
        );
    }
    if pruned.segments_joined > 0 {
        report!(
            "put {} together",
            sizes::counted(pruned.segments_joined, "short segment")
        );
    }
    if pruned.bytes_waiting > 0 {
        report!(
            "{} in segments wait until little of their segment is used",
            sizes::bytes(pruned.bytes_waiting)
        );
    }
}

fn report_problems(pruned: &Pruned) {
    let left = pruned.problems - pruned.packs_gone;
    if left > 0 {
        report!(
            "{} left in place, listed above",
            sizes::counted(left, "pack")
        );
    }
    if pruned.packs_gone > 0 {
        report!(
            "{} in use but missing: `bale check` lists what is lost",
            sizes::counted(pruned.packs_gone, "pack")
        );
    }
}

/// What later prunes give back, and when.
fn still_condemned(
    repository: &Repository,
    plan: &PrunePlan,
    grace: Duration,
) -> Result<Option<String>> {
    let lists = repository.condemned()?;
    let condemned: HashSet<_> = lists.iter().flat_map(|list| &list.record.packs).collect();
    let packs = plan
        .packs
        .iter()
        .filter(|pack| condemned.contains(&pack.id));
    let lens: Vec<u64> = packs.map(|pack| pack.len).collect();
    let newest = lists.iter().map(|list| list.record.time).max();
    let Some(newest) = newest.filter(|_| !lens.is_empty()) else {
        return Ok(None);
    };
    let after = Time {
        seconds: newest.seconds.saturating_add_unsigned(grace.as_secs()),
        ..newest
    };
    Ok(Some(format!(
        "{}, {}, {} condemned and {} with a prune after {}",
        sizes::counted(lens.len() as u64, "pack"),
        sizes::bytes(lens.iter().sum()),
        sizes::one_or_more(lens.len() as u64, "is", "are"),
        sizes::one_or_more(lens.len() as u64, "goes", "go"),
        crate::times::local_time(after),
    )))
}

fn code(problems: u64) -> i32 {
    match problems {
        0 => exit::COMPLETE,
        _ => exit::INCOMPLETE,
    }
}

fn print_plan(global: &Global, plan: &PrunePlan, dry_run: bool) {
    let (stay, stay_bytes) = plan.sum(PackFate::Stay);
    let (unused, unused_bytes) = plan.sum(PackFate::Condemn);
    let (repack, repack_bytes) = plan.sum(PackFate::Repack);
    let (condemned, condemned_bytes) = plan.sum(PackFate::Condemned);
    let (young, young_bytes) = plan.sum(PackFate::Young);
    let (damaged, damaged_bytes) = plan.sum(PackFate::Damaged);
    let bytes_packs: u64 = plan.packs.iter().map(|pack| pack.len).sum();
    let object = json!({
        "type": "plan", "bytes_packs": bytes_packs, "dry_run": dry_run,
        "snapshots": plan.snapshots, "runs": plan.runs,
        "packs_stay": stay, "bytes_stay": stay_bytes, "packs_unused": unused,
        "bytes_unused": unused_bytes,
        "packs_repack": repack, "bytes_repack_packs": repack_bytes,
        "bytes_repack": plan.bytes_to_repack(),
        "packs_condemned": condemned, "bytes_condemned": condemned_bytes, "packs_young": young,
        "bytes_young": young_bytes,
        "packs_damaged": damaged, "bytes_damaged": damaged_bytes, "packs_gone": plan.packs_gone,
    });
    run_record::keep(&object);
    if global.json {
        return output::object(&object);
    }
    if global.quiet {
        return;
    }
    let line = |text: &str, packs: u64, bytes: u64| {
        if packs > 0 {
            output::line(&format!(
                "{text:<58} {packs:>8} {:<5} {:>12}",
                sizes::one_or_more(packs, "pack", "packs"),
                sizes::bytes(bytes)
            ));
        }
    };
    line("used enough, stay", stay, stay_bytes);
    line("unused, to be condemned", unused, unused_bytes);
    line(
        "used little, to be copied and condemned",
        repack,
        repack_bytes,
    );
    line(
        "condemned before; deleted once the grace period is over",
        condemned,
        condemned_bytes,
    );
    line(
        "unused but young: a running backup may be about to use them",
        young,
        young_bytes,
    );
    line("damaged, and in use: left alone", damaged, damaged_bytes);
}
