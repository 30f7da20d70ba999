//! Damage, unreadable files, interruption, a full disk, two at once.

use crate::bench::{Bench, Ran, binary, is_root, skipped};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Largest pack, or any other object below a directory of the repository.
fn largest(bench: &Bench, below: &str) -> std::path::PathBuf {
    let mut found: Vec<_> = Vec::new();
    let mut waiting = vec![bench.repository().join(below)];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap())
        {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                waiting.push(entry.path());
            } else {
                found.push((meta.len(), entry.path()));
            }
        }
    }
    found.into_iter().max().unwrap().1
}

#[test]
fn damage_of_one_byte_is_found_and_named_by_path() {
    let bench = Bench::new();
    bench.sh("head -c 500000 /dev/urandom > source/victim");
    bench.backup();
    for subset in ["1/1", "100%", "10M"] {
        bench.ok(&["check", "--read-data-subset", subset]);
    }
    for wrong in ["0/3", "4/3", "x", "200%"] {
        assert_eq!(
            bench.run(&["check", "--read-data-subset", wrong]).code,
            2,
            "{wrong}"
        );
    }
    bench.ok(&["check", "--read-data"]);
    let pack = largest(&bench, "packs");
    let mut bytes = std::fs::read(&pack).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::remove_file(&pack).unwrap();
    std::fs::write(&pack, &bytes).unwrap();

    let ran = bench.run(&["check", "--read-data", "--json"]);
    assert_eq!(ran.code, 4, "{ran}");
    assert!(
        ran.of_type("lost")
            .iter()
            .any(|lost| lost["path"].as_str().unwrap().ends_with("/victim")),
        "{ran}"
    );
    assert!(ran.summary()["damage"].as_u64().unwrap() > 0);
    std::fs::remove_file(bench.home.join(".local/share/bale/repository.key")).unwrap();
    let scrub = bench.run(&["check", "--scrub", "--json"]);
    assert_eq!(scrub.code, 4, "needs no key: {scrub}");
}

#[test]
fn unreadable_and_vanished_paths_are_named_and_the_rest_is_kept() {
    let bench = Bench::new();
    bench.sh("echo yes > source/readable; echo no > source/secret; mkdir source/closed; chmod 000 source/secret source/closed; chmod 755 .");
    let mut command = if is_root() {
        bench.sh("cp --reflink=auto $0 bale 2>/dev/null || true; chown -R 65534:65534 home; chown 65534 source/secret source/closed");
        let inner = bench.path("bale");
        std::fs::copy(binary(), &inner).unwrap();
        let mut command = bench.prepared(Command::new("setpriv"));
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(inner);
        command
    } else {
        bench.command()
    };
    let ran = Ran::from(
        command
            .args(["backup", "source", "missing", "--json"])
            .output()
            .unwrap(),
    );
    assert_eq!(ran.code, 3, "{ran}");
    for name in ["/secret", "/closed", "/missing"] {
        let named = ran.of_type("problem").iter().any(|problem| {
            problem["path"].as_str().unwrap().ends_with(name)
                && !problem["path"].as_str().unwrap().starts_with("//")
        });
        assert!(named, "{name}: {ran}");
    }
    assert_eq!(ran.summary()["problems"], 3);
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(snapshots[0]["problems"], 3, "all are kept in the snapshot");
    assert_eq!(
        bench.ok(&["dump", &bench.address("/readable")]).out,
        b"yes\n"
    );
}

