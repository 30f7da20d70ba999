//! Packs that cannot be read at once: what a restore would read is known before, a command brings
//! it, and the restore takes it as it comes.

use crate::bench::{Bench, Ran};
use crate::tree::assert_same;
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

/// For each pack of data that comes, a file that only it holds; `large` is in several.
const PARTS: usize = 4;

/// Several packs of data: one for each backup.
fn bench_of_packs() -> Bench {
    let bench = Bench::new();
    for number in 0..PARTS {
        bench.sh(&format!(
            "mkdir -p source/d{number}
             head -c 30000 /dev/urandom > source/d{number}/first
             head -c 20000 /dev/urandom > source/d{number}/second
             head -c 6000000 /dev/urandom >> source/large
             ln source/d{number}/first source/again{number}; ln -s large source/link{number}"
        ));
        // One thread encodes, into one pack.
        bench.ok(&["backup", "source", "--memory", "128M"]);
    }
    bench
}

fn plan(bench: &Bench, words: &[&str]) -> Vec<Value> {
    let address = bench.address("");
    let ran = bench.ok(&[&["restore", &address, "--plan"], words].concat());
    let mut lines = ran.objects();
    let summary = lines.pop().unwrap();
    assert_eq!(summary["type"], "summary");
    assert_eq!(summary["packs"], lines.len());
    let bytes = lines.iter().map(|line| line["bytes"].as_u64().unwrap());
    assert_eq!(summary["bytes"], bytes.sum::<u64>());
    lines
}

fn ranges(line: &Value) -> Vec<(usize, usize)> {
    let ranges = line["ranges"].as_array().unwrap().iter();
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    ranges
        .map(|range| (number(&range[0]), number(&range[1])))
        .collect()
}

/// All packs of data are on the tape from now on.
fn unload(bench: &Bench) {
    bench.sh("mkdir tape");
    for line in plan(bench, &[]) {
        let path = bench.repository().join(line["path"].as_str().unwrap());
        let to = bench.path("tape").join(line["pack"].as_str().unwrap());
        fs::rename(path, to).unwrap();
    }
}

