//! What follows `ftp:` or `ftps:` in the name of a repository:
//! `//[USER[:PASSWORD]@]HOST[:PORT]/PATH`.
//!
//! One slash begins a path at the directory of the user, two begin an absolute one, as in the URLs
//! of SFTP. A path becomes the word of a command, so it holds no control. Nothing shows the
//! password.

use crate::address::{AddressFault, is_file_name, read_address};
use crate::login::{StoreLogin, unescape};
use std::fmt;

/// Where servers listen.
const PORT: u16 = 21;

/// Parts of a path at most.
const PARTS_MAX: usize = 32;

/// A directory on an FTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FtpPlace {
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
    pub login: Option<StoreLogin>,
    /// Without a slash at its end; it begins with one if it is absolute.
    pub path: String,
    pub is_encrypted: bool,
}

/// Why a text names no directory on an FTP server. Its words hold nothing of the text: a password
/// may be in any part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtpPlaceError {
    #[error("there are no two slashes before its host")]
    Slashes,
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
        "its path is not made of at most {PARTS_MAX} names with / between, none of them . or .."
    )]
    Path,
}

impl From<AddressFault> for FtpPlaceError {
    fn from(fault: AddressFault) -> FtpPlaceError {
        match fault {
            AddressFault::Host => FtpPlaceError::Host,
            AddressFault::Port => FtpPlaceError::Port,
        }
    }
}

impl FtpPlace {
    /// Reads what stands after the scheme.
    pub fn parse(text: &str, is_encrypted: bool) -> Result<FtpPlace, FtpPlaceError> {
        let rest = text.strip_prefix("//").ok_or(FtpPlaceError::Slashes)?;
        let (authority, path) = rest.split_once('/').ok_or(FtpPlaceError::Path)?;
        let (login, server) = match authority.rsplit_once('@') {
            Some((login, server)) => {
                let login = StoreLogin::from_url(login).ok_or(FtpPlaceError::Login)?;
                (Some(login), server)
            }
            None => (None, authority),
        };
        // Each becomes the word of a command.
        let has_control = |text: &str| text.chars().any(char::is_control);
        if (login.iter()).any(|login| has_control(&login.user) || has_control(&login.password)) {
            return Err(FtpPlaceError::Login);
        }
        let (host, port) = read_address(server)?;
        Ok(FtpPlace {
            host: host.to_owned(),
            port: port.unwrap_or(PORT),
            login,
            path: read_path(path)?,
            is_encrypted,
        })
    }
}

impl fmt::Display for FtpPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_encrypted { "ftps" } else { "ftp" };
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        write!(f, "{scheme}://{host}:{}/{}", self.port, self.path)
    }
}

fn read_path(text: &str) -> Result<String, FtpPlaceError> {
    let text = text.trim_end_matches('/');
    let names = text.strip_prefix('/').unwrap_or(text);
    let mut path = String::new();
    for (at, name) in names.split('/').enumerate() {
        let name = unescape(name).ok_or(FtpPlaceError::Path)?;
        if !is_file_name(&name) || at >= PARTS_MAX {
            return Err(FtpPlaceError::Path);
        }
        if at > 0 || text.starts_with('/') {
            path.push('/');
        }
        path.push_str(&name);
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_and_shown_without_its_login() {
        for (text, host, port, path, shown) in [
            ("//h/x", "h", 21, "x", "ftp://h:21/x"),
            ("//u:p@h:2121/x/y/", "h", 2121, "x/y", "ftp://h:2121/x/y"),
            ("//h//srv/x", "h", 21, "/srv/x", "ftp://h:21//srv/x"),
            ("//u@[::1]:7/a%20b", "::1", 7, "a b", "ftp://[::1]:7/a b"),
        ] {
            let place = FtpPlace::parse(text, false).unwrap();
            assert_eq!(
                (place.host.as_str(), place.port, place.path.as_str()),
                (host, port, path)
            );
            assert_eq!(place.to_string(), shown);
        }
        let place = FtpPlace::parse("//me:s%403@h/x", true).unwrap();
        let login = place.login.clone().unwrap();
        assert_eq!(
            (login.user.as_str(), login.password.as_str()),
            ("me", "s@3")
        );
        assert!(!format!("{place} {place:?}").contains("s@3"));
    }

    #[test]
    fn what_names_no_directory_is_refused_and_no_password_is_shown() {
        for (text, why) in [
            ("h/x", FtpPlaceError::Slashes),
            ("//h", FtpPlaceError::Path),
            ("//h/", FtpPlaceError::Path),
            ("//h//", FtpPlaceError::Path),
            ("//h/a//b", FtpPlaceError::Path),
            ("//h/../b", FtpPlaceError::Path),
            ("//h/%2e%2e/b", FtpPlaceError::Path),
            ("//h/a%2fb", FtpPlaceError::Path),
            ("//h/a%0d%0aDELE x", FtpPlaceError::Path),
            ("//h/%zz", FtpPlaceError::Path),
            ("///x", FtpPlaceError::Host),
            ("//h h/x", FtpPlaceError::Host),
            ("//../x", FtpPlaceError::Host),
            ("//[::1/x", FtpPlaceError::Host),
            ("//h:0/x", FtpPlaceError::Port),
            ("//h:+1/x", FtpPlaceError::Port),
            ("//h:99999/x", FtpPlaceError::Port),
            ("//u:se/cret@h/x", FtpPlaceError::Port),
            ("//u:a%0d%0aDELE@h/x", FtpPlaceError::Login),
            ("//:p@h/x", FtpPlaceError::Login),
        ] {
            let error = FtpPlace::parse(text, false).expect_err(text);
            assert_eq!(error, why, "{text}");
            assert!(!error.to_string().contains("cret"), "{text}");
        }
    }
}
