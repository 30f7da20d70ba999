//! `bale status --nagios`: one line and one code, as plugins of Nagios, Icinga and Checkmk give
//! them. Whatever stands in the way of knowing is UNKNOWN, never OK.

use super::{JudgedSource, Looked, age, expected, measures, texts};
use crate::args::{Global, Status};
use crate::exit::{self, Usage};
use crate::{output, sizes};
use anyhow::Result;
use bale_engine::status::Finding;
use std::time::Duration;

/// Things that the line names; the others are counted.
const NAMED_MAX: usize = 5;
/// Sources with performance data: the line has an end.
const PERFORMANCE_SOURCES_MAX: usize = 100;

/// The worst one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    Ok = 0,
    Warning = 1,
    Critical = 2,
}

/// When a last backup is too old.
#[derive(Clone, Copy, Debug, Default)]
struct Ages {
    warning: Option<Duration>,
    critical: Option<Duration>,
}

/// Prints the line; its code.
pub(super) fn run(global: &Global, options: &Status) -> i32 {
    match looked(global, options) {
        Ok((looked, ages)) => {
            measures::write(global, options, &looked);
            let (severity, text) = line(&looked, ages);
            if severity == Severity::Ok && exit::is_something_missing() {
                let text = text.replacen(
                    "OK - ",
                    "WARNING - not everything could be looked at or \
                                                    written, standard error says what: ",
                    1,
                );
                output::line(&text);
                return Severity::Warning as i32;
            }
            output::line(&text);
            severity as i32
        }
        Err(error) => unknown(&output::chain(&error)),
    }
}

/// Nobody knows how things are.
pub fn unknown(why: &str) -> i32 {
    let lines = why.lines().map(str::trim).filter(|line| !line.is_empty());
    let why = lines.collect::<Vec<_>>().join(" ");
    let why = output::escape(why.as_bytes()).replace('|', "/");
    output::line(&format!("BALE UNKNOWN - {why}"));
    exit::UNKNOWN_STATE
}

fn looked(global: &Global, options: &Status) -> Result<(Looked, Ages)> {
    let critical = options.critical.as_ref().or(options.max_age.as_ref());
    let ages = Ages {
        warning: age("--warning", &options.warning)?,
        critical: age("--critical", &critical.cloned())?,
    };
    if let (Some(warning), Some(critical)) = (ages.warning, ages.critical)
        && warning > critical
    {
        let text = "--warning is later than --critical: it would never come";
        return Err(Usage(text.to_owned()).into());
    }
    let expected = expected(&[
        ("--warning", &options.warning),
        ("--critical", &critical.cloned()),
    ])?;
    Ok((Looked::at(global, options, expected)?, ages))
}

fn line(looked: &Looked, ages: Ages) -> (Severity, String) {
    let mut found: Vec<(Severity, String)> = Vec::new();
    if looked.sources.is_empty() && !looked.may_be_empty {
        found.push((
            Severity::Critical,
            "there is no backup of anything".to_owned(),
        ));
    }
    for (texts, what) in [
        (&looked.missed, "missing in the repository"),
        (&looked.damaged, "that cannot be read"),
    ] {
        if !texts.is_empty() {
            let count = sizes::counted(texts.len() as u64, "snapshot");
            found.push((Severity::Critical, format!("{count} {what}")));
        }
    }
    for source in &looked.sources {
        for finding in &source.judgement.findings {
            let text = format!("{}: {}", source.name(), texts::text(finding));
            found.push((severity(finding, ages), text));
        }
    }
    for profile in &looked.profiles {
        for finding in &profile.findings {
            let severity = match (finding.is_trouble, finding.is_urgent) {
                (false, _) => Severity::Ok,
                (true, false) => Severity::Warning,
                (true, true) => Severity::Critical,
            };
            found.push((
                severity,
                format!("profile {}: {}", profile.name, finding.text),
            ));
        }
    }
    found.retain(|(severity, _)| *severity > Severity::Ok);
    found.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    let severity = found
        .first()
        .map_or(Severity::Ok, |(severity, _)| *severity);
    let word = match severity {
        Severity::Ok => "OK",
        Severity::Warning => "WARNING",
        Severity::Critical => "CRITICAL",
    };
    let named: Vec<_> = found
        .iter()
        .map(|(_, text)| text.as_str())
        .take(NAMED_MAX)
        .collect();
    let mut text = match named.is_empty() {
        true => well(looked),
        false => named.join("; "),
    };
    let more = found.len() - named.len();
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    // What stands behind a bar is performance data.
    let text = text.replace('|', "/");
    let performance = performance(looked, ages);
    (severity, format!("BALE {word} - {text} | {performance}"))
}

fn well(looked: &Looked) -> String {
    let count = sizes::counted(looked.sources.len() as u64, "source");
    let ages = looked
        .sources
        .iter()
        .filter_map(|source| source.judgement.age);
    match ages.max() {
        Some(oldest) => format!("{count}, the oldest backed up {} ago", texts::age(oldest)),
        None => count,
    }
}

fn severity(finding: &Finding, ages: Ages) -> Severity {
    match finding {
        Finding::Late {
            missed: Some(_), ..
        } => Severity::Critical,
        Finding::Late { age, .. } => match ages.critical.is_some_and(|critical| *age > critical) {
            true => Severity::Critical,
            false => Severity::Warning,
        },
        Finding::NeverFinished
        | Finding::NeverBackedUp { .. }
        | Finding::ClockBehind
        | Finding::SuddenChange(_) => Severity::Critical,
        Finding::Problems { .. } | Finding::InFuture { .. } => Severity::Warning,
        Finding::Unfinished { .. } | Finding::Replaced => Severity::Ok,
    }
}

