//! The secret of a repository's name is in nothing that is printed, and in no file that is left.

use crate::bench::{Bench, Ran};
use crate::serving;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

const SECRET: &str = "gEh3imn1s";

/// Nobody listens there.
const FORMS: [&str; 24] = [
    "sftp:me:SECRET@127.0.0.1:/x",
    "sftp:me:SECRET@127.0.0.1/x",
    "sftp:me:/SECRET@127.0.0.1:/x",
    "sftp://me:SECRET@127.0.0.1/x",
    "sftp://me:a/SECRET@127.0.0.1:22/x",
    "sftp://me%3aSECRET@127.0.0.1/x",
    "rest:http://me:SECRET@127.0.0.1:1/x",
    "rest:http://me:a/SECRET@127.0.0.1:1/x",
    "rest:me:SECRET@127.0.0.1:1/x",
    "rest:http://me:SECRET@127.0.0.1:1/a//b",
    "webdav:http://me:SECRET@127.0.0.1:1/x",
    "webdav:https://me:SECRET@127.0.0.1:1/x",
    "webdav:http://me:SECRET@127.0.0.1:0/x",
    "ftp://me:SECRET@127.0.0.1:1/x",
    "ftps://me:SECRET@127.0.0.1:1/x",
    "ftp:me:SECRET@127.0.0.1/x",
    "ftp://me:SECRET@127.0.0.1:1",
    "s3:https://me:SECRET@127.0.0.1:1/bucket/x",
    "s3:me:SECRET@127.0.0.1:1/bucket/x",
    "gs:me:SECRET@bucket:/x",
    "azure:me:SECRET@container:/x",
    "b2:me:SECRET@bucket:x",
    "rclone::webdav,url='http://127.0.0.1:1',pass=SECRET:x",
    "https://me:SECRET@127.0.0.1:1/x",
];

fn files_with_secret(dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.display().to_string().contains(SECRET) {
            found.push(path.display().to_string());
        }
        if path.is_dir() {
            files_with_secret(&path, found);
        } else {
            let bytes = fs::read(&path).unwrap();
            let mut windows = bytes.windows(SECRET.len());
            if windows.any(|window| window == SECRET.as_bytes()) {
                found.push(path.display().to_string());
            }
        }
    }
}

fn is_kept(bench: &Bench) {
    let mut found = Vec::new();
    files_with_secret(bench.path("").as_path(), &mut found);
    assert_eq!(found, [""; 0]);
}

fn is_not_shown(ran: &Ran) {
    let shown = format!("{} {}", ran.text(), ran.err);
    assert!(!shown.contains(SECRET), "{shown}");
}

#[test]
fn whatever_is_wrong_with_a_name_its_secret_is_not_shown() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "x");
    for form in FORMS {
        let repository = form.replace("SECRET", SECRET);
        for words in [
            &["snapshots", "-p", "pw", "-r"][..],
            &["init", "--json", "-p", "pw", "-r"],
            &["backup", "source", "--json", "-v", "-p", "pw", "-r"],
            &["init", "-p", "pw", "-r", "hot", "--cold"],
        ] {
            let mut command = bench.command();
            command.args(words).arg(&repository);
            command.args(["--retry-for", "0s", "--connect-timeout", "5s"]);
            command.env("BALE_SFTP_COMMAND", "false");
            command.env("BALE_RCLONE_COMMAND", "false");
            let ran = Ran::from(command.output().unwrap());
            assert_ne!(ran.code, 0, "{form}: {ran}");
            is_not_shown(&ran);
        }
    }
    is_kept(&bench);
}

#[test]
fn what_ssh_would_get_a_password_in_is_refused_with_what_to_write() {
    let bench = Bench::new();
    let repository = format!("sftp:me:{SECRET}@127.0.0.1:/x");
    let mut command = bench.command();
    command.args(["snapshots", "-r", &repository]);
    command.env("BALE_SFTP_COMMAND", "touch started");
    let ran = Ran::from(command.output().unwrap());
    for text in ["a password in it", "sftp:USER@HOST:/PATH", "./PATH"] {
        assert!(ran.err.contains(text), "{text}: {ran}");
    }
    assert!(!bench.path("started").exists());
    is_not_shown(&ran);
}

#[test]
fn a_secret_that_is_used_is_in_no_output_record_or_cache() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "x");
    fs::create_dir(bench.path("served")).unwrap();
    let mut command = bench.command();
    command.args(["serve", "--hash-password", "me"]);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut hashing = piped.spawn().unwrap();
    let mut typed = hashing.stdin.take().unwrap();
    typed.write_all(format!("{SECRET}\n").as_bytes()).unwrap();
    drop(typed);
    let line = hashing.wait_with_output().unwrap().stdout;
    let users = bench.write("users", line).display().to_string();
    let served = bench.path("served").display().to_string();
    let (_server, address) = serving::start(&bench, &["--password-file", &users, &served]);
    let repository = format!("rest:http://me:{SECRET}@{address}/name");
    for words in [
        &["init", "--json"][..],
        &["backup", "source", "--json", "-v"],
        &["snapshots", "--json"],
        &["stats", "--transfers", "latest", "--json"],
        &["key", "list", "--json"],
        &["check"],
    ] {
        let ran = bench.run(&[words, &["-p", "pw", "-r", &repository]].concat());
        assert_eq!(ran.code, 0, "{ran}");
        is_not_shown(&ran);
    }
    is_kept(&bench);
}
