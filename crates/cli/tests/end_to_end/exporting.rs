//! Images served to other programs while they are in the repository: `export`.

use crate::bench::{Bench, Ran, have, skipped};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// An export that runs, killed if nobody ends it.
pub struct Exported {
    pub child: Option<Child>,
    /// What it said when it began.
    pub objects: Vec<Value>,
    rest: BufReader<std::process::ChildStdout>,
}

impl Exported {
    /// Of so many images.
    fn start(bench: &Bench, words: &[&str], images: usize) -> Exported {
        Exported::started(bench.command(), words, images)
    }

    /// The same with what else the command needs.
    pub fn started(mut command: Command, words: &[&str], images: usize) -> Exported {
        command.args(["export", "--json"]).args(words);
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let mut rest = BufReader::new(child.stdout.take().unwrap());
        let mut objects = Vec::new();
        while objects.len() < images {
            let mut line = String::new();
            if rest.read_line(&mut line).unwrap() == 0 {
                let ran = Ran::from(child.wait_with_output().unwrap());
                panic!("{words:?}: {ran}");
            }
            let object: Value = serde_json::from_str(&line).unwrap();
            if object["type"] == "export" {
                objects.push(object);
            }
        }
        Exported {
            child: Some(child),
            objects,
            rest,
        }
    }

    pub fn uri(&self) -> &str {
        self.objects[0]["uri"].as_str().unwrap()
    }

    /// Ends it as a terminal would; its code and its summary.
    pub fn end(self) -> (i32, Value) {
        let (code, mut objects) = self.end_saying();
        (code, objects.pop().unwrap())
    }

