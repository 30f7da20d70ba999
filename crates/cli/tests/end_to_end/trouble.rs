//! Damage, unreadable files, interruption, a full disk, few means, many at once.

use crate::bench::{Bench, Ran, binary, have, interrupted_backup, is_root, skipped};
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
    bench.sh(
        "echo yes > source/readable; echo no > source/secret; mkdir source/closed; chmod 000 \
        source/secret source/closed; chmod 755 .",
    );
    let mut command = if is_root() {
        bench.sh(
            "cp --reflink=auto $0 bale 2>/dev/null || true; chown -R 65534:65534 home; chown \
            65534 source/secret source/closed",
        );
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
    if is_root() {
        // A cache of somebody else's is refused.
        bench.sh("chown -R 0:0 home");
    }
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(snapshots[0]["problems"], 3, "all are kept in the snapshot");
    assert_eq!(
        bench.ok(&["dump", &bench.address("/readable")]).out,
        b"yes\n"
    );
}

/// With what a row says of it, that is a change; as long as it stays so it is none, and yet a
/// problem each time.
#[test]
fn a_file_that_became_unreadable_is_a_change_once_and_a_problem_every_time() {
    let bench = Bench::new();
    bench.sh("echo yes > source/readable; echo no > source/secret; chmod 755 .");
    std::fs::copy(binary(), bench.path("bale")).unwrap();
    if is_root() {
        bench.sh("chown -R 65534:65534 home source");
    }
    let backup = || {
        let mut command = match is_root() {
            true => {
                let mut command = bench.prepared(Command::new("setpriv"));
                command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
                command.arg(bench.path("bale"));
                command
            }
            false => bench.command(),
        };
        command.args(["backup", "source", "--skip-if-unchanged", "--json"]);
        let ran = Ran::from(command.output().unwrap());
        let summary = ran.summary();
        (
            ran.code,
            summary["snapshot"].is_string(),
            summary["problems"].as_u64(),
        )
    };
    assert_eq!(backup(), (0, true, Some(0)));
    let settled = (0..5).map(|_| backup()).find(|ran| !ran.1);
    assert_eq!(settled, Some((0, false, Some(0))));
    bench.sh("chmod 000 source/secret");
    assert_eq!(backup(), (3, true, Some(1)));
    let settled = (0..5).map(|_| backup()).find(|ran| !ran.1);
    assert_eq!(settled, Some((3, false, Some(1))));
    bench.sh("chmod 644 source/secret");
    assert_eq!(backup(), (0, true, Some(0)));
}

#[test]
fn a_source_that_is_not_there_is_named_also_when_it_is_the_only_one() {
    let bench = Bench::new();
    bench.ok(&["init"]);
    for verb in ["backup", "scan"] {
        let ran = bench.run(&[verb, "away/far"]);
        assert_eq!(ran.code, 1, "{verb}: {ran}");
        assert!(ran.err.contains("away/far: No such file"), "{verb}: {ran}");
    }
}

