//! `bale schedule`: timers of systemd, or lines of cron, that start `bale run`.

mod place;

use crate::args::{Global, ScheduleCommand, ScheduleInstall, ScheduleRemove, ScheduleStatus};
use crate::commands::run::{due_of, now, repository_of};
use crate::exit::{self, Usage};
use crate::output;
use crate::profile_files::{self, FoundProfiles};
use crate::run_state::StateOfRuns;
use anyhow::{Context, Result};
use bale_profile::due::{DueAnswer, next, shown};
use bale_profile::file::is_profile_name;
use bale_profile::profile::Profile;
use bale_profile::record::{Attempt, RunRecord, StepRecord};
use bale_profile::units::SchedulePlan;
use bale_profile::words::ProfileTable;
use bale_remote::Location;
use jiff::Zoned;
use place::{Keeper, Written};
use serde_json::{Value, json};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Installs, removes, shows.
pub fn run(global: &Global, command: &ScheduleCommand) -> Result<i32> {
    match command {
        ScheduleCommand::Install(options) => install(global, options),
        ScheduleCommand::Remove(options) => remove(global, options),
        ScheduleCommand::Status(options) => status(global, options),
    }
}

fn install(global: &Global, options: &ScheduleInstall) -> Result<i32> {
    let found = profile_files::find(&options.files)?;
    let state = StateOfRuns::find(&options.state)?;
    let keeper = Keeper::choose(&options.place)?;
    let mut plans = Vec::new();
    for profile in chosen(&found, &options.chosen.names)? {
        crate::commands::run::check_words(&profile)?;
        plans.push(plan(&found, &state, &profile)?);
    }
    // All are looked at before any is written.
    let texts: Vec<Vec<Written>> = plans
        .iter()
        .map(|plan| keeper.texts(plan))
        .collect::<Result<_>>()?;
    for (plan, texts) in plans.iter().zip(&texts) {
        if options.dry_run {
            texts
                .iter()
                .for_each(|written| print(global, plan, written));
            continue;
        }
        let made = keeper.install(plan, texts)?;
        let made = made.map(|dir| format!(" (made the directory {})", output::path(dir)));
        let text = keeper.words_of_install(&plan.profile) + &made.unwrap_or_default();
        said(global, "installed", &plan.profile, &text);
    }
    Ok(exit::COMPLETE)
}

/// Those that are named, which must have a schedule, or all that have one.
fn chosen(found: &FoundProfiles, names: &[String]) -> Result<Vec<Profile>> {
    let mut profiles = found.choose(names)?;
    let has_none = |profile: &&Profile| profile.times().is_empty();
    if let Some(profile) = profiles.iter().find(has_none).filter(|_| !names.is_empty()) {
        return Err(Usage(format!(
            "schedule {}: it has no schedule: write for example schedule = \"daily 02:30\" ({})",
            profile.name(),
            profile.place()
        ))
        .into());
    }
    profiles.retain(|profile| !profile.times().is_empty());
    Ok(profiles)
}

fn plan(found: &FoundProfiles, state: &StateOfRuns, profile: &Profile) -> Result<SchedulePlan> {
    let name = profile.name();
    let Some(repository) = profile.text(ProfileTable::Profile, "repository") else {
        return Err(Usage(format!(
            "schedule {name}: a timer knows nothing of your environment: name the repository in \
             the profile ({})",
            profile.place()
        ))
        .into());
    };
    let mut words: Vec<Vec<u8>> = vec![b"run".to_vec()];
    for file in &found.files {
        words.push(joined("--profiles=", file));
    }
    if !state.is_default() {
        words.push(joined("--state-dir=", state.dir()));
    }
    words.push(name.as_bytes().to_vec());
    let stores = [
        Some(repository),
        profile.text(ProfileTable::Profile, "cold"),
    ];
    let stores: Vec<Location> = (stores.into_iter().flatten())
        .filter_map(|text| Location::parse(text.as_ref()).ok())
        .collect();
    let named = |word| profile.text(ProfileTable::Profile, word).map(PathBuf::from);
    let log = named("log-file").and_then(|file| file.parent().map(PathBuf::from));
    let mut writes: Vec<PathBuf> = [named("cache-dir"), named("metrics-dir"), log]
        .into_iter()
        .flatten()
        .chain([state.dir().to_owned()])
        .collect();
    writes.extend(stores.iter().cloned().filter_map(Location::into_directory));
    Ok(SchedulePlan {
        profile: name.to_owned(),
        program: std::env::current_exe().context("find this program")?,
        words,
        times: profile.times(),
        random_delay: profile.random_delay(),
        is_of_system: rustix::process::geteuid().is_root(),
        is_remote: stores.iter().any(Location::is_remote),
        starts_programs: profile.starts_programs(),
        writes,
        reads: reads(found, profile),
        reads_anything: ["files-from", "files-from0"]
            .iter()
            .any(|word| !profile.texts(ProfileTable::Backup, word).is_empty()),
        has_own_state: state.is_default(),
    })
}

