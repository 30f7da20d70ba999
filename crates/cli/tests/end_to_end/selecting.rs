//! Which snapshot is meant: `latest` beside damage, in the future and of other sources; ids; and
//! what is not there.

use crate::bench::{Bench, Ran};
use bale_pipeline::clock::SystemClock;
use bale_pipeline::random::OsRandom;
use bale_repository::repository::{Environment, Repository, Secret};
use bale_repository::store::LocalStore;
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
        "f=$(find home/.local/share/bale/repository/snapshots -name '{id}*'); test -n \"$f\"; \
         chmod u+w $f; truncate -s -7 $f"
    ));
}

/// Issue 13, 5: 264 of 264 mutations of the newest snapshot gave back the one before it, with
/// exit 0.
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
    // As listings print times.
    assert!(!found.err.contains("Z)"), "{found}");
    assert_eq!(
        bench
            .ok(&["dump", &bench.address_in("latest~1", "/file")])
            .text(),
        "old"
    );
    let by_id = bench.ok(&["dump", &bench.address_in(&future.to_string(), "/file")]);
    assert_eq!(by_id.text(), "old");
    let forgot = bench.ok(&["forget", "latest", "--dry-run"]);
    assert!(forgot.text().contains(&newer[..8]), "{forgot}");
    assert!(forgot.err.contains(&future.short()), "{forgot}");
    bench.ok(&["forget", &newer, &old]);
    let alone = bench.ok(&["ls", "latest"]);
    assert!(alone.err.contains("clock"), "{alone}");
}

/// Each name was looked up in a list of its own, and each list told what is the matter with it.
#[test]
fn what_is_the_matter_with_a_snapshot_is_told_once_whatever_is_looked_up() {
    let bench = Bench::new();
    two(&bench);
    let repository = opened(&bench);
    let (mut snapshots, _) = repository.snapshots_readable().unwrap();
    let (_, mut record) = snapshots.remove(0);
    record.time.seconds += 80 * 365 * 86400;
    let future = repository.write_snapshot(&record).unwrap().short();
    for words in [
        &["diff", "latest~1", "latest"][..],
        &["snapshots", "-q", "latest~1", "latest"],
        &["find", "file", "-s", "latest~1", "-s", "latest"],
        &["forget", "latest~1", "latest", "--dry-run"],
    ] {
        let ran = bench.ok(words);
        assert_eq!(ran.err.matches(&future).count(), 1, "{words:?}: {ran}");
    }
}

/// `latest` may be of another source than the one that was thought of.
#[test]
fn a_diff_of_what_neither_side_has_is_an_error_and_of_what_one_has_says_so() {
    let bench = Bench::new();
    bench.sh("mkdir -p source/d; echo x > source/d/f");
    bench.ok(&["backup", "source"]);
    bench.sh("rm -r source/d; echo y > source/g");
    bench.ok(&["backup", "source"]);
    let address = |which: &str, name: &str| format!("{which}:{}", bench.path(name).display());
    let of = |name: &str| {
        let sides = [address("latest~1", name), address("latest", name)];
        bench.run(&["diff", &sides[0], &sides[1]])
    };
    let gone = of("source/d");
    assert_eq!(gone.code, 0, "{gone}");
    assert!(gone.err.contains("there is no"), "{gone}");
    let slip = of("source/typo");
    assert_eq!(slip.code, 1, "{slip}");
    assert!(
        slip.err.contains("typo") && slip.err.contains("bale ls"),
        "{slip}"
    );
    assert_eq!(of("source").code, 0);
}

