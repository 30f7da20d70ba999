//! Servers that answer as they should not: nothing of it is believed, nothing panics, and the kind
//! of the error says whether another try makes sense.

use bale_cloud::{Cloud, CloudOptions, CloudPlace, CloudStore, Pace, Variables};
use bale_format::ObjectId;
use bale_repository::store::{Area, ObjectName, PackContent, Store, StoreError};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Answer = dyn Fn(&str) -> String + Send + Sync;

/// Answers each request by its head, in threads that end with their connections.
struct FakeServer {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    fn new(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, log): (Arc<Answer>, _) = (Arc::new(answer), seen.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let (answer, log) = (answer.clone(), log.clone());
                std::thread::spawn(move || serve(connection, &*answer, &log));
            }
        });
        FakeServer { address, seen }
    }

    fn store(&self) -> CloudStore {
        self.store_with(&CloudOptions {
            idle_timeout: Duration::from_secs(60),
            ..options()
        })
    }

    fn store_with(&self, options: &CloudOptions) -> CloudStore {
        let name = format!("http://{}/bucket/p", self.address);
        CloudStore::open(CloudPlace::parse(Cloud::S3, &name).unwrap(), options).unwrap()
    }

    fn count(&self, method: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|head| head.starts_with(method)).count()
    }
}

fn serve(connection: TcpStream, answer: &Answer, log: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(connection.try_clone().ok()?);
    let mut connection = connection;
    loop {
        let (mut head, mut len) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                len = value.trim().parse().ok()?;
            }
            if line == "\r\n" {
                break;
            }
            head += &line;
        }
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        log.lock().unwrap().push(head.clone());
        let text = answer(&head);
        connection.write_all(text.as_bytes()).ok()?;
        if text.contains("Connection: close") || text.is_empty() {
            return None;
        }
    }
}

fn options() -> CloudOptions {
    CloudOptions {
        environment: Variables::new(|name| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIATEST".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("s3cr3t".to_owned()),
            _ => None,
        }),
        uses_proxy: false,
        ..CloudOptions::default()
    }
}

fn answer(status: u16, headers: &str, body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {len}\r\n\r\n{body}")
}

fn name() -> ObjectName {
    ObjectName::index(ObjectId([7; 32]))
}

fn shows_no_secret(error: &StoreError) {
    let text = format!("{error} {error:?}");
    assert!(
        !text.contains("s3cr3t") && !text.contains("Signature"),
        "{text}"
    );
}

