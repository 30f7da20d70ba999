//! Passwords and keys from the environment, files, commands, or a terminal.

use crate::args::Global;
use crate::exit::Usage;
use anyhow::{Context, Result};
use bale_engine::repository::Secret;
use std::io::{IsTerminal, Read};
use std::path::Path;

/// Bytes of a password at most.
const PASSWORD_BYTES_MAX: u64 = 4096;

/// The secret that opens the repository, where one is told without asking.
pub fn told(global: &Global) -> Result<Option<Secret>> {
    if let Some(path) = &global.key_file {
        return Ok(Some(Secret::key_file(read_bounded(path)?)));
    }
    if let Some(path) = &global.password_file {
        return Ok(Some(Secret::Password(first_line(&read_bounded(path)?)?)));
    }
    if let Some(command) = &global.password_command {
        return Ok(Some(Secret::Password(from_command(command)?)));
    }
    match std::env::var("BALE_PASSWORD") {
        Ok(password) => Ok(Some(Secret::Password(password))),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(error) => Err(Usage(format!("BALE_PASSWORD: {error}")).into()),
    }
}

/// The secret, asking on a terminal if need be.
pub fn told_or_asked(global: &Global) -> Result<Secret> {
    if let Some(secret) = told(global)? {
        return Ok(secret);
    }
    Ok(Secret::Password(ask("Password: ")?))
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

fn ask(prompt: &str) -> Result<String> {
    if !std::io::stdin().is_terminal() {
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
        return Err(Usage("the password is empty".to_owned()).into());
    }
    String::from_utf8(line.to_vec()).context("the password is not UTF-8")
}

fn from_command(command: &str) -> Result<String> {
    let output = std::process::Command::new("sh")
        .args(["-c", command])
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        return Err(Usage(format!("the password command ended with {}", output.status)).into());
    }
    first_line(&output.stdout)
}
