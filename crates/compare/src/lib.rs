//! Bale and its peers at the same work, measured the same way, from outside: `bale` is a child like
//! any other tool.
//!
//! A comparison makes a tree, lets every installed tool scan it, back it up, back it up again
//! unchanged and changed, and restore it, with cold caches and in turn, and says what each took and
//! how it was measured. Tools are children whose files all lie in a work directory; nothing stays
//! behind. The numbers become a [`Report`]; [`table`], [`report_object`], [`csv`] and [`html`] show
//! it.

#![forbid(unsafe_code)]

mod adapters;
mod block_stat;
mod child;
mod circumstances;
mod error;
mod figures;
mod lines;
mod lineup;
mod monitor;
mod mounts;
mod options;
mod order;
mod page;
mod processes;
mod programs;
mod report;
#[cfg(test)]
mod samples;
mod source;
mod stage;
mod statistics;
mod table;
mod volume;
mod workspace;

use std::time::Instant;

pub use adapters::{ToolKind, tool_names};
pub use block_stat::BlockStat;
pub use error::CompareError;
pub use lines::{cell_objects, csv, report_object, run_line, run_object};
pub use monitor::CompareMonitor;
pub use options::{
    Case, CompareOptions, FILES_DEFAULT, FILES_MAX, QUICK_BUDGET, QUICK_FILES, QUICK_PEERS_MAX,
    RUNS_MAX, SourceKind,
};
pub use page::html;
pub use report::{Absent, Cell, Circumstance, Measured, Report, Run, Tool, Trouble};
pub use statistics::Spread;
pub use table::table;

use error::Result;
use lineup::Lineup;
use order::Budget;
use programs::Programs;
use source::Counted;
use stage::Stage;
use volume::Volume;
use workspace::Workspace;

/// Other work on the machine above this share of its processors is told.
const DISTURBED_SHARE: f64 = 0.10;
/// Only of runs that are long enough for the kernel's counters.
const DISTURBED_SECONDS_MIN: f64 = 1.0;
/// What a repository of a file takes at most with tools that compress, and with rsync, which keeps
/// files.
const REPOSITORY_FILE_BYTES: u64 = 1800;
const COPY_FILE_BYTES: u64 = 4700;
/// Of the tree and of the target of restores together.
const IMAGES_FILE_BYTES: u64 = 12 << 10;

