//! `bale status`: is every source backed up as it should be?

mod measures;
mod nagios;
mod profile_state;
mod profiles;
mod texts;

pub use nagios::unknown as unknown_state;

use super::{select, unmatched};
use crate::args::{Global, Status};
use crate::exit::{self, Usage};
use crate::times::{local_time, time_text};
use crate::{output, place, sizes};
use anyhow::Result;
use bale_engine::status::{
    BackupLimit, Expectation, Finding, Judgement, SourceHistory, Trend, histories, judge,
    sudden_changes, trend, unmet,
};
use bale_format::Time;
use bale_repository::repository::Named;
use bale_repository::snapshots::{SourceKey, confirmed};
use profile_state::JudgedProfile;
use profiles::ExpectingProfiles;
use serde_json::{Value, json};
use std::time::Duration;

/// Says of each source when it was backed up last and how that went; exit 3 if something is late or
/// had problems.
pub fn run(global: &Global, options: &Status) -> Result<i32> {
    match options.nagios {
        true => Ok(nagios::run(global, options)),
        false => {
            let expected = expected(&[("--max-age", &options.max_age)])?;
            let looked = Looked::at(global, options, expected)?;
            measures::write(global, options, &looked);
            print(global, &looked)
        }
    }
}

/// Of every source, that it is not older than the least of these options says.
fn expected(options: &[(&str, &Option<String>)]) -> Result<Vec<Expectation>, Usage> {
    let mut ages = Vec::new();
    for (option, text) in options {
        ages.extend(age(option, text)?);
    }
    let strictest = ages.into_iter().min();
    let of_all = |age_max| Expectation {
        limit: Some(BackupLimit::Age(age_max)),
        ..Expectation::default()
    };
    Ok(strictest.map(of_all).into_iter().collect())
}

fn age(option: &str, text: &Option<String>) -> Result<Option<Duration>, Usage> {
    let parsed = text.as_deref().map(sizes::parse_duration).transpose();
    match parsed {
        Err(Usage(why)) => Err(Usage(format!("{option}: {why}"))),
        Ok(Some(Duration::ZERO)) => Err(Usage(format!(
            "{option}: every backup is older than 0: write for example 26h"
        ))),
        parsed => parsed,
    }
}

/// What is to be said of a repository.
struct Looked {
    now: Time,
    sources: Vec<JudgedSource>,
    /// Profiles of the repository, and how their runs went.
    profiles: Vec<JudgedProfile>,
    /// There may be no source: what was asked about backs up nothing.
    may_be_empty: bool,
    /// Snapshots that this machine saw and that are gone.
    missed: Vec<String>,
    /// Snapshots that cannot be read.
    damaged: Vec<String>,
}

/// A source, what it has and what is to be said of it.
struct JudgedSource {
    key: SourceKey,
    last: Option<Named>,
    snapshots: usize,
    trend: Option<Trend>,
    judgement: Judgement,
    /// Profiles that expect something of it.
    profiles: Vec<String>,
}

impl JudgedSource {
    fn of(history: &SourceHistory<'_>, expected: &[Expectation], now: Time) -> JudgedSource {
        let ours = expected.iter().filter(|one| one.is_of(&history.key));
        JudgedSource {
            profiles: ours.filter_map(|one| one.profile.clone()).collect(),
            key: history.key.clone(),
            last: history.last().cloned(),
            snapshots: history.snapshots.len(),
            trend: trend(&history.snapshots),
            judgement: judge(history, expected, now),
        }
    }

    /// One that a profile names, and of which there is nothing.
    fn never_backed_up(expected: &Expectation) -> Option<JudgedSource> {
        let profile = expected.profile.clone()?;
        Some(JudgedSource {
            key: SourceKey {
                host: expected.host.clone()?,
                paths: expected.paths.clone()?,
                filesystems: Vec::new(),
            },
            last: None,
            snapshots: 0,
            trend: None,
            judgement: Judgement {
                findings: vec![Finding::NeverBackedUp {
                    profile: profile.clone(),
                }],
                ..Judgement::default()
            },
            profiles: vec![profile],
        })
    }

