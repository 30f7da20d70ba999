//! How the runs of a profile went, by the record that this machine has of them.

use crate::commands::run::repository_of;
use crate::commands::schedule::{steps_json, steps_of};
use crate::exit;
use crate::output;
use crate::run_state::StateOfRuns;
use crate::times::local_time;
use anyhow::Result;
use bale_format::Time;
use bale_profile::due::{late_since, next, shown};
use bale_profile::profile::Profile;
use bale_profile::record::{LastRun, RunRecord};
use bale_profile::words::ProfileTable;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// From the moment of a schedule to the end of a run, beside what is known of both: a machine that
/// was asleep wakes, another run is under way.
const RUN_SLACK: Duration = Duration::from_secs(3600);

/// How long after a moment of its schedule nothing of a run need be there: it is spread, and then
/// takes its time.
pub(super) fn slack(profile: &Profile, took: Duration) -> SignedDuration {
    let whole = (profile.random_delay())
        .saturating_add(took)
        .saturating_add(RUN_SLACK);
    SignedDuration::try_from(whole).unwrap_or(SignedDuration::MAX)
}

/// A time of the format, here.
pub(super) fn zoned(time: Time) -> Zoned {
    let moment = Timestamp::new(time.seconds, 0).unwrap_or(Timestamp::UNIX_EPOCH);
    moment.to_zoned(TimeZone::system())
}

/// A profile, and what is to be said of its runs.
pub(super) struct JudgedProfile {
    pub(super) name: String,
    repository: String,
    pub(super) last_run: Option<LastRun>,
    /// When it starts next, by its schedule.
    pub(super) next: Option<Zoned>,
    steps: Vec<Value>,
    pub(super) findings: Vec<ProfileFinding>,
}

/// Something about the runs of a profile.
pub(super) struct ProfileFinding {
    /// In one word, for scripts.
    kind: &'static str,
    /// For people.
    pub(super) text: String,
    /// It is a reason to do something.
    pub(super) is_trouble: bool,
    /// And not to wait until tomorrow.
    pub(super) is_urgent: bool,
}

impl ProfileFinding {
    fn trouble(kind: &'static str, text: String) -> ProfileFinding {
        ProfileFinding {
            kind,
            text,
            is_trouble: true,
            is_urgent: false,
        }
    }
}

impl JudgedProfile {
    /// `is_source_known`: how old its backups are is judged by the repository.
    pub(super) fn of(
        profile: &Profile,
        state: &StateOfRuns,
        is_source_known: bool,
        now: &Zoned,
    ) -> Result<JudgedProfile> {
        let repository = repository_of(profile)?;
        let (record, why_void) = state.record(profile.name(), &repository);
        let steps = steps_of(profile, (&record, why_void.is_some()), now);
        let mut judged = JudgedProfile {
            name: profile.name().to_owned(),
            repository,
            next: next(&profile.times(), now),
            steps: steps_json(&steps),
            last_run: record.last_run.clone(),
            findings: Vec::new(),
        };
        let findings = &mut judged.findings;
        findings.extend(record.last_run.as_ref().and_then(of_run));
        findings.extend(record.last_run.as_ref().and_then(|run| of_future(run, now)));
        match why_void {
            Some(why) => findings.push(ProfileFinding::trouble("void-record", why)),
            None if state.has_record(profile.name()) => {
                findings.extend(late_steps(profile, &record, is_source_known, now));
            }
            None => findings.push(never_run(profile, state)),
        }
        Ok(judged)
    }

    /// Is nothing to be done?
    pub(super) fn is_well(&self) -> bool {
        !self.findings.iter().any(|finding| finding.is_trouble)
    }

    /// Fields: docs/SCRIPTING.md.
    pub(super) fn object(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            json!({
                "kind": finding.kind, "message": finding.text, "trouble": finding.is_trouble,
            })
        });
        let last_run = self.last_run.as_ref().map(|run| {
            json!({
                "started": run.started.to_string(), "finished": run.finished.to_string(),
                "exit_code": run.exit_code, "message": run.trouble,
            })
        });
        json!({
            "type": "profile", "profile": self.name, "repository": self.repository,
            "last_run": last_run, "steps": self.steps, "well": self.is_well(),
            "next": self.next.as_ref().map(|next| next.timestamp().to_string()),
            "findings": findings.collect::<Vec<_>>(),
        })
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let state = if self.is_well() { "well" } else { "trouble" };
        let last = match &self.last_run {
            None => "no run of it is recorded here".to_owned(),
            Some(run) => format!(
                "last run {}, exit code {}",
                local_time(time_of(run.started)),
                run.exit_code
            ),
        };
        let next = self
            .next
            .as_ref()
            .map(|next| local_time(time_of(next.timestamp())));
        let next = next.map_or_else(String::new, |next| format!(", next due {next}"));
        format!("{state:<7} Profile {}: {last}{next}", self.name)
    }
}

