//! `bale compare`

use crate::args::{Compare, Global};
use crate::exit::{self, Usage};
use crate::{interrupt, output, sizes};
use anyhow::{Context, Result};
use bale_engine::clock::{Clock, SystemClock};
use bale_tune::compare::{
    self, Case, CompareError, CompareMonitor, CompareOptions, FILES_DEFAULT, QUICK_BUDGET,
    QUICK_FILES, QUICK_PEERS_MAX, Report, Run, SourceKind,
};
use serde_json::json;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs of each cell unless told otherwise.
const RUNS_DEFAULT: u32 = 3;
const RUNS_QUICK: u32 = 1;

/// Runs the comparison, prints its table and writes its report.
pub fn run(global: &Global, words: &Compare) -> Result<i32> {
    let options = options(words)?;
    let talk = Talk {
        json: global.json,
        quiet: global.quiet,
        began: Instant::now(),
        is_line_open: Cell::new(false),
    };
    let report = compare::compare(&options, &talk).map_err(as_usage)?;
    let written = write(&options.directory, &report)?;
    if global.json {
        compare::cell_objects(&report)
            .iter()
            .for_each(output::object);
        output::object(&json!({
            "type": "summary", "files": report.files, "runs": report.runs.len(), "failures": report.failures(),
            "interrupted": report.is_interrupted, "seconds": report.seconds,
            "html": text_of(&written.html), "json": text_of(&written.json), "csv": text_of(&written.csv),
        }));
    } else {
        for text in compare::table(&report).lines() {
            output::line(&output::escape(text.as_bytes()));
        }
        tell!(
            "Wrote {}, and the same as .json and .csv",
            text_of(&written.html)
        );
    }
    if let Some(why) = report.broken_by {
        return Err(anyhow::anyhow!("the comparison ended early: {why}"));
    }
    Ok(match (report.is_interrupted, report.failures()) {
        (true, _) => exit::INTERRUPTED,
        (false, 0) => exit::COMPLETE,
        (false, _) => exit::INCOMPLETE,
    })
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
            output::object(&json!({"type": "note", "message": text}));
        } else if !self.quiet {
            if self.is_line_open.take() {
                tell!();
            }
            tell!("{}", output::escape(text.as_bytes()));
        }
    }

    fn begins(&self, title: &str, run: u64, runs: u64) {
        if self.json && !self.quiet {
            output::object(&json!({
                "type": "status", "phase": title, "done": run - 1, "total": runs, "bytes_done": 0,
                "bytes_total": 0, "seconds": self.began.elapsed().as_secs_f64(), "seconds_left": null,
            }));
        } else if !self.json && !self.quiet {
            tell_part!("[{run}/{runs}] ");
            self.is_line_open.set(true);
        }
    }

    fn ended(&self, run: &Run) {
        if self.json {
            output::object(&compare::run_object(run));
        } else if !self.quiet {
            self.is_line_open.set(false);
            tell!("{}", output::escape(compare::run_line(run).as_bytes()));
        }
    }

    fn interrupted(&self) -> bool {
        interrupt::asked()
    }
}

fn options(words: &Compare) -> Result<CompareOptions> {
    let cases: Option<Vec<Case>> = words.work.iter().map(|word| Case::parse(word)).collect();
    let known = Case::ALL.map(Case::word).join(", ");
    let cases = cases.ok_or_else(|| Usage(format!("--work takes {known}")))?;
    let budget = match &words.within {
        Some(text) => Some(sizes::parse_duration(text)?),
        None => words.quick.then_some(QUICK_BUDGET),
    };
    let choose =
        |given: Option<u64>, usual, quick| given.unwrap_or(if words.quick { quick } else { usual });
    let runs = choose(
        words.runs.map(u64::from),
        RUNS_DEFAULT.into(),
        RUNS_QUICK.into(),
    );
    Ok(CompareOptions {
        directory: words.dir.clone(),
        files: choose(words.files, FILES_DEFAULT, QUICK_FILES),
        runs: u32::try_from(runs).unwrap_or(u32::MAX),
        cases: if cases.is_empty() {
            Case::ALL.to_vec()
        } else {
            cases
        },
        tools: words.tools.clone(),
        peers_max: if words.quick && words.tools.is_empty() {
            QUICK_PEERS_MAX
        } else {
            usize::MAX
        },
        source: source(&words.source)?,
        budget: budget.filter(|budget| *budget > Duration::ZERO),
        may_shrink: words.quick && words.files.is_none(),
        seed: words.seed,
        search_path: std::env::var_os("PATH").unwrap_or_default(),
        executable: std::env::current_exe().context("find this program")?,
        started: now(),
        command_line: command_line(),
    })
}

fn source(word: &str) -> Result<SourceKind> {
    let kinds = [SourceKind::Ext4, SourceKind::Ext4Kernel, SourceKind::Xfs];
    let kind = kinds.into_iter().find(|kind| kind.word() == word);
    Ok(kind.ok_or_else(|| Usage(format!("--source {word:?} is not ext4, ext4-kernel or xfs")))?)
}

/// Date and time, to the minute.
fn now() -> String {
    let time = jiff::Timestamp::try_from(SystemClock.now()).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// As a shell would take it.
fn command_line() -> String {
    let words = std::env::args_os().enumerate().map(|(at, word)| {
        let word = if at == 0 {
            Path::new(&word).file_name().unwrap_or(&word).to_owned()
        } else {
            word
        };
        let word = word.to_string_lossy().into_owned();
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=,:+".contains(letter);
        if !word.is_empty() && word.chars().all(is_plain) {
            word
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Where the report is.
struct Written {
    html: PathBuf,
    json: PathBuf,
    csv: PathBuf,
}

/// Writes the three files; those of an earlier comparison stay.
fn write(directory: &Path, report: &Report) -> Result<Written> {
    let stamp: String = report
        .started
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    let stem = (1..)
        .map(|number| {
            if number == 1 {
                format!("compare-{stamp}")
            } else {
                format!("compare-{stamp}-{number}")
            }
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

fn text_of(path: &Path) -> String {
    output::escape(path.as_os_str().as_encoded_bytes())
}

/// Wrong words end with the code for that.
fn as_usage(error: CompareError) -> anyhow::Error {
    match error {
        CompareError::Options(text) => Usage(text).into(),
        other => other.into(),
    }
}
