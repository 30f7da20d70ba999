//! Exports of the NBD servers that people have as sources: `backup --image nbd://...`.

use crate::bench::{Bench, have, skipped};
use bale_testkit::TestCertificate;
use serde_json::json;
use std::fs;
use std::process::{Child, Command, Stdio};

/// Hands a listening socket, which is its input, to a program: it can be connected to at once.
const HAND_OVER: &str = "exec 3<&0 </dev/null || exit; LISTEN_PID=$$; LISTEN_FDS=1; \
                         export LISTEN_PID LISTEN_FDS; exec \"$@\"";

/// A server of somebody else, at `NAME.socket`; ended with the test.
pub struct Server {
    child: Child,
}

impl Server {
    pub fn start(bench: &Bench, name: &str, program: &[&str]) -> Server {
        let socket = bench.path(&format!("{name}.socket"));
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        let child = Command::new("/bin/sh")
            .args(["-c", HAND_OVER, "sh"])
            .args(program)
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir(bench.path("."))
            .spawn()
            .unwrap();
        Server { child }
    }

    pub fn nbdkit(bench: &Bench, name: &str, words: &[&str]) -> Server {
        Server::start(bench, name, &[&["nbdkit", "--foreground"], words].concat())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

pub fn has_all(programs: &[&str]) -> bool {
    let missing: Vec<_> = programs.iter().filter(|it| !have(it)).collect();
    if !missing.is_empty() {
        skipped(&format!("{missing:?} not installed"));
    }
    missing.is_empty()
}

/// Some megabytes with holes.
pub fn image(bench: &Bench, name: &str) -> Vec<u8> {
    bench.sh(&format!(
        "head -c 2500000 /dev/urandom > {name}; truncate -s 9000448 {name}
        head -c 30000 /dev/urandom | dd of={name} bs=1000 seek=7000 conv=notrunc status=none"
    ));
    fs::read(bench.path(name)).unwrap()
}

#[test]
fn exports_of_the_servers_that_people_have_are_images() {
    if !has_all(&["nbdkit", "qemu-nbd", "qemu-img"]) {
        return;
    }
    let bench = Bench::new();
    let bytes = image(&bench, "disk.img");
    bench.sh("qemu-img convert -f raw -O qcow2 disk.img disk.qcow2");
    let qemu = ["qemu-nbd", "--persistent", "--shared=16", "--read-only"];
    let _servers = [
        Server::start(
            &bench,
            "raw",
            &[&qemu[..], &["--format=raw", "disk.img"]].concat(),
        ),
        Server::start(
            &bench,
            "qcow2",
            &[&qemu[..], &["--format=qcow2", "disk.qcow2"]].concat(),
        ),
        Server::nbdkit(&bench, "file", &["file", "disk.img"]),
        Server::nbdkit(&bench, "plain", &["--no-sr", "file", "disk.img"]),
        Server::nbdkit(
            &bench,
            "slow",
            &["--filter=delay", "file", "disk.img", "delay-read=20ms"],
        ),
        // It cannot say what is allocated, though it says that it can.
        Server::nbdkit(
            &bench,
            "mapless",
            &[
                "eval",
                "get_size=echo 9000448",
                "pread=dd if=disk.img iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none",
                "can_extents=exit 0",
                "extents=echo EIO >&2; exit 1",
            ],
        ),
    ];
    for (name, reads_all) in [
        ("raw", false),
        ("qcow2", false),
        ("file", false),
        ("plain", true),
        ("slow", false),
        ("mapless", true),
    ] {
        let uri = format!("nbd+unix:///?socket={name}.socket");
        let backup = ["backup", "--image", &uri, "--point-in-time", "--json"];
        let ran = bench.ok(&backup);
        let summary = ran.summary();
        let found = &summary["images"][0];
        let path = format!("/{name}.socket.raw");
        assert_eq!(
            (&found["path"], &found["how"]),
            (&json!(path), &json!("export"))
        );
        let read = summary["bytes_read"].as_u64().unwrap();
        let expected = if reads_all {
            bytes.len() as u64
        } else {
            4 << 20
        };
        assert_eq!(read, expected, "{name}");
        let again = bench.ok(&backup).summary();
        assert_eq!(again["files_unmodified"], 1, "{name}");
        let target = format!("{name}.restored");
        bench.ok(&["restore", "latest", "--target", &target, "--verify"]);
        assert!(fs::read(bench.path(&target)).unwrap() == bytes, "{name}");
    }
    // A snapshot is found by its source as it is by a path.
    let of_one = [
        "snapshots",
        "--path",
        "nbd+unix:///?socket=file.socket",
        "--json",
    ];
    assert_eq!(bench.ok(&of_one).of_type("snapshot").len(), 2);
    bench.ok(&["check", "--read-data"]);
}

#[test]
fn the_disk_of_a_running_machine_is_fuzzy_whatever_its_server_says_of_it() {
    if !has_all(&["qemu-nbd"]) {
        return;
    }
    let bench = Bench::new();
    image(&bench, "disk.img");
    // Read-only and open to several, as QEMU serves a disk that its machine writes to.
    let qemu = ["qemu-nbd", "--persistent", "--shared=16", "--read-only"];
    let words = [
        &qemu[..],
        &["--export-name=vm/disk0", "--format=raw", "disk.img"],
    ]
    .concat();
    let _server = Server::start(&bench, "s", &words);
    let uri = "nbd+unix:///vm/disk0?socket=s.socket";
    let ran = bench.run(&["backup", "--image", uri]);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("--point-in-time"), "{ran}");
    assert!(ran.err.contains("/disk0.raw"), "{ran}");
    bench.ok(&["backup", "--image", uri, "--allow-fuzzy"]);
    let listed = bench.ok(&["snapshots"]).text();
    assert_eq!(listed.matches("[fuzzy]").count(), 2, "{listed}");
    // Said of what is no export.
    let ran = bench.run(&["backup", "--image", "disk.img", "--point-in-time"]);
    assert_eq!(ran.code, 2, "{ran}");
}

#[test]
fn an_export_is_encrypted_where_its_uri_says_so_and_nothing_of_the_uri_that_is_secret_is_shown() {
    if !has_all(&["nbdkit"]) {
        return;
    }
    let bench = Bench::new();
    let bytes = image(&bench, "disk.img");
    let certificate = TestCertificate::of_localhost();
    fs::create_dir(bench.path("tls")).unwrap();
    for (from, to) in [
        (certificate.file(), "tls/ca-cert.pem"),
        (certificate.file(), "tls/server-cert.pem"),
        (certificate.key_file(), "tls/server-key.pem"),
    ] {
        fs::copy(from, bench.path(to)).unwrap();
    }
    let words = [
        "--tls=require",
        "--tls-certificates=tls",
        "file",
        "disk.img",
    ];
    let _server = Server::nbdkit(&bench, "s", &words);
    let uri = "nbds+unix:///?socket=s.socket&tls-certificates=tls";
    let backup = ["backup", "--point-in-time", "--json", "--image"];
    let ran = bench.ok(&[&backup[..], &[uri]].concat());
    let source = format!("nbds+unix:///?socket={}", bench.path("s.socket").display());
    assert_eq!(ran.summary()["images"][0]["source"], json!(source));
    bench.ok(&["restore", "latest", "--target", "restored"]);
    assert!(fs::read(bench.path("restored")).unwrap() == bytes);
    let ran = bench.run(&["backup", "--image", "nbd+unix:///?socket=s.socket"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("write nbds:// or nbds+unix://"), "{ran}");
    for uri in ["nbds://me:se%cret@h/e", "nbds://h/?psk=secret"] {
        let ran = bench.run(&["backup", "--image", uri]);
        assert_eq!(ran.code, 1, "{ran}");
        assert!(!ran.err.contains("cret@"), "{ran}");
    }
}

/// The bytes all come, but at first not those that tell what is in the image.
#[test]
fn what_an_image_is_cannot_be_told_for_a_moment_and_its_lost_files_are_a_problem() {
    if !has_all(&["nbdkit", "mkfs.ext4"]) {
        return;
    }
    let bench = Bench::new();
    bench.sh("truncate -s 16M disk.img; mkfs.ext4 -q disk.img; echo 0 > n");
    let plugin = "pread=n=$(cat n); if [ $4 = 134144 ] && [ $n -lt 2 ]; then
            echo $((n + 1)) > n; echo EIO x >&2; exit 1; fi
        dd if=disk.img iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none";
    let words = ["eval", "get_size=echo 16777216", plugin];
    let _server = Server::nbdkit(&bench, "s", &words);
    let uri = "nbd+unix:///?socket=s.socket";
    let backup = ["backup", "--image", uri, "--point-in-time"];
    let ran = bench.run(&backup);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("list the files"), "{ran}");
    bench.ok(&["restore", "latest", "--target", "restored", "--verify"]);
    bench.ok(&backup);
    let listed = bench.ok(&["ls", "latest:/"]).text();
    assert!(listed.contains("/disk"), "{listed}");
}

#[test]
fn what_a_server_cannot_give_is_named_and_a_server_that_goes_ends_nothing_but_its_image() {
    if !has_all(&["nbdkit"]) {
        return;
    }
    let bench = Bench::new();
    image(&bench, "disk.img");
    let bytes = image(&bench, "other.img");
    let plugin = "pread=case $4 in 1048576) test ! -e broken || { echo EIO x >&2; exit 1; };; esac
        test ! -e gone || kill -9 $PPID
        dd if=disk.img iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none";
    let words = ["eval", "get_size=echo 9000448", plugin];
    let server = Server::nbdkit(&bench, "s", &words);
    let uri = "nbd+unix:///?socket=s.socket";
    let both = [
        "backup",
        "--image",
        uri,
        "--image",
        "other.img",
        "--point-in-time",
    ];
    bench.sh("touch broken");
    let ran = bench.run(&both);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("bytes 1048576 to 1052672: "), "{ran}");
    bench.sh("rm broken");
    bench.ok(&both);
    bench.sh("touch gone");
    let ran = bench.run(&both);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("the connection is lost"), "{ran}");
    bench.ok(&["restore", "latest:/other.img", "--target", "restored"]);
    assert!(fs::read(bench.path("restored")).unwrap() == bytes);
    // Nobody is there, or nobody answers: the other one is stored.
    drop(server);
    let ran = bench.run(&both);
    assert_eq!(ran.code, 3, "{ran}");
    assert!(ran.err.contains("open the image"), "{ran}");
}

