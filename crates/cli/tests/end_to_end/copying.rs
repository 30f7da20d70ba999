//! `bale copy` as its users meet it, with two repositories of their own passwords; and `bale
//! mirror`, which keeps one in two places.

use crate::bench::{Bench, Ran, skipped};
use std::path::Path;
use std::process::Command;

/// A source with every kind of entry, backed up twice into `here`; `far` is empty.
fn two_repositories() -> Bench {
    let bench = Bench::new();
    bench.sh("echo here > here.pw; echo far > far.pw
        cd source; mkdir dir many; echo one > dir/a; ln dir/a dir/b; ln -s a dir/link; mkfifo pipe
        head -c 1500000 /dev/urandom > large; truncate -s 3M sparse; printf x >> sparse
        for n in $(seq 100); do echo $n > many/$n; done");
    for name in ["here", "far"] {
        let password = format!("{name}.pw");
        bench.ok(&["init", "-r", name, "-p", &password]);
    }
    bench.ok(&[
        "-r", "here", "-p", "here.pw", "backup", "source", "--tag", "first",
    ]);
    bench.sh("cd source; echo two > dir/c; rm many/7; head -c 900000 /dev/urandom >> large");
    bench.ok(&["-r", "here", "-p", "here.pw", "backup", "source"]);
    bench
}

const COPY: [&str; 9] = [
    "copy",
    "--from-repo",
    "here",
    "--from-password-file",
    "here.pw",
    "-r",
    "far",
    "-p",
    "far.pw",
];

fn copy(more: &[&'static str]) -> Vec<&'static str> {
    [&COPY[..], more].concat()
}

#[test]
fn a_copy_restores_equal_and_the_next_one_sends_nothing() {
    let bench = two_repositories();
    let dry = bench.ok(&copy(&["--dry-run", "--json"]));
    assert_eq!(dry.summary()["snapshots_copied"], 2);
    assert!(dry.summary()["bytes_to_read"].as_u64() > Some(2_000_000));
    let listed = bench.ok(&["-r", "far", "-p", "far.pw", "snapshots", "--json"]);
    assert!(listed.of_type("snapshot").is_empty());

    let copied = bench.ok(&copy(&["--json"]));
    let fates = copied.of_type("copied");
    assert_eq!(fates.len(), 2);
    assert!(fates.iter().all(|fate| fate["fate"] == "copied"));
    let listed = bench.ok(&["-r", "far", "-p", "far.pw", "snapshots", "--json"]);
    let listed = listed.of_type("snapshot");
    for (fate, copy) in fates.iter().zip(&listed) {
        assert_eq!(copy["original"], fate["source"]);
        assert_eq!(copy["id"], fate["id"]);
    }
    assert_eq!(listed[0]["tags"][0], "first");

    let address = bench.address("");
    let far = ["-r", "far", "-p", "far.pw"];
    let words = [&far[..], &["restore", &address, "-t", "out", "--verify"]].concat();
    // The source is restored where it lay below the target of the address.
    bench.ok(&words);
    crate::tree::assert_same(&bench.source, &bench.path("out"));
    bench.ok(&[&far[..], &["check", "--read-data"]].concat());

    let again = bench.ok(&copy(&["--json"])).summary();
    assert_eq!(
        (&again["snapshots_there"], &again["snapshots_copied"]),
        (&2.into(), &0.into())
    );
    assert_eq!(
        (&again["bytes_read"], &again["bytes_stored"]),
        (&0.into(), &0.into())
    );
}

#[test]
fn the_second_reader_reads_a_copy() {
    let modules = "import argon2, blake3, cryptography, pyarrow, zstandard";
    let python = Command::new("python3").args(["-c", modules]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        return skipped("python3 with argon2-cffi, blake3, cryptography, pyarrow, zstandard");
    }
    let bench = two_repositories();
    let copied = bench.ok(&copy(&["--json"])).of_type("copied");
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bale_read.py");
    let mut command = Command::new("python3");
    command
        .arg(&reader)
        .args(["far", "--password-file", "far.pw", "restore"]);
    command.arg(copied[1]["id"].as_str().unwrap()).arg("out");
    let read = bench.prepared(command).output().unwrap();
    let err = String::from_utf8_lossy(&read.stderr);
    assert_eq!(read.status.code(), Some(0), "{err}");
    let below = bench.source.strip_prefix("/").unwrap();
    crate::tree::assert_same(&bench.source, &bench.path("out").join(below));
}

#[test]
fn snapshots_are_chosen_as_everywhere_and_words_that_mean_nothing_are_refused() {
    let bench = two_repositories();
    let copied = bench.ok(&copy(&["latest", "--json"])).of_type("copied");
    assert_eq!(copied.len(), 1);
    let tagged = bench.ok(&copy(&["--tag", "first", "--json"])).summary();
    assert_eq!(tagged["snapshots_copied"], 1);
    let none = bench.run(&copy(&["--host", "nobody", "--json"]));
    assert_eq!(none.code, 3, "{none}");
    assert_eq!(none.of_type("note").len(), 1, "{none}");

    for (words, code) in [
        (&["copy", "-r", "far", "-p", "far.pw"][..], 2),
        (
            &["copy", "--from-repo", "s4:x", "-r", "far", "-p", "far.pw"],
            2,
        ),
        (
            &[
                "copy",
                "--from-repo",
                "nowhere",
                "-r",
                "far",
                "-p",
                "far.pw",
            ],
            10,
        ),
        (
            &["copy", "--from-repo", "here", "-r", "far", "-p", "far.pw"],
            2,
        ),
        (
            &[
                "copy",
                "--from-repo",
                "here",
                "--from-password-file",
                "far.pw",
                "-r",
                "far",
                "-p",
                "far.pw",
            ],
            12,
        ),
        (
            &[
                "copy",
                "--from-repo",
                "far",
                "--from-password-file",
                "far.pw",
                "-r",
                "far",
                "-p",
                "far.pw",
            ],
            1,
        ),
    ] {
        let ran = bench.run(words);
        assert_eq!(ran.code, code, "{words:?}: {ran}");
    }
}

#[test]
fn the_environment_names_the_repository_to_copy_from_and_its_secret() {
    let bench = two_repositories();
    let mut command = bench.command();
    command
        .args(["copy", "--json"])
        .env("BALE_FROM_REPOSITORY", "here")
        .env("BALE_FROM_PASSWORD", "here")
        .env("BALE_REPOSITORY", "far")
        .env("BALE_PASSWORD_FILE", "far.pw");
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(
        (ran.code, &ran.summary()["snapshots_copied"]),
        (0, &2.into()),
        "{ran}"
    );
}

#[test]
fn a_snapshot_with_lost_content_is_named_and_the_others_are_copied() {
    let bench = two_repositories();
    // The largest pack, of which most is the largest file.
    bench.sh(
        "p=$(find here/packs -type f -printf '%s %p\\n' | sort -n | tail -1 | cut -d' ' -f2)
        chmod u+w $p; printf damaged! | dd of=$p bs=1 seek=500000 conv=notrunc status=none
        rm source/large; echo small > source/large",
    );
    bench.ok(&["-r", "here", "-p", "here.pw", "backup", "source"]);
    let ran = bench.run(&copy(&["--json"]));
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(ran.summary()["chunks_lost"], 1);
    let fates: Vec<_> = (ran.of_type("copied").iter())
        .map(|copied| copied["fate"].as_str().unwrap().to_owned())
        .collect();
    assert!(fates.contains(&"not-made".to_owned()), "{fates:?}");
    assert_eq!(fates.last().unwrap(), "copied");
    let problems = ran.of_type("problem");
    assert!(problems.iter().any(|problem| {
        problem["path"]
            .as_str()
            .is_some_and(|path| path.ends_with("/source/large"))
    }));
}

#[test]
fn a_mirror_opens_with_the_same_password_and_follows_the_source() {
    let bench = two_repositories();
    let here = ["-r", "here", "-p", "here.pw"];
    let mirror = |more: &[&'static str]| {
        let words = [&here[..], &["mirror", "--to", "mirror", "--json"], more].concat();
        bench.run(&words)
    };
    let dry = mirror(&["--dry-run"]);
    assert_eq!(dry.code, 0, "{dry}");
    assert!(!bench.path("mirror").exists(), "a dry run makes nothing");
    let first = mirror(&[]);
    assert_eq!(first.code, 0, "{first}");
    assert_eq!(
        first.summary()["objects_sent"],
        dry.summary()["objects_sent"]
    );
    bench.ok(&["-r", "mirror", "-p", "here.pw", "check", "--read-data"]);
    bench.ok(&["-r", "mirror", "check", "--scrub"]);
    let address = bench.address("");
    bench.ok(&[
        "-r", "mirror", "-p", "here.pw", "restore", &address, "-t", "out",
    ]);
    crate::tree::assert_same(&bench.source, &bench.path("out"));
    assert_eq!(mirror(&["--verify"]).summary()["objects_sent"], 0);

    bench.ok(&[&here[..], &["forget", "--keep-last", "1"]].concat());
    assert_eq!(mirror(&[]).summary()["objects_deleted"], 0);
    assert_eq!(mirror(&["--delete"]).summary()["objects_deleted"], 1);
    let left = bench.ok(&["-r", "mirror", "-p", "here.pw", "snapshots", "--json"]);
    assert_eq!(left.of_type("snapshot").len(), 1);
}

#[test]
fn a_mirror_goes_nowhere_else() {
    let bench = two_repositories();
    let before = std::fs::read(bench.path("far/config")).unwrap();
    let to = |place: &str| bench.run(&["-r", "here", "-p", "here.pw", "mirror", "--to", place]);
    let other = to("far");
    assert_eq!(other.code, 1, "{other}");
    assert!(other.err.contains("another repository"), "{other}");
    assert_eq!(before, std::fs::read(bench.path("far/config")).unwrap());
    bench.write("things/of mine", "x");
    let things = to("things");
    assert_eq!(things.code, 1);
    assert!(!things.err.contains("--force"), "mirror has none: {things}");
    assert_eq!(to("s4:bucket").code, 2);
    let same = to("./here");
    assert_eq!(same.code, 2, "it is believed in as a second place: {same}");
}

/// Nothing is damaged, and whoever follows what is said has all snapshots in both places.
#[test]
fn a_backup_into_a_mirror_is_named_with_what_to_do_and_that_helps() {
    let bench = two_repositories();
    let mirror = |from: &str, to: &str, more: &[&str]| {
        let words = ["mirror", "-r", from, "-p", "here.pw", "--to", to];
        bench.run(&[&words, more].concat())
    };
    let ids = |of: &str| {
        let listed = bench.ok(&["snapshots", "-r", of, "-p", "here.pw", "--json"]);
        let listed = listed.of_type("snapshot");
        let ids = listed
            .iter()
            .map(|snapshot| snapshot["id"].as_str().unwrap().to_owned());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(mirror("here", "second", &[]).code, 0);
    bench.sh("echo three > source/dir/d");
    bench.ok(&["backup", "source", "-r", "second", "-p", "here.pw"]);
    let made = ids("second").pop().unwrap();
    let before = ids("second");

    let refused = mirror("here", "second", &["--delete"]);
    assert_eq!(refused.code, 3, "{refused}");
    assert!(refused.err.contains(&made[..8]), "{refused}");
    assert!(refused.err.contains("nothing is damaged"), "{refused}");
    assert!(
        !refused.err.contains("what is damaged in the source"),
        "{refused}"
    );
    assert_eq!(ids("second"), before);
    let said = |what: &str| {
        let at = refused
            .err
            .find(what)
            .unwrap_or_else(|| panic!("{what}: {refused}"));
        let command = refused.err[at..].split(". ").next().unwrap();
        command
            .lines()
            .next()
            .unwrap()
            .split(' ')
            .skip(1)
            .collect::<Vec<_>>()
    };
    let back = said("bale -r second mirror --to here");
    let ran = bench.run(&[&back[..], &["-p", "here.pw"]].concat());
    assert_eq!(ran.code, 0, "{ran}");
    assert_eq!(ids("here"), before);
    let now = mirror("here", "second", &["--delete"]);
    assert_eq!(now.code, 0, "{now}");
    bench.ok(&["check", "--read-data", "-r", "here", "-p", "here.pw"]);
    bench.ok(&["check", "--read-data", "-r", "second", "-p", "here.pw"]);

    // The other way: it is given up.
    bench.sh("echo four > source/dir/e");
    bench.ok(&["backup", "source", "-r", "second", "-p", "here.pw"]);
    let made = ids("second").pop().unwrap();
    assert_eq!(mirror("here", "second", &["--delete"]).code, 3);
    let forget = ["-r", "second", "-p", "here.pw", "forget", &made];
    bench.ok(&forget);
    let now = mirror("here", "second", &["--delete"]);
    assert_eq!(now.code, 0, "{now}");
    assert_eq!(ids("second"), before);
}