/// SRC-01 from one end to the other: what can be read of a file is kept, the rest is named by
/// backup and restore, and a later backup reads it again though nothing about it has changed.
#[test]
fn what_a_device_cannot_give_is_named_kept_in_part_and_read_again_later() {
    let bench = Bench::new();
    for tool in ["mkfs.ext4", "debugfs", "mount"] {
        if !have(tool) {
            return skipped(tool);
        }
    }
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.mounting_sh(&format!(
        "truncate -s 64M disk; mkfs.ext4 -q -F -b 4096 disk
        mount -o loop disk source; echo small > source/small; sync
        head -c 20000000 /dev/urandom > source/large; cp source/large whole
        umount source; cp --sparse=always disk good
        block=$(debugfs -R 'bmap /large 2000' disk 2>/dev/null)
        mount -o loop,noatime disk source; truncate -s $((block * 4096)) disk
        code=0; {0} backup source --json > bad.json || code=$?; echo $code > bad
        umount source 2>/dev/null || umount -l source; mv good disk; mount -o loop,noatime disk \
        source
        code=0; {0} restore latest:$PWD/source -t part --json > part.json || code=$?; echo $code > \
        restored
        {0} backup source --json > later.json; {0} restore latest:$PWD/source -t later -q",
        binary().display()
    ));
    let read = |name: &str| std::fs::read(bench.path(name)).unwrap();
    let text = |name: &str| String::from_utf8(read(name)).unwrap();
    let (whole, part) = (read("whole"), read("part/large"));
    for (code, told) in [("bad", "bad.json"), ("restored", "part.json")] {
        let told = text(told);
        assert_eq!(text(code).trim(), "3", "{told}");
        let mut problems = (told.lines())
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .filter(|line| line["type"] == "problem");
        let is_large = |problem: &serde_json::Value| {
            let path = problem["path"].as_str().unwrap();
            path.ends_with("/large") || path == "large"
        };
        assert!(problems.any(|problem| is_large(&problem)), "{told}");
    }
    let good = part.iter().zip(&whole).take_while(|(a, b)| a == b).count();
    assert!(good >= 2000 * 4096 && good < whole.len(), "{good}");
    assert!(part.len() == whole.len() && part[good..].iter().all(|byte| *byte == 0));
    assert_eq!(text("part/small"), "small\n");
    assert!(read("later/large") == whole, "{}", text("later.json"));
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

/// CON-01, CON-02: eight processes, as eight computers would run them, into one directory.
#[test]
fn eight_backups_at_once_from_eight_hosts_all_count() {
    let bench = Bench::new();
    bench.sh(
        "head -c 3000000 /dev/urandom > shared; for h in $(seq 8); do mkdir -p source/$h/own; \
        cp shared source/$h; echo $h > source/$h/name; for i in $(seq 50); do echo $h $i > \
        source/$h/own/$i; done; head -c 1000000 /dev/urandom > source/$h/large; done",
    );
    bench.ok(&["init"]);
    let start = |host: u32| {
        let (host, source) = (format!("host{host}"), format!("source/{host}"));
        let mut command = bench.command();
        command.args(["backup", &source, "--host", &host, "--json"]);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let running: Vec<_> = (1..=8).map(start).collect();
    let done: Vec<Ran> = (running.into_iter())
        .map(|child| Ran::from(child.wait_with_output().unwrap()))
        .collect();
    for (ran, host) in done.iter().zip(1..) {
        assert_eq!(ran.code, 0, "{ran}");
        let id = ran.summary()["snapshot"].as_str().unwrap().to_owned();
        let (source, out) = (format!("/{host}"), format!("out{host}"));
        let address = bench.address_in(&id, &source);
        bench.ok(&["restore", &address, "--target", &out]);
        let source = bench.source.join(host.to_string());
        crate::tree::assert_same(&source, &bench.path(&out));
    }
    let listed = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(listed.len(), 8);
    bench.ok(&["check", "--read-data"]);
}

/// RES-02: a user who may have 32 processes and 64 open files.
#[test]
fn few_processes_and_few_open_files_suffice() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("becoming another user needs root");
    }
    // Processes are counted by user: one that nobody else is.
    const NOBODY_ELSE: u32 = 64_123;
    bench.sh(
        "cd source; for d in $(seq 20); do mkdir $d; for i in $(seq 40); do echo $d $i > \
        $d/$i; done; done; head -c 9000000 /dev/urandom > large; ln 1/1 link; truncate -s 3M hole",
    );
    std::fs::copy(binary(), bench.path("bale")).unwrap();
    bench.sh(&format!(
        "chmod 755 .; chown -R {NOBODY_ELSE}:{NOBODY_ELSE} home source"
    ));
    // On one processor, for threads are counted by processors.
    let one =
        "list=$(taskset -cp $$); list=${list##*: }; taskset -cp ${list%%[,-]*} $$ > /dev/null";
    let limited = |script: &str| {
        let mut command = bench.prepared(Command::new("setpriv"));
        command
            .arg(format!("--reuid={NOBODY_ELSE}"))
            .arg(format!("--regid={NOBODY_ELSE}"))
            .args(["--clear-groups", "bash", "-euc"])
            .arg(format!("{one}; ulimit -u 32; ulimit -n 64; {script}"));
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, 0, "{script}: {ran}");
    };
    limited("./bale backup source -q; ./bale check --read-data -q; ./bale prune -q");
    let address = bench.address("");
    limited(&format!("./bale restore {address} --target home/out -q"));
    crate::tree::assert_same(&bench.source, &bench.path("home/out"));
}

/// RES-02: with too little address space a command ends with a word, not by a signal; with enough
/// it works.
#[test]
fn a_limit_of_the_address_space_ends_no_command_by_a_signal() {
    let bench = Bench::new();
    bench.sh("head -c 3000000 /dev/urandom > source/big");
    bench.backup();
    let limited = |kib: u64, words: &str| {
        let mut command = bench.prepared(Command::new("bash"));
        let binary = binary().display();
        let script = format!("ulimit -v {kib}; exec {binary} {words}");
        Ran::from(command.args(["-euc", &script]).output().unwrap())
    };
    for kib in [60_000, 150_000, 400_000, 700_000, 1_000_000, 1_200_000] {
        for words in ["backup source --force", "check --read-data", "ls latest"] {
            let ran = limited(kib, words);
            let is_told = ran.code == 1 && ran.err.contains("bale: ");
            assert!(ran.code == 0 || is_told, "{kib} KiB, {words}: {ran}");
        }
    }
    let processors = std::thread::available_parallelism().unwrap().get() as u64;
    let enough = limited((2 << 20) * processors.div_ceil(4), "backup source --force");
    assert_eq!(enough.code, 0, "{enough}");
    bench.ok(&["check", "--read-data"]);
}

