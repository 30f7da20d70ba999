//! Which directories are meant: the repository, where none or a remote one is named; and the cache, without a home.

use crate::bench::{Bench, Ran, is_root, skipped};
use std::os::unix::process::CommandExt;

/// Issue 13, 17: a dry run, and a job that lost the name of its repository, filled this disk.
#[test]
fn your_own_repository_is_made_only_where_that_is_asked_for() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    let unasked = |words: &[&str]| {
        let mut command = bench.command();
        Ran::from(
            command
                .args(words)
                .env_remove("BALE_INIT")
                .output()
                .unwrap(),
        )
    };
    for words in [
        &["backup", "source"][..],
        &["backup", "source", "--json"],
        &["backup", "source", "--dry-run"],
    ] {
        let ran = unasked(words);
        assert_eq!(ran.code, 10, "{words:?}: {ran}");
        assert!(ran.err.contains("bale init"), "{ran}");
        assert!(!bench.home.join(".local").exists(), "{words:?}");
    }
    let dry = bench.run(&["backup", "source", "--dry-run"]);
    assert_eq!(dry.code, 10, "whatever the environment says: {dry}");
    assert!(!bench.home.join(".local").exists());
    let ran = unasked(&["backup", "source", "--dry-run", "--init"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert_eq!(unasked(&["backup", "source", "--init"]).code, 0);
    assert_eq!(unasked(&["backup", "source"]).code, 0);
}

#[test]
fn on_a_terminal_the_first_backup_makes_your_own_repository() {
    let bench = Bench::new();
    if !crate::bench::have("script") {
        return skipped("script(1) gives no terminal");
    }
    bench.write("source/file", "content");
    let bale = crate::bench::binary().display();
    bench.sh(&format!(
        "unset BALE_INIT; script -qec '{bale} backup source' log < /dev/null > /dev/null"
    ));
    assert!(bench.repository().join("config").exists());
    let log = std::fs::read_to_string(bench.path("log")).unwrap();
    assert!(log.contains("Recovery key"), "{log}");
}

#[test]
fn a_variable_that_lost_its_value_is_refused() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    for name in ["BALE_REPOSITORY", "BALE_CACHE_DIR", "BALE_HOST"] {
        let mut command = bench.command();
        command.args(["backup", "source"]).env(name, "");
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, 2, "{name}: {ran}");
        assert!(ran.err.contains(name), "{ran}");
    }
}

/// Issue 13, 17: `init -r s3:bucket/x` made a directory of that name.
#[test]
fn a_remote_store_is_refused_and_no_directory_made() {
    let bench = Bench::new();
    bench.write("pw", "secret");
    bench.write("source/file", "content");
    for words in [
        &["init"][..],
        &["backup", "source"],
        &["snapshots"],
        &["check", "--scrub"],
    ] {
        let ran = bench.run(&[words, &["-p", "pw", "-r", "s3:bucket/x"]].concat());
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        let mut command = bench.command();
        command
            .args(words)
            .args(["-p", "pw"])
            .env("BALE_REPOSITORY", "sftp:me@host:/x");
        assert_eq!(Ran::from(command.output().unwrap()).code, 2, "{words:?}");
    }
    assert!(!bench.path("s3:bucket").exists());
    bench.ok(&["init", "-p", "pw", "-r", "./s3:bucket"]);
    assert!(bench.path("s3:bucket/config").exists());
}

/// Issue 13, 17: without HOME, as in a unit of systemd, nothing ran.
#[test]
fn without_a_home_directory_a_named_repository_is_used() {
    let bench = Bench::new();
    bench.write("source/file", "content");
    bench.write("pw", "secret");
    bench.ok(&["init", "-r", "repo", "-p", "pw"]);
    let homeless = |words: &[&str], uid: Option<u32>| {
        let mut command = bench.command();
        command.env_remove("HOME").env("TMPDIR", bench.path("tmp"));
        if let Some(uid) = uid {
            command.uid(uid).gid(uid);
        }
        Ran::from(
            command
                .args(["-r", "repo", "-p", "pw"])
                .args(words)
                .output()
                .unwrap(),
        )
    };
    let nameless = bench
        .command()
        .env_remove("HOME")
        .arg("snapshots")
        .output()
        .unwrap();
    assert_eq!(Ran::from(nameless).code, 2);
    if !is_root() {
        return skipped("another user needs root");
    }
    bench.sh("mkdir tmp; chmod 777 tmp .; chmod -R a+rwX repo pw source");
    let ran = homeless(&["backup", "source"], Some(65534));
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.err.contains("--cache-dir"), "{ran}");
    assert_eq!(std::fs::read_dir(bench.path("tmp")).unwrap().count(), 0);
    let named = homeless(&["backup", "source", "--cache-dir", "tmp/c"], Some(65534));
    assert_eq!(named.code, 0, "{named}");
    assert!(!named.err.contains("--cache-dir"), "{named}");
    bench.mounting_sh(&format!(
        "unset HOME; mkdir cache; mkdir -p /var/cache/bale
        unshare -m sh -euc 'mount --bind cache /var/cache/bale; {} -r repo -p pw backup source; test -n \"$(ls cache)\"'",
        crate::bench::binary().display()
    ));
}
