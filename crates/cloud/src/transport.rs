//! Requests of opendal over reqwest, and nothing that opendal or reqwest decides by itself: a
//! refusal is read and becomes a `Refusal` here, answers are bounded and must fit the request, and
//! silence ends.
//!
//! One of three files that know opendal. Errors leave as its errors with a `Refusal` as their
//! source. No URL is in them: some clouds have keys in it.

use crate::certificate::refused_certificate_text;
use crate::pace::Pace;
use crate::refusal::{Answer, Refusal, refusal};
use crate::watch::{OutgoingObject, PiecesTaken, unless_silent};
use bale_pipeline::clock::{Clock, SystemClock};
use bytes::Bytes;
use futures_util::stream;
use http::header::{self, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use opendal::raw::Operation;
use opendal::{Buffer, Error, HttpBody, HttpTransport};
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Bytes of a refusal that are read.
const REFUSAL_BYTES_MAX: usize = 16 << 10;

/// Bytes of an answer that is no object: a page of a listing has 5,000 names at most, of 1,024
/// bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// For requests that look for credentials: where there is no such service, nobody answers.
const CREDENTIALS_TIMEOUT: Duration = Duration::from_secs(5);

/// The same of the machine itself, which answers at once or never.
const MACHINE_TIMEOUT: Duration = Duration::from_secs(1);

/// Carries requests. A handle.
#[derive(Clone)]
pub struct Transport {
    client: reqwest::Client,
    idle: Duration,
    pace: Option<Arc<dyn Pace>>,
    /// What stands in each page of a listing.
    page_words: &'static [&'static str],
    /// Why the last request for credentials failed.
    without_credentials: Arc<Mutex<Option<Refusal>>>,
}

