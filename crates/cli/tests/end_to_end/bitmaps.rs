//! What the dirty bitmap of an export says changed: `backup --image 'nbd://...?bitmap=NAME'`.

use crate::bench::Bench;
use crate::exports::{Server, has_all};
use std::fs;

/// A disk with some megabytes, and the words of a server of it.
pub fn disk(bench: &Bench) -> Vec<&'static str> {
    bench.sh(
        "head -c 20M /dev/urandom > disk.raw; truncate -s 24M disk.raw
        qemu-img convert -f raw -O qcow2 disk.raw disk.qcow2",
    );
    let words = [
        "--persistent",
        "--shared=16",
        "--read-only",
        "--format=qcow2",
    ];
    [&["qemu-nbd"][..], &words].concat()
}

/// What is in the disk now.
pub fn content(bench: &Bench) -> Vec<u8> {
    bench.sh("qemu-img convert -U -f qcow2 -O raw disk.qcow2 now.raw");
    fs::read(bench.path("now.raw")).unwrap()
}

fn assert_latest_is(bench: &Bench, bytes: &[u8]) {
    let restore = [
        "restore", "latest", "--target", "restored", "--force", "--verify",
    ];
    bench.ok(&restore);
    assert!(fs::read(bench.path("restored")).unwrap() == bytes);
}

