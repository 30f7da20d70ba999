//! A directory of ten million names goes in and comes back, in memory that knows nothing of their
//! number.
//!
//! `cargo test --release -p bale-cli --test end_to_end many_names --
//! --ignored`: half an hour and 12 GiB in the directory for temporary files. `BALE_TEST_NAMES` asks
//! for another number of names. And many files with large attributes do, in half a minute.

use crate::bench::{Bench, Ran, binary, have, is_root, skipped};
use std::process::Command;

const NAMES: u64 = 10_000_000;
/// Of a hundred names, so many are symbolic links: they take an inode and no block.
const SYMLINKS_PERCENT: &str = "99";
const WALK_KIB_MAX: u64 = 256 << 10;
const INODE_KIB_MAX: u64 = 512 << 10;

/// Runs `bale` from a small process, whose own memory does not count, and tells the peak.
const MEASURE: &str = "import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)";

/// The same as [`Bench::ok`], in at most so many KiB.
fn peak_within(bench: &Bench, kib_max: u64, words: &[&str]) -> Ran {
    let mut command = bench.prepared(Command::new("python3"));
    let words_of_python = ["-c", MEASURE, binary().to_str().unwrap()];
    let ran = Ran::from(command.args(words_of_python).args(words).output().unwrap());
    assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
    let last = ran.err.lines().last().unwrap();
    let peak: u64 = last.strip_prefix("peak ").unwrap().parse().unwrap();
    println!("{peak} KiB: {}", words.join(" "));
    assert!(peak <= kib_max, "{words:?} took {peak} KiB");
    ran
}

struct Mounted<'a>(&'a Bench);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        self.0.sh("umount source");
    }
}

#[test]
#[ignore = "takes half an hour and 12 GiB"]
fn a_directory_of_ten_million_names_by_both_scanners_and_back_within_the_memory_ceiling() {
    for tool in ["mount", "python3", "e2fsck", "zipinfo"] {
        if !have(tool) {
            return skipped(tool);
        }
    }
    if !is_root() {
        return skipped("mounting needs root");
    }
    let names = std::env::var("BALE_TEST_NAMES").map_or(NAMES, |names| names.parse().unwrap());
    let number = names.to_string();
    let bench = Bench::new();
    let shape = "gen --to-ext4 many.img -d 1 -D 1 -r 1 -R 1 -s 511 -S 700 --block-size 1024 -P 1";
    let mut words: Vec<&str> = shape.split(' ').collect();
    words.extend(["-f", &number, "-F", &number, "--count", &number]);
    words.extend(["--symlinks", SYMLINKS_PERCENT]);
    peak_within(&bench, INODE_KIB_MAX, &words);

    // By walking.
    bench.sh("mount -o loop,ro,noatime many.img source");
    let mounted = Mounted(&bench);
    let backup = ["backup", "--scan", "walk", "source", "--json"];
    let walked = peak_within(&bench, WALK_KIB_MAX, &backup).summary();
    let again = peak_within(&bench, WALK_KIB_MAX, &backup).summary();
    let sum = |summary: &serde_json::Value| {
        summary["files"].as_u64().unwrap() + summary["others"].as_u64().unwrap()
    };
    assert_eq!(sum(&walked), names);
    assert_eq!(sum(&again), names);
    assert_eq!(again["files_unmodified"], walked["files"]);
    drop(mounted);

    // By inodes.
    let backup = ["backup", "--scan", "inode", "many.img", "--json"];
    let scanned = peak_within(&bench, INODE_KIB_MAX, &backup).summary();
    let again = peak_within(&bench, INODE_KIB_MAX, &backup).summary();
    assert_eq!(sum(&scanned), names);
    assert_eq!(again["files_unmodified"], scanned["files"]);

    looking_and_bringing_back(&bench, names);
}

