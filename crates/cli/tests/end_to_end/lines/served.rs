//! A server of each protocol, and stores that reach it directly or through a bad line.

use bale_remote::{OpenError, Opening, RemoteOptions, RetryRules, Scheme, Variables, Waiting};
use bale_repository::store::{LocalStore, Store, StoreError};
use bale_serve::{ServeAccess, ServeError, ServeListen, ServeOptions, Server};
use bale_testkit::servers::{
    S3_KEY, S3_SECRET, SftpPort, ftp_of_pyftpdlib, seaweedfs, sftp_bridge, webdav_of_wsgidav,
};
use bale_testkit::{FaultProxy, LineFault, Spoken};
use std::any::Any;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

const BUCKET: &str = "tests";

/// Time passes by waiting only; but for a moment, in which a server may come to itself.
#[derive(Default)]
struct Hasty(AtomicU64);

impl Waiting for Hasty {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn wait(&self, pause: Duration) -> bool {
        std::thread::sleep(Duration::from_millis(2));
        self.0.fetch_add(pause.as_millis() as u64, Ordering::SeqCst);
        true
    }
    fn lot(&self) -> u64 {
        0
    }
    fn again(&self, _: &StoreError, _: Duration) {}
}

/// Longer than any server of ours is silent.
const SILENCE_MAX: Duration = Duration::from_secs(120);

/// How long a store waits.
#[derive(Clone, Copy)]
pub enum Patience {
    /// Longer than anybody is silent on a busy machine, and requests are made again for a quarter
    /// of an hour, which is over at once.
    Usual,
    /// The same for a few seconds, in which nobody comes back.
    Brief,
    /// So long without a byte, and each request is made once.
    Once(Duration),
}

/// Names a repository at an address.
type NamePlace = dyn Fn(SocketAddr, &str) -> String;

/// A server that runs as long as this.
pub struct Served {
    pub scheme: Scheme,
    spoken: Spoken,
    address: SocketAddr,
    place: Box<NamePlace>,
    /// Where its repositories are on this machine, if they are directories.
    dir: Option<PathBuf>,
    _server: Box<dyn Any>,
}

/// For servers that sync each file, which takes its time on a disk.
fn dir_in_memory() -> TempDir {
    let shm = Path::new("/dev/shm");
    let dir = match shm.is_dir() {
        true => tempfile::tempdir_in(shm),
        false => tempfile::tempdir(),
    };
    dir.unwrap()
}

/// A server of ours, in this process.
struct Serving {
    _dir: TempDir,
    is_over: Arc<AtomicBool>,
    server: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(server) = self.server.take() {
            let _ended = server.join();
        }
    }
}

/// `bale serve`.
pub fn rest() -> Served {
    let dir = dir_in_memory();
    let options = ServeOptions {
        dir: dir.path().to_owned(),
        listen: ServeListen::Address("127.0.0.1:0".parse().unwrap()),
        access: ServeAccess::Anybody,
        is_append_only: false,
        is_private: false,
        tls: None,
        bytes_max: None,
        checks_hashes: true,
    };
    let server = Server::bind(options, Arc::new(|_: &str| {})).unwrap();
    let address = server.address();
    let is_over = Arc::<AtomicBool>::default();
    let ends = is_over.clone();
    let server = std::thread::spawn(move || server.run(|| ends.load(Ordering::SeqCst)));
    let serving = Serving {
        _dir: dir,
        is_over,
        server: Some(server),
    };
    Served {
        scheme: Scheme::Rest,
        spoken: Spoken::Http,
        address,
        place: Box::new(|at, name| format!("http://{at}/{name}")),
        dir: None,
        _server: Box::new(serving),
    }
}

/// WebDAV of wsgidav.
pub fn webdav() -> Served {
    let server = webdav_of_wsgidav();
    Served {
        scheme: Scheme::Webdav,
        spoken: Spoken::Http,
        address: server.address(),
        place: Box::new(|at, name| format!("http://{at}/{name}")),
        dir: None,
        _server: Box::new(server),
    }
}

/// FTP of pyftpdlib.
pub fn ftp() -> Served {
    let server = ftp_of_pyftpdlib();
    Served {
        scheme: Scheme::Ftp,
        spoken: Spoken::Ftp,
        address: server.address(),
        place: Box::new(|at, name| format!("//me:s3cr3t@{at}/{name}")),
        dir: Some(server.served()),
        _server: Box::new(server),
    }
}

/// SFTP of OpenSSH.
pub fn sftp() -> Served {
    let server = SftpPort::new();
    let dir = dir_in_memory();
    let at = |dir: &Path, name: &str| format!("h:{}/{name}", dir.display());
    let path = dir.path().to_owned();
    Served {
        scheme: Scheme::Sftp,
        spoken: Spoken::Bytes,
        address: server.address(),
        place: Box::new(move |_, name| at(&path, name)),
        dir: Some(dir.path().to_owned()),
        _server: Box::new((server, dir)),
    }
}

/// S3 of SeaweedFS.
pub fn s3() -> Served {
    let server = seaweedfs(BUCKET);
    Served {
        scheme: Scheme::ALL
            .into_iter()
            .find(|scheme| scheme.text() == "s3")
            .unwrap(),
        spoken: Spoken::Http,
        address: server.address(),
        place: Box::new(|at, name| format!("http://{at}/{BUCKET}/{name}")),
        dir: None,
        _server: Box::new(server),
    }
}

/// One of each.
pub fn all() -> [Served; 5] {
    [rest(), webdav(), ftp(), sftp(), s3()]
}

impl Served {
    /// The store of a repository as a directory of this machine: FTP needs some thousand
    /// connections to look at everything, and the system has as many ports for a minute.
    pub fn near(&self, name: &str) -> Option<Arc<dyn Store>> {
        let dir = self.dir.as_ref()?.join(name);
        Some(Arc::new(LocalStore::open(&dir).unwrap()))
    }

    /// Where it listens itself.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A line to it.
    pub fn line(&self, fault: LineFault) -> FaultProxy {
        FaultProxy::of(self.spoken, self.address, fault)
    }

    /// The store of a repository, reached at this address.
    pub fn open(
        &self,
        at: SocketAddr,
        name: &str,
        opening: Opening,
        patience: Patience,
    ) -> Result<Arc<dyn Store>, OpenError> {
        let (retry, idle_timeout) = match patience {
            Patience::Usual => (RetryRules::default(), SILENCE_MAX),
            Patience::Brief => {
                let give_up_after = Duration::from_secs(5);
                let rules = RetryRules {
                    give_up_after,
                    ..RetryRules::default()
                };
                (rules, SILENCE_MAX)
            }
            Patience::Once(patience) => (RetryRules::ONCE, patience),
        };
        let options = RemoteOptions {
            retry,
            idle_timeout: Some(idle_timeout),
            sftp_command: Some(sftp_bridge(at)),
            environment: Variables::new(|name| match name {
                "AWS_ACCESS_KEY_ID" => Some(S3_KEY.to_owned()),
                "AWS_SECRET_ACCESS_KEY" => Some(S3_SECRET.to_owned()),
                _ => None,
            }),
            ..RemoteOptions::default()
        };
        let place = (self.place)(at, name);
        let waiting = Arc::<Hasty>::default();
        bale_remote::open(self.scheme, &place, opening, &options, waiting)
    }
}
