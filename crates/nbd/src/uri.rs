//! `nbd://HOST[:PORT]/EXPORT` and `nbd+unix:///EXPORT?socket=PATH`: where an export is, as the URI
//! specification of NBD writes it; with `nbds` for `nbd`, encrypted. `bitmap=NAME` is ours: the
//! dirty bitmap that says what changed.
//!
//! What is not understood is refused: an option that is left out in silence may have been one that
//! protects.

use crate::wire::DIRTY_BITMAP_PREFIX;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// Where NBD servers listen if nobody says otherwise.
const PORT: u16 = 10809;

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdTransport {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdUri {
    pub transport: NbdTransport,
    pub is_encrypted: bool,
    /// Directory with `ca-cert.pem`, by which the server's certificate must be signed.
    pub certificates: Option<PathBuf>,
    /// Empty: the server's default.
    pub export: String,
    /// Name of a dirty bitmap of QEMU that says what changed. It is no part of where the export is.
    pub bitmap: Option<String>,
}

/// Why a text is no URI of an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NbdUriError {
    #[error("it begins with none of nbd://, nbds://, nbd+unix:// and nbds+unix://")]
    Scheme,
    #[error("it names a user, which is for shared keys of TLS: those are not supported")]
    User,
    #[error("it has no host: letters, digits, dots and dashes, or an IPv6 address in brackets")]
    Host,
    #[error("its port is no number from 1 to 65535")]
    Port,
    #[error("it names a host; a socket has none: nbd+unix:///EXPORT?socket=PATH")]
    HostOfSocket,
    #[error("it does not say where the socket is: nbd+unix:///EXPORT?socket=PATH")]
    NoSocket,
    #[error("the name of its export is longer than 4096 bytes")]
    Export,
    #[error("the name of its bitmap is longer than 4096 bytes with its prefix")]
    Bitmap,
    #[error("it has a % that no two hex digits follow, a zero, or bytes that are not UTF-8")]
    Escape,
    #[error("its option {0} is not known; socket, tls-certificates and bitmap are")]
    Option(String),
    #[error("its option {0} is there twice, or for another kind of connection")]
    OptionTwice(&'static str),
    #[error("it has a fragment, which means nothing here: write # as %23")]
    Fragment,
}

impl NbdUri {
    /// Is this to be read as the URI of an export?
    pub fn is_meant(text: &str) -> bool {
        let scheme = text.split_once("://").map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| scheme.starts_with("nbd"))
    }

    /// What may be shown of a text that is meant as a URI: as it would be written, or, of one that
    /// is none, all but what may be a user and a password.
    pub fn shown(text: &str) -> String {
        if let Ok(uri) = NbdUri::parse(text) {
            return uri.to_string();
        }
        let begin = text.find("://").map_or(0, |scheme| scheme + "://".len());
        match text[begin..].rfind('@') {
            Some(at) => format!("{}***{}", &text[..begin], &text[begin + at..]),
            None => text.to_owned(),
        }
    }

    pub fn parse(text: &str) -> Result<NbdUri, NbdUriError> {
        let (scheme, rest) = text.split_once("://").ok_or(NbdUriError::Scheme)?;
        let (is_encrypted, is_unix) = match scheme {
            "nbd" => (false, false),
            "nbds" => (true, false),
            "nbd+unix" => (false, true),
            "nbds+unix" => (true, true),
            _ => return Err(NbdUriError::Scheme),
        };
        if rest.contains('#') {
            return Err(NbdUriError::Fragment);
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(NbdUriError::User);
        }
        let export = unescape(path)?;
        if export.len() > crate::wire::TEXT_BYTES_MAX {
            return Err(NbdUriError::Export);
        }
        let options = UriOptions::parse(query)?;
        let bitmap_bytes = options.bitmap.as_ref().map_or(0, String::len);
        if bitmap_bytes > crate::wire::TEXT_BYTES_MAX - DIRTY_BITMAP_PREFIX.len() {
            return Err(NbdUriError::Bitmap);
        }
        if options.socket.is_some() && !is_unix {
            return Err(NbdUriError::OptionTwice("socket"));
        }
        if options.certificates.is_some() && !is_encrypted {
            return Err(NbdUriError::OptionTwice("tls-certificates"));
        }
        let transport = match is_unix {
            true if !authority.is_empty() => return Err(NbdUriError::HostOfSocket),
            true => NbdTransport::Unix(options.socket.ok_or(NbdUriError::NoSocket)?.into()),
            false => {
                let (host, port) = read_authority(authority)?;
                NbdTransport::Tcp { host, port }
            }
        };
        Ok(NbdUri {
            transport,
            is_encrypted,
            certificates: options.certificates.map(PathBuf::from),
            export,
            bitmap: options.bitmap,
        })
    }
}

impl fmt::Display for NbdUri {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secure = if self.is_encrypted { "s" } else { "" };
        let export = escape(&self.export);
        match &self.transport {
            NbdTransport::Tcp { host, port } => {
                let (open, close) = match host.contains(':') {
                    true => ("[", "]"),
                    false => ("", ""),
                };
                write!(out, "nbd{secure}://{open}{host}{close}:{port}/{export}")
            }
            NbdTransport::Unix(path) => {
                let path = escape(&path.to_string_lossy());
                write!(out, "nbd{secure}+unix:///{export}?socket={path}")
            }
        }
    }
}

#[derive(Default)]
struct UriOptions {
    socket: Option<String>,
    certificates: Option<String>,
    bitmap: Option<String>,
}

