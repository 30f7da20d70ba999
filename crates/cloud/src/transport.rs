//! Requests to clouds, and what is decided of every one of them: a refusal is read and becomes a
//! `Refusal` here, answers are bounded and must fit the request, bytes a second have their bound.
//!
//! No URL is in an error: some clouds have keys in it.

use crate::client::{AnswerBody, HttpConnections, from_body};
use crate::options::CloudOptions;
use crate::pace::Pace;
use crate::refusal::{Answer, Refusal, refusal};
use crate::upload::OutgoingObject;
use bale_pipeline::clock::{Clock, SystemClock};
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use std::io::{self, ErrorKind, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 16 << 10;

/// Bytes of an answer that is no object: a page of a listing has 5,000 names at most, of 1,024
/// bytes.
pub const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Bytes of what is said beside a success that are read, so that the connection can be used again.
const WORDS_BYTES_MAX: u64 = 64 << 10;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// For requests that look for credentials: where there is no such service, nobody answers.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(5);

/// The same of the machine itself, which answers at once or never.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(1);

/// Carries requests. A handle.
#[derive(Clone, Debug)]
pub struct Transport {
    connections: HttpConnections,
    pace: Option<Arc<dyn Pace>>,
    /// Why the last request for credentials failed.
    without_credentials: Arc<Mutex<Option<Refusal>>>,
}

impl Transport {
    /// Reads certificates; makes no connection.
    pub fn new(options: &CloudOptions) -> io::Result<Transport> {
        Ok(Transport {
            connections: HttpConnections::new(&options.connections())?,
            pace: options.pace.clone(),
            without_credentials: Arc::default(),
        })
    }

    /// Why the last request for credentials failed, if it did; forgets it.
    pub fn take_credentials_failure(&self) -> Option<Refusal> {
        self.failure().take()
    }

    fn failure(&self) -> MutexGuard<'_, Option<Refusal>> {
        let failure = self.without_credentials.lock();
        failure.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one request and gives back the head of what is no refusal.
    pub fn send(&self, request: Request<Vec<Bytes>>) -> Result<Incoming, Refusal> {
        self.send_within(request, None)
    }

    fn send_within(
        &self,
        request: Request<Vec<Bytes>>,
        total_max: Option<Duration>,
    ) -> Result<Incoming, Refusal> {
        let (mut parts, body) = request.into_parts();
        let range = parts.headers.get(header::RANGE).cloned();
        let has_body = matches!(parts.method, Method::PUT | Method::POST | Method::PATCH);
        let is_read = parts.method == Method::GET;
        let len: usize = body.iter().map(Bytes::len).sum();
        if has_body {
            parts.headers.insert(header::CONTENT_LENGTH, len.into());
        }
        let mut upload = OutgoingObject::new(body, self.pace.clone());
        let body = has_body.then_some(&mut upload as &mut dyn Read);
        let ran = self
            .connections
            .run(Request::from_parts(parts, ()), body, total_max);
        let answer = Incoming::new(ran.map_err(from_wire)?, self.pace.clone());
        if is_refusal(answer.status) {
            return Err(answer.into_refusal());
        }
        if is_read && let Some(range) = range {
            check_range(&range, &answer)?;
        }
        Ok(answer)
    }

    /// A request of whoever looks for credentials, and the whole answer.
    pub fn look_for_credentials(
        &self,
        request: Request<Vec<Bytes>>,
    ) -> Result<Response<Bytes>, Refusal> {
        let timeout = credentials_timeout(request.uri().host());
        let mut sent = self.send_within(request, Some(timeout));
        if let Err(refusal) = &mut sent
            && refusal.kind == ErrorKind::TimedOut
            && timeout == MACHINE_TIMEOUT
        {
            "no role or account of this machine: its provider does not answer"
                .clone_into(&mut refusal.text);
        }
        match &sent {
            Ok(_) => *self.failure() = None,
            Err(refusal) => *self.failure() = Some(refusal.clone()),
        }
        let answer = sent?;
        let mut head = Response::new(());
        *head.status_mut() = answer.status;
        head.headers_mut().clone_from(&answer.headers);
        let body = answer.read_all(ANSWER_BYTES_MAX)?;
        Ok(head.map(|()| body.into()))
    }
}

/// An answer whose body is read as it comes.
pub struct Incoming {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: AnswerBody,
    pace: Option<Arc<dyn Pace>>,
}

impl Incoming {
    fn new(answer: Response<AnswerBody>, pace: Option<Arc<dyn Pace>>) -> Incoming {
        let (head, body) = answer.into_parts();
        Incoming {
            status: head.status,
            headers: head.headers,
            body,
            pace,
        }
    }

    /// The next bytes; none at the end.
    pub fn read(&mut self, buf: &mut [u8]) -> Result<usize, Refusal> {
        let len = buf.len().min(PIECE_BYTES);
        let read = self.body.read(&mut buf[..len]);
        let read = read.map_err(|error| from_wire(from_body(error)))?;
        if let Some(pace) = self.pace.as_ref().filter(|_| read > 0) {
            std::thread::sleep(pace.download(read));
        }
        Ok(read)
    }

    /// Everything, which is not more than so many bytes.
    pub fn read_all(mut self, bytes_max: u64) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = self.read(&mut piece)?;
            if read == 0 {
                return Ok(bytes);
            }
            if (bytes.len() + read) as u64 > bytes_max {
                let why = "the server's answer is longer than any that fits the request";
                return Err(wire(ErrorKind::InvalidData, why.to_owned()));
            }
            bytes.extend_from_slice(&piece[..read]);
        }
    }

    /// A page of a listing. A page of something else, as networks show it to who is not logged in,
    /// would count as an empty one; so all `words` must stand in it.
    pub fn read_page(self, words: &[&str]) -> Result<Vec<u8>, Refusal> {
        let page = self.read_all(ANSWER_BYTES_MAX)?;
        check_page(&page, words)?;
        Ok(page)
    }

    /// Reads what is said beside a success: the head is what counts.
    pub fn skip(mut self) {
        let mut words = (&mut self.body).take(WORDS_BYTES_MAX);
        // Else the connection is not used again.
        let _ = io::copy(&mut words, &mut io::sink());
    }

    fn into_refusal(mut self) -> Refusal {
        let mut body = Vec::new();
        let mut beginning = (&mut self.body).take(REFUSAL_BYTES_MAX as u64);
        // What came of it, if it breaks off.
        let _ = beginning.read_to_end(&mut body);
        let text = |name: &str| self.headers.get(name)?.to_str().ok();
        let date = text("date").and_then(|date| httpdate::parse_http_date(date).ok());
        let read = Answer {
            status: self.status.as_u16(),
            body: &body,
            code: text("x-ms-error-code"),
            region: text("x-amz-bucket-region"),
            date,
        };
        refusal(&read, SystemClock.now())
    }
}

