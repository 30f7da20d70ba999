//! Tags that change, pins, and what they mean to whoever forgets.

use crate::bench::Bench;
use serde_json::Value;

fn snapshots(bench: &Bench) -> Vec<Value> {
    bench.ok(&["snapshots", "--json"]).of_type("snapshot")
}

fn id(snapshot: &Value) -> String {
    snapshot["id"].as_str().unwrap().to_owned()
}

/// A source that was backed up so many times, each time with something new.
fn backed_up(times: u32) -> Bench {
    let bench = Bench::new();
    for number in 0..times {
        bench.write("source/file", format!("content {number}"));
        bench.write(&format!("source/file{number}"), "more");
        bench.backup();
    }
    bench
}

#[test]
fn tags_change_and_the_files_stay() {
    let bench = backed_up(2);
    let before = snapshots(&bench);
    let dry = bench.ok(&[
        "tag",
        "--add",
        "a,b",
        &id(&before[0]),
        "--dry-run",
        "--json",
    ]);
    assert_eq!(dry.summary()["changed"], 1);
    assert_eq!(snapshots(&bench), before);

    let ran = bench.ok(&["tag", "--add", "a,b", &id(&before[0]), "--json"]);
    let changed = &ran.of_type("changed")[0];
    assert_eq!(changed["old"], before[0]["id"]);
    let after = snapshots(&bench);
    assert_eq!(after.len(), 2);
    let tagged = after
        .iter()
        .find(|one| one["id"] == changed["new"])
        .unwrap();
    assert_eq!(tagged["tags"], serde_json::json!(["a", "b"]));
    assert_eq!(tagged["time"], before[0]["time"]);
    assert_eq!(after[1]["id"], before[1]["id"], "the other is as it was");

    // What is as wanted is not written again; tags are selected by.
    let again = bench
        .ok(&["tag", "--add", "b", "--tag", "a", "--json"])
        .summary();
    assert_eq!(
        (&again["changed"], &again["unchanged"]),
        (&0.into(), &1.into())
    );
    bench.ok(&["tag", "--remove", "a", "--tag", "a"]);
    bench.ok(&["tag", "--set", "x", "--host", &host(&after[0])]);
    assert!(
        snapshots(&bench)
            .iter()
            .all(|one| one["tags"] == serde_json::json!(["x"]))
    );
    let none = bench.ok(&["tag", "--set", "", "latest"]);
    assert!(
        none.text().contains("  no tags\n"),
        "no empty brackets: {none}"
    );
    assert_eq!(snapshots(&bench)[1]["tags"], serde_json::json!([]));

    bench.ok(&["check", "--read-data"]);
    bench.ok(&["restore", &bench.address(""), "--target", "out"]);
    crate::tree::assert_same(&bench.source, &bench.path("out"));
    // And the next backup compares with the successor.
    let next = bench.backup();
    assert_eq!(next["files_unmodified"], 3, "{next}");
}

fn host(snapshot: &Value) -> String {
    snapshot["host"].as_str().unwrap().to_owned()
}

#[test]
fn whoever_remembers_a_snapshot_that_was_tagged_misses_nothing() {
    let bench = backed_up(1);
    let elsewhere = |words: &[&str]| {
        let mut command = bench.command();
        command
            .args(words)
            .env("BALE_CACHE_DIR", bench.path("other-cache"));
        crate::bench::Ran::from(command.output().unwrap())
    };
    assert_eq!(elsewhere(&["snapshots"]).code, 0);
    bench.ok(&["tag", "--add", "one", "latest"]);
    bench.ok(&["pin", "latest"]);
    for words in [&["snapshots"][..], &["prune", "--grace", "0"]] {
        let ran = elsewhere(words);
        assert_eq!(ran.code, 0, "{ran}");
        assert!(!ran.err.contains("that this machine saw"), "{ran}");
    }
    // One that is really gone is missed.
    bench.ok(&["unpin", "latest"]);
    elsewhere(&["snapshots"]);
    bench.ok(&["forget", &id(&snapshots(&bench)[0])]);
    assert!(
        elsewhere(&["snapshots"])
            .err
            .contains("that this machine saw")
    );
}

#[test]
fn what_is_pinned_is_removed_by_no_rule_and_no_id() {
    let bench = backed_up(3);
    let first = id(&snapshots(&bench)[0]);
    bench.ok(&["pin", &first]);
    let pinned = snapshots(&bench)[0].clone();
    assert_eq!(pinned["pinned"], true);
    assert!(bench.ok(&["snapshots"]).text().contains("[pinned]"));

    let ran = bench.ok(&["forget", "--keep-last", "1", "--json"]);
    let of_pinned = ran
        .of_type("decision")
        .into_iter()
        .find(|one| one["id"] == pinned["id"]);
    assert_eq!(of_pinned.unwrap()["reasons"], serde_json::json!(["pinned"]));
    assert_eq!(snapshots(&bench).len(), 2);

    let refused = bench.run(&["forget", &id(&pinned)]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("bale unpin"), "{refused}");
    // Nor does it let a slip in a rule remove all others.
    let slip = bench.run(&["forget", "--keep-tag", "nothing-has-it"]);
    assert_eq!(slip.code, 1, "{slip}");
    assert_eq!(snapshots(&bench).len(), 2);

    bench.ok(&["unpin", &id(&pinned)]);
    bench.ok(&["forget", "--keep-last", "1", "--prune", "--grace", "0"]);
    assert_eq!(snapshots(&bench).len(), 1);
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn tagging_nothing_in_particular_is_refused() {
    let bench = backed_up(1);
    let id = id(&snapshots(&bench)[0]);
    for words in [
        &["tag", "--add", "x"][..],
        &["tag", &id],
        &["tag", "--add", ",", &id],
        &["tag", "--set", "a", "--add", "b", &id],
        &["pin"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
    }
    assert_eq!(bench.run(&["pin", "ffffffffff"]).code, 1);
}
