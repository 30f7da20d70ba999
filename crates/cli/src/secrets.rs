//! Passwords and keys from files, commands, the environment, or a terminal.
//!
//! The command line wins over the environment. Two sources at one level are a contradiction, and an
//! empty secret protects nothing: both are refused. What a child process of ours runs with holds
//! none of it.

use crate::args::{FromRepository, Global};
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

/// Options and variables that give the secret of one repository.
struct Words {
    options: [&'static str; 3],
    variables: [&'static str; 4],
    prompt: &'static str,
    /// How else it is given.
    advice: &'static str,
}

const OF_REPOSITORY: Words = Words {
    options: ["--key-file", "--password-file", "--password-command"],
    variables: [
        "BALE_KEY_FILE",
        "BALE_PASSWORD_FILE",
        "BALE_PASSWORD_COMMAND",
        "BALE_PASSWORD",
    ],
    prompt: "Password: ",
    advice: "no password or key, and no terminal to ask at: give one with --password-file, \
        --password-command or --key-file, or set BALE_PASSWORD",
};

const OF_SOURCE: Words = Words {
    options: [
        "--from-key-file",
        "--from-password-file",
        "--from-password-command",
    ],
    variables: [
        "BALE_FROM_KEY_FILE",
        "BALE_FROM_PASSWORD_FILE",
        "BALE_FROM_PASSWORD_COMMAND",
        "BALE_FROM_PASSWORD",
    ],
    prompt: "Password of the repository to copy from: ",
    advice: "no password or key of the repository to copy from, and no terminal to ask at: give \
        one with --from-password-file, --from-password-command or --from-key-file, or set \
        BALE_FROM_PASSWORD",
};

/// Is the secret that opens the repository given without asking? It is not read.
pub fn is_given(global: &Global) -> bool {
    let files = (&global.key_file, &global.password_file);
    let source = OF_REPOSITORY.source(files, global.password_command.as_ref());
    source.is_ok_and(|source| source.is_some())
}

/// The secret that opens the repository, where one is given without asking.
pub fn given(global: &Global) -> Result<Option<Secret>> {
    let files = (&global.key_file, &global.password_file);
    OF_REPOSITORY.given(files, global.password_command.as_ref())
}

/// The secret of the repository that is copied from, asking on a terminal if need be.
pub fn of_source(from: &FromRepository) -> Result<Secret> {
    let files = (&from.from_key_file, &from.from_password_file);
    match OF_SOURCE.given(files, from.from_password_command.as_ref())? {
        Some(secret) => Ok(secret),
        None => Ok(Secret::Password(prompt(
            OF_SOURCE.prompt,
            OF_SOURCE.advice,
        )?)),
    }
}

/// The secret, asking on a terminal if need be.
pub fn given_or_prompted(global: &Global) -> Result<Secret> {
    if let Some(secret) = given(global)? {
        return Ok(secret);
    }
    let password = prompt(OF_REPOSITORY.prompt, OF_REPOSITORY.advice)?;
    Ok(Secret::Password(password))
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
    let given = [
        &global.key_file,
        &global.password_file,
        &global.remote.login_file,
        &global.cold_login_file,
    ];
    let on_command_line = given.map(Clone::clone);
    let in_environment = [
        "BALE_KEY_FILE",
        "BALE_PASSWORD_FILE",
        "BALE_LOGIN_FILE",
        "BALE_COLD_LOGIN_FILE",
    ]
    .map(|name| std::env::var_os(name).map(PathBuf::from));
    on_command_line
        .into_iter()
        .chain(in_environment)
        .flatten()
        .collect()
}

type NamedVariable = (&'static str, Source);

impl Words {
    fn given(
        &self,
        files: (&Option<PathBuf>, &Option<PathBuf>),
        command: Option<&String>,
    ) -> Result<Option<Secret>> {
        let source = self.source(files, command)?;
        source.map(|(name, source)| source.read(name)).transpose()
    }

    /// The command line wins over the environment.
    fn source(
        &self,
        (key_file, password_file): (&Option<PathBuf>, &Option<PathBuf>),
        command: Option<&String>,
    ) -> Result<Option<NamedVariable>, Usage> {
        let on_command_line = [
            key_file.clone().map(Source::KeyFile),
            password_file.clone().map(Source::PasswordFile),
            command.cloned().map(Source::PasswordCommand),
        ];
        Ok(match the_only(named(&self.options, on_command_line))? {
            Some(source) => Some(source),
            None => the_only(named(&self.variables, self.in_environment()?))?,
        })
    }

    fn in_environment(&self) -> Result<[Option<Source>; 4], Usage> {
        let [key_file, password_file, command, password] = self.variables;
        let file = |name| Ok::<_, Usage>(variables::read(name)?.map(PathBuf::from));
        Ok([
            file(key_file)?.map(Source::KeyFile),
            file(password_file)?.map(Source::PasswordFile),
            variables::read_text(command)?.map(Source::PasswordCommand),
            variables::read_text(password)?.map(Source::Password),
        ])
    }
}

fn named<const N: usize>(
    names: &[&'static str; N],
    sources: [Option<Source>; N],
) -> Vec<NamedVariable> {
    let all = names.iter().zip(sources);
    all.filter_map(|(name, source)| Some((*name, source?)))
        .collect()
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
        read_file(&self.0)
    }
}

/// What a file with a secret holds, which is not much.
pub fn read_file(named: &named_paths::NamedPath<'_>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(named.path).map_err(|error| named.trouble(error))?;
    file.take(PASSWORD_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| named.trouble(error))?;
    if bytes.len() as u64 > PASSWORD_BYTES_MAX {
        let text = format!(
            "{} ({}) is too long for a password or key file",
            output::path(named.path),
            named.by
        );
        return Err(Usage(text).into());
    }
    Ok(bytes)
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
    bale_pipeline::secret_variables::withhold_secrets(&mut shell);
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
