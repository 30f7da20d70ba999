//! Trees to test with: into a directory, into an image, again the same, aged, and compared with their list of hashes.

use crate::bench::{Bench, have, skipped};
use std::fs;

const SMALL: &str = "-d 2 -D 3 -r 1 -R 2 -f 3 -F 9 -s 511 -S 3000 -l 3 -L 8 -P 1 --symlinks 5 --sparse 5 --xattrs 10 --odd-names 10 --owners 3 --ages 900 --links 3";

fn words<'a>(front: &[&'a str], rest: &'a str) -> Vec<&'a str> {
    let mut words = vec!["gen"];
    words.extend(front);
    words.extend(rest.split(' '));
    words
}

#[test]
fn the_letter_of_the_repository_is_a_depth_here_and_the_repository_elsewhere() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    bench.ok(&[
        "gen", "-t", "tree", "-r", "1", "-R", "1", "--count", "20", "-S", "2048",
    ]);
    let mut command = bench.command();
    command
        .env("BALE_REPOSITORY", "/nowhere")
        .env("BALE_PASSWORD", "x");
    let output = command
        .args([
            "gen", "-t", "tree", "-r", "2", "-R", "2", "--count", "20", "-S", "2048", "--seed", "3",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    bench.write("password", "secret\n");
    bench.ok(&["init", "-r", "one", "-p", "password"]);
    bench.ok(&["-r", "one", "-p", "password", "backup", "source"]);
    bench.ok(&["backup", "-r", "one", "-p", "password", "source"]);
}

#[test]
fn the_same_words_give_the_same_image_byte_for_byte() {
    let bench = Bench::new();
    let of = |name, seed| {
        let made = bench.ok(&words(
            &[
                "--to-ext4",
                name,
                "--seed",
                seed,
                "--json",
                "--count",
                "200",
            ],
            SMALL,
        ));
        made.summary()
    };
    let summary = of("one.img", "7");
    assert_eq!(of("two.img", "7")["files"], summary["files"]);
    of("other.img", "8");
    let (one, two) = (
        fs::read(bench.path("one.img")).unwrap(),
        fs::read(bench.path("two.img")).unwrap(),
    );
    assert!(one == two, "two runs of one seed differ");
    assert!(one != fs::read(bench.path("other.img")).unwrap());
    assert_eq!(summary["image"]["bytes"], one.len() as u64);
    if have("e2fsck") {
        bench.sh("e2fsck -fn one.img");
    } else {
        skipped("e2fsck is not installed");
    }
    // What is there is not written over.
    let refused = bench.run(&words(&["--to-ext4", "one.img", "--count", "10"], SMALL));
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("not empty"), "{refused}");
    assert!(one == fs::read(bench.path("one.img")).unwrap());
    bench.ok(&words(
        &["--to-ext4", "one.img", "--count", "10", "--force"],
        SMALL,
    ));
}

#[test]
fn a_tree_is_as_its_manifest_says_until_it_is_aged() {
    let bench = Bench::new();
    fs::create_dir(bench.path("tree")).unwrap();
    bench.ok(&words(
        &["-t", "tree", "--manifest", "list", "--count", "300"],
        SMALL,
    ));
    let same = bench.ok(&["gen", "-t", "tree", "--verify-manifest", "list", "--json"]);
    assert_eq!(same.summary()["different"], 0, "{same}");
    bench.ok(&words(
        &["--manifest", "unwritten", "--count", "300"],
        SMALL,
    ));
    bench.sh("cmp list unwritten");

    let aged = bench
        .ok(&[
            "gen",
            "-t",
            "tree",
            "--change",
            "10",
            "--new",
            "5",
            "--delete",
            "5",
            "--seed",
            "2",
            "--manifest",
            "aged",
            "--json",
        ])
        .summary();
    assert!(
        aged["changed"].as_u64().unwrap() > 0 && aged["deleted"].as_u64().unwrap() > 0,
        "{aged}"
    );
    let differs = bench.run(&["gen", "-t", "tree", "--verify-manifest", "list", "--json"]);
    assert_eq!(differs.code, 4, "{differs}");
    assert_eq!(
        differs.of_type("difference").len() as u64,
        differs.summary()["different"].as_u64().unwrap()
    );
    bench.ok(&["gen", "-t", "tree", "--verify-manifest", "aged"]);
}

#[test]
fn words_that_make_no_sense_are_refused_before_anything_is_made() {
    let bench = Bench::new();
    for words in [
        &["gen"][..],
        &["gen", "-t", "missing", "-s", "1"],
        &["gen", "--to-ext4", "i", "--change", "5"],
        &["gen", "--to-ext4", "i", "-t", "source"],
        &["gen", "-t", "source", "--symlinks", "101"],
        &["gen", "-t", "source", "-d", "9", "-D", "3"],
        &["gen", "-t", "source", "--label", "x", "--count", "5"],
        &["gen", "--to-ext4", "i", "--uuid", "12"],
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, 2, "{words:?}: {ran}");
    }
    assert!(!bench.path("i").exists());
    // The usual numbers make terabytes.
    let huge = bench.run(&["gen", "-t", "source"]);
    assert!(huge.code == 1 && huge.err.contains("free"), "{huge}");
    assert_eq!(fs::read_dir(&bench.source).unwrap().count(), 0);
    let small = bench.run(&[
        "gen",
        "--to-ext4",
        "i",
        "--count",
        "1000",
        "-S",
        "2048",
        "--fs-size",
        "1M",
    ]);
    assert!(small.code == 1 && small.err.contains("needs"), "{small}");
    assert!(!bench.path("i").exists());
}
