//! A repository whose data is in few, large objects, as its users meet it.

use crate::bench::{Bench, Ran, have, is_root, skipped};
use crate::tree::assert_same;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// For each backup, a directory of its own; `large` has something of each.
const BACKUPS: usize = 3;

fn run(bench: &Bench, words: &[&str]) -> Ran {
    bench.run(&[words, &["-r", "repo", "--key-file", "key"]].concat())
}

fn ok(bench: &Bench, words: &[&str]) -> Ran {
    let ran = run(bench, words);
    assert_eq!(ran.code, 0, "{words:?}: {ran}");
    ran
}

/// A repository with a segment for each backup, each of several packs.
fn bench_of_segments() -> Bench {
    let bench = Bench::new();
    bench.ok(&[
        "init",
        "-r",
        "repo",
        "--segments",
        "1G",
        "--new-key-file",
        "key",
    ]);
    for number in 0..BACKUPS {
        bench.sh(&format!(
            "mkdir -p source/d{number}
             for n in 1 2 3 4; do head -c 3000000 /dev/urandom > source/d{number}/f$n; done
             head -c 2000 /dev/urandom > source/d{number}/small
             head -c 3000000 /dev/urandom >> source/large
             ln source/d{number}/f1 source/again{number}"
        ));
        ok(&bench, &["backup", "source", "--pack-size", "4M"]);
    }
    bench
}

/// Paths of segments, as a plan has them.
fn segments(bench: &Bench) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let top = bench.path("repo/stretches");
    for run in fs::read_dir(&top).into_iter().flatten() {
        for segment in fs::read_dir(run.unwrap().path()).unwrap() {
            let path = segment.unwrap().path();
            let path = path.strip_prefix(bench.path("repo")).unwrap();
            found.insert(path.to_str().unwrap().to_owned());
        }
    }
    found
}

fn restore(bench: &Bench, words: &[&str]) {
    bench.sh("rm -rf target");
    let address = bench.address("");
    let fixed = ["restore", &address, "--target", "target"];
    ok(bench, &[&fixed[..], words].concat());
    assert_same(&bench.source, &bench.path("target"));
}

#[test]
fn what_is_kept_stays_and_space_comes_back() {
    let bench = bench_of_segments();
    assert_eq!(segments(&bench).len(), BACKUPS);
    restore(&bench, &["--verify"]);
    ok(&bench, &["check", "--read-data"]);
    // What the first two backups stored goes, but for one file of each.
    bench.sh("rm -r source/d0/f[234] source/d1/f[234] source/large source/again*");
    ok(&bench, &["backup", "source", "--pack-size", "4M"]);
    let words = [
        "forget",
        "--keep-last",
        "1",
        "--prune",
        "--grace",
        "0",
        "--json",
    ];
    let size = || {
        let all = segments(&bench).into_iter();
        let len = |path: String| fs::metadata(bench.path("repo").join(path)).unwrap().len();
        all.map(len).sum::<u64>()
    };
    let before = size();
    let pruned = ok(&bench, &words).of_type("prune_summary").remove(0);
    assert!(pruned["packs_deleted"].as_u64() > Some(0), "{pruned}");
    assert!(pruned["segments_reclaimed"].as_u64() > Some(0), "{pruned}");
    let given_back = pruned["bytes_reclaimed"].as_u64().unwrap();
    assert!(
        before - size() >= 15_000_000 && given_back >= 15_000_000,
        "{pruned}"
    );
    restore(&bench, &["--verify"]);
    ok(&bench, &["check", "--read-data"]);
    let scrubbed = ok(&bench, &["check", "--scrub", "--json"]).summary();
    assert_eq!(scrubbed["damage"], 0);
    let there = segments(&bench).len();
    assert_eq!(scrubbed["segments_not_read"], there, "{scrubbed}");
    // Nothing is left to be done.
    let again = ok(&bench, &["prune", "--grace", "0", "--json"]).summary();
    assert_eq!(again["segments_reclaimed"], 0, "{again}");
    assert_eq!(segments(&bench).len(), there);
    // Less than 40 % used, and it would have been.
    let waiting = again["bytes_waiting"].as_u64().unwrap();
    assert!(
        waiting > 0 && waiting <= size() / 10 * 6 + (1 << 20),
        "{again}"
    );
    let told = ok(&bench, &["prune", "--grace", "0"]);
    assert!(told.err.contains("deleted 0 B"), "{told}");
    assert!(told.err.contains("in segments wait"), "{told}");
}