#[test]
fn what_is_too_long_is_refused_before_it_is_read() {
    let server = FakeServer::new(|_| {
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\nx".to_owned()
    });
    let error = server.store().get(&name(), 1_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
}

#[test]
fn an_object_that_ends_early_is_no_object() {
    let server = FakeServer::new(|_| {
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nConnection: close\r\n\r\nshort".to_owned()
    });
    let error = server.store().get(&name(), 1_000).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
}

#[test]
fn another_range_than_the_one_requested_is_refused() {
    for (status, headers) in [
        (200, ""),
        (206, ""),
        (206, "Content-Range: bytes 0-3/100\r\n"),
        (206, "Content-Range: words\r\n"),
    ] {
        let server = FakeServer::new(move |_| answer(status, headers, "abcd"));
        let error = server.store().read_at(&name(), 8, &mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{headers}: {error}");
    }
    // More, or less, than the range that it says it is.
    for body in ["abc", "abcde"] {
        let headers = "Content-Range: bytes 8-11/100\r\n";
        let server = FakeServer::new(move |_| answer(206, headers, body));
        let error = server.store().read_at(&name(), 8, &mut [0; 4]).unwrap_err();
        assert!(error.may_pass(), "{body}: {error}");
    }
}

#[test]
fn an_endless_listing_is_given_up() {
    let server = FakeServer::new(|_| {
        let key = format!("<Contents><Key>{}</Key></Contents>", "x".repeat(1 << 20));
        answer(200, "", &format!("<ListBucketResult>{}", key.repeat(20)))
    });
    let error = server.store().list(Area::Index, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
}

#[test]
fn a_listing_that_is_none_is_an_error() {
    let one = "<Contents><Key>p/index/x</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z\
               </LastModified></Contents>";
    let cut = format!("<ListBucketResult><IsTruncated>false</IsTruncated>{one}");
    let circle = format!(
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x\
         </NextContinuationToken>{one}</ListBucketResult>"
    );
    let without_end = format!("<ListBucketResult>{one}</ListBucketResult>");
    for text in ["", "<", "<html>hello</html>", &cut, &circle, &without_end] {
        let text = text.to_owned();
        let server = FakeServer::new(move |_| answer(200, "", &text));
        let mut found = 0;
        let listed = server.store().list(Area::Index, &mut |_| found += 1);
        assert!(listed.is_err() && found == 0, "{listed:?}");
    }
}

#[test]
fn what_is_there_is_not_sent_again() {
    let server = FakeServer::new(|head| {
        let refused = || answer(412, "", "<Error><Code>PreconditionFailed</Code></Error>");
        of_empty_bucket(head).unwrap_or_else(refused)
    });
    let store = server.store();
    store.put(&name(), b"x").unwrap();
    assert_eq!((server.count("HEAD"), server.count("PUT")), (1, 1));
    let puts = server.seen.lock().unwrap().clone();
    let put = puts.iter().find(|head| head.starts_with("PUT")).unwrap();
    assert!(
        put.to_ascii_lowercase().contains("if-none-match: *"),
        "{put}"
    );
    assert!(
        put.to_ascii_lowercase().contains("x-amz-checksum-crc32c"),
        "{put}"
    );
    // The server knows conditions: from now on it is one request.
    store.put(&name(), b"x").unwrap();
    assert_eq!((server.count("HEAD"), server.count("PUT")), (1, 2));
}

/// A pack and its bytes.
fn pack(number: u8) -> (ObjectName, bytes::Bytes) {
    let name = ObjectName::pack(ObjectId([number; 32]));
    (name, bytes::Bytes::from(vec![number; 1000]))
}

/// What an empty bucket says to whoever looks; nothing to others.
fn of_empty_bucket(head: &str) -> Option<String> {
    match head.split(' ').next() {
        Some("HEAD") => Some(answer(404, "", "").replace("Content-Length: 0\r\n", "")),
        Some("GET") => Some(answer(
            200,
            "",
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        )),
        _ => None,
    }
}

/// Its name is that of bytes that nobody made before. So on a far server that replaces whatever is
/// there it waits once, and not twice.
#[test]
fn no_look_goes_before_a_new_pack() {
    let server = FakeServer::new(|head| {
        of_empty_bucket(head).unwrap_or_else(|| answer(200, "ETag: \"x\"\r\n", ""))
    });
    let store = server.store();
    for number in 0..4 {
        let (name, bytes) = pack(number);
        let data = PackContent::Data;
        store.upload(&name, &bytes, data, &mut |_| {}).unwrap();
    }
    assert_eq!((server.count("HEAD"), server.count("PUT")), (0, 4));
    let puts = server.seen.lock().unwrap().clone();
    let puts = puts.iter().filter(|head| head.starts_with("PUT"));
    let is_conditional = |head: &String| head.to_ascii_lowercase().contains("if-none-match: *");
    assert!(puts.clone().all(is_conditional), "{puts:?}");
    store.put(&name(), b"x").unwrap();
    assert_eq!((server.count("HEAD"), server.count("PUT")), (1, 5));
    assert!(!store.keeps_the_first(), "of two at once nobody knows");
}

#[test]
fn a_server_that_refuses_conditions_gets_none() {
    let server = FakeServer::new(|head| {
        let is_conditional = head.to_ascii_lowercase().contains("if-none-match");
        of_empty_bucket(head).unwrap_or_else(|| match is_conditional {
            true => answer(501, "", "<Error><Code>NotImplemented</Code></Error>"),
            false => answer(200, "ETag: \"x\"\r\n", ""),
        })
    });
    let store = server.store();
    store.put(&name(), b"x").unwrap();
    assert_eq!(server.count("PUT"), 2);
    store.put(&name(), b"x").unwrap();
    assert_eq!((server.count("HEAD"), server.count("PUT")), (2, 3));
    assert!(!store.keeps_the_first());
}

#[test]
fn refusals_pass_or_stay() {
    for (status, code, kind, says) in [
        (503, "SlowDown", ErrorKind::ResourceBusy, "503"),
        (500, "InternalError", ErrorKind::ResourceBusy, "500"),
        (
            409,
            "ConditionalRequestConflict",
            ErrorKind::ResourceBusy,
            "409",
        ),
        (403, "AccessDenied", ErrorKind::PermissionDenied, "may not"),
        (
            403,
            "RequestTimeTooSkewed",
            ErrorKind::PermissionDenied,
            "clock",
        ),
        (404, "NoSuchBucket", ErrorKind::Other, "no such bucket"),
        (307, "TemporaryRedirect", ErrorKind::Other, "elsewhere"),
        (507, "", ErrorKind::StorageFull, "full"),
    ] {
        let server = FakeServer::new(move |_| {
            let body = format!("<Error><Code>{code}</Code></Error>");
            answer(status, "Location: http://127.0.0.1:1/\r\n", &body)
        });
        let error = server.store().get(&name(), 10).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
        shows_no_secret(&error);
        assert_eq!(server.count("GET"), 1, "made once: {error}");
    }
}

#[test]
fn connections_that_end_or_stay_silent_are_tried_again_by_who_does_that() {
    let ends = FakeServer::new(|_| String::new());
    let error = ends.store().get(&name(), 10).unwrap_err();
    let kinds = [ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset];
    assert!(kinds.contains(&error.kind()), "{error}");
    shows_no_secret(&error);
    let silent = FakeServer::new(|_| {
        loop {
            std::thread::park();
        }
    });
    let hurried = CloudOptions {
        idle_timeout: Duration::from_millis(200),
        ..options()
    };
    let error = silent.store_with(&hurried).get(&name(), 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let place = CloudPlace::parse(Cloud::S3, &format!("http://{gone}/bucket")).unwrap();
    let error = CloudStore::open(place, &options())
        .unwrap()
        .get(&name(), 10)
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// Reads the beginning of a request, answers, and closes the connection with the rest unread.
fn refuses_in_the_middle(listener: &TcpListener, refusal: &str) -> Option<()> {
    let (mut connection, _) = listener.accept().ok()?;
    let mut reader = BufReader::new(connection.try_clone().ok()?);
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 2 {
        line.clear();
    }
    reader.read_exact(&mut [0; 1000]).ok()?;
    connection.write_all(refusal.as_bytes()).ok()
}

/// So does a server that is full, and this is what its user needs to know.
#[test]
fn a_refusal_in_the_middle_of_an_upload_is_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let name = format!("http://{}/bucket/p", listener.local_addr().unwrap());
    let body = "<Error><Code>XMinioStorageFull</Code></Error>";
    let refusal = answer(507, "Connection: close\r\n", body);
    std::thread::spawn(move || while refuses_in_the_middle(&listener, &refusal).is_some() {});
    let place = CloudPlace::parse(Cloud::S3, &name).unwrap();
    let store = CloudStore::open(place, &options()).unwrap();
    let (name, bytes) = (pack(1).0, bytes::Bytes::from(vec![7; 32 << 20]));
    let data = PackContent::Data;
    let error = store.upload(&name, &bytes, data, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
}

/// Pages are requested until the server says that there are no more, and what stands outside of the
/// prefix is no object of this repository.
#[test]
fn a_listing_has_all_pages_and_nothing_of_elsewhere() {
    let id = "07".repeat(32);
    let object =
        move |dir: &str| format!("<Contents><Key>{dir}/index/{id}</Key><Size>1</Size></Contents>");
    let page = |is_truncated: bool, token: &str, inside: &str| {
        answer(
            200,
            "",
            &format!(
                "<ListBucketResult><IsTruncated>{is_truncated}</IsTruncated>\
                 <NextContinuationToken>{token}</NextContinuationToken>{inside}</ListBucketResult>"
            ),
        )
    };
    let one = object.clone();
    let server = FakeServer::new(
        move |head| match head.contains("continuation-token=a%26/%3D") {
            true => page(false, "", &one("p")),
            false => page(true, "a&amp;/=", ""),
        },
    );
    let mut found = Vec::new();
    let listed = server
        .store()
        .list(Area::Index, &mut |info| found.push(info.name));
    listed.unwrap();
    assert_eq!(found, [name()]);
    assert_eq!(server.count("GET /bucket?list-type=2&prefix=p/index/"), 2);
    let elsewhere = FakeServer::new(move |_| page(false, "", &object("other")));
    let mut found = 0;
    let error = elsewhere.store().list(Area::Index, &mut |_| found += 1);
    assert_eq!(
        (error.unwrap_err().kind(), found),
        (ErrorKind::InvalidData, 0)
    );
    let turns = FakeServer::new(move |_| page(true, "same", ""));
    let error = turns.store().list(Area::Index, &mut |_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    assert!(turns.count("GET") <= 3);
}

#[test]
fn a_missing_bucket_is_no_empty_one() {
    let server = FakeServer::new(|head| match head.starts_with("HEAD") {
        true => answer(404, "", "").replace("Content-Length: 0\r\n", ""),
        false => answer(404, "", "<Error><Code>NoSuchBucket</Code></Error>"),
    });
    let store = server.store();
    for _ in 0..2 {
        let error = store.stat(&name()).unwrap_err();
        assert!(error.to_string().contains("no such bucket"), "{error}");
    }
}

/// Counts, and never makes anybody wait for long.
#[derive(Debug, Default)]
struct Counted {
    up: AtomicUsize,
    down: AtomicUsize,
    pieces: AtomicUsize,
}

impl Pace for Counted {
    fn upload_piece(&self) -> usize {
        10
    }
    fn upload(&self, bytes: usize) -> Duration {
        assert!(bytes <= 10);
        self.pieces.fetch_add(1, Ordering::Relaxed);
        self.up.fetch_add(bytes, Ordering::Relaxed);
        Duration::from_millis(1)
    }
    fn download(&self, bytes: usize) -> Duration {
        self.down.fetch_add(bytes, Ordering::Relaxed);
        Duration::from_millis(1)
    }
}

#[test]
fn a_bound_on_bytes_a_second_counts_every_byte_of_objects() {
    let server = FakeServer::new(|head| match head.split(' ').next() {
        Some("HEAD") => answer(200, "ETag: \"x\"\r\n", "").replace("Length: 0", "Length: 95"),
        Some("PUT") => answer(200, "ETag: \"x\"\r\n", ""),
        _ => answer(200, "ETag: \"x\"\r\n", &"y".repeat(95)),
    });
    let counted = Arc::new(Counted::default());
    let mut told = options();
    told.pace = Some(counted.clone());
    let store = server.store_with(&told);
    assert_eq!(store.get(&name(), 100).unwrap().len(), 95);
    assert_eq!(counted.down.load(Ordering::Relaxed), 95);
    // It is there already.
    store.put(&name(), &[7; 95]).unwrap();
    assert_eq!(counted.up.load(Ordering::Relaxed), 0);
    let absent = FakeServer::new(|head| match head.split(' ').next() {
        Some("HEAD") => answer(404, "", "").replace("Content-Length: 0\r\n", ""),
        Some("PUT") => answer(200, "ETag: \"x\"\r\n", ""),
        _ => {
            let page = "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
            answer(200, "", page)
        }
    });
    absent.store_with(&told).put(&name(), &[7; 95]).unwrap();
    assert_eq!(counted.up.load(Ordering::Relaxed), 95);
    assert_eq!(counted.pieces.load(Ordering::Relaxed), 10);
}

/// One look and one request, however large: with a condition it would be one for each 8 MiB.
#[test]
#[cfg(feature = "clouds")]
fn a_pack_goes_to_google_in_one_request() {
    let server = FakeServer::new(|head| match head.split(' ').next() {
        Some("POST") => answer(
            200,
            "",
            r#"{"name":"p/packs/x","size":"20000000","generation":"1"}"#,
        ),
        Some("GET") => answer(
            404,
            "",
            r#"{"error":{"code":404,"message":"No such object"}}"#,
        ),
        _ => answer(500, "", ""),
    });
    let url = format!("http://{}", server.address);
    let told = CloudOptions {
        environment: Variables::new(move |name| {
            (name == "STORAGE_EMULATOR_HOST").then(|| url.clone())
        }),
        ..options()
    };
    let place = CloudPlace::parse(Cloud::Gcs, "bucket:/p").unwrap();
    let store = CloudStore::open(place, &told).unwrap();
    let pack = bytes::Bytes::from(vec![7; 20_000_000]);
    for content in [PackContent::Data, PackContent::Metadata] {
        let name = ObjectName::pack(ObjectId([7; 32]));
        store.upload(&name, &pack, content, &mut |_| {}).unwrap();
    }
    assert_eq!((server.count("GET"), server.count("POST")), (2, 2));
    assert_eq!(server.seen.lock().unwrap().len(), 4);
}
