//! Readers that are gone, and outputs that cannot be written: what is done all the same, and which
//! exit code says so.

use crate::bench::{Bench, Ran, binary, skipped};
use std::process::Stdio;

/// How `bale` ends in a shell whose pipe nobody reads, or with other redirections (`after`).
fn code(bench: &Bench, words: &str, after: &str) -> i32 {
    bench.sh(&format!(
        "set +e; {} {words} {after}; echo ${{PIPESTATUS[0]}} > code",
        binary().display()
    ));
    let text = std::fs::read_to_string(bench.path("code")).unwrap();
    text.trim().parse().unwrap()
}

/// Issue 13, 21: `bale backup s --json | true` made no snapshot and ended with 0.
#[test]
fn work_goes_on_when_its_reader_is_gone() {
    for after in ["| true", ">&-", "2>&-", ">&- 2>&-", "2>&1 | true"] {
        for json in ["", "--json"] {
            let bench = Bench::new();
            bench.sh("cd source; for n in $(seq 200); do echo $n > $n; done; echo gone > ../gone");
            let words = format!("backup source /nowhere/at/all {json} -v");
            assert_eq!(code(&bench, &words, after), 3, "{words} {after}");
            let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
            assert_eq!(snapshots.len(), 1, "{words} {after}");
            let words = format!("restore {} -t out {json} -v", bench.address(""));
            assert_eq!(code(&bench, &words, after), 0, "{words} {after}");
            crate::tree::assert_same(&bench.source, &bench.path("out"));
            assert_eq!(code(&bench, &format!("check --read-data {json}"), after), 0);
            assert_eq!(code(&bench, &format!("forget latest {json}"), after), 0);
            let left = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
            assert!(left.is_empty(), "{after}");
        }
    }
}

#[test]
fn damage_is_told_by_the_exit_code_when_nobody_reads() {
    let bench = Bench::new();
    bench.sh("head -c 500000 /dev/urandom > source/victim");
    bench.backup();
    bench.sh(
        "p=$(find home/.local/share/bale/repository/packs -type f -printf '%s %p\\n' | sort -n | \
         tail -1 | cut -d' ' -f2)
        chmod u+w $p; printf damaged! | dd of=$p bs=1 seek=200000 conv=notrunc status=none",
    );
    for words in [
        "check --read-data --json",
        "check --read-data",
        "check --scrub --json",
    ] {
        assert_eq!(code(&bench, words, "| true"), 4, "{words}");
    }
}

#[test]
fn what_only_prints_ends_with_its_reader_and_says_so() {
    let bench = Bench::new();
    bench.sh("cd source; for n in $(seq 3000); do echo $n > a-name-that-fills-a-pipe-$n; done");
    bench.backup();
    let all = bench.address("");
    for words in [
        format!("ls -R {all}"),
        format!("ls -R {all} --json"),
        "find 'a-*'".to_owned(),
        format!("dump {all}"),
        "scan source --list".to_owned(),
        "completions bash".to_owned(),
    ] {
        let ran = code(&bench, &words, "2> err | true");
        assert_eq!(ran, 141, "{words}");
        let err = std::fs::read_to_string(bench.path("err")).unwrap();
        assert!(
            !err.contains("anic") && !err.contains("roken"),
            "{words}: {err}"
        );
    }
    let first = format!("set +e; {} ls {all} | head -1 > first", binary().display());
    bench.sh(&first);
    assert_eq!(
        std::fs::read_to_string(bench.path("first"))
            .unwrap()
            .lines()
            .count(),
        1
    );
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let bench = Bench::new();
    if !std::path::Path::new("/dev/full").exists() {
        return skipped("there is no /dev/full");
    }
    bench.write("source/file", "content");
    bench.ok(&["init"]);
    assert_eq!(
        code(&bench, "backup source --json", "> /dev/full 2> err"),
        1
    );
    let err = std::fs::read_to_string(bench.path("err")).unwrap();
    assert_eq!(err.matches("write to standard output").count(), 1, "{err}");
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("snapshot").len(),
        1
    );
    let file = bench.address("/file");
    for words in [
        "snapshots",
        "ls latest",
        "key list --json",
        "completions zsh",
        "stats",
        &format!("dump {file}"),
    ] {
        assert_eq!(code(&bench, words, "> /dev/full 2> err"), 1, "{words}");
    }
}

#[test]
fn wrong_words_are_an_object_for_scripts_too() {
    let bench = Bench::new();
    for words in [
        &["backup", "--json"][..],
        &["nonsense", "--json"],
        &["ls", "--json", "--nonsense"],
        &["restore", "latest", "--json"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        let objects = ran.objects();
        assert_eq!(objects.len(), 1, "{ran}");
        assert_eq!(
            (objects[0]["type"].as_str(), objects[0]["code"].as_i64()),
            (Some("error"), Some(2)),
            "{ran}"
        );
    }
    let mut command = bench.command();
    let help = command
        .args(["--help", "--json"])
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(Ran::from(help).code, 0);
}
