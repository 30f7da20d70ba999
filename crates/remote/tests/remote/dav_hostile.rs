//! WebDAV in front of a server that lies: what it answers is what was asked for or an error, and
//! none takes memory or time without end.

use crate::script::{ScriptServer, answer, options, whole};
use bale_format::ObjectId;
use bale_remote::webdav::{DavFiles, DavResource, read_multistatus};
use bale_remote::{FileStore, HttpUrl, RemoteFiles};
use bale_repository::limits::UPLOADS_MAX;
use bale_repository::store::{Area, ObjectName, Store};
use std::io::{self, ErrorKind, Read};

/// A store, and the server that answers it by a script.
struct Script {
    store: FileStore<DavFiles>,
    server: ScriptServer,
}

impl Script {
    fn new(answers: &[Vec<u8>]) -> Script {
        let server = ScriptServer::new(answers.to_vec());
        let url = HttpUrl::parse_escaped(&server.url).unwrap();
        let files = DavFiles::new(url, &options()).unwrap();
        Script {
            store: FileStore::open(files),
            server,
        }
    }

    /// Every answer was fetched; the first lines of the requests.
    fn end(self) -> Vec<String> {
        let requests = self.server.end();
        let lines = requests.iter().filter_map(|head| head.lines().next());
        lines.map(str::to_owned).collect()
    }
}

