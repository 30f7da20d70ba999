//! `backup --stdin` and `--stdin-from-command`: what a program writes becomes one file, and what a
//! program that fails has written becomes no snapshot.

use crate::bench::{Bench, Ran};
use bale_testkit::scene::noise;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn piped(bench: &Bench, words: &[&str], bytes: &[u8]) -> Ran {
    let mut command = bench.command();
    command.args(words).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // Who is refused closes it.
    let _written = input.write_all(bytes);
    drop(input);
    Ran::from(child.wait_with_output().unwrap())
}

fn snapshots(bench: &Bench) -> usize {
    bench.ok(&["snapshots", "--json"]).of_type("snapshot").len()
}

fn dumped(bench: &Bench, address: &str) -> Vec<u8> {
    let output = bench.command().args(["dump", address]).output().unwrap();
    assert!(output.status.success(), "{address}");
    output.stdout
}

#[test]
fn what_comes_on_standard_input_is_a_file_and_is_stored_once() {
    let bench = Bench::new();
    let bytes = noise(1, 9 << 20);
    let first = piped(&bench, &["backup", "--stdin", "--json"], &bytes);
    assert_eq!(first.code, 0, "{first}");
    let counts = first.summary();
    assert_eq!(counts["files"], 1);
    assert_eq!(counts["files_new"], 1);
    assert_eq!(counts["bytes_read"], bytes.len());
    assert!(dumped(&bench, "latest:/stdin") == bytes);

    let mut changed = bytes.clone();
    changed[4 << 20] ^= 1;
    let second = piped(&bench, &["backup", "--stdin", "--json"], &changed);
    let counts = second.summary();
    assert_eq!(counts["files_changed"], 1);
    let stored = counts["bytes_stored"].as_u64().unwrap();
    assert!(
        stored < 5 << 20,
        "the pieces that are the same stay: {stored}"
    );
    assert!(dumped(&bench, "latest:/stdin") == changed);
    assert!(dumped(&bench, "latest~1:/stdin") == bytes);

    let skipping = ["backup", "--stdin", "--skip-if-unchanged", "--json"];
    let third = piped(&bench, &skipping, &changed);
    assert_eq!(third.code, 0, "{third}");
    assert!(third.summary()["snapshot"].is_null(), "{third}");
    assert_eq!(snapshots(&bench), 2);
    let fourth = piped(&bench, &["backup", "--stdin", "--json"], &changed);
    assert_eq!(fourth.summary()["files_unmodified"], 1);
    assert_eq!(snapshots(&bench), 3);
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn a_file_has_the_name_that_is_asked_for_and_comes_back_as_a_file() {
    let bench = Bench::new();
    let words = [
        "backup",
        "--stdin",
        "--stdin-filename",
        "/db.sql",
        "--tag",
        "nightly",
    ];
    let ran = piped(&bench, &words, b"select 1;\n");
    assert_eq!(ran.code, 0, "{ran}");
    let listed = String::from_utf8(bench.ok(&["ls", "latest"]).out).unwrap();
    assert!(listed.contains("/db.sql"), "{listed}");
    bench.ok(&["restore", "latest", "--target", "out"]);
    assert_eq!(
        std::fs::read(bench.path("out/db.sql")).unwrap(),
        b"select 1;\n"
    );
    let shown = bench.ok(&["snapshots", "--json"]);
    let snapshot = &shown.of_type("snapshot")[0];
    assert_eq!(snapshot["paths"][0], "/db.sql");
    assert_eq!(snapshot["source_filesystems"][0], "stream");
    assert_eq!(snapshot["tags"][0], "nightly");
    // Another name is another source: neither is the parent of the other.
    let ran = piped(&bench, &["backup", "--stdin", "--json"], b"select 1;\n");
    assert_eq!(ran.summary()["files_new"], 1, "{ran}");
}

#[test]
fn nothing_at_all_is_an_empty_file_and_said() {
    let bench = Bench::new();
    let ran = piped(&bench, &["backup", "--stdin"], b"");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.err.contains("nothing was written"), "{ran}");
    assert_eq!(dumped(&bench, "latest:/stdin"), b"");
    // Where there was something before, what writes it failed, probably.
    assert_eq!(piped(&bench, &["backup", "--stdin"], b"a dump").code, 0);
    let ran = piped(&bench, &["backup", "--stdin", "--quiet"], b"");
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("it had 6 bytes in snapshot"), "{ran}");
    bench.ok(&["forget", "--keep-last", "1"]);
    assert_eq!(snapshots(&bench), 2, "the dump, and what is empty");
}