/// RES-02: a cache only costs time, so that no place for one stops nothing.
#[test]
fn without_a_place_for_a_cache_every_command_says_so_and_works() {
    let bench = Bench::new();
    bench.write("source/a", "a");
    bench.write("pw", "secret");
    let to = ["-r", "repo", "-p", "pw"];
    let words = |more: &[&'static str]| [&to[..], more].concat();
    bench.ok(&words(&["init"]));
    bench.ok(&words(&["backup", "source"]));
    let homeless = |more: &[&'static str]| {
        let mut command = bench.command();
        command
            .env("HOME", "/proc/nowhere")
            .env("TMPDIR", "/proc/nowhere");
        Ran::from(command.args(words(more)).output().unwrap())
    };
    for command in [
        &["backup", "source"][..],
        &["snapshots"],
        &["ls", "latest"],
        &["check", "--read-data"],
        &["restore", "latest", "--target", "out"],
        &["dump", "latest:/"],
        &["forget", "--keep-last", "1", "--prune"],
        &["scan", "source"],
    ] {
        let ran = homeless(command);
        assert_eq!(ran.code, 0, "{command:?}: {ran}");
        let told = ran.err.matches("/proc/nowhere/.cache").count();
        assert_eq!(told, 1, "{command:?}: {ran}");
        let needs_repository = command[0] != "scan";
        assert_eq!(ran.err.contains("not noticed"), needs_repository, "{ran}");
    }
    let listed = bench
        .ok(&words(&["snapshots", "--json"]))
        .of_type("snapshot");
    assert_eq!(listed.len(), 1);
    let elsewhere = homeless(&["backup", "source", "--cache-dir", "cache"]);
    assert_eq!(elsewhere.code, 0, "{elsewhere}");
    assert!(!elsewhere.err.contains("warning"), "{elsewhere}");
}

/// RES-02: the same of a cache that was named, where its file system takes nothing now.
#[test]
fn a_named_cache_on_a_full_or_read_only_file_system_stops_nothing() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.write("source/a", "a");
    bench.sh("echo secret > pw; mkdir disk");
    bench.mounting_sh(&format!(
        "export BALE_REPOSITORY=$PWD/repo BALE_PASSWORD_FILE=$PWD/pw BALE_CACHE_DIR=$PWD/disk/c
        mount -t tmpfs -o size=1M tmpfs disk; {0} init -q; {0} backup source -q
        try() {{
            state=$1; shift; code=0; {0} \"$@\" > said 2>&1 || code=$?
            warned=$(grep -c 'disk/c.*Continuing with a temporary cache' said || true)
            echo $state $1 $code $warned >> codes; echo \"$@:\" >> all; cat said >> all
        }}
        every() {{
            for words in 'backup source' snapshots 'ls latest' 'dump latest:/' 'check --read-data' \
                \"restore latest --target out$1\" 'scan source'; do try $1 $words; done
            try $1 init -r new$1
        }}
        head -c 2000000 /dev/zero > disk/full || true; every full
        mount -o remount,ro disk; every read-only
        umount disk; mount -t tmpfs -o ro tmpfs disk; every unmade
        umount disk; echo > disk/c; try file snapshots
        {0} snapshots --json --cache-dir elsewhere > listed",
        binary().display()
    ));
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    for line in read("codes").lines() {
        let is_nonsense = line.starts_with("file");
        let ends_well = line.ends_with(" 0 1") && !is_nonsense;
        let is_refused = line.ends_with(" 1 0") && is_nonsense;
        assert!(ends_well || is_refused, "{line}: {}", read("all"));
    }
    assert_eq!(read("codes").lines().count(), 25);
    assert_eq!(read("listed").matches("\"type\":\"snapshot\"").count(), 4);
}

#[test]
fn an_interrupted_first_backup_is_listed_and_the_next_one_completes() {
    let (bench, record) = interrupted_backup(|bench| {
        bench.sh(
            "cd source; for d in $(seq 60); do mkdir d$d; for f in $(seq 100); do echo $d $f > \
            d$d/$f; done; head -c 4000000 /dev/urandom > d$d/big; done",
        );
    });
    let id = record["id"].as_str().unwrap();
    for words in [&["restore", id, "--target", "partial"][..], &["dump", id]] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 3, "it is not all: {ran}");
        assert!(ran.err.contains("unfinished run"), "{ran}");
    }
    bench.ok(&["ls", id]);

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

/// Half-written objects of dead processes are removed by whoever writes next, and by nobody who
/// only reads.
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
