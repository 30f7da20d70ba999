//! `http(s)://[USER:PASSWORD@]HOST[:PORT]/PATH/`: where a server keeps a repository.
//!
//! What is parsed here goes into requests and messages: hosts and paths have letters that need no
//! escaping, and neither a message nor `Display` shows user or password.

use crate::address::{AddressFault, is_file_name, read_address};
use crate::login::{StoreLogin, unescape};
use std::fmt;

/// Parts of a path at most, as many as `bale serve` takes.
const PARTS_MAX: usize = 16;

/// A server and the path of a repository on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpUrl {
    /// `http://host:port/path/`, without user and password.
    base: String,
    is_encrypted: bool,
    /// User and password that stand in the URL.
    pub login: Option<StoreLogin>,
}

/// Why a text is no URL of a server. Its words hold nothing of the text: a password may be in
/// any part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpUrlError {
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

impl From<AddressFault> for HttpUrlError {
    fn from(fault: AddressFault) -> HttpUrlError {
        match fault {
            AddressFault::Host => HttpUrlError::Host,
            AddressFault::Port => HttpUrlError::Port,
        }
    }
}

impl HttpUrl {
    /// Reads what stands after `rest:`.
    pub fn parse(text: &str) -> Result<HttpUrl, HttpUrlError> {
        HttpUrl::parse_with(text, is_part)
    }

    /// The same with a path in which anything may stand that has its escape: that of files.
    pub fn parse_escaped(text: &str) -> Result<HttpUrl, HttpUrlError> {
        HttpUrl::parse_with(text, is_escaped_part)
    }

    fn parse_with(text: &str, is_part: fn(&str) -> bool) -> Result<HttpUrl, HttpUrlError> {
        let (scheme, rest) = text.split_once("://").ok_or(HttpUrlError::Scheme)?;
        let is_encrypted = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(HttpUrlError::Scheme),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, server) = match authority.rsplit_once('@') {
            Some((login, server)) => {
                let login = StoreLogin::from_url(login).ok_or(HttpUrlError::Login)?;
                (Some(login), server)
            }
            None => (None, authority),
        };
        read_address(server)?;
        let path = path.strip_suffix('/').unwrap_or(path);
        let mut base = format!("{scheme}://{server}/");
        if !path.is_empty() {
            if path.split('/').count() > PARTS_MAX || !path.split('/').all(is_part) {
                return Err(HttpUrlError::Path);
            }
            base.push_str(path);
            base.push('/');
        }
        Ok(HttpUrl {
            base,
            is_encrypted,
            login,
        })
    }

    /// The URL of what has this path in the repository.
    pub fn of(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Its own directory and those above, the deepest first, each with a slash at its end.
    pub fn with_parents(&self) -> Vec<String> {
        let path_at = self
            .base
            .find("://")
            .map_or(0, |slashes| slashes + "://".len());
        let ends = self.base.char_indices().rev();
        let ends = ends.take_while(|(at, _)| *at >= path_at);
        let slashes = ends.filter(|(_, letter)| *letter == '/');
        slashes.map(|(at, _)| self.base[..=at].to_owned()).collect()
    }

    /// Is it `https`?
    pub fn is_encrypted(&self) -> bool {
        self.is_encrypted
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)
    }
}

fn is_part(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    !part.is_empty() && part != "." && part != ".." && part.bytes().all(is_plain)
}

/// A part with escapes, which stand for no slash, no control and no name of a directory's own.
fn is_escaped_part(part: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%@!$&'()*+,;=:".contains(&byte);
    part.bytes().all(is_plain) && unescape(part).is_some_and(|name| is_file_name(&name))
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
            assert_eq!(HttpUrl::parse(text).unwrap().to_string(), base, "{text}");
        }
        let url = HttpUrl::parse("https://me:a%40b%2Fc%25@h/x").unwrap();
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
            ("ftp://h/x", HttpUrlError::Scheme),
            ("h:8000/x", HttpUrlError::Scheme),
            ("http://", HttpUrlError::Host),
            ("http:///x", HttpUrlError::Host),
            ("http://../x", HttpUrlError::Host),
            ("http://.h/x", HttpUrlError::Host),
            ("http://h h/x", HttpUrlError::Host),
            ("http://[::1/x", HttpUrlError::Host),
            ("http://[::1]x/x", HttpUrlError::Host),
            ("http://h:0/x", HttpUrlError::Port),
            ("http://h:+1/x", HttpUrlError::Port),
            ("http://h:99999/x", HttpUrlError::Port),
            ("http://u:se/cret@h/x", HttpUrlError::Port),
            ("http://u:%zz@h/x", HttpUrlError::Login),
            ("http://u:%4@h/x", HttpUrlError::Login),
            ("http://:p@h/x", HttpUrlError::Login),
            ("http://h/a//b", HttpUrlError::Path),
            ("http://h/a/../b", HttpUrlError::Path),
            ("http://h/a?b", HttpUrlError::Path),
            ("http://h/a#b", HttpUrlError::Path),
            ("http://h/%2e%2e", HttpUrlError::Path),
        ] {
            let error = HttpUrl::parse(text).expect_err(text);
            assert_eq!(error, why, "{text}");
            assert!(!error.to_string().contains("cret"), "{text}");
        }
    }
}
