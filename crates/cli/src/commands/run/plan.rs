//! What a run would do: which steps are due, why, and the commands.

use super::RunContext;
use crate::args::{Cli, Global};
use crate::commands::host;
use crate::exit::Usage;
use crate::{output, variables};
use anyhow::Result;
use bale_profile::calendar::Times;
use bale_profile::due::{DueAnswer, due, next_part};
use bale_profile::profile::Profile;
use bale_profile::record::{RunRecord, StepRecord};
use bale_profile::steps::{self, StepCommand, StepFacts, parts_in_turn};
use bale_profile::words::ProfileTable;
use bale_remote::Location;
use clap::Parser;
use jiff::Zoned;
use serde_json::json;

/// A step, and whether it is due.
pub struct PlannedStep {
    /// Which.
    pub step: ProfileTable,
    /// By its schedule and the record.
    pub answer: DueAnswer,
    /// It is to be done.
    pub is_due: bool,
    /// Its command.
    pub command: StepCommand,
    /// Of a check of parts in turn: which.
    pub part: Option<(u32, u32)>,
}

impl PlannedStep {
    /// Why it is due, or why not.
    pub fn why(&self) -> String {
        match (self.is_due, &self.answer) {
            (true, DueAnswer::Not { .. }) => "requested with --now".to_owned(),
            (_, answer) => answer.to_string(),
        }
    }
}

/// Every step of a profile.
pub fn plan(
    context: &RunContext<'_>,
    profile: &Profile,
    (record, why_none): (&RunRecord, &Option<String>),
    now: &Zoned,
) -> Result<Vec<PlannedStep>> {
    let host = host::name(None)?;
    let planned = |step: ProfileTable| {
        let record = record.steps.get(step.name());
        let answer = due_of(&profile.times_of(step), (record, why_none.is_some()), now);
        let parts = parts_in_turn(profile).filter(|_| step == ProfileTable::Check);
        let facts = StepFacts {
            host: host.clone(),
            part: parts.map(|parts| (next_part(record, parts), parts)),
        };
        PlannedStep {
            step,
            is_due: context.is_now || answer.is_due(),
            answer,
            command: steps::command(profile, step, &facts),
            part: facts.part,
        }
    };
    Ok(profile.steps().map(planned).collect())
}

/// Is a step due? Of a record that does not count it is not said that nothing ever succeeded.
pub fn due_of(
    times: &[Times],
    (record, is_record_void): (Option<&StepRecord>, bool),
    now: &Zoned,
) -> DueAnswer {
    match due(times, record, now) {
        DueAnswer::Never if is_record_void => DueAnswer::RecordDoesNotCount,
        answer => answer,
    }
}

/// The repository as it is shown: without a login.
pub fn repository_of(profile: &Profile) -> Result<String, Usage> {
    let named = profile
        .text(ProfileTable::Profile, "repository")
        .map(str::to_owned);
    let named = match named {
        Some(named) => Some(named),
        None => variables::read_text("BALE_REPOSITORY")?,
    };
    let Some(named) = named else {
        return Ok("the user's own".to_owned());
    };
    let location = Location::parse(named.as_ref());
    Ok(location
        .map_err(|error| Usage(format!("{}: {error}", profile.name())))?
        .to_string())
}

/// Every command of a profile must be one that this program takes.
pub fn check_words(profile: &Profile) -> Result<()> {
    repository_of(profile)?;
    let facts = StepFacts {
        host: host::name(None)?,
        part: parts_in_turn(profile).map(|parts| (1, parts)),
    };
    for step in profile.steps() {
        let command = steps::command(profile, step, &facts);
        let words = ["bale"]
            .into_iter()
            .chain(command.words.iter().map(String::as_str));
        if let Err(error) = Cli::try_parse_from(words) {
            let text = error.to_string();
            let lines: Vec<_> = text.lines().take_while(|line| !line.is_empty()).collect();
            let text = lines.join(" ");
            return Err(Usage(format!(
                "profile {}: {}: {} ({})",
                profile.name(),
                step.name(),
                text.strip_prefix("error: ").unwrap_or(&text),
                profile.place()
            ))
            .into());
        }
    }
    Ok(())
}

/// Prints the plan of a profile.
pub fn print(context: &RunContext<'_>, profile: &Profile) -> Result<()> {
    let (record, why_none) = context
        .state
        .record(profile.name(), &repository_of(profile)?);
    if let Some(why) = &why_none {
        super::speaker::Speaker::new(context.global).note(profile.name(), why);
    }
    for planned in plan(context, profile, (&record, &why_none), &super::now())? {
        print_step(context.global, profile, &planned);
    }
    Ok(())
}

fn print_step(global: &Global, profile: &Profile, planned: &PlannedStep) {
    let variables =
        (planned.command.variables.iter()).map(|(name, value)| (*name, shown(name, value)));
    if global.json {
        let variables: serde_json::Map<_, _> = variables
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        return output::object(&json!({
            "type": "plan", "profile": profile.name(), "step": planned.step.name(),
            "due": planned.is_due, "why": planned.why(), "words": planned.command.words,
            "variables": variables,
        }));
    }
    let word = if planned.is_due { "due" } else { "not due" };
    let line = format!(
        "{}: {}: {word}: {}",
        profile.name(),
        planned.step.name(),
        planned.why()
    );
    output::line(&output::escape(line.as_bytes()));
    if planned.is_due {
        let variables = variables.map(|(name, value)| format!("{name}={}", quoted(&value)));
        let words = planned.command.words.iter().map(|word| quoted(word));
        let words: Vec<_> = variables.chain(["bale".to_owned()]).chain(words).collect();
        output::line(&output::escape(format!("  {}", words.join(" ")).as_bytes()));
    }
}

/// A command may hold a password.
fn shown(name: &str, value: &str) -> String {
    match name {
        "BALE_PASSWORD_COMMAND" => "***".to_owned(),
        _ => value.to_owned(),
    }
}

/// One word, as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-=:,@+%*".contains(letter);
    match word.chars().all(is_plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
