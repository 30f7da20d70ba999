//! `http(s)://[USER:PASSWORD@]HOST[:PORT]/PATH/`: where a REST server keeps a repository.
//!
//! What is parsed here goes into requests and messages: hosts and paths have letters that need no
//! escaping, and neither a message nor `Display` shows user or password.

use std::fmt;

/// Parts of a path at most, as many as `bale serve` takes.
const PARTS_MAX: usize = 16;

/// User and password of a server.
#[derive(Clone, PartialEq, Eq)]
pub struct RestLogin {
    pub user: String,
    pub password: String,
}

impl fmt::Debug for RestLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RestLogin({:?}, ...)", self.user)
    }
}

/// A server and the path of a repository on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestUrl {
    /// `http://host:port/path/`, without user and password.
    base: String,
    is_encrypted: bool,
    /// User and password that stand in the URL.
    pub login: Option<RestLogin>,
}

/// Why a text is no URL of a REST server. Its words hold nothing of the text: a password may be in
/// any part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestUrlError {
    #[error("it begins with neither http:// nor https://")]
    Scheme,
    #[error(
        "it has no host: letters, digits, dots and dashes, or an IPv6 address in brackets (in a \
         user or password, write / as %2F, @ as %40 and % as %25)"
    )]
    Host,
    #[error("its port is no number from 1 to 65535")]
    Port,
    #[error("its user or password is not UTF-8, or has a % that no two hex digits follow")]
    Login,
    #[error(
        "its path is not made of at most {PARTS_MAX} parts of letters, digits, - _ . ~ with / \
         between, none of them . or .."
    )]
    Path,
}

impl RestUrl {
    /// Reads what stands after `rest:`.
    pub fn parse(text: &str) -> Result<RestUrl, RestUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(RestUrlError::Scheme)?;
        let is_encrypted = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(RestUrlError::Scheme),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, server) = match authority.rsplit_once('@') {
            Some((login, server)) => (Some(parse_login(login)?), server),
            None => (None, authority),
        };
        check_server(server)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut base = format!("{scheme}://{server}/");
        if !path.is_empty() {
            if path.split('/').count() > PARTS_MAX || !path.split('/').all(is_part) {
                return Err(RestUrlError::Path);
            }
            base.push_str(path);
            base.push('/');
        }
        Ok(RestUrl {
            base,
            is_encrypted,
            login,
        })
    }

    /// The URL of what has this path in the repository.
    pub fn of(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Is it `https`?
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

impl fmt::Display for RestUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

fn is_part(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain)
}

/// A host, or a host and a port.
fn check_server(server: &str) -> Result<(), RestUrlError> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or(RestUrlError::Host)?;
            let _: std::net::Ipv6Addr = address.parse().map_err(|_| RestUrlError::Host)?;
            match after.strip_prefix(':') {
                Some(port) => (address, Some(port)),
                None if after.is_empty() => (address, None),
                None => return Err(RestUrlError::Host),
            }
        }
        None => {
            let (host, port) = match server.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (server, None),
            };
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            if !host.bytes().all(is_plain) {
                return Err(RestUrlError::Host);
            }
            (host, port)
        }
    };
    if host.is_empty() {
        return Err(RestUrlError::Host);
    }
    match port.map(str::parse::<u16>) {
        Some(Err(_) | Ok(0)) => Err(RestUrlError::Port),
        Some(Ok(_)) if port.is_some_and(|port| port.starts_with('+')) => Err(RestUrlError::Port),
        _ => Ok(()),
    }
}

fn parse_login(text: &str) -> Result<RestLogin, RestUrlError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let user = unescape(user)?;
    // Basic authentication ends the user at the first colon.
    if user.is_empty() || user.contains(':') {
        return Err(RestUrlError::Login);
    }
    Ok(RestLogin {
        user,
        password: unescape(password)?,
    })
}

/// `%40` becomes `@`.
fn unescape(text: &str) -> Result<String, RestUrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let [high, low, tail @ ..] = rest else {
            return Err(RestUrlError::Login);
        };
        let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(RestUrlError::Login);
        bytes.push((digit(*high)? * 16 + digit(*low)?) as u8);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| RestUrlError::Login)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_becomes_a_base_without_its_login() {
        for (text, base) in [
            ("http://h:8000/a/b", "http://h:8000/a/b/"),
            ("http://h:8000/a/b/", "http://h:8000/a/b/"),
            ("https://backup.example.org", "https://backup.example.org/"),
            ("http://[::1]:8000/x", "http://[::1]:8000/x/"),
            ("http://u:p@h/x", "http://h/x/"),
        ] {
            assert_eq!(RestUrl::parse(text).unwrap().to_string(), base, "{text}");
        }
        let url = RestUrl::parse("https://me:a%40b%2Fc%25@h/x").unwrap();
        let login = url.login.clone().unwrap();
        assert_eq!(
            (login.user.as_str(), login.password.as_str()),
            ("me", "a@b/c%")
        );
        assert!(!format!("{url} {url:?}").contains("a@b"));
        assert_eq!(url.of("config"), "https://h/x/config");
    }

    #[test]
    fn what_no_server_has_is_refused_and_no_password_is_shown() {
        for (text, why) in [
            ("ftp://h/x", RestUrlError::Scheme),
            ("h:8000/x", RestUrlError::Scheme),
            ("http://", RestUrlError::Host),
            ("http:///x", RestUrlError::Host),
            ("http://h h/x", RestUrlError::Host),
            ("http://[::1/x", RestUrlError::Host),
            ("http://[::1]x/x", RestUrlError::Host),
            ("http://h:0/x", RestUrlError::Port),
            ("http://h:+1/x", RestUrlError::Port),
            ("http://h:99999/x", RestUrlError::Port),
            ("http://u:se/cret@h/x", RestUrlError::Port),
            ("http://u:%zz@h/x", RestUrlError::Login),
            ("http://u:%4@h/x", RestUrlError::Login),
            ("http://:p@h/x", RestUrlError::Login),
            ("http://h/a//b", RestUrlError::Path),
            ("http://h/a/../b", RestUrlError::Path),
            ("http://h/a?b", RestUrlError::Path),
            ("http://h/a#b", RestUrlError::Path),
            ("http://h/%2e%2e", RestUrlError::Path),
        ] {
            let error = RestUrl::parse(text).expect_err(text);
            assert_eq!(error, why, "{text}");
            assert!(!error.to_string().contains("cret"), "{text}");
        }
    }
}
