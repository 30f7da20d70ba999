//! How stores on a wire are reached: options, else the environment, else what is usual.
//!
//! Secrets come from a file or from the environment; one in an argument is taken, and whoever runs
//! the command is told that others see it.

use crate::args::{Global, Whose};
use crate::exit::Usage;
use crate::named_paths::NamedPath;
use crate::{interrupt, output, secrets, sizes, variables};
use anyhow::Result;
use bale_remote::{
    Location, RealWaiting, RemoteOptions, RetryRules, StoreLogin, Throttle, Variables, Waiting,
    sftp,
};
use bale_repository::store::StoreError;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What is asked for.
pub fn options(global: &Global, waiting: &Arc<dyn Waiting>) -> Result<RemoteOptions> {
    let remote = &global.remote;
    let up = rate("--limit-upload", "BALE_LIMIT_UPLOAD", &remote.limit_upload)?;
    let down = rate(
        "--limit-download",
        "BALE_LIMIT_DOWNLOAD",
        &remote.limit_download,
    )?;
    let connect = &remote.connect_timeout;
    let idle = &remote.idle_timeout;
    Ok(RemoteOptions {
        retry: retry_rules(&remote.retry_for)?,
        throttle: Throttle::new(up, down, waiting),
        login: login(global)?,
        login_advice: Some(login_advice(global)),
        ca_file: path(&remote.ca_file, "BALE_CA_FILE")?,
        connect_timeout: timeout("--connect-timeout", "BALE_CONNECT_TIMEOUT", connect)?,
        idle_timeout: timeout("--idle-timeout", "BALE_IDLE_TIMEOUT", idle)?,
        sftp_command: command("BALE_SFTP_COMMAND")?,
        rclone_command: command("BALE_RCLONE_COMMAND")?,
        environment: Variables::new(variables::lookup),
        data_class: storage_class(global)?,
    })
}

/// Of packs of data. Whether there is such a class is for the store to say.
fn storage_class(global: &Global) -> Result<Option<String>, Usage> {
    let given = text(
        "--storage-class",
        "BALE_STORAGE_CLASS",
        &global.remote.storage_class,
    )?;
    let Some((by, class)) = given else {
        return Ok(None);
    };
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    match (1..=64).contains(&class.len()) && class.chars().all(is_letter) {
        true => Ok(Some(class.to_ascii_uppercase())),
        false => Err(Usage(format!(
            "{by}: {class:?} is no class of S3, as GLACIER and STANDARD_IA are"
        ))),
    }
}

