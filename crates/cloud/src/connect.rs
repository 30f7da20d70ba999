//! Connections: certificates that are checked, time-outs, proxies, and the threads behind all of
//! them.

use crate::pace::Pace;
use crate::variables::Variables;
use reqwest::redirect::Policy;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Connections to one host that are kept open between requests.
const IDLE_CONNECTIONS_MAX: usize = 8;

/// How long one is kept: less than servers wait for the next request.
const IDLE_CONNECTION_AGE: Duration = Duration::from_secs(15);

/// Threads that move bytes, for all stores of a process: encryption of what goes over the wire is
/// what they do.
const THREADS: usize = 2;

/// Threads for names of hosts and files with keys.
const BLOCKING_THREADS_MAX: usize = 4;

/// How clouds are reached.
#[derive(Clone, Debug)]
pub struct CloudOptions {
    /// Where keys, regions and the like come from.
    pub environment: Variables,
    /// Certificates (PEM) that are believed instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Without a byte in either direction.
    pub idle_timeout: Duration,
    /// Go through the proxy that `HTTPS_PROXY`, `HTTP_PROXY` or `ALL_PROXY` name, but for hosts in
    /// `NO_PROXY`.
    pub uses_proxy: bool,
    /// A bound on bytes a second.
    pub pace: Option<Arc<dyn Pace>>,
    /// Where B2 says which host speaks S3.
    pub b2_api: String,
    /// Class of storage of packs of data in S3, where it is not the bucket's.
    pub data_class: Option<String>,
}

impl Default for CloudOptions {
    fn default() -> Self {
        CloudOptions {
            environment: Variables::default(),
            ca_file: None,
            connect_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            uses_proxy: true,
            pace: None,
            b2_api: "https://api.backblazeb2.com".to_owned(),
            data_class: None,
        }
    }
}

/// Reads certificates; makes no connection. No redirect is followed: it would get the signature.
pub fn client(options: &CloudOptions) -> io::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls(options.ca_file.as_deref())?)
        .user_agent(concat!("bale/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .http1_only()
        .connect_timeout(options.connect_timeout)
        .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
        .pool_idle_timeout(IDLE_CONNECTION_AGE);
    if !options.uses_proxy {
        builder = builder.no_proxy();
    }
    builder
        .build()
        .map_err(|error| io::Error::other(error.to_string()))
}

fn tls(ca_file: Option<&Path>) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in certificates_of(path)? {
                let added = roots.add(certificate);
                added.map_err(|error| at_file(path, error.to_string()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() && ca_file.is_none() {
        return Err(io::Error::other(
            "this system has no certificates of authorities (package ca-certificates), and no \
             file of them is named",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn certificates_of(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path);
    let read = read.and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>());
    let certificates = read.map_err(|error| at_file(path, error.to_string()))?;
    match certificates.is_empty() {
        true => Err(at_file(path, "there is none in it".to_owned())),
        false => Ok(certificates),
    }
}

fn at_file(path: &Path, why: String) -> io::Error {
    io::Error::other(format!("read certificates from {}: {why}", path.display()))
}

/// Waits for `work` on this thread; the threads behind it serve all callers.
pub fn wait_for<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    runtime()?.block_on(work)
}

fn runtime() -> io::Result<&'static Runtime> {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    if let Some(runtime) = RUNTIME.get() {
        return Ok(runtime);
    }
    let made = Builder::new_multi_thread()
        .worker_threads(THREADS)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("bale-cloud")
        .enable_all()
        .build()?;
    // Another thread may have been first; then this one ends without waiting.
    Ok(RUNTIME.get_or_init(|| made))
}
