//! What names a repository: a directory, or a scheme, a colon and what the scheme's store wants.
//!
//! Names are those of restic's users. A name with a scheme that nobody knows is refused with the
//! list of known ones and is never a directory: whoever writes `s3:bucket/x` believes that his
//! backups leave the machine. A directory whose name looks like that is written `./s3:x` or
//! `local:s3:x`. Neither `Display` nor `Debug` nor an error shows what may be a password: what
//! stands before the last `@` of a name with a scheme, and the settings of a remote of rclone.

use crate::rclone::without_settings;
use bale_cloud::Cloud;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Bytes of a location at most: more than any path or URL that a server takes.
const LOCATION_BYTES_MAX: usize = 8 << 10;

/// A way to reach a store that is no directory of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `rest:http(s)://HOST:PORT/PATH`.
    Rest,
    /// `sftp:USER@HOST:/PATH`.
    Sftp,
    /// A bucket.
    Cloud(Cloud),
    /// `rclone:REMOTE:PATH`.
    Rclone,
    /// `webdav:http(s)://USER:PASSWORD@HOST/PATH`.
    Webdav,
    /// `ftp://USER:PASSWORD@HOST:PORT/PATH`.
    Ftp,
    /// `ftps://USER:PASSWORD@HOST:PORT/PATH`.
    Ftps,
}

impl Scheme {
    /// Every scheme that can be used.
    pub const ALL: [Scheme; 10] = [
        Scheme::Rest,
        Scheme::Sftp,
        Scheme::Rclone,
        Scheme::Webdav,
        Scheme::Ftp,
        Scheme::Ftps,
        Scheme::Cloud(Cloud::S3),
        Scheme::Cloud(Cloud::Gcs),
        Scheme::Cloud(Cloud::Azure),
        Scheme::Cloud(Cloud::B2),
    ];

    /// The text before the colon.
    pub fn text(self) -> &'static str {
        match self {
            Scheme::Rest => "rest",
            Scheme::Sftp => "sftp",
            Scheme::Cloud(cloud) => cloud.scheme(),
            Scheme::Rclone => "rclone",
            Scheme::Webdav => "webdav",
            Scheme::Ftp => "ftp",
            Scheme::Ftps => "ftps",
        }
    }

    /// How a location with it is written.
    pub fn example(self) -> &'static str {
        match self {
            Scheme::Rest => "rest:https://HOST:PORT/NAME",
            Scheme::Sftp => "sftp:USER@HOST:/PATH",
            Scheme::Cloud(cloud) => cloud.example(),
            Scheme::Rclone => "rclone:REMOTE:PATH",
            Scheme::Webdav => "webdav:https://USER:PASSWORD@HOST/PATH",
            Scheme::Ftp => "ftp://USER:PASSWORD@HOST/PATH",
            Scheme::Ftps => "ftps://USER:PASSWORD@HOST/PATH",
        }
    }
}

/// Where a repository is.
#[derive(Clone, PartialEq, Eq)]
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
    /// There is nothing at all.
    #[error(
        "the name of a repository is empty: name a directory, or a place as {} are",
        schemes()
    )]
    Nothing,
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
        if bytes.is_empty() {
            return Err(LocationError::Nothing);
        }
        if bytes.len() > LOCATION_BYTES_MAX {
            return Err(LocationError::TooLong(bytes.len()));
        }
        let Some(scheme) = scheme_of(bytes) else {
            return Ok(Location::Directory(PathBuf::from(text)));
        };
        let rest = &bytes[scheme.len() + 1..];
        let shown = || without_login(&text.to_string_lossy());
        if scheme == "local" {
            return match rest.is_empty() {
                true => Err(LocationError::Empty(shown(), "local:PATH")),
                false => Ok(Location::Directory(
                    Path::new(OsStr::from_bytes(rest)).into(),
                )),
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

    /// Is there what may be a password in it?
    pub fn holds_password(&self) -> bool {
        match self {
            Location::Directory(_) => false,
            Location::Remote(scheme, rest) => {
                let text = format!("{}:{rest}", scheme.text());
                without_login(&text) != text
            }
        }
    }

    /// Is it reached over a network?
    pub fn is_remote(&self) -> bool {
        matches!(self, Location::Remote(..))
    }

    /// The server that is told a login, as it is named, without the login; `None` if none is told
    /// any. Encrypted and not are two: what one is told, everybody hears on the way to the other.
    pub fn server(&self) -> Option<String> {
        let (scheme, rest) = match self {
            Location::Directory(_) | Location::Remote(Scheme::Sftp | Scheme::Rclone, _) => {
                return None;
            }
            Location::Remote(scheme, rest) => (scheme, rest),
        };
        let text = scheme.text();
        if ["gs", "azure", "b2"].contains(&text) {
            return Some(text.to_owned());
        }
        let (way, rest) = match rest.split_once("//") {
            Some((way, rest)) if ["", "http:", "https:"].contains(&way) => (way, rest),
            _ => ("", rest.as_str()),
        };
        let authority = rest.split('/').next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        Some(format!("{text}:{way}{host}"))
    }

    /// The directory, if it is one.
    pub fn into_directory(self) -> Option<PathBuf> {
        match self {
            Location::Directory(path) => Some(path),
            Location::Remote(..) => None,
        }
    }
}

impl From<PathBuf> for Location {
    fn from(path: PathBuf) -> Self {
        Location::Directory(path)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Directory(path) => write!(f, "{}", path.display()),
            Location::Remote(scheme, rest) => {
                f.write_str(&without_login(&format!("{}:{rest}", scheme.text())))
            }
        }
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Location({:?})", self.to_string())
    }
}