    /// The same with all that it said since it began.
    pub fn end_saying(mut self) -> (i32, Vec<Value>) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &id])
                .status()
                .unwrap()
                .success()
        );
        self.wait()
    }

    /// Its end.
    fn wait(&mut self) -> (i32, Vec<Value>) {
        let mut child = self.child.take().unwrap();
        let mut text = String::new();
        self.rest.read_to_string(&mut text).unwrap();
        let code = child.wait().unwrap().code().unwrap();
        let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
        (code, objects.collect())
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An image with holes, backed up twice with changes in between.
fn with_image() -> Bench {
    let bench = Bench::new();
    bench.sh(
        "head -c 2500000 /dev/urandom > disk.img; truncate -s 90000128 disk.img
        head -c 300000 /dev/urandom | dd of=disk.img bs=1000 seek=70000 conv=notrunc status=none",
    );
    bench.ok(&["backup", "--image", "disk.img"]);
    bench.sh("cp disk.img first.img; printf other | dd of=disk.img bs=1 seek=5000 conv=notrunc");
    bench.ok(&["backup", "--image", "disk.img"]);
    bench
}

/// An image of which each pack of data has lost a chunk.
fn with_damage() -> Bench {
    let bench = Bench::new();
    bench.sh("head -c 4000000 /dev/urandom > disk.img; truncate -s 90000128 disk.img");
    bench.ok(&["backup", "--image", "disk.img"]);
    // In each pack that holds data a byte of its first chunk.
    bench.sh(
        "find home/.local/share/bale/repository/packs -type f -size +700k > packs; test -s packs
        while read pack; do
            printf damaged! | dd of=$pack bs=1 seek=500000 conv=notrunc status=none
        done < packs",
    );
    bench
}

fn has_clients() -> bool {
    let missing = ["nbdinfo", "nbdcopy", "qemu-img"]
        .into_iter()
        .find(|program| !have(program));
    if missing.is_some() {
        skipped("nbdinfo, nbdcopy (libnbd-bin) and qemu-img (qemu-utils)");
    }
    missing.is_none()
}

fn quoted(uri: &str) -> String {
    format!("'{uri}'")
}

#[test]
fn what_nbdinfo_nbdcopy_and_qemu_img_get_is_the_image_that_was_backed_up() {
    if !has_clients() {
        return;
    }
    let bench = with_image();
    for (snapshot, image) in [("latest", "disk.img"), ("latest~1", "first.img")] {
        for address in ["unix:disk.sock", "localhost:0"] {
            let exported = Exported::start(&bench, &[snapshot, "--nbd", address], 1);
            assert_eq!(exported.objects[0]["path"], "/disk.img");
            assert_eq!(exported.objects[0]["size"], 90_000_128);
            let uri = quoted(exported.uri());
            bench.sh(&format!(
                "test $(nbdinfo --size {uri}) = 90000128; nbdinfo --is readonly {uri}
                nbdinfo --map {uri} | grep -q hole,zero
                nbdcopy {uri} copied; cmp copied {image}
                qemu-img compare -f raw -F raw {uri} {image}
                qemu-img convert -f raw -O qcow2 {uri} copied.qcow2
                qemu-img compare -f qcow2 -F raw copied.qcow2 {image}; rm copied copied.qcow2"
            ));
            let (code, summary) = exported.end();
            assert_eq!((code, &summary["problems"]), (0, &0.into()), "{summary}");
            // A hole is not read: far less than two copies and a comparison.
            let read = summary["bytes_read"].as_u64().unwrap();
            assert!((2_800_000..30_000_000).contains(&read), "{summary}");
            assert!(!bench.path("disk.sock").exists());
        }
    }
}

#[test]
fn with_once_it_ends_when_the_last_client_has_gone() {
    if !has_clients() {
        return;
    }
    let bench = with_image();
    let mut exported = Exported::start(&bench, &["latest", "--nbd", "unix:s", "--once"], 1);
    bench.sh(&format!(
        "nbdcopy {} copied; cmp copied disk.img",
        quoted(exported.uri())
    ));
    let (code, objects) = exported.wait();
    assert_eq!(code, 0);
    let summary = objects.last().unwrap();
    assert!(summary["clients"].as_u64() >= Some(1), "{summary}");
}

#[test]
fn several_images_are_exports_of_their_names_and_one_path_is_one() {
    if !has_clients() {
        return;
    }
    let bench = Bench::new();
    bench.sh("head -c 1000000 /dev/urandom > a.img; head -c 2000000 /dev/urandom > b.img");
    bench.ok(&["backup", "--image", "a.img", "--image", "b.img"]);
    let exported = Exported::start(&bench, &["latest", "--nbd", "unix:s"], 2);
    for (object, name) in exported.objects.iter().zip(["a.img", "b.img"]) {
        let uri = quoted(object["uri"].as_str().unwrap());
        bench.sh(&format!(
            "nbdcopy {uri} copied; cmp copied {name}; rm copied"
        ));
    }
    drop(exported);
    let exported = Exported::start(&bench, &["latest:/b.img", "--nbd", "unix:s"], 1);
    bench.sh(&format!(
        "nbdcopy {} copied; cmp copied b.img",
        quoted(exported.uri())
    ));
    let (code, _) = exported.end();
    assert_eq!(code, 0);
}

#[test]
fn what_is_no_image_and_where_anybody_could_read_it_are_refused() {
    let bench = with_image();
    for (address, words) in [
        ("0.0.0.0:0", "--allow-network"),
        ("somewhere", "neither unix:SOCKET nor HOST:PORT"),
        ("unix:", "names no socket"),
        ("localhost:ten", "neither unix:SOCKET nor HOST:PORT"),
    ] {
        let ran = bench.run(&["export", "latest", "--nbd", address]);
        assert_eq!(ran.code, 2, "{ran}");
        assert!(ran.err.contains(words), "{ran}");
    }
    let ran = bench.run(&["export", "latest:/nothing", "--nbd", "unix:s"]);
    assert_eq!(ran.code, 1, "{ran}");
    bench.write("source/file", "text");
    bench.backup();
    let ran = bench.run(&["export", "latest", "--nbd", "unix:s"]);
    assert_eq!(ran.code, 1, "{ran}");
    assert!(ran.err.contains("backup --image"), "{ran}");
    bench.write("taken", "a file");
    let ran = bench.run(&["export", "latest~1", "--host", "", "--nbd", "unix:taken"]);
    assert_ne!(ran.code, 0, "{ran}");
    assert_eq!(fs::read(bench.path("taken")).unwrap(), b"a file");
}

#[test]
fn a_damaged_chunk_fails_the_reads_of_its_range_and_is_named_at_the_end() {
    if !has_clients() || !have("qemu-io") {
        return;
    }
    let bench = with_damage();
    let exported = Exported::start(&bench, &["latest", "--nbd", "unix:s"], 1);
    let uri = quoted(exported.uri());
    bench.sh(&format!(
        "if nbdcopy {uri} copied; then exit 1; fi
        bad=0
        for block in 0 1 2 3; do
            qemu-io -f raw -r -c \"read -P 0 $((block << 20)) 1\" {uri} > out 2>&1 || true
            if grep -q 'Input/output error' out; then bad=$((bad + 1)); fi
        done
        test $bad = $(wc -l < packs); test $bad -lt 4
        qemu-io -f raw -r -c 'read -P 0 80M 1M' {uri}"
    ));
    let (code, summary) = exported.end();
    let damaged = fs::read_to_string(bench.path("packs"))
        .unwrap()
        .lines()
        .count();
    assert_eq!(
        (code, &summary["problems"]),
        (3, &damaged.into()),
        "{summary}"
    );
}

#[test]
fn rubbish_and_a_hundred_clients_at_once_take_nothing_from_others() {
    if !has_clients() {
        return;
    }
    let bench = with_image();
    let exported = Exported::start(&bench, &["latest", "--nbd", "unix:s"], 1);
    let connect = || UnixStream::connect(bench.path("s")).unwrap();
    for byte in 0..=255u8 {
        let _ = connect().write_all(&[byte; 300]);
    }
    let waiting: Vec<UnixStream> = (0..100).map(|_| connect()).collect();
    drop(waiting);
    let uri = quoted(exported.uri());
    bench.sh(&format!("nbdcopy {uri} copied; cmp copied disk.img"));
    let id = exported.child.as_ref().unwrap().id();
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 512 << 10, "{peak} kB");
    let (code, _) = exported.end();
    assert_eq!(code, 0);
}

