//! The plug-in for Proxmox VE (contrib/proxmox), called as vzdump and qmrestore call it.

use crate::bench::{Bench, Ran, binary};
use crate::bitmaps::{changes_alone, content, disk};
use crate::exports::{Server, has_all};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A node of a cluster with one storage, and a machine with two disks.
struct Node {
    bench: Bench,
    storage: Value,
}

impl Node {
    fn new() -> Node {
        let bench = Bench::new();
        bench.write("password", "secret\n");
        bench.ok(&[
            "--repo",
            "repository",
            "--password-file",
            "password",
            "init",
        ]);
        let at = |name: &str| bench.path(name).display().to_string();
        let storage = json!({
            "bale-repository": at("repository"),
            "bale-password-file": at("password"),
            "bale-command": binary(),
            "bale-cache-directory": at("cache"),
            "bale-run-directory": at("run"),
            "bale-state-directory": at("state"),
        });
        Node { bench, storage }
    }

    fn call(&self, words: &[&str]) -> Ran {
        let caller =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/proxmox/test/caller.pl");
        let mut command = self.bench.prepared(Command::new("perl"));
        command
            .arg(caller)
            .arg(self.storage.to_string())
            .args(words);
        Ran::from(command.output().unwrap())
    }

    fn ok(&self, words: &[&str]) -> String {
        let ran = self.call(words);
        assert_eq!(ran.code, 0, "{ran}");
        ran.text()
    }

    /// One disk with a bitmap in this mode, and one without.
    fn backup(&self, time: u64, mode: &str, socket: &str) -> Ran {
        let at = |name: &str| self.bench.path(name).display().to_string();
        let volumes = json!({
            "drive-scsi0": {
                "size": 24 << 20, "bitmap-mode": mode, "nbd-path": at(socket),
                "bitmap-name": "b0",
            },
            "drive-efidisk0": {
                "size": 540_672, "bitmap-mode": "new", "nbd-path": at("efi.socket"),
                "bitmap-name": "b0",
            },
        });
        self.call(&["backup", "100", &time.to_string(), &volumes.to_string()])
    }

    fn assert_restores(&self, archive: &str, disk: &[u8]) {
        self.bench.sh("rm -rf back; mkdir back");
        let directory = self.bench.path("back").display().to_string();
        self.ok(&["restore", archive, &directory]);
        let read = |name: &str| fs::read(self.bench.path("back").join(name)).unwrap();
        assert!(read("drive-scsi0") == disk);
        assert!(read("drive-efidisk0") == fs::read(self.bench.path("efi.raw")).unwrap());
        assert_eq!(read("guest.conf"), b"name: web\nmemory: 512\n");
        assert_eq!(read("firewall.conf"), b"[OPTIONS]\nenable: 1\n");
    }

