//! `bale serve` as whoever runs it meets it: what it refuses to be, and how it begins and ends.

use crate::bench::{Bench, Ran, is_root, skipped};
use crate::remote_life::lives;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const USAGE: i32 = 2;

/// A server that ends with its test, also when that fails.
pub struct Server(Child);

impl Server {
    /// At once, as a power cut does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _it_has_ended = self.0.kill();
        let _nobody_asks = self.0.wait();
    }
}

/// Starts it on a port of its own; the address it says.
pub fn start(bench: &Bench, words: &[&str]) -> (Server, String) {
    started(bench.command(), words)
}

/// The same at an address, as one that was there before.
pub fn start_at(bench: &Bench, address: &str, words: &[&str]) -> Server {
    listening(bench.command(), address, words).0
}

fn started(command: Command, words: &[&str]) -> (Server, String) {
    listening(command, "127.0.0.1:0", words)
}

fn listening(mut command: Command, address: &str, words: &[&str]) -> (Server, String) {
    command
        .args(["serve", "--json", "--listen", address])
        .args(words);
    let mut server = Server(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(said["type"], "serving");
    (server, said["address"].as_str().unwrap().to_owned())
}

pub fn get(address: &str, path: &str, login: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{login}Connection: close\r\n\r\n");
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

fn end(mut server: Server) {
    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(server.0.wait().unwrap().code(), Some(0));
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
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (server, address) = start(&bench, &["--no-auth", &served]);
    let repository = format!("rest:http://{address}/name");
    lives(&bench, &repository, &[]);
    // What the server holds is a repository in a directory.
    bench.ok(&["check", "--read-data", "-p", "pw", "-r", "served/name"]);
    end(server);
}

/// As systemd starts it: the socket is open already, as file descriptor 3.
#[test]
fn a_socket_that_it_is_started_with_is_served() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    const START: &str = "import os, socket, sys
listener = socket.create_server(('127.0.0.1', 0))
os.dup2(listener.fileno(), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1')
os.execv(sys.argv[1], sys.argv[1:])";
    let start = |words: &[&str]| {
        let mut command = bench.prepared(std::process::Command::new("python3"));
        command.args(["-c", START]).arg(crate::bench::binary());
        command.args(["serve", "--json", "--no-auth"]).args(words);
        command
    };
    let mut command = start(&[&served]);
    let mut server = Server(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let said: serde_json::Value = serde_json::from_str(&line).unwrap();
    let answer = get(said["address"].as_str().unwrap(), "/metrics", "");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    end(server);
    let both = start(&["--listen", "127.0.0.1:0", &served])
        .output()
        .unwrap();
    assert_eq!(both.status.code(), Some(USAGE));
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

/// It was "the server failed" (500), and the client asked again for a quarter of an hour.
#[test]
fn what_the_servers_user_may_not_touch_is_named_with_what_to_do() {
    if !is_root() {
        return skipped("a server that runs as another user needs root");
    }
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/one", "1".repeat(100_000));
    bench.sh("head -c 3000000 /dev/urandom > source/large");
    bench.sh("mkdir served; chmod 755 .; chown 65534:65534 served; : > log; chmod 666 log");
    let log = std::fs::File::options()
        .append(true)
        .open(bench.path("log"));
    let mut command = bench.command();
    command.uid(65534).gid(65534).stderr(log.unwrap());
    let served = bench.path("served").display().to_string();
    let (_server, address) = started(command, &["--no-auth", &served]);
    let repository = format!("rest:http://{address}/team/web1");
    let bale = |words: &[&str]| bench.run(&[words, &["-p", "pw", "-r", &repository]].concat());
    assert_eq!(bale(&["init"]).code, 0);
    assert_eq!(bale(&["backup", "source"]).code, 0);
    bench.write("source/two", "2".repeat(100_000));
    for (change, back, words, path) in [
        // As whoever copied the repository there leaves it.
        (
            "chown -R 0:0 served/team; chmod -R go= served/team",
            "chown -R 65534:65534 served/team",
            &["snapshots"][..],
            "/team/web1",
        ),
        (
            "chown 0:0 served/team/web1/snapshots",
            "chown 65534:65534 served/team/web1/snapshots",
            &["snapshots"],
            "snapshots in /team/web1",
        ),
        // Longer than what is answered at once.
        (
            "find served/team/web1/packs -type f -size +300k | xargs chmod 0",
            "find served/team/web1/packs -type f | xargs chmod 600",
            &["check", "--read-data", "--no-mark"],
            "packs/",
        ),
        (
            "chown -R 0:0 served/team/web1/packs; chmod -R go=rX served/team/web1/packs",
            "chown -R 65534:65534 served/team/web1/packs",
            &["backup", "source"],
            "packs/",
        ),
    ] {
        bench.sh(change);
        let refused = bale(words);
        assert_ne!(refused.code, 0, "{change}: {refused}");
        for text in ["(403)", path, "change the owner or the rights"] {
            let said = [refused.text(), refused.err.clone()].concat();
            assert!(said.contains(text), "{text}: {refused}");
        }
        assert!(!refused.err.contains("trying again"), "{refused}");
        assert!(!refused.err.contains(&served), "{refused}");
        let log = std::fs::read_to_string(bench.path("log")).unwrap();
        let is_said = |line: &str| line.contains(&served) && line.contains("change the owner");
        assert!(log.lines().any(is_said), "{log}");
        bench.sh(&format!("{back}; : > log"));
    }
    assert_eq!(bale(&["backup", "source"]).code, 0);
    assert_eq!(bale(&["check", "--read-data"]).code, 0);
}

#[test]
fn no_repository_is_made_inside_of_another() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (_server, address) = start(&bench, &["--no-auth", &served]);
    let init = |name: &str| {
        let repository = format!("rest:http://{address}/{name}");
        bench.run(&["init", "-p", "pw", "-r", &repository])
    };
    assert_eq!(init("team/web1").code, 0);
    for name in ["team/web1/x", "team/web1/x/y"] {
        let refused = init(name);
        assert_eq!(refused.code, 1, "{refused}");
        for text in ["is inside of /team/web1/", "somewhere else"] {
            assert!(refused.err.contains(text), "{text}: {refused}");
        }
        assert!(!refused.err.contains("trying again"), "{refused}");
    }
    assert!(!bench.path("served/team/web1/x").exists());
    for (name, shown) in [("team", "/team/"), ("", "/")] {
        let refused = init(name);
        assert_eq!(refused.code, 1, "{refused}");
        let text = format!("{shown} would lie around /team/web1/, which is a repository");
        assert!(refused.err.contains(&text), "{text}: {refused}");
    }
    assert!(!bench.path("served/team/config").exists());
    assert!(!bench.path("served/team/keys").exists());
    assert_eq!(init("team/web2").code, 0, "beside it there is room");
}

#[test]
fn a_name_that_no_repository_can_have_is_refused_with_those_that_it_can() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    std::fs::create_dir(bench.path("served")).unwrap();
    let served = bench.path("served").display().to_string();
    let (_server, address) = start(&bench, &["--no-auth", &served]);
    let long = "a".repeat(65);
    for name in ["a.b", "config", "team/keys", "tmp", "metrics/x", &long] {
        let repository = format!("rest:http://{address}/{name}");
        let refused = bench.run(&["init", "-p", "pw", "-r", &repository]);
        assert_eq!(refused.code, 1, "{refused}");
        for text in ["a name is made of letters", "digits, - and _", "snapshots"] {
            assert!(refused.err.contains(text), "{text}: {refused}");
        }
    }
    assert_eq!(std::fs::read_dir(bench.path("served")).unwrap().count(), 0);
}
