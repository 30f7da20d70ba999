//! Who we are to a server: a user and a password, which neither `Debug` nor an error shows.

use std::fmt;
use std::sync::Arc;

/// Bytes of user and password together at most.
const LOGIN_BYTES_MAX: usize = 4 << 10;

/// User and password of a server; for an object store, the id of an access key and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreLogin {
    pub user: String,
    pub password: String,
    /// Where it comes from, in words for messages.
    pub origin: String,
}

/// What was said to a server of who we are, in words without the password: goes with each answer,
/// for the message of a refusal.
#[derive(Clone, Debug)]
pub(crate) struct LoginWords {
    words: Arc<str>,
    pub(crate) is_given: bool,
    /// The server may keep a place for each user.
    pub(crate) has_private_places: bool,
}

impl LoginWords {
    /// Of a login that was used; `advice` says how one is given.
    pub(crate) fn new(login: Option<&StoreLogin>, advice: &str) -> LoginWords {
        let words = match login {
            Some(StoreLogin { user, origin, .. }) => format!("logged in as {user:?}, {origin}"),
            None => format!("no login was given: {advice}"),
        };
        LoginWords {
            words: words.into(),
            is_given: login.is_some(),
            has_private_places: true,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.words
    }
}

/// The same of a protocol in which everybody has a name.
pub(crate) fn as_whom(login: Option<&StoreLogin>) -> String {
    match login {
        Some(StoreLogin { user, origin, .. }) => format!("as {user:?}, {origin}"),
        None => format!("as \"anonymous\", since no login was given: {LOGIN_ADVICE}"),
    }
}

/// How a login is given, where nobody says it otherwise.
pub(crate) const LOGIN_ADVICE: &str = "name a file whose first line is USER:PASSWORD";

/// A server that keeps a place for each user refuses him everywhere else.
pub(crate) const PRIVATE_PLACES: &str =
    "on a server that runs with --private, a user reaches only the place of his own name, /USER/";

/// Why a text is no login. Its words hold nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreLoginError {
    #[error("its first line is not USER:PASSWORD")]
    Form,
    #[error("it is not UTF-8, or has control characters in its first line")]
    NoText,
    #[error("it is longer than {LOGIN_BYTES_MAX} bytes")]
    TooLong,
}

impl StoreLogin {
    /// Reads the first line of a file, `USER:PASSWORD`: the first colon ends the user.
    pub fn parse(bytes: &[u8]) -> Result<StoreLogin, StoreLoginError> {
        let line = bytes.split(|byte| *byte == b'\n').next();
        let line = line.unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LOGIN_BYTES_MAX {
            return Err(StoreLoginError::TooLong);
        }
        let line = std::str::from_utf8(line).map_err(|_| StoreLoginError::NoText)?;
        if line.chars().any(char::is_control) {
            return Err(StoreLoginError::NoText);
        }
        match line.split_once(':') {
            Some((user, password)) if !user.is_empty() && !password.is_empty() => Ok(StoreLogin {
                user: user.to_owned(),
                password: password.to_owned(),
                origin: "from a file".to_owned(),
            }),
            _ => Err(StoreLoginError::Form),
        }
    }
}

impl StoreLogin {
    /// Reads what stands before the `@` of a URL, `USER` or `USER:PASSWORD`, with its escapes.
    pub(crate) fn from_url(text: &str) -> Option<StoreLogin> {
        let (user, password) = text.split_once(':').unwrap_or((text, ""));
        let (user, password) = (unescape(user)?, unescape(password)?);
        // Basic authentication ends the user at the first colon.
        let is_user = !user.is_empty() && !user.contains(':');
        let origin = "from the name of the repository".to_owned();
        is_user.then_some(StoreLogin {
            user,
            password,
            origin,
        })
    }
}

/// `%40` becomes `@`; `None` if a `%` is followed by no two hex digits, or the whole is not UTF-8.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else {
            return None;
        };
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

impl fmt::Debug for StoreLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreLogin({:?}, ...)", self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_a_user_and_a_password() {
        let login = StoreLogin::parse(b"me:s3:cr3t\r\nmore").unwrap();
        assert_eq!((&*login.user, &*login.password), ("me", "s3:cr3t"));
        assert!(!format!("{login:?}").contains("s3:cr3t"));
        for wrong in [&b""[..], b"me", b":x", b"me:", b"\nme:x"] {
            assert_eq!(StoreLogin::parse(wrong), Err(StoreLoginError::Form));
        }
        assert_eq!(StoreLogin::parse(b"me:\xff"), Err(StoreLoginError::NoText));
        assert_eq!(StoreLogin::parse(b"me:a\tb"), Err(StoreLoginError::NoText));
        let long = vec![b'x'; LOGIN_BYTES_MAX + 1];
        assert_eq!(StoreLogin::parse(&long), Err(StoreLoginError::TooLong));
    }
}
