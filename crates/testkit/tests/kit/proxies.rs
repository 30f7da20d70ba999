//! What stands between a client and a server in tests does what its test believes.

use bale_testkit::{
    BucketPolicy, FaultProxy, GateAnswer, GateRequest, HttpGate, LineFault, Passage, Spoken, Toward,
};
use serde_json::json;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Nothing that is waited for takes longer, on whatever machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// More than buffers of sockets hold.
const MUCH: usize = 64 << 20;

/// Serves one connection.
fn server(serve: impl FnOnce(TcpStream) + Send + 'static) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    (address, thread)
}

/// The proxy held on to what it had cut: whoever was sending waited for his own time-out.
#[test]
fn a_client_that_is_sending_learns_at_once_that_its_line_is_cut() {
    let (ends, ended) = std::sync::mpsc::channel::<()>();
    let (address, thread) = server(move |mut connection| {
        connection.write_all(b"one").unwrap();
        // Nothing is read, and nothing ended.
        let _until_the_end = ended.recv();
    });
    let proxy = FaultProxy::of(
        Spoken::Bytes,
        address,
        LineFault::CutOnce(Toward::Client, 0),
    );
    let mut client = TcpStream::connect(proxy.address()).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    let error = client.write_all(&vec![0; MUCH]).unwrap_err();
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(kinds.contains(&error.kind()), "{error}");
    drop(ends);
    thread.join().unwrap();
}

fn ask(gate: &HttpGate, request: &str) -> String {
    let mut client = TcpStream::connect(gate.address()).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_gate_shows_each_request_and_passes_or_answers_it() {
    let seen = Arc::new(Mutex::new(Vec::<GateRequest>::new()));
    let sees = seen.clone();
    let (address, thread) = server(|mut connection| {
        let mut head = [0; 4096];
        let read = connection.read(&mut head).unwrap();
        let head = String::from_utf8_lossy(&head[..read]).into_owned();
        let is_passed = head.starts_with("PUT /a%2Bb?c=%41 HTTP/1.1\r\n") && head.ends_with("body");
        let status = if is_passed { 200 } else { 500 };
        let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok");
        connection.write_all(answer.as_bytes()).unwrap();
    });
    let gate = HttpGate::new(address, move |request| {
        sees.lock().unwrap().push(request.clone());
        match request.method.as_str() {
            "PUT" => Passage::Open,
            _ => Passage::Refused(GateAnswer::s3_error(403, "AccessDenied", "")),
        }
    });
    let passed = ask(
        &gate,
        "PUT /a%2Bb?c=%41 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody",
    );
    assert!(
        passed.starts_with("HTTP/1.1 200 ") && passed.ends_with("ok"),
        "{passed}"
    );
    let refused = ask(&gate, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(refused.starts_with("HTTP/1.1 403 "), "{refused}");
    assert!(refused.contains("<Code>AccessDenied</Code>"), "{refused}");
    let head = ask(&gate, "HEAD / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 3);
    assert_eq!((&*seen[0].path, &*seen[0].body), ("/a+b", &b"body"[..]));
    assert_eq!(seen[0].parameter("c"), Some("A"));
    assert_eq!(seen[0].header("content-length"), Some("4"));
    thread.join().unwrap();
}

fn request(method: &str, target: &str, headers: &[&str], body: &str) -> GateRequest {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pair = |pair: &str, at: char| {
        let (name, value) = pair.split_once(at).unwrap_or((pair, ""));
        (name.to_owned(), value.trim().to_owned())
    };
    let query = query.split('&').filter(|one| !one.is_empty());
    GateRequest {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.map(|one| pair(one, '=')).collect(),
        headers: headers.iter().map(|one| pair(one, ':')).collect(),
        body: body.as_bytes().to_vec(),
        line: String::new(),
    }
}

#[test]
fn a_policy_refuses_what_one_statement_denies_or_none_allows() {
    let policy = json!({"Statement": [
        {"Effect": "Allow", "Action": ["s3:GetObject", "s3:PutObject"],
            "Resource": "arn:aws:s3:::b/p/*"},
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::b",
            "Condition": {"StringLike": {"s3:prefix": "p/*"}}},
        {"Effect": "Deny", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::b/p/*",
            "Condition": {"Null": {"s3:if-none-match": "true"},
                "Bool": {"s3:ObjectCreationOperation": "true"}}},
        {"Effect": "Deny", "Action": "s3:DeleteObject", "NotResource": "arn:aws:s3:::b/p/runs/*"},
        {"Effect": "Deny", "NotAction": ["s3:Get*", "s3:*Object", "s3:List*"],
            "Resource": "*"},
    ]});
    let mut policy = BucketPolicy::new(&policy, "b");
    let condition = ["if-none-match: *"];
    let two =
        "<Delete><Object><Key>p/runs/1</Key></Object><Object><Key>p/k</Key></Object></Delete>";
    for (request, by_policy, by_denial) in [
        (request("GET", "/b/p/k", &[], ""), None, None),
        (
            request("GET", "/b/q/k", &[], ""),
            Some("s3:GetObject"),
            None,
        ),
        (request("GET", "/b?prefix=p/x", &[], ""), None, None),
        (request("GET", "/b", &[], ""), Some("s3:ListBucket"), None),
        (request("PUT", "/b/p/k", &condition, ""), None, None),
        (
            request("PUT", "/b/p/k", &[], ""),
            Some("s3:PutObject"),
            Some("s3:PutObject"),
        ),
        (request("POST", "/b/p/k?uploads", &[], ""), None, None),
        (
            request("POST", "/b/p/k?uploadId=1", &[], ""),
            Some("s3:PutObject"),
            Some("s3:PutObject"),
        ),
        (
            request("DELETE", "/b/p/runs/1", &[], ""),
            Some("s3:DeleteObject"),
            None,
        ),
        (
            request("DELETE", "/b/p/k", &[], ""),
            Some("s3:DeleteObject"),
            Some("s3:DeleteObject"),
        ),
        (
            request("DELETE", "/b/p/k?versionId=1", &[], ""),
            Some("s3:DeleteObjectVersion"),
            Some("s3:DeleteObjectVersion"),
        ),
        (
            request("POST", "/b?delete", &[], two),
            Some("s3:DeleteObject"),
            Some("s3:DeleteObject"),
        ),
        (
            request("PUT", "/b?policy", &[], ""),
            Some("s3:PutBucketPolicy"),
            Some("s3:PutBucketPolicy"),
        ),
    ] {
        for (is_powerful, expected) in [(false, by_policy), (true, by_denial)] {
            policy.is_powerful = is_powerful;
            assert_eq!(
                policy.refused(&request),
                expected,
                "{is_powerful} {request:?}"
            );
        }
    }
    // Amazon hides what is missing from who may not list everything.
    policy.is_powerful = false;
    let passage = policy.passage(&request("HEAD", "/b/p/k", &[], ""));
    assert!(
        matches!(passage, Passage::HidingWhatIsMissing(_)),
        "{passage:?}"
    );
}
