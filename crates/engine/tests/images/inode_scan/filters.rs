//! What is left out is the same for both scanners.

use super::image::{Image, can_run, run};
use super::snapshots::{Pair, settle};
use crate::xfs_image;
use bale_pipeline::filter::{FilterOptions, Mark, Pattern};
use std::path::Path;

const CACHE_TAG: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55\n# a cache";

pub fn populate(root: &Path) {
    let write = |path: &str, bytes: &[u8]| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    for directory in ["", "a/", "a/b/", "home/me/project/"] {
        for name in [
            "file.txt",
            "file.o",
            "CORE",
            "keep.o",
            "cache/x",
            "cache/deep/y",
        ] {
            write(&format!("{directory}{name}"), name.as_bytes());
        }
        for len in [999, 1000, 1001, 600_000] {
            write(&format!("{directory}len{len}"), &vec![7; len]);
        }
        write(&format!("{directory}tagged/CACHEDIR.TAG"), CACHE_TAG);
        write(&format!("{directory}tagged/content"), b"left out");
        write(&format!("{directory}tagged/deep/content"), b"left out");
        write(
            &format!("{directory}not-tagged/CACHEDIR.TAG"),
            b"something else",
        );
        write(&format!("{directory}not-tagged/content"), b"kept");
        write(&format!("{directory}marked/.nobackup"), b"");
        write(&format!("{directory}marked/content"), b"left out");
        write(
            &format!("{directory}texts/.mark"),
            b"begins so, and goes on",
        );
        write(
            &format!("{directory}texts/content"),
            b"left out if it begins so",
        );
    }
    std::os::unix::fs::symlink("file.txt", root.join("link.o")).unwrap();
    std::fs::hard_link(root.join("file.txt"), root.join("a/hard.o")).unwrap();
}

fn patterns(texts: &[&str], ignore_case: bool) -> Vec<Pattern> {
    let pattern = |text: &&str| Pattern {
        text: (*text).to_owned(),
        ignore_case,
    };
    texts.iter().map(pattern).collect()
}

pub fn cases() -> Vec<(&'static str, FilterOptions)> {
    let marks = |marks: Vec<Mark>| FilterOptions {
        marks,
        ..FilterOptions::default()
    };
    let excludes = |texts: &[&str], ignore_case| FilterOptions {
        patterns: patterns(texts, ignore_case),
        ..FilterOptions::default()
    };
    let all = FilterOptions {
        patterns: patterns(&["*.o", "!keep.o", "cache"], false),
        marks: vec![Mark::cachedir(), Mark::parse(b".nobackup").unwrap()],
        larger_than_bytes: Some(1000),
    };
    vec![
        ("--exclude", excludes(&["*.o", "!keep.o"], false)),
        (
            "--exclude of directories",
            excludes(&["cache", "a/b"], false),
        ),
        ("--iexclude", excludes(&["core", "FILE.*"], true)),
        ("--exclude-caches", marks(vec![Mark::cachedir()])),
        (
            "--exclude-if-present",
            marks(vec![Mark::parse(b".nobackup").unwrap()]),
        ),
        (
            "--exclude-if-present with text",
            marks(vec![Mark::parse(b".mark:begins so").unwrap()]),
        ),
        (
            "--exclude-larger-than",
            FilterOptions {
                larger_than_bytes: Some(1000),
                ..FilterOptions::default()
            },
        ),
        ("all of them", all),
    ]
}

/// `walk` takes a snapshot of the mounted image.
fn same_rows(image: &Path, walk: &dyn Fn(&Pair) -> super::snapshots::Taken) {
    let mut pair = Pair::new();
    let whole = pair.inode_scan(image).rows.len();
    for (which, filter) in cases() {
        pair.filter = filter;
        pair.assert_same(|pair| walk(pair), image, which);
        let limits_size = pair.filter.larger_than_bytes.is_some();
        let taken = pair.inode_scan(image);
        let is_named = taken.withheld().contains(&b"/a/b/len1001".to_vec());
        assert_eq!(is_named, limits_size, "{which}");
        let rows = taken.rows;
        assert!(rows.len() < whole, "{which} leaves something out");
        assert!(rows.contains_key(&b"/not-tagged/content"[..]), "{which}");
    }
}

#[test]
fn ext4_images_and_mounts_are_filtered_alike() {
    let test = "ext4_images_and_mounts_are_filtered_alike";
    if !can_run(test, &["mke2fs", "mount", "umount"]) {
        return;
    }
    let image = Image::make(32, "-t ext4 -O inline_data");
    populate(&image.mount("noatime").path);
    settle(&image.path);
    same_rows(&image.path, &|pair| {
        pair.walk(&image.mount("ro,noload").path)
    });
}

#[test]
fn xfs_images_and_mounts_are_filtered_alike() {
    if !xfs_image::can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = xfs_image::Image::make(320, "");
    let mounted = image.mount();
    populate(&mounted.path());
    mounted.unmount();
    settle(&image.path());
    same_rows(&image.path(), &|pair| {
        let mounted = image.mount();
        let taken = pair.walk(&mounted.path());
        mounted.unmount();
        taken
    });
}

/// A name that leads upwards, and a directory with two names (IMG-02).
#[test]
fn a_directory_with_two_names_is_entered_once_and_told() {
    let test = "a_directory_with_two_names_is_entered_once_and_told";
    if !can_run(test, &["mke2fs", "debugfs"]) {
        return;
    }
    let image = Image::make(8, "-t ext4");
    for command in [
        "mkdir /a",
        "mkdir /a/b",
        "mkdir /c",
        "link /a /a/b/again",
        "link /c /a/c",
    ] {
        run("debugfs", &["-w", "-R", command, image.name()]);
    }
    let taken = Pair::new().inode_scan(&image.path);
    for path in [&b"/a"[..], b"/a/b", b"/a/b/again", b"/a/c", b"/c"] {
        let text = path.escape_ascii();
        assert!(taken.rows.contains_key(path), "{text}");
    }
    let told = |path: &str| {
        let problems = taken.problems.iter();
        problems
            .filter(|problem| problem.path.ends_with(path.as_bytes()))
            .count()
    };
    assert_eq!(told("/a/b/again"), 1, "{:?}", taken.problems);
    // One of the two names of `c`, whichever comes second.
    assert_eq!(told("/c"), 1, "{:?}", taken.problems);
}
