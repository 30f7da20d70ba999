//! `RestStore` in front of a server that lies: every wrong length, cut body, range or listing is an
//! error, and none takes memory or time without end.

use crate::script::{ScriptServer, answer, options, whole};
use bale_format::ObjectId;
use bale_remote::{HttpOptions, HttpUrl, RestStore, StoreLogin};
use bale_repository::store::{Area, ObjectName, Store};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::Duration;

const LEN_MAX: u64 = 1 << 20;

/// A store, and the server that answers it by a script.
struct Script {
    store: RestStore,
    server: ScriptServer,
}

impl Script {
    fn new(answers: &[&[u8]]) -> Script {
        Script::with(answers, &options())
    }

    fn with(answers: &[&[u8]], options: &HttpOptions) -> Script {
        let answers = answers.iter().map(|answer| answer.to_vec());
        let server = ScriptServer::new(answers.collect());
        let store = RestStore::open(HttpUrl::parse(&server.url).unwrap(), options).unwrap();
        Script { store, server }
    }

    /// Every answer was fetched; the heads of the requests.
    fn end(self) -> Vec<String> {
        self.server.end()
    }
}

fn name() -> ObjectName {
    ObjectName::pack(ObjectId([0xab; 32]))
}

#[test]
fn what_a_get_brings_is_what_was_promised_or_an_error() {
    let two_lengths = "200 OK\nContent-Length: 1\nContent-Length: 2";
    let huge = "200 OK\nContent-Length: 18446744073709551615";
    let moved = "301 Moved\nLocation: http://127.0.0.1:1/\nContent-Length: 0";
    for (bytes, kinds) in [
        (
            answer("200 OK\nContent-Length: 10", b"short"),
            &[ErrorKind::ConnectionAborted][..],
        ),
        (
            answer("200 OK\nContent-Length: -1", b"x"),
            &[ErrorKind::InvalidData],
        ),
        (
            answer("200 OK\nContent-Length: x", b"x"),
            &[ErrorKind::InvalidData],
        ),
        (answer(two_lengths, b"xx"), &[ErrorKind::InvalidData]),
        (answer("200 OK", b"no length"), &[ErrorKind::InvalidData]),
        (
            answer("200 OK\nContent-Length: 1048577", b""),
            &[ErrorKind::FileTooLarge],
        ),
        (answer(huge, b""), &[ErrorKind::FileTooLarge]),
        (whole("206 Partial Content", "x"), &[ErrorKind::InvalidData]),
        (answer("204 No Content", b""), &[ErrorKind::InvalidData]),
        (answer(moved, b""), &[ErrorKind::Other]),
        (
            whole("401 Unauthorized", ""),
            &[ErrorKind::PermissionDenied],
        ),
        (whole("403 Forbidden", ""), &[ErrorKind::PermissionDenied]),
        (whole("404 Not Found", ""), &[ErrorKind::NotFound]),
        (whole("418 Teapot", ""), &[ErrorKind::Other]),
        (whole("500 Oh", ""), &[ErrorKind::ResourceBusy]),
        (whole("503 Later", ""), &[ErrorKind::ResourceBusy]),
        (whole("507 Full", ""), &[ErrorKind::StorageFull]),
        (
            b"".to_vec(),
            &[ErrorKind::ConnectionAborted, ErrorKind::ConnectionReset],
        ),
    ] {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let script = Script::new(&[&bytes]);
        let error = script.store.get(&name(), LEN_MAX).expect_err(&shown);
        assert!(
            kinds.contains(&error.kind()),
            "{shown}: {:?} {error}",
            error.kind()
        );
        assert_eq!(script.end().len(), 1, "a request is made once");
    }
    for rubbish in [
        &b"SSH-2.0-OpenSSH_9.2\r\n"[..],
        b"HTTP/1.1 abc\r\n\r\n",
        &[0; 100],
    ] {
        let script = Script::new(&[rubbish]);
        let error = script.store.get(&name(), LEN_MAX).unwrap_err();
        assert!(!error.is_not_found() && !error.is_storage_full(), "{error}");
        script.end();
    }
}

/// A head without end must not be kept in memory.
#[test]
fn an_endless_head_is_an_error() {
    let mut bytes = b"HTTP/1.1 200 OK\r\n".to_vec();
    for number in 0..20_000 {
        bytes.extend_from_slice(format!("X-{number}: {}\r\n", "y".repeat(60)).as_bytes());
    }
    let script = Script::new(&[&bytes]);
    assert!(script.store.get(&name(), LEN_MAX).is_err());
    script.end();
}