#[test]
fn a_bitmap_of_an_export_saves_reading_and_is_of_the_snapshot_that_is_named() {
    if !has_all(&["qemu-nbd", "qemu-img", "qemu-io"]) {
        return;
    }
    let bench = Bench::new();
    let qemu = disk(&bench);
    let uri = "nbd+unix:///?socket=s.socket";
    let backup = ["backup", "--point-in-time", "--json"];
    {
        let _server = Server::start(&bench, "s", &[&qemu[..], &["disk.qcow2"]].concat());
        bench.ok(&[&backup[..], &["--image", uri]].concat());
    }
    bench.sh("rm s.socket; qemu-img bitmap --add -g 64K disk.qcow2 b0
        qemu-io -f qcow2 -c 'write -q -P 7 5M 100k' -c 'write -q -z 9M 1M' \
            -c 'discard -q 12M 1M' -c 'write -q -P 8 23M 512' disk.qcow2");
    let words = [&qemu[..], &["--bitmap=b0", "disk.qcow2"]].concat();
    let _server = Server::start(&bench, "s", &words);
    let bitmap = format!("{uri}&bitmap=b0");
    let since = ["--image", &bitmap, "--changes-since", "latest"];
    let ran = bench.ok(&[&backup[..], &since].concat());
    let summary = ran.summary();
    // Of four blocks that changed two are zeros, as the server says.
    assert_eq!(summary["bytes_read"], 2 << 20);
    assert_eq!(summary["images"][0]["tracker"], "bitmap");
    // It is of the same source as one without a bitmap.
    let source = format!("nbd+unix:///?socket={}", bench.path("s.socket").display());
    assert_eq!(summary["images"][0]["source"], source);
    assert_latest_is(&bench, &content(&bench));
    // A snapshot that does not have the image is nothing to go on from.
    bench.write("source/a", "a");
    bench.ok(&["backup", "source"]);
    let ran = bench.ok(&[&backup[..], &since].concat());
    assert!(
        ran.summary()["bytes_read"].as_u64() > Some(18 << 20),
        "{ran}"
    );
    assert!(ran.text().contains("everything is read"), "{ran}");
    assert_latest_is(&bench, &content(&bench));
}

#[test]
fn a_bitmap_that_is_not_there_or_of_nothing_stops_the_backup_before_anything_is_stored() {
    if !has_all(&["qemu-nbd", "qemu-img"]) {
        return;
    }
    let bench = Bench::new();
    let qemu = disk(&bench);
    let uri = "nbd+unix:///?socket=s.socket";
    let _server = Server::start(&bench, "s", &[&qemu[..], &["disk.qcow2"]].concat());
    bench.ok(&["backup", "--image", uri, "--point-in-time"]);
    let bitmap = format!("{uri}&bitmap=b9");
    let cases: [(&[&str], i32, &str); 7] = [
        (
            &["--image", &bitmap, "--changes-since", "latest"],
            1,
            "no context qemu:dirty-bitmap:b9",
        ),
        (&["--image", &bitmap], 2, "--changes-since names it"),
        (
            &["--image", uri, "--changes-since", "latest"],
            2,
            "there is neither",
        ),
        (
            &[
                "--image",
                &bitmap,
                "--changes",
                "json:x",
                "--changes-since",
                "latest",
            ],
            2,
            "one of them",
        ),
        (
            &["--image", &bitmap, "--changes-only"],
            2,
            "--changes-since",
        ),
        (
            &["--image", &bitmap, "--changes-since", "latest", "--force"],
            2,
            "--force",
        ),
        (
            &[
                "--image",
                "nbd+unix:///?socket=s.socket&bitmap=",
                "--changes-since",
                "latest",
            ],
            2,
            "there is neither",
        ),
    ];
    for (words, code, said) in cases {
        let ran = bench.run(&[&["backup", "--point-in-time"], words].concat());
        assert_eq!(ran.code, code, "{words:?}: {ran}");
        assert!(ran.err.contains(said), "{words:?}: {ran}");
    }
    let snapshots = bench.ok(&["snapshots", "--json"]).of_type("snapshot");
    assert_eq!(snapshots.len(), 1);
}

/// QEMU's own filter, as Proxmox VE has it: of a disk what is in a bitmap can be read, as it was
/// when the filter was put there, and nothing else.
pub fn changes_alone(bench: &Bench) -> Server {
    bench.sh(
        "rm -f c.socket nbd.sock; qemu-img create -q -f qcow2 fleece.qcow2 24M
        qemu-img bitmap --disable disk.qcow2 b0",
    );
    let server = Server::start(
        bench,
        "c",
        &[
            "qemu-storage-daemon",
            "--blockdev",
            "qcow2,node-name=disk,file.driver=file,file.filename=disk.qcow2",
            "--blockdev",
            "qcow2,node-name=fleece,file.driver=file,file.filename=fleece.qcow2",
            "--blockdev",
            "copy-before-write,node-name=moment,file=disk,target=fleece,bitmap.node=disk,\
             bitmap.name=b0",
            "--blockdev",
            "snapshot-access,node-name=access,file=moment",
            "--nbd-server",
            "addr.type=unix,addr.path=nbd.sock,max-connections=16",
            "--export",
            "nbd,id=e,node-name=access,name=drive-scsi0,writable=on,bitmaps.0.node=disk,\
             bitmaps.0.name=b0",
        ],
    );
    bench.sh("for i in $(seq 1000); do test -S nbd.sock && exit; sleep 0.01; done; exit 1");
    server
}

#[test]
fn of_a_server_that_gives_nothing_but_what_changed_whole_snapshots_are_made() {
    if !has_all(&[
        "qemu-storage-daemon",
        "qemu-nbd",
        "qemu-img",
        "qemu-io",
        "nbdinfo",
    ]) {
        return;
    }
    let bench = Bench::new();
    let qemu = disk(&bench);
    let uri = "nbd+unix:///drive-scsi0?socket=nbd.sock";
    {
        let words = ["--export-name=drive-scsi0", "disk.qcow2"];
        let _server = Server::start(&bench, "s", &[&qemu[..], &words].concat());
        bench.sh("ln -s s.socket nbd.sock");
        bench.ok(&["backup", "--image", uri, "--point-in-time"]);
    }
    bench.sh("qemu-img bitmap --add -g 64K disk.qcow2 b0
        qemu-io -f qcow2 -c 'write -q -P 7 5M 100k' -c 'write -q -z 9M 1M' \
            -c 'discard -q 12M 70k' -c 'write -q -P 8 23M 512' disk.qcow2");
    let expected = content(&bench);
    let bitmap = format!("{uri}&bitmap=b0");
    let part = [
        "backup",
        "--point-in-time",
        "--image",
        &bitmap,
        "--changes-since",
        "latest",
    ];
    let server = changes_alone(&bench);
    // What the test relies on: this server fails everything else.
    bench.sh(
        "nbdinfo --map=qemu:dirty-bitmap:b0 'nbd+unix:///drive-scsi0?socket=nbd.sock' >&2
        ! nbdinfo --map 'nbd+unix:///drive-scsi0?socket=nbd.sock'
        ! qemu-io -r -f raw -c 'read 0 64k' 'nbd+unix:///drive-scsi0?socket=nbd.sock'",
    );
    let ran = bench.ok(&[&part[..], &["--changes-only", "--json"]].concat());
    assert_eq!(ran.summary()["images"][0]["tracker"], "bitmap");
    assert_latest_is(&bench, &expected);
    // Nothing changed: nothing at all can be read.
    drop(server);
    bench.sh("qemu-img bitmap --remove disk.qcow2 b0; qemu-img bitmap --add disk.qcow2 b0");
    let _server = changes_alone(&bench);
    bench.ok(&[&part[..], &["--changes-only"]].concat());
    assert_latest_is(&bench, &expected);
    // A first backup reads all, and cannot here.
    bench.write("source/a", "a");
    bench.ok(&["backup", "source"]);
    let ran = bench.run(&[&part[..], &["--changes-only"]].concat());
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("without --changes-only"), "{ran}");
    bench.ok(&["check", "--read-data"]);
}
