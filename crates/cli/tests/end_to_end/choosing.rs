//! What a backup takes and leaves.

use crate::bench::{Bench, Ran, is_root, skipped};
use std::io::Write;
use std::process::Stdio;

/// Paths below the source in the latest snapshot.
fn stored(bench: &Bench) -> Vec<String> {
    let prefix = format!("{}/", bench.source.display());
    let entries = bench.ok(&["ls", "-R", "latest", "--json"]).of_type("entry");
    let paths = entries.iter().filter_map(|entry| {
        entry["path"]
            .as_str()?
            .strip_prefix(&prefix)
            .map(str::to_owned)
    });
    let mut paths: Vec<_> = paths.collect();
    paths.sort();
    paths
}

#[test]
fn every_kind_of_exclude_leaves_out_what_it_names() {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir -p keep cache marked objects; touch keep/a.o keep/B.TMP keep/c \
         keep/from-file; echo big-enough-to-be-left > keep/large
        printf 'Signature: 8a477f597d28d172789f06886806bc55' > cache/CACHEDIR.TAG; touch cache/x \
        marked/.nobackup marked/y objects/z",
    );
    bench.write("patterns", "# comment\nfrom-file\n\n");
    let objects = bench.source.join("objects");
    bench.ok(&[
        "backup",
        "source",
        "--exclude",
        "*.o",
        "--iexclude",
        "*.tmp",
        "--exclude-file",
        "patterns",
        "--exclude-caches",
        "--exclude-if-present",
        ".nobackup",
        "--exclude-larger-than",
        "20",
        "--exclude",
        objects.to_str().unwrap(),
    ]);
    let paths = stored(&bench);
    for gone in [
        "keep/a.o",
        "keep/B.TMP",
        "keep/from-file",
        "keep/large",
        "cache/x",
        "marked/y",
        "objects/z",
        "objects",
    ] {
        assert!(!paths.contains(&gone.to_owned()), "{gone}: {paths:?}");
    }
    for here in ["keep/c", "cache", "marked"] {
        assert!(paths.contains(&here.to_owned()), "{here}: {paths:?}");
    }
}