impl UriOptions {
    fn parse(query: &str) -> Result<UriOptions, NbdUriError> {
        let mut options = UriOptions::default();
        for option in query.split(['&', ';']).filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let (name, value) = (unescape(name)?, unescape(value)?);
            let (place, name) = match name.as_str() {
                "socket" => (&mut options.socket, "socket"),
                "tls-certificates" => (&mut options.certificates, "tls-certificates"),
                "bitmap" => (&mut options.bitmap, "bitmap"),
                _ => return Err(NbdUriError::Option(crate::shown::shown(name.as_bytes()))),
            };
            if place.is_some() || value.is_empty() {
                return Err(NbdUriError::OptionTwice(name));
            }
            *place = Some(value);
        }
        Ok(options)
    }
}

/// `HOST` or `HOST:PORT`; an IPv6 address stands in brackets, and is given without them.
fn read_authority(text: &str) -> Result<(String, u16), NbdUriError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, after) = rest.split_once(']').ok_or(NbdUriError::Host)?;
            let _: Ipv6Addr = address.parse().map_err(|_| NbdUriError::Host)?;
            let port = match after.strip_prefix(':') {
                None if !after.is_empty() => return Err(NbdUriError::Host),
                port => port,
            };
            (address, port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_plain) {
        return Err(NbdUriError::Host);
    }
    let number = |digits: &str| {
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let port = digits.parse().ok().filter(|port| *port != 0 && is_number);
        port.ok_or(NbdUriError::Port)
    };
    let port = port.map(number).transpose()?.unwrap_or(PORT);
    Ok((host.to_owned(), port))
}

fn unescape(text: &str) -> Result<String, NbdUriError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>().ok_or(NbdUriError::Escape)?;
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        let (Some(high), Some(low)) = (high, low) else {
            return Err(NbdUriError::Escape);
        };
        // Two digits are less than 256.
        bytes.push((high * 16 + low) as u8);
        rest = after;
    }
    let text = String::from_utf8(bytes).map_err(|_| NbdUriError::Escape)?;
    match text.contains('\0') {
        true => Err(NbdUriError::Escape),
        false => Ok(text),
    }
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            true => escaped.push(byte.into()),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> NbdTransport {
        let host = host.to_owned();
        NbdTransport::Tcp { host, port }
    }

    #[test]
    fn uris_are_read_as_the_specification_writes_them() {
        let cases = [
            ("nbd://example.com", tcp("example.com", 10809), false, ""),
            ("nbd://[::1]:99/a/b", tcp("::1", 99), false, "a/b"),
            (
                "nbds://h.example/%2Fx%20y",
                tcp("h.example", 10809),
                true,
                "/x y",
            ),
            (
                "nbd+unix:///e?socket=/tmp/a%3Fb",
                NbdTransport::Unix("/tmp/a?b".into()),
                false,
                "e",
            ),
            (
                "nbd+unix://?socket=s",
                NbdTransport::Unix("s".into()),
                false,
                "",
            ),
        ];
        for (text, transport, is_encrypted, export) in cases {
            let uri = NbdUri::parse(text).unwrap();
            assert_eq!(uri.transport, transport, "{text}");
            assert_eq!(
                (uri.is_encrypted, uri.export.as_str()),
                (is_encrypted, export)
            );
            assert_eq!(NbdUri::parse(&uri.to_string()), Ok(uri), "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_and_not_left_out() {
        let cases = [
            ("/dev/sda", NbdUriError::Scheme),
            ("nbd+vsock://1/", NbdUriError::Scheme),
            ("nbd+ssh://h/", NbdUriError::Scheme),
            ("nbd://", NbdUriError::Host),
            ("nbd://[::1/", NbdUriError::Host),
            ("nbd://a b/", NbdUriError::Host),
            ("nbd://h:0/", NbdUriError::Port),
            ("nbd://h:+1/", NbdUriError::Port),
            ("nbds://user@h/", NbdUriError::User),
            ("nbd+unix:///e", NbdUriError::NoSocket),
            ("nbd+unix://h/e?socket=s", NbdUriError::HostOfSocket),
            ("nbd://h/?socket=s", NbdUriError::OptionTwice("socket")),
            ("nbd://h/?bitmap=", NbdUriError::OptionTwice("bitmap")),
            (
                "nbd://h/?tls-certificates=d",
                NbdUriError::OptionTwice("tls-certificates"),
            ),
            (
                "nbd+unix:///?socket=a&socket=b",
                NbdUriError::OptionTwice("socket"),
            ),
            (
                "nbds://h/?tls-verify-peer=0",
                NbdUriError::Option("tls-verify-peer".to_owned()),
            ),
            ("nbd://h/%", NbdUriError::Escape),
            ("nbd://h/%zz", NbdUriError::Escape),
            ("nbd://h/%ff", NbdUriError::Escape),
            ("nbd+unix:///?socket=a%00b", NbdUriError::Escape),
            ("nbd://h/a#b", NbdUriError::Fragment),
        ];
        for (text, error) in cases {
            assert_eq!(NbdUri::parse(text), Err(error), "{text}");
        }
        let shown = NbdUri::shown("nbds://user:pass@word@h/e");
        assert_eq!(shown, "nbds://***@h/e");
        assert_eq!(NbdUri::shown("nbd://h"), "nbd://h:10809/");
        let long = format!("nbd://h/{}", "x".repeat(4097));
        assert_eq!(NbdUri::parse(&long), Err(NbdUriError::Export));
        let long = format!("nbd://h/?bitmap={}", "x".repeat(4096));
        assert_eq!(NbdUri::parse(&long), Err(NbdUriError::Bitmap));
    }

    #[test]
    fn a_bitmap_is_no_part_of_where_an_export_is() {
        let uri = NbdUri::parse("nbd+unix:///e?socket=/s&bitmap=b%20c").unwrap();
        assert_eq!(uri.bitmap.as_deref(), Some("b c"));
        assert_eq!(uri.to_string(), "nbd+unix:///e?socket=/s");
    }
}