impl Transport {
    pub fn new(
        client: reqwest::Client,
        idle: Duration,
        pace: Option<Arc<dyn Pace>>,
        page_words: &'static [&'static str],
    ) -> Transport {
        Transport {
            client,
            idle,
            pace,
            page_words,
            without_credentials: Arc::default(),
        }
    }

    /// Why the last request for credentials failed, if it did; forgets it.
    pub fn take_credentials_failure(&self) -> Option<Refusal> {
        self.failure().take()
    }

    fn failure(&self) -> std::sync::MutexGuard<'_, Option<Refusal>> {
        let failure = self.without_credentials.lock();
        failure.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one request and gives back the head of what is no refusal.
    pub async fn send(&self, request: Request<Vec<Bytes>>) -> Result<reqwest::Response, Refusal> {
        let progress = PiecesTaken::default();
        let (parts, body) = request.into_parts();
        let range = parts.headers.get(header::RANGE).cloned();
        let is_read = parts.method == Method::GET;
        let mut request = reqwest::Request::new(
            parts.method,
            reqwest::Url::parse(&parts.uri.to_string())
                .map_err(|_| wire(ErrorKind::InvalidInput, "the address is no URL".to_owned()))?,
        );
        *request.headers_mut() = parts.headers;
        if body.iter().any(|part| !part.is_empty()) {
            let upload = OutgoingObject::new(body, progress.clone(), self.pace.clone());
            *request.body_mut() = Some(reqwest::Body::wrap(upload));
        }
        let sending = self.client.execute(request);
        let sent = unless_silent(self.idle, &progress, sending).await;
        let answer = sent
            .ok_or_else(silent)?
            .map_err(|error| from_wire(&error))?;
        if is_refusal(answer.status()) {
            return Err(self.read_refusal(answer).await);
        }
        if is_read && let Some(range) = range {
            check_range(&range, &answer)?;
        }
        Ok(answer)
    }

    async fn read_refusal(&self, mut answer: reqwest::Response) -> Refusal {
        let mut body = Vec::new();
        while body.len() < REFUSAL_BYTES_MAX
            && let Ok(Ok(Some(piece))) = tokio::time::timeout(self.idle, answer.chunk()).await
        {
            body.extend_from_slice(&piece[..piece.len().min(REFUSAL_BYTES_MAX - body.len())]);
        }
        let text = |name: &str| answer.headers().get(name)?.to_str().ok();
        let date = text("date").and_then(|date| httpdate::parse_http_date(date).ok());
        let read = Answer {
            status: answer.status().as_u16(),
            body: &body,
            code: text("x-ms-error-code"),
            region: text("x-amz-bucket-region"),
            date,
        };
        refusal(&read, SystemClock.now())
    }

    /// Whoever looks for credentials reads refusals himself.
    async fn look_for_credentials(
        &self,
        request: Request<Vec<Bytes>>,
    ) -> Result<Response<HttpBody>, Refusal> {
        let timeout = credentials_timeout(request.uri().host());
        let sent = tokio::time::timeout(timeout, self.send(request)).await;
        let sent = sent.unwrap_or_else(|_| {
            let why = "no role or account of this machine: its provider does not answer";
            Err(match timeout {
                MACHINE_TIMEOUT => wire(ErrorKind::TimedOut, why.to_owned()),
                _ => silent(),
            })
        });
        match &sent {
            Ok(_) => *self.failure() = None,
            Err(refusal) => *self.failure() = Some(refusal.clone()),
        }
        Ok(self.answer(sent?, Some(ANSWER_BYTES_MAX)))
    }

    /// A page of a listing, which opendal reads whole. A page of something else, as networks show
    /// it to who is not logged in, would count as an empty one.
    async fn page(&self, answer: reqwest::Response) -> Result<Response<HttpBody>, Refusal> {
        let mut head = Response::new(());
        *head.status_mut() = answer.status();
        let mut reading = Reading {
            answer,
            idle: self.idle,
            pace: self.pace.clone(),
            left: ANSWER_BYTES_MAX,
        };
        let mut page = Vec::new();
        while let Some(piece) = reading.next().await? {
            page.extend_from_slice(&piece);
        }
        let text = String::from_utf8_lossy(&page);
        if !self.page_words.iter().all(|word| text.contains(word)) {
            let begins = self.page_words.first();
            return Err(match begins.is_some_and(|word| text.contains(word)) {
                // Its end is missing, although it is as long as it says.
                true => wire(
                    ErrorKind::ConnectionAborted,
                    "a listing is cut short".to_owned(),
                ),
                false => {
                    let why = "the server answers something that is no listing";
                    wire(ErrorKind::InvalidData, why.to_owned())
                }
            });
        }
        drop(text);
        let pieces = stream::iter([Ok(Buffer::from(page))]);
        Ok(head.map(|()| HttpBody::new(pieces, None)))
    }

    fn answer(&self, answer: reqwest::Response, bytes_max: Option<u64>) -> Response<HttpBody> {
        let mut head = Response::new(());
        *head.status_mut() = answer.status();
        *head.headers_mut() = answer.headers().clone();
        let len = answer
            .content_length()
            .filter(|_| has_length(answer.headers()));
        let reading = Reading {
            answer,
            idle: self.idle,
            pace: self.pace.clone(),
            left: bytes_max.unwrap_or(u64::MAX),
        };
        let pieces = stream::try_unfold(reading, |mut reading| async move {
            let piece = reading.next().await.map_err(to_opendal)?;
            Ok(piece.map(|piece| (Buffer::from(piece), reading)))
        });
        head.map(|()| HttpBody::new(Box::pin(pieces), len))
    }
}

/// opendal reads the length of a HEAD from its header, and that of a body as a promise.
fn has_length(headers: &HeaderMap) -> bool {
    headers.contains_key(header::CONTENT_LENGTH)
}

