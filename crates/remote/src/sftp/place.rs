//! What follows `sftp:` in the name of a repository, read as restic reads it: `USER@HOST:PATH` or
//! `//USER@HOST:PORT/PATH`.
//!
//! In the first, PATH begins at the home directory unless it begins with `/`; in the second, one
//! slash begins a path at the home directory and two begin an absolute one. Host and user become
//! arguments of `ssh`, so neither may look like an option.

use crate::login::unescape;
use std::fmt;

/// Seconds between two signs of life, and how many may stay without an answer: a link that died is
/// given up after two minutes.
const ALIVE_SECONDS: u32 = 30;
const ALIVE_COUNT_MAX: u32 = 4;

/// Why a place is refused that must not be shown.
const PASSWORD: &str = "there seems to be a password in it, which is neither used nor shown: ssh \
    has agents and keys, and asks (a path with an @ is written ./PATH, or in full)";

/// A directory on a host that `ssh` reaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SftpPlace {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    path: String,
    text: String,
}

/// May `ssh` ask somebody for a password, or whether a host is the right one?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asking {
    Allowed,
    /// It fails where it would have to.
    Never,
}

/// Why a text names no directory on a host.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("sftp:{text}: {why}. It is written sftp:USER@HOST:/PATH or sftp://USER@HOST:PORT//PATH")]
pub struct SftpPlaceError {
    text: String,
    why: &'static str,
}

/// Why a command that is to replace `ssh` cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SftpCommandError {
    #[error("the command has a quote without an end: {0}")]
    Quote(String),
    #[error("the command is empty")]
    Empty,
}

/// Words of a command as a shell splits them; nothing is expanded and no shell runs.
pub fn split_command(text: &str) -> Result<Vec<String>, SftpCommandError> {
    let words = shell_words::split(text);
    let words = words.map_err(|_| SftpCommandError::Quote(text.to_owned()))?;
    match words.is_empty() {
        true => Err(SftpCommandError::Empty),
        false => Ok(words),
    }
}

impl SftpPlace {
    /// Reads what follows `sftp:`.
    pub fn parse(text: &str) -> Result<SftpPlace, SftpPlaceError> {
        let parsed = match text.strip_prefix("//") {
            Some(url) => parse_url(url),
            None => parse_short(text),
        };
        let place = parsed.and_then(|place| place.check().map(|()| place));
        match place {
            Ok(place) => Ok(SftpPlace {
                text: text.to_owned(),
                ..place
            }),
            Err(PASSWORD) => Err(SftpPlaceError {
                text: "...".to_owned(),
                why: PASSWORD,
            }),
            Err(why) => Err(SftpPlaceError {
                text: shown(text),
                why,
            }),
        }
    }

    /// The directory on the server, without a slash at its end.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The command that reaches the server.
    pub(super) fn ssh_command(&self, asking: Asking) -> Vec<String> {
        let mut command = vec!["ssh".to_owned()];
        if asking == Asking::Never {
            command.extend(["-o", "BatchMode=yes"].map(str::to_owned));
        }
        // Nothing but files is wanted, whatever the user's configuration forwards or runs. A
        // connection that is open already is used; others must not depend on this one.
        for option in [
            &format!("ServerAliveInterval={ALIVE_SECONDS}"),
            &format!("ServerAliveCountMax={ALIVE_COUNT_MAX}"),
            "ControlMaster=no",
            "ClearAllForwardings=yes",
            "ForwardX11=no",
            "PermitLocalCommand=no",
            "RemoteCommand=none",
            "RequestTTY=no",
        ] {
            command.extend(["-o".to_owned(), option.to_owned()]);
        }
        if let Some(port) = self.port {
            command.extend(["-p".to_owned(), port.to_string()]);
        }
        let host = match &self.user {
            Some(user) => format!("{user}@{}", self.host),
            None => self.host.clone(),
        };
        command.extend([host, "-s".to_owned(), "sftp".to_owned()]);
        command
    }

