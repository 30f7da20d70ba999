//! Where schedules are written, and who is told: the manager of units of the system or of a user,
//! or cron.

use crate::args::SchedulePlace;
use crate::exit::Usage;
use crate::named_paths::NamedPath;
use crate::{output, place};
use anyhow::{Context, Result, anyhow};
use bale_profile::cron::{crontab, file_name, is_writable, with_block};
use bale_profile::units::{MARK, SchedulePlan, service, timer, unit_name};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Is there where systemd manages the system.
const SYSTEMD_RUNS: &str = "/run/systemd/system";
const SYSTEM_UNITS: &str = "/etc/systemd/system";
const SYSTEM_CRONTABS: &str = "/etc/cron.d";
/// Bytes of a file of a schedule at most, when it is compared.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A file of a schedule.
pub struct Written {
    /// Where it belongs.
    pub path: PathBuf,
    /// What is in it.
    pub text: String,
}

/// Is the schedule of a profile there?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// As it would be written today.
    Yes,
    /// Of an older profile, or changed by hand.
    Other,
    /// None of it, or a part.
    No,
}

impl Installed {
    /// For scripts.
    pub fn word(self) -> &'static str {
        match self {
            Installed::Yes => "yes",
            Installed::Other => "differs",
            Installed::No => "no",
        }
    }

    /// For people.
    pub fn sentence(self) -> &'static str {
        match self {
            Installed::Yes => "scheduled",
            Installed::Other => {
                "scheduled, but not as the profile says now: bale schedule install writes it anew"
            }
            Installed::No => "NOT scheduled: bale schedule install",
        }
    }
}

/// Who starts what is scheduled.
pub struct Keeper {
    kind: Kind,
    /// Files are written here.
    dir: PathBuf,
    /// The keeper is told.
    is_told: bool,
    is_root: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Systemd,
    Cron,
    /// A crontab of a user, which `crontab` alone may write.
    OwnCrontab,
}

impl Keeper {
    /// As the options say, or as the system is.
    pub fn choose(options: &SchedulePlace) -> Result<Keeper> {
        let is_root = rustix::process::geteuid().is_root();
        let runs = options.unit_dir.is_some() || Path::new(SYSTEMD_RUNS).is_dir();
        let kind = match () {
            () if runs && !options.cron => Kind::Systemd,
            () if is_root || options.unit_dir.is_some() => Kind::Cron,
            () => Kind::OwnCrontab,
        };
        let dir = match (&options.unit_dir, kind, is_root) {
            (Some(dir), ..) => std::path::absolute(dir).unwrap_or_else(|_| dir.clone()),
            (None, Kind::Systemd, true) => SYSTEM_UNITS.into(),
            (None, Kind::Systemd, false) => place::user_dir("XDG_CONFIG_HOME", ".config")
                .ok_or_else(|| Usage("no home directory for your units: set HOME".to_owned()))?
                .join("systemd/user"),
            (None, ..) => SYSTEM_CRONTABS.into(),
        };
        Ok(Keeper {
            kind,
            dir,
            is_told: options.unit_dir.is_none(),
            is_root,
        })
    }

    /// The files of a schedule.
    pub fn texts(&self, plan: &SchedulePlan) -> Result<Vec<Written>> {
        if self.kind == Kind::Systemd {
            let of_unit = |(path, is_timer): (PathBuf, bool)| Written {
                path,
                text: if is_timer { timer(plan) } else { service(plan) },
            };
            let paths = self.paths(&plan.profile).into_iter().zip([false, true]);
            return Ok(paths.map(of_unit).collect());
        }
        if !is_writable(plan) {
            let text = "a path in it cannot be written into a line of cron";
            return Err(Usage(format!("schedule {}: {text}", plan.profile)).into());
        }
        // Cron mails what is said.
        let mut plan = plan.clone();
        plan.words.insert(1, b"--quiet".to_vec());
        let user = (self.kind == Kind::Cron).then_some("root");
        let text = crontab(&plan, user);
        let paths = self.paths(&plan.profile).into_iter();
        Ok(paths
            .map(|path| Written {
                path,
                text: text.clone(),
            })
            .collect())
    }