#[test]
fn a_range_is_the_one_requested_or_an_error() {
    let part = |range: &str, body: &str| whole(&format!("206 P\nContent-Range: {range}"), body);
    let script = Script::new(&[&part("bytes 10-13/100", "good")]);
    let mut buf = [0; 4];
    script.store.read_at(&name(), 10, &mut buf).unwrap();
    assert_eq!(&buf, b"good");
    let requests = script.end();
    assert!(
        requests[0]
            .to_ascii_lowercase()
            .contains("range: bytes=10-13\r\n"),
        "{requests:?}"
    );
    let cut = answer(
        "206 P\nContent-Range: bytes 10-13/100\nContent-Length: 4",
        b"ev",
    );
    for (bytes, kind) in [
        (whole("200 OK", "evil"), ErrorKind::InvalidData),
        (whole("206 P", "evil"), ErrorKind::ConnectionAborted),
        (part("bytes 0-3/100", "evil"), ErrorKind::ConnectionAborted),
        (part("bytes 10-13/12", "evil"), ErrorKind::ConnectionAborted),
        (
            part("bytes 10-13/100", "evil!"),
            ErrorKind::ConnectionAborted,
        ),
        (part("10-13/100", "evil"), ErrorKind::ConnectionAborted),
        (
            part("bytes +10-13/100", "evil"),
            ErrorKind::ConnectionAborted,
        ),
        (part("bytes 10-11/12", "ev"), ErrorKind::UnexpectedEof),
        (part("bytes 10-11/100", "ev"), ErrorKind::ConnectionAborted),
        (
            part("bytes 10-18446744073709551615/0", "ev"),
            ErrorKind::ConnectionAborted,
        ),
        (cut, ErrorKind::ConnectionAborted),
        (
            whole("416 R\nContent-Range: bytes */5", ""),
            ErrorKind::UnexpectedEof,
        ),
        (whole("404 N", ""), ErrorKind::NotFound),
    ] {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let script = Script::new(&[&bytes]);
        let error = script
            .store
            .read_at(&name(), 10, &mut buf)
            .expect_err(&shown);
        assert_eq!(error.kind(), kind, "{shown}: {error}");
        // What fits no such request says nothing of the object.
        let is_of_object = matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::NotFound);
        assert_eq!(error.is_inconclusive(), !is_of_object, "{error}");
        script.end();
    }
}

#[test]
fn a_listing_is_whole_or_an_error_and_foreign_names_are_skipped() {
    let id = "ab".repeat(32);
    let listing = format!(
        "[{{\"name\":\"{id}\",\"size\":7}},{{\"name\":\"ab/{id}\",\"size\":8}},\
         {{\"name\":\"../../etc/passwd\",\"size\":1}},{{\"name\":\"\u{e4}\",\"size\":1}},\
         {{\"name\":\"ab/ab/{id}\",\"size\":1}},{{\"name\":\"\",\"size\":1}}]"
    );
    let script = Script::new(&[&whole("200 OK", &listing)]);
    let mut listed = Vec::new();
    let mut found = |info: bale_repository::store::ObjectInfo| listed.push((info.name, info.len));
    script.store.list(Area::Packs, &mut found).unwrap();
    assert_eq!(listed, [(name(), 7), (name(), 8)]);
    let requests = script.end();
    assert!(
        requests[0].starts_with("GET /r/packs/ HTTP/1.1\r\n"),
        "{requests:?}"
    );
    assert!(
        requests[0].contains("application/vnd.x.restic.rest.v2"),
        "{requests:?}"
    );

    let longer = format!("200 OK\nContent-Length: {}", listing.len() + 1);
    let chunked = "200 OK\nTransfer-Encoding: chunked";
    for (bytes, kinds) in [
        (
            answer(&longer, listing.as_bytes()),
            &[ErrorKind::ConnectionAborted][..],
        ),
        (
            answer("200 OK", b"[{\"name\":\"a\",\"size\":1},"),
            &[ErrorKind::ConnectionAborted],
        ),
        (
            answer(chunked, b"2\r\n[]\r\n"),
            &[ErrorKind::ConnectionAborted],
        ),
        (answer(chunked, b"zz\r\n[]\r\n"), &[ErrorKind::InvalidData]),
        (whole("200 OK", "<html>"), &[ErrorKind::InvalidData]),
        (whole("206 P", "[]"), &[ErrorKind::InvalidData]),
    ] {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let script = Script::new(&[&bytes]);
        let error = script
            .store
            .list(Area::Index, &mut |_| {})
            .expect_err(&shown);
        assert!(
            kinds.contains(&error.kind()),
            "{shown}: {:?} {error}",
            error.kind()
        );
        script.end();
    }
}