    fn check(&self) -> Result<(), &'static str> {
        let (user, host) = (self.user.as_deref(), self.host.as_str());
        if host.is_empty() || user.is_some_and(str::is_empty) {
            return Err("the name of the host or of the user is empty");
        }
        if host.starts_with('-') || user.is_some_and(|user| user.starts_with('-')) {
            return Err("no host and no user begins with a dash");
        }
        let all = [host, user.unwrap_or_default(), &self.path];
        if all.iter().any(|text| text.chars().any(char::is_control)) {
            return Err("there are control characters in it");
        }
        if [host, user.unwrap_or_default()]
            .iter()
            .any(|text| text.contains([' ', '/']))
        {
            return Err("there is a blank or a slash in the name of the host or of the user");
        }
        if self.path.is_empty() {
            return Err("there is no path");
        }
        if self.path == "~" || self.path.starts_with("~/") {
            return Err(
                "servers do not know ~; a path without a slash begins at the home directory",
            );
        }
        Ok(())
    }
}

impl fmt::Display for SftpPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sftp:{}", self.text)
    }
}

fn parse_short(text: &str) -> Result<SftpPlace, &'static str> {
    let (user, rest) = split_user(text, text.find([':', '[']).unwrap_or(text.len()));
    let (host, rest) = split_host(rest)?;
    let path = rest
        .strip_prefix(':')
        .ok_or("there is no colon behind the host")?;
    if holds_password(user.is_some(), path) {
        return Err(PASSWORD);
    }
    Ok(SftpPlace {
        user,
        host,
        port: None,
        path: without_slash(path),
        text: String::new(),
    })
}

/// `USER:PASSWORD@HOST:PATH` reads as a path behind the host USER. A path that is meant so is not
/// below the home directory without a user, or has no colon behind the `@`.
fn holds_password(has_user: bool, path: &str) -> bool {
    let is_plain = has_user || path.starts_with(['/', '.']);
    match path.split_once('@') {
        None => false,
        Some((_, behind)) => !is_plain || behind.contains(':'),
    }
}

/// For a message: all before the last `@` may be a password, unless it is a user alone.
fn shown(text: &str) -> String {
    let begin = if text.starts_with("//") { 2 } else { 0 };
    match text[begin..].rfind('@') {
        Some(at) if text[begin..begin + at].contains([':', '%']) => {
            format!("{}***{}", &text[..begin], &text[begin + at..])
        }
        _ => text.to_owned(),
    }
}

fn parse_url(url: &str) -> Result<SftpPlace, &'static str> {
    let slash = url.find('/').ok_or("there is no path")?;
    let (authority, path) = url.split_at(slash);
    let (user, rest) = split_user(authority, authority.len());
    let user = user.map(|user| decode_percent(&user)).transpose()?;
    // With a slash in the password, it ends there.
    let is_cut = user.is_none() && authority.contains(':') && path.contains('@');
    if user.as_ref().is_some_and(|user| user.contains(':')) || is_cut {
        return Err(PASSWORD);
    }
    let (host, rest) = split_host(rest)?;
    let port = match rest.strip_prefix(':') {
        Some(port) => Some(port.parse().map_err(|_| "the port is no number")?),
        None if rest.is_empty() => None,
        None => return Err("there is something between host and path"),
    };
    Ok(SftpPlace {
        user,
        host,
        port,
        path: without_slash(&decode_percent(&path[1..])?),
        text: String::new(),
    })
}

/// A user may have an `@` of his own: the last one before `end` counts.
fn split_user(text: &str, end: usize) -> (Option<String>, &str) {
    match text[..end].rfind('@') {
        Some(at) => (Some(text[..at].to_owned()), &text[at + 1..]),
        None => (None, text),
    }
}

/// Up to a colon, or an address in brackets.
fn split_host(text: &str) -> Result<(String, &str), &'static str> {
    if let Some(address) = text.strip_prefix('[') {
        let (host, rest) = address.split_once(']').ok_or("a bracket has no end")?;
        return Ok((host.to_owned(), rest));
    }
    let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
    Ok((host.to_owned(), rest))
}

fn without_slash(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" if path.starts_with('/') => "/".to_owned(),
        path => path.to_owned(),
    }
}