fn time_of(moment: Timestamp) -> Time {
    Time {
        seconds: moment.as_second(),
        nanos: 0,
    }
}

/// A clock was wrong, and nothing of it counts.
fn of_future(run: &LastRun, now: &Zoned) -> Option<ProfileFinding> {
    let is_future = run.started > now.saturating_add(RUN_SLACK).timestamp();
    let text = || {
        format!(
            "its last run is dated in the future ({}): a clock was wrong, and the next run does \
             all of it again",
            local_time(time_of(run.started))
        )
    };
    is_future.then(|| ProfileFinding::trouble("future-run", text()))
}

/// How the last run ended, unless well.
fn of_run(run: &LastRun) -> Option<ProfileFinding> {
    let (kind, word) = match run.exit_code {
        exit::COMPLETE => return None,
        exit::INCOMPLETE => ("run-problems", "met problems"),
        exit::INTERRUPTED => ("run-failed", "was interrupted"),
        _ => ("run-failed", "failed"),
    };
    let trouble = run.trouble.as_deref().map(|text| format!(": {text}"));
    let text = format!(
        "its last run ({}) {word} (exit code {}){}",
        local_time(time_of(run.started)),
        run.exit_code,
        trouble.unwrap_or_default()
    );
    let mut finding = ProfileFinding::trouble(kind, output::escape(text.as_bytes()));
    finding.is_urgent = kind == "run-failed";
    Some(finding)
}

/// Steps whose moment came and went. Of a backup the repository knows more.
fn late_steps(
    profile: &Profile,
    record: &RunRecord,
    is_source_known: bool,
    now: &Zoned,
) -> Vec<ProfileFinding> {
    let steps = profile
        .steps()
        .filter(|step| !(is_source_known && *step == ProfileTable::Backup));
    let late = steps.filter_map(|step| {
        let known = record.steps.get(step.name());
        let success = known.and_then(|known| known.last_success.as_ref());
        let took = success.map_or(0.0, |success| success.seconds);
        let took = Duration::try_from_secs_f64(took).unwrap_or_default();
        let last = success.map(|success| success.started.to_zoned(now.time_zone().clone()));
        let times = profile.times_of(step);
        // What never succeeded is late once a moment came since the first run.
        // One from the future, by a clock that was wrong, would have nothing ever be late.
        let latest = now.saturating_add(RUN_SLACK).timestamp();
        let first = record.first_run.filter(|first| *first <= latest);
        let first = first.map(|first| first.to_zoned(now.time_zone().clone()));
        let after = last.as_ref().or(first.as_ref());
        let since = late_since(&times, after, slack(profile, took), now)?;
        let last = last.map_or_else(|| "never".to_owned(), |last| shown(&last));
        Some(ProfileFinding::trouble(
            "late-step",
            format!(
                "{} was due {}, and succeeded last {last} (bale run {} does what is due)",
                step.name(),
                shown(&since),
                profile.name()
            ),
        ))
    });
    late.collect()
}

/// Whose file a profile is in has its records, too: nobody else can say that it never ran.
fn never_run(profile: &Profile, state: &StateOfRuns) -> ProfileFinding {
    let owner = std::fs::metadata(&profile.place().file).map(|metadata| metadata.uid());
    let is_own = owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw());
    let is_scheduled = !profile.times().is_empty();
    let name = profile.name();
    ProfileFinding {
        is_trouble: is_own && is_scheduled,
        ..ProfileFinding::trouble(
            "never-run",
            format!(
                "there is no record of a run of it in {} (bale schedule status {name} says whether \
                 anything starts it)",
                output::path(state.dir())
            ),
        )
    }
}

/// For metrics.
impl JudgedProfile {
    /// In seconds since 1970: when the last run ended, and its exit code.
    pub(super) fn last_end(&self) -> Option<(f64, f64)> {
        let run = self.last_run.as_ref()?;
        Some((run.finished.as_second() as f64, f64::from(run.exit_code)))
    }
}