/// What may be a user and a password becomes `***`: all between the scheme and the last `@`, since
/// passwords hold any letters. A user alone is shown where it is sure to be one.
fn without_login(text: &str) -> String {
    if text.starts_with("rclone:") {
        return without_settings(text);
    }
    let (begin, is_user_first) = match (text.find("://"), text.find(':')) {
        (Some(slashes), _) => (slashes + "://".len(), true),
        (None, Some(colon)) => (colon + 1, text.starts_with("sftp:")),
        (None, None) => return text.to_owned(),
    };
    match text[begin..].rfind('@') {
        Some(end) if is_user_first && !text[begin..begin + end].contains([':', '%']) => {
            text.to_owned()
        }
        Some(end) => format!("{}***{}", &text[..begin], &text[begin + end..]),
        None => text.to_owned(),
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
            assert!(
                matches!(error, LocationError::UnknownScheme { .. }),
                "{unknown}"
            );
            for known in [
                "local:", "rest:", "sftp:", "rclone:", "webdav:", "ftp:", "ftps:",
            ] {
                assert!(text.contains(known), "{known} in {text}");
            }
        }
    }

    #[test]
    fn directories_are_what_no_scheme_begins() {
        for local in ["/srv/a:b", "./s3:x", "x:y", "repo", "/", ":x", "a b:c"] {
            assert_eq!(
                parse(local),
                Ok(Location::Directory(local.into())),
                "{local}"
            );
        }
        assert_eq!(parse("local:s3:x"), Ok(Location::Directory("s3:x".into())));
        let bytes = OsStr::from_bytes(b"/srv/\xff");
        assert_eq!(
            Location::parse(bytes),
            Ok(Location::Directory(bytes.into()))
        );
    }

    #[test]
    fn a_remote_place_is_its_scheme_and_the_rest() {
        let text = "rest:https://h:8000/x";
        let place = "https://h:8000/x".to_owned();
        assert_eq!(parse(text), Ok(Location::Remote(Scheme::Rest, place)));
        assert_eq!(parse(text).unwrap().to_string(), text);
    }

    #[test]
    fn a_server_is_the_same_whatever_is_behind_it_and_whoever_comes() {
        let server = |text: &str| parse(text).unwrap().server();
        for (one, other) in [
            ("rest:https://h:8000/a", "rest:https://me:x@h:8000/b/c"),
            ("s3:https://h/bucket/a", "s3:https://h/other"),
            ("s3:h/bucket", "s3:h/other"),
            ("b2:bucket:a", "b2:other:b"),
            ("ftp://me@h//a", "ftp://h/b"),
        ] {
            assert_eq!(server(one), server(other), "{one} {other}");
        }
        for (one, other) in [
            ("rest:https://h:8000/a", "rest:http://h:8000/a"),
            ("rest:https://h:8000/a", "rest:https://h:8001/a"),
            ("rest:https://h/a", "webdav:https://h/a"),
            ("ftp://h/a", "ftps://h/a"),
            ("rest:https://h/a", "/srv/a"),
            ("rest:https://h/a", "sftp:me@h:/a"),
        ] {
            assert_ne!(server(one), server(other), "{one} {other}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        let location = parse("rest:https://me:s3cr3t@h:8000/x").unwrap();
        assert_eq!(location.to_string(), "rest:https://***@h:8000/x");
        for user_alone in ["sftp:me@h:/x", "rest:https://me@h/x"] {
            assert_eq!(parse(user_alone).unwrap().to_string(), user_alone);
        }
        for text in [
            "rest:https://me:s3cr3t@h/x",
            "rest:https://me%3as3cr3t@h/x",
            "rest:http://me:s3cr3t/@:@h/x",
            "rest:me:s3cr3t@h/x",
            "rest:https://me:s3cr3t@h/x\n",
            "webdav:https://me:s3cr3t@h/x",
            "ftp://me:s3cr3t@h/x",
            "rclone::sftp,host=h,pass=s3cr3t:x",
            "rclone::sftp,pass=s3cr3t,host=a@b:x",
            "ftps://me:s3cr3t@h:21//x",
            "https://me:s3cr3t@h/x",
            "me:s3cr3t@h:/x",
            "s3:https://me:s3cr3t@h/x",
        ] {
            let shown = match parse(text) {
                Ok(location) => format!("{location} {location:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            assert!(!shown.contains("3cr3t"), "{shown}");
        }
    }

    #[test]
    fn what_names_no_server_is_refused() {
        assert!(matches!(parse("rest:"), Err(LocationError::Empty(..))));
        assert!(matches!(parse("local:"), Err(LocationError::Empty(..))));
        assert!(matches!(
            parse("rest:http://h/\n"),
            Err(LocationError::NoText(_))
        ));
        let no_text = Location::parse(OsStr::from_bytes(b"rest:\xff"));
        assert!(matches!(no_text, Err(LocationError::NoText(_))));
        let long = "x".repeat(LOCATION_BYTES_MAX + 1);
        assert!(matches!(parse(&long), Err(LocationError::TooLong(_))));
    }
}
