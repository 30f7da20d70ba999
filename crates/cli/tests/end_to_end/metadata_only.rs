//! Metadata alone comes back, and a snapshot gets the time that it was made of.

use crate::bench::{Bench, is_root, skipped};

/// What a slip of chmod, chown and setfacl does.
fn spoiled() -> Bench {
    let bench = Bench::new();
    bench.sh(
        "cd source; mkdir -m 750 d; echo a >d/a; chmod 640 d/a; ln d/a d/also; ln -s a d/link
        setfattr -n user.kept -v yes d/a; touch -d 2001-01-01 d/a; echo b >b; mkfifo -m 600 pipe",
    );
    bench.backup();
    bench.sh(
        "cp -a source out; cd out; echo longer >b; chmod -R 777 d b; touch d/a
        setfattr -x user.kept d/a; setfattr -n user.new -v x b; chmod 777 pipe; echo new >d/new",
    );
    bench
}

#[test]
fn metadata_comes_back_and_contents_stay() {
    let bench = spoiled();
    if is_root() {
        bench.sh("chown 12:34 out/d out/b");
    }
    let words = [
        "restore",
        &bench.address(""),
        "--target",
        "out",
        "--metadata-only",
    ];
    let dry = bench.ok(&[&words[..], &["--dry-run", "-v"]].concat());
    assert!(
        !dry.text().contains("create") && !dry.text().contains("replace"),
        "{dry}"
    );
    bench.sh("test $(stat -c %a out/b) = 777");
    let ran = bench.ok(&words);
    assert!(
        ran.err.contains("2 files had another modification time"),
        "{ran}"
    );
    let again = bench.ok(&[&words[..], &["--json"]].concat());
    assert_eq!(again.summary()["times_changed"], 0);
    bench.sh("test $(cat out/b) = longer; test $(cat out/d/new) = new
        cmp <(cd source; stat -c '%n %a %u %g %h' d d/a d/also d/link b pipe) \\
            <(cd out; stat -c '%n %a %u %g %h' d d/a d/also d/link b pipe)
        cmp <(cd source; stat -c '%n %Y' d d/a b pipe) <(cd out; stat -c '%n %Y' d d/a b pipe)
        test $(getfattr --only-values -n user.kept out/d/also) = yes
        ! getfattr -n user.new out/b 2>/dev/null");
}

#[test]
fn what_is_not_there_or_of_another_kind_is_named_and_not_made() {
    let bench = spoiled();
    bench.sh("rm -r out/d/a out/pipe; mkdir out/pipe; rm out/b; ln -s /etc/passwd out/b");
    let before = std::fs::metadata("/etc/passwd").unwrap();
    let ran = bench.run(&[
        "restore",
        &bench.address(""),
        "--target",
        "out",
        "--metadata-only",
    ]);
    assert_eq!(ran.code, 3, "{ran}");
    for (path, why) in [
        ("d/a", "not there"),
        ("pipe", "another kind"),
        ("b", "another kind"),
    ] {
        let told = |line: &str| line.contains(path) && line.contains(why);
        assert!(ran.err.lines().any(told), "{path}: {ran}");
    }
    bench.sh("test ! -e out/d/a; test -d out/pipe; test -L out/b");
    let after = std::fs::metadata("/etc/passwd").unwrap();
    assert_eq!(before.permissions(), after.permissions());
    // No target is made for it, and nothing that writes contents goes with it.
    for more in [
        &["--target", "nowhere"][..],
        &["--target", "out", "--delete"],
    ] {
        let words = [&["restore", "latest", "--metadata-only"][..], more].concat();
        assert_eq!(bench.run(&words).code, 2);
    }
    assert!(!bench.path("nowhere").exists());
}

/// Whoever may give a file of somebody else a name in his directory does not get it by that.
#[test]
fn a_file_of_somebody_else_with_a_name_in_the_tree_stays_his() {
    if !is_root() {
        return skipped("root");
    }
    let bench = Bench::new();
    bench.sh("cd source; echo mine >a; ln a b; chown 1234:1234 a; chmod 666 a");
    bench.backup();
    bench.sh("echo secret >other; chmod 600 other; cp -a source out; rm out/b; ln other out/b");
    let ran = bench.run(&[
        "restore",
        &bench.address(""),
        "--target",
        "out",
        "--metadata-only",
    ]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("somebody else's"), "{ran}");
    bench.sh("test \"$(stat -c '%u %a' other)\" = '0 600'");
}

#[test]
fn no_pack_is_read_for_metadata() {
    let bench = spoiled();
    bench.sh("head -c 3000000 /dev/urandom >source/large");
    bench.backup();
    bench.sh("cp source/large out/large; chmod 600 out/large");
    // Contents are in packs of their own.
    let packs = bench.repository().join("packs");
    let packs = packs.display();
    bench.sh(&format!(
        "find {packs} -size +1000k | xargs rm; test $(find {packs} -type f | wc -l) -gt 0"
    ));
    let whole = bench.run(&["restore", &bench.address(""), "--target", "elsewhere"]);
    assert_eq!(whole.code, 3, "contents are gone: {whole}");
    bench.ok(&[
        "restore",
        &bench.address(""),
        "--target",
        "out",
        "--metadata-only",
    ]);
    bench.sh("test $(stat -c %a out/large) = $(stat -c %a source/large)");
}

#[test]
fn a_snapshot_has_the_time_that_it_was_made_of() {
    let bench = Bench::new();
    bench.write("source/file", "of today");
    bench.backup();
    let time = ["--time", "2020-02-03 04:05:06"];
    bench.ok(&[&["backup", "source"][..], &time].concat());
    let all = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    let times: Vec<_> = all
        .iter()
        .map(|one| one["time"].as_str().unwrap())
        .collect();
    assert_eq!(times[0], "2020-02-03T04:05:06Z");
    assert!(
        times[1] > "2026",
        "what is of today is the newest: {times:?}"
    );
    assert!(all[0]["finished"].as_str().unwrap() > "2026");
    let ran = bench.run(&["backup", "source", "--time", "2100-01-01"]);
    assert_eq!(ran.code, 2, "{ran}");
    assert_eq!(
        bench.run(&["backup", "source", "--time", "yesterday"]).code,
        2
    );
}
