//! HTTP, as the protocols on it need it: requests with a login and a bound on bytes a second, over
//! the connections that all stores share (`bale_cloud::client`).
//!
//! No redirect is followed and no request is made twice. A kind that means something of an object
//! (`NotFound`, `StorageFull` ...) never comes from here.

use crate::login::{LOGIN_ADVICE, LoginWords, StoreLogin};
use crate::throttle::Throttle;
use bale_cloud::client::{ConnectionOptions, HttpConnections};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue, Method, Request, Response, header};
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::Duration;
use url::HttpUrl;

pub use bale_cloud::client::{NAME_NOT_RESOLVED, from_body, from_wire};

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
    connections: HttpConnections,
    authorization: Option<HeaderValue>,
    login: LoginWords,
    throttle: Throttle,
}

impl HttpClient {
    /// Reads certificates; makes no connection.
    pub fn new(url: &HttpUrl, options: &HttpOptions) -> io::Result<HttpClient> {
        let login = url.login.as_ref().or(options.login.as_ref());
        let connections = ConnectionOptions {
            ca_file: options.ca_file.clone(),
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            uses_proxy: options.uses_proxy,
            is_encrypted: url.is_encrypted(),
        };
        Ok(HttpClient {
            connections: HttpConnections::new(&connections)?,
            authorization: login.map(authorization).transpose()?,
            login: LoginWords::new(login, &options.login_advice),
            throttle: options.throttle.clone(),
        })
    }

    /// The same to a server that has no places of its users: none is spoken of where it refuses.
    pub fn without_private_places(mut self) -> HttpClient {
        self.login.has_private_places = false;
        self
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
        if let Some(bytes) = body {
            request = request.header(header::CONTENT_LENGTH, bytes.len());
        }
        let request = request.body(());
        let request = request.map_err(|error| io::Error::other(error.to_string()))?;
        let mut body = body.map(|bytes| self.throttle.uploaded(bytes));
        let body = body.as_mut().map(|body| body as &mut dyn Read);
        let mut answer = self.connections.run(request, body, None)?;
        answer.extensions_mut().insert(self.login.clone());
        Ok(answer.map(|body| Box::new(self.throttle.downloaded(body)) as Box<dyn Read>))
    }
}

fn authorization(login: &StoreLogin) -> io::Result<HeaderValue> {
    let text = format!("{}:{}", login.user, login.password);
    let text = format!("Basic {}", BASE64_STANDARD.encode(text));
    let mut value = HeaderValue::try_from(text).map_err(io::Error::other)?;
    value.set_sensitive(true);
    Ok(value)
}