    /// Host and paths.
    fn name(&self) -> String {
        let paths = self.key.paths.iter().map(|path| output::escape(path));
        let paths: Vec<_> = paths.collect();
        let host = output::escape(self.key.host.as_bytes());
        format!("{host} {}", paths.join(" "))
    }
}

impl Looked {
    fn at(global: &Global, options: &Status, expected: Vec<Expectation>) -> Result<Looked> {
        let (profiles, opened) = ExpectingProfiles::read(global, options)?;
        let repository = place::open_for(&opened, place::Use::List)?;
        let listed = select::Listed::of(&repository)?;
        let filter = select::filter(&options.select);
        let now = repository.clock().time();
        let all: Vec<_> = listed.readable.iter().chain(&listed.running).collect();
        unmatched::report(global, &options.select, &listed.readable);
        let passing = all.into_iter().filter(|(_, record)| filter.passes(record));
        let mut histories = histories(passing, now);
        let of_profiles = profiles.expectations(&histories, &filter, now)?;
        if profiles.is_chosen {
            histories.retain(|history| of_profiles.iter().any(|one| one.is_of(&history.key)));
        }
        let may_be_empty = profiles.is_chosen && of_profiles.is_empty();
        let never = unmet(&of_profiles, &histories).into_iter();
        let never: Vec<_> = never.filter_map(JudgedSource::never_backed_up).collect();
        let expected = [expected, of_profiles].concat();
        let meant = confirmed::ids(&repository);
        let judged = histories.iter().map(|history| {
            let mut source = JudgedSource::of(history, &expected, now);
            let changes = sudden_changes(history).into_iter();
            let unmeant = changes.filter(|change| !meant.contains(&change.snapshot));
            let findings = &mut source.judgement.findings;
            findings.extend(unmeant.map(Finding::SuddenChange));
            source
        });
        Ok(Looked {
            now,
            sources: judged.chain(never).collect(),
            profiles: profiles.judged(now)?,
            may_be_empty,
            missed: listed.missed_texts(),
            damaged: listed.damaged,
        })
    }

    fn count(&self, is: impl Fn(&Finding) -> bool) -> usize {
        let has = |source: &&JudgedSource| source.judgement.findings.iter().any(&is);
        self.sources.iter().filter(has).count()
    }

    fn profiles_not_well(&self) -> usize {
        self.profiles.iter().filter(|one| !one.is_well()).count()
    }

    /// No source, one that is not well, or snapshots of nobody knows which: each could be the
    /// newest of a source.
    fn is_well(&self) -> bool {
        let sources = &self.sources;
        let are_well = sources.iter().all(|source| source.judgement.is_well());
        let are_profiles_well = self.profiles_not_well() == 0;
        let are_any = !sources.is_empty() || self.may_be_empty;
        let is_all_there = self.missed.is_empty() && self.damaged.is_empty();
        are_any && are_well && are_profiles_well && is_all_there
    }
}

fn print(global: &Global, looked: &Looked) -> Result<i32> {
    match global.json {
        true => print_objects(looked),
        false => print_table(global, looked),
    }
    Ok(match looked.is_well() {
        true => exit::with_what_is_missing(exit::COMPLETE),
        false => exit::INCOMPLETE,
    })
}

fn print_objects(looked: &Looked) {
    for (kind, texts) in [("missed", &looked.missed), ("damage", &looked.damaged)] {
        for text in texts {
            output::object(&json!({"type": kind, "what": "snapshot", "message": text}));
        }
    }
    for source in &looked.sources {
        output::object(&source_object(source));
    }
    for profile in &looked.profiles {
        output::object(&profile.object());
    }
    let not_well = looked.count(Finding::is_trouble);
    output::object(&json!({
        "type": "summary", "sources": looked.sources.len(), "not_well": not_well,
        "late": looked.count(|finding| matches!(finding, Finding::Late { .. })),
        "missed": looked.missed.len(), "damaged": looked.damaged.len(), "well": looked.is_well(),
        "profiles": looked.profiles.len(), "profiles_not_well": looked.profiles_not_well(),
    }));
}

