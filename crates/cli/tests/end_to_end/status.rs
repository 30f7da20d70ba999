//! `bale status`: what whoever looks after backups, or a monitoring system, is told from the
//! repository alone.

use crate::bench::{Bench, Ran};
use serde_json::Value;

/// Every backup is older than this.
const NO_AGE: &str = "1ns";

fn source_objects(ran: &Ran) -> Vec<Value> {
    ran.of_type("source")
}

fn kinds(source: &Value) -> Vec<&str> {
    let findings = source["findings"].as_array().unwrap().iter();
    findings.map(|one| one["kind"].as_str().unwrap()).collect()
}

#[test]
fn each_source_says_when_it_was_backed_up_and_a_late_one_ends_with_3() {
    let bench = Bench::new();
    bench.write("source/a", "one");
    bench.backup();
    bench.write("source/b", vec![7u8; 5000]);
    bench.backup();
    bench.write("other/c", "three");
    bench.ok(&["backup", "other", "--host", "web2"]);

    let ran = bench.ok(&["status", "--json", "--max-age", "1d"]);
    let sources = source_objects(&ran);
    assert_eq!(sources.len(), 2, "{ran}");
    let ours = sources.iter().find(|one| one["host"] != "web2").unwrap();
    assert_eq!(ours["snapshots"], 2);
    assert_eq!(
        (&ours["last"]["files"], &ours["last"]["bytes"]),
        (&2.into(), &5003.into())
    );
    assert_eq!(
        (&ours["trend"]["files"], &ours["trend"]["bytes"]),
        (&1.into(), &5000.into())
    );
    assert_eq!(ours["well"], true);
    assert!(ours["due"].as_str().unwrap() > ours["last"]["time"].as_str().unwrap());
    assert_eq!(ran.summary()["well"], true);

    let late = bench.run(&["status", "--json", "--max-age", NO_AGE, "--host", "web2"]);
    assert_eq!(late.code, 3, "{late}");
    let sources = source_objects(&late);
    assert_eq!(sources.len(), 1, "only what was asked about: {late}");
    assert_eq!(kinds(&sources[0]), ["late"]);
    assert_eq!(late.summary()["late"], 1);
    let text = bench.run(&["status", "--max-age", NO_AGE]);
    assert_eq!(text.code, 3, "{text}");
    assert_eq!(
        text.text().matches("late: its last backup began").count(),
        2,
        "{text}"
    );
    assert!(text.text().starts_with("State "), "{text}");
    assert!(text.err.contains("2 sources, 0 well"), "{text}");
    assert_eq!(bench.ok(&["status"]).text().matches("well ").count(), 2);
}

#[test]
fn a_last_backup_with_problems_is_not_well_until_the_next_one() {
    let bench = Bench::new();
    bench.write("source/a", "one");
    let missing = bench.run(&["backup", "source", "not-there"]);
    assert_eq!(missing.code, 3, "{missing}");
    let ran = bench.run(&["status", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(kinds(&source_objects(&ran)[0]), ["problems"]);
    let nagios = bench.run(&["status", "--nagios"]);
    assert_eq!(
        (nagios.code, nagios.text().lines().count()),
        (1, 1),
        "{nagios}"
    );
    assert!(nagios.text().starts_with("BALE WARNING - "), "{nagios}");
    assert!(nagios.text().contains("1 problem"), "{nagios}");
}

/// The store was set back: what is left is no success of today.
#[test]
fn neither_a_missing_nor_a_damaged_snapshot_lets_an_older_one_look_well() {
    for is_damaged in [false, true] {
        let bench = Bench::new();
        bench.write("source/a", "one");
        bench.backup();
        bench.write("source/a", "two");
        let newest = bench.backup()["snapshot"].as_str().unwrap().to_owned();
        let path = bench.repository().join("snapshots").join(&newest);
        match is_damaged {
            true => std::fs::write(path, "x").unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
        let ran = bench.run(&["status", "--json", "--max-age", "1d"]);
        assert_eq!(ran.code, 3, "{ran}");
        let (missed, damaged) = (ran.of_type("missed"), ran.of_type("damage"));
        assert_eq!(
            [missed.len(), damaged.len()],
            [!is_damaged as usize, is_damaged as usize]
        );
        assert_eq!(ran.summary()["well"], false);
        let nagios = bench.run(&["status", "--nagios"]);
        assert_eq!(nagios.code, 2, "{nagios}");
        assert!(nagios.text().contains("1 snapshot "), "{nagios}");
    }
}

#[test]
fn monitoring_plugins_get_one_line_and_their_own_codes() {
    let bench = Bench::new();
    let ran = bench.run(&["status", "--nagios"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(
        ran.text().starts_with("BALE UNKNOWN - "),
        "no repository: {ran}"
    );
    bench.ok(&["init"]);
    let ran = bench.run(&["status", "--nagios"]);
    assert_eq!(ran.code, 2, "no backup is no success: {ran}");
    assert_eq!(bench.run(&["status"]).code, 3);
    bench.write("source/a", "one");
    bench.backup();
    for (words, code, word) in [
        (&["--warning", "26h", "--critical", "50h"][..], 0, "OK"),
        (&["--warning", NO_AGE, "--critical", "50h"], 1, "WARNING"),
        (&["--warning", NO_AGE, "--critical", NO_AGE], 2, "CRITICAL"),
        (&["--max-age", NO_AGE], 2, "CRITICAL"),
        (&["--host", "nobody"], 2, "CRITICAL"),
        (&["--warning", "50h", "--critical", "26h"], 3, "UNKNOWN"),
        (&["--warning", "soon"], 3, "UNKNOWN"),
        (&["--no-such-option"], 3, "UNKNOWN"),
        (&["-p", "/nowhere/password"], 3, "UNKNOWN"),
    ] {
        let ran = bench.run(&[&["status", "--nagios"], words].concat());
        assert_eq!(
            (ran.code, ran.text().lines().count()),
            (code, 1),
            "{words:?}: {ran}"
        );
        let begin = format!("BALE {word} - ");
        assert!(ran.text().starts_with(&begin), "{words:?}: {ran}");
    }
    let ran = bench.ok(&[
        "status",
        "--nagios",
        "--warning",
        "26h",
        "--critical",
        "50h",
    ]);
    let text = ran.text();
    let (_, performance) = text.split_once(" | ").unwrap();
    assert!(performance.starts_with("sources=1;;;0 '"), "{ran}");
    assert!(performance.contains(";93600;180000;0"), "{ran}");
    assert_eq!(bench.run(&["status", "--max-age", "0"]).code, 2);
    assert_eq!(bench.run(&["status", "--warning", "1h"]).code, 2);
}

/// What a run that was interrupted left is no success.
#[test]
fn a_source_that_was_never_backed_up_to_the_end_is_not_well() {
    let (bench, _) = crate::bench::interrupted_backup(|bench| {
        bench.sh(
            "cd source; for d in $(seq 40); do mkdir d$d; for f in 1 2 3 4; do head -c 1500000 \
            /dev/urandom > d$d/$f; done; done",
        );
    });
    let ran = bench.run(&["status", "--json"]);
    assert_eq!(ran.code, 3, "{ran}");
    let found = source_objects(&ran);
    assert_eq!(kinds(&found[0]), ["never-finished", "unfinished"], "{ran}");
    assert_eq!(found[0]["last"], Value::Null);
}
