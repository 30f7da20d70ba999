//! What `status` found, for Prometheus.
//!
//! An age that is written stands still until the next look: alerts are better made of the time of
//! the last backup, and of the time of the look.

use super::{JudgedSource, Looked};
use crate::args::{Global, Status};
use crate::metrics::{self, Exposition, Labels};
use crate::output;
use bale_engine::status::Finding;

/// Writes the file, if one is wanted; trouble with it is a problem.
pub(super) fn write(global: &Global, options: &Status, looked: &Looked) {
    let written = metrics::directory(global).map_err(anyhow::Error::from);
    let written = written.and_then(|directory| match directory {
        Some(directory) => metrics::write(global, &directory, &labels(options), |file, labels| {
            fill(file, labels, looked);
        }),
        None => Ok(()),
    });
    if let Err(error) = written {
        metrics::report_problem(b"", &output::chain(&error), global.json);
    }
}

/// What was looked at tells one look from another.
fn labels(options: &Status) -> Labels {
    let select = &options.select;
    let words = |option: &str, words: &[String]| {
        let words = words
            .iter()
            .map(|word| format!("{option} {}", output::escape(word.as_bytes())));
        words.collect::<Vec<_>>()
    };
    let paths: Vec<String> = select.paths.iter().map(|path| output::path(path)).collect();
    let only = [
        words("--host", &select.hosts),
        words("--path", &paths),
        words("--tag", &select.tags),
        words("--profile", &options.profile),
    ];
    let only = only.concat().join(" ");
    match only.is_empty() {
        true => Vec::new(),
        false => vec![("only", only)],
    }
}

fn fill(file: &mut Exposition, labels: &Labels, looked: &Looked) {
    let numbers = [
        (
            "bale_status_timestamp_seconds",
            metrics::seconds(looked.now),
        ),
        ("bale_repository_sources", looked.sources.len() as f64),
        (
            "bale_repository_snapshots_missing",
            looked.missed.len() as f64,
        ),
        (
            "bale_repository_snapshots_damaged",
            looked.damaged.len() as f64,
        ),
    ];
    for (name, value) in numbers {
        file.push(name, labels, value);
    }
    for source in &looked.sources {
        fill_source(file, labels, source);
    }
    for profile in &looked.profiles {
        let mut labels = labels.clone();
        labels.push(("status_profile", profile.name.clone()));
        let is_well = f64::from(u8::from(profile.is_well()));
        file.push("bale_profile_well", &labels, is_well);
        if let Some((finished, exit_code)) = profile.last_end() {
            file.push("bale_profile_last_run_timestamp_seconds", &labels, finished);
            file.push("bale_profile_last_run_exit_code", &labels, exit_code);
        }
        if let Some(next) = &profile.next {
            let next = next.timestamp().as_second() as f64;
            file.push("bale_profile_next_due_timestamp_seconds", &labels, next);
        }
    }
}

fn fill_source(file: &mut Exposition, labels: &Labels, source: &JudgedSource) {
    let key = &source.key;
    let paths: Vec<_> = key.paths.iter().map(|path| output::escape(path)).collect();
    let mut labels = labels.clone();
    labels.push(("source_host", output::escape(key.host.as_bytes())));
    labels.push(("source_paths", paths.join(" ")));
    let filesystems = key.filesystems.join(" ");
    labels.push(("source_filesystems", output::escape(filesystems.as_bytes())));
    let mut push = |name: &str, value: f64| file.push(name, &labels, value);
    push(
        "bale_source_well",
        f64::from(u8::from(source.judgement.is_well())),
    );
    push("bale_source_snapshots", source.snapshots as f64);
    if let Some(age) = source.judgement.age {
        push("bale_source_age_seconds", age.as_secs() as f64);
    }
    let is_sudden = |finding: &Finding| matches!(finding, Finding::SuddenChange(_));
    let is_sudden = source.judgement.findings.iter().any(is_sudden);
    push("bale_source_sudden_change", f64::from(u8::from(is_sudden)));
    let Some((_, last)) = &source.last else {
        return;
    };
    push(
        "bale_source_last_backup_timestamp_seconds",
        metrics::seconds(last.time),
    );
    push("bale_source_files", last.totals.files as f64);
    push("bale_source_bytes", last.totals.bytes as f64);
    push("bale_source_stored_bytes", last.counts.bytes_stored as f64);
    push("bale_source_problems", last.counts.problems as f64);
}
