//! A repository with a cold store beside the hot one, as its users meet it.

use crate::bench::{Bench, Ran};
use crate::serving::start;
use crate::tree::assert_same;
use serde_json::Value;
use std::fs;

const BOTH: [&str; 4] = ["--repo", "hot", "--cold", "cold"];

fn both(bench: &Bench, words: &[&str]) -> Ran {
    bench.ok(&[words, &BOTH].concat())
}

fn new() -> Bench {
    let bench = Bench::new();
    bench.sh(
        "mkdir source/dir; head -c 700000 /dev/urandom > source/dir/large
              seq 1 3000 > source/small; ln -s small source/link",
    );
    both(&bench, &["init", "--new-key-file", "new-key"]);
    backup(&bench);
    bench
}

fn backup(bench: &Bench) {
    both(bench, &["backup", "source", "--key-file", "new-key"]);
}

fn objects(bench: &Bench, store: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut waiting = vec![bench.path(store)];
    while let Some(directory) = waiting.pop() {
        for path in fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
        {
            match path.is_dir() {
                true => waiting.push(path),
                false => found.push(
                    path.strip_prefix(bench.path(store))
                        .unwrap()
                        .display()
                        .to_string(),
                ),
            }
        }
    }
    found.sort();
    found
}

fn restores(bench: &Bench, stores: &[&str]) {
    bench.sh("rm -rf target");
    let address = bench.address("");
    let words = [
        "restore",
        &address,
        "--target",
        "target",
        "--key-file",
        "new-key",
    ];
    bench.ok(&[&words, stores].concat());
    assert_same(&bench.source, &bench.path("target"));
}

#[test]
fn everything_works_with_both_and_looking_with_either() {
    let bench = new();
    let (hot, cold) = (objects(&bench, "hot"), objects(&bench, "cold"));
    assert!(
        hot.iter().all(|name| cold.contains(name)),
        "{hot:?} {cold:?}"
    );
    // Packs of data: one for each thread that had some.
    let mut beside = cold.iter().filter(|name| !hot.contains(name));
    assert!(cold.len() > hot.len());
    assert!(
        beside.all(|name| name.starts_with("packs/")),
        "{hot:?} {cold:?}"
    );
    restores(&bench, &BOTH);
    restores(&bench, &["--repo", "cold"]);
    both(&bench, &["check", "--read-data", "--key-file", "new-key"]);
    bench.write("source/small", "changed");
    backup(&bench);
    both(
        &bench,
        &[
            "forget",
            "latest~1",
            "--key-file",
            "new-key",
            "--prune",
            "--grace",
            "0s",
        ],
    );
    both(&bench, &["check", "--read-data", "--key-file", "new-key"]);
    restores(&bench, &BOTH);
    for alone in ["hot", "cold"] {
        for words in [
            &["snapshots"][..],
            &["ls", "--recursive", "latest"],
            &["find", "large"],
        ] {
            let words = [words, &["--key-file", "new-key", "--repo", alone]].concat();
            let ran = bench.ok(&words);
            assert!(ran.err.contains("one of them is named"), "{ran}");
        }
    }
}

fn stores_of(alone: &str) -> [&str; 4] {
    ["--key-file", "new-key", "--repo", alone]
}

#[test]
fn one_store_alone_is_not_written_and_says_where_the_rest_is() {
    let bench = new();
    bench.sh("seq 3 > source/three; seq 4 > source/four; seq 5 > source/dir/five");
    backup(&bench);
    for alone in ["hot", "cold"] {
        let before = objects(&bench, alone);
        let stores = ["--key-file", "new-key", "--repo", alone];
        for words in [
            &["backup", "source"][..],
            &["forget", "latest"],
            &["prune"],
            &["key", "add", "--recovery"],
        ] {
            let refused = bench.run(&[words, &stores].concat());
            assert_eq!(refused.code, 1, "{words:?} {refused}");
            assert!(refused.err.contains("one of the two stores"), "{refused}");
        }
        assert_eq!(objects(&bench, alone), before);
    }
    let address = bench.address("/small");
    let dumped = bench.run(&["dump", &address, "--key-file", "new-key", "--repo", "hot"]);
    assert_eq!(dumped.code, 3, "{dumped}");
    let is_said = |ran: &Ran| ran.err.contains("in the cold store") && ran.err.contains("--cold");
    assert!(is_said(&dumped), "{dumped}");
    let all = bench.address("");
    let restored =
        bench.run(&[&["restore", &all, "--target", "out"], &stores_of("hot")[..]].concat());
    assert_eq!(restored.code, 3, "{restored}");
    let lines = restored
        .err
        .lines()
        .filter(|line| line.contains("cold store"));
    // That there are two, that files were not read, and what helps.
    assert_eq!(lines.count(), 3, "{restored}");
    assert!(restored.err.contains("NOT READ, "), "{restored}");
    assert!(restored.err.contains("With --cold"), "{restored}");
    assert!(!restored.err.contains("source/three"), "{restored}");
    let added = bench.run(
        &[
            &["key", "add", "--new-key-file", "third"],
            &stores_of("hot")[..],
        ]
        .concat(),
    );
    assert_eq!(added.code, 1, "{added}");
    assert!(!bench.path("third").exists(), "a key that opens nothing");
    // A plan needs no data.
    let planned = bench.ok(&[
        "dump",
        &address,
        "--plan",
        "--key-file",
        "new-key",
        "--repo",
        "hot",
    ]);
    assert_eq!(planned.of_type("pack").len(), 1);
}

