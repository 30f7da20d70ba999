//! The run of one profile, from its lock to its last hook.
//!
//! Backup, forget, prune, check, as they are due. Nothing is forgotten and nothing deleted after a
//! backup that failed; a step that failed hides no other. What each came to is recorded as it ends.

use super::child::{self, ChildOutcome};
use super::hook::{self, Hook, variable};
use super::notice;
use super::plan::{PlannedStep, plan, repository_of};
use super::severity::worse;
use super::speaker::Speaker;
use super::step_result::StepResult;
use super::{RunContext, now};
use crate::commands::host;
use crate::{exit, interrupt, output};
use anyhow::Result;
use bale_profile::profile::{HookMoment, Profile};
use bale_profile::record::{LastRun, RunRecord};
use bale_profile::words::ProfileTable;
use jiff::Zoned;
use serde_json::{Value, json};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

/// How hooks of a profile, and not of a step, are told what they are of.
const WHOLE_RUN: &str = "run";

struct ProfileRun<'a> {
    context: &'a RunContext<'a>,
    profile: &'a Profile,
    speaker: Speaker,
    record: RunRecord,
    /// Why the record that was there does not count.
    why_no_record: Option<String>,
    lock: File,
    results: Vec<StepResult>,
    /// Of hooks and of the record.
    problems: Vec<String>,
    code: i32,
}

/// Does what is due; the worst of the codes.
pub fn run(context: &RunContext<'_>, profile: &Profile) -> Result<i32> {
    let repository = repository_of(profile)?;
    let name = profile.name();
    let what = format!("another run of the profile {name} is under way");
    let lock = context.state.lock(&format!("profile-{name}"), &what)?;
    let _lock_of_source = lock_source(context, profile, &repository)?;
    let (record, why_no_record) = context.state.record(name, &repository);
    let mut run = ProfileRun {
        context,
        profile,
        speaker: Speaker::new(context.global),
        record,
        why_no_record,
        lock,
        results: Vec::new(),
        problems: Vec::new(),
        code: exit::COMPLETE,
    };
    if let Some(why) = &run.why_no_record {
        run.speaker.note(name, why);
    }
    run.all(&repository)
}

/// Two profiles may be of one source.
fn lock_source(
    context: &RunContext<'_>,
    profile: &Profile,
    repository: &str,
) -> Result<Option<File>> {
    if !profile.has_step(ProfileTable::Backup) {
        return Ok(None);
    }
    let mut hasher = DefaultHasher::new();
    repository.hash(&mut hasher);
    let tables = [
        (ProfileTable::Profile, "sources"),
        (ProfileTable::Backup, "image"),
        (ProfileTable::Backup, "files-from"),
        (ProfileTable::Backup, "files-from0"),
        (ProfileTable::Backup, "stdin-from-command"),
    ];
    for (table, word) in tables {
        let mut texts: Vec<_> = profile
            .texts(table, word)
            .iter()
            .map(|text| &text.text)
            .collect();
        texts.sort();
        texts.hash(&mut hasher);
    }
    let what = "another run backs up the same sources into the same repository just now";
    let lock = context
        .state
        .lock(&format!("source-{:016x}", hasher.finish()), what);
    lock.map(Some)
}

