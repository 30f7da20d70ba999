//! Images of formats of QEMU as sources: the disk in them, and no file that their owner did not
//! mean.

use crate::bench::{Bench, have, skipped};
use serde_json::json;
use std::fs;
use std::process::{Command, Stdio};

fn has_qemu() -> bool {
    let has = have("qemu-nbd") && have("qemu-img") && have("qemu-io");
    if !has {
        skipped("qemu-nbd, qemu-img, qemu-io not installed");
    }
    has
}

/// A bench with `disk.img` of some megabytes with holes, and its bytes.
fn bench() -> (Bench, Vec<u8>) {
    let bench = Bench::new();
    bench.sh("head -c 2500000 /dev/urandom > disk.img; truncate -s 8M disk.img");
    let bytes = fs::read(bench.path("disk.img")).unwrap();
    (bench, bytes)
}

fn assert_restores(bench: &Bench, address: &str, bytes: &[u8]) {
    let _was_not_there = fs::remove_file(bench.path("restored"));
    bench.ok(&["restore", address, "--target", "restored", "--verify"]);
    assert!(
        fs::read(bench.path("restored")).unwrap() == bytes,
        "{address}"
    );
}

#[test]
fn the_disk_in_an_image_is_stored_by_its_name_or_by_the_format_that_was_said() {
    if !has_qemu() {
        return;
    }
    let (bench, bytes) = bench();
    for format in ["qcow2", "vmdk", "vdi", "vhdx"] {
        bench.sh(&format!(
            "qemu-img convert -f raw -O {format} disk.img d.{format}; cp d.{format} {format}.disk"
        ));
        for (name, words) in [
            (format!("d.{format}"), vec![]),
            (format!("{format}.disk"), vec!["--image-format", format]),
        ] {
            let backup = [&["backup", "--json", "--image", &name], &words[..]].concat();
            let summary = bench.ok(&backup).summary();
            let found = &summary["images"][0];
            let path = format!("/{name}.raw");
            assert_eq!(
                (&found["path"], &found["how"]),
                (&json!(path), &json!("still"))
            );
            let again = bench.ok(&backup).summary();
            assert_eq!(again["files_unmodified"], 1, "{name}");
            assert_restores(&bench, "latest", &bytes);
        }
        // The file as it is, whatever it is called, and a format that it is not.
        let name = format!("d.{format}");
        bench.ok(&["backup", "--image", &name, "--image-format", "raw"]);
        let file = fs::read(bench.path(&name)).unwrap();
        assert_restores(&bench, &format!("latest:/{name}"), &file);
        let ran = bench.run(&["backup", "--image", "disk.img", "--image-format", format]);
        assert_eq!(ran.code, 1, "{ran}");
        assert!(
            ran.err.contains(&format!("it is no {format} image")),
            "{ran}"
        );
    }
    bench.ok(&["check", "--read-data"]);
    let left = bench
        .prepared(Command::new("pgrep"))
        .args(["-f", "qemu-nbd.*d.qcow2"])
        .output();
    assert!(left.unwrap().stdout.is_empty());
    let ran = bench.run(&["backup", "--image", "nbd://h/x", "--image-format", "qcow2"]);
    assert_eq!(ran.code, 2, "{ran}");
}

#[test]
fn what_is_in_a_raw_image_never_decides_what_is_read() {
    if !has_qemu() {
        return;
    }
    let (bench, _) = bench();
    // A guest has written what looks like an image that is based on a file of the host.
    bench.sh("echo secret > secret; truncate -s 1M secret
        qemu-img create -q -f qcow2 -b secret -F raw forged.qcow2
        dd if=forged.qcow2 of=disk.img conv=notrunc status=none");
    bench.ok(&["backup", "--image", "disk.img"]);
    assert_restores(&bench, "latest", &fs::read(bench.path("disk.img")).unwrap());
}

#[test]
fn an_image_is_made_of_files_in_its_directory_unless_others_are_allowed() {
    if !has_qemu() {
        return;
    }
    let (bench, bytes) = bench();
    bench.sh(
        "mkdir vm elsewhere; cp disk.img vm/base.img; cp disk.img elsewhere/base.img
        qemu-img create -q -f qcow2 -b base.img -F raw vm/near.qcow2
        qemu-img create -q -f qcow2 -b ../elsewhere/base.img -F raw vm/far.qcow2
        for name in near far; do qemu-io -c 'write -P 0x33 1M 64k' vm/$name.qcow2 > /dev/null; done",
    );
    let mut expected = bytes;
    expected[1 << 20..(1 << 20) + (64 << 10)].fill(0x33);
    bench.ok(&["backup", "--image", "vm/near.qcow2"]);
    assert_restores(&bench, "latest", &expected);
    let ran = bench.run(&["backup", "--image", "vm/far.qcow2"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("not in its directory"), "{ran}");
    bench.ok(&[
        "backup",
        "--image",
        "vm/far.qcow2",
        "--allow-files-elsewhere",
    ]);
    assert_restores(&bench, "latest", &expected);
}

#[test]
fn an_image_that_a_machine_has_open_is_refused_and_named() {
    if !has_qemu() {
        return;
    }
    let (bench, bytes) = bench();
    bench.sh("qemu-img convert -f raw -O qcow2 disk.img vm.qcow2");
    let mut machine = bench
        .prepared(Command::new("qemu-io"))
        .arg("vm.qcow2")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It holds its lock once it answers.
    let mut input = machine.stdin.take().unwrap();
    std::io::Write::write_all(&mut input, b"write -P 7 0 4k\n").unwrap();
    let mut output = std::io::BufReader::new(machine.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("wrote") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut output, &mut line).unwrap() > 0);
    }
    let ran = bench.run(&["backup", "--image", "vm.qcow2", "--image", "disk.img"]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("lock"), "{ran}");
    drop(input);
    machine.wait().unwrap();
    let mut expected = bytes;
    expected[..4096].fill(7);
    bench.ok(&["backup", "--image", "vm.qcow2"]);
    assert_restores(&bench, "latest", &expected);
}
