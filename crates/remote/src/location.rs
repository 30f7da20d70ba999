//! What names a repository: a directory, or a scheme, a colon and what the scheme's store wants.
//!
//! Names are those of restic's users. A name with a scheme that nobody knows is refused with the
//! list of known ones and is never a directory: whoever writes `s3:bucket/x` believes that his
//! backups leave the machine. A directory whose name looks like that is written `./s3:x` or
//! `local:s3:x`.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a location at most: more than any path or URL that a server takes.
const LOCATION_BYTES_MAX: usize = 8 << 10;

/// A way to reach a store that is no directory of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `sftp:USER@HOST:PATH` or `sftp://USER@HOST:PORT/PATH`.
    Sftp,
    /// `rest:http(s)://HOST:PORT/PATH`.
    Rest,
}

impl Scheme {
    /// Every scheme that can be used.
    pub const ALL: [Scheme; 2] = [Scheme::Sftp, Scheme::Rest];

    /// The text before the colon.
    pub fn text(self) -> &'static str {
        match self {
            Scheme::Sftp => "sftp",
            Scheme::Rest => "rest",
        }
    }

    /// How a location with it is written.
    pub fn example(self) -> &'static str {
        match self {
            Scheme::Sftp => "sftp:USER@HOST:/PATH",
            Scheme::Rest => "rest:https://HOST:PORT/NAME",
        }
    }
}

/// Where a repository is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// A directory of this machine.
    Directory(PathBuf),
    /// A store on a wire: its scheme, and everything after the colon.
    Remote(Scheme, String),
}

/// Why a text names no repository.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LocationError {
    /// It has a scheme that is none of ours.
    #[error(
        "{text:?} names a store by the scheme {scheme:?}, which is none of {} (a directory of that \
         name is written ./{text})",
        schemes()
    )]
    UnknownScheme { text: String, scheme: String },
    /// There is nothing after the scheme.
    #[error("{0:?} names no place: it is written {1}")]
    Empty(String, &'static str),
    /// It is no text that a server could be asked for.
    #[error("{0:?} is not UTF-8, or has control characters in it: no server is named like that")]
    NoText(String),
    /// Longer than any path or URL.
    #[error("a repository's name has at most {LOCATION_BYTES_MAX} bytes, and this one has {0}")]
    TooLong(usize),
}

fn schemes() -> String {
    let names = Scheme::ALL.map(|scheme| format!("{}:", scheme.text()));
    format!("local:, {}", names.join(", "))
}

impl Location {
    /// Reads what a user wrote.
    pub fn parse(text: &OsStr) -> Result<Location, LocationError> {
        let bytes = text.as_bytes();
        if bytes.len() > LOCATION_BYTES_MAX {
            return Err(LocationError::TooLong(bytes.len()));
        }
        let Some(scheme) = scheme_of(bytes) else {
            return Ok(Location::Directory(PathBuf::from(text)));
        };
        let rest = &bytes[scheme.len() + 1..];
        let shown = || text.to_string_lossy().into_owned();
        if scheme == "local" {
            return match rest.is_empty() {
                true => Err(LocationError::Empty(shown(), "local:PATH")),
                false => Ok(Location::Directory(Path::new(OsStr::from_bytes(rest)).into())),
            };
        }
        let known = Scheme::ALL.into_iter().find(|known| known.text() == scheme);
        let Some(known) = known else {
            let (text, scheme) = (shown(), scheme.to_owned());
            return Err(LocationError::UnknownScheme { text, scheme });
        };
        let rest = std::str::from_utf8(rest).map_err(|_| LocationError::NoText(shown()))?;
        if rest.chars().any(char::is_control) {
            return Err(LocationError::NoText(shown()));
        }
        match rest.is_empty() {
            true => Err(LocationError::Empty(shown(), known.example())),
            false => Ok(Location::Remote(known, rest.to_owned())),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Directory(path) => write!(f, "{}", path.display()),
            Location::Remote(scheme, rest) => write!(f, "{}:{rest}", scheme.text()),
        }
    }
}

/// `s3:bucket/x`, `sftp:user@host:/x`, `host:/x`: two characters or more that a scheme or the name
/// of a host has, and a colon.
fn scheme_of(text: &[u8]) -> Option<&str> {
    let colon = text.iter().position(|byte| *byte == b':')?;
    let scheme = std::str::from_utf8(&text[..colon]).ok()?;
    let is_scheme = scheme.chars().count() >= 2
        && (scheme.chars()).all(|letter| letter.is_alphanumeric() || "+-._@".contains(letter));
    is_scheme.then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(text))
    }

    #[test]
    fn unknown_schemes_are_refused_with_the_known_ones_and_never_directories() {
        for unknown in [
            "ssh+x:y",
            "web1.example.org:/srv",
            "me@host:x",
            "file:///srv",
            "swift:container:/x",
            "S3:bucket/x",
            "ключ:x",
        ] {
            let error = parse(unknown).expect_err(unknown);
            let text = error.to_string();
            assert!(matches!(error, LocationError::UnknownScheme { .. }), "{unknown}");
            for known in ["local:", "sftp:", "rest:"] {
                assert!(text.contains(known), "{known} in {text}");
            }
        }
    }

    #[test]
    fn directories_are_what_no_scheme_begins() {
        for local in ["/srv/a:b", "./s3:x", "x:y", "repo", "/", ":x", "a b:c"] {
            assert_eq!(parse(local), Ok(Location::Directory(local.into())), "{local}");
        }
        assert_eq!(parse("local:s3:x"), Ok(Location::Directory("s3:x".into())));
        let bytes = OsStr::from_bytes(b"/srv/\xff");
        assert_eq!(Location::parse(bytes), Ok(Location::Directory(bytes.into())));
    }

    #[test]
    fn a_remote_place_is_its_scheme_and_the_rest() {
        let place = "u@h:/srv/x".to_owned();
        assert_eq!(parse("sftp:u@h:/srv/x"), Ok(Location::Remote(Scheme::Sftp, place)));
        let text = "rest:https://h:8000/x";
        assert_eq!(parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn what_names_no_server_is_refused() {
        assert!(matches!(parse("sftp:"), Err(LocationError::Empty(..))));
        assert!(matches!(parse("local:"), Err(LocationError::Empty(..))));
        assert!(matches!(parse("rest:http://h/\n"), Err(LocationError::NoText(_))));
        let no_text = Location::parse(OsStr::from_bytes(b"rest:\xff"));
        assert!(matches!(no_text, Err(LocationError::NoText(_))));
        let long = "x".repeat(LOCATION_BYTES_MAX + 1);
        assert!(matches!(parse(&long), Err(LocationError::TooLong(_))));
    }
}