/// Of each source its age, size, files and what was stored last.
fn performance(looked: &Looked, ages: Ages) -> String {
    let sources = looked.sources.iter().take(PERFORMANCE_SOURCES_MAX);
    let numbers: Vec<_> = sources.flat_map(|source| numbers(source, ages)).collect();
    let sources = format!("sources={};;;0", looked.sources.len());
    [vec![sources], numbers].concat().join(" ")
}

fn numbers(source: &JudgedSource, ages: Ages) -> Vec<String> {
    let name = label(&source.name());
    let seconds = |age: Option<Duration>| age.map(|age| age.as_secs().to_string());
    let mut numbers = Vec::new();
    if let Some(age) = source.judgement.age {
        numbers.push(format!(
            "'{name} age'={}s;{};{};0",
            age.as_secs(),
            seconds(ages.warning).unwrap_or_default(),
            seconds(ages.critical).unwrap_or_default(),
        ));
    }
    if let Some((_, last)) = &source.last {
        numbers.push(format!("'{name} bytes'={}B;;;0", last.totals.bytes));
        numbers.push(format!("'{name} files'={};;;0", last.totals.files));
        numbers.push(format!("'{name} stored'={}B;;;0", last.counts.bytes_stored));
        numbers.push(format!("'{name} problems'={};;;0", last.counts.problems));
    }
    numbers
}

/// Without what has a meaning in performance data.
fn label(name: &str) -> String {
    let is_special = |letter: char| matches!(letter, '\'' | '=' | '|' | ';');
    name.replace(is_special, "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_engine::status::Judgement;
    use bale_format::Time;
    use bale_repository::snapshots::SourceKey;

    fn source(path: &str, findings: Vec<Finding>) -> JudgedSource {
        JudgedSource {
            key: SourceKey {
                host: "web1".to_owned(),
                paths: vec![path.as_bytes().to_vec()],
                filesystems: Vec::new(),
            },
            last: None,
            snapshots: 0,
            trend: None,
            profiles: Vec::new(),
            judgement: Judgement {
                age: Some(Duration::from_secs(7200)),
                due: None,
                findings,
            },
        }
    }

    fn looked(sources: Vec<JudgedSource>) -> Looked {
        Looked {
            now: Time::default(),
            sources,
            profiles: Vec::new(),
            may_be_empty: false,
            missed: Vec::new(),
            damaged: Vec::new(),
        }
    }

    fn late(hours: u64) -> Finding {
        let hour = Duration::from_secs(3600);
        Finding::Late {
            age: hour * hours as u32,
            age_max: hour,
            missed: None,
        }
    }

    const AGES: Ages = Ages {
        warning: Some(Duration::from_secs(3600)),
        critical: Some(Duration::from_secs(36_000)),
    };

    #[test]
    fn the_worst_of_all_sources_is_the_code_and_stands_first() {
        for (findings, code, word) in [
            (vec![], 0, "OK"),
            (vec![Finding::Replaced], 0, "OK"),
            (vec![late(2)], 1, "WARNING"),
            (vec![late(2), late(11)], 2, "CRITICAL"),
            (vec![Finding::NeverFinished], 2, "CRITICAL"),
            (vec![Finding::ClockBehind], 2, "CRITICAL"),
        ] {
            let (severity, text) = line(&looked(vec![source("/srv", findings.clone())]), AGES);
            assert_eq!(severity as i32, code, "{findings:?}");
            assert!(text.starts_with(&format!("BALE {word} - ")), "{text}");
        }
        let both = looked(vec![
            source("/a", vec![late(2)]),
            source("/b", vec![late(11)]),
        ]);
        let (_, text) = line(&both, AGES);
        assert!(text.find("web1 /b") < text.find("web1 /a"), "{text}");
    }

    #[test]
    fn what_is_missing_damaged_or_not_there_at_all_is_critical() {
        assert_eq!(line(&looked(Vec::new()), AGES).0, Severity::Critical);
        for field in [0, 1] {
            let mut looked = looked(vec![source("/srv", vec![])]);
            let texts = [&mut looked.missed, &mut looked.damaged];
            texts
                .into_iter()
                .nth(field)
                .unwrap()
                .push("gone".to_owned());
            assert_eq!(line(&looked, AGES).0, Severity::Critical);
        }
    }

    #[test]
    fn no_name_can_forge_performance_data_or_another_line() {
        let (_, text) = line(&looked(vec![source("/a'b|c=1\nOK", vec![late(2)])]), AGES);
        assert_eq!(text.matches('|').count(), 1, "{text}");
        assert!(!text.contains('\n'), "{text}");
        let (_, performance) = text.split_once(" | ").unwrap();
        assert_eq!(
            performance,
            "sources=1;;;0 'web1 /a_b_c_1\\x0aOK age'=7200s;3600;36000;0"
        );
    }

    #[test]
    fn a_line_has_an_end_however_many_sources_there_are() {
        let sources = (0..1000).map(|number| source(&format!("/{number}"), vec![late(2)]));
        let (_, text) = line(&looked(sources.collect()), AGES);
        assert!(text.contains("and 995 more"), "{text}");
        assert_eq!(text.matches(" age'=").count(), PERFORMANCE_SOURCES_MAX);
    }
}