/// Fields: docs/SCRIPTING.md.
fn source_object(source: &JudgedSource) -> Value {
    let key = &source.key;
    let paths = key.paths.iter().map(|path| String::from_utf8_lossy(path));
    let encoded = |path: &Vec<u8>| {
        let text = bale_format::snapshot::PathText(path.clone());
        serde_json::to_value(&text).unwrap_or_default()
    };
    let findings = source.judgement.findings.iter().map(|finding| {
        json!({
            "kind": texts::kind(finding), "message": texts::text(finding),
            "trouble": finding.is_trouble(),
        })
    });
    let last = source.last.as_ref().map(|(id, snapshot)| {
        let (totals, counts) = (&snapshot.totals, &snapshot.counts);
        json!({
            "snapshot": id.to_string(), "time": time_text(snapshot.time),
            "finished": time_text(snapshot.finished), "files": totals.files,
            "bytes": totals.bytes, "files_new": counts.files_new,
            "files_changed": counts.files_changed, "bytes_read": counts.bytes_read,
            "bytes_stored": counts.bytes_stored, "problems": counts.problems,
        })
    });
    let trend = source.trend.map(|trend| {
        json!({
            "snapshots": trend.snapshots, "files": trend.files, "bytes": trend.bytes,
            "bytes_stored_per_day": trend.stored_per_day,
        })
    });
    json!({
        "type": "source", "host": key.host, "paths": paths.collect::<Vec<_>>(),
        "paths_b64": key.paths.iter().map(encoded).collect::<Vec<_>>(),
        "source_filesystems": key.filesystems, "snapshots": source.snapshots, "last": last,
        "age_seconds": source.judgement.age.map(|age| age.as_secs()),
        "due": source.judgement.due.map(time_text), "trend": trend,
        "profiles": source.profiles,
        "well": source.judgement.is_well(), "findings": findings.collect::<Vec<_>>(),
    })
}

fn print_table(global: &Global, looked: &Looked) {
    if !looked.sources.is_empty() && !global.quiet {
        output::line(
            "State   Last backup          Age          Files        Size      Growth   New a day  \
             Source",
        );
    }
    for source in &looked.sources {
        print_source(source);
    }
    for profile in &looked.profiles {
        output::line(&profile.line());
        for finding in &profile.findings {
            output::line(&format!("        {}", finding.text));
        }
    }
    if looked.sources.is_empty() && !looked.may_be_empty {
        report!("bale: there is no backup of anything here");
    }
    if !global.quiet {
        let well = looked.sources.len() - looked.count(Finding::is_trouble);
        let profiles = match looked.profiles_not_well() as u64 {
            0 => String::new(),
            not_well => format!("; {} not well", sizes::counted(not_well, "profile")),
        };
        report!(
            "{}, {} well{profiles}",
            sizes::counted(looked.sources.len() as u64, "source"),
            sizes::count(well as u64)
        );
    }
}

fn print_source(source: &JudgedSource) {
    let is_late = |finding: &Finding| matches!(finding, Finding::Late { .. });
    let judgement = &source.judgement;
    let state = match judgement.findings.iter().any(is_late) {
        true => "late",
        false if judgement.is_well() => "well",
        false => "trouble",
    };
    let none = || "-".to_owned();
    let last = source.last.as_ref().map(|(_, snapshot)| snapshot);
    let number = |text: &dyn Fn(&bale_format::Snapshot) -> String| last.map_or_else(none, text);
    let trend = source.trend;
    output::line(&format!(
        "{state:<7} {:<19}  {:>7}  {:>10}  {:>10}  {:>10}  {:>10}  {}",
        number(&|snapshot| local_time(snapshot.time)),
        judgement.age.map_or_else(none, texts::age),
        number(&|snapshot| sizes::count(snapshot.totals.files)),
        number(&|snapshot| sizes::bytes(snapshot.totals.bytes)),
        trend.map_or_else(none, |trend| texts::growth(trend.bytes)),
        trend
            .and_then(|trend| trend.stored_per_day)
            .map_or_else(none, texts::per_day),
        source.name(),
    ));
    for finding in &judgement.findings {
        output::line(&format!("        {}", texts::text(finding)));
    }
}
