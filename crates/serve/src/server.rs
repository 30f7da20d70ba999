//! The server: what it may listen on, its connections, and how it ends.
//!
//! Asynchronous here and in what answers requests; every touch of a disk and every check of a
//! password is in a thread of its own. A server that is told to end takes no more connections,
//! completes the requests that are under way, and ends.

use crate::authority::is_authoritys;
use crate::limits::{
    CONNECTION_BUFFER_BYTES, CONNECTIONS_MAX, END_TIMEOUT, HANDSHAKE_TIMEOUT, HEAD_TIMEOUT,
    IDLE_TIMEOUT, LOGIN_CHECKS_MAX, TICK, UPLOADS_MAX,
};
use crate::metrics::Metrics;
use crate::quota::Quota;
use crate::repositories::Repositories;
use crate::request;
use crate::served::{Log, Served};
use crate::stream::ImpatientStream;
use crate::users::Users;
use bale_pipeline::clock::SystemClock;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Threads that serve connections; one can move a gigabyte a second.
const WORKERS: usize = 2;

/// Bytes of a thread's stack.
const STACK_BYTES: usize = 1 << 20;

/// Who may come in.
pub enum ServeAccess {
    /// Everybody who reaches the address, which must be of this machine alone.
    Anybody,
    /// Users with their passwords.
    Users(Users),
}

/// Certificate and key of an encrypted server, both PEM.
pub struct TlsFiles {
    /// The server's certificate, then those it is signed by.
    pub certificates: PathBuf,
    pub key: PathBuf,
}

/// Where connections come from.
pub enum ServeListen {
    Address(SocketAddr),
    /// Listens already: whoever started us, as systemd does, keeps it across our restarts.
    Inherited(std::net::TcpListener),
}

/// What is served, where, and to whom.
pub struct ServeOptions {
    /// Holds the repositories; must exist.
    pub dir: PathBuf,
    pub listen: ServeListen,
    pub access: ServeAccess,
    /// Objects can be added, and only records of unfinished runs be removed.
    pub is_append_only: bool,
    /// A user reaches only what is below `/USER/`.
    pub is_private: bool,
    pub tls: Option<TlsFiles>,
    /// Bytes of all repositories at most.
    pub bytes_max: Option<u64>,
    /// Compare the hash of what arrives with its name. Only tests of stores do without.
    pub checks_hashes: bool,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "anybody who reaches {0} could read and write there: without passwords only an address of \
         this machine alone is served (127.0.0.1 or [::1])"
    )]
    OpenToAll(SocketAddr),
    #[error("a place for each user needs users, and nobody is asked for a password")]
    PrivateWithoutUsers,
    #[error("open the directory {}: {source}", dir.display())]
    Directory { dir: PathBuf, source: io::Error },
    #[error("count what is in {}: {source}", dir.display())]
    Count { dir: PathBuf, source: io::Error },
    #[error("listen on {listen}: {source}")]
    Listen {
        listen: SocketAddr,
        source: io::Error,
    },
    #[error("read the certificate or key from {}: {why}", path.display())]
    Tls { path: PathBuf, why: String },
    #[error("start the server: {0}")]
    Start(io::Error),
}

/// A server that listens already and answers when it runs.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    served: Arc<Served>,
    tls: Option<TlsAcceptor>,
}

impl Server {
    /// Looks at everything that can be wrong, and listens. `log` takes a line for each failure.
    pub fn bind(options: ServeOptions, log: Log) -> Result<Server, ServeError> {
        let ServeOptions {
            dir,
            listen,
            access,
            ..
        } = options;
        let listen_at = address_of(&listen)?;
        let users = match access {
            ServeAccess::Anybody if !listen_at.ip().is_loopback() => {
                return Err(ServeError::OpenToAll(listen_at));
            }
            ServeAccess::Anybody if options.is_private => {
                return Err(ServeError::PrivateWithoutUsers);
            }
            ServeAccess::Anybody => None,
            ServeAccess::Users(users) => Some(users),
        };
        let tls = options.tls.as_ref().map(|files| acceptor(files, &log));
        let tls = tls.transpose()?;
        let repositories =
            Repositories::new(dir.clone(), Box::new(SystemClock)).map_err(|source| {
                let dir = dir.clone();
                ServeError::Directory { dir, source }
            })?;
        let quota = Quota::new(&dir, options.bytes_max)
            .map_err(|source| ServeError::Count { dir, source })?;
        let served = Served {
            repositories,
            quota,
            metrics: Metrics::default(),
            users,
            is_append_only: options.is_append_only,
            is_private: options.is_private,
            checks_hashes: options.checks_hashes,
            uploads: Arc::new(Semaphore::new(UPLOADS_MAX)),
            login_checks: Semaphore::new(LOGIN_CHECKS_MAX),
            foreign: Mutex::default(),
            log,
        };
        let listener = match listen {
            ServeListen::Address(address) => std::net::TcpListener::bind(address),
            ServeListen::Inherited(listener) => Ok(listener),
        };
        let bound = listener.and_then(|listener| {
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        });
        let (listener, address) = bound.map_err(|source| ServeError::Listen {
            listen: listen_at,
            source,
        })?;
        Ok(Server {
            listener,
            address,
            served: Arc::new(served),
            tls,
        })
    }

