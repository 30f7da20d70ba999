//! `--metrics-dir`: what a run was, as a file for Prometheus, also of one that failed.
//!
//! A file for each kind of work (command, repository, what is backed up), written beside its place
//! and renamed. What cannot be written is a problem, never more: a backup is not lost for want of a
//! number.

mod exposition;
mod from_summary;

pub use exposition::{Exposition, Labels};

use crate::args::{Global, WorkLabels};
use crate::{exit, output, place, run_record, variables};
use anyhow::{Context, Result};
use bale_format::Time;
use bale_pipeline::clock::{Clock, SystemClock};
use bale_pipeline::monitor::Problem;
use exposition::{EXIT_CODE, LAST_RUN, LAST_SUCCESS, value_in};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Of a file that is read back: ours have a tenth of it.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Of the name of a profile in the name of a file.
const PROFILE_CHARS_MAX: usize = 64;

/// A run that is measured: where its file is, and how its series are labelled.
pub struct MeasuredRun {
    directory: PathBuf,
    file: String,
    labels: Labels,
    command: &'static str,
    began: Instant,
}

/// Where metrics go, if anywhere.
pub fn directory(global: &Global) -> Result<Option<PathBuf>, exit::Usage> {
    match &global.metrics_dir {
        Some(directory) => Ok(Some(directory.clone())),
        None => Ok(variables::read("BALE_METRICS_DIR")?.map(PathBuf::from)),
    }
}

impl MeasuredRun {
    /// Begins to measure, if that is wanted of this command.
    pub fn begin(global: &Global, measured: Option<WorkLabels>) -> Option<MeasuredRun> {
        let measured = measured?;
        let directory = directory(global).unwrap_or_else(|error| {
            report_problem(b"", &error.0, global.json);
            None
        })?;
        if let Err(error) = check(&directory) {
            let path = directory.as_os_str().as_encoded_bytes();
            report_problem(path, &format!("{error:#}"), global.json);
        }
        let (file, labels) = identity(global, measured.command, &measured.labels);
        Some(MeasuredRun {
            directory,
            file,
            labels,
            command: measured.command,
            began: Instant::now(),
        })
    }

    /// Writes the file of a run that ended with `code`.
    pub fn end(self, code: i32) {
        let now = SystemClock.time();
        let path = self.directory.join(&self.file);
        let before = read_back(&path).and_then(|text| value_in(&text, LAST_SUCCESS));
        let before = before.filter(|time| *time <= seconds(now));
        let text = self.text(code, now, before);
        if let Err(error) = replace(&self.directory, &self.file, &text) {
            // The summary was the last object of `--json`.
            exit::something_is_missing();
            report!("bale: {}", output::escape(output::chain(&error).as_bytes()));
        }
    }

    fn text(&self, code: i32, now: Time, last_success: Option<f64>) -> String {
        let summary = run_record::summary();
        let mut file = Exposition::default();
        file.push(LAST_RUN, &self.labels, seconds(now));
        file.push(EXIT_CODE, &self.labels, f64::from(code));
        let is_success = code == exit::COMPLETE
            || (code == exit::INCOMPLETE && self.command == "backup" && run_record::is_committed());
        if let Some(time) = is_success.then(|| seconds(now)).or(last_success) {
            file.push(LAST_SUCCESS, &self.labels, time);
        }
        let duration = self.began.elapsed().as_secs_f64();
        file.push("bale_run_duration_seconds", &self.labels, duration);
        from_summary::push(&mut file, (self.command, &self.labels), &summary);
        file.text()
    }
}

/// Writes what `status` found, under a name of its own.
pub fn write(
    global: &Global,
    directory: &Path,
    labels: &Labels,
    fill: impl FnOnce(&mut Exposition, &Labels),
) -> Result<()> {
    let (file, labels) = identity(global, "status", labels);
    let mut exposition = Exposition::default();
    fill(&mut exposition, &labels);
    replace(directory, &file, &exposition.text())
}

/// A problem of the whole run.
pub fn report_problem(path: &[u8], text: &str, json: bool) {
    exit::something_is_missing();
    let problem = Problem {
        path: path.to_vec(),
        action: "write metrics to",
        text: text.to_owned(),
    };
    output::problem(&problem, json);
}

/// A time for Prometheus.
pub fn seconds(time: Time) -> f64 {
    // Milliseconds are what it keeps.
    time.seconds as f64 + f64::from(time.nanos / 1_000_000) / 1000.0
}

/// Name of the file and labels of its series: the same for each run of the same work. The labels of
/// `--repo` never hold a password.
fn identity(global: &Global, command: &'static str, more: &Labels) -> (String, Labels) {
    let repository = match place::named(global) {
        Ok(Some(location)) => location.to_string(),
        Ok(None) => place::own().map_or_else(
            |_| String::new(),
            |own| own.repository.to_string_lossy().into_owned(),
        ),
        Err(_) => String::new(),
    };
    let profile = variables::lookup("BALE_PROFILE");
    let mut labels: Labels = vec![
        ("command", command.to_owned()),
        ("repository", output::escape(repository.as_bytes())),
    ];
    labels.extend(
        profile
            .iter()
            .map(|name| ("profile", output::escape(name.as_bytes()))),
    );
    labels.extend(more.iter().cloned());
    let hash = hash(&labels);
    let file = match profile {
        Some(profile) => format!("bale_{}_{command}_{hash:016x}.prom", as_file_name(&profile)),
        None => format!("bale_{command}_{hash:016x}.prom"),
    };
    (file, labels)
}

fn as_file_name(profile: &str) -> String {
    let letters = profile.chars().take(PROFILE_CHARS_MAX);
    let plain = letters.map(|letter| match letter.is_ascii_alphanumeric() {
        true => letter,
        false => '-',
    });
    plain.collect()
}

/// FNV-1a: it names files, and guards nothing.
fn hash(labels: &Labels) -> u64 {
    let words = labels
        .iter()
        .flat_map(|(name, value)| [*name, value.as_str()]);
    let bytes = words.flat_map(|word| word.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Is it a directory that can be written? Said before the work, where there is still time.
fn check(directory: &Path) -> Result<()> {
    let about = std::fs::metadata(directory).context("look at it")?;
    anyhow::ensure!(
        about.is_dir(),
        "it is no directory: make one that node_exporter reads"
    );
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).context("write there")
}

/// What stands in a file, if it is one and not larger than any of ours.
fn read_back(path: &Path) -> Option<String> {
    // A pipe or a device that somebody put there is not waited for.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    let is_ours = bytes.len() as u64 <= FILE_BYTES_MAX;
    is_ours.then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes a file beside its place and renames it: the collector, which is another user, sees all of
/// it or nothing.
fn replace(directory: &Path, name: &str, text: &str) -> Result<()> {
    let path = directory.join(name);
    let new = directory.join(format!(".{name}.{}", std::process::id()));
    let write = || -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let mut file = File::from(rustix::fs::open(&new, flags, mode)?);
        // Whatever the umask says.
        rustix::fs::fchmod(&file, mode)?;
        file.write_all(text.as_bytes())?;
        Ok(std::fs::rename(&new, &path)?)
    };
    write()
        .inspect_err(|_| {
            let _is_there_no_more = std::fs::remove_file(&new);
        })
        .with_context(|| format!("write metrics to {}", path.display()))
}
