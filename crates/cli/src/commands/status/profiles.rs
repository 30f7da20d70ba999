//! What profiles expect of the repository that is looked at.
//!
//! Nothing of this stands in the way of what can be judged without: a file that does not parse is
//! named, and all else goes on. That a backup is there is said by the repository; a record of runs,
//! which only the machine has that makes them, says how they ended.

use super::profile_state::{JudgedProfile, slack, zoned};
use crate::args::{Global, Status};
use crate::commands::{host, run, select};
use crate::exit::{self, Usage};
use crate::profile_files::{self, UnreadFile, refused};
use crate::run_state::StateOfRuns;
use crate::{output, place, variables};
use anyhow::Result;
use bale_engine::status::{BackupLimit, Expectation, ScheduleMoments, SourceHistory};
use bale_format::snapshot::PathText;
use bale_format::{Snapshot, Time};
use bale_pipeline::monitor::Problem;
use bale_profile::due::{latest, next};
use bale_profile::profile::Profile;
use bale_profile::words::{ProfileTable, SECRETS};
use bale_remote::Location;
use bale_repository::snapshots::SnapshotFilter;
use bale_source::raw::{is_of_server, shown_source};
use bale_source::scan::Sources;
use jiff::Zoned;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the next backup is allowed because the last one took it, at most: one that was dated back
/// (`backup --time`) looks as if it had taken long.
const TOOK_MAX: Duration = Duration::from_secs(86_400);

/// Profiles of the repository that is looked at, and where their records are.
pub(super) struct ExpectingProfiles {
    profiles: Vec<Profile>,
    state: Option<StateOfRuns>,
    /// `--profile` was given: only what these are about is looked at.
    pub(super) is_chosen: bool,
}

/// What one profile backs up, as snapshots call it.
struct ProfileSource {
    host: String,
    paths: Vec<Vec<u8>>,
}

impl ExpectingProfiles {
    /// Reads them, and says what of them does not count. With it the options by which the
    /// repository opens: where nobody names one, those of the profiles.
    pub(super) fn read(global: &Global, options: &Status) -> Result<(ExpectingProfiles, Global)> {
        let (found, unread) = profile_files::find_what_reads(&options.files)?;
        unread.iter().for_each(|file| report_unread(global, file));
        let is_chosen = !options.profile.is_empty();
        let mut profiles: Vec<Profile> = Vec::new();
        let names: Vec<&str> = match is_chosen {
            true => options.profile.iter().map(String::as_str).collect(),
            false => found.profiles.names().collect(),
        };
        for name in names {
            let checked = found.profiles.resolve(name).map_err(refused);
            let checked = checked.map_err(anyhow::Error::from).and_then(|profile| {
                match profile.is_template() {
                    true => Ok(profile),
                    false => run::check_words(&profile).map(|()| profile),
                }
            });
            match checked {
                Ok(profile) if profile.is_template() && is_chosen => {
                    return Err(profile_files::refuse_template(&profile).into());
                }
                Ok(profile) if profile.is_template() => {}
                Ok(profile) => profiles.push(profile),
                Err(error) if is_chosen => return Err(error),
                Err(error) => report_broken(global, b"", "judge by a profile", &error),
            }
        }
        let opened = match opener(global, &profiles, is_chosen)? {
            Some(profile) => with_repository_of(global, profile),
            None => global.clone(),
        };
        let state = match profiles.is_empty() {
            true => None,
            false => Some(StateOfRuns::find(&options.state)?),
        };
        let profiles = of_repository(&opened, profiles, is_chosen)?;
        let expecting = ExpectingProfiles {
            profiles,
            state,
            is_chosen,
        };
        Ok((expecting, opened))
    }

