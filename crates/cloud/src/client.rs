//! Requests over HTTP, for all stores that speak it, and the only file that knows the library for
//! them: connections with time-outs, certificates that are checked, one request at a time, and its
//! errors in the kinds of `io::Error`.
//!
//! No redirect is followed and no request is made twice. A kind that means something of an object
//! (`NotFound`, `StorageFull` ...) never comes from here. An answer that comes while a body is
//! still sent is read (`early_answer.rs`).

mod early_answer;

use crate::certificate::refused_certificate_text;
use crate::trust;
use bale_repository::store::BadAnswer;
use early_answer::ReadsEarlyAnswers;
use http::{Request, Response};
use std::io::{self, ErrorKind, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    ConnectProxyConnector, Connector, RustlsConnector, TcpConnector,
};
use ureq::{Agent, AsSendBody, Proxy, SendBody, Timeout};

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

/// How servers are reached.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Go through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` name, but for hosts in
    /// `NO_PROXY`.
    pub uses_proxy: bool,
    /// Certificates are needed: they are read, and there must be some.
    pub is_encrypted: bool,
}

/// Connections, kept open between requests. A handle: clones share them.
#[derive(Clone, Debug)]
pub struct HttpConnections {
    agent: Agent,
    /// What speaks there has spoken HTTP before.
    has_answered: Arc<AtomicBool>,
}

/// The body of an answer. Its errors are the library's: see `from_body`.
pub type AnswerBody = ureq::BodyReader<'static>;

impl HttpConnections {
    /// Reads certificates; makes no connection.
    pub fn new(options: &ConnectionOptions) -> io::Result<HttpConnections> {
        let tls = if options.is_encrypted {
            tls_config(options)?
        } else {
            TlsConfig::builder().build()
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
        // The library's usual chain, with one more link below encryption.
        let connector =
            ().chain(ConnectProxyConnector::default())
                .chain(TcpConnector::default())
                .chain(ReadsEarlyAnswers)
                .chain(RustlsConnector::default());
        Ok(HttpConnections {
            agent: Agent::with_parts(config, connector, DefaultResolver::default()),
            has_answered: Arc::default(),
        })
    }

    /// Makes one request. A body must be as long as the request's `Content-Length`. `total_max`
    /// bounds the time of all of it, also of reading the answer.
    pub fn run(
        &self,
        request: Request<()>,
        body: Option<&mut dyn Read>,
        total_max: Option<Duration>,
    ) -> io::Result<Response<AnswerBody>> {
        let is_encrypted = request.uri().scheme() == Some(&http::uri::Scheme::HTTPS);
        let ran = match body {
            None => self.run_with(request, total_max),
            Some(body) => self.run_with(request.map(|()| SendBody::from_reader(body)), total_max),
        };
        match ran {
            Ok(answer) => {
                self.has_answered.store(true, Ordering::Relaxed);
                Ok(answer)
            }
            // The rest of an answer before it, which was longer than it said.
            Err(error) if is_no_http(&error) && self.has_answered.load(Ordering::Relaxed) => {
                let why = format!("what came is no answer: {error}");
                Err(io::Error::new(ErrorKind::ConnectionAborted, why))
            }
            Err(error) if is_no_http(&error) && !is_encrypted => {
                let why = format!("{error}; if it speaks TLS there, write https:// for http://");
                Err(no_http(&why))
            }
            Err(error) => Err(from_library(error)),
        }
    }

    fn run_with<B: AsSendBody>(
        &self,
        request: Request<B>,
        total_max: Option<Duration>,
    ) -> Result<Response<AnswerBody>, ureq::Error> {
        let answer = match total_max {
            None => self.agent.run(request),
            Some(total_max) => {
                let request = self.agent.configure_request(request);
                let request = request.timeout_global(Some(total_max)).build();
                self.agent.run(request)
            }
        };
        Ok(answer?.map(|body| body.into_reader()))
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
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => io::Error::new(
            ErrorKind::TimedOut,
            "no connection to the server within the time-out",
        ),
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

fn tls_config(options: &ConnectionOptions) -> io::Result<TlsConfig> {
    let trusted = trust::trusted(options.ca_file.as_deref())?;
    let trusted = (trusted.iter()).map(|certificate| Certificate::from_der(certificate).to_owned());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(trusted))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
