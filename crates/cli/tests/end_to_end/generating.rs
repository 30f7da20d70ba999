//! Trees to test with: into a directory, into an image, again the same, aged, and compared with
//! their list of hashes.

use crate::bench::{Bench, have, is_root, skipped};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const SMALL: &str = "-d 2 -D 3 -r 1 -R 2 -f 3 -F 9 -s 511 -S 3000 -l 3 -L 8 -P 1 --symlinks 5 \
    --sparse 5 --xattrs 10 --odd-names 10 --owners 3 --ages 900 --links 3";

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
        &["gen", "-t", "missing", "--change", "5"],
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

const AGED: [&str; 8] = [
    "--change", "10", "--new", "5", "--delete", "5", "--seed", "9",
];

/// Loop devices need root, and what they are attached with.
fn cannot_mount() -> bool {
    if is_root() && have("losetup") {
        return false;
    }
    skipped("ageing an image needs root and losetup");
    true
}

fn nothing_is_attached(bench: &Bench) {
    let place = bench.path("").display().to_string();
    let used = || {
        let loops = Command::new("losetup").arg("-l").output().unwrap().stdout;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        format!("{}{mounts}", String::from_utf8_lossy(&loops)).contains(&place)
    };
    // The kernel lets go of a loop device a moment after its last user did.
    for _ in 0..1_200 {
        if !used() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("a loop device or a mount was left behind");
}

fn aged(bench: &Bench, target: &str, manifest: &str) -> serde_json::Value {
    let mut words = vec!["gen", "-t", target, "--manifest", manifest, "--json"];
    words.extend(AGED);
    let mut summary = bench.ok(&words).summary();
    summary["seconds"] = 0.into();
    summary
}

#[test]
fn a_tree_in_an_image_is_aged_as_it_would_be_in_a_directory() {
    if cannot_mount() {
        return;
    }
    let bench = Bench::new();
    let tree = SMALL.replace("--odd-names 10", "--odd-names 10 --count 400");
    fs::create_dir(bench.path("tree")).unwrap();
    bench.ok(&words(&["-t", "tree"], &tree));
    bench.ok(&words(&["--to-ext4", "one.img", "--fs-size", "64M"], &tree));
    fs::copy(bench.path("one.img"), bench.path("two.img")).unwrap();
    let in_directory = aged(&bench, "tree", "list");
    assert!(
        in_directory["changed"].as_u64().unwrap() > 0,
        "{in_directory}"
    );
    assert_eq!(aged(&bench, "one.img", "one"), in_directory);
    assert_eq!(aged(&bench, "two.img", "two"), in_directory);
    bench.sh("cmp list one; cmp list two; e2fsck -fn one.img; e2fsck -fn two.img");
    bench.ok(&["gen", "-t", "one.img", "--verify-manifest", "list"]);
    // --to-ext4 names an image as well; another seed has another result.
    bench.ok(&[
        "gen",
        "--to-ext4",
        "two.img",
        "--change",
        "10",
        "--seed",
        "4",
    ]);
    let differs = bench.run(&["gen", "-t", "two.img", "--verify-manifest", "list"]);
    assert_eq!(differs.code, 4, "{differs}");
    nothing_is_attached(&bench);
}

#[test]
fn an_image_that_cannot_be_aged_is_refused_and_why() {
    if cannot_mount() {
        return;
    }
    let bench = Bench::new();
    bench.write("text", "no file system");
    let refused = bench.run(&["gen", "-t", "text", "--change", "5"]);
    assert!(
        refused.code == 1 && refused.err.contains("holds no"),
        "{refused}"
    );
    bench.ok(&words(&["--to-ext4", "one.img", "--count", "50"], SMALL));
    bench.sh("mkdir at; mount -o loop one.img at");
    let refused = bench.run(&["gen", "-t", "one.img", "--change", "5"]);
    bench.sh("umount at");
    assert!(
        refused.code == 1 && refused.err.contains("is behind"),
        "{refused}"
    );
    if !have("setpriv") {
        return skipped("ageing without root needs setpriv");
    }
    let everybody = |path: &Path| {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    };
    fs::copy(crate::bench::binary(), bench.path("bale")).unwrap();
    everybody(&bench.path("."));
    everybody(&bench.path("one.img"));
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(bench.path("bale"))
        .args(["gen", "-t", "one.img", "--change", "5"]);
    let refused = crate::bench::Ran::from(bench.prepared(command).output().unwrap());
    assert!(
        refused.code == 1 && refused.err.contains("needs root") && refused.err.contains("-t"),
        "{refused}"
    );
    nothing_is_attached(&bench);
}

#[test]
fn a_kill_while_an_image_is_aged_leaves_neither_mount_nor_loop_device() {
    if cannot_mount() {
        return;
    }
    let bench = Bench::new();
    bench.ok(&words(
        &[
            "--to-ext4",
            "one.img",
            "--count",
            "3000",
            "--fs-size",
            "128M",
        ],
        SMALL,
    ));
    for round in 1..=8u64 {
        let mut command = bench.command();
        let mut child = command
            .args(["gen", "-t", "one.img", "--change", "50", "--seed", "1"])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It is mounted when a descriptor of its own is there; before that, losetup may be at work.
        let descriptors = format!("/proc/{}/fd", child.id());
        let is_mounted = || {
            fs::read_dir(&descriptors).is_ok_and(|fds| {
                fds.flatten()
                    .any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new("/")))
            })
        };
        while !is_mounted() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round * 3));
        child.kill().unwrap();
        child.wait().unwrap();
        nothing_is_attached(&bench);
    }
    bench.sh("e2fsck -fy one.img >/dev/null || [ $? = 1 ]; e2fsck -fn one.img");
}

#[test]
fn help_of_commands_without_a_repository_is_silent_about_repositories() {
    let bench = Bench::new();
    for command in ["gen", "completions", "man"] {
        let text = bench.ok(&[command, "--help"]).text();
        for word in [
            "--password",
            "--key-file",
            "--cache-dir",
            "--repo",
            "--cold",
            "--pack-size",
            "--limit-upload",
            "--cache-size",
            "BALE_REPOSITORY",
        ] {
            assert!(!text.contains(word), "{command} --help: {word}");
        }
        assert!(text.contains("Example"), "{command} --help has no example");
    }
    let text = bench.ok(&["restore", "--help"]).text();
    assert!(text.contains("--password-file") && text.contains("--key-file"));
}