    /// What they expect of sources that pass the filter.
    pub(super) fn expectations(
        &self,
        histories: &[SourceHistory<'_>],
        filter: &SnapshotFilter,
        now: Time,
    ) -> Result<Vec<Expectation>> {
        let mut expected = Vec::new();
        for profile in &self.profiles {
            let Some(source) = source_of(profile)? else {
                continue;
            };
            if !filter.passes(&as_snapshot(profile, &source, now)) {
                continue;
            }
            let mut one = Expectation {
                profile: Some(profile.name().to_owned()),
                host: Some(source.host),
                paths: Some(source.paths),
                ..Expectation::default()
            };
            let of_it = histories.iter().filter(|history| one.is_of(&history.key));
            let took = of_it.filter_map(took).max().unwrap_or_default();
            one.limit = self.limit(profile, took, &zoned(now));
            one.unchanged_since = self.unchanged_since(profile);
            expected.push(one);
        }
        Ok(expected)
    }

    /// How their runs went on this machine.
    pub(super) fn judged(&self, now: Time) -> Result<Vec<JudgedProfile>> {
        let Some(state) = &self.state else {
            return Ok(Vec::new());
        };
        let judged = self.profiles.iter().map(|profile| {
            let is_source_known = source_of(profile)?.is_some();
            JudgedProfile::of(profile, state, is_source_known, &zoned(now))
        });
        judged.collect()
    }

    fn limit(&self, profile: &Profile, took: Duration, now: &Zoned) -> Option<BackupLimit> {
        let times = profile.times_of(ProfileTable::Backup);
        let before = now.saturating_sub(slack(profile, took));
        Some(BackupLimit::Schedule(ScheduleMoments {
            missed_if_before: time_of(&latest(&times, &before)?),
            latest: time_of(&latest(&times, now)?),
            next: next(&times, now).as_ref().map(time_of),
        }))
    }

    /// The last success of a profile that makes no snapshot where nothing is new.
    fn unchanged_since(&self, profile: &Profile) -> Option<Time> {
        if !profile.is_on(ProfileTable::Backup, "skip-if-unchanged") {
            return None;
        }
        let repository = run::repository_of(profile).ok()?;
        let (record, _) = self.state.as_ref()?.record(profile.name(), &repository);
        let step = record.steps.get(ProfileTable::Backup.name())?;
        let success = step.last_success.as_ref()?;
        Some(Time {
            seconds: success.started.as_second(),
            nanos: 0,
        })
    }
}

/// From the beginning to the end of the last backup.
fn took(history: &SourceHistory<'_>) -> Option<Duration> {
    let (_, last) = history.last()?;
    // With --time its time is another.
    let barriers = last.filesystems.iter().filter_map(|each| each.barrier);
    let begun = barriers
        .min()
        .map_or(last.time, |first| first.max(last.time));
    let seconds = last.finished.seconds.saturating_sub(begun.seconds);
    let took = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
    Some(took.min(TOOK_MAX))
}

fn time_of(moment: &Zoned) -> Time {
    Time {
        seconds: moment.timestamp().as_second(),
        nanos: 0,
    }
}

fn report_unread(global: &Global, file: &UnreadFile) {
    if file.is_of_others {
        return note(
            global,
            &format!("profiles are not judged by: {}", output::chain(&file.error)),
        );
    }
    let path = file.path.as_os_str().as_bytes();
    report_broken(global, path, "judge by the profiles in", &file.error);
}

fn report_broken(global: &Global, path: &[u8], action: &'static str, error: &anyhow::Error) {
    exit::something_is_missing();
    let problem = Problem {
        path: path.to_vec(),
        action,
        text: output::chain(error),
    };
    output::problem(&problem, global.json);
}

fn note(global: &Global, text: &str) {
    match global.json {
        true => output::object(&serde_json::json!({"type": "note", "message": text})),
        false if global.quiet => {}
        false => report!("bale: {}", output::escape(text.as_bytes())),
    }
}

/// The profile by which the repository opens, if nobody names one: all that name one must mean
/// the same.
fn opener<'p>(
    global: &Global,
    profiles: &'p [Profile],
    is_chosen: bool,
) -> Result<Option<&'p Profile>> {
    let has_own = || place::own().is_ok_and(|own| own.is_made());
    if place::named(global)?.is_some() || !is_chosen && has_own() {
        return Ok(None);
    }
    let mut found: Option<(&Profile, Location)> = None;
    for profile in profiles {
        let Some(location) = location_of(profile) else {
            continue;
        };
        match &found {
            None => found = Some((profile, location)),
            Some((_, first)) if place::is_same_place(first, &location) => {}
            Some((first_named, first)) => {
                return Err(Usage(format!(
                    "profiles are of several repositories ({}: {first}, {}: {location}): name a \
                     profile with --profile, or a repository with --repo",
                    first_named.name(),
                    profile.name(),
                ))
                .into());
            }
        }
    }
    Ok(found.map(|(profile, _)| profile))
}

/// The repository that a profile names.
fn location_of(profile: &Profile) -> Option<Location> {
    let text = profile.text(ProfileTable::Profile, "repository")?;
    Location::parse(text.as_ref()).ok()
}

