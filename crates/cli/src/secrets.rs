//! Passwords and keys from files, commands, the environment, or a terminal.
//!
//! The command line wins over the environment. Two sources at one level are a contradiction, and an empty secret
//! protects nothing: both are refused. What a child process of ours runs with holds none of it.

use crate::args::Global;
use crate::exit::Usage;
use crate::variables;
use anyhow::{Context, Result};
use bale_engine::repository::Secret;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Bytes of a password at most.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// Where a secret comes from.
enum Source {
    KeyFile(PathBuf),
    PasswordFile(PathBuf),
    PasswordCommand(String),
    Password(String),
}

/// The secret that opens the repository, where one is given without asking.
pub fn given(global: &Global) -> Result<Option<Secret>> {
    let source = match the_only(on_command_line(global))? {
        Some(source) => Some(source),
        None => the_only(in_environment()?)?,
    };
    source.map(Source::read).transpose()
}

/// The secret, asking on a terminal if need be.
pub fn given_or_asked(global: &Global) -> Result<Secret> {
    if let Some(secret) = given(global)? {
        return Ok(secret);
    }
    Ok(Secret::Password(ask("Password: ")?))
}

/// Could somebody be asked?
pub fn can_ask() -> bool {
    std::io::stdin().is_terminal()
}

/// A new password: from a file, or asked for twice.
pub fn new_password(file: Option<&Path>) -> Result<String> {
    if let Some(path) = file {
        return first_line(&read_bounded(path)?);
    }
    let password = ask("New password: ")?;
    if ask("The same again: ")? != password {
        return Err(Usage("the two passwords differ".to_owned()).into());
    }
    Ok(password)
}

/// Files that hold a secret, wherever they are named: also those that are not read this time.
pub fn files(global: &Global) -> Vec<PathBuf> {
    let on_command_line = [&global.key_file, &global.password_file].map(Clone::clone);
    let in_environment = ["BALE_KEY_FILE", "BALE_PASSWORD_FILE"]
        .map(|name| std::env::var_os(name).map(PathBuf::from));
    on_command_line
        .into_iter()
        .chain(in_environment)
        .flatten()
        .collect()
}

type Named = (&'static str, Source);

fn on_command_line(global: &Global) -> Vec<Named> {
    let key_file = global.key_file.clone().map(Source::KeyFile);
    let password_file = global.password_file.clone().map(Source::PasswordFile);
    let command = global.password_command.clone().map(Source::PasswordCommand);
    let all = [
        ("--key-file", key_file),
        ("--password-file", password_file),
        ("--password-command", command),
    ];
    all.into_iter()
        .filter_map(|(name, source)| Some((name, source?)))
        .collect()
}

fn in_environment() -> Result<Vec<Named>, Usage> {
    let file = |name| Ok::<_, Usage>(variables::read(name)?.map(PathBuf::from));
    let all = [
        ("BALE_KEY_FILE", file("BALE_KEY_FILE")?.map(Source::KeyFile)),
        (
            "BALE_PASSWORD_FILE",
            file("BALE_PASSWORD_FILE")?.map(Source::PasswordFile),
        ),
        (
            "BALE_PASSWORD_COMMAND",
            variables::read_text("BALE_PASSWORD_COMMAND")?.map(Source::PasswordCommand),
        ),
        (
            "BALE_PASSWORD",
            variables::read_text("BALE_PASSWORD")?.map(Source::Password),
        ),
    ];
    Ok(all
        .into_iter()
        .filter_map(|(name, source)| Some((name, source?)))
        .collect())
}

fn the_only(mut sources: Vec<Named>) -> Result<Option<Source>, Usage> {
    if let [(first, _), (second, _), ..] = &sources[..] {
        return Err(Usage(format!(
            "{first} and {second} each name a password or key: which of them is meant? Give one"
        )));
    }
    Ok(sources.pop().map(|(_, source)| source))
}

impl Source {
    fn read(self) -> Result<Secret> {
        Ok(match self {
            Source::KeyFile(path) => {
                let bytes = read_bounded(&path)?;
                if bytes.trim_ascii().is_empty() {
                    return Err(Usage(format!("the key file {} is empty", path.display())).into());
                }
                Secret::key_file(bytes)
            }
            Source::PasswordFile(path) => Secret::Password(first_line(&read_bounded(&path)?)?),
            Source::PasswordCommand(command) => Secret::Password(from_command(&command)?),
            Source::Password(password) => Secret::Password(password),
        })
    }
}

fn ask(prompt: &str) -> Result<String> {
    if !can_ask() {
        let how =
            "no password: set BALE_PASSWORD, --password-file, --password-command or --key-file";
        return Err(Usage(how.to_owned()).into());
    }
    let password = rpassword::prompt_password(prompt).context("read the password")?;
    if password.is_empty() {
        return Err(Usage("an empty password protects nothing".to_owned()).into());
    }
    Ok(password)
}

fn read_bounded(path: &Path) -> Result<Vec<u8>> {
    let file = std::fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(PASSWORD_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .with_context(|| format!("read {}", path.display()))?;
    if bytes.len() as u64 > PASSWORD_BYTES_MAX {
        return Err(Usage(format!(
            "{} is too long for a password or key file",
            path.display()
        ))
        .into());
    }
    Ok(bytes)
}

fn first_line(bytes: &[u8]) -> Result<String> {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        return Err(Usage("the password is empty: it would protect nothing".to_owned()).into());
    }
    String::from_utf8(line.to_vec()).context("the password is not UTF-8")
}

fn from_command(command: &str) -> Result<String> {
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", command])
        .stderr(std::process::Stdio::inherit());
    bale_engine::scan::withhold_secrets(&mut shell);
    let output = shell.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        return Err(Usage(format!("the password command ended with {}", output.status)).into());
    }
    first_line(&output.stdout)
}
