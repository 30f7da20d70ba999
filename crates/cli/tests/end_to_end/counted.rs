//! What a restore says it did: each thing once, in numbers that mean the same wherever they stand.

use crate::bench::{Bench, Ran};
use std::os::unix::fs::symlink;

/// A file of several chunks, wherever the repository's key cuts it (4 MiB are the largest), one of
/// them damaged, and a whole one.
fn with_a_damaged_chunk() -> Bench {
    let bench = Bench::new();
    bench.sh("cd source; head -c 9000000 /dev/urandom > victim; mkdir d; echo w > d/whole");
    bench.backup();
    bench.sh(
        "pack=$(find home/.local/share/bale/repository/packs -type f -printf '%s %p\\n' | sort -n \
         | tail -1)
         python3 -c 'import sys; b = bytearray(open(sys.argv[1], \"rb\").read()); b[len(b) // 2] \
         ^= 1
open(sys.argv[1], \"wb\").write(b)' \"${pack#* }\"",
    );
    bench
}

fn problems(ran: &Ran) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let of = |value: &serde_json::Value| (text(&value["action"]), text(&value["message"]));
    ran.of_type("problem").iter().map(of).collect()
}

#[test]
fn what_is_missing_of_a_damaged_file_is_said_once_and_counted_apart() {
    let bench = with_a_damaged_chunk();
    for place in [["--target", "target"], ["--to-ext4", "image"]] {
        let words = ["restore", &bench.address(""), place[0], place[1]];
        let ran = bench.run(&[&words[..], &["--verify", "--json"]].concat());
        assert_eq!(ran.code, 3, "{ran}");
        let summary = ran.summary();
        let missing = summary["bytes_missing"].as_u64().unwrap();
        assert!((1..9_000_000).contains(&missing), "{ran}");
        assert_eq!(summary["bytes"], 9_000_000 + 2 - missing, "{ran}");
        for (field, count) in [("files_written", 1), ("incomplete", 1), ("salvaged", 0)] {
            assert_eq!(summary[field], count, "{field}: {ran}");
        }
        assert_eq!(summary["differences"], 1, "{ran}");
        let told = problems(&ran);
        let actions: Vec<_> = told.iter().map(|(action, _)| action.as_str()).collect();
        assert_eq!(actions, ["read", "restore"], "{ran}");
        assert!(told[1].1.ends_with("of 9,000,000 bytes are zeros"), "{ran}");
        bench.sh("rm -rf target image");
        let ran = bench.run(&[&words[..], &["--verify"]].concat());
        assert!(
            ran.err.contains("not complete: 1 file (1 incomplete)"),
            "{ran}"
        );
        assert!(!ran.err.contains("same command"), "{ran}");
        assert!(ran.err.contains("bale check --read-data"), "{ran}");
    }
}

#[test]
fn where_a_salvage_is_and_how_much_of_it_is_missing_is_said() {
    let bench = with_a_damaged_chunk();
    bench.sh("mkdir target; echo other > target/victim");
    let words = [
        "restore",
        &bench.address(""),
        "--target",
        "target",
        "--json",
    ];
    let ran = bench.run(&words);
    let told = problems(&ran);
    assert!(told[1].1.contains("bytes are zeros"), "{ran}");
    assert!(
        told[1].1.ends_with("beside it as victim.bale-salvaged"),
        "{ran}"
    );
    let summary = ran.summary();
    assert_eq!(
        (&summary["salvaged"], &summary["incomplete"]),
        (&1.into(), &0.into())
    );
    assert!(summary["bytes_missing"].as_u64().unwrap() > 0, "{ran}");
}

/// A verification by itself has nothing that was told before.
#[test]
fn a_file_that_was_there_and_cannot_be_verified_is_named() {
    let bench = with_a_damaged_chunk();
    bench.sh("cp -a source target");
    let words = [
        "restore",
        &bench.address(""),
        "--target",
        "target",
        "--verify",
        "--json",
    ];
    let ran = bench.run(&words);
    assert_eq!(ran.code, 3, "{ran}");
    let told = problems(&ran);
    assert_eq!(told.len(), 1, "{ran}");
    assert_eq!(ran.summary()["kept"], 2, "{ran}");
}

