//! Changed blocks of a running machine, as QEMU keeps account of them: `qemu-storage-daemon` is the
//! machine, a bitmap and a copy of the moment are exported, and what is dirty is read.

use crate::peer::{chain, connect, extents, have_all, nbdinfo_map, pattern, run};
use bale_nbd::{NbdClient, NbdClientOptions, NbdUri};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const LEN: u64 = 256 * MIB;

struct Daemon {
    child: Child,
    dir: TempDir,
    monitor: BufReader<UnixStream>,
}

impl Daemon {
    /// With an empty disk that `live` lets others write to.
    fn start() -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk.qcow2");
        run(
            "qemu-img",
            &[
                "create",
                "-q",
                "-f",
                "qcow2",
                disk.to_str().unwrap(),
                "256M",
            ],
        );
        let at = |name: &str| dir.path().join(name).display().to_string();
        let child = Command::new("qemu-storage-daemon")
            .args([
                "--chardev",
                &format!("socket,path={},server=on,wait=off,id=c", at("qmp")),
            ])
            .args(["--monitor", "chardev=c"])
            .args([
                "--blockdev",
                &format!("driver=file,filename={},node-name=f", disk.display()),
            ])
            .args([
                "--blockdev",
                "driver=qcow2,file=f,node-name=d,discard=unmap",
            ])
            .args([
                "--nbd-server",
                &format!("addr.type=unix,addr.path={}", at("nbd")),
            ])
            .args([
                "--export",
                "type=nbd,id=live,node-name=d,name=live,writable=on",
            ])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let monitor = wait_for(&dir.path().join("qmp"));
        let mut daemon = Daemon {
            child,
            monitor: BufReader::new(monitor),
            dir,
        };
        daemon.line();
        daemon.qmp("qmp_capabilities", json!({}));
        wait_for(&daemon.dir.path().join("nbd"));
        daemon
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.monitor.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn qmp(&mut self, command: &str, arguments: Value) {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.monitor.get_mut(), "{request}").unwrap();
        loop {
            let answer = self.line();
            if answer.get("event").is_none() {
                assert!(answer.get("return").is_some(), "{command}: {answer}");
                return;
            }
        }
    }

    fn uri(&self, export: &str) -> NbdUri {
        let socket = self.dir.path().join("nbd");
        NbdUri::parse(&format!("nbd+unix:///{export}?socket={}", socket.display())).unwrap()
    }

    fn add_bitmap(name: &str) -> Value {
        let data = json!({ "node": "d", "name": name, "granularity": 65536 });
        json!({ "type": "block-dirty-bitmap-add", "data": data })
    }

    /// A copy of this moment as the export of that name, with a bitmap if there is one.
    fn export_moment(&mut self, name: &str, more: &[Value], bitmap: Option<&str>) {
        let copy = self.dir.path().join(format!("{name}.qcow2"));
        let copy = copy.to_str().unwrap().to_owned();
        run("qemu-img", &["create", "-q", "-f", "qcow2", &copy, "256M"]);
        let file = json!({ "driver": "file", "filename": copy });
        self.qmp(
            "blockdev-add",
            json!({ "driver": "qcow2", "node-name": name, "file": file, "backing": "d" }),
        );
        let backup = json!({ "job-id": name, "device": "d", "target": name, "sync": "none" });
        let backup = json!({ "type": "blockdev-backup", "data": backup });
        let actions: Vec<_> = more.iter().cloned().chain([backup]).collect();
        self.qmp("transaction", json!({ "actions": actions }));
        let bitmaps: Vec<_> = bitmap
            .map(|bitmap| json!({ "node": "d", "name": bitmap }))
            .into_iter()
            .collect();
        self.qmp(
            "block-export-add",
            json!({ "type": "nbd", "id": format!("export-{name}"), "node-name": name, "name": name,
                    "bitmaps": bitmaps }),
        );
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Until somebody listens there.
fn wait_for(path: &Path) -> UnixStream {
    loop {
        match UnixStream::connect(path) {
            Ok(stream) => return stream,
            Err(_) => std::thread::yield_now(),
        }
    }
}

fn with_bitmap(name: &str, wants_allocation: bool) -> NbdClientOptions {
    NbdClientOptions {
        wants_allocation,
        dirty_bitmap: Some(name.to_owned()),
        ..NbdClientOptions::default()
    }
}

#[test]
fn what_a_machine_changed_since_a_moment_is_in_its_dirty_bitmap_and_no_more_is_read() {
    if !have_all(&["qemu-storage-daemon", "qemu-img", "nbdinfo"]) {
        return;
    }
    let mut daemon = Daemon::start();
    let live = connect(&daemon.uri("live"));
    live.write_at(0, &pattern(1, 8 << 20)).unwrap();
    daemon.export_moment("first", &[Daemon::add_bitmap("b1")], None);
    let mut image = vec![0; LEN as usize];
    connect(&daemon.uri("first"))
        .read_at(0, &mut image)
        .unwrap();
    assert!(image[..8 << 20] == pattern(1, 8 << 20));
    // After that moment.
    live.write_at(100 * MIB, &pattern(2, 65_536)).unwrap();
    live.write_at(200 * MIB + 512, &pattern(3, 512)).unwrap();
    live.write_zeroes(4 * MIB, MIB).unwrap();
    live.flush().unwrap();
    let mut found = vec![1; 512];
    connect(&daemon.uri("first"))
        .read_at(200 * MIB + 512, &mut found)
        .unwrap();
    assert_eq!(found, [0; 512], "the copy is of the moment");
    let disable =
        json!({ "type": "block-dirty-bitmap-disable", "data": { "node": "d", "name": "b1" } });
    daemon.export_moment("second", &[disable, Daemon::add_bitmap("b2")], Some("b1"));
    // And after the second, which is not to be seen.
    live.write_at(150 * MIB, &pattern(4, 4096)).unwrap();
    let uri = daemon.uri("second");
    let client = NbdClient::connect(&uri, &with_bitmap("b1", true)).unwrap();
    let dirty: Vec<_> = extents(&client)
        .into_iter()
        .filter(|it| it.is_dirty == Some(true))
        .collect();
    let mut read = 0;
    for extent in &dirty {
        let target = &mut image[extent.offset as usize..(extent.offset + extent.bytes) as usize];
        match extent.is_zero {
            true => target.fill(0),
            false => {
                client.read_at(extent.offset, target).unwrap();
                read += extent.bytes;
            }
        }
    }
    assert_eq!(read, 2 * 65_536, "{dirty:?}");
    let mut whole = vec![0; LEN as usize];
    client.read_at(0, &mut whole).unwrap();
    assert!(image == whole);
    // The bitmap alone, as where nothing but dirty ranges may be looked at.
    let alone = NbdClient::connect(&uri, &with_bitmap("b1", false)).unwrap();
    assert!(!alone.has_allocation());
    let found: Vec<_> = (extents(&alone).iter())
        .map(|extent| {
            (
                extent.offset,
                extent.bytes,
                u64::from(extent.is_dirty == Some(true)),
            )
        })
        .collect();
    assert_eq!(found, nbdinfo_map(&uri, "qemu:dirty-bitmap:b1"));
    let other = NbdClient::connect(&uri, &with_bitmap("b9", true))
        .err()
        .unwrap();
    assert!(
        chain(&other).contains("no context qemu:dirty-bitmap:b9"),
        "{}",
        chain(&other)
    );
}