#[test]
fn a_flat_listing_of_runs_is_read_run_by_run() {
    let (run, id) = ("01".repeat(16), "ab".repeat(32));
    let all = format!("[{{\"name\":\"{run}\",\"size\":1}},{{\"name\":\"{id}\",\"size\":7}}]");
    let page = whole("200 OK", &all);
    let script = Script::new(&[&page, &page]);
    let mut listed = Vec::new();
    script
        .store
        .list(Area::Runs, &mut |info| listed.push(info.name))
        .unwrap();
    assert_eq!(listed, [ObjectName::run([1; 16], ObjectId([0xab; 32]))]);
    let requests = script.end();
    assert!(
        requests[1].starts_with(&format!("GET /r/runs/{run}/ ")),
        "{requests:?}"
    );

    let unnamed = format!("[{{\"name\":\"{id}\",\"size\":7}}]");
    let script = Script::new(&[&whole("200 OK", &unnamed)]);
    let error = script.store.list(Area::Runs, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    script.end();
}

#[test]
fn the_first_record_of_a_run_brings_the_name_of_the_run_and_the_last_one_takes_it() {
    let done = whole("201 Created", "");
    let run = "01".repeat(16);
    let left = whole("200 OK", &format!("[{{\"name\":\"{run}\",\"size\":1}}]"));
    let (absent, there) = (
        answer("404 N", b""),
        answer("200 OK\nContent-Length: 6", b""),
    );
    let put = [&absent, &done, &there];
    let answers = [&[&done][..], &put, &put, &[&done, &left, &done]].concat();
    let answers: Vec<_> = answers.into_iter().map(Vec::as_slice).collect();
    let script = Script::new(&answers);
    let record = |id| ObjectName::run([1; 16], ObjectId([id; 32]));
    script.store.put(&record(1), b"record").unwrap();
    script.store.put(&record(2), b"record").unwrap();
    script.store.delete(&record(2)).unwrap();
    let requests = script.end();
    let lines: Vec<_> = requests
        .iter()
        .filter_map(|head| head.lines().next())
        .collect();
    let expected = [
        format!("POST /r/runs/{run}/{run} HTTP/1.1"),
        format!("HEAD /r/{} HTTP/1.1", record(1)),
        format!("POST /r/{} HTTP/1.1", record(1)),
        format!("HEAD /r/{} HTTP/1.1", record(1)),
        format!("HEAD /r/{} HTTP/1.1", record(2)),
        format!("POST /r/{} HTTP/1.1", record(2)),
        format!("HEAD /r/{} HTTP/1.1", record(2)),
        format!("DELETE /r/{} HTTP/1.1", record(2)),
        format!("GET /r/runs/{run}/ HTTP/1.1"),
        format!("DELETE /r/runs/{run}/{run} HTTP/1.1"),
    ];
    assert_eq!(lines, expected);
}

/// Its name says what it is.
fn hello() -> ObjectName {
    ObjectName::pack(ObjectId(*blake3::hash(b"hello").as_bytes()))
}

#[test]
fn putting_what_exists_is_success_if_it_is_as_long() {
    let refused = whole("403 Forbidden", "exists");
    let absent = answer("404 N", b"");
    let there = answer("200 OK\nContent-Length: 5", b"");
    let half = answer("200 OK\nContent-Length: 4", b"");
    let script = Script::new(&[&absent, &refused, &there, &there]);
    script.store.put(&hello(), b"hello").unwrap();
    assert!(script.end()[2].starts_with("HEAD "));
    let script = Script::new(&[&there]);
    script.store.put(&hello(), b"hello").unwrap();
    script.end();
    let script = Script::new(&[&half, &refused, &half]);
    let error = script.store.put(&hello(), b"hello").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
    script.end();
    let script = Script::new(&[&absent, &refused, &absent]);
    let error = script.store.put(&hello(), b"hello").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert!(error.to_string().contains("exists"), "{error}");
    script.end();
}

/// A server that died while it wrote has half an object, and says of it that it is there.
#[test]
fn half_an_object_is_written_again_and_what_was_taken_is_looked_at() {
    let done = whole("201 Created", "");
    let there = answer("200 OK\nContent-Length: 5", b"");
    let half = answer("200 OK\nContent-Length: 4", b"");
    let script = Script::new(&[&half, &done, &there]);
    script.store.put(&hello(), b"hello").unwrap();
    assert!(script.end()[1].starts_with("POST "));
    // Bytes that are not what the name says take nobody's place.
    let script = Script::new(&[&half]);
    script.store.put(&name(), b"hello").unwrap();
    assert_eq!(script.end().len(), 1);
    for after in [half, answer("404 N", b"")] {
        let script = Script::new(&[&answer("404 N", b""), &done, &after]);
        let error = script.store.put(&hello(), b"hello").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        script.end();
    }
}

#[test]
fn a_config_that_is_there_is_not_written_again() {
    let script = Script::new(&[&answer("200 OK\nContent-Length: 5", b"")]);
    script.store.put(&ObjectName::config(), b"other").unwrap();
    assert!(script.end()[0].starts_with("HEAD /r/config "));
}

#[test]
fn a_refused_delete_says_what_kind_of_server_this_may_be() {
    let script = Script::new(&[&whole("403 Forbidden", "")]);
    let error = script.store.delete(&name()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("append-only"), "{error}");
    script.end();
    let script = Script::new(&[&whole("404 N", "")]);
    script.store.delete(&name()).unwrap();
    script.end();
}

#[test]
fn a_password_is_sent_and_never_shown() {
    let login = StoreLogin {
        user: "me".to_owned(),
        password: "s3cr3t".to_owned(),
        origin: "from BALE_LOGIN_FILE".to_owned(),
    };
    let options = HttpOptions {
        login: Some(login),
        ..options()
    };
    assert!(!format!("{options:?}").contains("s3cr3t"));
    let script = Script::with(&[&whole("401 U", "")], &options);
    let error = script.store.get(&name(), LEN_MAX).unwrap_err();
    let place = script.store.place();
    let requests = script.end();
    // me:s3cr3t
    assert!(
        requests[0].contains("Basic bWU6czNjcjN0\r\n"),
        "{requests:?}"
    );
    assert!(!format!("{error} {error:?} {place}").contains("s3cr3t"));
    for part in ["\"me\"", "from BALE_LOGIN_FILE", "--private"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let script = Script::new(&[&whole("403 F", "")]);
    let error = script.store.get(&name(), LEN_MAX).unwrap_err();
    assert!(error.to_string().contains("no login was given"), "{error}");
    script.end();
}

#[test]
fn what_a_server_says_is_shown_without_what_a_terminal_would_act_on() {
    let script = Script::new(&[&whole("500 Oh", "\u{1b}[2Jdisk\u{7} on fire\nsecond")]);
    let said = script.store.get(&name(), LEN_MAX).unwrap_err().to_string();
    assert!(
        said.contains("disk on fire") && !said.contains("second"),
        "{said}"
    );
    assert!(
        !said.contains('\u{1b}') && !said.contains('\u{7}'),
        "{said:?}"
    );
    script.end();
}

#[test]
fn a_silent_server_is_given_up_and_one_that_is_not_there_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options = HttpOptions {
        idle_timeout: Duration::from_millis(50),
        ..options()
    };
    let url = HttpUrl::parse(&format!("http://{address}/")).unwrap();
    let store = RestStore::open(url, &options).unwrap();
    // It is never accepted, only queued by the kernel.
    let error = store.get(&name(), LEN_MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    drop(listener);
    let error = store.get(&name(), LEN_MAX).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
}

/// A directory that is not there is nothing of a repository to come, and of one that is there it is
/// no empty one: what was in it would count as gone.
#[test]
fn a_listing_of_what_is_not_there_is_taken_for_empty_only_where_that_is_true() {
    let gone = whole("404 N", "");
    let config = whole("200 OK", "config");
    let list = |area, answers: &[&[u8]]| {
        let script = Script::new(answers);
        let listed = script.store.list(area, &mut |_| {});
        script.end();
        listed
    };
    for area in [Area::Packs, Area::Damaged] {
        let error = list(area, &[&gone, &gone, &gone]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(!error.to_string().contains("bring it back"), "{error}");
    }
    let error = list(Area::Packs, &[&gone, &config]).unwrap_err();
    assert!(error.to_string().contains("bring it back"), "{error}");
    list(Area::Damaged, &[&gone, &config]).unwrap();
}
