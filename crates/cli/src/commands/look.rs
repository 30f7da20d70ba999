//! Options of everything that scans, resolved: what to leave out, and how to look.

use crate::args::{Exclude, Excludes, Look, Scan};
use crate::exit::Usage;
use crate::named_paths::NamedPath;
use crate::sizes;
use anyhow::Result;
use bale_pipeline::filter::{Filter, FilterOptions, Mark, Pattern, parse_exclude_file};
use bale_source::scan::freeze::FreezerCommand;
use bale_source::scan::{LeftOut, ScanMode, ScanOptions};
use std::path::{Path, PathBuf};

/// What to leave out.
pub fn filter(options: &Look) -> Result<Filter> {
    Ok(crate::patterns::compile(filter_options(options)?)?)
}

/// How to look; temporary files go to `spill_directory`.
pub fn scan_options(options: &Look, filter: Filter, spill_directory: PathBuf) -> ScanOptions {
    ScanOptions {
        mode: scan_mode(options.scan),
        freezer: match options.no_freeze {
            true => None,
            false => Some(freezer()),
        },
        one_file_system: options.one_file_system,
        left_out: match options.include_repositories {
            true => LeftOut::default(),
            false => LeftOut::default().and_repositories(),
        },
        filter,
        spill_directory,
        ..ScanOptions::default()
    }
}

/// The engine's word for `--scan`.
pub fn scan_mode(scan: Scan) -> ScanMode {
    match scan {
        Scan::Auto => ScanMode::Auto,
        Scan::Walk => ScanMode::Walk,
        Scan::Inode => ScanMode::Inode,
    }
}

/// This program again, as freezer.
fn freezer() -> FreezerCommand {
    FreezerCommand {
        // Not the path it was started by: an update may have put another program there meanwhile.
        program: PathBuf::from("/proc/self/exe"),
        arguments: vec![super::FREEZER.into()],
        environment: Vec::new(),
    }
}

/// The patterns of an exclude file.
pub fn exclude_file(path: &Path) -> Result<Vec<Pattern>> {
    let named = NamedPath {
        by: "--exclude-file",
        attempt: "read the patterns of",
        path,
        advice: "Name a text file with a pattern a line",
    };
    let text = std::fs::read_to_string(path).map_err(|error| named.trouble(error))?;
    Ok(parse_exclude_file(&text, false))
}

/// All patterns that leave out, in the order in which they decide; those that can match nothing are
/// refused.
pub fn patterns(excludes: &Excludes) -> Result<Vec<Pattern>> {
    let pattern = |text: &String, ignore_case| Pattern {
        text: text.clone(),
        ignore_case,
    };
    let mut patterns: Vec<Pattern> = Vec::new();
    for exclude in &excludes.given {
        match exclude {
            Exclude::Pattern(text) => patterns.push(pattern(text, false)),
            Exclude::IgnoringCase(text) => patterns.push(pattern(text, true)),
            Exclude::File(path) => patterns.extend(exclude_file(path)?),
        }
    }
    crate::patterns::check(&patterns)?;
    crate::patterns::check_reachable(&patterns)?;
    Ok(patterns)
}

fn filter_options(options: &Look) -> Result<FilterOptions> {
    let patterns = patterns(&options.excludes)?;
    let mut marks: Vec<Mark> = Vec::new();
    for text in &options.exclude_if_present {
        marks.push(
            Mark::parse(text.as_bytes())
                .ok_or_else(|| Usage(format!("{text:?} is no file name")))?,
        );
    }
    if options.exclude_caches {
        marks.push(Mark::cachedir());
    }
    let larger_than_bytes = options
        .exclude_larger_than
        .as_deref()
        .map(sizes::parse_bytes)
        .transpose()?;
    Ok(FilterOptions {
        patterns,
        marks,
        larger_than_bytes,
    })
}

/// For the record of a snapshot.
pub fn excludes_as_given(options: &Look) -> Result<Vec<String>> {
    super::left_out::record(options)
}

/// A source that is not there, with its absolute path.
pub fn missing_problem(
    problem: &bale_source::scan::ScanProblem,
) -> bale_pipeline::monitor::Problem {
    bale_pipeline::monitor::Problem {
        path: [b"/", &problem.path[..]].concat(),
        action: problem.action,
        text: problem.error.to_string(),
    }
}