fn decode_percent(text: &str) -> Result<String, &'static str> {
    unescape(text).ok_or("% is followed by no two hexadecimal digits, or by no UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Option<String>, String, Option<u16>, String) {
        let place = SftpPlace::parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(place.to_string(), format!("sftp:{text}"));
        (place.user, place.host, place.port, place.path)
    }

    #[test]
    fn places_are_read_as_restic_reads_them() {
        let place = |user: &str, host: &str, port: u16, path: &str| {
            let user = (!user.is_empty()).then(|| user.to_owned());
            (
                user,
                host.to_owned(),
                (port != 0).then_some(port),
                path.to_owned(),
            )
        };
        for (text, expected) in [
            ("u@h:/srv/x", place("u", "h", 0, "/srv/x")),
            ("u@h:x/y/", place("u", "h", 0, "x/y")),
            ("h:/", place("", "h", 0, "/")),
            ("u@d@h:a:b@c", place("u@d", "h", 0, "a:b@c")),
            ("u@[::1]:/x", place("u", "::1", 0, "/x")),
            ("h:./a@b", place("", "h", 0, "./a@b")),
            ("h:/srv/@daily", place("", "h", 0, "/srv/@daily")),
            ("//u@h:2222//srv/x", place("u", "h", 2222, "/srv/x")),
            ("//u@h/srv/x", place("u", "h", 0, "srv/x")),
            ("//h//", place("", "h", 0, "/")),
            (
                "//u%40d@[fe80::1]:22/a%20b",
                place("u@d", "fe80::1", 22, "a b"),
            ),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn what_ssh_would_take_for_an_option_and_what_names_nothing_is_refused() {
        for text in [
            "-oProxyCommand=touch x:/y",
            "-u@h:/x",
            "u@-h:/x",
            "//-h/x",
            "h",
            "h:",
            ":/x",
            "@h:/x",
            "u@:/x",
            "h:~/x",
            "h:~",
            "a b:/x",
            "h:/x\ny",
            "//h",
            "//h/",
            "//u:secret@h/x",
            "//u%3asecret@h/x",
            "//u:se/cret@h/x",
            "//u:%zzsecret@h/x",
            "u:secret@h:/x",
            "u:secret@h/x",
            "u:/secret@h:/x",
            "u:se/cret@h:x",
            "u@d:secret@h:/x",
            "u:secret@[::1]:/x",
            "u:secret@-h:/x",
            "//h:port/x",
            "//h:99999/x",
            "//[::1/x",
            "//h/%zz",
            "//h/%+1",
            "//h/%0a",
            "",
        ] {
            let error = SftpPlace::parse(text).expect_err(text).to_string();
            assert!(!error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn the_command_is_that_of_the_users_ssh() {
        let command = SftpPlace::parse("//u@h:2222//x").unwrap();
        let command = command.ssh_command(Asking::Allowed);
        assert_eq!(command[0], "ssh");
        assert!(command.contains(&"ServerAliveInterval=30".to_owned()));
        assert!(command.ends_with(&["-p", "2222", "u@h", "-s", "sftp"].map(str::to_owned)));
        let command = SftpPlace::parse("h:x").unwrap();
        let command = command.ssh_command(Asking::Allowed);
        assert!(command.ends_with(&["h", "-s", "sftp"].map(str::to_owned)));
        assert!(!command.contains(&"-p".to_owned()));
        let never = SftpPlace::parse("h:x").unwrap();
        let never = never.ssh_command(Asking::Never);
        assert!(never.contains(&"BatchMode=yes".to_owned()));
        assert!(!command.contains(&"BatchMode=yes".to_owned()));
    }

    #[test]
    fn a_command_is_split_as_a_shell_splits_it_and_run_by_none() {
        let words = split_command(r#"ssh -o "Proxy Command=x y" 'a b' $HOME"#);
        let expected = ["ssh", "-o", "Proxy Command=x y", "a b", "$HOME"];
        assert_eq!(words, Ok(expected.map(str::to_owned).to_vec()));
        assert_eq!(split_command("  "), Err(SftpCommandError::Empty));
        assert!(matches!(
            split_command("a 'b"),
            Err(SftpCommandError::Quote(_))
        ));
    }
}