/// Compares. A tool that fails is a cell that says so; stopping on request still gives what there
/// is.
pub fn compare(options: &CompareOptions, monitor: &dyn CompareMonitor) -> Result<Report> {
    options.check()?;
    let began = Instant::now();
    let programs = Programs::new(&options.search_path);
    let (workspace, was_left) = Workspace::open(&options.directory, &programs)?;
    if was_left {
        monitor.say("removed what a killed comparison had left");
    }
    let obstacle = no_device(&workspace, &programs, options);
    let has_device = obstacle.is_none();
    let lineup = Lineup::find(options, &programs, has_device);
    check_space(options, &lineup)?;
    let mut report = begin_report(options, &lineup, &programs);
    report.caveats.extend(obstacle);
    let mut stage = Stage {
        options: options.clone(),
        monitor,
        lineup: &lineup,
        has_device,
        source: None,
        target: None,
        workspace,
        budget: Budget::new(began, options.budget),
        runs: Vec::new(),
        circumstances: Vec::new(),
        counted_first: Counted::default(),
        begun: 0,
    };
    let mut round = 1;
    while round <= options.runs {
        match stage.run_round(round) {
            Ok(()) => round += 1,
            Err(CompareError::TooMany { files }) => {
                monitor.say(&format!("too slow for the time: again with {files} files"));
                stage.begin_again(files);
                round = 1;
            }
            Err(CompareError::Stopped) => {
                report.is_interrupted = true;
                break;
            }
            Err(error) if stage.runs.is_empty() => return Err(error),
            // Hours of runs are not thrown away.
            Err(error) => {
                report.broken_by = Some(chain(&error));
                break;
            }
        }
    }
    let method = circumstances::of_method(&stage.options, has_device);
    report.circumstances.extend(method);
    report.runs = std::mem::take(&mut stage.runs);
    report.circumstances.append(&mut stage.circumstances);
    (report.files, report.bytes) = (stage.counted_first.files, stage.counted_first.bytes);
    monitor.say("cleaning up");
    drop(stage);
    report.caveats.extend(disturbance(&report));
    report.seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// An error with its reasons.
fn chain(error: &dyn std::error::Error) -> String {
    let reasons = std::iter::successors(Some(error), |error| error.source());
    reasons
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}

fn begin_report(options: &CompareOptions, lineup: &Lineup, programs: &Programs) -> Report {
    Report {
        started: options.started.clone(),
        command_line: options.command_line.clone(),
        files: 0,
        bytes: 0,
        runs_wanted: options.runs,
        seconds: 0.0,
        cases: Case::ALL
            .into_iter()
            .filter(|case| options.measures(*case))
            .collect(),
        tools: lineup.tools(options, programs),
        absent: lineup.absent.clone(),
        runs: Vec::new(),
        circumstances: circumstances::of_machine(&options.directory),
        caveats: Vec::new(),
        is_interrupted: false,
        broken_by: None,
    }
}

/// Why there are no loop devices; without them much cannot be measured.
fn no_device(
    workspace: &Workspace,
    programs: &Programs,
    options: &CompareOptions,
) -> Option<String> {
    let lost = "caches stay warm, no operations of the device are counted, and what reads devices \
        is left out";
    if !rustix::process::geteuid().is_root() {
        return Some(format!("without root {lost}"));
    }
    let needed: &[&str] = match options.source {
        SourceKind::Xfs => &["losetup", "mount", "umount", "mkfs.ext4", "mkfs.xfs"],
        _ => &["losetup", "mount", "umount", "mkfs.ext4"],
    };
    if let Some(program) = needed.iter().find(|name| programs.find(name).is_none()) {
        return Some(format!("without {program} {lost}"));
    }
    let image = workspace.path("probe.img");
    let probe = volume::make_sparse(&image, 1 << 20)
        .and_then(|()| Volume::attach(programs, image.clone(), workspace.path("probe"), "noatime"));
    let _ = std::fs::remove_file(&image);
    probe
        .err()
        .map(|error| format!("without loop devices ({error}) {lost}"))
}

/// A rough look, so that nobody waits an hour for "no space left".
fn check_space(options: &CompareOptions, lineup: &Lineup) -> Result<()> {
    let stored = lineup
        .adapters
        .iter()
        .filter(|adapter| !adapter.backup.is_empty() && adapter.kind != ToolKind::Reference);
    let each = stored.map(|adapter| {
        if adapter.name == "rsync" {
            COPY_FILE_BYTES
        } else {
            REPOSITORY_FILE_BYTES
        }
    });
    let needed_bytes = options.files * (each.sum::<u64>() + IMAGES_FILE_BYTES);
    let Ok(stat) = rustix::fs::statvfs(&options.directory) else {
        return Ok(());
    };
    let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free_bytes < needed_bytes {
        let directory = options.directory.clone();
        return Err(CompareError::Space {
            directory,
            needed_bytes,
            free_bytes,
        });
    }
    Ok(())
}

/// Other work on the machine makes all times doubtful.
fn disturbance(report: &Report) -> Option<String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let runs = report.runs.iter().filter_map(|run| run.measured.as_ref());
    let shares = runs
        .filter(|run| run.wall_seconds >= DISTURBED_SECONDS_MIN)
        .filter_map(|run| Some(run.other_cpu_seconds? / run.wall_seconds / cores));
    let spread = Spread::of(shares)?;
    (spread.max > DISTURBED_SHARE).then(|| {
        format!(
            "other processes and the kernel's threads took {:.0} % of the processors in the \
             median, {:.0} % at most: compare ratios, and only within this page",
            spread.median * 100.0,
            spread.max * 100.0
        )
    })
}
