//! Repositories on servers of files: WebDAV, FTP, FTP over TLS.

use crate::bench::Bench;
use crate::remote_life::lives;
use bale_testkit::TestCertificate;
use bale_testkit::servers::{ftp_of_pyftpdlib, ftps_of_pyftpdlib, webdav_of_wsgidav};

#[test]
fn a_repository_over_webdav_lives_as_one_in_a_directory() {
    let bench = Bench::new();
    let server = webdav_of_wsgidav();
    let repository = format!("webdav:http://{}/a/b", server.address());
    lives(&bench, &repository, &[]);
    let local = server.served().join("a/b").display().to_string();
    bench.ok(&["check", "--read-data", "-p", "pw", "-r", &local]);
}

/// The login comes from a file.
#[test]
fn a_repository_over_ftp_lives_as_one_in_a_directory() {
    let bench = Bench::new();
    let server = ftp_of_pyftpdlib();
    let login = bench.write("login", "me:s3cr3t\n").display().to_string();
    let repository = format!("ftp://{}/a/b", server.address());
    lives(&bench, &repository, &[("BALE_LOGIN_FILE", &login)]);
    let local = server.served().join("a/b").display().to_string();
    bench.ok(&["check", "--read-data", "-p", "pw", "-r", &local]);
}

#[test]
fn a_repository_over_ftps_lives_where_the_certificate_is_believed() {
    let bench = Bench::new();
    let certificate = TestCertificate::of_localhost();
    let server = ftps_of_pyftpdlib(&certificate);
    let ca_file = certificate.file().display().to_string();
    let repository = format!("ftps://me:s3cr3t@localhost:{}/x", server.address().port());
    lives(&bench, &repository, &[("BALE_CA_FILE", &ca_file)]);
    // Without it, at once, and no password is shown.
    let refused = bench.run(&["snapshots", "-p", "pw", "-r", &repository]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("certificate"), "{refused}");
    assert!(!refused.err.contains("trying again") && !refused.err.contains("s3cr3t"));
}

#[test]
fn init_over_ftp_says_what_ftp_cannot_promise() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    let server = ftp_of_pyftpdlib();
    let repository = format!("ftp://me:s3cr3t@{}/x", server.address());
    let made = bench.run(&["init", "-p", "pw", "-r", &repository]);
    assert_eq!(made.code, 0, "{made}");
    assert_eq!(made.err.matches("FTP cannot say").count(), 1, "{made}");
}

/// rclone starts with the command and ends with it.
#[test]
fn a_repository_over_rclone_lives_as_one_in_a_directory() {
    let bench = Bench::new();
    let far = bench.path("far");
    std::fs::create_dir(&far).unwrap();
    let repository = format!("rclone::local:{}", far.display());
    lives(&bench, &repository, &[]);
    bench.ok(&["check", "--read-data", "-p", "pw", "-r", "far"]);
}

#[test]
fn what_rclone_would_take_for_an_option_is_refused_before_it_is_started() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    let refused = bench.run(&["init", "-p", "pw", "-r", "rclone:--config=x:y"]);
    assert_eq!(refused.code, 2, "{refused}");
    assert!(refused.err.contains("rclone:REMOTE:PATH"), "{refused}");
}
