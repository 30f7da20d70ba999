//! `latest` in a repository of several hosts and sources: whose it is, and of what.

use crate::bench::{Bench, Ran};

/// Two hosts back up the same path, the other one last; our file is there as it was. Ids of our
/// snapshot and of theirs.
fn shared(bench: &Bench) -> [String; 2] {
    bench.write("source/mine", "mine");
    let mine = bench.backup()["snapshot"].as_str().unwrap().to_owned();
    bench.sh("mkdir x; mv source/mine x; touch source/theirs");
    let theirs = bench.ok(&["backup", "source", "--host", "other-host", "--json"]);
    let theirs = theirs.summary()["snapshot"].as_str().unwrap().to_owned();
    bench.sh("mv x/mine source; rm source/theirs");
    [mine, theirs]
}

fn snapshots(bench: &Bench) -> usize {
    let listed = bench.ok(&["snapshots", "--json"]);
    listed.of_type("snapshot").len()
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_str().unwrap().to_owned()
}

/// In place and with `--delete`, the files of the other host came and ours went, with exit 0.
#[test]
fn what_deletes_by_latest_takes_no_other_hosts_snapshot_unless_that_is_named() {
    let bench = Bench::new();
    let [mine, theirs] = shared(&bench);
    let address = bench.address("");
    let in_place = ["restore", &address, "--target", "source", "--delete"];
    for words in [
        &in_place[..],
        &[&in_place[..], &["--dry-run"]].concat(),
        &["restore", "latest~0", "--target", "/", "--delete", "-n"],
        &["forget", "latest"],
        &["forget", "latest~0", "--prune"],
        &["forget", &mine, "latest"],
        &["forget", "latest", "--dry-run"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        for word in ["--host other-host", &theirs[..8], &host_name()] {
            assert!(ran.err.contains(word), "{word}: {words:?}: {ran}");
        }
        assert!(bench.path("source/mine").exists(), "{words:?}");
        assert!(!bench.path("source/theirs").exists(), "{words:?}");
        assert_eq!(snapshots(&bench), 2, "{words:?}");
    }
    let here = host_name();
    let own = [&in_place[..], &["--host", &here]].concat();
    bench.ok(&own);
    assert!(bench.path("source/mine").exists());
    let by_id = bench.address_in(&theirs, "");
    bench.ok(&["restore", &by_id, "--target", "source", "--delete"]);
    assert!(!bench.path("source/mine").exists());
    bench.ok(&own);
    bench.ok(&[&in_place[..], &["--host", "other-host"]].concat());
    assert!(!bench.path("source/mine").exists());
    let mut command = bench.command();
    command
        .args(["forget", "latest"])
        .env("BALE_HOST", "other-host");
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 0, "that is what this machine is called: {ran}");
    assert_eq!(snapshots(&bench), 1);
}

#[test]
fn a_restore_of_another_hosts_latest_says_whose_it_is() {
    let bench = Bench::new();
    let [mine, theirs] = shared(&bench);
    let address = bench.address("");
    let words = ["restore", &address, "--target", "out"];
    for words in [&words[..], &["dump", &bench.address("/theirs")]] {
        let ran = bench.ok(words);
        for word in ["other-host", &theirs[..8], &host_name()] {
            assert_eq!(ran.err.matches(word).count(), 1, "{word}: {ran}");
        }
    }
    let ran = bench.ok(&[&words[..], &["--json"]].concat());
    let notes = ran.of_type("note");
    let is_it = |note: &&serde_json::Value| note.to_string().contains("other-host");
    assert_eq!(notes.iter().filter(is_it).count(), 1, "{ran}");
    let here = host_name();
    for more in [["--host", "other-host"], ["--host", &here]] {
        let ran = bench.ok(&[&words[..], &more[..]].concat());
        assert!(!ran.err.contains("other-host"), "{ran}");
    }
    // A new machine in the place of a lost one: nobody else's files can be meant.
    bench.ok(&["forget", &mine]);
    let alone = bench.ok(&[&words[..], &["--delete"]].concat());
    assert!(!alone.err.contains("other-host"), "{alone}");
    assert!(bench.path("out/theirs").exists());
}