/// Whether this is a whole page of a listing: the first of the words begins one, the others are in
/// each, also in an empty one.
fn check_page(page: &[u8], words: &[&str]) -> Result<(), Refusal> {
    let text = String::from_utf8_lossy(page);
    if words.iter().all(|word| text.contains(word)) {
        return Ok(());
    }
    let begins = words.first().is_some_and(|word| text.contains(word));
    Err(if begins {
        // Its end is missing, although it is as long as it says.
        wire(
            ErrorKind::ConnectionAborted,
            "a listing is cut short".to_owned(),
        )
    } else {
        let why = "the server answers something that is no listing";
        wire(ErrorKind::InvalidData, why.to_owned())
    })
}

/// Addresses that machines of clouds have for themselves.
fn credentials_timeout(host: Option<&str>) -> Duration {
    let host = host.unwrap_or_default();
    let is_of_machine = host.starts_with("169.254.")
        || ["[fd00:ec2::254]", "metadata.google.internal", "metadata"].contains(&host);
    match is_of_machine {
        true => MACHINE_TIMEOUT,
        false => CREDENTIALS_TIMEOUT,
    }
}

/// 304 is for conditions of readers, 308 says where a resumed upload is.
fn is_refusal(status: StatusCode) -> bool {
    let is_elsewhere = matches!(status.as_u16(), 301 | 302 | 303 | 307);
    is_elsewhere || status.is_client_error() || status.is_server_error()
}

/// A server that knows no ranges sends the whole object.
fn check_range(range: &HeaderValue, answer: &Incoming) -> Result<(), Refusal> {
    let given = answer.headers.get(header::CONTENT_RANGE);
    let requested = range_after("bytes=", Some(range));
    let fits = match (range_after("bytes ", given), requested) {
        // Some say so of an object that ends before the range.
        (Some((first, last)), _) if last < first => {
            return Err(Refusal {
                status: StatusCode::RANGE_NOT_SATISFIABLE.as_u16(),
                kind: ErrorKind::UnexpectedEof,
                text: "the object ends before the range".to_owned(),
                is_archived: false,
            });
        }
        // Some say 200 with a range.
        (Some((first, _)), Some(requested)) => first == requested.0,
        // Without one it is the whole object, which may be what was requested: whoever reads it
        // counts.
        (None, Some((0, _))) => given.is_none() && answer.status == StatusCode::OK,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let why = "the server sends something else than the range requested";
    Err(wire(ErrorKind::InvalidData, why.to_owned()))
}

/// The first byte and the last.
fn range_after(unit: &str, value: Option<&HeaderValue>) -> Option<(u64, u64)> {
    let text = value?.to_str().ok()?.strip_prefix(unit)?;
    let (first, rest) = text.split_once('-')?;
    let last = rest.split('/').next()?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// A failure of a connection, or of what came over it.
pub fn wire(kind: ErrorKind, text: String) -> Refusal {
    Refusal {
        status: 0,
        kind,
        text,
        is_archived: false,
    }
}

/// What the server promised did not come.
pub fn too_little(len: u64, left: u64) -> io::Error {
    io::Error::new(
        ErrorKind::ConnectionAborted,
        format!("{len} bytes were promised, and {left} of them did not come"),
    )
}

/// An answer that is longer than it says.
pub fn more_than_promised() -> io::Error {
    let why = "the server sends more than it promised";
    io::Error::new(ErrorKind::ConnectionAborted, why)
}

/// Kinds that would mean something of an object never come from here.
fn from_wire(error: io::Error) -> Refusal {
    wire(error.kind(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_role_is_not_waited_for() {
        for (host, seconds) in [
            (Some("169.254.169.254"), 1),
            (Some("169.254.170.2"), 1),
            (Some("metadata.google.internal"), 1),
            (Some("sts.amazonaws.com"), 5),
            (Some("oauth2.googleapis.com"), 5),
            (None, 5),
        ] {
            assert_eq!(credentials_timeout(host), Duration::from_secs(seconds));
        }
    }
}
