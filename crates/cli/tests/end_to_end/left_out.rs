//! What a backup does not hold and why, and what it says of sources and patterns that are not what
//! they seem.

use crate::bench::{Bench, have, is_root, skipped};

#[test]
fn the_repository_its_key_and_its_cache_are_not_backed_up_into_themselves() {
    let bench = Bench::new();
    bench.sh("head -c 3000000 /dev/urandom > home/data; mkdir -p home/.cache");
    let first = bench.ok(&["backup", "home", "--json"]).summary();
    let second = bench.ok(&["backup", "home", "--json"]);
    assert!(second.text().contains("left out"), "{second}");
    let second = second.summary();
    assert_eq!(first["left_out"], 3, "{first}");
    assert_eq!(second["left_out"], 3, "{second}");
    assert_eq!(second["files"], 1, "{second}");
    assert!(
        second["bytes_stored"].as_u64().unwrap() < 100_000,
        "{second}"
    );
    let named = bench
        .ok(&["backup", "home/.local/share/bale/repository", "--json"])
        .summary();
    assert_eq!(
        named["files"], 1,
        "its tag, and nothing that grows: {named}"
    );
    assert!(named["left_out"].as_u64().unwrap() > 5, "{named}");
}

#[test]
fn in_a_storage_snapshot_the_same_is_left_out_though_it_is_other_inodes() {
    let bench = Bench::new();
    bench.sh("head -c 3000000 /dev/urandom > home/data; mkdir -p home/.cache");
    bench.ok(&["backup", "home"]);
    let command =
        "cp -a home copy; echo directory $PWD/copy; echo ready; cat >/dev/null; rm -r copy";
    let words = ["backup", "home", "--include-repositories", "--json"];
    let summary = bench
        .ok(&[&words[..], &["--snapshot-command", command]].concat())
        .summary();
    assert_eq!(summary["left_out"], 3, "{summary}");
    assert_eq!(summary["files"], 1, "{summary}");
}

#[test]
fn another_repository_is_left_out_by_its_tag_unless_it_is_wanted() {
    let bench = Bench::new();
    bench.write("source/file", "1");
    bench.ok(&["init", "-r", "source/other", "--new-key-file", "made.key"]);
    let count = |words: &[&str]| bench.ok(words).summary();
    let walked = count(&["backup", "source", "--json"]);
    assert_eq!(
        (&walked["files"], &walked["left_out"]),
        (&1.into(), &1.into())
    );
    let wanted = count(&["backup", "source", "--include-repositories", "--json"]);
    assert!(wanted["files"].as_u64().unwrap() > 3, "{wanted}");
    assert_eq!(wanted["left_out"], 0, "{wanted}");
    if !is_root() || !have("mkfs.ext4") {
        return skipped("images need root and mkfs.ext4");
    }
    bench.sh("mkfs.ext4 -q -F -d source disk.img 64M");
    let image = count(&["backup", "--scan", "inode", "disk.img", "--json"]);
    assert_eq!(
        (&image["files"], &image["left_out"]),
        (&1.into(), &1.into())
    );
    // Its inode tables are what they were, and yet other things are wanted.
    let words = ["backup", "--scan", "inode", "disk.img", "--json"];
    let wanted = count(&[&words[..], &["--include-repositories"]].concat());
    assert!(wanted["files"].as_u64().unwrap() > 3, "{wanted}");
    assert_eq!(wanted["left_out"], 0, "{wanted}");
}

#[test]
fn sources_that_are_missing_or_are_links_are_told_by_their_own_paths() {
    let bench = Bench::new();
    bench.write("source/file", "1");
    bench.sh("ln -s source link");
    let missing = bench.run(&["backup", "source", "/nonexistent", "gone", "--json"]);
    assert_eq!(missing.code, 3, "{missing}");
    let mut paths: Vec<_> = missing
        .of_type("problem")
        .iter()
        .map(|problem| problem["path"].as_str().unwrap_or_default().to_owned())
        .collect();
    paths.sort();
    let mut expected = [
        "/nonexistent".to_owned(),
        bench.path("gone").display().to_string(),
    ];
    expected.sort();
    assert_eq!(paths, expected);
    let link = bench.ok(&["backup", "link"]);
    assert!(link.err.contains("is a link to a directory"), "{link}");
    let quiet = bench.ok(&["backup", "link", "-q"]);
    assert!(quiet.err.contains("is a link to a directory"), "{quiet}");
    let beside = bench.ok(&["backup", "link", "source", "-q"]);
    assert!(beside.err.contains("is a link"), "{beside}");
    // A dot leads through a link, as a slash does.
    let dot = bench.ok(&["backup", "link/.", "--json"]);
    assert_eq!(dot.summary()["files"], 1, "{dot}");
    let followed = bench.ok(&["backup", "link/", "--json"]);
    assert!(!followed.text().contains("is a link"), "{followed}");
    assert_eq!(followed.summary()["files"], 1);
}

#[test]
fn patterns_that_can_match_nothing_are_refused_with_what_to_write() {
    let bench = Bench::new();
    bench.write("source/file", "1");
    for pattern in ["", "!keep", "./x", "~/x", "*.{o,a}"] {
        let refused = bench.run(&["backup", "source", "--exclude", pattern]);
        assert_eq!(refused.code, 2, "{pattern}: {refused}");
        assert!(refused.err.contains("can match nothing"), "{refused}");
    }
    let broken = bench.run(&["backup", "source", "--exclude", "[abc"]);
    assert_eq!(broken.code, 2, "{broken}");
    assert!(broken.err.contains("unclosed character class"), "{broken}");
    bench.ok(&[
        "backup",
        "source",
        "--exclude",
        "*.o",
        "--exclude",
        "!keep.o",
    ]);
}
