//! The reader that was written from the format page reads repositories with segments, and goes on
//! when the records of these are lost.

use crate::bench::{Bench, skipped};
use crate::tree::assert_same;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn reader_can_run() -> bool {
    let modules = "import argon2, blake3, cryptography, pyarrow, zstandard";
    let python = Command::new("python3").args(["-c", modules]).output();
    let can = python.is_ok_and(|output| output.status.success());
    if !can {
        skipped("python3 with argon2-cffi, blake3, cryptography, pyarrow, zstandard");
    }
    can
}

const REPOSITORY: [&str; 4] = ["-r", "repo", "--key-file", "key"];

fn ok(bench: &Bench, words: &[&str]) {
    bench.ok(&[words, &REPOSITORY].concat());
}

/// Several backups into small segments, of which a prune took some packs, and gave back segments.
fn bench_of_segments() -> Bench {
    let bench = Bench::new();
    bench.ok(&[
        "init",
        "-r",
        "repo",
        "--segments",
        "8M",
        "--new-key-file",
        "key",
    ]);
    for number in 0..3 {
        bench.sh(&format!(
            "mkdir source/d{number}
             for n in 1 2 3; do head -c 3000000 /dev/urandom > source/d{number}/f$n; done
             seq {number} 2000 > source/d{number}/small; ln -sf small source/d{number}/link"
        ));
        ok(&bench, &["backup", "source", "--pack-size", "4M"]);
    }
    bench.sh("rm source/d0/f[12] source/d1/f2");
    ok(&bench, &["backup", "source", "--pack-size", "4M"]);
    ok(
        &bench,
        &["forget", "--keep-last", "1", "--prune", "--grace", "0"],
    );
    bench
}

/// Exit code of the reader and what it said; where it restored to is asserted to be the source.
fn read(bench: &Bench) -> (Option<i32>, String) {
    bench.sh("rm -rf out");
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bale_read.py");
    let mut command = Command::new("python3");
    command.arg("-B").arg(&reader);
    command.args(["repo", "--key-file", "key", "restore", "latest", "out"]);
    let read = bench.prepared(command).output().unwrap();
    let said = String::from_utf8_lossy(&read.stderr).into_owned();
    if bench.path("out").exists() {
        let below = bench.source.strip_prefix("/").unwrap();
        assert_same(&bench.source, &bench.path("out").join(below));
    }
    (read.status.code(), said)
}

fn records(bench: &Bench) -> Vec<PathBuf> {
    let records = fs::read_dir(bench.path("repo/stretched")).unwrap();
    let mut records: Vec<_> = records.map(|entry| entry.unwrap().path()).collect();
    records.sort();
    records
}

#[test]
fn the_second_reader_reads_segments_with_and_without_their_records() {
    if !reader_can_run() {
        return;
    }
    let bench = bench_of_segments();
    assert_eq!(read(&bench), (Some(0), String::new()));
    let records = records(&bench);
    assert!(records.len() > 1, "{records:?}");
    // One is damaged, one is lost, all are.
    let mut bytes = fs::read(&records[0]).unwrap();
    bytes[200] ^= 1;
    fs::remove_file(&records[0]).unwrap();
    fs::write(&records[0], bytes).unwrap();
    let (code, said) = read(&bench);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("stretched/"), "{said}");
    fs::remove_file(&records[0]).unwrap();
    assert_eq!(read(&bench), (Some(0), String::new()));
    for record in &records[1..] {
        fs::remove_file(record).unwrap();
    }
    assert_eq!(read(&bench), (Some(0), String::new()));
    // And the program itself does, and writes them again.
    ok(&bench, &["check", "--read-data"]);
    ok(&bench, &["repair", "index"]);
    assert_eq!(self::records(&bench).len(), records.len());
    assert_eq!(read(&bench), (Some(0), String::new()));
}