fn plan(bench: &Bench, below: &str) -> Vec<Value> {
    let ran = ok(bench, &["restore", &bench.address(below), "--plan"]);
    ran.of_type("pack")
}

/// First and last byte that a line wants.
fn span(line: &Value) -> (u64, u64) {
    let ranges = line["ranges"].as_array().unwrap();
    let first = ranges[0][0].as_u64().unwrap();
    (first, ranges[ranges.len() - 1][1].as_u64().unwrap())
}

#[test]
fn a_plan_names_segments_and_ranges_in_the_order_of_the_medium() {
    let bench = bench_of_segments();
    let lines = plan(&bench, "");
    assert!(lines.len() > 2 * BACKUPS, "{lines:?}");
    let mut seen: Vec<&str> = Vec::new();
    let mut end = 0;
    for line in &lines {
        let path = line["path"].as_str().unwrap();
        if seen.last() != Some(&path) {
            assert!(!seen.contains(&path), "back to {path}: {lines:?}");
            seen.push(path);
            end = 0;
        }
        let (from, to) = span(line);
        assert!(from >= end && to > from, "backwards: {lines:?}");
        end = to;
    }
    let named: BTreeSet<String> = seen.iter().map(|path| (*path).to_owned()).collect();
    assert_eq!(named, segments(&bench));
    // Nothing but the ranges is read of the segments.
    for path in named {
        let file = bench.path("repo").join(&path);
        let bytes = fs::read(&file).unwrap();
        let mut rest = vec![0; bytes.len()];
        for line in lines.iter().filter(|line| line["path"] == path) {
            for range in line["ranges"].as_array().unwrap() {
                let [from, to] = [0, 1].map(|at| range[at].as_u64().unwrap() as usize);
                rest[from..to].copy_from_slice(&bytes[from..to]);
            }
        }
        fs::remove_file(&file).unwrap();
        fs::write(&file, rest).unwrap();
    }
    restore(&bench, &[]);
    // One directory is in one segment.
    let few = plan(&bench, "/d1");
    let paths: BTreeSet<_> = few.iter().map(|line| line["path"].to_string()).collect();
    assert_eq!(paths.len(), 1, "{few:?}");
}

/// Segments in which what is at a path of the newest snapshot lies.
fn segments_of(bench: &Bench, path: &str) -> BTreeSet<String> {
    let ran = ok(bench, &["restore", &format!("latest:{path}"), "--plan"]);
    let paths = ran.of_type("pack").into_iter();
    paths.map(|line| line["path"].to_string()).collect()
}

#[test]
fn projects_end_segments_by_walking_and_by_inodes() {
    let bench = Bench::new();
    let init = ["init", "-r", "repo", "--segments", "16M"];
    bench.ok(&[&init[..], &["--new-key-file", "key"]].concat());
    let make = |project: &&str| {
        bench.sh(&format!(
            "mkdir -p source/{project}/deep; cd source/{project}
             for n in 1 2 3 4; do head -c 3000000 /dev/urandom > f$n; done
             for n in 1 2 3 4; do head -c 500000 /dev/urandom > deep/f$n; done"
        ));
    };
    let assert_apart = |source: PathBuf| {
        let of = |project: &str| segments_of(&bench, source.join(project).to_str().unwrap());
        let (alpha, beta) = (of("alpha"), of("beta"));
        assert_eq!((alpha.len(), beta.len()), (1, 1), "{source:?}");
        assert!(alpha.is_disjoint(&beta), "{source:?}");
    };
    ["alpha", "beta"].iter().for_each(make);
    ok(&bench, &["backup", "source", "--pack-size", "4M"]);
    assert_apart(bench.source.clone());
    if !is_root() || !have("mkfs.ext4") {
        return skipped("images need root and mkfs.ext4");
    }
    bench.sh("rm -r source/*");
    ["alpha", "beta"].iter().for_each(make);
    bench.sh("mkfs.ext4 -q -F -d source disk.img 64M");
    let backup = ["backup", "--scan", "inode", "disk.img"];
    ok(&bench, &[&backup[..], &["--pack-size", "4M"]].concat());
    assert_apart(bench.path("disk.img"));
}