/// What is above the source of the newest snapshot was "restored" with almost nothing in it.
#[test]
fn latest_of_a_path_is_the_newest_of_a_source_that_holds_it() {
    let bench = Bench::new();
    bench.write("source/file", "1");
    bench.write("source/db/table", "old");
    let whole = bench.backup()["snapshot"].as_str().unwrap().to_owned();
    bench.write("source/db/table", "newer");
    let part = bench.ok(&["backup", "source/db", "--json"]).summary();
    let part = part["snapshot"].as_str().unwrap().to_owned();
    bench.write("other/thing", "x");
    bench.ok(&["backup", "other"]);

    let (address, source) = (bench.address(""), bench.source.to_str().unwrap());
    let commands: [&[&str]; 8] = [
        &["restore", &address, "-t", "out"],
        &["restore", &address, "-t", "out", "--delete"],
        &["restore", &address, "--to-ext4", "image"],
        &["ls", &address],
        &["dump", &address],
        &["stats", &address, "--json"],
        &["find", "file", "-s", "latest", "--below", source],
        &["diff", &address, &address],
    ];
    for words in commands {
        let ran = bench.ok(words);
        let said = format!("{}{}", ran.err, ran.text());
        for word in [&whole[..8], &part[..8], "/source/db"] {
            assert!(said.contains(word), "{word}: {words:?}: {ran}");
        }
        assert_eq!(
            ran.err.matches(&part[..8]).count() + ran.text().matches(&part[..8]).count(),
            1,
            "{words:?}: {ran}"
        );
    }
    assert!(bench.path("out/file").exists());
    assert_eq!(std::fs::read(bench.path("out/db/table")).unwrap(), b"old");
    let ran = bench.ok(&["dump", &bench.address("/db/table")]);
    assert_eq!((ran.text().as_str(), ran.err.as_str()), ("newer", ""));
    let newest = bench.ok(&["ls", "-R", "latest"]);
    assert!(
        newest.text().contains("thing") && newest.err.is_empty(),
        "{newest}"
    );
    let missing = bench.run(&["ls", &bench.address("/none")]);
    assert_eq!(missing.code, 1, "{missing}");
}

#[test]
fn of_a_path_that_no_source_holds_it_is_said_that_only_a_part_is_there() {
    let bench = Bench::new();
    bench.write("source/db/table", "content");
    bench.ok(&["backup", "source/db"]);
    for words in [
        &["restore", &bench.address(""), "-t", "out"][..],
        &["ls", &bench.address("")],
    ] {
        let ran = bench.ok(words);
        assert_eq!(ran.err.matches("/source/db").count(), 1, "{words:?}: {ran}");
        assert!(ran.err.contains("no snapshot holds all of"), "{ran}");
    }
    assert_eq!(bench.ok(&["ls", "latest"]).err, "");
}

/// An older snapshot holds the path; which one is the newest that does, nobody knows.
#[test]
fn no_older_snapshot_stands_for_a_damaged_one_that_may_hold_the_path() {
    let bench = Bench::new();
    bench.write("source/file", "old");
    bench.backup();
    bench.write("source/file", "newer");
    let newer = bench.backup()["snapshot"].as_str().unwrap().to_owned();
    bench.write("other/thing", "x");
    bench.ok(&["backup", "other"]);
    bench.sh(&format!(
        "f=$(find home/.local/share/bale/repository/snapshots -name '{newer}*'); chmod u+w $f; \
         truncate -s -7 $f"
    ));
    let ran = bench.run(&["dump", &bench.address("/file")]);
    assert_eq!((ran.code, ran.text().as_str()), (1, ""), "{ran}");
    let ran = bench.run(&["dump", &bench.address("/file"), "--ignore-damaged"]);
    assert_eq!((ran.code, ran.text().as_str()), (3, "old"), "{ran}");
}
