//! `bale dump`

use super::{cold, select};
use crate::args::{Dump, DumpArchive, Global};
use crate::named_paths::NamedPath;
use crate::progress::Console;
use crate::{exit, output, place};
use anyhow::{Context, Result};
use bale_engine::dump::{dump_when_readable, options_of};
use bale_restore::dump::ArchiveFormat;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use tempfile::NamedTempFile;

/// Bytes collected before they are written.
const OUTPUT_BYTES: usize = 1 << 20;

/// What a file is called until it is whole; the end of it is random.
const UNFINISHED_PREFIX: &str = ".bale-dump-";

/// Writes a file, or a directory as an archive, to standard output or to a file; exit 3 if part of
/// it could not be had.
pub fn run(global: &Global, options: &Dump) -> Result<i32> {
    if let Some(path) = &options.target {
        require_free(&target(path), options.force)?;
    }
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
    let format = options.archive.map(|archive| match archive {
        DumpArchive::Tar => ArchiveFormat::Tar,
        DumpArchive::Zip => ArchiveFormat::Zip,
    });
    let write = |out: &mut dyn Write| {
        let what = (&dumped, format);
        let dumped = dump_when_readable(&repository, &chosen.named, what, &scratch, out, &console)?;
        anyhow::Ok(dumped)
    };
    let mut report = match &options.target {
        None => {
            let mut out = BufWriter::with_capacity(OUTPUT_BYTES, output::Data);
            let report = write(&mut out)?;
            out.flush().context("write to standard output")?;
            report
        }
        Some(path) => to_file(&target(path), options.force, write)?,
    };
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

fn target(path: &Path) -> NamedPath<'_> {
    NamedPath {
        by: "--target",
        attempt: "write to",
        path,
        advice: "Name a new file in a directory that is there",
    }
}

/// Before anything is read, and once more when the file gets its name.
fn require_free(target: &NamedPath, may_replace: bool) -> Result<()> {
    match std::fs::symlink_metadata(target.path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => target.require_parent(),
        Err(error) => Err(target.trouble(error)),
        Ok(there) if !there.is_file() => {
            let advice = "Name a new file, or leave --target out and redirect the output";
            let target = NamedPath { advice, ..*target };
            Err(target.trouble("something else than a file is there"))
        }
        Ok(_) if may_replace => Ok(()),
        Ok(_) => {
            let advice = "Name a new file, or replace it with --force";
            let target = NamedPath { advice, ..*target };
            Err(target.trouble("it is there already"))
        }
    }
}

/// The file has its name when it is whole and on the disk; until then, and if it fails, there is
/// none.
fn to_file<T>(
    target: &NamedPath,
    may_replace: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<T>,
) -> Result<T> {
    let trouble = |error: io::Error| target.trouble(error);
    let parent = match target.path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let builder = tempfile::Builder::new()
        .prefix(UNFINISHED_PREFIX)
        .tempfile_in(parent);
    let mut out = BufWriter::with_capacity(OUTPUT_BYTES, builder.map_err(trouble)?);
    let written = write(&mut out)?;
    let file = out
        .into_inner()
        .map_err(|error| trouble(error.into_error()))?;
    file.as_file().sync_all().map_err(trouble)?;
    name(file, target, may_replace)?;
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(trouble)?;
    Ok(written)
}

fn name(file: NamedTempFile, target: &NamedPath, may_replace: bool) -> Result<()> {
    require_free(target, may_replace)?;
    let named = match may_replace {
        true => file.persist(target.path),
        false => file.persist_noclobber(target.path),
    };
    let named = named.map_err(|error| error.error);
    named.map(drop).map_err(|error| target.trouble(error))
}
