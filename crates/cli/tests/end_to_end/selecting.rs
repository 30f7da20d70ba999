//! Which snapshot is meant: `latest` beside damage, in the future and of other sources; ids; and what is not there.

use crate::bench::{Bench, Ran};
use bale_engine::clock::SystemClock;
use bale_engine::random::OsRandom;
use bale_engine::repository::{Environment, Repository, Secret};
use bale_engine::store::LocalStore;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Two snapshots of the source, whose file says `old` and then `newer`; their ids.
fn two(bench: &Bench) -> [String; 2] {
    ["old", "newer"].map(|content| {
        bench.write("source/file", content);
        id_of(&bench.backup())
    })
}

fn id_of(summary: &Value) -> String {
    summary["snapshot"].as_str().unwrap().to_owned()
}

fn damage(bench: &Bench, id: &str) {
    bench.sh(&format!(
        "f=$(find home/.local/share/bale/repository/snapshots -name '{id}*'); test -n \"$f\"; chmod u+w $f; truncate -s -7 $f"
    ));
}

/// Issue 13, 5: 264 of 264 mutations of the newest snapshot gave back the one before it, with exit 0.
#[test]
fn latest_names_nothing_while_a_snapshot_cannot_be_read() {
    let bench = Bench::new();
    let [old, newer] = two(&bench);
    damage(&bench, &newer);
    let (file, all) = (bench.address("/file"), bench.address(""));
    let commands: [&[&str]; 9] = [
        &["dump", &file],
        &["restore", &all, "-t", "out"],
        &["ls", "latest"],
        &["ls", "latest~1"],
        &["diff", &old, "latest"],
        &["find", "file", "--snapshot", "latest"],
        &["stats", "latest"],
        &["catalog", "export", "latest", "exported"],
        &["snapshots", "latest"],
    ];
    for words in commands {
        let ran = bench.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        assert!(ran.err.contains("cannot be read"), "{words:?}: {ran}");
    }
    assert!(!bench.path("out").exists() && !bench.path("exported").exists());
    let parent = bench.run(&["backup", "source", "--parent", "latest"]);
    assert_eq!(parent.code, 1, "{parent}");
    for words in [
        &["dump", &file, "--ignore-damaged"][..],
        &["restore", &all, "-t", "out", "--ignore-damaged"],
        &["ls", "latest", "--ignore-damaged"],
        &["find", "file"],
        &["find", "nothing"],
        &["stats"],
        &["snapshots"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 3, "{words:?}: {ran}");
        assert!(ran.err.contains(&newer[..8]), "named: {words:?}: {ran}");
    }
    let listed = bench.run(&["snapshots", "--json"]);
    assert_eq!(listed.code, 3, "{listed}");
    assert_eq!(listed.of_type("damage").len(), 1, "{listed}");
    assert_eq!(listed.of_type("snapshot").len(), 1, "{listed}");
    for words in [
        &["dump", &bench.address_in(&old, "/file")][..],
        &["restore", &old, "-t", "other"],
        &["ls", &old],
        &["snapshots", &old],
        &["backup", "source", "--parent", &old],
    ] {
        bench.ok(words);
    }
}

/// Issue 13, 6.
#[test]
fn a_snapshot_of_the_future_is_named_and_is_not_the_latest() {
    let bench = Bench::new();
    let [old, newer] = two(&bench);
    let repository = opened(&bench);
    let (mut snapshots, _) = repository.snapshots_readable().unwrap();
    let (_, mut record) = snapshots.remove(0);
    record.time.seconds += 80 * 365 * 86400;
    let future = repository.write_snapshot(&record).unwrap();
    let found = bench.ok(&["dump", &bench.address("/file")]);
    assert_eq!(found.text(), "newer");
    assert!(
        found.err.contains("future") && found.err.contains(&future.short()),
        "{found}"
    );
    assert_eq!(
        bench
            .ok(&["dump", &bench.address_in("latest~1", "/file")])
            .text(),
        "old"
    );
    let by_id = bench.ok(&["dump", &bench.address_in(&future.to_string(), "/file")]);
    assert_eq!(by_id.text(), "old");
    bench.ok(&["forget", &newer, &old]);
    let alone = bench.ok(&["ls", "latest"]);
    assert!(alone.err.contains("clock"), "{alone}");
}

fn opened(bench: &Bench) -> Repository {
    let store = LocalStore::open_to_write(&bench.repository(), &SystemClock).unwrap();
    let key = std::fs::read(bench.home.join(".local/share/bale/repository.key")).unwrap();
    let environment = Environment {
        clock: Arc::new(SystemClock),
        random: Arc::new(OsRandom),
        cache_dir: bench.path("cache"),
    };
    Repository::open(Arc::new(store), &Secret::key_file(key), environment).unwrap()
}

/// `diff latest~1 latest` compared one source with another as soon as there were two.
#[test]
fn the_one_before_the_latest_is_of_the_same_source() {
    let bench = Bench::new();
    let [old, _] = two(&bench);
    bench.write("other/thing", "x");
    bench.ok(&["backup", "other"]);
    bench.write("source/file", "newest");
    bench.backup();
    let diff = bench.ok(&["diff", "latest~1", "latest", "--json"]);
    let changes = diff.of_type("change");
    assert_eq!(changes.len(), 1, "{diff}");
    let before = bench.ok(&["dump", &bench.address_in("latest~2", "/file")]);
    assert_eq!(before.text(), "old");
    assert_eq!(bench.run(&["ls", "latest~3"]).code, 1);
    let other: PathBuf = bench.path("other");
    let diff = bench.ok(&[
        "diff",
        &old,
        "latest",
        "--path",
        other.to_str().unwrap(),
        "--json",
    ]);
    assert!(diff.text().contains("thing"), "{diff}");
}

#[test]
fn what_is_not_there_is_an_error_and_not_nothing() {
    let bench = Bench::new();
    let [old, newer] = two(&bench);
    for words in [
        &["stats", "latest:/nope"][..],
        &["ls", "latest:/nope"],
        &["catalog", "export", "latest:/nope", "exported"],
        &["snapshots", "zzz"],
        &["snapshots", &old, "zzz"],
        &["snapshots", ""],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
    }
    for words in [
        &["snapshots", "--latest", "0"][..],
        &["snapshots", "--host", ""],
        &["snapshots", "--tag", ""],
        &["snapshots", "--tag", " , "],
        &["backup", "source", "--tag", ""],
        &["backup", "source", "--host", ""],
        &["find", ""],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
    }
    let count = |words: &[&str]| Ran::of_type(&bench.ok(words), "snapshot").len();
    assert_eq!(count(&["snapshots", "--json", &old, "latest", &newer]), 2);
    assert_eq!(count(&["snapshots", "--json", &old[..6]]), 1);
    let one = bench.ok(&["stats", &bench.address("/file"), "--json"]);
    assert_eq!(one.summary()["files"], 1);
}
