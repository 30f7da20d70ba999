//! `bale run`: what is due of profiles, each step as a command of this program.
//!
//! The story of one profile is in `profile_run.rs`. Profiles come one after the other; one that
//! fails hides none of the others, and the exit code is the worst.

mod child;
mod hook;
mod notice;
mod plan;
mod profile_run;
mod severity;
mod speaker;
mod step_result;

pub use plan::{check_words, due_of, repository_of};

use crate::args::{Global, RunProfiles};
use crate::exit::{self, Usage};
use crate::profile_files;
use crate::run_state::{Locked, StateOfRuns};
use crate::{interrupt, output};
use anyhow::Result;
use bale_pipeline::clock::{Clock, SystemClock};
use bale_profile::profile::Profile;
use bale_profile::steps::StepCommand;
use bale_profile::words::SECRETS;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde_json::json;
use severity::worse;
use speaker::Speaker;
use std::process::Command;
use std::time::Instant;

/// What every profile of a run shares.
pub struct RunContext<'a> {
    global: &'a Global,
    state: StateOfRuns,
    /// Also what is not due.
    is_now: bool,
}

/// Runs what is due of each profile; the worst of their codes.
pub fn run(global: &Global, options: &RunProfiles) -> Result<i32> {
    let began = Instant::now();
    let found = profile_files::find(&options.files)?;
    let profiles = found.choose(&options.chosen.names)?;
    if profiles.is_empty() {
        return Err(Usage("there is no profile but templates".to_owned()).into());
    }
    let context = RunContext {
        global,
        state: StateOfRuns::find(&options.state)?,
        is_now: options.now,
    };
    // Before anything is done: what a word is wrong in would be found after hours.
    for profile in &profiles {
        plan::check_words(profile)?;
    }
    if options.dry_run {
        for profile in &profiles {
            plan::print(&context, profile)?;
        }
        return Ok(exit::COMPLETE);
    }
    // The second signal is passed on, too.
    interrupt::go_on_after_the_first();
    let mut code = exit::COMPLETE;
    for profile in &profiles {
        if interrupt::is_requested() {
            code = worse(code, exit::INTERRUPTED);
            break;
        }
        code = worse(code, run_one(&context, profile));
    }
    if global.json {
        output::object(&json!({
            "type": "summary", "profiles": profiles.len(), "exit_code": code,
            "seconds": began.elapsed().as_secs_f64(),
        }));
    }
    Ok(code)
}

/// What ends one profile leaves the others alone.
fn run_one(context: &RunContext<'_>, profile: &Profile) -> i32 {
    let error = match profile_run::run(context, profile) {
        Ok(code) => return code,
        Err(error) => error,
    };
    let code = match error.downcast_ref::<Locked>() {
        Some(_) => exit::LOCKED,
        None => exit::code_of(&error),
    };
    let text = format!("{}: {}", profile.name(), output::chain(&error));
    Speaker::new(context.global).failed(profile.name(), &text, code);
    code
}

/// The moment, by the clock of the machine, in its zone.
pub fn now() -> Zoned {
    let now = Timestamp::try_from(SystemClock.now()).unwrap_or(Timestamp::UNIX_EPOCH);
    now.to_zoned(TimeZone::system())
}

/// What a step's command runs with: of the secret of the repository, that of the profile alone.
fn environment(this: &mut Command, command: &StepCommand) {
    let names_secret = SECRETS.iter().any(|word| {
        let variable = format!("BALE_{}", word.replace('-', "_").to_ascii_uppercase());
        command.variables.contains_key(variable.as_str())
    });
    if names_secret {
        for name in [
            "BALE_PASSWORD",
            "BALE_PASSWORD_FILE",
            "BALE_PASSWORD_COMMAND",
            "BALE_KEY_FILE",
        ] {
            this.env_remove(name);
        }
    }
    this.envs(&command.variables);
}
