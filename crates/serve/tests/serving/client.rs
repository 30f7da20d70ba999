//! A server of one test, and clients that speak to it by the store or by bare bytes.

use bale_format::ObjectId;
use bale_remote::{HttpOptions, HttpUrl, RestStore};
use bale_repository::store::{Area, ObjectName};
use bale_serve::{ServeAccess, ServeError, ServeListen, ServeOptions, Server, TlsFiles};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;

pub struct Running {
    directory: Option<TempDir>,
    dir: PathBuf,
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    log: Arc<Mutex<Vec<String>>>,
    server: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    pub fn new() -> Running {
        Running::with(|_| {})
    }

    /// On a port of its own; `change` says what else it does.
    pub fn with(change: impl FnOnce(&mut ServeOptions)) -> Running {
        let directory = tempfile::Builder::new()
            .prefix("bale-serve-")
            .tempdir()
            .unwrap();
        let dir = directory.path().join("served");
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(directory.path().join("outside")).unwrap();
        let mut options = ServeOptions {
            dir: dir.clone(),
            listen: ServeListen::Address("127.0.0.1:0".parse().unwrap()),
            access: ServeAccess::Anybody,
            is_append_only: false,
            is_private: false,
            tls: None,
            bytes_max: None,
            checks_hashes: true,
        };
        change(&mut options);
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let logged = lines.clone();
        let log = Arc::new(move |line: &str| {
            println!("server: {line}");
            logged.lock().unwrap().push(line.to_owned());
        });
        let server = Server::bind(options, log).unwrap();
        let address = server.address();
        let is_over = Arc::<AtomicBool>::default();
        let ends = is_over.clone();
        let server = std::thread::spawn(move || server.run(|| ends.load(Ordering::SeqCst)));
        Running {
            directory: Some(directory),
            dir,
            address,
            is_over,
            log: lines,
            server: Some(server),
        }
    }

    /// Lines of the log so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A directory beside the one that is served.
    pub fn outside(&self) -> PathBuf {
        self.dir.parent().unwrap().join("outside")
    }

    pub fn url(&self, name: &str) -> HttpUrl {
        HttpUrl::parse(&format!("http://{}/{name}", self.address)).unwrap()
    }

    pub fn open(&self, name: &str) -> RestStore {
        RestStore::open(self.url(name), &options()).unwrap()
    }

    pub fn create(&self, name: &str) -> RestStore {
        RestStore::create(self.url(name), &options()).unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).unwrap()
    }

    pub fn metrics(&self) -> String {
        raw(
            self,
            "GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
        )
    }

    pub fn temporary_files(&self, name: &str) -> usize {
        std::fs::read_dir(self.dir.join(name).join("tmp"))
            .unwrap()
            .count()
    }

    /// An upload has begun.
    pub fn wait_for_temporary_file(&self, name: &str) {
        while self.temporary_files(name) == 0 {
            std::thread::yield_now();
        }
    }

    pub fn tell_to_end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Ends the server, well; its directories stay as long as what is returned. Nothing that was
    /// not completed is left in them.
    pub fn end(mut self) -> TempDir {
        self.tell_to_end();
        self.server.take().unwrap().join().unwrap().unwrap();
        for entry in std::fs::read_dir(&self.dir).unwrap() {
            let temporary = entry.unwrap().path().join("tmp");
            let left = std::fs::read_dir(&temporary).map_or(0, Iterator::count);
            assert_eq!(left, 0, "{}", temporary.display());
        }
        self.directory.take().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tell_to_end();
        if let Some(server) = self.server.take() {
            let _ended = server.join();
        }
    }
}

pub fn options() -> HttpOptions {
    HttpOptions {
        uses_proxy: false,
        ..HttpOptions::default()
    }
}

/// Bytes of this length, and the name that is their hash.
pub fn hashed(area: Area, len: usize) -> (ObjectName, Vec<u8>) {
    let mut bytes = vec![0; len];
    let mut stream = blake3::Hasher::new();
    stream
        .update(area.text().as_bytes())
        .update(&len.to_le_bytes());
    stream.finalize_xof().fill(&mut bytes);
    let id = ObjectId(*blake3::hash(&bytes).as_bytes());
    let name = match area {
        Area::Keys => ObjectName::key(id),
        Area::Packs => ObjectName::pack(id),
        Area::Index => ObjectName::index(id),
        Area::Snapshots => ObjectName::snapshot(id),
        Area::Runs => ObjectName::run([7; 16], id),
        Area::Condemned => ObjectName::condemned(id),
        Area::Damaged => ObjectName::damaged(id),
        Area::Stretched => ObjectName::stretched(id),
        Area::Config | Area::ConfigCopy | Area::Stretches => panic!("{area} has no hash"),
    };
    (name, bytes)
}

/// The answer to these bytes, until the server ends the connection.
pub fn raw(running: &Running, request: &str) -> String {
    let mut connection = running.connect();
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A server that has heard enough may reset what is still on its way.
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// One answer with a length, on a connection that stays.
pub fn answer_to(connection: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        assert_eq!(connection.read(&mut byte).unwrap(), 1, "cut: {answer:?}");
        answer.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&answer).into_owned();
    let len = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; len.unwrap().parse().unwrap()];
    connection.read_exact(&mut body).unwrap();
    head + &String::from_utf8_lossy(&body)
}

pub fn status_of(answer: &str) -> u16 {
    let status = answer
        .strip_prefix("HTTP/1.1 ")
        .and_then(|rest| rest.get(..3));
    status
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

/// A certificate of `localhost`, signed by itself.
pub struct CertificateFiles {
    _directory: TempDir,
    pub certificate: PathBuf,
    key: PathBuf,
}

impl CertificateFiles {
    pub fn tls(&self) -> TlsFiles {
        TlsFiles {
            certificates: self.certificate.clone(),
            key: self.key.clone(),
        }
    }
}

/// `None` without the program that makes it.
pub fn certificate() -> Option<CertificateFiles> {
    certificate_with("basicConstraints=critical,CA:FALSE")
}

/// The same with other words of whether it is an authority's.
pub fn certificate_with(constraints: &str) -> Option<CertificateFiles> {
    if !bale_testkit::have("openssl") {
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (
        directory.path().join("cert.pem"),
        directory.path().join("key.pem"),
    );
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", constraints])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    Some(CertificateFiles {
        _directory: directory,
        certificate,
        key,
    })
}
