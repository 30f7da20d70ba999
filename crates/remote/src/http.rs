//! HTTP, as the protocols on it need it, and the only file that knows the library for it:
//! connections with time-outs, certificates that are checked, one request at a time, and its errors
//! in the kinds of `io::Error`.
//!
//! No redirect is followed and no request is made twice. A kind that means something of an object
//! (`NotFound`, `StorageFull` ...) never comes from here.

use crate::certificates;
use crate::login::{LOGIN_ADVICE, LoginWords, StoreLogin};
use crate::throttle::Throttle;
use bale_cloud::refused_certificate_text;
use bale_repository::store::BadAnswer;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ureq::http::{HeaderName, HeaderValue, Method, Request, Response, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body, Proxy, SendBody};
use url::HttpUrl;

pub mod answer;
pub mod url;

/// An answer, its body not read yet.
pub type Answer = Response<Box<dyn Read>>;

/// What makes one request, whatever its status. No redirect is followed and nothing is made twice.
pub trait HttpTransport: Send + Sync {
    /// The body, where there is one, is sent with its length.
    fn request(
        &self,
        method: &Method,
        url: &str,
        headers: &[(HeaderName, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Answer>;
}

/// Bytes of the head of an answer at most.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Connections kept open between requests.
const IDLE_CONNECTIONS_MAX: usize = 8;

/// How long one is kept: less than servers wait for the next request (Go: 120 s; ours: 30 s).
const IDLE_CONNECTION_AGE: Duration = Duration::from_secs(15);

/// A server of names that is away says the same as one that knows no such name.
pub const NAME_NOT_RESOLVED: &str = "the name of the host does not resolve at the moment";

/// What the standard library says of that, in an error without a kind of its own.
const LOOKUP_FAILED: &str = "failed to lookup address information";

/// How a REST server is reached.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// User and password, where the URL names none.
    pub login: Option<StoreLogin>,
    /// How one is given, for the message of a server that wants one.
    pub login_advice: String,
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Go through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` name, but for hosts in
    /// `NO_PROXY`.
    pub uses_proxy: bool,
    /// Bytes a second.
    pub throttle: Throttle,
}

impl Default for HttpOptions {
    fn default() -> Self {
        HttpOptions {
            login: None,
            login_advice: LOGIN_ADVICE.to_owned(),
            ca_file: None,
            connect_timeout: Duration::from_secs(30),
            // A server answers when the object is durable, and a slow disk takes its time.
            idle_timeout: Duration::from_secs(120),
            uses_proxy: true,
            throttle: Throttle::default(),
        }
    }
}

/// Connections to one server.
pub struct HttpClient {
    agent: Agent,
    authorization: Option<HeaderValue>,
    login: LoginWords,
    throttle: Throttle,
    is_encrypted: bool,
    /// What speaks there has spoken HTTP before.
    has_answered: AtomicBool,
}

impl HttpClient {
    /// Reads certificates; makes no connection.
    pub fn new(url: &HttpUrl, options: &HttpOptions) -> io::Result<HttpClient> {
        let tls = match url.is_encrypted() {
            true => tls_config(options)?,
            false => TlsConfig::builder().build(),
        };
        let proxy = options.uses_proxy.then(Proxy::try_from_env).flatten();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .tls_config(tls)
            .allow_non_standard_methods(true)
            .user_agent(concat!("bale/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(options.connect_timeout))
            .timeout_connect(Some(options.connect_timeout))
            .timeout_per_read(Some(options.idle_timeout))
            .timeout_per_write(Some(options.idle_timeout))
            .max_response_header_size(HEAD_BYTES_MAX)
            .max_idle_connections(IDLE_CONNECTIONS_MAX)
            .max_idle_connections_per_host(IDLE_CONNECTIONS_MAX)
            .max_idle_age(IDLE_CONNECTION_AGE)
            .build();
        let login = url.login.as_ref().or(options.login.as_ref());
        Ok(HttpClient {
            agent: config.new_agent(),
            authorization: login.map(authorization).transpose()?,
            login: LoginWords::new(login, &options.login_advice),
            throttle: options.throttle.clone(),
            is_encrypted: url.is_encrypted(),
            has_answered: AtomicBool::new(false),
        })
    }

    /// The same to a server that has no places of its users: none is spoken of where it refuses.
    pub fn without_private_places(mut self) -> HttpClient {
        self.login.has_private_places = false;
        self
    }

    fn run<B: AsSendBody>(
        &self,
        request: Result<Request<B>, ureq::http::Error>,
    ) -> io::Result<Response<Body>> {
        let request = request.map_err(|error| io::Error::other(error.to_string()))?;
        match self.agent.run(request) {
            Ok(answer) => {
                self.has_answered.store(true, Ordering::Relaxed);
                Ok(answer)
            }
            // The rest of an answer before it, which was longer than it said.
            Err(error) if is_no_http(&error) && self.has_answered.load(Ordering::Relaxed) => {
                let why = format!("what came is no answer: {error}");
                Err(io::Error::new(ErrorKind::ConnectionAborted, why))
            }
            Err(error) if is_no_http(&error) && !self.is_encrypted => {
                let why = format!("{error}; if it speaks TLS there, write https:// for http://");
                Err(no_http(&why))
            }
            Err(error) => Err(from_library(error)),
        }
    }
}

impl HttpTransport for HttpClient {
    fn request(
        &self,
        method: &Method,
        url: &str,
        headers: &[(HeaderName, &str)],
        body: Option<&[u8]>,
    ) -> io::Result<Answer> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let mut answer = match body {
            None => self.run(request.body(())),
            Some(bytes) => {
                let request = request.header(header::CONTENT_LENGTH, bytes.len());
                let mut body = self.throttle.uploaded(bytes);
                self.run(request.body(SendBody::from_reader(&mut body)))
            }
        }?;
        answer.extensions_mut().insert(self.login.clone());
        Ok(answer
            .map(|body| Box::new(self.throttle.downloaded(body.into_reader())) as Box<dyn Read>))
    }
}

/// An error while a body was read.
pub fn from_body(error: io::Error) -> io::Error {
    match error.downcast::<ureq::Error>() {
        Ok(error) => from_library(error),
        Err(error) => from_wire(error),
    }
}

fn is_no_http(error: &ureq::Error) -> bool {
    matches!(
        error,
        ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..)
    )
}

fn no_http(why: &str) -> io::Error {
    let why = format!("the server does not speak HTTP as it should: {why}");
    io::Error::new(ErrorKind::InvalidData, BadAnswer(why))
}

fn from_library(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Io(error) => from_wire(error),
        ureq::Error::Timeout(_) => io::Error::new(
            ErrorKind::TimedOut,
            "the server is silent for too long (time-out)",
        ),
        ureq::Error::BodyStalled => io::Error::new(
            ErrorKind::ConnectionAborted,
            "the server ended the connection in the middle of an answer",
        ),
        ureq::Error::HostNotFound => io::Error::new(ErrorKind::HostUnreachable, NAME_NOT_RESOLVED),
        ureq::Error::Rustls(error) => refused_certificate(&error),
        error if is_no_http(&error) => no_http(&error.to_string()),
        error => io::Error::other(error.to_string()),
    }
}

/// Kinds of a connection stay; those that would mean something of an object do not.
pub fn from_wire(error: io::Error) -> io::Error {
    if let Some(tls) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        return refused_certificate(tls);
    }
    if error.to_string().contains(LOOKUP_FAILED) {
        return io::Error::new(
            ErrorKind::HostUnreachable,
            format!("{NAME_NOT_RESOLVED}: {error}"),
        );
    }
    let kind = match error.kind() {
        ErrorKind::UnexpectedEof => {
            let why = "the server ended the connection in the middle of an answer";
            return io::Error::new(ErrorKind::ConnectionAborted, why);
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ErrorKind::TimedOut,
        kind @ (ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::NotConnected
        | ErrorKind::BrokenPipe
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::NetworkDown
        | ErrorKind::AddrNotAvailable
        | ErrorKind::InvalidData
        | ErrorKind::Interrupted) => kind,
        _ => ErrorKind::Other,
    };
    io::Error::new(kind, error.to_string())
}

fn refused_certificate(error: &rustls::Error) -> io::Error {
    io::Error::other(match error {
        rustls::Error::InvalidCertificate(why) => refused_certificate_text(why),
        error => format!("no encrypted connection: {error}"),
    })
}

fn authorization(login: &StoreLogin) -> io::Result<HeaderValue> {
    let text = format!("{}:{}", login.user, login.password);
    let text = format!("Basic {}", BASE64_STANDARD.encode(text));
    let mut value = HeaderValue::try_from(text).map_err(io::Error::other)?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls_config(options: &HttpOptions) -> io::Result<TlsConfig> {
    let trusted = certificates::trusted(options.ca_file.as_deref())?;
    let trusted = (trusted.iter()).map(|certificate| Certificate::from_der(certificate).to_owned());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(trusted))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
