//! Real servers of files: WebDAV of rclone and wsgidav, FTP of rclone and pyftpdlib, FTP over TLS.

use bale_format::ObjectId;
use bale_remote::ftp::{FtpFiles, FtpOptions, FtpPlace};
use bale_remote::webdav::DavFiles;
use bale_remote::{FileStore, HttpOptions, HttpUrl, RealWaiting, RemoteFiles, Retried, RetryRules};
use bale_repository::store::{Area, LocalStore, ObjectName, Store, conformance};
use bale_testkit::servers::{
    TestCertificate, TestServer, ftp_of_pyftpdlib, ftp_of_rclone, ftps_of_pyftpdlib,
    webdav_of_rclone, webdav_of_wsgidav,
};
use std::cell::Cell;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// As every store is used, but that nobody waits for long.
const SOON: RetryRules = RetryRules {
    first: Duration::from_millis(10),
    longest: Duration::from_millis(200),
    give_up_after: Duration::from_secs(60),
};

fn dav(server: &TestServer, path: &str) -> DavFiles {
    let options = HttpOptions {
        uses_proxy: false,
        ..HttpOptions::default()
    };
    let url = format!("http://me:s3cr3t@{}/{path}", server.address());
    DavFiles::new(HttpUrl::parse_escaped(&url).unwrap(), &options).unwrap()
}

fn ftp_at(server: &TestServer, path: &str) -> FtpPlace {
    let place = format!("//me:s3cr3t@{}/{path}", server.address());
    FtpPlace::parse(&place, false).unwrap()
}

fn ftp(server: &TestServer, path: &str) -> FtpFiles {
    FtpFiles::new(ftp_at(server, path), &FtpOptions::default()).unwrap()
}

fn ftps(server: &TestServer, path: &str, host: &str, trusted: &Path) -> FtpFiles {
    let options = FtpOptions {
        ca_file: Some(trusted.to_path_buf()),
        ..FtpOptions::default()
    };
    let place = FtpPlace {
        is_encrypted: true,
        host: host.to_owned(),
        ..ftp_at(server, path)
    };
    FtpFiles::new(place, &options).unwrap()
}

/// Every store in a directory of its own, below one that is made with it.
fn conforms<F: RemoteFiles + 'static>(files: impl Fn(&str) -> F) {
    let number = Cell::new(0);
    conformance::run_slow(|| {
        number.set(number.get() + 1);
        let path = format!("above/{}", number.get());
        // Two who give one name at once are told so in words that pass, by servers that replace.
        let store = FileStore::create(files(&path)).unwrap();
        let waiting = RealWaiting::new(|| false, |_, _| {});
        Box::new(Retried::new(Arc::new(store), SOON, Arc::new(waiting)))
    });
}

/// What is stored is a repository in a directory, and foreign files in it are skipped and named.
fn is_a_directory<F: RemoteFiles + 'static>(server: &TestServer, files: F) {
    let root = server.served().join("r");
    let store = FileStore::create(files).unwrap();
    conformance::foreign_names_are_skipped_and_named(&store, &mut |path, bytes| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    });
    let local = LocalStore::open(&root).unwrap();
    let [ours, theirs] = [1, 2].map(|first| ObjectName::pack(ObjectId([first; 32])));
    store.put(&ours, b"ours").unwrap();
    local.put(&theirs, b"theirs").unwrap();
    assert_eq!(local.get(&ours, 4).unwrap(), b"ours");
    assert_eq!(store.get(&theirs, 6).unwrap(), b"theirs");
    assert!(root.join("BALE-REPOSITORY.TAG").is_file());
    // What belongs to a run goes with the last of it, and nothing is left of its directory.
    let [first, last] = [3, 4].map(|first| ObjectName::run([7; 16], ObjectId([first; 32])));
    store.put(&first, b"1").unwrap();
    store.put(&last, b"2").unwrap();
    store.delete(&first).unwrap();
    assert_eq!(store.get(&last, 1).unwrap(), b"2");
    store.delete(&last).unwrap();
    let runs = std::fs::read_dir(root.join("runs")).unwrap();
    let runs: Vec<_> = runs.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!runs.contains(&ours_of_run().into()), "{runs:?}");
    assert_eq!(std::fs::read_dir(root.join("tmp")).unwrap().count(), 0);
}

/// The directory of a run.
fn ours_of_run() -> String {
    "07".repeat(16)
}