#[test]
fn what_a_command_writes_is_a_file_and_the_command_sees_no_password() {
    let bench = Bench::new();
    let script = "printf '%s' \"$1${BALE_PASSWORD-none}\"; echo said >&2";
    let mut command = bench.command();
    let words = [
        "backup",
        "--stdin-from-command",
        "--stdin-filename",
        "x",
        "--json",
        "--",
    ];
    command
        .args(words)
        .args(["sh", "-c", script, "sh", "-v --stdin"]);
    let ran = Ran::from(command.env("BALE_PASSWORD", "secret").output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.err.contains("said"), "what it says is seen: {ran}");
    let mut dump = bench.command();
    dump.args(["dump", "latest:/x"])
        .env("BALE_PASSWORD", "secret");
    assert_eq!(dump.output().unwrap().stdout, b"-v --stdinnone");
}

/// A dump that broke off half way looks like a dump.
#[test]
fn a_command_that_fails_leaves_no_snapshot() {
    let bench = Bench::new();
    bench.backup();
    let from = ["backup", "--stdin-from-command", "--"];
    for (script, how) in [
        ("head -c 3000000 /dev/urandom; exit 7", "exit status: 7"),
        ("head -c 3000000 /dev/zero; kill -9 $$", "signal: 9"),
        ("exit 1", "exit status: 1"),
    ] {
        let ran = bench.run(&[&from[..], &["sh", "-c", script]].concat());
        assert_eq!(ran.code, 1, "{script}: {ran}");
        for word in [how, "no snapshot was made"] {
            assert!(ran.err.contains(word), "{script}: {ran}");
        }
        assert_eq!(snapshots(&bench), 1, "{script}");
    }
    let ran = bench.run(&[&from[..], &["/no/such/program"]].concat());
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("start /no/such/program"), "{ran}");
    assert_eq!(snapshots(&bench), 1);
    bench.ok(&["check", "--read-data"]);
    // Nor does one that does not end by itself outlive a backup that cannot store.
    let none = [
        "-r",
        "none",
        "backup",
        "--stdin-from-command",
        "--",
        "touch",
        "ran",
    ];
    let ran = bench.run(&none);
    assert_ne!(ran.code, 0, "{ran}");
    assert!(!bench.path("ran").exists(), "it is not even started");
}

/// As a service manager ends it: the command is not told, and writes nothing.
#[test]
fn an_interrupted_backup_of_a_silent_command_ends_and_ends_the_command() {
    let bench = Bench::new();
    bench.backup();
    let mut command = bench.command();
    // What it started is ended, too, though nobody waits for that.
    let script = "sleep 1000 & echo $! > started.new; mv started.new started; wait";
    command.args(["backup", "--stdin-from-command", "--", "sh", "-c", script]);
    let child = without_a_terminal(&command).spawn().unwrap();
    let pid = started(&bench, "started");
    bench.sh(&format!("kill -INT {}", child.id()));
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    assert!(ran.err.contains("nothing of this run is kept"), "{ran}");
    ends(pid);
    assert_eq!(snapshots(&bench), 1);
}

/// The second signal waits for nothing, and leaves nothing.
#[test]
fn a_second_signal_ends_the_command_too() {
    let bench = Bench::new();
    bench.backup();
    let mut command = bench.command();
    // It wants to end by itself.
    let script = "trap '' TERM; sleep 1000 & echo $! > started.new; mv started.new started; wait";
    command.args(["backup", "--stdin-from-command", "--", "sh", "-c", script]);
    let mut child = without_a_terminal(&command).spawn().unwrap();
    let pid = started(&bench, "started");
    bench.sh(&format!(
        "kill -TERM {0}; sleep 0.5; kill -TERM {0}",
        child.id()
    ));
    assert_eq!(child.wait().unwrap().code(), Some(130));
    ends(pid);
    assert_eq!(snapshots(&bench), 1);
}

/// As of a service: with a terminal, signals of that end what was started.
fn without_a_terminal(command: &Command) -> Command {
    let mut apart = Command::new("setsid");
    apart.arg(command.get_program()).args(command.get_args());
    apart.current_dir(command.get_current_dir().unwrap());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => apart.env(name, value),
            None => apart.env_remove(name),
        };
    }
    apart.stdout(Stdio::piped()).stderr(Stdio::piped());
    apart
}