impl HttpTransport for Transport {
    async fn fetch(&self, request: Request<Buffer>) -> opendal::Result<Response<HttpBody>> {
        let operation = request.extensions().get::<Operation>().copied();
        let is_head = request.method() == Method::HEAD;
        let request = request.map(|body| body.into_iter().collect::<Vec<Bytes>>());
        let Some(operation) = operation else {
            return self.look_for_credentials(request).await.map_err(to_opendal);
        };
        let answer = self.send(request).await.map_err(to_opendal)?;
        let bytes_max = match operation {
            Operation::List => return self.page(answer).await.map_err(to_opendal),
            Operation::Read => None,
            _ => Some(ANSWER_BYTES_MAX),
        };
        if is_head {
            let mut head = Response::new(HttpBody::new(stream::empty(), None));
            *head.status_mut() = answer.status();
            *head.headers_mut() = answer.headers().clone();
            return Ok(head);
        }
        Ok(self.answer(answer, bytes_max))
    }
}

/// A body that is read as it comes.
struct Reading {
    answer: reqwest::Response,
    idle: Duration,
    pace: Option<Arc<dyn Pace>>,
    left: u64,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let read = tokio::time::timeout(self.idle, self.answer.chunk()).await;
            let piece = read
                .map_err(|_| silent())?
                .map_err(|error| from_wire(&error))?;
            let Some(piece) = piece else {
                return Ok(None);
            };
            let Some(left) = self.left.checked_sub(piece.len() as u64) else {
                let why = "the server's answer is longer than any that fits the request";
                return Err(wire(ErrorKind::InvalidData, why.to_owned()));
            };
            self.left = left;
            let pause = self.pace.as_ref().map(|pace| pace.download(piece.len()));
            if let Some(pause) = pause.filter(|pause| !pause.is_zero()) {
                tokio::time::sleep(pause).await;
            }
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
        }
    }
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
fn check_range(range: &HeaderValue, answer: &reqwest::Response) -> Result<(), Refusal> {
    let given = answer.headers().get(header::CONTENT_RANGE);
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
        (None, Some((0, _))) => given.is_none() && answer.status() == StatusCode::OK,
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

fn wire(kind: ErrorKind, text: String) -> Refusal {
    Refusal {
        status: 0,
        kind,
        text,
        is_archived: false,
    }
}

fn silent() -> Refusal {
    let why = "the server is silent for too long (time-out)";
    wire(ErrorKind::TimedOut, why.to_owned())
}

/// What happened to a connection. Kinds that would mean something of an object never come from
/// here.
fn from_wire(error: &reqwest::Error) -> Refusal {
    if error.is_connect() && error.is_timeout() {
        return wire(
            ErrorKind::TimedOut,
            "no connection within the time-out".to_owned(),
        );
    }
    let mut next = error.source();
    let mut last = error.to_string();
    while let Some(cause) = next {
        if let Some(tls) = tls_inside(cause) {
            return refused_certificate(tls);
        }
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && let Some(kind) = kind_of_connection(io.kind())
        {
            return wire(kind, io.to_string());
        }
        last = cause.to_string();
        next = cause.source();
    }
    match error.is_connect() {
        true => wire(ErrorKind::HostUnreachable, format!("no connection: {last}")),
        false => wire(
            ErrorKind::ConnectionAborted,
            format!("the connection ended in the middle of a request: {last}"),
        ),
    }
}

/// An error of TLS may be in one of I/O, and that in another, which is no `source` of it.
fn tls_inside<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let mut error = error;
    while let Some(io) = error.downcast_ref::<io::Error>() {
        error = io.get_ref()?;
    }
    error.downcast_ref()
}

fn kind_of_connection(kind: ErrorKind) -> Option<ErrorKind> {
    match kind {
        ErrorKind::UnexpectedEof => Some(ErrorKind::ConnectionAborted),
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::BrokenPipe
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::TimedOut => Some(kind),
        _ => None,
    }
}

fn refused_certificate(error: &rustls::Error) -> Refusal {
    let text = match error {
        rustls::Error::InvalidCertificate(why) => refused_certificate_text(why),
        error => format!("no encrypted connection: {error}"),
    };
    wire(ErrorKind::Other, text)
}

fn to_opendal(refusal: Refusal) -> Error {
    Error::new(opendal::ErrorKind::Unexpected, "request").set_source(refusal)
}

/// When an answer says that it was made.
pub fn system_time(time: opendal::raw::Timestamp) -> SystemTime {
    time.into()
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