fn looking_and_bringing_back(bench: &Bench, names: u64) {
    let within = |words: &[&str]| peak_within(bench, WALK_KIB_MAX, words);
    let listed = within(&["ls", "-l", "-R", "latest"]).text();
    // All but lost+found.
    let inside = |line: &&str| line.contains("/many.img/") && !line.starts_with('d');
    assert_eq!(listed.lines().filter(inside).count() as u64, names);
    let is_link = |line: &&str| inside(line) && line.starts_with('l');
    let links = listed.lines().filter(is_link).count() as u64;
    // A regular file behind the middle.
    let mut later = listed.lines().filter(inside).skip(names as usize / 2);
    let line = later.find(|line| line.starts_with('-')).unwrap();
    let path = &line[line.find(" /").unwrap() + 1..];
    let (directory, name) = path.rsplit_once('/').unwrap();

    // In other orders, and for other programs.
    let sorted = within(&["ls", "-l", "-R", "latest", "--sort", "size", "--reverse"]).text();
    assert_eq!(sorted.lines().filter(inside).count() as u64, names);
    drop(sorted);
    let for_ncdu = within(&["ls", "--ncdu", &format!("latest:{directory}")]).text();
    assert_eq!(for_ncdu.matches("\"name\":").count() as u64, names + 1);
    drop(for_ncdu);
    let once = within(&["find", "--type", "l", "--latest", "--below", directory]).text();
    assert_eq!(
        once.lines().filter(|line| line.contains(directory)).count() as u64,
        links
    );
    drop(once);
    let zip = [
        "dump",
        &format!("latest:{directory}"),
        "-a",
        "zip",
        "-t",
        "many.zip",
    ];
    within(&zip);
    bench.sh(&format!(
        "zipinfo -t many.zip | grep -q '^{names} files,'; rm many.zip"
    ));

    let found = within(&["find", "-s", "latest", name]).text();
    assert!(found.lines().any(|line| line.contains(path)), "{found}");
    let content = within(&["dump", &format!("latest:{path}")]).out;
    assert!(content.len() > 500);
    within(&["restore", &format!("latest:{path}"), "-t", "one"]);
    assert_eq!(
        std::fs::read(bench.path("one").join(name)).unwrap(),
        content
    );

    let address = format!("latest:{directory}");
    let words = [
        "restore",
        &address,
        "--to-ext4",
        "back.img",
        "--block-size",
        "1024",
    ];
    peak_within(bench, INODE_KIB_MAX, &words);
    bench.sh("e2fsck -fn back.img");
    bench.sh("mount -o loop,ro,noatime back.img source");
    let mounted = Mounted(bench);
    let back = std::fs::read_dir(&bench.source).unwrap();
    let is_name = |name: &std::ffi::OsStr| name != "lost+found";
    let back = back.filter(|entry| is_name(&entry.as_ref().unwrap().file_name()));
    assert_eq!(back.count() as u64, names);
    assert_eq!(std::fs::read(bench.source.join(name)).unwrap(), content);
    drop(mounted);
}

/// 4,000 files in one directory, each with 60 KiB of attributes: a batch of the walk alone would be
/// as large as the memory.
#[test]
fn large_attributes_of_many_files_go_in_and_come_back_within_the_memory_ceiling() {
    const FILES: usize = 4_000;
    for tool in ["mount", "python3", "mkfs.xfs"] {
        if !have(tool) {
            return skipped(tool);
        }
    }
    if !is_root() {
        return skipped("mounting needs root");
    }
    let bench = Bench::new();
    bench.sh("truncate -s 900M xfs.img; mkfs.xfs -q xfs.img; mount -o loop,noatime xfs.img source");
    let mounted = Mounted(&bench);
    let fill = "import os, sys
os.mkdir('source/from')
for i in range(int(sys.argv[1])):
    name = f'source/from/{i}'
    open(name, 'w').write(str(i))
    os.setxattr(name, 'user.large', os.urandom(30000) + b'%d' % i + bytes(30000))";
    bench.sh(&format!("python3 -c \"{fill}\" {FILES}"));
    let backup = ["backup", "source/from", "--json"];
    let first = peak_within(&bench, WALK_KIB_MAX, &backup).summary();
    assert_eq!(first["files"], FILES);
    assert_eq!(first["problems"], 0);
    let again = peak_within(&bench, WALK_KIB_MAX, &backup).summary();
    assert_eq!(again["files_unmodified"], FILES);
    let address = bench.address("/from");
    peak_within(
        &bench,
        WALK_KIB_MAX,
        &["restore", &address, "-t", "source/to"],
    );
    let compare = "import os
names = os.listdir('source/from')
assert sorted(names) == sorted(os.listdir('source/to'))
for name in names:
    large = [os.getxattr(f'source/{side}/{name}', 'user.large') for side in ('from', 'to')]
    assert large[0] == large[1], name";
    bench.sh(&format!("python3 -c \"{compare}\""));
    drop(mounted);
}
