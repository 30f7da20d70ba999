//! The only file that knows the HTTP library: connections with time-outs, certificates that are
//! checked, one request at a time, and its errors in the kinds of `io::Error`.
//!
//! No redirect is followed and no request is made twice. A kind that means something of an object
//! (`NotFound`, `StorageFull` ...) never comes from here.

use super::url::{RestLogin, RestUrl};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::{HeaderValue, Method, Request, Response, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, AsSendBody, Body, Proxy};

/// What servers say of a listing with sizes.
const LISTING_TYPE: &str = "application/vnd.x.restic.rest.v2";

/// Bytes of the head of an answer at most.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// Connections kept open between requests.
const IDLE_CONNECTIONS_MAX: usize = 8;

/// How long one is kept: less than servers wait for the next request (Go: 120 s; ours: 30 s).
const IDLE_CONNECTION_AGE: Duration = Duration::from_secs(15);

/// How a REST server is reached.
#[derive(Clone, Debug)]
pub struct RestOptions {
    /// User and password, where the URL names none.
    pub login: Option<RestLogin>,
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Go through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` name, but for hosts in
    /// `NO_PROXY`.
    pub uses_proxy: bool,
}

impl Default for RestOptions {
    fn default() -> Self {
        RestOptions {
            login: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(30),
            // A server answers when the object is durable, and a slow disk takes its time.
            idle_timeout: Duration::from_secs(120),
            uses_proxy: true,
        }
    }
}

/// Connections to one server.
pub struct HttpClient {
    agent: Agent,
    authorization: Option<HeaderValue>,
}

/// What a request carries.
pub enum Ask<'a> {
    Nothing,
    /// Bytes from the first to the last, both of them included.
    Range(u64, u64),
    Listing,
    Body(&'a [u8]),
}

impl HttpClient {
    /// Reads certificates; makes no connection.
    pub fn new(url: &RestUrl, options: &RestOptions) -> io::Result<HttpClient> {
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
        })
    }

    /// Makes one request, whatever its status.
    pub fn request(&self, method: Method, url: &str, ask: Ask<'_>) -> io::Result<Response<Body>> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        match ask {
            Ask::Nothing => self.run(request.body(())),
            Ask::Range(first, last) => {
                let range = format!("bytes={first}-{last}");
                self.run(request.header(header::RANGE, range).body(()))
            }
            Ask::Listing => self.run(request.header(header::ACCEPT, LISTING_TYPE).body(())),
            Ask::Body(bytes) => {
                let kind = "application/octet-stream";
                self.run(request.header(header::CONTENT_TYPE, kind).body(bytes))
            }
        }
    }

    fn run<B: AsSendBody>(
        &self,
        request: Result<Request<B>, ureq::http::Error>,
    ) -> io::Result<Response<Body>> {
        let request = request.map_err(|error| io::Error::other(error.to_string()))?;
        self.agent.run(request).map_err(from_library)
    }
}

/// An error while a body was read.
pub fn from_body(error: io::Error) -> io::Error {
    match error.downcast::<ureq::Error>() {
        Ok(error) => from_library(error),
        Err(error) => from_wire(error),
    }
}

fn from_library(error: ureq::Error) -> io::Error {
    match error {
        ureq::Error::Io(error) => from_wire(error),
        ureq::Error::Timeout(_) => io::Error::new(
            ErrorKind::TimedOut,
            "the server is silent for too long (time-out)",
        ),
        ureq::Error::HostNotFound => {
            io::Error::new(ErrorKind::HostUnreachable, "there is no host of that name")
        }
        ureq::Error::Rustls(error) => refused_certificate(&error),
        error @ (ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..)) => {
            let why = format!("the server does not speak HTTP as it should: {error}");
            io::Error::new(ErrorKind::InvalidData, why)
        }
        error => io::Error::other(error.to_string()),
    }
}

/// Kinds of a connection stay; those that would mean something of an object do not.
fn from_wire(error: io::Error) -> io::Error {
    if let Some(tls) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        return refused_certificate(tls);
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
        rustls::Error::InvalidCertificate(why) => format!(
            "the server's certificate is refused: {why:?}. If it is signed by an authority of your \
             own, name the file of its certificate"
        ),
        error => format!("no encrypted connection: {error}"),
    })
}

fn authorization(login: &RestLogin) -> io::Result<HeaderValue> {
    let text = format!("{}:{}", login.user, login.password);
    let text = format!("Basic {}", BASE64_STANDARD.encode(text));
    let mut value = HeaderValue::try_from(text).map_err(io::Error::other)?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls_config(options: &RestOptions) -> io::Result<TlsConfig> {
    let trusted = match &options.ca_file {
        Some(path) => {
            let at_file = |why: String| {
                io::Error::other(format!("read certificates from {}: {why}", path.display()))
            };
            let read = CertificateDer::pem_file_iter(path);
            let read = read.and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
            let certificates = read.map_err(|error| at_file(error.to_string()))?;
            if certificates.is_empty() {
                return Err(at_file("there is none in it".to_owned()));
            }
            certificates
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            if found.certs.is_empty() {
                let why = "this system has no certificates of authorities (package \
                           ca-certificates), and no file of them is named";
                return Err(io::Error::other(why));
            }
            found.certs
        }
    };
    let trusted = (trusted.iter()).map(|certificate| Certificate::from_der(certificate).to_owned());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(trusted))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .build())
}
