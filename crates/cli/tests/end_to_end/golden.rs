//! Repositories written by earlier versions stay readable, by this version and by the reader made
//! from the format page.
//!
//! `testdata/golden-N/` holds `repository`, `password`, `manifest` and `snapshots`;
//! `testdata/README.md` says how one is made.

use crate::bench::{Bench, skipped};
use crate::tree::{Tree, describe};
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// All there are. One is added with every version of the format, or feature of it, and none is ever
/// taken away.
const GOLDEN: [&str; 5] = ["golden-1", "golden-2", IMAGES, VIEWS, ATIMES];

/// Its snapshots hold images, below the root.
const IMAGES: &str = "golden-3";

/// Its snapshots hold an image and the files in it.
const VIEWS: &str = "golden-4";

/// Its rows have times of last access.
const ATIMES: &str = "golden-5";

/// Where in a snapshot the tree is that the manifest describes.
fn below(name: &str) -> &'static str {
    match name {
        IMAGES => "",
        VIEWS => "disk",
        _ => "golden",
    }
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

#[test]
fn no_golden_repository_is_forgotten() {
    let mut found: Vec<String> = std::fs::read_dir(testdata())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with("golden"))
        .collect();
    found.sort();
    assert_eq!(found, GOLDEN);
}

#[test]
fn golden_repositories_are_read_and_checked_by_this_version() {
    for name in GOLDEN {
        let bench = Bench::new();
        let words = open_words(&bench, name);
        let run = |more: &[&str]| {
            let mut all = words.clone();
            all.extend(more.iter().map(|word| (*word).to_owned()));
            bench.ok(&all)
        };
        let snapshots = run(&["snapshots", "--json"]).of_type("snapshot");
        assert_eq!(snapshots.len(), 2, "{name}");
        run(&["check", "--read-data"]);
        for (number, snapshot) in snapshots.iter().enumerate() {
            let id = snapshot["id"].as_str().unwrap();
            let target = bench.path(&format!("out-{number}"));
            run(&[
                "restore",
                &format!("{id}:/{}", below(name)),
                "--target",
                &format!("{}/", target.display()),
            ]);
            assert_manifest(name, number, &target);
        }
    }
}

#[test]
fn golden_repositories_are_restored_by_the_second_reader() {
    let modules = "import argon2, blake3, cryptography, pyarrow, zstandard";
    let python = Command::new("python3").args(["-c", modules]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        return skipped("python3 with argon2-cffi, blake3, cryptography, pyarrow, zstandard");
    }
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bale_read.py");
    for name in GOLDEN {
        let bench = Bench::new();
        let snapshots = bench.ok(&[
            &open_words(&bench, name)[..],
            &["snapshots".into(), "--json".into()],
        ]
        .concat());
        for (number, snapshot) in snapshots.of_type("snapshot").iter().enumerate() {
            let out = bench.path(&format!("out-{number}"));
            let read = Command::new("python3")
                .arg(&reader)
                .arg(testdata().join(name).join("repository"))
                .arg("--password-file")
                .arg(testdata().join(name).join("password"))
                .args(["restore", snapshot["id"].as_str().unwrap()])
                .arg(&out)
                .args((name == VIEWS).then_some(below(name)))
                .output()
                .unwrap();
            let err = String::from_utf8_lossy(&read.stderr);
            assert_eq!(read.status.code(), Some(0), "{name}: {err}");
            assert_manifest(name, number, &out.join(below(name)));
        }
    }
}

/// A copy is opened, so that no test can change what is kept.
fn open_words(bench: &Bench, name: &str) -> Vec<String> {
    let from = testdata().join(name);
    bench.sh(&format!("cp -r '{}' {name}", from.display()));
    let place = |file: &str| bench.path(name).join(file).to_str().unwrap().to_owned();
    vec![
        "-r".into(),
        place("repository"),
        "-p".into(),
        place("password"),
    ]
}

/// With BALE_WRITE_MANIFEST the manifest is written instead: for a new golden repository only.
fn assert_manifest(name: &str, number: usize, target: &Path) {
    let file = testdata().join(name).join(format!("manifest-{number}"));
    // To describe it is to read it.
    let accessed = (name == ATIMES).then(|| atimes(target));
    let mut tree = describe(target);
    for (path, atime) in accessed.into_iter().flatten() {
        let line = tree.get_mut(&path).expect("it was just there");
        line.push_str(&format!(" accessed {atime}"));
    }
    if [IMAGES, VIEWS].contains(&name) {
        // Of the directory that images are restored into a snapshot of them says nothing, and what
        // a restore makes of the one that a view is restored to is its user's.
        tree.retain(|path, _| !path.is_empty());
    }
    let got = lines(&tree);
    if std::env::var_os("BALE_WRITE_MANIFEST").is_some() && !file.exists() {
        std::fs::write(&file, &got).unwrap();
    }
    assert_eq!(
        got,
        std::fs::read_to_string(&file).unwrap(),
        "{name}, snapshot {number}"
    );
}

/// When everything in a tree was last accessed: of a directory, before it is listed.
fn atimes(root: &Path) -> Vec<(OsString, String)> {
    let mut paths = vec![root.to_owned()];
    let mut found = Vec::new();
    while let Some(path) = paths.pop() {
        let meta = path.symlink_metadata().unwrap();
        let below = path.strip_prefix(root).unwrap().as_os_str().to_owned();
        found.push((below, format!("{}.{:09}", meta.atime(), meta.atime_nsec())));
        if meta.is_dir() {
            let listed = std::fs::read_dir(&path).unwrap();
            paths.extend(listed.map(|child| child.unwrap().path()));
        }
    }
    found
}

/// Owners are left out: who is not root cannot give files away.
fn lines(tree: &Tree) -> String {
    let mut text = String::new();
    for (path, line) in tree {
        let (mode, rest) = line.split_once(' ').unwrap();
        let (_, rest) = rest.split_once(' ').unwrap();
        text.push_str(&format!("{path:?} {mode} {rest}\n"));
    }
    text
}