/// Every path in the profile, and where it stands itself: also what is no path is looked at as one.
fn reads(found: &FoundProfiles, profile: &Profile) -> Vec<PathBuf> {
    let texts = profile.values().flat_map(|(_, texts)| texts);
    let paths = texts.map(|text| PathBuf::from(&text.text));
    let paths = paths.filter(|path| path.is_absolute());
    // A link leads elsewhere.
    let both = paths.chain(found.files.iter().cloned()).flat_map(|path| {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        [path, real]
    });
    both.collect()
}

fn joined(option: &str, path: &std::path::Path) -> Vec<u8> {
    [option.as_bytes(), path.as_os_str().as_bytes()].concat()
}

fn print(global: &Global, plan: &SchedulePlan, written: &Written) {
    if global.json {
        let mut value = json!({
            "type": "unit", "profile": plan.profile, "text": written.text,
        });
        output::put_path(&mut value, "path", written.path.as_os_str().as_bytes());
        return output::object(&value);
    }
    output::line(&format!("# {}", output::path(&written.path)));
    output::line(&written.text);
}

fn remove(global: &Global, options: &ScheduleRemove) -> Result<i32> {
    let keeper = Keeper::choose(&options.place)?;
    for name in &options.names {
        if !is_profile_name(name) {
            return Err(Usage(format!("{name:?} is the name of no profile")).into());
        }
        let was_there = keeper.remove(name, options.dry_run)?;
        let (word, text) = match (was_there, options.dry_run) {
            (false, _) => ("absent", "is not scheduled here"),
            (true, true) => ("would-remove", "would be started at no time any more"),
            (true, false) => ("removed", "is started at no time any more"),
        };
        said(global, word, name, text);
    }
    Ok(exit::COMPLETE)
}

fn said(global: &Global, word: &str, profile: &str, text: &str) {
    match global.json {
        true => output::object(&json!({
            "type": "schedule", "profile": profile, "action": word, "message": text,
        })),
        false if global.quiet => {}
        false => report!("{profile}: {}", output::escape(text.as_bytes())),
    }
}

fn status(global: &Global, options: &ScheduleStatus) -> Result<i32> {
    let found = profile_files::find(&options.files)?;
    let state = StateOfRuns::find(&options.state)?;
    let keeper = Keeper::choose(&options.place)?;
    let mut code = exit::COMPLETE;
    for profile in chosen(&found, &options.names)? {
        let (record, why_none) = state.record(profile.name(), &repository_of(&profile)?);
        if let Some(why) = &why_none {
            said(global, "note", profile.name(), why);
        }
        let installed = match plan(&found, &state, &profile).and_then(|plan| keeper.texts(&plan)) {
            Ok(texts) => keeper.state_of(profile.name(), &texts)?,
            Err(error) => {
                report!("bale: {}", output::chain(&error));
                place::Installed::No
            }
        };
        if installed != place::Installed::Yes && !options.names.is_empty() {
            code = exit::FAILED;
        }
        show(global, &profile, (&record, why_none.is_some()), installed);
    }
    Ok(code)
}

fn show(
    global: &Global,
    profile: &Profile,
    (record, is_void): (&RunRecord, bool),
    installed: place::Installed,
) {
    let now = now();
    let next = next(&profile.times(), &now);
    let steps = steps_of(profile, (record, is_void), &now);
    if global.json {
        return output::object(&json!({
            "type": "schedule", "profile": profile.name(), "installed": installed.word(),
            "next": next.map(|next| next.timestamp().to_string()),
            "steps": steps_json(&steps),
        }));
    }
    let next = next.map_or(String::new(), |next| format!(", next {}", shown(&next)));
    output::line(&format!(
        "{}: {}{next}",
        profile.name(),
        installed.sentence()
    ));
    for (step, answer, _) in steps {
        let word = if answer.is_due() { "due" } else { "not due" };
        output::line(&format!("  {}: {word}: {answer}", step.name()));
    }
}

/// A step, whether it is due, and what is known of it.
type KnownStep<'r> = (ProfileTable, DueAnswer, Option<&'r StepRecord>);

/// The steps of a profile, and of each what a record says.
pub fn steps_of<'r>(
    profile: &Profile,
    (record, is_void): (&'r RunRecord, bool),
    now: &Zoned,
) -> Vec<KnownStep<'r>> {
    let steps = profile.steps().map(|step| {
        let known = record.steps.get(step.name());
        let answer = due_of(&profile.times_of(step), (known, is_void), now);
        (step, answer, known)
    });
    steps.collect()
}

/// Fields: docs/SCRIPTING.md.
pub fn steps_json(steps: &[KnownStep<'_>]) -> Vec<Value> {
    let moment = |attempt: Option<&Attempt>| attempt.map(|attempt| attempt.started.to_string());
    let steps = steps.iter().map(|(step, answer, known)| {
        let last = known.and_then(|known| known.last.as_ref());
        json!({
            "step": step.name(), "due": answer.is_due(), "why": answer.to_string(),
            "last": moment(last),
            "last_success": moment(known.and_then(|known| known.last_success.as_ref())),
            "last_exit_code": last.map(|last| last.exit_code),
        })
    });
    steps.collect()
}
