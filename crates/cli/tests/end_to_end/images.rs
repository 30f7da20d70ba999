//! Devices and images of them: `backup --image`, and back to files and devices.

use crate::bench::{Bench, have, is_root, skipped};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

/// An image of some megabytes with holes, and its bytes.
fn image(bench: &Bench, name: &str) -> Vec<u8> {
    bench.sh(&format!(
        "head -c 2500000 /dev/urandom > {name}; truncate -s 9000001 {name}
        head -c 30000 /dev/urandom | dd of={name} bs=1000 seek=7000 conv=notrunc status=none"
    ));
    fs::read(bench.path(name)).unwrap()
}

fn assert_is(path: &Path, bytes: &[u8]) {
    assert!(fs::read(path).unwrap() == bytes, "{}", path.display());
}

#[test]
fn an_image_is_a_file_to_whoever_looks_and_comes_back_to_a_file_or_into_a_directory() {
    let bench = Bench::new();
    let bytes = image(&bench, "disk.img");
    let ran = bench.ok(&["backup", "--image", "disk.img", "--json"]);
    let summary = ran.summary();
    assert_eq!(summary["files_new"], 1);
    let found = &summary["images"][0];
    assert_eq!(
        (&found["path"], &found["how"]),
        (&json!("/disk.img"), &json!("still"))
    );
    let listed = bench.ok(&["ls", "latest", "--recursive"]);
    assert_eq!(listed.text(), "/disk.img\n");
    let alone = bench.ok(&["ls", "latest:/disk.img"]);
    assert_eq!(alone.text(), "/disk.img\n");
    let found = bench.ok(&["find", "*"]).text();
    assert_eq!(found.lines().count(), 2, "{found}");
    let stats = bench.ok(&["stats", "latest"]).text();
    assert!(stats.contains("9,000,001"), "{stats}");
    let extent = bench.run(&["ls", "latest:/disk.img/0000000000000000"]);
    assert_eq!(extent.code, 1, "{extent}");

    // Not there, and no slash: the image itself. With a slash, or a directory: below it.
    for target in ["out.raw", "out.raw", "new/", "new"] {
        bench.ok(&["restore", "latest", "--target", target, "--verify"]);
    }
    bench.ok(&["restore", "latest:/disk.img", "--target", "named.raw"]);
    for restored in ["out.raw", "new/disk.img", "named.raw"] {
        assert_is(&bench.path(restored), &bytes);
    }
    bench.sh("test $(du -k out.raw | cut -f1) -lt 3000");
    bench.sh(&format!(
        "{} dump latest:/disk.img > dumped",
        bench_binary()
    ));
    assert_is(&bench.path("dumped"), &bytes);
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn an_image_that_was_frozen_says_so() {
    let bench = Bench::new();
    image(&bench, "disk.img");
    let how = |words: &[&str]| {
        let ran = bench.ok(&[&["backup", "--image", "disk.img", "--json"], words].concat());
        let how = ran.summary()["images"][0]["how"].clone();
        let snapshots = bench.ok(&["snapshots", "--json"]).text();
        assert!(snapshots.contains(how.as_str().unwrap()), "{snapshots}");
        how
    };
    assert_eq!(how(&["--frozen"]), "frozen");
    assert_eq!(how(&["--trust-metadata", "--frozen"]), "frozen");
    assert_eq!(how(&[]), "still");
    // Of files it says nothing.
    let ran = bench.run(&["backup", "--frozen", "."]);
    assert_eq!(ran.code, 2, "{ran}");
}

fn bench_binary() -> String {
    env!("CARGO_BIN_EXE_bale").to_owned()
}

#[test]
fn a_diff_names_the_image_that_changed_and_how_much_of_it_did() {
    let bench = Bench::new();
    image(&bench, "a.img");
    image(&bench, "b.img");
    let backup = ["backup", "--image", "a.img", "--image", "b.img"];
    bench.ok(&backup);
    bench.sh("printf x | dd of=b.img bs=1 seek=7000000 conv=notrunc status=none; touch a.img");
    bench.ok(&backup);
    let diff = bench.ok(&["diff", "latest~1", "latest", "--json"]);
    let changes = diff.of_type("change").into_iter();
    let named = changes.map(|change| (change["change"].clone(), change["path"].clone()));
    let named: Vec<_> = named.collect();
    assert_eq!(named, [(json!("M"), json!("/b.img"))]);
    let summary = diff.summary();
    assert_eq!(
        (&summary["changed"], &summary["metadata"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(summary["bytes_added"], 1 << 20);
    // Of several, a file takes none, and a directory all.
    let ran = bench.run(&["restore", "latest", "--target", "a.img"]);
    assert_eq!(ran.code, 1, "{ran}");
    bench.ok(&["restore", "latest", "--target", "all"]);
    bench.ok(&["restore", "latest", "--target", "one", "--include", "b.img"]);
    assert!(bench.path("all/a.img").exists() && bench.path("all/b.img").exists());
    assert!(!bench.path("one/a.img").exists() && bench.path("one/b.img").exists());
}

#[test]
fn what_makes_no_sense_of_an_image_is_refused_before_anything_is_done() {
    let bench = Bench::new();
    let bytes = image(&bench, "disk.img");
    for words in [
        &["backup", "--image", "disk.img", "source"][..],
        &["backup", "--image", "disk.img", "--exclude", "x"],
        &["backup", "source", "--allow-fuzzy"],
    ] {
        assert_eq!(bench.run(words).code, 2, "{words:?}");
    }
    let ran = bench.run(&["backup", "--image", "nothing.img"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert_eq!(bench.run(&["backup", "--image", "/dev/null"]).code, 1);
    // One that is there is stored, and the other named.
    let ran = bench.run(&["backup", "--image", "disk.img", "--image", "nothing.img"]);
    assert_eq!(ran.code, 3, "{ran}");
    fs::write(bench.path("longer"), [&bytes[..], b"more"].concat()).unwrap();
    let ran = bench.run(&["restore", "latest", "--target", "longer"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("--force"), "{ran}");
    assert_eq!(
        fs::metadata(bench.path("longer")).unwrap().len(),
        bytes.len() as u64 + 4
    );
    bench.ok(&["restore", "latest", "--target", "longer", "--force"]);
    assert_is(&bench.path("longer"), &bytes);
    let ran = bench.run(&["restore", "latest", "--target", "longer", "--delete"]);
    assert_eq!(ran.code, 2, "{ran}");
    let ran = bench.run(&["restore", "latest", "--to-ext4", "system.img"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("restore it by itself"), "{ran}");
}

/// The second reader knows what FORMAT.md says, and nothing of the code.
#[test]
fn the_second_reader_writes_the_same_image() {
    let modules = "import argon2, blake3, cryptography, pyarrow, zstandard";
    let python = Command::new("python3").args(["-c", modules]).output();
    if !python.is_ok_and(|output| output.status.success()) {
        return skipped("python3 with argon2-cffi, blake3, cryptography, pyarrow, zstandard");
    }
    let bench = Bench::new();
    image(&bench, "disk.img");
    bench.write("password", "a password\n");
    let backup = [
        "backup",
        "-r",
        "repository",
        "-p",
        "password",
        "--image",
        "disk.img",
    ];
    bench.ok(&["init", "-r", "repository", "-p", "password"]);
    bench.ok(&backup);
    // A block that is new, one that is other, and one that is zeros now.
    bench.sh(
        "printf x | dd of=disk.img bs=1 seek=8800000 conv=notrunc status=none
        printf x | dd of=disk.img bs=1 seek=5 conv=notrunc status=none
        dd if=/dev/zero of=disk.img bs=1M seek=1 count=1 conv=notrunc status=none",
    );
    bench.ok(&backup);
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/bale_read.py");
    let mut command = Command::new("python3");
    command
        .arg(&reader)
        .args(["repository", "--password-file", "password"]);
    command.args(["restore", "latest", "read"]);
    let read = bench.prepared(command).output().unwrap();
    let err = String::from_utf8_lossy(&read.stderr);
    assert_eq!(read.status.code(), Some(0), "{err}");
    assert_is(
        &bench.path("read/disk.img"),
        &fs::read(bench.path("disk.img")).unwrap(),
    );
}

#[test]
fn a_device_is_read_and_written_and_never_while_it_is_mounted() {
    if !is_root() || !have("losetup") || !have("mkfs.ext4") || !have("mkfs.xfs") {
        return skipped("loop devices need root, losetup, mkfs.ext4 and mkfs.xfs");
    }
    for make in ["mkfs.ext4 -q", "mkfs.xfs -q -f"] {
        let bench = Bench::new();
        let script = r#"
            truncate -s 320M disk.img; truncate -s 320M other.img; mkdir at
            trap 'umount at 2>/dev/null || true; losetup -d $d $o 2>/dev/null || true' EXIT
            d=$(losetup --show -f disk.img); o=$(losetup --show -f other.img)
            MAKE $d; mount $d at; cp -a /etc/services at/ || echo x > at/services
            head -c 3000000 /dev/urandom > at/noise; sync
            # In use: stored, said, and exit code 3, unless that is allowed.
            r=0; $bale backup --image $d 2> err || r=$?; test $r = 3; grep -q fuzzy err
            $bale backup --image $d --allow-fuzzy
            $bale snapshots | grep -q '\[fuzzy\]'
            # Never onto what is mounted.
            r=0; $bale restore latest --target $d 2> err || r=$?; test $r = 3; grep -q mounted err
            umount at
            $bale backup --image $d 2> err; grep -q unmounted err
            name=$(basename $d).raw
            $bale restore latest --target out.raw --verify; cmp out.raw $d
            # Onto a device with other things, and again with nothing to write.
            head -c 20000000 /dev/urandom | dd of=$o bs=1M seek=100 conv=notrunc status=none
            $bale restore latest:/$name --target $o --verify; cmp $o $d
            $bale --json restore latest:/$name --target $o | grep -q '"bytes":0,'
            mount -o ro $o at; cmp at/noise <(head -c 3000000 at/noise); umount at
            # Smaller than the image.
            losetup -d $o; truncate -s 100M other.img; o=$(losetup --show -f other.img)
            r=0; $bale restore latest --target $o 2> err || r=$?; test $r = 3
            grep -q 'the device has' err
            $bale check --read-data"#;
        let script = script.replace("MAKE", make);
        bench.sh(&format!("bale={}; {script}", bench_binary()));
    }
}