/// An option that nothing would come of is refused.
pub fn check_storage_class(
    global: &Global,
    locations: [Option<&Location>; 2],
) -> Result<(), Usage> {
    let has_s3 = locations.iter().flatten().any(|location| match location {
        Location::Remote(scheme, _) => scheme.text() == "s3",
        Location::Directory(_) => false,
    });
    match global.remote.storage_class.is_some() && !has_s3 {
        true => Err(Usage(
            "--storage-class is of repositories in S3, and none is named".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Waits by the clock, until the run is to end; says what is tried again, unless quiet is wanted:
/// what passes is no problem.
pub fn waiting(global: &Global) -> Arc<dyn Waiting> {
    let quiet = global.quiet;
    let again = move |error: &StoreError, pause: Duration| {
        // Nothing is tried again: what was cut off is our own doing.
        if interrupt::is_requested() {
            return;
        }
        output::count_repeated();
        if !quiet {
            report!(
                "bale: {error}: trying again in {} s",
                pause.as_secs().max(1)
            );
        }
    };
    Arc::new(RealWaiting::new(interrupt::is_requested, again))
}

/// The text of an option or of its variable, and which of the two it is.
fn text(
    option: &'static str,
    variable: &'static str,
    given: &Option<String>,
) -> Result<Option<(&'static str, String)>, Usage> {
    Ok(match given {
        Some(text) => Some((option, text.clone())),
        None => variables::read_text(variable)?.map(|text| (variable, text)),
    })
}

fn path(given: &Option<PathBuf>, variable: &'static str) -> Result<Option<PathBuf>, Usage> {
    Ok(match given {
        Some(path) => Some(path.clone()),
        None => variables::read(variable)?.map(PathBuf::from),
    })
}

/// Bytes a second; 0 is no bound.
fn rate(
    option: &'static str,
    variable: &'static str,
    given: &Option<String>,
) -> Result<Option<NonZeroU64>, Usage> {
    let Some((by, text)) = text(option, variable, given)? else {
        return Ok(None);
    };
    let bytes = sizes::parse_bytes(&text).map_err(|Usage(why)| Usage(format!("{by}: {why}")))?;
    Ok(NonZeroU64::new(bytes))
}

fn duration(
    option: &'static str,
    variable: &'static str,
    given: &Option<String>,
) -> Result<Option<(&'static str, Duration)>, Usage> {
    let Some((by, text)) = text(option, variable, given)? else {
        return Ok(None);
    };
    let parsed = sizes::parse_duration(&text);
    let parsed = parsed.map_err(|Usage(why)| Usage(format!("{by}: {why}")))?;
    Ok(Some((by, parsed)))
}

fn timeout(
    option: &'static str,
    variable: &'static str,
    given: &Option<String>,
) -> Result<Option<Duration>, Usage> {
    match duration(option, variable, given)? {
        Some((by, Duration::ZERO)) => Err(Usage(format!(
            "{by}: no server answers in no time: give a duration, for example 30s"
        ))),
        given => Ok(given.map(|(_, duration)| duration)),
    }
}

fn retry_rules(given: &Option<String>) -> Result<RetryRules, Usage> {
    let usual = RetryRules::default();
    Ok(match duration("--retry-for", "BALE_RETRY_FOR", given)? {
        Some((_, Duration::ZERO)) => RetryRules::ONCE,
        Some((_, give_up_after)) => RetryRules {
            give_up_after,
            ..usual
        },
        None => usual,
    })
}

/// No server is told the login of another: each has an option and a variable of its own.
const fn login_names(whose: Whose) -> (&'static str, &'static str) {
    match whose {
        Whose::Own => ("--login-file", "BALE_LOGIN_FILE"),
        Whose::Source => ("--from-login-file", "BALE_FROM_LOGIN_FILE"),
        Whose::Mirror => ("--to-login-file", "BALE_TO_LOGIN_FILE"),
        Whose::Cold => ("--cold-login-file", "BALE_COLD_LOGIN_FILE"),
    }
}

/// What to do in place of a password in an argument.
pub fn hidden_password_advice(global: &Global) -> String {
    let whose = match global.remote.is_cold {
        true => Whose::Cold,
        false => global.remote.whose,
    };
    let (option, _) = login_names(whose);
    let variable = match whose {
        Whose::Own => "BALE_REPOSITORY",
        Whose::Source => "BALE_FROM_REPOSITORY",
        Whose::Cold => "BALE_COLD",
        // The place of a mirror is an argument always.
        Whose::Mirror => return format!("give it with {option}"),
    };
    format!("give it with {option}, or name that place in {variable} instead")
}

/// For who is refused without one.
fn login_advice(global: &Global) -> String {
    let (option, variable) = login_names(global.remote.whose);
    format!(
        "{option} or {variable} names a file whose first line is USER:PASSWORD, or the name has \
         USER:PASSWORD@ before the host"
    )
}

/// The same options, for the cold store of a repository. One login is enough for both, unless it is
/// of another server.
pub fn of_cold(global: &Global, is_of_another: bool) -> Result<Global> {
    let mut cold = global.clone();
    let (_, variable) = login_names(Whose::Cold);
    let is_named = global.cold_login_file.is_some() || variables::read(variable)?.is_some();
    if is_named || is_of_another {
        cold.remote.login_file = global.cold_login_file.clone();
        cold.remote.whose = Whose::Cold;
    }
    Ok(cold)
}

fn login(global: &Global) -> Result<Option<StoreLogin>> {
    let (option, variable) = login_names(global.remote.whose);
    let (by, file) = match global.remote.login_file.clone() {
        Some(file) => (option, file),
        None => match variables::read(variable)? {
            Some(file) => (variable, PathBuf::from(file)),
            None => return Ok(None),
        },
    };
    let named = NamedPath {
        by,
        attempt: "read user and password of the server from",
        path: &file,
        advice: "Name a file whose first line is USER:PASSWORD",
    };
    let bytes = secrets::read_file(&named)?;
    match StoreLogin::parse(&bytes) {
        Ok(login) => Ok(Some(StoreLogin {
            origin: format!("from {} ({by})", output::path(&file)),
            ..login
        })),
        Err(error) => Err(named.trouble(error)),
    }
}

/// Words of a command in a variable.
fn command(variable: &'static str) -> Result<Option<Vec<String>>, Usage> {
    let text = variables::read_text(variable)?;
    let words = text.map(|text| sftp::split_command(&text)).transpose();
    words.map_err(|error| Usage(format!("{variable}: {error}")))
}
