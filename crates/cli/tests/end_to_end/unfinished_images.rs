//! What a killed `restore --image-format` leaves, and who removes it.

use crate::bench::{Bench, have, skipped};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

/// A `qemu-img` that writes something, and then never ends.
const ENDLESS: &str = "#!/bin/sh\n\
    for last; do :; done; echo half >\"$last\"; echo $$ >\"$PWD/writes.new\"\n\
    mv writes.new writes; exec sleep 100000\n";

/// A restore whose program writes, until it is killed.
struct Endless {
    child: Child,
    program: String,
}

impl Endless {
    fn start(bench: &Bench, target: &str) -> Endless {
        let directory = bench.path("endless");
        fs::create_dir_all(&directory).unwrap();
        let program = directory.join("qemu-img");
        fs::write(&program, ENDLESS).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut command = bench.command();
        command
            .args(["restore", "latest", "--target", target])
            .args(["--image-format", "qcow2"])
            .env("PATH", format!("{}:{path}", directory.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().unwrap();
        bench.sh("until test -e writes; do sleep 0.01; done");
        let program = fs::read_to_string(bench.path("writes")).unwrap();
        bench.sh("rm writes");
        Endless { child, program }
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let kill = std::process::Command::new("kill")
            .args(["-9", self.program.trim()])
            .status();
        assert!(kill.unwrap().success());
    }
}

fn hidden(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.path("images")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter(|name| name.starts_with(".bale-image-"))
        .collect()
}

#[test]
fn what_a_killed_restore_left_is_removed_by_the_next_one_and_what_is_being_written_is_not() {
    if !have("qemu-img") {
        return skipped("qemu-img (qemu-utils)");
    }
    let bench = Bench::new();
    bench.sh("head -c 3M /dev/urandom > disk.img; mkdir images");
    bench.ok(&["backup", "--image", "disk.img"]);
    drop(Endless::start(&bench, "images/killed.qcow2"));
    let left = hidden(&bench);
    assert_eq!(left.len(), 1, "{left:?}");
    let running = Endless::start(&bench, "images/running.qcow2");
    let restore = |target: &str| {
        bench.ok(&[
            "restore",
            "latest",
            "--target",
            target,
            "--image-format",
            "qcow2",
        ]);
        bench.sh(&format!("qemu-img compare -F raw {target} disk.img"));
    };
    let held = hidden(&bench);
    assert!(held.len() == 1 && held != left, "{held:?} {left:?}");
    // Of others, and of somebody who has put something there.
    bench.sh(
        "mkdir -p images/.bale-image-mine/kept; touch images/.bale-image-file
        mkdir images/.bale-image-two; touch images/.bale-image-two/{a,b}
        mkdir images/.bale-image-of-another; chown 12345 images/.bale-image-of-another || true",
    );
    restore("images/good.qcow2");
    let mut expected = vec![
        ".bale-image-file".to_owned(),
        ".bale-image-mine".to_owned(),
        ".bale-image-two".to_owned(),
    ];
    if bale_testkit::is_root() {
        expected.push(".bale-image-of-another".to_owned());
    }
    let assert_left = |more: &[String]| {
        let mut found = hidden(&bench);
        let mut expected = [&expected[..], more].concat();
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
    };
    assert_left(&held);
    drop(running);
    restore("images/another.qcow2");
    assert_left(&[]);
}
