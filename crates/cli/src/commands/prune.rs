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
    let repository = place::open_for(global, Use::unless_dry_run(options.dry_run))?;
    prune(global, &repository, &options.options, options.dry_run)
}

/// Also called by `forget --prune`.
pub fn prune(
    global: &Global,
    repository: &Arc<Repository>,
    options: &PruneOptions,
    dry_run: bool,
) -> Result<i32> {
    if options.repack_below > 100 {
        return Err(Usage("--repack-below is a percentage: 0 to 100".to_owned()).into());
    }
    let engine_options = engine::PruneOptions {
        grace: sizes::parse_duration(&options.grace)?,
        repack_below_percent: options.repack_below,
    };
    let console = Console::new(global);
    let plan = engine::plan(repository, &engine_options, &console)?;
    console.finish();
    print_plan(global, &plan, dry_run);
    if dry_run {
        return Ok(exit::COMPLETE);
    }
    let console = Console::new(global);
    let pruned = engine::apply(repository, &plan, &engine_options, &console)?;
    console.finish();
    if global.json {
        output::object(&json!({
            "type": "summary", "packs_deleted": pruned.packs_deleted, "bytes_deleted": pruned.bytes_deleted,
            "packs_condemned": pruned.packs_condemned, "bytes_condemned": pruned.bytes_condemned,
            "bytes_repacked": pruned.bytes_repacked,
        }));
    } else if !global.quiet {
        tell!(
            "gave back {} ({} packs)",
            sizes::bytes(pruned.bytes_deleted),
            pruned.packs_deleted
        );
        if pruned.bytes_condemned > pruned.bytes_deleted {
            tell!(
                "a prune after {} gives back {} more",
                options.grace,
                sizes::bytes(pruned.bytes_condemned)
            );
        }
    }
    Ok(exit::COMPLETE)
}

fn print_plan(global: &Global, plan: &PrunePlan, dry_run: bool) {
    let (stay, stay_bytes) = plan.sum(PackFate::Stay);
    let (unused, unused_bytes) = plan.sum(PackFate::Condemn);
    let (repack, repack_bytes) = plan.sum(PackFate::Repack);
    let (condemned, condemned_bytes) = plan.sum(PackFate::Condemned);
    let (young, young_bytes) = plan.sum(PackFate::Young);
    if global.json {
        return output::object(&json!({
            "type": "plan", "dry_run": dry_run, "snapshots": plan.snapshots, "runs": plan.runs,
            "packs_stay": stay, "bytes_stay": stay_bytes, "packs_unused": unused, "bytes_unused": unused_bytes,
            "packs_repack": repack, "bytes_repack_packs": repack_bytes, "bytes_repack": plan.bytes_to_repack(),
            "packs_condemned": condemned, "bytes_condemned": condemned_bytes, "packs_young": young, "bytes_young": young_bytes,
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
}