const PATIENCE: Duration = Duration::from_secs(60);

/// What a script wrote when it had begun.
fn started(bench: &Bench, name: &str) -> i32 {
    let begun = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(bench.path(name)) {
            return text.trim().parse().unwrap_or_default();
        }
        assert!(begun.elapsed() < PATIENCE, "the command does not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Nobody may have waited for it.
fn ends(pid: i32) {
    let begun = Instant::now();
    loop {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if state.is_empty() || state.contains(") Z ") {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "it goes on: {state}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Nothing of a stream can be gone on from; what it stored is found by its content.
#[test]
fn an_interrupted_stream_says_what_is_kept_and_the_next_one_stores_only_the_rest() {
    let bench = Bench::new();
    let bytes = noise(7, 48 << 20);
    std::fs::write(bench.path("dump"), &bytes).unwrap();
    bench.backup();
    let (mut command, script) = (bench.command(), "cat dump; touch read; sleep 1000");
    command.args(["backup", "--stdin-from-command", "--", "sh", "-c", script]);
    let child = without_a_terminal(&command).spawn().unwrap();
    started(&bench, "read");
    bench.sh(&format!("kill -INT {}", child.id()));
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    assert!(ran.err.contains("no snapshot was made"), "{ran}");
    assert!(ran.err.contains("stores only the rest"), "{ran}");
    assert_eq!(snapshots(&bench), 1);
    let again = piped(&bench, &["backup", "--stdin", "--json"], &bytes);
    let stored = again.summary()["bytes_stored"].as_u64().unwrap();
    assert!(stored < 16 << 20, "an open piece at most: {again}");
    assert!(dumped(&bench, "latest:/stdin") == bytes);
    bench.ok(&["check", "--read-data"]);
    // Of a command that failed it is the same.
    let changed = noise(8, 24 << 20);
    std::fs::write(bench.path("dump"), &changed).unwrap();
    let from = ["backup", "--stdin-from-command", "--", "sh", "-c"];
    let failed = bench.run(&[&from[..], &["cat dump; exit 7"]].concat());
    assert_eq!(failed.code, 1, "{failed}");
    let words = [&from[..], &["cat dump"]].concat();
    let ran = bench.ok(&[&words[..2], &["--json"], &words[2..]].concat());
    let stored = ran.summary()["bytes_stored"].as_u64().unwrap();
    assert!(stored < 1 << 20, "{ran}");
    assert!(dumped(&bench, "latest:/stdin") == changed);
}

#[test]
fn words_that_do_not_fit_are_refused_before_anything_is_read() {
    let bench = Bench::new();
    bench.backup();
    for (words, says) in [
        (&["--stdin", "source"][..], "takes no paths"),
        (&["--stdin", "--stdin-filename", "a/b"], "without a slash"),
        (&["--stdin", "--stdin-filename", ".."], "without a slash"),
        (&["--stdin-filename", "x", "source"], "neither is given"),
        (&["--stdin-from-command"], "required"),
        (&["--stdin", "--exclude", "x"], "cannot be used with"),
        (&["--stdin", "--image", "x"], "cannot be used with"),
        (
            &["--stdin", "--stdin-from-command", "x"],
            "cannot be used with",
        ),
    ] {
        let ran = bench.run(&[&["backup"], words].concat());
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
        assert!(ran.err.contains(says), "{words:?}: {ran}");
        assert_eq!(snapshots(&bench), 1, "{words:?}");
    }
}

/// Of one host and path, and yet no rule of forget takes one for a state of the other.
#[test]
fn a_stream_and_a_file_of_one_path_are_two_sources() {
    let bench = Bench::new();
    let path = bench.write("source/file", "of a file");
    let name = path.file_name().unwrap().to_str().unwrap();
    for _ in 0..2 {
        bench.ok(&["backup", path.to_str().unwrap(), "--json"]);
        let words = ["backup", "--stdin", "--stdin-filename", name, "--json"];
        assert_eq!(piped(&bench, &words, b"of a stream").code, 0);
    }
    bench.ok(&["forget", "--keep-last", "1"]);
    assert_eq!(snapshots(&bench), 2, "one of each");
}