impl ProfileRun<'_> {
    fn all(&mut self, repository: &str) -> Result<i32> {
        let (began, started) = (Instant::now(), now());
        let record = (&self.record, &self.why_no_record);
        let steps = plan(self.context, self.profile, record, &started)?;
        self.say_what_is_not_due(&steps);
        let due: Vec<PlannedStep> = steps.into_iter().filter(|step| step.is_due).collect();
        if !due.is_empty() {
            let names: Vec<_> = due.iter().map(|step| step.step.name()).collect();
            let begin = json!({
                "type": "run", "profile": self.profile.name(), "repository": repository,
                "started": started.timestamp().to_string(), "steps_due": names,
            });
            self.notify(notice::ping(self.profile, None));
            match self.before(ProfileTable::Profile, &begin) {
                true => due.iter().for_each(|step| self.step(step)),
                false => self.code = worse(self.code, exit::FAILED),
            }
        }
        if interrupt::is_requested() {
            self.code = worse(self.code, exit::INTERRUPTED);
        }
        let finished = |run: &Self| {
            let steps = run
                .results
                .iter()
                .map(|result| result.object(run.profile.name()));
            json!({
                "type": "run", "profile": run.profile.name(), "repository": repository,
                "started": started.timestamp().to_string(),
                "seconds": began.elapsed().as_secs_f64(),
                "exit_code": run.code, "steps": steps.collect::<Vec<_>>(),
                "problems": run.problems,
            })
        };
        if !due.is_empty() {
            let object = finished(self);
            self.behind(ProfileTable::Profile, self.code, &object);
            let object = finished(self);
            self.notify(notice::ping(self.profile, Some((self.code, &object))));
            self.mail();
            self.note_whole_run(&started);
        }
        let object = finished(self);
        self.speaker.object(&object);
        Ok(self.code)
    }

    fn say_what_is_not_due(&self, steps: &[PlannedStep]) {
        for step in steps.iter().filter(|step| !step.is_due) {
            let text = format!("not due: {}", step.why());
            self.speaker
                .say(self.profile.name(), step.step.name(), &text);
        }
    }

    /// One step with its hooks, and the record of it.
    fn step(&mut self, planned: &PlannedStep) {
        let (name, step) = (self.profile.name(), planned.step);
        if interrupt::is_requested() {
            return;
        }
        let result = match self.why_not(step) {
            Some(why) => StepResult::skipped(step, &planned.why(), why, exit::COMPLETE),
            None => {
                let begin = json!({"type": "step", "profile": name, "step": step.name()});
                match self.before(step, &begin) {
                    true => self.child(planned),
                    false => {
                        let why = "the hook before it failed".to_owned();
                        StepResult::skipped(step, &planned.why(), why, exit::FAILED)
                    }
                }
            }
        };
        self.code = worse(self.code, result.outcome.exit_code);
        self.note_in_record(planned, &result);
        let object = result.object(name);
        self.speaker.object(&object);
        self.speaker
            .say(name, step.name(), &result.sentence_or_skipped());
        let was_begun = result.skipped.is_none() || result.outcome.exit_code != exit::COMPLETE;
        self.results.push(result);
        if was_begun {
            let code = object["exit_code"]
                .as_i64()
                .and_then(|code| i32::try_from(code).ok());
            self.behind(step, code.unwrap_or(exit::FAILED), &object);
        }
    }

    /// Nothing goes before what would replace it is there.
    fn why_not(&self, step: ProfileTable) -> Option<String> {
        let deletes = matches!(step, ProfileTable::Forget | ProfileTable::Prune);
        let is_failed =
            |result: &StepResult| result.step == ProfileTable::Backup && !result.is_success();
        let failed = deletes && self.results.iter().any(is_failed);
        failed.then(|| "the backup failed, and nothing is deleted after that".to_owned())
    }

    fn child(&self, planned: &PlannedStep) -> StepResult {
        let (name, step) = (self.profile.name(), planned.step.name());
        self.speaker.say(name, step, &planned.why());
        let flags: &[&str] = match self.context.global.verbose {
            0 => &["--json"],
            _ => &["--json", "--verbose"],
        };
        let (began, started) = (Instant::now(), now());
        let say = |object: &serde_json::Map<String, Value>| {
            self.speaker.pass_on(name, step, object);
        };
        let outcome = child::run(&planned.command, flags, &self.lock, say);
        StepResult {
            step: planned.step,
            why: planned.why(),
            moments: Some((started, now())),
            seconds: began.elapsed().as_secs_f64(),
            outcome: outcome.unwrap_or_else(|error| ChildOutcome {
                exit_code: exit::FAILED,
                error: Some(output::chain(&error)),
                ..ChildOutcome::default()
            }),
            skipped: None,
        }
    }

    fn note_in_record(&mut self, planned: &PlannedStep, result: &StepResult) {
        let Some(attempt) = result.attempt() else {
            return;
        };
        let step = planned.step.name();
        self.record.note(step, attempt, result.is_success());
        if let (Some(part), true, Some(noted)) = (
            planned.part,
            result.is_success(),
            self.record.steps.get_mut(step),
        ) {
            noted.part = Some(part);
        }
        if let Err(error) = self.context.state.store(&self.record) {
            self.problem(step, &output::chain(&error));
        }
    }

    /// Also of a run that no step of was begun in.
    fn note_whole_run(&mut self, started: &Zoned) {
        let failed = |result: &&StepResult| result.outcome.exit_code != exit::COMPLETE;
        let of_step = self
            .results
            .iter()
            .find(failed)
            .map(|result| format!("{}: {}", result.step.name(), result.sentence_or_skipped()));
        // A hook for failures that fails, too, hides none.
        let trouble = of_step.or_else(|| self.problems.first().cloned());
        let run = LastRun {
            started: started.timestamp(),
            finished: now().timestamp(),
            exit_code: self.code,
            trouble: None,
        };
        // Of a record that does not say: the last run was not the first.
        let before = self.record.last_run.as_ref().map(|last| last.started);
        let first = before.map_or(run.started, |before| before.min(run.started));
        self.record.first_run.get_or_insert(first);
        self.record.last_run = Some(run.with_trouble(trouble.as_deref()));
        if let Err(error) = self.context.state.store(&self.record) {
            self.problem(WHOLE_RUN, &output::chain(&error));
        }
    }

    /// The hooks before; did they all end well?
    fn before(&mut self, table: ProfileTable, object: &Value) -> bool {
        self.hooks(table, HookMoment::Before, None, object)
            .is_none()
    }

    /// The hooks behind: what fails is a problem and no more.
    fn behind(&mut self, table: ProfileTable, code: i32, object: &Value) {
        let _named = self.hooks(table, HookMoment::After, Some(code), object);
        if ![exit::COMPLETE, exit::INCOMPLETE].contains(&code) {
            let _named = self.hooks(table, HookMoment::OnFailure, Some(code), object);
        }
    }

    /// Runs the hooks of a moment in order; why one failed. Before something, the first that fails
    /// is the last.
    fn hooks(
        &mut self,
        table: ProfileTable,
        moment: HookMoment,
        code: Option<i32>,
        object: &Value,
    ) -> Option<String> {
        let step = match table {
            ProfileTable::Profile => WHOLE_RUN,
            step => step.name(),
        };
        let input = object.to_string();
        let mut variables = vec![
            ("BALE_PROFILE", self.profile.name().to_owned()),
            ("BALE_STEP", step.to_owned()),
            ("BALE_HOOK", moment.word().to_owned()),
            ("BALE_SUMMARY", variable(object)),
        ];
        variables.extend(code.map(|code| ("BALE_EXIT_CODE", code.to_string())));
        let mut first = None;
        for command in self.profile.hooks(table, moment) {
            let name = format!("the hook {:?} ({})", moment.word(), command.at);
            let hook = Hook {
                words: &["sh", "-c", &command.text],
                name: &name,
                variables: &variables,
                input: input.as_bytes(),
                timeout: self.profile.hook_timeout(table),
            };
            let (speaker, profile) = (&self.speaker, self.profile.name());
            let mut say = |line: &[u8]| speaker.output(profile, step, moment.word(), line);
            let ended = hook::run(&hook, &mut say);
            let why = ended.unwrap_or_else(|error| Some(output::chain(&error)));
            if let Some(why) = why {
                self.problem(step, &why);
                first = first.or(Some(why));
                if moment == HookMoment::Before {
                    break;
                }
            }
        }
        first
    }

    fn notify(&mut self, why: Option<String>) {
        if let Some(why) = why {
            self.problem(WHOLE_RUN, &why);
        }
    }

    fn mail(&mut self) {
        let mut lines = Vec::new();
        for result in &self.results {
            lines.push(format!(
                "{}: {}",
                result.step.name(),
                result.sentence_or_skipped()
            ));
            lines.extend(
                result
                    .outcome
                    .problems
                    .iter()
                    .map(|problem| format!("  {problem}")),
            );
        }
        lines.extend(self.problems.iter().cloned());
        let lines: Vec<String> = lines
            .iter()
            .map(|line| output::escape(line.as_bytes()))
            .collect();
        let host = host::name(self.profile.text(ProfileTable::Profile, "host")).unwrap_or_default();
        let (speaker, name) = (&self.speaker, self.profile.name());
        let mut say = |line: &[u8]| speaker.output(name, WHOLE_RUN, "mail", line);
        let sent = notice::mail(self.profile, &host, (self.code, &lines), &mut say);
        self.notify(sent.unwrap_or_else(|error| Some(output::chain(&error))));
    }

    fn problem(&mut self, step: &str, text: &str) {
        self.speaker.problem(self.profile.name(), step, text);
        if self.problems.len() < child::PROBLEMS_MAX {
            self.problems.push(text.to_owned());
        }
        self.code = worse(self.code, exit::INCOMPLETE);
    }
}

impl StepResult {
    fn sentence_or_skipped(&self) -> String {
        match &self.skipped {
            Some(why) => format!("not run: {why}"),
            None => self.sentence(),
        }
    }
}