/// What is not there, what is half there, and what died there before.
fn is_careful<F: RemoteFiles + 'static>(server: &TestServer, files: impl Fn() -> F) {
    let store = FileStore::open(files());
    let error = store.list(Area::Index, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    let store = FileStore::create(files()).unwrap();
    store.put(&ObjectName::config(), b"config").unwrap();
    let again = FileStore::create(files()).err().expect("it is made");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");

    let root = server.served().join("r");
    let tmp = root.join("tmp");
    let [old, young] = ["0", "1"].map(|digit| tmp.join(format!(".tmp-{}", digit.repeat(32))));
    std::fs::write(&young, b"x").unwrap();
    std::fs::write(&old, b"x").unwrap();
    let two_days = Duration::from_secs(2 * 86_400);
    let before = std::time::SystemTime::now() - two_days;
    let file = std::fs::File::options().write(true).open(&old).unwrap();
    file.set_modified(before).unwrap();
    drop(file);
    let name = ObjectName::index(ObjectId([1; 32]));
    let store = FileStore::open(files());
    assert_eq!(store.stat(&name).unwrap(), None);
    assert!(old.exists(), "who only reads removes nothing");
    store.put(&name, b"x").unwrap();
    assert!(!old.exists() && young.exists());

    std::fs::rename(root.join("index"), root.join("elsewhere")).unwrap();
    let error = store.list(Area::Index, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("bring it back"), "{error}");
    let error = store.put(&ObjectName::index(ObjectId([2; 32])), b"x");
    let error = error.unwrap_err().to_string();
    assert!(error.contains("bring it back"), "{error}");
}

#[test]
fn rclones_webdav_is_a_store() {
    let server = webdav_of_rclone();
    conforms(|path| dav(&server, path));
}

#[test]
fn wsgidavs_webdav_is_a_store() {
    let server = webdav_of_wsgidav();
    conforms(|path| dav(&server, path));
}

#[test]
fn rclones_ftp_is_a_store() {
    let server = ftp_of_rclone();
    conforms(|path| ftp(&server, path));
}

#[test]
fn pyftpdlibs_ftp_is_a_store() {
    let server = ftp_of_pyftpdlib();
    conforms(|path| ftp(&server, path));
}

#[test]
fn ftp_over_tls_is_a_store() {
    let certificate = TestCertificate::of_localhost();
    let server = ftps_of_pyftpdlib(&certificate);
    conforms(|path| ftps(&server, path, "localhost", &certificate.file()));
}

/// Not on rclone's: they remember directories, and see nothing of what others put there.
#[test]
fn repositories_on_servers_are_directories() {
    let server = webdav_of_wsgidav();
    is_a_directory(&server, dav(&server, "r"));
    let server = ftp_of_pyftpdlib();
    is_a_directory(&server, ftp(&server, "/r"));
}

#[test]
fn nothing_is_taken_for_empty_and_what_died_is_swept() {
    let server = webdav_of_wsgidav();
    is_careful(&server, || dav(&server, "r"));
    let server = ftp_of_pyftpdlib();
    is_careful(&server, || ftp(&server, "r"));
}

#[test]
fn a_certificate_that_does_not_fit_is_refused() {
    let [ours, other] = [(); 2].map(|()| TestCertificate::of_localhost());
    let server = ftps_of_pyftpdlib(&ours);
    for (host, trusted) in [("localhost", &other), ("127.0.0.1", &ours)] {
        let store = FileStore::open(ftps(&server, "r", host, &trusted.file()));
        let error = store.stat(&ObjectName::config()).unwrap_err();
        assert!(error.to_string().contains("certificate"), "{error}");
        assert_eq!(error.kind(), ErrorKind::Other, "it is not tried again");
    }
    // A server that requires TLS gets no password without.
    let store = FileStore::open(ftp(&server, "r"));
    let error = store.stat(&ObjectName::config()).unwrap_err();
    assert!(!error.is_not_found(), "{error}");
}

#[test]
fn ftps_never_goes_on_without_tls() {
    let certificate = TestCertificate::of_localhost();
    let server = ftp_of_pyftpdlib();
    let host = server.address().ip().to_string();
    let store = FileStore::open(ftps(&server, "r", &host, &certificate.file()));
    let error = store.stat(&ObjectName::config()).unwrap_err();
    assert!(error.to_string().contains("does not encrypt"), "{error}");
}

#[test]
fn a_wrong_password_is_said_and_not_shown() {
    let server = webdav_of_rclone();
    let url = format!("http://me:wr0ng@{}/r", server.address());
    let url = HttpUrl::parse_escaped(&url).unwrap();
    let files = DavFiles::new(url, &HttpOptions::default()).unwrap();
    let error = FileStore::open(files).stat(&ObjectName::config());
    let error = error.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    let server = ftp_of_pyftpdlib();
    let place = format!("//me:wr0ng@{}/r", server.address());
    let place = FtpPlace::parse(&place, false).unwrap();
    let files = FtpFiles::new(place, &FtpOptions::default()).unwrap();
    let refused = FileStore::open(files).stat(&ObjectName::config());
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    assert!(!format!("{error} {error:?} {refused} {refused:?}").contains("wr0ng"));
}