fn file(href: &str, len: &str) -> String {
    format!(
        "<D:response><D:href>{href}</D:href><D:propstat><D:prop>\
         <D:getcontentlength>{len}</D:getcontentlength><D:resourcetype/></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    )
}

fn collection(href: &str) -> String {
    format!(
        "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>\
         <D:collection/></D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status>\
         </D:propstat></D:response>"
    )
}

fn listing(responses: &str) -> String {
    format!("<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">{responses}</D:multistatus>")
}

fn name() -> ObjectName {
    ObjectName::index(ObjectId([0xab; 32]))
}

fn href() -> String {
    format!("/r/index/{}", "ab".repeat(32))
}

fn listed(answer: Vec<u8>) -> Result<Vec<(ObjectName, u64)>, ErrorKind> {
    let script = Script::new(&[answer]);
    let mut found = Vec::new();
    let done = script
        .store
        .list(Area::Index, &mut |info| found.push((info.name, info.len)));
    script.end();
    done.map(|()| found).map_err(|error| error.kind())
}

#[test]
fn a_listing_is_whole_or_an_error_and_foreign_names_are_skipped() {
    let mut text = collection("/r/index/");
    for (other, len) in [
        ("/r/index/../../etc/passwd", "1"),
        ("/r/index/%zz", "1"),
        ("x", "2"),
    ] {
        text += &file(other, len);
    }
    text += &file(&format!("http://h{}", href()), "7");
    let text = listing(&text);
    assert_eq!(listed(whole("207 M", &text)), Ok(vec![(name(), 7)]));
    let head = format!("207 M\nContent-Length: {}", text.len());
    for cut in (0..text.len()).step_by(13) {
        let error = listed(answer(&head, &text.as_bytes()[..cut])).unwrap_err();
        assert_eq!(error, ErrorKind::ConnectionAborted, "cut at {cut}");
        // Of a server that does not say how much comes.
        let error = listed(answer("207 M", &text.as_bytes()[..cut])).unwrap_err();
        assert_eq!(error, ErrorKind::ConnectionAborted, "cut at {cut}");
    }
    let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>";
    for (status, body, kind) in [
        ("207 M", listing(""), ErrorKind::InvalidData),
        (
            "207 M",
            listing(&file(&href(), "-1")),
            ErrorKind::InvalidData,
        ),
        (
            "207 M",
            listing(&file(&href(), "99999999999999999999")),
            ErrorKind::InvalidData,
        ),
        ("207 M", listing(&file(&href(), "")), ErrorKind::InvalidData),
        ("207 M", listing(&file("", "1")), ErrorKind::InvalidData),
        ("207 M", listing(&file("&b;", "1")), ErrorKind::InvalidData),
        (
            "207 M",
            format!("{bomb}{}", listing("")),
            ErrorKind::InvalidData,
        ),
        (
            "207 M",
            "<html><body>Welcome</body></html>".to_owned(),
            ErrorKind::InvalidData,
        ),
        ("207 M", "{}".to_owned(), ErrorKind::ConnectionAborted),
        ("200 OK", listing(""), ErrorKind::InvalidData),
        ("423 Locked", String::new(), ErrorKind::ResourceBusy),
        ("507 Full", String::new(), ErrorKind::StorageFull),
        ("405 No", String::new(), ErrorKind::Unsupported),
        ("301 Moved", String::new(), ErrorKind::Other),
    ] {
        assert_eq!(listed(whole(status, &body)), Err(kind), "{status} {body}");
    }
}

#[test]
fn nothing_without_end_is_read_without_end() {
    let deep = "<D:x>".repeat(1_000_000);
    let mut found = 0;
    let mut count = |_: &DavResource| found += 1;
    for (start, filler) in [
        ("<D:multistatus><D:response><D:href>", "x".to_owned()),
        ("<D:multistatus>", " ".to_owned()),
        ("<D:multistatus>", "<D:x/>".to_owned()),
        ("<D:multistatus>", deep),
        ("<D:multistatus><!-- ", "x".to_owned()),
        ("<D:multistatus a='", "x".to_owned()),
    ] {
        let endless = Endless(filler.into_bytes(), 0);
        let error = read_multistatus(start.as_bytes().chain(endless), &mut count).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{start}: {error}");
    }
    let many = listing(&file("/x", "1").repeat(20_000));
    read_multistatus(many.as_bytes(), &mut count).unwrap();
    assert_eq!(found, 20_000);
}

struct Endless(Vec<u8>, usize);

impl Read for Endless {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        for byte in buf.iter_mut() {
            *byte = self.0[self.1 % self.0.len()];
            self.1 += 1;
        }
        Ok(buf.len())
    }
}

#[test]
fn a_range_is_the_one_requested_also_out_of_the_whole() {
    let part = |range: &str, body: &str| whole(&format!("206 P\nContent-Range: {range}"), body);
    let mut buf = [0; 4];
    for good in [part("bytes 2-5/9", "good"), whole("200 OK", "..good...")] {
        let script = Script::new(&[good]);
        script.store.read_at(&name(), 2, &mut buf).unwrap();
        assert_eq!(&buf, b"good");
        script.end();
    }
    for (bytes, kind) in [
        (part("bytes 0-3/9", "evil"), ErrorKind::ConnectionAborted),
        (part("bytes 2-5/9", "evil!"), ErrorKind::ConnectionAborted),
        (part("bytes 2-3/4", "ev"), ErrorKind::UnexpectedEof),
        (whole("200 OK", "..evi"), ErrorKind::UnexpectedEof),
        (
            answer("200 OK\nContent-Length: 9", b"..ev"),
            ErrorKind::ConnectionAborted,
        ),
        (whole("404 N", ""), ErrorKind::NotFound),
    ] {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let script = Script::new(&[bytes]);
        let error = script
            .store
            .read_at(&name(), 2, &mut buf)
            .expect_err(&shown);
        assert_eq!(error.kind(), kind, "{shown}: {error}");
        script.end();
    }
}

/// Answers to a put, from the look whether it is there to the look whether it is whole.
#[test]
fn what_was_put_is_looked_at_before_and_after_it_has_its_name() {
    let absent = whole("404 N", "");
    let done = whole("201 Created", "<html>Created</html>");
    let tmp = |len: &str| -> Vec<u8> { whole("207 M", &listing(&file("/r/tmp/x", len))) };
    let there = |len: &str| whole("207 M", &listing(&file(&href(), len)));
    let swept = whole("207 M", &listing(&collection("/r/tmp/")));
    // The temporary name is drawn, so a look at it cannot be scripted: it says it is another.
    let script = Script::new(&[
        swept.clone(),
        absent.clone(),
        done.clone(),
        tmp("5"),
        done.clone(),
    ]);
    let error = script.store.put(&name(), b"hello").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    let lines = script.end();
    let verbs: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(verbs, ["PROPFIND", "PROPFIND", "PUT", "PROPFIND", "DELETE"]);

    let script = Script::new(&[swept, there("5")]);
    script.store.put(&name(), b"hello").unwrap();
    assert_eq!(script.end().len(), 2, "what is there is left alone");
}

/// Servers answer 500 to what does not fit.
#[test]
fn a_server_that_cannot_write_and_has_no_room_is_full() {
    let room = |bytes: &str| {
        let text = collection("/r/").replace(
            "<D:resourcetype>",
            &format!("<D:quota-available-bytes>{bytes}</D:quota-available-bytes><D:resourcetype>"),
        );
        whole("207 M", &listing(&text))
    };
    // Uploads that failed beside this one have given back theirs.
    let just_enough = UPLOADS_MAX * b"hello".len();
    for (looked, is_full) in [
        (room("4"), true),
        (room("0"), true),
        (room(&(just_enough - 1).to_string()), true),
        (room(&just_enough.to_string()), false),
        // Without a limit, or without a word of it.
        (room("-3"), false),
        (whole("207 M", &listing(&collection("/r/"))), false),
        (whole("500 X", ""), false),
    ] {
        let swept = whole("207 M", &listing(&collection("/r/tmp/")));
        let (absent, broken) = (whole("404 N", ""), whole("500 X", ""));
        let done = whole("204 N", "");
        let script = Script::new(&[swept, absent, broken, looked.clone(), done]);
        let error = script.store.put(&name(), b"hello").unwrap_err();
        let shown = String::from_utf8_lossy(&looked);
        assert_eq!(error.is_storage_full(), is_full, "{shown}: {error}");
        assert_eq!(error.may_pass(), !is_full, "{shown}: {error}");
        assert!(!is_full || error.to_string().contains("no space left"));
        assert_eq!(script.end().len(), 5);
    }
}

/// A collection is deleted where nobody else knows it, and what came into it is put back.
#[test]
fn the_collection_of_a_run_goes_without_what_came_into_it_meanwhile() {
    let run = ObjectName::run([7; 16], ObjectId([1; 32]));
    let late = ObjectName::run([7; 16], ObjectId([2; 32]));
    let of_run = format!("/r/{}/", run.dir());
    let (done, made) = (whole("204 N", ""), whole("201 C", ""));
    let empty = whole("207 M", &listing(&collection(&of_run)));
    let href = format!("/r/tmp/x/{}", late.path().rsplit('/').next().unwrap());
    let late = format!("/r/{}", late.path());
    let with_late = whole("207 M", &listing(&file(&href, "1")));
    let foreign = whole("207 M", &listing(&file("/r/tmp/x/notes", "1")));
    for (aside, verbs) in [
        (with_late, "DELETE PROPFIND MOVE PROPFIND MKCOL MOVE DELETE"),
        (foreign, "DELETE PROPFIND MOVE PROPFIND"),
    ] {
        let answers = [&done, &empty, &made, &aside, &made, &made, &done].map(Clone::clone);
        let script = Script::new(&answers[..verbs.split(' ').count()]);
        script.store.delete(&run).unwrap();
        let requests = script.server.end();
        let lines = requests.iter().filter_map(|head| head.lines().next());
        let said: Vec<_> = lines.filter_map(|line| line.split(' ').next()).collect();
        assert_eq!(said.join(" "), verbs);
        let moved = requests.iter().filter(|head| head.contains(&late)).count();
        assert_eq!(moved, verbs.matches("MKCOL").count(), "back to its name");
        assert!(requests[2].contains("verwrite: F") && requests[2].contains("/r/tmp/.tmp-"));
    }
    // One with something in it is left where it is.
    let used = whole("207 M", &listing(&file(&format!("{of_run}x"), "1")));
    let script = Script::new(&[done, used]);
    script.store.delete(&run).unwrap();
    assert_eq!(script.end().len(), 2);
}

/// It was told of `--private`, which servers of WebDAV do not have.
#[test]
fn a_login_that_is_refused_is_named_without_what_another_server_would_do() {
    for status in ["401 U", "403 F"] {
        let script = Script::new(&[whole(status, "")]);
        let error = script.store.get(&name(), 1 << 20).unwrap_err().to_string();
        assert!(error.contains("no login was given"), "{error}");
        assert!(!error.contains("--private"), "{error}");
        script.end();
    }
}

/// A proxy that does not rewrite `Destination` answers so: nothing of it said what was refused.
#[test]
fn a_move_that_is_refused_is_named() {
    for (status, kind) in [
        ("404 N", ErrorKind::NotFound),
        ("502 B", ErrorKind::ResourceBusy),
        ("501 N", ErrorKind::Other),
    ] {
        let server = ScriptServer::new(vec![whole(status, "")]);
        let url = HttpUrl::parse_escaped(&server.url).unwrap();
        let files = DavFiles::new(url, &options()).unwrap();
        let error = files.rename("tmp/a", "config").unwrap_err();
        assert_eq!(error.kind(), kind);
        for part in ["MOVE", "Destination"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        server.end();
    }
}