    fn paths(&self, profile: &str) -> Vec<PathBuf> {
        match self.kind {
            Kind::Systemd => [".service", ".timer"]
                .map(|end| self.dir.join(format!("{}{end}", unit_name(profile))))
                .to_vec(),
            Kind::Cron => vec![self.dir.join(file_name(profile))],
            Kind::OwnCrontab => vec![PathBuf::from("crontab")],
        }
    }

    /// Writes the files, and has them count; the directory that was made for them, if one was.
    pub fn install(&self, plan: &SchedulePlan, texts: &[Written]) -> Result<Option<&Path>> {
        if self.kind == Kind::OwnCrontab {
            let text = texts.first().map(|written| written.text.as_str());
            write_own_crontab(&with_block(&own_crontab()?, &plan.profile, text))?;
            return Ok(None);
        }
        for written in texts {
            refuse_foreign(&written.path)?;
        }
        let made = self.make_dir()?;
        for written in texts {
            replace(written)?;
        }
        if self.kind == Kind::Systemd && self.is_told {
            self.systemctl(&["daemon-reload"])?;
            let timer = format!("{}.timer", unit_name(&plan.profile));
            self.systemctl(&["enable", &timer])?;
            // Started anew, or a changed time would count from the next start of the machine on.
            self.systemctl(&["restart", &timer])?;
        }
        Ok(made.then_some(&self.dir))
    }

    /// Was it missing? A user's own directory of units is made with what is above it, as systemctl
    /// does. Of a named one the directory above must be there: a slip would be units that nobody
    /// reads.
    fn make_dir(&self) -> Result<bool> {
        if self.dir.is_dir() {
            return Ok(false);
        }
        let named = NamedPath {
            by: "--unit-dir",
            attempt: "write units to",
            path: &self.dir,
            advice: "Make the directory (mkdir -p), or name one that is there",
        };
        let made = match self.is_told {
            true => std::fs::create_dir_all(&self.dir)
                .with_context(|| format!("create {}", output::path(&self.dir))),
            false => named.require_place_for_file().and_then(|()| {
                std::fs::create_dir(&self.dir).map_err(|error| named.trouble(error))
            }),
        };
        made.map(|()| true)
    }

    /// What to say of it.
    pub fn words_of_install(&self, profile: &str) -> String {
        let paths: Vec<_> = self
            .paths(profile)
            .iter()
            .map(|path| output::path(path))
            .collect();
        let paths = paths.join(", ");
        match (self.kind, self.is_told, self.is_root) {
            (Kind::Systemd, true, true) => format!("scheduled by {paths}"),
            (Kind::Systemd, true, false) => format!(
                "scheduled by {paths}, while you are logged in (loginctl enable-linger: always)"
            ),
            (Kind::Systemd, false, _) => {
                format!("written to {paths}; systemd was not told of it")
            }
            (Kind::Cron, ..) => format!("scheduled by {paths}"),
            (Kind::OwnCrontab, ..) => "scheduled in your crontab".to_owned(),
        }
    }

    /// Removes the files of a profile, if they are ours; were there any?
    pub fn remove(&self, profile: &str, is_dry: bool) -> Result<bool> {
        if self.kind == Kind::OwnCrontab {
            let before = own_crontab()?;
            let after = with_block(&before, profile, None);
            let was_there = before != after;
            if was_there && !is_dry {
                write_own_crontab(&after)?;
            }
            return Ok(was_there);
        }
        let paths = self.paths(profile);
        let there: Vec<_> = paths
            .iter()
            .filter(|path| path.symlink_metadata().is_ok())
            .collect();
        for path in &there {
            refuse_foreign(path)?;
        }
        if is_dry || there.is_empty() {
            return Ok(!there.is_empty());
        }
        let is_timer = self.kind == Kind::Systemd && self.is_told;
        if is_timer {
            self.systemctl(&["disable", "--now", &format!("{}.timer", unit_name(profile))])?;
        }
        for path in there {
            let removed = std::fs::remove_file(path);
            removed.with_context(|| format!("remove {}", output::path(path)))?;
        }
        if is_timer {
            self.systemctl(&["daemon-reload"])?;
        }
        Ok(true)
    }

