//! `--log-file` and the journal: what is left for those who look later.

use crate::bench::{Bench, Ran};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Stdio;

fn log(bench: &Bench) -> String {
    std::fs::read_to_string(bench.path("log")).unwrap()
}

/// Time, level, command with its process, message.
fn parts(line: &str) -> [&str; 4] {
    let (time, rest) = line.split_once(' ').unwrap();
    let (level, rest) = rest.split_once(' ').unwrap();
    let (command, message) = rest.split_once(": ").unwrap();
    [time, level, command, message]
}

#[test]
fn the_log_has_the_beginning_the_trouble_and_the_end_of_each_run() {
    let bench = Bench::new();
    bench.write("source/a", "one");
    bench.write("log", "what another program wrote\n");
    for more in [&["--json"][..], &[], &["-q"]] {
        let words = [
            "backup",
            "source",
            "missing\n1970-01-01 forged",
            "--log-file",
            "log",
        ];
        let ran = bench.run(&[&words[..], more].concat());
        assert_eq!(ran.code, 3, "{ran}");
    }
    let text = log(&bench);
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("what another program wrote"));
    let lines: Vec<_> = lines.map(parts).collect();
    for [time, level, command, message] in &lines {
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
        assert!(["info", "warning", "error"].contains(level), "{level}");
        assert!(command.starts_with("backup["), "{command}: {message}");
    }
    let with = |word: &str| lines.iter().filter(|line| line[3].contains(word)).count();
    assert_eq!(with("begins: bale "), 3, "{text}");
    assert_eq!(
        with("missing\\x0a1970-01-01 forged"),
        3,
        "once for each run: {text}"
    );
    assert_eq!(with("ends with exit code 3"), 3, "{text}");
    let end = lines.last().unwrap();
    assert_eq!(end[1], "warning");
    assert!(
        end[3].contains(" problems=1") && end[3].contains(" files=1"),
        "{end:?}"
    );
    // A file of names is for whoever runs it.
    std::fs::remove_file(bench.path("log")).unwrap();
    bench.ok(&["backup", "source", "--log-file", "log"]);
    let mode = std::fs::metadata(bench.path("log"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn an_error_is_in_the_log_and_secrets_are_not() {
    let bench = Bench::new();
    bench.write("source/a", "one");
    let mut first = bench.command();
    first.args(["init"]).env("BALE_LOG_FILE", "log");
    let ran = Ran::from(first.output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let recovery = ran
        .err
        .lines()
        .find(|line| line.matches('-').count() > 3)
        .expect("a key");
    assert!(
        !log(&bench).contains(recovery.trim()),
        "it is shown and not kept"
    );
    let url = "rest:http://me:secret@127.0.0.1:9/x";
    let ran = bench.run(&[
        "snapshots",
        "-r",
        url,
        "--retry-for",
        "0",
        "--log-file",
        "log",
    ]);
    assert_ne!(ran.code, 0, "{ran}");
    let text = log(&bench);
    assert!(!text.contains("secret"), "{text}");
    let errors: Vec<_> = text
        .lines()
        .map(parts)
        .filter(|line| line[1] == "error")
        .collect();
    assert!(
        errors.len() >= 2 && errors[0][2].starts_with("snapshots["),
        "{text}"
    );
    // Only what matters more.
    let mut quiet = bench.command();
    quiet
        .args(["snapshots", "--log-file", "little"])
        .env("BALE_LOG", "warning");
    quiet.output().unwrap();
    assert_eq!(std::fs::read_to_string(bench.path("little")).unwrap(), "");
    // The filter of other programs counts where there is none of ours, and is never a failure.
    for (ours, theirs, is_empty) in [
        (None, "warn", true),
        (None, "hyper=error", false),
        (Some("info"), "warn", false),
    ] {
        let mut command = bench.command();
        command.args(["snapshots", "--log-file", "filtered"]);
        command.env("RUST_LOG", theirs);
        command.envs(ours.map(|level| ("BALE_LOG", level)));
        let ran = Ran::from(command.output().unwrap());
        assert!(ran.code == 0 && !ran.err.contains("RUST_LOG"), "{ran}");
        let written = std::fs::read_to_string(bench.path("filtered")).unwrap();
        assert_eq!(!written.contains("begins"), is_empty, "{theirs}: {written}");
        std::fs::remove_file(bench.path("filtered")).unwrap();
    }
    let mut command = bench.command();
    command.args(["snapshots", "--log-file", "filtered"]);
    let ran = Ran::from(command.env("RUST_LOG", "loud").output().unwrap());
    assert_eq!(ran.err.matches("\"loud\" is no level").count(), 1, "{ran}");
}

#[test]
fn a_log_that_cannot_be_written_is_a_problem_and_no_failure() {
    let bench = Bench::new();
    bench.write("source/a", "one");
    bench.sh("mkfifo pipe; mkdir directory");
    for (file, level) in [
        ("nowhere/log", "info"),
        ("directory", "info"),
        ("pipe", "info"),
        ("log", "loud"),
        ("/dev/full", "info"),
    ] {
        let mut command = bench.command();
        command.args(["backup", "source", "--json", "--log-file", file]);
        let ran = Ran::from(command.env("BALE_LOG", level).output().unwrap());
        assert_eq!(ran.code, 3, "{file}: {ran}");
        assert!(ran.summary()["snapshot"].is_string(), "{file}: {ran}");
        assert!(ran.to_string().contains("the log"), "{file}: {ran}");
        // Said before the summary, but for a disk that is full.
        let problems = ran.of_type("problem").len();
        assert_eq!(problems, usize::from(file != "/dev/full"), "{file}: {ran}");
    }
}

/// Standard error is the journal only if it is the stream that the variable names: programs inherit
/// the variable and not the stream.
#[test]
fn lines_to_the_journal_say_how_much_they_matter() {
    let bench = Bench::new();
    bench.write("source/a", "one");
    bench.ok(&["init"]);
    for is_ours in [true, false] {
        let stderr = std::fs::File::create(bench.path("journal")).unwrap();
        let about = stderr.metadata().unwrap();
        let inode = about.ino() + u64::from(!is_ours);
        let mut command = bench.command();
        command.args(["backup", "source", "missing"]);
        command.env("JOURNAL_STREAM", format!("{}:{inode}", about.dev()));
        let status = command
            .stdout(Stdio::null())
            .stderr(stderr)
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(3));
        let text = std::fs::read_to_string(bench.path("journal")).unwrap();
        let of = |priority: &str| {
            text.lines()
                .filter(|line| line.starts_with(priority))
                .count()
        };
        match is_ours {
            true => {
                assert!(of("<4>bale: ") >= 1 && of("<6>") >= 1, "{text}");
                assert_eq!(of("<"), text.lines().count(), "{text}");
            }
            false => assert_eq!(of("<"), 0, "{text}"),
        }
    }
}