#[test]
fn two_backups_at_once_both_count() {
    let bench = Bench::new();
    bench.sh("cd source; for i in $(seq 300); do echo $i > $i; done");
    bench.ok(&["init"]);
    let start = || {
        bench
            .command()
            .args(["backup", "source", "-q"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    for child in [start(), start()] {
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
    }
    assert_eq!(
        bench.ok(&["snapshots", "--json"]).of_type("snapshot").len(),
        2
    );
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn an_interrupted_first_backup_is_listed_and_the_next_one_completes() {
    let bench = Bench::new();
    bench.sh("cd source; for d in $(seq 60); do mkdir d$d; for f in $(seq 100); do echo $d $f > d$d/$f; done; head -c 4000000 /dev/urandom > d$d/big; done");
    bench.ok(&["init"]);
    let mut listed = Vec::new();
    for wait_ms in [100, 150, 200, 250] {
        let mut command = bench.command();
        let child = command
            .args(["backup", "source", "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        bench.sh(&format!("kill -INT {}", child.id()));
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.code, 130, "after {wait_ms} ms: {ran}");
        listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
        if listed.iter().any(|run| run["files"].as_u64() > Some(0)) {
            break;
        }
    }
    assert!(!listed.is_empty(), "what was finished is kept");
    listed.sort_by_key(|run| run["files"].as_u64());
    listed.reverse();
    assert_eq!(listed[0]["partial"], true);
    let id = listed[0]["id"].as_str().unwrap();
    bench.ok(&["restore", id, "--target", "partial"]);
    bench.ok(&[
        "restore",
        listed[0]["id"].as_str().unwrap(),
        "--target",
        "partial",
    ]);

    let next = bench.backup();
    assert_eq!(next["files"], 6060);
    assert!(next["files_unmodified"].as_u64() > Some(0), "{next}");
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(listed.len(), 1, "the finished one only");
    bench.ok(&["restore", &bench.address(""), "--target", "out"]);
    crate::tree::assert_same(&bench.source, &bench.path("out"));
}

#[test]
fn a_full_disk_commits_nothing_and_works_again_with_space() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.sh("head -c 12000000 /dev/urandom > source/large; echo secret > pw; mkdir disk");
    bench.mounting_sh(&format!(
        "export BALE_REPOSITORY=$PWD/disk/repo BALE_PASSWORD_FILE=$PWD/pw
        mount -t tmpfs -o size=10M tmpfs disk; {0} init -q
        code=0; {0} backup source -q || code=$?; echo $code > code
        {0} snapshots --json > full
        mount -o remount,size=40M disk
        {0} backup source -q; {0} check --read-data -q; {0} snapshots --json > after",
        binary().display()
    ));
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    assert_eq!(read("code").trim(), "1");
    assert!(
        !read("full").contains("\"partial\":false"),
        "{}",
        read("full")
    );
    assert_eq!(read("after").matches("\"partial\":false").count(), 1);
}

#[test]
fn a_backup_goes_on_when_nobody_reads_what_it_says() {
    let bench = Bench::new();
    for number in 0..50 {
        bench.write(&format!("source/{number}"), "content");
    }
    let mut command = bench.command();
    let mut child = command
        .args(["backup", "source", "--verbose", "/nowhere/at/all"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(listed.len(), 1);
}

/// Half-written objects of dead processes are removed by whoever writes next, and by nobody who only reads.
#[test]
fn what_a_dead_process_left_half_written_is_swept_before_writing() {
    let bench = Bench::new();
    bench.write("source/a", "a");
    bench.backup();
    let left = bench
        .repository()
        .join("tmp/.tmp-0123456789abcdef0123456789abcdef");
    let leave = || {
        std::fs::write(&left, "half").unwrap();
        let two_days = Duration::from_secs(2 * 24 * 3600);
        let file = std::fs::File::open(&left).unwrap();
        file.set_modified(std::time::SystemTime::now() - two_days)
            .unwrap();
    };
    leave();
    for words in [
        &["snapshots"][..],
        &["ls", "latest"],
        &["backup", "source", "--dry-run"],
        &["prune", "--dry-run"],
        &["key", "list"],
    ] {
        bench.ok(words);
        assert!(left.exists(), "{words:?} only reads");
    }
    for words in [&["backup", "source"][..], &["prune"], &["repair", "index"]] {
        leave();
        bench.ok(words);
        assert!(!left.exists(), "{words:?} writes");
    }
}
