//! `bale backup --retain`: locks on what a snapshot uses.

use crate::args::{Backup, Global};
use crate::exit::Usage;
use crate::progress::Console;
use crate::{output, sizes, times};
use anyhow::Result;
use bale_engine::backup::Outcome;
use bale_engine::retain::{can_retain, retain};
use bale_pipeline::clock::time_of;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use serde_json::json;
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Before anything is stored: are there locks?
pub fn check(options: &Backup, repository: &Repository) -> Result<(), Usage> {
    if options.retain.is_none() || can_retain(repository) {
        return Ok(());
    }
    Err(Usage(format!(
        "--retain: {} locks no objects (S3 with Object Lock does)",
        repository.store().place()
    )))
}

/// Locks what the backup has made, or what it found unchanged; false if some of it is not locked.
pub fn run(
    global: &Global,
    options: &Backup,
    repository: &Repository,
    outcome: &Outcome,
    console: &Console,
) -> Result<bool> {
    let Some(days) = options.retain else {
        return Ok(true);
    };
    // Nothing changed: the parent is what there is.
    let Some(id) = outcome.id.or(outcome.snapshot.parent) else {
        return Ok(true);
    };
    let named = (id, outcome.snapshot.clone());
    let retained = retain(repository, &named, DAY * days, console);
    console.finish();
    let retained = match retained {
        Ok(retained) => retained,
        Err(Error::Interrupted) => return Err(Error::Interrupted.into()),
        Err(error) => {
            console.note(&format!(
                "NOT LOCKED: {} is saved, and what it uses is not locked: {error}",
                id.short()
            ));
            return Ok(false);
        }
    };
    let until = time_of(retained.until);
    if global.json {
        output::object(&json!({
            "type": "locked", "snapshot": id.to_string(), "until": times::time_text(until),
            "objects": retained.objects, "renewed": retained.renewed, "failed": retained.failed,
        }));
    } else if retained.failed > 0 {
        report!(
            "NOT LOCKED: {} of {} that the snapshot uses",
            sizes::count(retained.failed),
            sizes::counted(retained.objects, "object")
        );
    } else if !global.quiet {
        report!(
            "locked until {} at least: {}, {} of them renewed",
            times::local_time(until),
            sizes::counted(retained.objects, "object"),
            sizes::count(retained.renewed)
        );
    }
    Ok(retained.failed == 0)
}
