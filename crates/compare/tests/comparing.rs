//! Comparisons: small ones, to the end, stopped, and without root. Nothing may stay behind.

mod bench;

use bench::{Bench, Ran, bale, have, is_root, program, skipped};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const SMALL: [&str; 10] = [
    "--files", "300", "--runs", "1", "--tools", "bale,tar", "--dir", "c", "--json", "--quiet",
];

/// Loop devices need root, and what they are made with.
fn cannot_run() -> bool {
    let missing = ["losetup", "mount", "mkfs.ext4", "tar", "zstd"]
        .into_iter()
        .find(|program| !have(program));
    if !is_root() || missing.is_some() {
        skipped(&format!(
            "compare needs root and {}",
            missing.unwrap_or("nothing else")
        ));
        return true;
    }
    false
}

fn names_in(bench: &Bench, directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(bench.path(directory)).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// Neither mounts, nor loop devices, nor files but those of a report.
fn nothing_is_left(bench: &Bench, directory: &str) {
    let names = names_in(bench, directory);
    assert!(
        names.iter().all(|name| name.starts_with("compare-")),
        "{names:?}"
    );
    let place = bench.path(directory).display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&place), "{mounts}");
    let loops = Command::new("losetup").arg("-l").output().unwrap();
    let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
    assert!(!loops.contains(&place), "{loops}");
}

fn of<'a>(runs: &'a [Value], work: &str, tool: &str) -> Option<&'a Value> {
    runs.iter()
        .find(|run| run["work"] == work && run["tool"] == tool)
}

#[test]
fn a_comparison_measures_all_work_and_leaves_nothing_but_its_report() {
    if cannot_run() {
        return;
    }
    let bench = Bench::new();
    let ran = bench.ok(&SMALL);
    let runs = ran.of_type("run");
    for tool in ["bale", "tar"] {
        for work in ["first", "unchanged", "changed", "restore", "one"] {
            let run = of(&runs, work, tool).unwrap_or_else(|| panic!("{tool} {work}: {ran}"));
            assert_eq!(run["result"], "ok", "{run}");
            assert!(run["seconds"].as_f64().unwrap() > 0.0, "{run}");
            // Of tar's few milliseconds nothing may be seen.
            let memory = run["peak_memory_bytes"].as_u64();
            assert!(tool == "tar" || memory.unwrap() > 1 << 20, "{run}");
        }
        let first = of(&runs, "first", tool).unwrap();
        assert!(
            first["device_reads"].as_u64().unwrap() > 0,
            "the caches were warm: {first}"
        );
        assert!(
            first["repository_bytes"].as_u64().unwrap() > 100_000,
            "{first}"
        );
        assert!(
            of(&runs, "restore", tool).unwrap()["device_written_bytes"]
                .as_u64()
                .unwrap()
                > 300 << 10
        );
    }
    assert_eq!(of(&runs, "scan", "find").unwrap()["result"], "ok");
    assert_eq!(of(&runs, "first", "dd").unwrap()["result"], "ok");
    let summary = ran.summary();
    assert_eq!(
        (&summary["files"], &summary["failures"]),
        (&300.into(), &0.into())
    );
    assert_eq!(names_in(&bench, "c").len(), 3);
    let page = std::fs::read_to_string(bench.path(summary["html"].as_str().unwrap())).unwrap();
    assert!(page.contains("lazy_itable_init") && page.contains("noatime"));
    let json = std::fs::read(bench.path(summary["json"].as_str().unwrap())).unwrap();
    let report: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(report["type"], "report");
    nothing_is_left(&bench, "c");
}

#[test]
fn a_failing_tool_is_a_cell_and_the_others_go_on() {
    if cannot_run() {
        return;
    }
    let bench = Bench::new();
    let fake = bench.write(
        "bin/borg",
        "#!/bin/sh\n[ \"$1\" = --version ] && echo borg 0 && \
        exit\necho 'no <space> left' >&2\nexit 2\n",
    );
    std::fs::set_permissions(&fake, PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        bench.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let output = bench
        .command()
        .env("PATH", path)
        .args([
            "--files",
            "100",
            "--runs",
            "1",
            "--tools",
            "borg,tar",
            "--work",
            "first,restore",
            "--dir",
            "c",
        ])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.contains(
            "borg, first: failed: its repository could not be made: exit 2: no <space> left"
        ),
        "{text}"
    );
    assert!(
        text.lines()
            .any(|line| line.starts_with("tar") && line.matches("(1×)").count() == 2),
        "{text}"
    );
    nothing_is_left(&bench, "c");
}

#[test]
fn a_comparison_that_is_stopped_reports_what_there_is_and_leaves_nothing() {
    if cannot_run() {
        return;
    }
    let bench = Bench::new();
    let mut words = SMALL.to_vec();
    words[3] = "99";
    words.pop();
    let mut child = bench
        .command()
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_first_backup =
        |line: &str| line.contains("\"type\":\"status\"") && line.contains("First backup");
    assert!(lines.any(|line| is_first_backup(&line.unwrap())));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    let last = lines.map(|line| line.unwrap()).last().unwrap();
    let summary: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(
        (&summary["type"], &summary["interrupted"]),
        (&"summary".into(), &true.into())
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names_in(&bench, "c").len(), 3);
    nothing_is_left(&bench, "c");
}

#[test]
fn without_root_a_comparison_says_what_it_cannot_measure() {
    if cannot_run() {
        return;
    }
    if !have("setpriv") {
        return skipped("compare without root needs setpriv");
    }
    let bench = Bench::new();
    std::fs::copy(program(), bench.path("bale-compare")).unwrap();
    std::fs::copy(bale(), bench.path("bale")).unwrap();
    for place in [bench.path("."), bench.home.clone()] {
        std::os::unix::fs::chown(place, Some(65534), Some(65534)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(bench.path("bale-compare"))
        .args(SMALL);
    let output = bench.prepared(command).output().unwrap();
    let ran = Ran::from(output);
    assert_eq!(ran.code, 0, "{ran}");
    let runs = ran.of_type("run");
    assert_eq!(of(&runs, "restore", "bale").unwrap()["result"], "ok");
    assert_eq!(
        of(&runs, "first", "tar").unwrap()["device_reads"],
        Value::Null
    );
    let page =
        std::fs::read_to_string(bench.path(ran.summary()["html"].as_str().unwrap())).unwrap();
    assert!(page.contains("without root caches stay warm"));
    nothing_is_left(&bench, "c");
}

#[test]
fn words_of_compare_that_make_no_sense_are_refused() {
    let bench = Bench::new();
    for words in [
        ["--tools", "nonsense"],
        ["--work", "nonsense"],
        ["--source", "fat"],
        ["--runs", "0"],
        ["--within", "5 parsecs"],
    ] {
        assert_eq!(bench.run(&words).code, 2, "{words:?}");
    }
    assert!(!bench.path("bale-compare").exists());
}