/// Holes are no bytes that are written, in a plan as in what was done.
#[test]
fn a_dry_run_and_a_restore_count_the_same_bytes() {
    let bench = Bench::new();
    bench.sh(
        "cd source; truncate -s 40M holes; printf x | dd of=holes bs=1 seek=20000000 \
        conv=notrunc status=none; echo w > whole",
    );
    bench.backup();
    let mut bytes = Vec::new();
    for place in [["--target", "target"], ["--to-ext4", "image"]] {
        for more in [&["--dry-run"][..], &[]] {
            let words = ["restore", &bench.address(""), place[0], place[1], "--json"];
            bytes.push(bench.ok(&[&words[..], more].concat()).summary()["bytes"].clone());
        }
    }
    assert!(bytes[0].as_u64().unwrap() < 1 << 20, "{bytes:?}");
    assert!(bytes.iter().all(|other| *other == bytes[0]), "{bytes:?}");
}

#[test]
fn directories_that_were_there_are_counted_apart() {
    let bench = Bench::new();
    bench.sh("mkdir -p source/a/b source/c; echo x > source/a/b/x");
    bench.backup();
    let restored = |more: &[&str]| {
        let words = [
            "restore",
            &bench.address(""),
            "--target",
            "target",
            "--json",
        ];
        let summary = bench.ok(&[&words[..], more].concat()).summary();
        let of = |field: &str| summary[field].as_u64().unwrap();
        (of("dirs"), of("dirs_kept"))
    };
    assert_eq!(restored(&["--dry-run"]), (4, 0));
    assert_eq!(restored(&[]), (4, 0));
    assert_eq!(restored(&["--dry-run"]), (0, 4));
    assert_eq!(restored(&[]), (0, 4));
    bench.sh("rm -r target/a");
    assert_eq!(restored(&["--dry-run"]), (2, 2));
    assert_eq!(restored(&[]), (2, 2));
    let words = ["restore", &bench.address(""), "--target", "target"];
    let ran = bench.ok(&words);
    assert!(
        ran.err
            .contains("restored 0 files, 0 directories, 0 hard links"),
        "{ran}"
    );
    assert!(
        ran.err.contains("unchanged: 1 entry, 4 directories"),
        "{ran}"
    );
}

/// Whoever put the link there to have the tree elsewhere learns that it is not; and nothing outside
/// the target is touched.
#[test]
fn a_link_in_the_place_of_a_directory_is_replaced_named_and_never_followed() {
    let bench = Bench::new();
    bench.sh("mkdir -p source/d/e; echo x > source/d/e/x; mkdir outside target");
    bench.backup();
    symlink(bench.path("outside"), bench.path("target/d")).unwrap();
    let words = [
        "restore",
        &bench.address(""),
        "--target",
        "target",
        "--json",
    ];
    for (more, says) in [(&["-n"][..], "would be replaced"), (&[], "was replaced")] {
        let ran = bench.ok(&[&words[..], more].concat());
        let notes = ran.of_type("note");
        let note = notes[0]["message"].as_str().unwrap();
        assert!(
            note.starts_with("d: a symbolic link") && note.contains(says),
            "{ran}"
        );
        assert_eq!(ran.summary()["replaced"], 1, "{ran}");
    }
    bench.sh("[ -z \"$(ls -A outside)\" ]; diff -r source target");
    assert_eq!(bench.ok(&words).summary()["replaced"], 0);
}

#[test]
fn trouble_with_the_whole_target_names_no_empty_path() {
    let bench = Bench::new();
    bench.sh("echo x > source/x");
    bench.backup();
    let target = bench.repository().display().to_string();
    let words = [
        "restore",
        &bench.address(""),
        "--target",
        &target,
        "--delete",
        "-n",
    ];
    let ran = bench.run(&words);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(
        ran.err.contains("bale: delete: nothing is deleted"),
        "{ran}"
    );
    assert!(!ran.err.contains("same command"), "{ran}");
}
