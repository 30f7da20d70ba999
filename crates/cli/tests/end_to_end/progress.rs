//! Progress as it is seen on a terminal of any width, and by scripts.

use crate::bench::{Bench, Ran, binary, have, is_root, skipped};
use serde_json::Value;
use std::process::Command;

/// Runs a program on a terminal of so many columns, and prints all that it shows.
const TERMINAL: &str = r#"
import fcntl, os, pty, struct, sys, termios
pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(2, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execv(sys.argv[2], sys.argv[2:])
while True:
    try:
        data = os.read(terminal, 65536)
    except OSError:
        break
    if not data:
        break
    os.write(1, data)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

/// What stood on the line of progress, without what moves the cursor.
fn frames(bench: &Bench, columns: usize, words: &[&str]) -> Vec<String> {
    let mut command = bench.prepared(Command::new("python3"));
    command
        .args(["-c", TERMINAL, &columns.to_string()])
        .arg(binary());
    command.args(words).env("TERM", "xterm");
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 0, "{ran}");
    let text = ran.text();
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' => {
                let end = letters.find(|letter| letter.is_ascii_alphabetic());
                assert!(end.is_some(), "{text:?}");
                plain.push('\n');
            }
            '\r' => plain.push('\n'),
            letter => plain.push(letter),
        }
    }
    let lines = plain.lines().map(str::trim_end);
    let is_spinner = |line: &&str| line.starts_with(|letter: char| ('⠀'..='⣿').contains(&letter));
    lines.filter(is_spinner).map(str::to_owned).collect()
}

fn many_files() -> Bench {
    let bench = Bench::new();
    bench.ok(&[
        "gen", "-t", "source", "--count", "20000", "-s", "511", "-S", "600",
    ]);
    bench.ok(&["init"]);
    bench
}

#[test]
fn the_line_fits_every_terminal_and_keeps_the_number() {
    if !have("python3") {
        return skipped("no python3 to make a terminal");
    }
    let bench = many_files();
    for columns in [20, 40, 80, 120] {
        // By force it compares with nothing, so nobody knows how much there is.
        let first = ["backup", "source", "--scan", "walk", "--force"];
        let walked = frames(&bench, columns, &first);
        let found: Vec<_> = walked
            .iter()
            .filter(|line| line.contains("found"))
            .collect();
        assert!(!found.is_empty(), "{columns}: {walked:?}");
        for line in &walked {
            assert!(line.chars().count() < columns, "{columns}: {line}");
            assert!(!line.contains(['%', '[']), "no end is known: {line}");
        }
        let again = frames(&bench, columns, &["backup", "source", "--scan", "walk"]);
        assert!(
            again.iter().any(|line| line.contains('%')),
            "{columns}: {again:?}"
        );
        assert!(
            again.iter().all(|line| line.chars().count() < columns),
            "{columns}: {again:?}"
        );
        if columns == 120 {
            let is_place = |line: &&String| line.contains("source");
            assert!(
                walked.iter().filter(is_place).count() > 0,
                "the place: {walked:?}"
            );
            assert!(
                again.iter().any(|line| line.contains('[')),
                "a bar: {again:?}"
            );
        }
    }
}

/// A file system counts its own inodes: with another one below it, that is not all.
#[test]
fn the_counters_of_a_file_system_are_a_total_only_if_it_is_all_of_the_source() {
    if !is_root() {
        return skipped("only root mounts");
    }
    let bench = Bench::new();
    bench.ok(&["init"]);
    let backup = format!(
        "{} backup source --scan walk --json --force",
        binary().display()
    );
    bench.mounting_sh(&format!(
        "mount -t tmpfs one source; mkdir source/below; touch source/f{{1..600}}\n\
         mount -t tmpfs two source/below; touch source/below/f{{1..600}}\n\
         {backup} > all; {backup} -x > one"
    ));
    for (file, is_known) in [("all", false), ("one", true)] {
        let text = std::fs::read_to_string(bench.path(file)).unwrap();
        let of_backup = statuses(&text);
        assert!(!of_backup.is_empty(), "{text}");
        for status in of_backup {
            assert_eq!(status["total_known"], is_known, "{file}: {status}");
        }
    }
}

/// Progress of the phase that stores.
fn statuses(text: &str) -> Vec<Value> {
    let values = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let is_meant = |value: &Value| value["type"] == "status" && value["phase"] == "backup";
    values.filter(is_meant).collect()
}

#[test]
fn scripts_learn_whether_the_end_is_known() {
    let bench = many_files();
    let backup = ["backup", "source", "--scan", "walk", "--json"];
    let first = statuses(&bench.ok(&backup).text());
    assert!(!first.is_empty());
    for status in first {
        assert_eq!(
            (&status["total_known"], &status["total"]),
            (&false.into(), &0.into())
        );
        assert!(status["seconds_left"].is_null(), "{status}");
        assert!(
            status["place"].as_str().unwrap().contains("source"),
            "{status}"
        );
    }
    let ran = bench.ok(&backup);
    let files = &ran.summary()["files"];
    let second = statuses(&ran.text());
    assert!(!second.is_empty());
    for status in second {
        assert_eq!(
            (&status["total_known"], &status["total"]),
            (&true.into(), files)
        );
    }
}

/// Of restores, checks and copies, too: a total as soon as it is known, the place, the number on
/// every terminal.
#[test]
fn restore_check_and_copy_say_how_far_they_are_and_where() {
    if !have("python3") {
        return skipped("no python3 to make a terminal");
    }
    let bench = many_files();
    bench.ok(&["backup", "source"]);
    bench.write("pw", "secret\n");
    let repository = bench.repository().display().to_string();
    let key = bench.home.join(".local/share/bale/repository.key");
    let key = key.display().to_string();
    for columns in [20, 120] {
        let (target, other) = (format!("out{columns}"), format!("other{columns}"));
        bench.ok(&["init", "-r", &other, "-p", "pw"]);
        let from = ["--from-repo", &repository, "--from-key-file", &key];
        for words in [
            &["restore", "latest", "-t", &target][..],
            &["check", "--read-data"],
            &[&["copy", "-r", &other, "-p", "pw"][..], &from].concat(),
        ] {
            let shown = frames(&bench, columns, words);
            let fits = |line: &String| line.chars().count() < columns;
            assert!(shown.iter().all(fits), "{columns}: {words:?}: {shown:?}");
            let has = |part: &str| shown.iter().any(|line| line.contains(part));
            assert!(has("%"), "{columns}: {words:?}: {shown:?}");
            if columns == 120 {
                assert!(has("…") || has(", /"), "the place: {words:?}: {shown:?}");
            }
            // No more is done than there is.
            for (done, total) in shown.iter().filter_map(|line| entries(line)) {
                assert!(done <= total, "{words:?}: {shown:?}");
            }
        }
    }
}

/// `1,926 of 22,694`.
fn entries(line: &str) -> Option<(u64, u64)> {
    let number = |text: &str| text.replace(',', "").parse().ok();
    let mut parts = line.split(", ");
    let counted = parts.find_map(|part| part.split_once(" of "));
    counted.and_then(|(done, total)| {
        let done = done.rsplit(' ').next()?;
        Some((number(done)?, number(total)?))
    })
}