#[test]
fn a_hot_store_that_is_lost_is_made_again() {
    let bench = new();
    let hot = objects(&bench, "hot");
    bench.sh("mv hot lost");
    let lost = bench.run(&[&["backup", "source", "--key-file", "new-key"], &BOTH[..]].concat());
    assert_eq!(lost.code, 10, "{lost}");
    assert!(
        lost.err.contains("bale repair hot -r hot --cold cold"),
        "{lost}"
    );
    assert!(!lost.err.contains("bale init"), "{lost}");
    let repair = |more: &[&str]| -> Value {
        let words = [&["repair", "hot", "--json", "--key-file", "new-key"], more].concat();
        both(&bench, &words).summary()
    };
    assert_eq!(repair(&["--dry-run"])["dry_run"], true);
    assert!(!bench.path("hot").exists());
    let summary = repair(&[]);
    assert_eq!(summary["problems"], 0);
    let of = |names: Vec<String>| -> Vec<String> {
        names
            .into_iter()
            .filter(|name| name != "BALE-REPOSITORY.TAG")
            .collect()
    };
    assert_eq!(of(objects(&bench, "hot")), of(hot));
    assert_eq!(repair(&[])["objects"], 0);
    bench.write("source/new", "after");
    backup(&bench);
    restores(&bench, &BOTH);
    // What it lacks is read from the cold one, and said.
    bench.sh("rm hot/index/*");
    let ran = both(&bench, &["check", "--key-file", "new-key"]);
    assert!(ran.err.contains("read from the cold store"), "{ran}");
    // Not over something else.
    bench.sh("mkdir other; touch other/file");
    let words = [
        "repair",
        "hot",
        "--key-file",
        "new-key",
        "--repo",
        "other",
        "--cold",
        "cold",
    ];
    let refused = bench.run(&words);
    assert_eq!(refused.code, 1, "{refused}");
}

#[test]
fn stores_that_do_not_belong_together_are_refused() {
    let bench = new();
    bench.ok(&["init", "--repo", "one", "--new-key-file", "key-of-one"]);
    let backup = [
        "backup",
        "source",
        "--key-file",
        "key-of-one",
        "--repo",
        "one",
    ];
    let refused = bench.run(&[&backup[..], &["--cold", "cold"]].concat());
    assert_eq!(refused.code, 1, "{refused}");
    assert!(refused.err.contains("of another repository"), "{refused}");
    bench.sh("cp -a one two");
    let refused = bench.run(&[&backup[..], &["--cold", "two"]].concat());
    assert!(
        refused.err.contains("made without a cold store"),
        "{refused}"
    );
    let refused = bench.run(&["snapshots", "--cold", "cold"]);
    assert_eq!(refused.code, 2, "{refused}");
    let refused = bench.run(&[
        "init",
        "--repo",
        "three",
        "--cold",
        "one",
        "--new-key-file",
        "k",
    ]);
    assert_eq!(refused.code, 1, "{refused}");
    assert!(!bench.path("three").exists());
}

