//! What an HTTP server answers, checked: its status, how many bytes it promises, which range it
//! gives.
//!
//! A server may be broken, hostile, or something else altogether that listens on that port. What
//! it says is believed only as far as it agrees with the request.

use super::{Answer, from_body};
use crate::login::{LoginWords, PRIVATE_PLACES};
use bale_repository::store::BadAnswer;
use http::{StatusCode, header};
use std::io::{self, ErrorKind, Read};

/// Bytes of an error's text that are read.
const TEXT_BYTES_MAX: u64 = 1024;

/// Letters of it that are shown.
const TEXT_LETTERS_MAX: usize = 300;

/// Our own server's reason, also where there is no body.
const WHY_HEADER: &str = "bale-refused";

/// Bytes of what a server says beside a success.
const WORDS_BYTES_MAX: u64 = 64 << 10;

/// The error that a status stands for. `NotFound`, `PermissionDenied`, `StorageFull` and
/// `FileTooLarge` mean what they mean of a directory; `ResourceBusy`: the same request may succeed
/// later.
pub fn refusal(answer: Answer) -> io::Error {
    let status = answer.status();
    let login = answer.extensions().get::<LoginWords>().cloned();
    let has_reason = has_reason(&answer);
    let text = text_of(answer);
    let kind = match status {
        StatusCode::NOT_FOUND => return ErrorKind::NotFound.into(),
        StatusCode::FORBIDDEN if has_reason => {
            let why = format!("the server forbids it (403){text}");
            return io::Error::new(ErrorKind::PermissionDenied, why);
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return refused_login(status, &text, login.as_ref());
        }
        StatusCode::PAYLOAD_TOO_LARGE => {
            let why = format!(
                "the server, or a proxy before it, takes no object as long as this (413){text}: \
                 use smaller packs (--pack-size), or raise its limit"
            );
            return io::Error::new(ErrorKind::FileTooLarge, why);
        }
        StatusCode::INSUFFICIENT_STORAGE => ErrorKind::StorageFull,
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => ErrorKind::TimedOut,
        StatusCode::CONFLICT
        | StatusCode::LOCKED
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

/// Does our own server say why, so that nothing need be guessed?
pub fn has_reason(answer: &Answer) -> bool {
    answer.headers().contains_key(WHY_HEADER)
}

/// The server does not let us, as we are, do this here.
fn refused_login(status: StatusCode, text: &str, login: Option<&LoginWords>) -> io::Error {
    let is_nobody = login.is_some_and(|login| !login.is_given);
    let what = match status {
        StatusCode::UNAUTHORIZED if is_nobody => "the server wants a user and a password (401)",
        StatusCode::UNAUTHORIZED => "the server knows no such user with this password (401)",
        _ => "the server forbids it (403)",
    };
    let mut why = format!("{what}{text}");
    // Who may only add is who he says he is.
    if let Some(login) = login.filter(|_| !text.contains("append-only")) {
        why = format!("{why}; {}", login.text());
        if login.has_private_places {
            why = format!("{why}; {PRIVATE_PLACES}");
        }
    }
    io::Error::new(ErrorKind::PermissionDenied, why)
}

/// The beginning of its first line, without what a terminal would act on.
fn text_of(answer: Answer) -> String {
    let why = answer.headers().get(WHY_HEADER).cloned();
    let mut bytes = Vec::new();
    let mut body = answer.into_body().take(TEXT_BYTES_MAX);
    let _what_came = body.read_to_end(&mut bytes);
    if let Some(why) = why.filter(|_| bytes.is_empty()) {
        bytes.extend_from_slice(why.as_bytes());
    }
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

/// The length that an answer must promise.
pub fn content_length(answer: &Answer) -> io::Result<u64> {
    let promised = promised_length(answer)?;
    promised.ok_or_else(|| invalid("the server does not say how many bytes it sends".to_owned()))
}

/// The length that an answer promises, if it does.
pub fn promised_length(answer: &Answer) -> io::Result<Option<u64>> {
    let mut lengths = answer.headers().get_all(header::CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else {
        return Ok(None);
    };
    if lengths.next().is_some() {
        return Err(invalid(
            "the server says more than once how many bytes it sends".to_owned(),
        ));
    }
    let text = length.to_str().unwrap_or_default();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(length) if is_number => Ok(Some(length)),
        _ => Err(invalid(
            "the server sends a length that is no number".to_owned(),
        )),
    }
}

/// Fills `buf` with the body, which must be exactly as long.
pub fn read_whole(answer: Answer, buf: &mut [u8]) -> io::Result<()> {
    let mut body = answer.into_body();
    body.read_exact(buf).map_err(from_body)?;
    expect_end(&mut body)
}

/// Appends a body of `len` bytes. Memory grows with what came, not with what is promised.
pub fn read_to_vec(answer: Answer, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut body = answer.into_body();
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
        _ => Err(garbled("the server sends more than it promised".to_owned())),
    }
}

/// What an answer to a request for a range brings.
pub enum RangeAnswer {
    /// The range, all of it.
    Range,
    /// The object has so many bytes, and the range ends behind them.
    EndsAt(u64),
    /// There is no such range, the server says, or no such object.
    NotThere,
    /// Something else: by its status, the whole object or a refusal.
    Whole,
}

/// For bytes from `first` to `last`, both of them included.
pub fn range_answer(answer: &Answer, first: u64, last: u64) -> io::Result<RangeAnswer> {
    match (answer.status(), content_range(answer)) {
        (StatusCode::PARTIAL_CONTENT, Some((Some((from, until)), len)))
            if from == first && until == last && until < len =>
        {
            match promised_length(answer)? {
                Some(promised) if promised != last - first + 1 => {
                    let why = "the server sends another number of bytes than it says";
                    Err(garbled(why.to_owned()))
                }
                _ => Ok(RangeAnswer::Range),
            }
        }
        // What there is of it.
        (StatusCode::PARTIAL_CONTENT, Some((Some((from, until)), len)))
            if from == first && until.checked_add(1) == Some(len) && until < last =>
        {
            Ok(RangeAnswer::EndsAt(len))
        }
        (StatusCode::PARTIAL_CONTENT, _) => Err(garbled(format!(
            "the server gives another range than bytes {first} to {last}, which were requested"
        ))),
        (StatusCode::RANGE_NOT_SATISFIABLE, Some((None, len))) if len <= last => {
            Ok(RangeAnswer::EndsAt(len))
        }
        (StatusCode::RANGE_NOT_SATISFIABLE, _) => Ok(RangeAnswer::NotThere),
        _ => Ok(RangeAnswer::Whole),
    }
}

/// A success by its status. What it says beside is read, so that the connection can be used again.
pub fn expect_success(answer: Answer) -> io::Result<()> {
    // 207 holds what went wrong.
    if answer.status() == StatusCode::MULTI_STATUS {
        return Err(unexpected(answer));
    }
    if !answer.status().is_success() {
        return Err(refusal(answer));
    }
    let mut words = answer.into_body().take(WORDS_BYTES_MAX);
    // The status is what counts.
    let _ = io::copy(&mut words, &mut io::sink());
    Ok(())
}

/// A status that is no error, and not the one that fits the request, is an error, too.
pub fn unexpected(answer: Answer) -> io::Error {
    match answer.status() {
        StatusCode::OK => {
            invalid("the server sends the whole object instead of the range requested".to_owned())
        }
        status if status.is_success() => invalid(format!(
            "the server answers {status}, which fits no such request"
        )),
        _ => refusal(answer),
    }
}

/// The length of the whole object, from `Content-Range: bytes FIRST-LAST/LENGTH` or
/// `bytes */LENGTH`, and the range, where there is one.
fn content_range(answer: &Answer) -> Option<(Option<(u64, u64)>, u64)> {
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

/// An answer that contradicts itself or the request: the way to the server may have garbled it, or
/// mixed it up with another. The same request may succeed later.
fn garbled(why: String) -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, why)
}

pub fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, BadAnswer(why))
}