#[test]
fn lists_of_paths_come_from_files_and_standard_input() {
    let bench = Bench::new();
    bench.sh("cd source; touch one two $'odd\\nname'");
    let base = bench.source.display();
    for (option, list, count) in [
        ("--files-from", format!("{base}/one\n{base}/two\n"), 2),
        (
            "--files-from0",
            format!("{base}/odd\nname\0{base}/two\0"),
            2,
        ),
    ] {
        let mut child = bench
            .command()
            .args(["backup", option, "-", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(list.as_bytes())
            .unwrap();
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert_eq!(ran.summary()["files"], count, "{ran}");
    }
    bench.write("list", format!("{base}/one\n"));
    let ran = bench.ok(&["backup", "--files-from", "list", "--json"]);
    assert_eq!(ran.summary()["files"], 1);
}

#[test]
fn other_file_systems_are_crossed_only_as_asked() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.mounting_sh(&format!(
        "mkdir source/mounted
        mount -t tmpfs tmpfs source/mounted; echo inside > source/mounted/inside
        {0} backup source -x -q; {0} backup source -q",
        crate::bench::binary().display()
    ));
    let found = bench.ok(&["find", "inside", "--json"]).of_type("entry");
    assert_eq!(found.len(), 1, "only the second crosses");
}

/// Two file systems begin to number their inodes at the same number: what is linked in one is not
/// linked to the other's.
#[test]
fn equal_inode_numbers_of_two_file_systems_are_two_files() {
    let bench = Bench::new();
    if !is_root() {
        return skipped("mounting needs root");
    }
    bench.mounting_sh(&format!(
        "mkdir source/1 source/2
        for m in 1 2; do mount -t tmpfs tmpfs source/$m; echo same > source/$m/a; touch -d \
        @1000000000 source/$m/a; ln source/$m/a source/$m/b; done
        stat -c %i source/*/a | uniq | wc -l > inodes
        {0} backup source -q; {0} restore latest:$PWD/source -t out -q",
        crate::bench::binary().display()
    ));
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    assert_eq!(read("inodes").trim(), "1", "else this shows nothing");
    for name in ["1/a", "1/b", "2/a", "2/b"] {
        let path = bench.path("out").join(name);
        assert_eq!(std::fs::read(&path).unwrap(), b"same\n", "{name}");
        let links = std::os::unix::fs::MetadataExt::nlink(&path.metadata().unwrap());
        assert_eq!(links, 2, "{name}");
    }
}

#[test]
fn names_of_an_inode_that_an_exclude_left_behind_have_its_content() {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir a m z; echo content > m/small; head -c 900000 /dev/urandom > \
        m/large; for f in small large; do ln m/$f a/$f; ln m/$f z/$f; done",
    );
    bench.ok(&["backup", "source", "--exclude", "/**/source/a"]);
    bench.ok(&["restore", &bench.address(""), "--target", "out"]);
    assert!(!bench.path("out/a").exists());
    for name in ["small", "large"] {
        let (m, z) = (
            bench.path("out/m").join(name),
            bench.path("out/z").join(name),
        );
        let content = std::fs::read(bench.source.join("a").join(name)).unwrap();
        assert!(std::fs::read(&m).unwrap() == content, "{name}");
        let inode = |path: &std::path::Path| {
            let meta = path.metadata().unwrap();
            use std::os::unix::fs::MetadataExt;
            (meta.ino(), meta.nlink())
        };
        assert_eq!(inode(&m), inode(&z), "{name}");
        assert_eq!(inode(&m).1, 2, "{name}");
    }
}

#[test]
fn a_dry_run_and_an_unchanged_tree_make_no_snapshot() {
    let bench = Bench::new();
    bench.write("source/f", "1");
    bench.ok(&["init"]);
    let dry = bench
        .ok(&["backup", "source", "--dry-run", "--json"])
        .summary();
    assert!(dry["snapshot"].is_null(), "{dry}");
    assert!(
        bench
            .ok(&["snapshots", "--json"])
            .of_type("snapshot")
            .is_empty()
    );
    bench.backup();
    let same = bench
        .ok(&["backup", "source", "--skip-if-unchanged", "--json"])
        .summary();
    assert!(same["snapshot"].is_null(), "{same}");
    bench.write("source/f", "two");
    let changed = bench
        .ok(&["backup", "source", "--skip-if-unchanged", "--json"])
        .summary();
    assert!(changed["snapshot"].is_string(), "{changed}");
    assert_eq!(changed["files_changed"], 1);
    let forced = bench
        .ok(&["backup", "source", "--force", "--json"])
        .summary();
    assert_eq!(forced["bytes_read"], 3, "{forced}");
}

#[test]
fn contents_are_compressed_as_somebody_wants() {
    let bench = Bench::new();
    bench.sh("for i in $(seq 40000); do echo line $((i * i % 7919)) of many; done >source/text");
    let run = |words: &[&str], level: &str| {
        let mut command = bench.command();
        command.args(words).env("BALE_COMPRESSION", level);
        let ran = Ran::from(command.output().unwrap());
        assert_eq!(ran.code, 0, "{ran}");
        ran
    };
    // One key, and so the same cuts in all.
    run(&["init", "-r", "new", "--new-key-file", "key"], "auto");
    let stored = |level: &str| {
        let repository = format!("of-{level}");
        bench.sh(&format!("cp -a new {repository}"));
        let of_it = ["-r", &repository, "--key-file", "key"];
        let ran = run(
            &[&["backup", "source", "--json"], &of_it[..]].concat(),
            level,
        );
        ran.summary()["bytes_stored"].as_u64().unwrap()
    };
    let (off, auto, best) = (stored("off"), stored("auto"), stored("19"));
    assert!(
        off > 700_000 && auto < off / 2 && best < auto,
        "{off} {auto} {best}"
    );
    for wrong in ["20", "0", "-1", "best", ""] {
        let ran = bench.run(&["backup", "source", &format!("--compression={wrong}")]);
        assert_eq!(ran.code, 2, "{wrong}: {ran}");
    }
}