#[test]
fn stores_that_are_taken_for_each_other_are_refused_before_anything_is_written() {
    let bench = new();
    let before = [objects(&bench, "hot"), objects(&bench, "cold")];
    let swapped = ["--repo", "cold", "--cold", "hot"];
    for words in [
        &["backup", "source", "--key-file", "new-key"][..],
        &["prune", "--key-file", "new-key"],
        &["repair", "hot", "--key-file", "new-key"],
    ] {
        let ran = bench.run(&[words, &swapped].concat());
        assert_eq!(ran.code, 1, "{words:?}: {ran}");
        assert!(ran.err.contains("swapped"), "{words:?}: {ran}");
    }
    assert_eq!(before, [objects(&bench, "hot"), objects(&bench, "cold")]);
    for twice in [["hot", "hot"], ["cold", "./cold"]] {
        let ran = bench.run(&["snapshots", "--repo", twice[0], "--cold", twice[1]]);
        assert_eq!(ran.code, 2, "{ran}");
    }
    backup(&bench);
    restores(&bench, &BOTH);
}

/// The mirror is a cold store by itself: complete, and only read until there is a hot one.
#[test]
fn a_mirror_of_both_is_complete_and_a_hot_store_is_made_beside_it() {
    let bench = new();
    both(
        &bench,
        &["mirror", "--to", "second", "--key-file", "new-key"],
    );
    assert_eq!(objects(&bench, "second"), objects(&bench, "cold"));
    restores(&bench, &["--repo", "second"]);
    let refused = bench.run(&[&["backup", "source"][..], &stores_of("second")[..]].concat());
    assert_eq!(refused.code, 1, "{refused}");
    let words = [
        "repair",
        "hot",
        "-r",
        "warm",
        "--cold",
        "second",
        "--key-file",
        "new-key",
    ];
    bench.ok(&words);
    restores(&bench, &["--repo", "warm", "--cold", "second"]);
}

/// As a tape that lost some files: nothing is copied by hand.
#[test]
fn what_the_cold_store_lost_is_brought_back_by_the_command_that_a_check_names() {
    let bench = new();
    bench.write("source/later", "more");
    backup(&bench);
    let whole = objects(&bench, "cold");
    bench.sh("rm cold/snapshots/* cold/index/*");
    let key = ["--key-file", "new-key"];
    let checked = bench.run(&[&["check"][..], &key[..], &BOTH[..]].concat());
    assert_eq!(checked.code, 4, "{checked}");
    assert!(
        checked.text().contains("bale repair cold --snapshots"),
        "{checked}"
    );
    let repair =
        |more: &[&str]| bench.run(&[&["repair", "cold"][..], &key[..], &BOTH[..], more].concat());
    let dry = repair(&["--dry-run", "--snapshots", "--json"]);
    assert_eq!(dry.code, 0, "{dry}");
    assert_eq!(dry.of_type("only-hot").len(), 2, "{dry}");
    assert_ne!(objects(&bench, "cold"), whole);
    // All but what may have been forgotten.
    let timid = repair(&[]);
    assert_eq!(timid.code, 3, "{timid}");
    assert!(
        timid.text().contains("only in the hot store, left"),
        "{timid}"
    );
    assert!(timid.err.contains("--snapshots"), "{timid}");
    let pruned = bench.run(&[&["prune"][..], &key[..], &BOTH[..]].concat());
    assert_eq!(pruned.code, 1, "{pruned}");
    assert!(
        pruned.err.contains("bale repair cold --snapshots"),
        "{pruned}"
    );
    let done = repair(&["--snapshots"]);
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(objects(&bench, "cold"), whole);
    both(&bench, &["check", "--read-data", "--key-file", "new-key"]);
    restores(&bench, &["--repo", "cold"]);
    // Also both configs and the key, with which the cold one opens.
    bench.sh("rm cold/config cold/config.copy cold/keys/*");
    let done = repair(&["--keys"]);
    assert_eq!(done.code, 0, "{done}");
    assert_eq!(objects(&bench, "cold"), whole);
    restores(&bench, &["--repo", "cold"]);
    // A tape that is not mounted gets nothing.
    bench.sh("mv cold away; mkdir cold");
    let refused = repair(&["--snapshots", "--keys"]);
    assert_eq!(refused.code, 1, "{refused}");
    assert_eq!(objects(&bench, "cold"), [""; 0]);
    bench.sh("rmdir cold");
    assert_eq!(repair(&[]).code, 10);
    assert!(!bench.path("cold").exists());
    assert_eq!(
        bench
            .run(&["repair", "cold", "--repo", "hot", "--key-file", "new-key"])
            .code,
        2
    );
}

