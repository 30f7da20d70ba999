//! Servers of others that tests start, on a port that was free and with a directory of their own.
//!
//! A server ends with the value that stands for it, also when the test panics. What it says goes to
//! a file, and is shown when it does not begin: no pipe of the test's stays open in a child.

use bale_pipeline::random::{OsRandom, draw};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

mod certificate;
mod ftp;
mod object_stores;
mod s3_requests;
mod sftp;
mod webdav;

pub use certificate::TestCertificate;
pub use ftp::{ftp_of_pyftpdlib, ftp_of_rclone, ftps_of_pyftpdlib};
pub use object_stores::{
    AZURITE_ACCOUNT, AZURITE_KEY, ObjectServer, S3_KEY, S3_SECRET, azurite, fake_gcs, moto,
    s3_of_rclone, s3_of_rclone_by_host, s3_of_rclone_over_tls, seaweedfs,
};
pub use s3_requests::{S3Answer, s3_request};
pub use sftp::{SftpPort, sftp_bridge, sftp_server};
pub use webdav::{webdav_of_rclone, webdav_of_wsgidav};

/// For a server to begin on a machine that is busy.
const BEGIN_MAX: Duration = Duration::from_secs(120);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// Another program may take a port between our look and the server.
const PORTS_TRIED: u32 = 5;

/// What servers of tests listen on.
const PORTS: Range<u16> = 10_000..32_000;

/// A server that runs, and the directory that it serves.
pub struct TestServer {
    child: Child,
    address: SocketAddr,
    dir: TempDir,
}

impl TestServer {
    /// Starts what `command` makes of an address and the directory to serve, and waits until it can
    /// be connected to.
    pub fn start(name: &str, command: impl Fn(SocketAddr, &Path) -> Command) -> TestServer {
        TestServer::start_at(IpAddr::V4(Ipv4Addr::LOCALHOST), name, command)
    }

    /// The same at an address of this machine.
    fn start_at(
        ip: IpAddr,
        name: &str,
        command: impl Fn(SocketAddr, &Path) -> Command,
    ) -> TestServer {
        let mut said = String::new();
        for _ in 0..PORTS_TRIED {
            let dir = tempfile::tempdir().expect("a directory");
            let served = dir.path().join("served");
            std::fs::create_dir(&served).expect("the directory served");
            let log = dir.path().join("log");
            let output = File::create(&log).expect("its log");
            let address = free_address_of(ip);
            let child = command(address, &served)
                .stdin(Stdio::null())
                .stdout(output.try_clone().expect("its log twice"))
                .stderr(output)
                .spawn();
            let child = child.unwrap_or_else(|error| panic!("cannot start {name}: {error}"));
            let mut server = TestServer {
                child,
                address,
                dir,
            };
            if server.begins() {
                return server;
            }
            said = std::fs::read_to_string(log).unwrap_or_default();
        }
        panic!("{name} does not begin: {said}");
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it serves.
    pub fn served(&self) -> std::path::PathBuf {
        self.dir.path().join("served")
    }

    /// False if it ended instead.
    fn begins(&mut self) -> bool {
        let began = Instant::now();
        while began.elapsed() < BEGIN_MAX {
            if is_listening(self.address) {
                // Or does another program listen there?
                return matches!(self.child.try_wait(), Ok(None));
            }
            if !matches!(self.child.try_wait(), Ok(None)) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        false
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Does somebody listen there? A connection to a port of which nobody is may find itself.
fn is_listening(address: SocketAddr) -> bool {
    let connection = TcpStream::connect(address);
    connection.is_ok_and(|connection| connection.local_addr().is_ok_and(|own| own != address))
}

/// A port of this machine's loopback that nobody listens on: none of those that connections of
/// others begin at (from 32768 on), so that none takes it before the server does.
pub fn free_address() -> SocketAddr {
    free_address_of(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn free_address_of(ip: IpAddr) -> SocketAddr {
    loop {
        let [low, high] = draw::<2>(&OsRandom).expect("the kernel has random bytes");
        let drawn = u16::from_le_bytes([low, high]) % (PORTS.end - PORTS.start);
        let address = SocketAddr::new(ip, PORTS.start + drawn);
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// An address of this machine that hardly anybody else has. Whoever listens on a new port for each
/// file, as FTP does, runs out of those of one address: each stays taken for a minute.
pub(crate) fn loopback_of_its_own() -> IpAddr {
    let [second, third, fourth] = draw::<3>(&OsRandom).expect("the kernel has random bytes");
    IpAddr::V4(Ipv4Addr::new(
        127,
        second | 0x80,
        third,
        fourth.clamp(1, 254),
    ))
}
