//! `bale dump`

use super::{cold, select};
use crate::args::{Dump, Global};
use crate::progress::Console;
use crate::{exit, output, place};
use anyhow::{Context, Result};
use bale_engine::dump::{dump_when_readable, options_of};
use std::io::{BufWriter, Write};

/// Bytes collected before they are written to standard output.
const OUTPUT_BYTES: usize = 1 << 20;

/// Prints a file, or a directory as a pax tar archive; exit 3 if part of it could not be had.
pub fn run(global: &Global, options: &Dump) -> Result<i32> {
    let repository = place::open(global)?;
    // Standard output is the file's, whatever else is asked for.
    let notes_json = false;
    let chosen =
        select::choose_to_restore(&repository, &options.address, &options.select, notes_json)?;
    let console = Console::for_data_on_stdout(global).naming_whole_paths();
    let scratch = place::scratch(&repository)?;
    let mut dumped = options_of(&chosen.path);
    if options.cold.plan {
        return cold::print_plan(&repository, &chosen.named, &dumped, &scratch, &console);
    }
    let warmer = cold::warmer(&repository, &options.cold)?;
    dumped.warmer = warmer.as_deref();
    let mut out = BufWriter::with_capacity(OUTPUT_BYTES, output::Data);
    let mut report = dump_when_readable(
        &repository,
        &chosen.named,
        &dumped,
        &scratch,
        &mut out,
        &console,
    )?;
    out.flush().context("write to standard output")?;
    console.finish();
    super::restore::from_root(&mut report.losses);
    report.losses.iter().for_each(super::restore::print_loss);
    let is_whole = super::restore::is_whole(&report.losses, &chosen.named.1);
    Ok(if report.problems > 0 || !is_whole {
        exit::INCOMPLETE
    } else {
        exit::COMPLETE
    })
}