#[test]
fn a_hot_store_alone_is_no_source_and_leaves_nothing_at_the_target() {
    let bench = new();
    bench.ok(&["init", "--repo", "other", "--new-key-file", "key-of-other"]);
    let before = objects(&bench, "other");
    let key = stores_of("hot");
    let mirrored = bench.run(&[&["mirror", "--to", "second"], &key[..]].concat());
    assert_eq!(mirrored.code, 1, "{mirrored}");
    assert!(mirrored.err.contains("--cold"), "{mirrored}");
    assert!(!bench.path("second").exists());
    let from = ["--from-repo", "hot", "--from-key-file", "new-key"];
    let to = ["--repo", "other", "--key-file", "key-of-other"];
    let copied = bench.run(&[&["copy"][..], &from[..], &to[..]].concat());
    assert_eq!(copied.code, 1, "{copied}");
    assert!(copied.err.contains("--from-repo"), "{copied}");
    assert_eq!(objects(&bench, "other"), before);
    let checked = bench.run(&[&["check", "--read-data"], &key[..]].concat());
    assert_eq!(checked.code, 1, "{checked}");
    assert!(checked.err.contains("--cold"), "{checked}");
    // As it says.
    let from = ["--from-repo", "cold", "--from-key-file", "new-key"];
    bench.ok(&[&["copy"][..], &from[..], &to[..]].concat());
}

