//! What `restore` and `dump` do about packs that are not readable at once.

use crate::args::ColdReads;
use crate::exit::{self, Usage};
use crate::output;
use anyhow::Result;
use bale_engine::restore::{WarmCommand, WarmUp, plan_reads};
use bale_pipeline::monitor::Monitor;
use bale_repository::repository::{Named, Repository};
use bale_restore::{RestoreOptions, ScratchSpace, Warmer};
use std::io::BufWriter;
use std::sync::Arc;

/// What makes packs readable, if something is asked for.
pub fn warmer(
    repository: &Arc<Repository>,
    options: &ColdReads,
) -> Result<Option<Box<dyn Warmer>>> {
    if let Some(text) = &options.warm_command {
        return Ok(Some(Box::new(WarmCommand::new(repository, text)?)));
    }
    let Some(days) = options.warm_up else {
        return Ok(None);
    };
    let Some(warm_up) = WarmUp::new(repository, days)? else {
        let text = format!(
            "--warm-up: {} has no cold classes of S3, from which it could bring packs back; \
             --warm-command runs what does so elsewhere",
            repository.store().place()
        );
        return Err(Usage(text).into());
    };
    Ok(Some(Box::new(warm_up)))
}

/// Prints what would be read; exit 3 if not all of it could be found out.
pub fn print_plan(
    repository: &Arc<Repository>,
    snapshot: &Named,
    options: &RestoreOptions,
    scratch: &ScratchSpace,
    monitor: &dyn Monitor,
) -> Result<i32> {
    let mut out = BufWriter::new(output::Data);
    let totals = plan_reads(repository, snapshot, options, scratch, &mut out, monitor)?;
    Ok(match totals.problems {
        0 => exit::COMPLETE,
        _ => exit::INCOMPLETE,
    })
}