    fn archives(&self) -> Vec<Value> {
        let listed = self.ok(&["list"]);
        let lines = listed.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

#[test]
fn machines_are_backed_up_by_what_changed_and_come_back_with_their_configuration() {
    let programs = [
        "qemu-storage-daemon",
        "qemu-nbd",
        "qemu-img",
        "qemu-io",
        "perl",
    ];
    if !has_all(&programs) {
        return;
    }
    let node = Node::new();
    let bench = &node.bench;
    let qemu = disk(bench);
    bench.sh("head -c 540672 /dev/urandom > efi.raw");
    let raw = [
        "qemu-nbd",
        "--persistent",
        "--shared=16",
        "--read-only",
        "--format=raw",
    ];
    let words = [&raw[..], &["--export-name=drive-efidisk0", "efi.raw"]].concat();
    let _efi = Server::start(bench, "efi", &words);
    let first = content(bench);
    {
        let words = [&qemu[..], &["--export-name=drive-scsi0", "disk.qcow2"]].concat();
        let _server = Server::start(bench, "all", &words);
        let ran = node.backup(1_764_095_582, "new", "all.socket");
        assert_eq!(ran.code, 0, "{ran}");
        assert!(ran.text().contains("mode drive-scsi0 new"), "{ran}");
    }
    let change =
        "qemu-io -f qcow2 -c 'write -q -P 7 5M 100k' -c 'write -q -P 8 23M 512' disk.qcow2";
    bench.sh(&format!(
        "qemu-img bitmap --add -g 64K disk.qcow2 b0; {change}"
    ));
    let second = content(bench);
    let server = changes_alone(bench);
    let ran = node.backup(1_764_181_982, "reuse", "nbd.sock");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.text().contains("mode drive-scsi0 use"), "{ran}");
    drop(server);
    let (old, new) = (
        "backup/vm/100/2025-11-25T18:33:02Z",
        "backup/vm/100/2025-11-26T18:33:02Z",
    );
    let archives = node.archives();
    let names: Vec<&str> = archives
        .iter()
        .map(|it| it["volid"].as_str().unwrap())
        .collect();
    assert_eq!(names, [format!("vault:{old}"), format!("vault:{new}")]);
    assert_eq!(archives[1]["ctime"], 1_764_181_982);
    assert_eq!(archives[1]["vmid"], 100);
    node.assert_restores(old, &first);
    node.assert_restores(new, &second);
    // A run that fails leaves what the bitmap is relative to as it was.
    let state = fs::read(bench.path("state/vault/100.json")).unwrap();
    let ran = node.backup(1_764_268_382, "reuse", "nobody.socket");
    assert_ne!(ran.code, 0, "{ran}");
    assert_eq!(fs::read(bench.path("state/vault/100.json")).unwrap(), state);
    // An archive less, and the other one is whole. Of the newest one the bitmap is worth nothing.
    node.ok(&["free", old]);
    node.assert_restores(new, &second);
    node.ok(&["free", new]);
    // What is left is of the task that failed: one disk of two, which says so.
    let archives = node.archives();
    let notes: Vec<&str> = archives
        .iter()
        .map(|it| it["notes"].as_str().unwrap())
        .collect();
    assert_eq!(notes, ["incomplete"]);
    bench.sh("qemu-img bitmap --remove disk.qcow2 b0");
    let words = [&qemu[..], &["--export-name=drive-scsi0", "disk.qcow2"]].concat();
    bench.sh("rm all.socket");
    let _server = Server::start(bench, "all", &words);
    let ran = node.backup(1_764_354_782, "new", "all.socket");
    assert_eq!(ran.code, 0, "{ran}");
    assert!(ran.text().contains("mode drive-scsi0 new"), "{ran}");
    assert!(node.ok(&["status"]).ends_with(" 1\n"));
}

#[test]
fn an_archive_that_is_incomplete_fails_its_task_and_is_nothing_to_go_on_from() {
    if !has_all(&["nbdkit", "qemu-nbd", "perl"]) {
        return;
    }
    let node = Node::new();
    let bench = &node.bench;
    bench.sh("head -c 540672 /dev/urandom > efi.raw");
    let words = [
        "qemu-nbd",
        "--persistent",
        "--shared=16",
        "--read-only",
        "--format=raw",
        "--export-name=drive-efidisk0",
        "efi.raw",
    ];
    let _efi = Server::start(bench, "efi", &words);
    // It cannot give its second block.
    let plugin = "pread=case $4 in 1048576) echo EIO x >&2; exit 1;; esac
        dd if=/dev/urandom iflag=count_bytes count=$3 status=none";
    let _server = Server::nbdkit(bench, "bad", &["eval", "get_size=echo 25165824", plugin]);
    let ran = node.backup(1_764_095_582, "new", "bad.socket");
    assert_ne!(ran.code, 0, "{ran}");
    assert!(ran.err.contains("incomplete"), "{ran}");
    assert!(ran.err.contains("bytes 1048576 to "), "{ran}");
    assert!(!bench.path("state/vault/100.json").exists());
    assert_eq!(node.archives()[0]["notes"], "incomplete");
    assert!(node.ok(&["list"]).contains("incomplete"));
}