#[test]
fn what_stands_in_the_place_of_an_object_of_the_cold_store_is_named_and_the_rest_comes_back() {
    let bench = new();
    bench.write("source/later", "more");
    backup(&bench);
    let whole = objects(&bench, "cold");
    let words = ["--json", "--key-file", "new-key"];
    bench.sh(
        "i=$(ls cold/index | head -1); rm cold/index/$i; mkdir cold/index/$i
              s=$(ls cold/snapshots | head -1); ln -sf /dev/null cold/snapshots/$s
              rm $(ls cold/index/* -d | tail -1)",
    );
    for dry_run in [&["--dry-run"][..], &[]] {
        let command = [
            &["repair", "cold", "--snapshots"][..],
            &words,
            &BOTH,
            dry_run,
        ]
        .concat();
        let ran = bench.run(&command);
        assert_eq!(ran.code, 4, "{ran}");
        assert_eq!(ran.summary()["problems"], 2, "{ran}");
        assert_eq!(ran.summary()["objects"], 1, "{ran}");
        assert!(ran.text().contains("remove it there"), "{ran}");
    }
    bench.sh("rmdir cold/index/*/ 2>/dev/null; find cold/snapshots -type l -delete");
    both(
        &bench,
        &["repair", "cold", "--snapshots", "--key-file", "new-key"],
    );
    assert_eq!(objects(&bench, "cold"), whole);
    both(&bench, &["check", "--read-data", "--key-file", "new-key"]);
}

#[test]
fn words_about_two_stores_say_which_is_meant() {
    let bench = new();
    let key = ["--key-file", "new-key"];
    let check = |stores: &[&str]| bench.run(&[&["check"][..], &key, stores].concat());
    let swapped = check(&["--repo", "cold", "--cold", "hot"]);
    assert_eq!(swapped.code, 1, "{swapped}");
    assert!(swapped.err.contains("swapped"), "{swapped}");
    // An archive that is not mounted is not made anew.
    let missing = check(&["--repo", "hot", "--cold", "nowhere"]);
    assert_eq!(missing.code, 10, "{missing}");
    assert!(missing.err.contains("named as the cold store"), "{missing}");
    assert!(!missing.err.contains("bale init"), "{missing}");
    // What is half forgotten comes back, and not silently.
    bench.write("source/later", "more");
    backup(&bench);
    bench.sh("rm hot/snapshots/$(ls hot/snapshots | head -1)");
    let repaired = both(&bench, &[&["repair", "hot"][..], &key].concat());
    assert!(
        repaired.text().contains("was in the cold store alone"),
        "{repaired}"
    );
    // A link hides whatever was there: nobody calls that clean.
    bench.sh("mv hot/config hot.config; ln -s /dev/null hot/config");
    let linked = check(&BOTH);
    assert_eq!(linked.code, 4, "{linked}");
    assert!(!linked.text().contains("no damage found"), "{linked}");
}

/// What is said to be done helps, and costs nothing.
#[test]
fn what_is_damaged_in_one_of_two_stores_is_mended_by_the_command_that_a_check_names() {
    let bench = new();
    let whole = |store: &str| -> Vec<(String, Vec<u8>)> {
        let names = objects(&bench, store).into_iter();
        names
            .map(|name| {
                (
                    name.clone(),
                    fs::read(bench.path(store).join(name)).unwrap(),
                )
            })
            .collect()
    };
    let (hot, cold) = (whole("hot"), whole("cold"));
    let key = ["--key-file", "new-key"];
    for store in ["hot", "cold"] {
        for (name, bytes) in hot.iter().filter(|(name, _)| name != "BALE-REPOSITORY.TAG") {
            let path = bench.path(store).join(name);
            let mut damaged = bytes.clone();
            damaged[bytes.len() / 2] ^= 1;
            fs::write(&path, damaged).unwrap();
            let checked = bench.run(&[&["check", "--read-data"][..], &key, &BOTH].concat());
            let story = format!("{store}/{name}: {checked}");
            assert_eq!(checked.code, 4, "{story}");
            assert!(!checked.to_string().contains("bale forget"), "{story}");
            let advice = match store {
                "hot" => "`bale repair hot`",
                _ if name.starts_with("packs/") => "`bale repair cold --read-data`",
                _ => "`bale repair cold`",
            };
            assert!(checked.err.contains(advice), "{story}");
            let command = advice.trim_matches('`').trim_start_matches("bale ");
            let words: Vec<&str> = command.split(' ').chain(key).collect();
            both(&bench, &words);
            both(&bench, &[&["check", "--read-data"][..], &key].concat());
            assert_eq!(fs::read(&path).unwrap(), *bytes, "{story}");
        }
    }
    assert_eq!((whole("hot"), whole("cold")), (hot, cold));
}

#[test]
fn what_stands_in_the_place_of_an_object_of_the_hot_store_is_named_and_the_rest_comes_back() {
    let bench = new();
    bench.write("source/later", "more");
    backup(&bench);
    let before = objects(&bench, "hot");
    bench.sh("cd hot/index; i=$(ls | head -1); rm $i; mkdir $i; rm $(ls -d * | tail -1)");
    let words = ["repair", "hot", "--json", "--key-file", "new-key"];
    for dry_run in [&["--dry-run"][..], &[]] {
        let ran = bench.run(&[&words[..], &BOTH, dry_run].concat());
        assert_eq!(ran.code, 4, "{ran}");
        assert_eq!(ran.summary()["problems"], 1, "{ran}");
        assert_eq!(ran.summary()["objects"], 1, "{ran}");
        assert!(ran.text().contains("remove it there"), "{ran}");
    }
    let checked = bench.run(&[&["check", "--key-file", "new-key"][..], &BOTH].concat());
    assert!(checked.text().contains("in the hot store hot"), "{checked}");
    bench.sh("rmdir hot/index/*/");
    both(&bench, &words);
    assert_eq!(objects(&bench, "hot"), before);
}

/// A cold server that was down kept everybody from looking at what the hot store holds.
#[test]
fn what_the_hot_store_holds_is_shown_while_the_server_of_the_cold_one_is_down() {
    let bench = Bench::new();
    bench.write("source/file", "x".repeat(10_000));
    bench.sh("mkdir served");
    let served = bench.path("served").display().to_string();
    let (mut server, address) = start(&bench, &["--no-auth", &served]);
    let cold = format!("rest:http://{address}/cold");
    let both = ["--repo", "hot", "--cold", &cold];
    let with_key = [&both[..], &["--key-file", "key"]].concat();
    bench.ok(&[&["init", "--new-key-file", "key"], &both[..]].concat());
    for _ in 0..2 {
        bench.ok(&[&["backup", "source"], &with_key[..]].concat());
    }
    let address = bench.address("");
    let looks: [&[&str]; 6] = [
        &["snapshots"],
        &["ls", &address],
        &["find", "file"],
        &["stats"],
        &["stats", &address],
        &["diff", "latest~1", "latest"],
    ];
    let looked = |words: &[&str]| bench.run(&[words, &with_key].concat());
    let before = looks.map(looked);
    server.kill();
    for (words, before) in looks.into_iter().zip(before) {
        assert_eq!(before.code, 0, "{words:?}: {before}");
        let ran = looked(words);
        assert_eq!(ran.code, 3, "{words:?}: {ran}");
        assert!(ran.err.contains("the cold store rest:http"), "{ran}");
        assert!(!ran.err.contains("trying again"), "{ran}");
        assert_eq!(ran.err.matches("cold store").count(), 1, "said once: {ran}");
        // Bytes are counted where they are.
        if words != ["stats"] {
            assert_eq!(ran.text(), before.text(), "{words:?}");
        }
    }
    // Contents are not in the hot one.
    let restore = ["restore", &address, "-t", "target", "--retry-for", "0s"];
    let refused = bench.run(&[&restore[..], &with_key].concat());
    assert_eq!(refused.code, 1, "{refused}");
}