/// The options, and where they say nothing, the words of the profile.
fn with_repository_of(global: &Global, profile: &Profile) -> Global {
    fn set<T: From<String>>(field: &mut Option<T>, profile: &Profile, word: &str) {
        if field.is_none() {
            let text = profile.text(ProfileTable::Profile, word);
            *field = text.map(|text| T::from(text.to_owned()));
        }
    }
    let mut opened = global.clone();
    let is_secret_given = opened.password_file.is_some()
        || opened.password_command.is_some()
        || opened.key_file.is_some();
    if !is_secret_given {
        let [password_file, password_command, key_file] = SECRETS;
        set(&mut opened.password_file, profile, password_file);
        set(&mut opened.password_command, profile, password_command);
        set(&mut opened.key_file, profile, key_file);
    }
    set(&mut opened.repo, profile, "repository");
    set(&mut opened.cold, profile, "cold");
    set(&mut opened.cold_login_file, profile, "cold-login-file");
    set(&mut opened.cache_dir, profile, "cache-dir");
    set(&mut opened.memory, profile, "memory");
    let remote = &mut opened.remote;
    set(&mut remote.login_file, profile, "login-file");
    set(&mut remote.ca_file, profile, "ca-file");
    set(&mut remote.cache_size, profile, "cache-size");
    set(&mut remote.limit_upload, profile, "limit-upload");
    set(&mut remote.limit_download, profile, "limit-download");
    set(&mut remote.retry_for, profile, "retry-for");
    set(&mut remote.connect_timeout, profile, "connect-timeout");
    set(&mut remote.idle_timeout, profile, "idle-timeout");
    opened
}

/// Of these, the profiles of the repository that is opened; the others are named.
fn of_repository(global: &Global, profiles: Vec<Profile>, is_chosen: bool) -> Result<Vec<Profile>> {
    let opened = place::named(global)?;
    let opened = opened.or_else(|| place::own().ok().map(|own| own.location()));
    // A profile without a repository runs with that of the environment.
    let of_environment = match variables::read("BALE_REPOSITORY")? {
        Some(text) => Location::parse(&text).ok(),
        None => place::own().ok().map(|own| own.location()),
    };
    let is_ours = |profile: &Profile| {
        let location = location_of(profile).or_else(|| of_environment.clone());
        let both = location.as_ref().zip(opened.as_ref());
        both.is_some_and(|(location, opened)| place::is_same_place(location, opened))
    };
    let (ours, others): (Vec<_>, Vec<_>) = profiles.into_iter().partition(is_ours);
    if others.is_empty() {
        return Ok(ours);
    }
    let mut names = Vec::new();
    for other in &others {
        names.push(format!("{} ({})", other.name(), run::repository_of(other)?));
    }
    let names = names.join(", ");
    if is_chosen {
        return Err(Usage(format!(
            "of another repository than the one that is looked at: {names}: leave out --repo, and \
             name profiles of one repository"
        ))
        .into());
    }
    let text = format!("profiles of other repositories are not judged here: {names}");
    note(global, &text);
    Ok(ours)
}

/// What a profile backs up; `None`: nothing, or what is known only when it runs (a list of paths).
fn source_of(profile: &Profile) -> Result<Option<ProfileSource>, Usage> {
    let of_backup = |word| profile.texts(ProfileTable::Backup, word);
    let is_listed = ["files-from", "files-from0"]
        .iter()
        .any(|word| !of_backup(word).is_empty());
    if !profile.has_step(ProfileTable::Backup) || is_listed {
        return Ok(None);
    }
    let sources = profile.texts(ProfileTable::Profile, "sources");
    let paths = sources.iter().chain(of_backup("image"));
    let mut paths: Vec<Vec<u8>> = paths.map(|text| path_of(&text.text)).collect();
    if !of_backup("stdin-from-command").is_empty() {
        let name = profile.text(ProfileTable::Backup, "stdin-filename");
        let name = name.unwrap_or("stdin").trim_start_matches('/');
        paths.push(format!("/{name}").into_bytes());
    }
    paths.sort();
    paths.dedup();
    Ok(Some(ProfileSource {
        host: host::name(profile.text(ProfileTable::Profile, "host"))?,
        paths,
    }))
}

/// As a snapshot calls it; what is not there now, as it is written.
fn path_of(text: &str) -> Vec<u8> {
    let path = Path::new(text);
    if is_of_server(path) {
        return shown_source(path).into_os_string().into_encoded_bytes();
    }
    let resolved = Sources::resolve(&[path]).ok();
    let resolved = resolved.and_then(|(sources, _)| sources.paths().first().cloned());
    let path = resolved.unwrap_or_else(|| {
        let clean = bale_repository::snapshots::clean_path(text.as_bytes());
        PathBuf::from(format!("/{}", String::from_utf8_lossy(&clean)))
    });
    path.into_os_string().into_encoded_bytes()
}

/// What a filter of snapshots looks at.
fn as_snapshot(profile: &Profile, source: &ProfileSource, now: Time) -> Snapshot {
    let tags = profile.texts(ProfileTable::Backup, "tag").iter();
    Snapshot {
        host: source.host.clone(),
        paths: source.paths.iter().cloned().map(PathText).collect(),
        tags: tags
            .flat_map(|text| select::split_tags(&text.text))
            .collect(),
        ..Snapshot::begun([0; 16], now)
    }
}
