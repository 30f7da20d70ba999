//! What a value says, checked as far as it can be without looking at this machine.

use crate::words::ValueKind;
use jiff::{Span, SpanRelativeTo};
use std::time::Duration;

/// Bytes of one value at most: less than the kernel takes of one word of a command.
const VALUE_BYTES_MAX: usize = 64 << 10;

/// A single one of the texts of a value; why it is refused otherwise.
pub fn check(kind: ValueKind, name: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{name} is empty: give it a value, or leave it out"));
    }
    if text.len() > VALUE_BYTES_MAX {
        return Err(format!("{name} is longer than {VALUE_BYTES_MAX} bytes"));
    }
    let may_have_lines = matches!(kind, ValueKind::Commands | ValueKind::Program);
    let is_bad = |letter: char| letter.is_control() && !(may_have_lines && is_of_lines(letter));
    if text.contains(is_bad) {
        return Err(format!("{name} has a control character in it"));
    }
    match kind {
        ValueKind::Path | ValueKind::Paths => whole_path(name, text),
        ValueKind::Store => store(name, text),
        ValueKind::Span => span(text).map(drop).ok_or_else(|| {
            format!("{name}: {text:?} is not a duration: write for example 90s, 15m, 2h")
        }),
        ValueKind::Times => crate::calendar::Times::parse(text).map(drop),
        ValueKind::Address => address(name, text),
        ValueKind::Mail => mail(name, text),
        _ => Ok(()),
    }
}

fn is_of_lines(letter: char) -> bool {
    matches!(letter, '\n' | '\t')
}

/// `90s`, `15m`, `2h`; not negative.
pub fn span(text: &str) -> Option<Duration> {
    if text.trim() == "0" {
        return Some(Duration::ZERO);
    }
    let span = text.trim().parse::<Span>().ok()?;
    let signed = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    signed.try_into().ok()
}

/// A timer starts in `/`, and a shell that would know `~` is not there.
fn whole_path(name: &str, text: &str) -> Result<(), String> {
    match text.starts_with('/') {
        true => Ok(()),
        false => Err(format!(
            "{name}: {text:?} is no whole path: write it from / on, as a timer starts in no \
             directory of yours"
        )),
    }
}

/// Whose name holds a password would have it in a file that many things read.
fn store(name: &str, text: &str) -> Result<(), String> {
    if holds_password(text) {
        return Err(format!(
            "{name} has a password in it, and a profile is no place for one: write USER:PASSWORD \
             on the first line of a file that only its owner may read, and \
             login-file = \"/THAT/FILE\""
        ));
    }
    match text.split_once(':') {
        Some((scheme, _)) if !scheme.contains('/') => Ok(()),
        _ => whole_path(name, text),
    }
}

/// `SCHEME://USER:PASSWORD@HOST`, with anything in front.
fn holds_password(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let login = authority.rsplit_once('@').map(|(login, _)| login);
        // A password may hold a slash, too.
        let of_all = rest.rsplit_once('@').map(|(login, _)| login);
        login.or(of_all).is_some_and(|login| login.contains(':'))
    })
}

fn address(name: &str, text: &str) -> Result<(), String> {
    let is_web = ["http://", "https://"]
        .iter()
        .any(|scheme| text.starts_with(scheme));
    match is_web && !text.contains(char::is_whitespace) {
        true => Ok(()),
        false => Err(format!(
            "{name}: {text:?} is no address: write https://HOST/..."
        )),
    }
}

/// It becomes a line of a head of a mail.
fn mail(name: &str, text: &str) -> Result<(), String> {
    let is_mail = |letter: char| letter.is_alphanumeric() || ".@_+-=%".contains(letter);
    match text.chars().all(is_mail) && !text.starts_with('-') {
        true => Ok(()),
        false => Err(format!(
            "{name}: {text:?} is no address: write admin@example.org"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_names_of_repositories_are_seen_and_ports_are_not() {
        for (text, is_refused) in [
            ("rest:https://web1:secret@host:8000/web1/", true),
            ("sftp://me:secret@host//srv", true),
            ("rest:https://me:a/b@host/x", true),
            ("ftp://:secret@host/x", true),
            ("rest:https://host:8000/web1/", false),
            ("sftp:me@host:/srv/backup", false),
            ("sftp://me@host:2222//srv", false),
            ("s3:https://s3.example.org/bucket", false),
            ("/srv/a:b@c", false),
        ] {
            assert_eq!(store("repository", text).is_err(), is_refused, "{text}");
        }
        assert!(store("repository", "backup").is_err());
        assert!(store("repository", "./a:b").is_err());
    }

    #[test]
    fn what_could_forge_a_line_of_a_mail_is_no_address() {
        for wrong in ["a@b\nBcc: c@d", "a@b, c@d", "-oQ/tmp", "a b", "a@b;c"] {
            assert!(check(ValueKind::Mail, "mail", wrong).is_err(), "{wrong:?}");
        }
        assert!(check(ValueKind::Mail, "mail", "root").is_ok());
        assert!(check(ValueKind::Mail, "mail", "ops+bale@example.org").is_ok());
    }

    #[test]
    fn values_are_refused_with_a_reason() {
        for (kind, text, why) in [
            (ValueKind::Path, "~/x", "whole path"),
            (ValueKind::Path, "", "is empty"),
            (ValueKind::Text, "a\0b", "control character"),
            (ValueKind::Text, "a\nb", "control character"),
            (ValueKind::Commands, "a\x1bb", "control character"),
            (ValueKind::Span, "5", "not a duration"),
            (ValueKind::Span, "-5m", "not a duration"),
            (ValueKind::Address, "hc-ping.com/x", "no address"),
            (ValueKind::Times, "sometimes", "sometimes"),
        ] {
            let refused = check(kind, "word", text).unwrap_err();
            assert!(refused.contains(why), "{text:?}: {refused}");
        }
        assert!(check(ValueKind::Commands, "before", "a\n\tb").is_ok());
        assert_eq!(span("0"), Some(Duration::ZERO));
        assert_eq!(span("90s"), Some(Duration::from_secs(90)));
    }
}