#[test]
fn disks_of_a_running_machine_are_backed_up_by_the_bitmaps_that_it_keeps() {
    if !has_all(&["qemu-storage-daemon", "qemu-img"]) {
        return;
    }
    let bench = Bench::new();
    let first = image(&bench, "first.img");
    bench
        .sh("qemu-img create -q -f qcow2 second.qcow2 8M; mkdir -m 700 scratch; mkdir -m 777 open");
    let words = [
        "--chardev",
        "socket,path=qmp,server=on,wait=off,id=m",
        "--monitor",
        "chardev=m",
        "--blockdev",
        "raw,node-name=first,file.driver=file,file.filename=first.img",
        "--blockdev",
        "qcow2,node-name=second,file.driver=file,file.filename=second.qcow2",
    ];
    let _machine = Server::start(
        &bench,
        "s",
        &[&["qemu-storage-daemon"][..], &words].concat(),
    );
    bench.sh("until test -S qmp; do sleep 0.01; done");
    let disk = |node: &str| format!("qemu:{node}?qmp=qmp&scratch=scratch");
    let both = [disk("first"), disk("second")];
    let backup = ["backup", "--json", "--image", &both[0], "--image", &both[1]];
    let summary = bench.ok(&backup).summary();
    for (number, name) in ["first", "second"].iter().enumerate() {
        let found = &summary["images"][number];
        let (path, source) = (
            format!("/{name}.raw"),
            format!("qemu:{name}?qmp={}", bench.path("qmp").display()),
        );
        assert_eq!(
            (&found["path"], &found["source"]),
            (&json!(path), &json!(source))
        );
        assert_eq!(
            (&found["how"], &found["tracker"]),
            (&json!("export"), &json!("qemu"))
        );
        assert!(
            found["basis"]
                .as_str()
                .is_some_and(|basis| basis.starts_with("bale-"))
        );
    }
    assert_eq!(summary["bytes_read"], 4 << 20);
    // Nobody wrote, and nothing is read.
    let again = bench.ok(&backup).summary();
    assert_eq!(
        (&again["bytes_read"], &again["files_unmodified"]),
        (&json!(0), &json!(2))
    );
    bench.ok(&[
        "restore",
        "latest:/first.raw",
        "--target",
        "restored",
        "--verify",
    ]);
    assert!(fs::read(bench.path("restored")).unwrap() == first);
    for (source, words) in [
        (
            "qemu:third?qmp=qmp&scratch=scratch",
            "QEMU has no node third",
        ),
        (
            "qemu:first?qmp=qmp&scratch=open",
            "can be written to by others",
        ),
        (
            "qemu:first?qmp=nothing&scratch=scratch",
            "connect to QEMU's monitor",
        ),
        ("qemu:first?qmp=qmp", "not of the form"),
    ] {
        let ran = bench.run(&["backup", "--image", source]);
        assert_eq!(ran.code, 1, "{ran}");
        assert!(ran.err.contains(words), "{ran}");
    }
    // A bitmap outlives what fails.
    assert_eq!(bench.ok(&backup).summary()["bytes_read"], 0);
}
