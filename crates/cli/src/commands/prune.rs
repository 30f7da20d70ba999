//! `bale prune`

use crate::args::{Global, Prune, PruneOptions};
use crate::exit::{self, Usage};
use crate::place::Use;
use crate::progress::Console;
use crate::{output, place, sizes};
use anyhow::Result;
use bale_engine::prune::{self as engine, PackFate, PrunePlan};
use bale_engine::repository::Repository;
use serde_json::json;
use std::sync::Arc;

/// Prints the plan, then does what it says.
pub fn run(global: &Global, options: &Prune) -> Result<i32> {
    let engine_options = parsed(&options.options)?;
    let repository = place::open_for(global, Use::unless_dry_run(options.dry_run))?;
    prune(global, &repository, engine_options, options.dry_run)
}

/// Reads the options: before anything is done.
pub fn parsed(options: &PruneOptions) -> Result<engine::PruneOptions> {
    if options.repack_below > 100 {
        return Err(Usage("--repack-below is a percentage: 0 to 100".to_owned()).into());
    }
    Ok(engine::PruneOptions {
        grace: sizes::parse_duration(&options.grace)?,
        repack_below_percent: options.repack_below,
    })
}

/// Also called by `forget --prune`.
pub fn prune(
    global: &Global,
    repository: &Arc<Repository>,
    engine_options: engine::PruneOptions,
    dry_run: bool,
) -> Result<i32> {
    let console = Console::new(global);
    let plan = engine::plan(repository, &engine_options, &console)?;
    console.finish();
    print_plan(global, &plan, dry_run);
    if dry_run {
        return Ok(code(plan.problems));
    }
    let console = Console::new(global);
    let pruned = engine::apply(repository, &plan, &engine_options, &console)?;
    console.finish();
    if global.json {
        output::object(&json!({
            "type": "summary", "packs_deleted": pruned.packs_deleted, "bytes_deleted": pruned.bytes_deleted,
            "packs_condemned": pruned.packs_condemned, "bytes_condemned": pruned.bytes_condemned,
            "bytes_repacked": pruned.bytes_repacked, "problems": pruned.problems,
        }));
    } else if !global.quiet {
        tell!(
            "gave back {} ({} packs)",
            sizes::bytes(pruned.bytes_deleted),
            pruned.packs_deleted
        );
        if pruned.bytes_condemned > pruned.bytes_deleted {
            tell!(
                "a prune after the grace period gives back {} more",
                sizes::bytes(pruned.bytes_condemned)
            );
        }
    }
    if pruned.problems > 0 && !global.json && !global.quiet {
        tell!(
            "{} left alone: damaged, and in use",
            sizes::counted(pruned.problems, "pack")
        );
    }
    Ok(code(pruned.problems))
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
    if global.json {
        return output::object(&json!({
            "type": "plan", "dry_run": dry_run, "snapshots": plan.snapshots, "runs": plan.runs,
            "packs_stay": stay, "bytes_stay": stay_bytes, "packs_unused": unused, "bytes_unused": unused_bytes,
            "packs_repack": repack, "bytes_repack_packs": repack_bytes, "bytes_repack": plan.bytes_to_repack(),
            "packs_condemned": condemned, "bytes_condemned": condemned_bytes, "packs_young": young, "bytes_young": young_bytes,
            "packs_damaged": damaged, "bytes_damaged": damaged_bytes,
        }));
    }
    if global.quiet {
        return;
    }
    let line = |text: &str, packs: u64, bytes: u64| {
        if packs > 0 {
            output::line(&format!(
                "{text:<58} {packs:>8} packs {:>12}",
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