/// A robot: `load PACK` brings a pack back, `wanted` lists those that are asked for, `soon COMMAND`
/// tries until it succeeds.
fn robot(bench: &Bench, script: &str) -> String {
    let path = bench.write(
        "robot",
        format!(
            "set -eu; cd {place}
             wanted() {{ sed -n 's/.*\"pack\":\"\\([0-9a-f]*\\)\".*/\\1/p'; }}
             load() {{ a=$(echo $1 | cut -c1-2); mv tape/$1 {repository}/packs/$a/$1; }}
             soon() {{ local t=0; until \"$@\"; do t=$((t + 1)); [ $t -lt 1200 ]; sleep 0.05; done; }}
             {script}\n",
            place = bench.path("").display(),
            repository = bench.repository().display(),
        ),
    );
    format!("bash {}", path.display())
}

fn restore(bench: &Bench, robot: &str, words: &[&str]) -> Ran {
    let address = bench.address("");
    let fixed = ["restore", &address, "--target", "target", "--warm-command"];
    bench.run(&[&fixed[..], &[robot], words].concat())
}

const ALL_BACKWARDS: &str = "wanted | tac | while read id; do load $id; echo $id; done";

#[test]
fn nothing_but_the_ranges_of_a_plan_is_read_of_the_packs_of_data() {
    let bench = bench_of_packs();
    let lines = plan(&bench, &[]);
    assert_eq!(lines.len(), PARTS);
    for line in &lines {
        let path = bench.repository().join(line["path"].as_str().unwrap());
        let bytes = fs::read(&path).unwrap();
        let mut rest = vec![0; bytes.len()];
        let mut end = 0;
        for (number, (from, to)) in ranges(line).into_iter().enumerate() {
            assert!(from < to && (number == 0 || from > end), "{line}");
            rest[from..to].copy_from_slice(&bytes[from..to]);
            end = to;
        }
        assert!(end < bytes.len(), "trailers are not read");
        fs::remove_file(&path).unwrap();
        fs::write(&path, rest).unwrap();
    }
    bench.ok(&["restore", &bench.address(""), "--target", "target"]);
    assert_same(&bench.source, &bench.path("target"));
}

#[test]
fn a_plan_is_of_what_is_selected_and_reads_no_data() {
    let bench = bench_of_packs();
    let all = plan(&bench, &[]);
    unload(&bench);
    let few = plan(&bench, &["--include", "d1/second", "--target", "nowhere"]);
    assert_eq!(few.len(), 1);
    assert!(few[0]["bytes"].as_u64() < all[0]["bytes"].as_u64());
    assert!(!bench.path("nowhere").exists());
    let one = bench.ok(&["dump", &bench.address("/d1/first"), "--plan"]);
    assert_eq!(one.of_type("pack").len(), 1);
    let empty = bench.ok(&["dump", &bench.address("/link1"), "--plan"]);
    assert_eq!(empty.summary()["packs"], 0);
}

#[test]
fn files_come_back_in_the_order_in_which_their_packs_become_readable() {
    let bench = bench_of_packs();
    unload(&bench);
    // Nothing but the files of one pack can be there before the next is named.
    let robot = robot(
        &bench,
        "there() { ls target/d*/second 2>/dev/null | wc -l; }
         are_there() { [ $(there) -ge $1 ]; }
         wanted | tac > order; n=0
         while read id; do
             soon are_there $n; there >> seen
             load $id; echo $id; n=$((n + 1))
         done < order",
    );
    let restored = restore(&bench, &robot, &["--verify"]);
    assert_eq!(restored.code, 0, "{restored}");
    assert_same(&bench.source, &bench.path("target"));
    assert_eq!(
        fs::read_to_string(bench.path("seen")).unwrap(),
        "0\n1\n2\n3\n"
    );
}

#[test]
fn what_never_becomes_readable_is_named_and_the_next_command_brings_it() {
    let bench = bench_of_packs();
    unload(&bench);
    // Without the last one, and with words that are no packs.
    let robot_of_few = robot(
        &bench,
        "wanted > order; head -n -1 order | while read id; do load $id; echo packs/${id:0:2}/$id; done
         echo nonsense; tail -n 1 order | tr 0-9 1-9a; exit 7",
    );
    let restored = restore(&bench, &robot_of_few, &[]);
    assert_eq!(restored.code, 3, "{restored}");
    for text in ["nonsense", "no pack that was asked for", "exit status: 7"] {
        assert!(restored.err.contains(text), "{text}: {restored}");
    }
    assert!(
        restored.err.contains("ended without naming it"),
        "{restored}"
    );
    let seconds = || {
        let there = (0..PARTS).filter(|n| bench.path(&format!("target/d{n}/second")).exists());
        there.count()
    };
    assert_eq!(seconds(), PARTS - 1);
    let missing = (0..PARTS).find(|n| !bench.path(&format!("target/d{n}/second")).exists());
    let missing = format!("d{}/second", missing.unwrap());
    assert!(restored.err.contains(&missing), "{restored}");
    assert!(restored.err.contains("was not made readable"), "{restored}");
    let robot = robot(
        &bench,
        "wanted | while read id; do [ ! -e tape/$id ] || load $id; echo $id; done",
    );
    let restored = restore(&bench, &robot, &[]);
    assert_eq!(restored.code, 0, "{restored}");
    assert_eq!(seconds(), PARTS);
    assert_same(&bench.source, &bench.path("target"));
}

#[test]
fn dumps_and_file_systems_wait_for_everything() {
    let bench = bench_of_packs();
    unload(&bench);
    let robot = robot(&bench, ALL_BACKWARDS);
    let address = bench.address("/large");
    let dumped = bench.ok(&["dump", &address, "--warm-command", &robot]);
    assert!(dumped.out == fs::read(bench.path("source/large")).unwrap());
    // They are readable now; whoever wants them is told so by name all the same.
    let named = robot_of_names(&bench);
    let address = bench.address("");
    bench.ok(&[
        "restore",
        &address,
        "--to-ext4",
        "image",
        "--verify",
        "--warm-command",
        &named,
    ]);
    // Nobody names anything.
    let nobody = bench.run(&["dump", &address, "--warm-command", "true"]);
    assert_eq!(nobody.code, 3, "{nobody}");
    assert!(nobody.err.contains("ended without naming it"), "{nobody}");
}

fn robot_of_names(bench: &Bench) -> String {
    let path = bench.write(
        "names",
        "sed -n 's/.*\"pack\":\"\\([0-9a-f]*\\)\".*/\\1/p' | tac\n",
    );
    format!("bash {}", path.display())
}

/// What takes a field of each line gets it: the line of sums was printed for a pack.
#[test]
fn a_command_gets_a_line_for_each_pack_and_no_other() {
    let bench = bench_of_packs();
    let paths = "cat > lines; sed -n 's/.*\"path\":\"\\([^\"]*\\)\".*/\\1/p' lines";
    let ran = restore(&bench, &robot(&bench, paths), &[]);
    assert_eq!(ran.code, 0, "{ran}");
    let lines = fs::read_to_string(bench.path("lines")).unwrap();
    assert_eq!(lines.lines().count(), PARTS, "{lines}");
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["type"], "pack", "{lines}");
    }
}

#[test]
fn an_interrupt_ends_the_waiting_and_the_command() {
    let bench = bench_of_packs();
    unload(&bench);
    let robot = robot(&bench, "echo $$ > pid; exec sleep 100000");
    let mut command = bench.command();
    let address = bench.address("");
    command.args(["restore", &address, "--target", "target"]);
    command.args(["--warm-command", &robot]);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().unwrap();
    let pid = loop {
        match fs::read_to_string(bench.path("pid")) {
            Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    bench.sh(&format!("kill -INT {}", child.id()));
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, 130, "{ran}");
    bench.sh(&format!(
        "n=0; while kill -0 {pid} 2>/dev/null; do n=$((n + 1)); [ $n -lt 1200 ]; sleep 0.05; done"
    ));
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    let bench = bench_of_packs();
    let address = bench.address("");
    for words in [
        &["--plan", "--warm-command", "true"][..],
        &["--target", "target", "--dry-run", "--warm-command", "true"],
        &[],
    ] {
        let refused = bench.run(&[&["restore", &address], words].concat());
        assert_eq!(refused.code, 2, "{refused}");
    }
}