    /// Where it listens: with the port that the system chose, if it was to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `is_over`, then completes what is under way.
    pub fn run(self, is_over: impl Fn() -> bool) -> Result<(), ServeError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            // A connection has one request at a time, and a request waits in one thread at a time;
            // it may have another that makes its answer.
            .max_blocking_threads(2 * CONNECTIONS_MAX)
            .thread_stack_size(STACK_BYTES)
            .enable_io()
            .enable_time()
            .build()
            .map_err(ServeError::Start)?;
        let log = self.served.log.clone();
        let ended = runtime
            .block_on(self.accept(is_over))
            .map_err(ServeError::Start);
        // What still writes now has no client any more, and leaves nothing.
        runtime.shutdown_timeout(END_TIMEOUT);
        if let Ok(false) = ended {
            log("some requests were not over in time, and were given up");
        }
        ended.map(|_| ())
    }

    /// False if requests had to be given up.
    async fn accept(self, is_over: impl Fn() -> bool) -> io::Result<bool> {
        let listener = TcpListener::from_std(self.listener)?;
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let graceful = GracefulShutdown::new();
        let mut free = None;
        while !is_over() {
            if free.is_none() {
                let place = timeout(TICK, places.clone().acquire_owned()).await;
                free = place.ok().and_then(Result::ok);
                continue;
            }
            let connection = match timeout(TICK, listener.accept()).await {
                Err(_) => continue,
                Ok(Err(error)) => {
                    (self.served.log)(&format!("accept a connection: {error}"));
                    sleep(TICK).await;
                    continue;
                }
                Ok(Ok((connection, _))) => connection,
            };
            let (served, tls) = (self.served.clone(), self.tls.clone());
            let (place, watcher) = (free.take(), graceful.watcher());
            tokio::spawn(async move {
                served.metrics.connections.fetch_add(1, Ordering::Relaxed);
                serve(&served, connection, tls, watcher).await;
                served.metrics.connections.fetch_sub(1, Ordering::Relaxed);
                drop(place);
            });
        }
        drop(listener);
        Ok(timeout(END_TIMEOUT, graceful.shutdown()).await.is_ok())
    }
}

fn address_of(listen: &ServeListen) -> Result<SocketAddr, ServeError> {
    match listen {
        ServeListen::Address(address) => Ok(*address),
        ServeListen::Inherited(listener) => listener.local_addr().map_err(ServeError::Start),
    }
}

async fn serve(
    served: &Arc<Served>,
    connection: TcpStream,
    tls: Option<TlsAcceptor>,
    watcher: Watcher,
) {
    let _slower_without = connection.set_nodelay(true);
    match tls {
        None => answer_requests(served, connection, watcher).await,
        Some(tls) => {
            // Whoever speaks no TLS, or refuses the certificate, says so at his own end.
            if let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, tls.accept(connection)).await {
                answer_requests(served, stream, watcher).await;
            }
        }
    }
}

async fn answer_requests<S>(served: &Arc<Served>, stream: S, watcher: Watcher)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(ImpatientStream::new(stream, IDLE_TIMEOUT));
    let service = service_fn(|head| request::answer(served.clone(), head));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(CONNECTION_BUFFER_BYTES)
        .serve_connection(stream, service);
    // A connection that ends early is the client's matter; what the store failed at is logged.
    let _ended = watcher.watch(connection).await;
}

fn acceptor(files: &TlsFiles, log: &Log) -> Result<TlsAcceptor, ServeError> {
    let at = |path: &PathBuf, why: String| ServeError::Tls {
        path: path.clone(),
        why,
    };
    let certificates = CertificateDer::pem_file_iter(&files.certificates)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(|error| at(&files.certificates, error.to_string()))?;
    if certificates.is_empty() {
        return Err(at(
            &files.certificates,
            "there is no certificate in it".to_owned(),
        ));
    }
    if is_authoritys(&certificates[0]) {
        log(&format!(
            "the certificate in {} was made as that of an authority (CA:TRUE): clients refuse it. \
             With -addext basicConstraints=critical,CA:FALSE openssl makes one for a server",
            files.certificates.display()
        ));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key);
    let key = key.map_err(|error| at(&files.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| {
            config
                .with_no_client_auth()
                .with_single_cert(certificates, key)
        })
        .map_err(|error| at(&files.certificates, error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