#[test]
fn diff_says_which_snapshots_it_compares() {
    let bench = Bench::new();
    let [old, newer] = two(&bench);
    let ran = bench.ok(&["diff", "latest~1", "latest"]);
    let source = bench.source.display().to_string();
    for (word, id) in [("from snapshot", &old), ("to snapshot", &newer)] {
        let mut lines = ran.err.lines();
        let line = lines.find(|line| line.contains(word)).unwrap_or_default();
        assert!(line.contains(&id[..8]) && line.ends_with(&source), "{ran}");
    }
    let summary = bench
        .ok(&["diff", "latest~1", "latest", "--json"])
        .summary();
    assert_eq!(
        (&summary["old"], &summary["new"]),
        (&old.into(), &newer.into())
    );
    assert_eq!(bench.ok(&["diff", "latest", "latest", "-q"]).err, "");
    let other = bench.run(&["diff", "latest~1:/a", "latest:/b"]);
    assert!(
        other.code == 2 && other.err.contains("/a") && other.err.contains("/b"),
        "{other}"
    );
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
    let none = bench.run(&["ls", "latest~3"]);
    assert_eq!(none.code, 1, "{none}");
    assert!(none.err.contains("no latest~3: 3 snapshots"), "{none}");
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

/// A run writes a record every few minutes, long before there is anything to restore.
#[test]
fn a_backup_under_way_is_told_and_is_no_snapshot() {
    let bench = Bench::new();
    let [_, newer] = two(&bench);
    let repository = opened(&bench);
    let (snapshots, _) = repository.snapshots_readable().unwrap();
    let now = repository.clock().time();
    let sign = |time| bale_format::Snapshot {
        partial: true,
        layers: Vec::new(),
        thin: Vec::new(),
        time,
        finished: time,
        ..snapshots[1].1.clone()
    };
    let silent = bale_format::Time {
        seconds: now.seconds - 100_000,
        ..now
    };
    let run = repository.write_run([7; 16], &sign(now)).unwrap().short();
    repository.write_run([8; 16], &sign(silent)).unwrap();
    for words in [
        &["ls", &run][..],
        &["stats", &run],
        &["snapshots", &run],
        &["restore", &run, "-t", "out"],
    ] {
        let ran = bench.run(words);
        assert!(
            ran.code == 1 && !bench.path("out").exists(),
            "{words:?}: {ran}"
        );
    }
    let text = bench.ok(&["snapshots"]);
    // Headings, and two snapshots.
    assert_eq!(text.text().lines().count(), 3, "{text}");
    for words in ["is running since", "last sign of life", "2 snapshots"] {
        assert_eq!(text.err.matches(words).count(), 1, "{words}: {text}");
    }
    let json = bench.ok(&["snapshots", "--json"]);
    let running = json.of_type("running");
    assert_eq!(json.of_type("snapshot").len(), 2, "{json}");
    assert_eq!(running.len(), 2, "{json}");
    let silent = running.iter().filter(|run| run["silent"] == true);
    assert_eq!(silent.count(), 1, "{json}");
    for words in [["stats", "--json"], ["check", "--json"]] {
        assert_eq!(bench.ok(&words).summary()["snapshots"], 2, "{words:?}");
    }
    let latest = bench.ok(&["ls", "latest", "--json"]);
    assert!(!latest.out.is_empty() && !newer.is_empty());
    bench.ok(&["forget", &run]);
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("running").len(),
        1
    );
}

/// Issue 13, 16: what the store cannot say.
#[test]
fn a_snapshot_that_another_took_away_is_missed_until_it_is_named() {
    let bench = Bench::new();
    let [old, newer] = two(&bench);
    bench.sh(&format!(
        "find home/.local/share/bale/repository/snapshots -name '{newer}' -delete"
    ));
    let short = &newer[..8];
    for words in [
        &["snapshots"][..],
        &["check"],
        &["ls", "latest"],
        &["backup", "source", "--dry-run"],
    ] {
        let ran = bench.ok(words);
        let said = ran.err.contains(short) && ran.err.contains("not in the repository any more");
        assert!(said, "{words:?}: {ran}");
    }
    bench.write("out/newer", "not in the older snapshot");
    let address = bench.address("");
    let words = ["restore", &address, "--target", "out", "--delete"];
    let refused = bench.run(&words);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(
        refused.err.contains(&format!("Name {}", &old[..8])),
        "{refused}"
    );
    assert!(bench.path("out/newer").exists());
    let refused = bench.run(&["forget", "latest"]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(
        refused.err.contains("an older one would be removed"),
        "{refused}"
    );
    let without = bench.ok(&words[..4]);
    assert!(without.err.contains(short), "{without}");
    let by_id = bench.address_in(&old, "");
    bench.ok(&["restore", &by_id, "--target", "out", "--delete"]);
    assert!(!bench.path("out/newer").exists());
    let dry = bench.ok(&["forget", short, "--dry-run"]);
    assert!(dry.text().contains("no longer reported"), "{dry}");
    bench.ok(&["forget", short]);
    assert_eq!(bench.run(&["forget", short]).code, 1);
    bench.ok(&words);
    let told = bench.ok(&["snapshots"]);
    assert!(
        !told.err.contains(short) && told.text().contains(&old[..8]),
        "{told}"
    );
}