#[test]
fn a_command_makes_whole_segments_readable() {
    let bench = bench_of_segments();
    let mut away: Vec<(PathBuf, PathBuf)> = Vec::new();
    bench.sh("mkdir tape");
    for (number, path) in segments(&bench).into_iter().enumerate() {
        let (here, there) = (
            bench.path("repo").join(path),
            bench.path(&format!("tape/{number}")),
        );
        fs::copy(&here, &there).unwrap();
        let len = fs::metadata(&here).unwrap().len();
        // As a file system of tapes shows it: its name and length.
        fs::remove_file(&here).unwrap();
        fs::File::create(&here).unwrap().set_len(len).unwrap();
        away.push((there, here));
    }
    let moves: String = (away.iter())
        .map(|(there, here)| {
            let name = here.strip_prefix(bench.path("repo")).unwrap();
            format!(
                "if [ $path = {} ]; then cp {} {}; fi; ",
                name.display(),
                there.display(),
                here.display()
            )
        })
        .collect();
    let robot = bench.write(
        "robot",
        format!(
            "sed -n 's/.*\"path\":\"\\([^\"]*\\)\".*/\\1/p' | sort -u | while read path; do
                 {moves} echo $path
             done\n"
        ),
    );
    let robot = format!("bash {}", robot.display());
    restore(&bench, &["--warm-command", &robot]);
}

#[test]
fn what_cannot_be_is_refused() {
    let bench = Bench::new();
    let own = bench.run(&["init", "--segments"]);
    assert_eq!(own.code, 2, "{own}");
    for size in ["1K", "100G", "many"] {
        let init = bench.run(&[
            "init",
            "-r",
            "repo",
            "--segments",
            size,
            "--new-key-file",
            "key",
        ]);
        assert_eq!(init.code, 2, "{init}");
        assert!(!bench.path("repo").exists() && !bench.path("key").exists());
    }
    bench.ok(&["init", "-r", "repo", "--new-key-file", "key", "--segments"]);
    bench.write("source/file", "content");
    ok(&bench, &["backup", "source"]);
    restore(&bench, &[]);
}

#[test]
fn a_mirror_of_segments_is_opened_with_the_same_key_and_follows_the_source() {
    let bench = bench_of_segments();
    let mirror = ["mirror", "--to", "second", "--json"];
    let sent = ok(&bench, &mirror).summary();
    assert_eq!(sent["problems"], 0, "{sent}");
    let restored_from = |place: &str| {
        bench.sh("rm -rf target");
        let address = bench.address("");
        let words = ["restore", &address, "--target", "target", "--verify"];
        bench.ok(&[&words[..], &["-r", place, "--key-file", "key"]].concat());
        assert_same(&bench.source, &bench.path("target"));
    };
    restored_from("second");
    // Of 40 MB in segments of 1 GB one is enough.
    assert_eq!(lengths_of_segments(&bench.path("second")).len(), 1);
    bench.sh("rm -r source/d0 source/d1 source/large source/again*");
    ok(&bench, &["backup", "source", "--pack-size", "4M"]);
    let forget = ["forget", "--keep-last", "1", "--prune", "--grace", "0s"];
    ok(&bench, &forget);
    let gone = ok(&bench, &[&mirror[..], &["--delete"]].concat()).summary();
    assert_eq!(gone["segments_given_back"], 1, "{gone}");
    restored_from("second");
    bench.ok(&["check", "--read-data", "-r", "second", "--key-file", "key"]);
    let lengths = lengths_of_segments(&bench.path("second"));
    assert!(lengths.iter().sum::<u64>() < 20_000_000, "{lengths:?}");
}

fn lengths_of_segments(repository: &Path) -> Vec<u64> {
    let runs = fs::read_dir(repository.join("stretches")).unwrap();
    let segments = runs.flat_map(|run| fs::read_dir(run.unwrap().path()).unwrap());
    segments
        .map(|segment| segment.unwrap().metadata().unwrap().len())
        .collect()
}