    /// Is what would be written there, and does its timer run?
    pub fn state_of(&self, profile: &str, texts: &[Written]) -> Result<Installed> {
        if self.kind == Kind::OwnCrontab {
            let before = own_crontab()?;
            let text = texts.first().map(|written| written.text.as_str());
            return Ok(match () {
                () if with_block(&before, profile, None) == before => Installed::No,
                () if with_block(&before, profile, text) == before => Installed::Yes,
                () => Installed::Other,
            });
        }
        let read = |written: &Written| read_bounded(&written.path);
        let found: Vec<_> = texts.iter().map(read).collect();
        if found.iter().any(Option::is_none) || self.is_inactive(profile) {
            return Ok(Installed::No);
        }
        let is_equal = found
            .iter()
            .zip(texts)
            .all(|(found, written)| found.as_deref() == Some(written.text.as_bytes()));
        Ok(if is_equal {
            Installed::Yes
        } else {
            Installed::Other
        })
    }

    /// Of a timer that systemd knows: it was stopped.
    fn is_inactive(&self, profile: &str) -> bool {
        let timer = format!("{}.timer", unit_name(profile));
        self.kind == Kind::Systemd
            && self.is_told
            && self.systemctl(&["is-active", "--quiet", &timer]).is_err()
    }

    fn systemctl(&self, words: &[&str]) -> Result<()> {
        let mut command = Command::new("systemctl");
        if !self.is_root {
            command.arg("--user");
        }
        command.args(words).stdin(Stdio::null());
        bale_pipeline::secret_variables::withhold_secrets(&mut command);
        let shown = || format!("systemctl {}", words.join(" "));
        let output = command
            .output()
            .with_context(|| format!("start {}", shown()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(anyhow!(
                "{}: {}: {}",
                shown(),
                output.status,
                String::from_utf8_lossy(output.stderr.trim_ascii())
            )),
        }
    }
}

/// A file that somebody else wrote stays.
fn refuse_foreign(path: &Path) -> Result<()> {
    let is_ours = match path.symlink_metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error).with_context(|| format!("look at {}", output::path(path)));
        }
        Ok(meta) => {
            let text = read_bounded(path).unwrap_or_default();
            meta.is_file() && text.starts_with(MARK.as_bytes())
        }
    };
    match is_ours {
        true => Ok(()),
        false => Err(anyhow!(
            "{} was not written by bale schedule install, and stays as it is: move it away, or \
             call the profile otherwise",
            output::path(path)
        )),
    }
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    bale_pipeline::private_dir::read(path, TEXT_BYTES_MAX).ok()
}

/// The old file or the new one is there; everybody may read it.
fn replace(written: &Written) -> Result<()> {
    let attempt = || format!("write {}", output::path(&written.path));
    let new = bale_pipeline::private_dir::name_beside(&written.path).with_context(attempt)?;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o644);
    let put = options.open(&new).and_then(|mut file| {
        file.write_all(written.text.as_bytes())?;
        file.sync_all()
    });
    let placed = put.and_then(|()| std::fs::rename(&new, &written.path));
    if placed.is_err() {
        let _only_litter = std::fs::remove_file(&new);
    }
    placed.with_context(attempt)
}

fn own_crontab() -> Result<String> {
    let mut command = Command::new("crontab");
    command.arg("-l").env("LC_ALL", "C").stdin(Stdio::null());
    let output = command.output().context(
        "start crontab (neither systemd nor cron is here: start bale run in another way)",
    )?;
    let why = String::from_utf8_lossy(output.stderr.trim_ascii()).into_owned();
    match output.status.success() {
        true => String::from_utf8(output.stdout).context("read your crontab: it is not UTF-8"),
        // There is none yet. Whatever else is the matter, yours would be lost by a new one.
        false if why.contains("no crontab for") => Ok(String::new()),
        false => Err(anyhow!(
            "read your crontab: crontab -l: {}: {why}",
            output.status
        )),
    }
}

fn write_own_crontab(text: &str) -> Result<()> {
    let mut command = Command::new("crontab");
    let mut child = command
        .arg("-")
        .stdin(Stdio::piped())
        .spawn()
        .context("start crontab")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(text.as_bytes())
            .context("write your crontab")?;
    }
    match child.wait().context("wait for crontab")? {
        status if status.success() => Ok(()),
        status => Err(anyhow!("write your crontab: crontab ended with {status}")),
    }
}
