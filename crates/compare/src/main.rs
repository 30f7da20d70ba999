//! The `bale-compare` command: words become a comparison, its report becomes a table and three
//! files.
//!
//! A program of its own, so that `bale`, which keeps last copies, holds nothing of it.

/// Says a line on stderr. That nobody reads it any more is no reason to stop.
macro_rules! report {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _nobody_listens = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod words;

use anyhow::{Context, Result, anyhow};
use bale_compare::{self as compare, CompareError, CompareMonitor, Report, Run};
use clap::Parser;
use serde_json::{Value, json};
use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use words::{UsageError, Words};

// As of `bale`: docs/SCRIPTING.md.
const COMPLETE: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
/// Some run failed.
const INCOMPLETE: i32 = 3;
const INTERRUPTED: i32 = 130;

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

fn main() {
    let words = Words::parse();
    let listening = ctrlc::set_handler(|| {
        if IS_INTERRUPTED.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
    });
    if let Err(error) = listening {
        report!("bale-compare: cannot listen for signals: {error}");
    }
    let code = run(&words).unwrap_or_else(|error| failure(&error, words.json));
    std::process::exit(code);
}

/// Tells about the error that ends the command; its exit code.
fn failure(error: &anyhow::Error, is_json: bool) -> i32 {
    let code = match error.downcast_ref() {
        Some(UsageError(_)) => USAGE,
        None => FAILED,
    };
    let text = plain(&format!("{error:#}"));
    if is_json {
        object(&json!({"type": "error", "message": text, "code": code}));
    }
    report!("bale-compare: {text}");
    code
}

/// Runs the comparison, prints its table and writes its report.
fn run(words: &Words) -> Result<i32> {
    let options = words.options()?;
    let talk = Talk {
        json: words.json,
        quiet: words.quiet,
        began: Instant::now(),
        is_line_open: Cell::new(false),
    };
    let report = compare::compare(&options, &talk).map_err(as_usage)?;
    let written = write(&options.directory, &report)?;
    if words.json {
        compare::cell_objects(&report).iter().for_each(object);
        object(&json!({
            "type": "summary", "files": report.files, "runs": report.runs.len(),
            "failures": report.failures(), "interrupted": report.is_interrupted,
            "seconds": report.seconds, "html": text_of(&written.html),
            "json": text_of(&written.json), "csv": text_of(&written.csv),
        }));
    } else {
        compare::table(&report)
            .lines()
            .for_each(|text| line(&plain(text)));
        let page = text_of(&written.html);
        report!("Wrote {page}, and the same as .json and .csv");
    }
    if let Some(why) = report.broken_by {
        return Err(anyhow!("the comparison ended early: {why}"));
    }
    Ok(match (report.is_interrupted, report.failures()) {
        (true, _) => INTERRUPTED,
        (false, 0) => COMPLETE,
        (false, _) => INCOMPLETE,
    })
}

/// Prints a line of data. The report is in files: who stopped reading this ends nothing.
fn line(text: &str) {
    let _nobody_reads = writeln!(std::io::stdout(), "{text}");
}

fn object(value: &Value) {
    line(&value.to_string());
}

/// What tools say must not steer a terminal.
fn plain(text: &str) -> String {
    let shown = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(shown).collect()
}

fn text_of(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// Tells what happens.
struct Talk {
    json: bool,
    quiet: bool,
    began: Instant,
    /// The number of a run stands there, and what follows belongs to it.
    is_line_open: Cell<bool>,
}

impl CompareMonitor for Talk {
    fn say(&self, text: &str) {
        if self.json {
            object(&json!({"type": "note", "message": text}));
        } else if !self.quiet {
            if self.is_line_open.take() {
                report!();
            }
            report!("{}", plain(text));
        }
    }

    fn begins(&self, title: &str, run: u64, runs: u64) {
        if self.quiet {
            return;
        }
        if self.json {
            let seconds = self.began.elapsed().as_secs_f64();
            object(&json!({
                "type": "status", "phase": title, "done": run - 1, "total": runs, "bytes_done": 0,
                "bytes_total": 0, "seconds": seconds, "seconds_left": null,
            }));
        } else {
            let _nobody_listens = write!(std::io::stderr(), "[{run}/{runs}] ");
            self.is_line_open.set(true);
        }
    }

    fn ended(&self, run: &Run) {
        if self.json {
            object(&compare::run_object(run));
        } else if !self.quiet {
            self.is_line_open.set(false);
            report!("{}", plain(&compare::run_line(run)));
        }
    }

    fn interrupted(&self) -> bool {
        IS_INTERRUPTED.load(Ordering::Relaxed)
    }
}

/// Where the report is.
struct Written {
    html: PathBuf,
    json: PathBuf,
    csv: PathBuf,
}

/// Writes the three files; those of an earlier comparison stay.
fn write(directory: &Path, report: &Report) -> Result<Written> {
    let digits = report.started.chars().filter(char::is_ascii_digit);
    let stamp: String = digits.collect();
    let stem = (1..)
        .map(|number| match number {
            1 => format!("compare-{stamp}"),
            _ => format!("compare-{stamp}-{number}"),
        })
        .find(|stem| !directory.join(format!("{stem}.html")).exists())
        .expect("some number is free");
    let path = |extension: &str| directory.join(format!("{stem}.{extension}"));
    let written = Written {
        html: path("html"),
        json: path("json"),
        csv: path("csv"),
    };
    let json = format!("{:#}\n", compare::report_object(report));
    for (path, text) in [
        (&written.html, compare::html(report)),
        (&written.json, json),
        (&written.csv, compare::csv(report)),
    ] {
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(written)
}

/// Wrong words end with the code for that.
fn as_usage(error: CompareError) -> anyhow::Error {
    match error {
        CompareError::Options(text) => UsageError(text).into(),
        other => other.into(),
    }
}
