//! What a REST server answers, checked: its status, how many bytes it promises, which range it
//! gives.
//!
//! A server may be broken, hostile, or something else altogether that listens on that port. What
//! it says is believed only as far as it agrees with the request.

use super::http::from_body;
use std::io::{self, ErrorKind, Read};
use ureq::Body;
use ureq::http::{Response, StatusCode, header};

/// Bytes of an error's text that are read.
const TEXT_BYTES_MAX: u64 = 512;

/// Letters of it that are shown.
const TEXT_LETTERS_MAX: usize = 160;

/// What `bale serve` puts into each answer.
pub const OWN_HEADER: &str = "bale-protocol";

/// The error that a status stands for. `NotFound`, `PermissionDenied`, `StorageFull` and
/// `FileTooLarge` mean what they mean of a directory; `ResourceBusy`: the same request may succeed
/// later.
pub fn refusal(answer: Response<Body>) -> io::Error {
    let status = answer.status();
    let text = text_of(answer);
    let kind = match status {
        StatusCode::NOT_FOUND => return ErrorKind::NotFound.into(),
        StatusCode::UNAUTHORIZED => {
            let why = "the server knows no such user with this password (401)";
            return io::Error::new(ErrorKind::PermissionDenied, format!("{why}{text}"));
        }
        StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::FileTooLarge,
        StatusCode::INSUFFICIENT_STORAGE => ErrorKind::StorageFull,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => ErrorKind::TimedOut,
        StatusCode::CONFLICT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE => ErrorKind::ResourceBusy,
        _ => ErrorKind::Other,
    };
    if status.is_redirection() {
        let why = format!(
            "the server sends elsewhere ({status}), where nothing is sent: a \
                           redirect would get the password. Name the place itself"
        );
        return io::Error::new(kind, why);
    }
    io::Error::new(kind, format!("the server answers {status}{text}"))
}

/// The beginning of its first line, without what a terminal would act on.
fn text_of(answer: Response<Body>) -> String {
    let mut bytes = Vec::new();
    let mut body = answer.into_body().into_reader().take(TEXT_BYTES_MAX);
    let _what_came = body.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    let line = text.trim_start().lines().next().unwrap_or_default();
    let shown: String = (line.chars().filter(|letter| !letter.is_control()))
        .take(TEXT_LETTERS_MAX)
        .collect();
    match shown.trim() {
        "" => String::new(),
        // A page for browsers says nothing to a terminal.
        text if text.starts_with('<') => String::new(),
        text => format!(": {text}"),
    }
}

/// The length that an answer promises. Servers of this protocol always promise one.
pub fn content_length(answer: &Response<Body>) -> io::Result<u64> {
    let mut lengths = answer.headers().get_all(header::CONTENT_LENGTH).iter();
    let (Some(length), None) = (lengths.next(), lengths.next()) else {
        return Err(invalid(
            "the server does not say, once, how many bytes it sends".to_owned(),
        ));
    };
    let text = length.to_str().unwrap_or_default();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(length) if is_number => Ok(length),
        _ => Err(invalid(
            "the server sends a length that is no number".to_owned(),
        )),
    }
}

/// Fills `buf` with the body, which must be exactly as long.
pub fn read_whole(answer: Response<Body>, buf: &mut [u8]) -> io::Result<()> {
    let mut body = answer.into_body().into_reader();
    body.read_exact(buf).map_err(from_body)?;
    expect_end(&mut body)
}

/// Appends a body of `len` bytes. Memory grows with what came, not with what is promised.
pub fn read_to_vec(answer: Response<Body>, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut body = answer.into_body().into_reader();
    (&mut body)
        .take(len)
        .read_to_end(&mut bytes)
        .map_err(from_body)?;
    if bytes.len() as u64 != len {
        let why = format!("{len} bytes were promised, and {} came", bytes.len());
        return Err(io::Error::new(ErrorKind::ConnectionAborted, why));
    }
    expect_end(&mut body)?;
    Ok(bytes)
}

/// Reading on to the end also gives the connection back.
fn expect_end(body: &mut impl Read) -> io::Result<()> {
    match body.read(&mut [0]).map_err(from_body)? {
        0 => Ok(()),
        _ => Err(invalid("the server sends more than it promised".to_owned())),
    }
}

/// The length of the whole object, from `Content-Range: bytes FIRST-LAST/LENGTH` or
/// `bytes */LENGTH`, and the range, where there is one.
pub fn content_range(answer: &Response<Body>) -> Option<(Option<(u64, u64)>, u64)> {
    let text = answer.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, len) = text.strip_prefix("bytes ")?.split_once('/')?;
    let number = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    let len = number(len)?;
    if range == "*" {
        return Some((None, len));
    }
    let (first, last) = range.split_once('-')?;
    Some((Some((number(first)?, number(last)?)), len))
}

pub fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}
