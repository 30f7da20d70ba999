//! Passwords and keys from files, commands, the environment, or a terminal.
//!
//! The command line wins over the environment. Two sources at one level are a contradiction, and an
//! empty secret protects nothing: both are refused. What a child process of ours runs with holds
//! none of it.

use crate::args::Global;
use crate::exit::Usage;
use crate::{named_paths, output, variables};
use anyhow::{Context, Result};
use bale_repository::repository::Secret;
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
    source.map(|(name, source)| source.read(name)).transpose()
}

/// The secret, asking on a terminal if need be.
pub fn given_or_prompted(global: &Global) -> Result<Secret> {
    if let Some(secret) = given(global)? {
        return Ok(secret);
    }
    Ok(Secret::Password(prompt("Password: ", NO_PASSWORD)?))
}

/// True at a terminal, where a password can be prompted for.
pub fn can_prompt() -> bool {
    std::io::stdin().is_terminal()
}

/// A new password: from a file, or asked for twice. `how` says how else a new secret is given.
pub fn new_password(file: Option<&Path>, how: &str) -> Result<String> {
    if let Some(path) = file {
        let file = SecretFile::of("--new-password-file", path);
        return first_line(&file.read()?, &file.text());
    }
    let password = prompt("New password: ", how)?;
    if prompt("The same again: ", how)? != password {
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

type NamedVariable = (&'static str, Source);

fn on_command_line(global: &Global) -> Vec<NamedVariable> {
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

fn in_environment() -> Result<Vec<NamedVariable>, Usage> {
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

fn the_only(mut sources: Vec<NamedVariable>) -> Result<Option<NamedVariable>, Usage> {
    if let [(first, _), (second, _), ..] = &sources[..] {
        return Err(Usage(format!(
            "{first} and {second} each name a password or key: which of them is meant? Give one"
        )));
    }
    Ok(sources.pop())
}

impl Source {
    fn read(self, name: &'static str) -> Result<Secret> {
        Ok(match self {
            Source::KeyFile(path) => {
                let file = SecretFile::of_key(name, &path);
                let bytes = file.read()?;
                if bytes.trim_ascii().is_empty() {
                    return Err(Usage(format!("the key file {} is empty", file.text())).into());
                }
                Secret::key_file(bytes)
            }
            Source::PasswordFile(path) => {
                let file = SecretFile::of(name, &path);
                Secret::Password(first_line(&file.read()?, &file.text())?)
            }
            Source::PasswordCommand(command) => Secret::Password(from_command(name, &command)?),
            Source::Password(password) => Secret::Password(password),
        })
    }
}

/// How to give a password or key where nobody can be asked.
const NO_PASSWORD: &str = "no password or key, and no terminal to ask at: give one with \
    --password-file, --password-command or --key-file, or set BALE_PASSWORD";

fn prompt(prompt: &str, how: &str) -> Result<String> {
    if !can_prompt() {
        return Err(Usage(how.to_owned()).into());
    }
    let password = rpassword::prompt_password(prompt).context("read the password")?;
    if password.is_empty() {
        return Err(Usage("an empty password protects nothing".to_owned()).into());
    }
    Ok(password)
}

/// A file that holds a password or a key.
struct SecretFile<'a>(named_paths::NamedPath<'a>);

impl<'a> SecretFile<'a> {
    fn of(by: &'a str, path: &'a Path) -> SecretFile<'a> {
        SecretFile(named_paths::NamedPath {
            by,
            attempt: "read the password from",
            path,
            advice: "Name a file whose first line is the password",
        })
    }

    fn of_key(by: &'a str, path: &'a Path) -> SecretFile<'a> {
        SecretFile(named_paths::NamedPath {
            by,
            attempt: "read the key from",
            path,
            advice: "Name the key file that the repository was given, or a file with its recovery \
                key",
        })
    }

    /// For people.
    fn text(&self) -> String {
        format!("{} ({})", output::path(self.0.path), self.0.by)
    }

    fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = std::fs::File::open(self.0.path).map_err(|error| self.0.trouble(error))?;
        file.take(PASSWORD_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| self.0.trouble(error))?;
        if bytes.len() as u64 > PASSWORD_BYTES_MAX {
            let text = format!("{} is too long for a password or key file", self.text());
            return Err(Usage(text).into());
        }
        Ok(bytes)
    }
}

/// `whence`: where the bytes come from.
fn first_line(bytes: &[u8], whence: &str) -> Result<String> {
    let line = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        let text =
            format!("the password is empty, the first line of {whence}: it would protect nothing");
        return Err(Usage(text).into());
    }
    String::from_utf8(line.to_vec())
        .map_err(|_| anyhow::anyhow!("the password is not UTF-8, the first line of {whence}"))
}

fn from_command(name: &str, command: &str) -> Result<String> {
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", command])
        .stderr(std::process::Stdio::inherit());
    bale_source::scan::withhold_secrets(&mut shell);
    // Not its text: it may hold a secret, and this may be logged.
    let asked = format!("the command of {name}");
    let output = shell
        .output()
        .with_context(|| format!("start a shell for {asked}"))?;
    if !output.status.success() {
        anyhow::bail!(
            "no password from {asked}: it ended with {}{}",
            output.status,
            meaning(output.status.code())
        );
    }
    first_line(&output.stdout, &format!("what {asked} printed"))
}

/// What a shell means by its exit status.
fn meaning(code: Option<i32>) -> &'static str {
    match code {
        Some(126) => " (the shell found the command and could not run it)",
        Some(127) => " (the shell did not find the command)",
        _ => "",
    }
}
