//! `bale serve` as whoever runs it meets it: what it refuses to be, and how it begins and ends.

use crate::bench::{Bench, Ran};
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

/// The store is reached over HTTP by every command that a repository's life has.
#[test]
fn a_repository_on_a_server_lives_as_one_in_a_directory() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (server, address) = start(&bench, &["--no-auth", &served]);
    let repository = format!("rest:http://{address}/name");
    let run = |words: &[&str]| bench.run(&[words, &["-p", "pw", "-r", &repository]].concat());
    let ok = |words: &[&str]| {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{words:?}: {ran}");
        ran
    };

    let absent = run(&["snapshots"]);
    assert_eq!(absent.code, 10, "{absent}");
    let makes_one = format!("bale init -r {repository} makes one");
    assert!(absent.err.contains(&makes_one), "{absent}");

    ok(&["init"]);
    assert!(run(&["init"]).err.contains("already"));
    bench.write("source/one", "1".repeat(100_000));
    bench.write("source/deep/two", "2");
    ok(&["backup", "source"]);
    bench.write("source/deep/three", "3".repeat(70_000));
    let second = ok(&["backup", "source", "--json"]).summary();
    assert_eq!(second["files_new"], 1, "{second}");
    ok(&["check", "--read-data"]);
    ok(&["restore", &bench.address(""), "--target", "back"]);
    bench.sh("diff -r source back");
    ok(&["forget", "--keep-last", "1", "--prune"]);
    ok(&["check", "--read-data"]);
    // What the server holds is a repository in a directory.
    bench.ok(&["check", "--read-data", "-p", "pw", "-r", "served/name"]);
    end(server);
}

/// A refusal stays: nothing is asked again, and no password is shown.
#[test]
fn a_wrong_password_of_a_server_is_said_at_once() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let mut hashing = bench.command();
    hashing.args(["serve", "--hash-password", "me"]);
    hashing.stdin(std::fs::File::open(bench.write("server-pw", "s3cr3t\n")).unwrap());
    let line = hashing.output().unwrap().stdout;
    let users = bench.write("users", line).display().to_string();
    let (server, address) = start(&bench, &["--password-file", &users, &served]);
    let init = |login: &str| -> Ran {
        let repository = format!("rest:http://{login}@{address}/name");
        bench.run(&["init", "-p", "pw", "-r", &repository])
    };
    let refused = init("me:wr0ng");
    assert_eq!(refused.code, 1, "{refused}");
    assert!(
        refused.err.contains("no such user with this password"),
        "{refused}"
    );
    assert!(!refused.err.contains("trying again"), "{refused}");
    assert!(!refused.err.contains("wr0ng"), "{refused}");
    assert!(!bench.path("served/name").exists());
    let made = init("me:s3cr3t");
    assert_eq!(made.code, 0, "{made}");
    assert!(!format!("{made}").contains("s3cr3t"), "{made}");
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
