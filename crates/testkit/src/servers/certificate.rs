//! A certificate that signs itself, made when a test needs one: nobody else believes it.

use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A certificate and its key, in files.
pub struct TestCertificate {
    dir: TempDir,
}

impl TestCertificate {
    /// For this machine's loopback, by the name `localhost`.
    pub fn of_localhost() -> TestCertificate {
        TestCertificate::of("localhost")
    }

    /// For a host of that name.
    pub fn of(host: &str) -> TestCertificate {
        let dir = tempfile::tempdir().expect("a directory");
        let certificate = TestCertificate { dir };
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
            .args(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj"])
            .arg(format!("/CN={host}"))
            .args(["-addext", &format!("subjectAltName=DNS:{host}")])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-keyout")
            .arg(certificate.key_file())
            .arg("-out")
            .arg(certificate.file())
            .output();
        let made = made.expect("openssl is not installed: Debian's package openssl");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "openssl: {said}");
        certificate
    }

    /// In PEM.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("certificate.pem")
    }

    /// In PEM.
    pub fn key_file(&self) -> PathBuf {
        self.dir.path().join("key.pem")
    }
}