#[test]
fn what_is_written_goes_to_the_overlay_and_is_there_after_a_kill_and_the_snapshot_is_as_it_was() {
    if !has_clients() || !have("qemu-io") {
        return skipped("qemu-io (qemu-utils)");
    }
    let bench = with_image();
    let words = ["latest", "--nbd", "unix:s", "--overlay", "disk.overlay"];
    let mut exported = Exported::start(&bench, &words, 1);
    let uri = quoted(exported.uri());
    bench.sh(&format!(
        "nbdinfo --is readonly {uri} && exit 1
        qemu-io -f raw -c 'write -P 9 70000 200000' -c 'write -z 1M 512k' -c flush {uri} > said"
    ));
    let mut child = exported.child.take().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();

    // The socket that it left is taken over, and what was flushed is there.
    let exported = Exported::start(&bench, &words, 1);
    let second = bench.run(&[
        "export",
        "latest",
        "--nbd",
        "unix:t",
        "--overlay",
        "disk.overlay",
    ]);
    assert!(
        second.code == 1 && second.err.contains("in use"),
        "{second}"
    );
    bench.sh(&format!(
        "cp disk.img expected
        head -c 200000 /dev/zero | tr '\\0' '\\11' |
            dd of=expected bs=1000 seek=70 conv=notrunc status=none
        dd if=/dev/zero of=expected bs=512k seek=2 count=1 conv=notrunc status=none
        nbdcopy {uri} copied; cmp copied expected"
    ));
    let (code, _) = exported.end();
    assert_eq!(code, 0);

    // No other snapshot has it, and this one is what it was.
    let other = bench.run(&[
        "export",
        "latest~1",
        "--nbd",
        "unix:s",
        "--overlay",
        "disk.overlay",
    ]);
    assert!(
        other.code == 1 && other.err.contains("is an overlay of"),
        "{other}"
    );
    let file = bench.run(&[
        "export",
        "latest",
        "--nbd",
        "unix:s",
        "--overlay",
        "disk.img",
    ]);
    assert!(
        file.code == 1 && file.err.contains("is no overlay"),
        "{file}"
    );
    bench.ok(&["restore", "latest", "--target", "restored.img"]);
    bench.sh("cmp restored.img disk.img; test $(du -k disk.overlay | cut -f1) -lt 2000");
}

#[test]
fn an_image_is_restored_in_the_formats_of_qemu_and_replaces_nothing_unasked() {
    if !has_clients() {
        return;
    }
    let bench = with_image();
    for format in ["qcow2", "vmdk", "vdi", "vhdx"] {
        let target = format!("out.{format}");
        let words = [
            "restore",
            "latest",
            "--target",
            &target,
            "--image-format",
            format,
        ];
        let ran = bench.ok(&[&words[..], &["--verify", "--json"]].concat());
        assert_eq!(ran.summary()["files_written"], 1);
        // These formats are longer than an image that is no whole number of their units.
        bench.sh(&format!(
            "qemu-img compare -f {format} -F raw {target} disk.img
            test $(du -k {target} | cut -f1) -lt 12000; test $(stat -c %a {target}) = 600"
        ));
        let ran = bench.run(&words);
        assert!(ran.code == 1 && ran.err.contains("--force"), "{ran}");
        bench.ok(&[&words[..], &["--force"]].concat());
        // It was renamed when it was whole, and may be again.
        bench.sh(&format!("mv {target} moved.{format}"));
        bench.ok(&["backup", "--image", &format!("moved.{format}"), "--dry-run"]);
    }
    let raw = [
        "restore",
        "latest",
        "--target",
        "out.raw",
        "--image-format",
        "raw",
    ];
    bench.ok(&raw);
    bench.sh("cmp out.raw disk.img; test $(ls -A | grep -c bale-image) = 0");
}

#[test]
fn a_qcow2_of_an_image_that_lost_a_chunk_has_zeros_for_it_and_the_rest() {
    if !has_clients() {
        return;
    }
    let bench = with_damage();
    let words = [
        "restore",
        "latest",
        "--target",
        "out.qcow2",
        "--image-format",
        "qcow2",
    ];
    let ran = bench.run(&[&words[..], &["--json"]].concat());
    assert_eq!(ran.code, 3, "{ran}");
    assert_eq!(ran.summary()["incomplete"], 1);
    let mut expected = fs::read(bench.path("disk.img")).unwrap();
    let problems = ran.of_type("problem");
    assert!(!problems.is_empty(), "{ran}");
    for problem in problems {
        let text = problem["message"].as_str().unwrap().to_owned();
        let numbers = text.split(' ').filter_map(|word| word.parse().ok());
        let range: Vec<usize> = numbers.take(2).collect();
        expected[range[0]..range[1]].fill(0);
    }
    bench.write("expected", expected);
    bench.sh("qemu-img compare -f qcow2 -F raw out.qcow2 expected");
}
