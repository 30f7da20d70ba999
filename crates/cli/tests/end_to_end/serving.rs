//! `bale serve` as whoever runs it meets it: what it refuses to be, and how it begins and ends.

use crate::bench::Bench;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

const USAGE: i32 = 2;

/// Starts it on a port of its own; the address it says.
fn start(bench: &Bench, words: &[&str]) -> (Child, String) {
    let mut command = bench.command();
    command
        .args(["serve", "--json", "--listen", "127.0.0.1:0"])
        .args(words);
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(said["type"], "serving");
    (server, said["address"].as_str().unwrap().to_owned())
}

fn get(address: &str, path: &str, login: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{login}Connection: close\r\n\r\n");
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn end(mut server: Child) {
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_server_says_where_it_listens_and_ends_well_when_it_is_told_to() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (server, address) = start(&bench, &["--no-auth", &served]);
    let answer = get(&address, "/metrics", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    end(server);
}

#[test]
fn a_printed_line_lets_its_user_in_and_nobody_else() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let mut command = bench.command();
    command.args(["serve", "--hash-password", "me"]);
    let mut hashing = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    hashing
        .stdin
        .take()
        .unwrap()
        .write_all(b"s3cr3t\n")
        .unwrap();
    let line = hashing.wait_with_output().unwrap().stdout;
    assert!(line.starts_with(b"me:$argon2id$"));
    let users = bench.write("users", line).display().to_string();
    let (server, address) = start(&bench, &["--password-file", &users, "--private", &served]);
    // me:s3cr3t, me:secret
    let right = get(
        &address,
        "/metrics",
        "Authorization: Basic bWU6czNjcjN0\r\n",
    );
    assert!(right.starts_with("HTTP/1.1 200 "), "{right}");
    for login in ["", "Authorization: Basic bWU6c2VjcmV0\r\n"] {
        let refused = get(&address, "/metrics", login);
        assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    }
    end(server);
}

#[test]
fn nobody_serves_by_mistake() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let users = bench.write("users", "me:$2y$05$abc").display().to_string();
    for (words, code, said) in [
        (&[served.as_str()][..], USAGE, "--no-auth"),
        (
            &["--no-auth", "--listen", "0.0.0.0:0", &served],
            USAGE,
            "this machine alone",
        ),
        (&["--no-auth", "--private", &served], USAGE, "--private"),
        (&["--no-auth"], USAGE, "DIR"),
        (
            &["--no-auth", "--tls-cert", &users, &served],
            USAGE,
            "--tls-key",
        ),
        (&["--password-file", &users, &served], 1, "line 1"),
        (&["--no-auth", "/nowhere/at/all"], 1, "/nowhere/at/all"),
    ] {
        let mut command = bench.command();
        let ran = command.arg("serve").args(words).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stderr);
        assert_eq!(ran.status.code(), Some(code), "{words:?}: {text}");
        assert!(text.contains(said), "{words:?}: {text}");
    }
}
