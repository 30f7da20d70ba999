//! Disks of a machine that runs: `qemu-storage-daemon` is the machine, writes go to it by an export
//! of its own, and its dirty bitmaps say what is read.

use crate::bench::{BLOCK, Images};
use bale_engine::backup::{BackupOptions, ImageSource, Outcome};
use bale_format::snapshot::ImageState;
use bale_nbd::{NbdClient, NbdClientOptions, NbdUri, QmpClient};
use bale_pipeline::monitor::Recorder;
use bale_source::raw::{QemuSource, open_disks};
use bale_testkit::scene::noise;
use bale_testkit::{have, skipped};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

const LEN: u64 = 24 * BLOCK;

/// A machine with one disk, and what is on it.
pub(crate) struct Machine {
    images: Images,
    child: Child,
    pub(crate) bytes: Vec<u8>,
}

impl Machine {
    pub(crate) fn start() -> Option<Machine> {
        if !have("qemu-storage-daemon") || !have("qemu-img") {
            skipped("qemu-storage-daemon and qemu-img not installed");
            return None;
        }
        let images = Images::new();
        let disk = images.path("disk.qcow2");
        let made = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .arg(&disk)
            .arg(LEN.to_string())
            .status();
        assert!(made.unwrap().success());
        std::fs::create_dir(images.path("scratch")).unwrap();
        Some(Machine {
            child: daemon(&images),
            images,
            bytes: vec![0; LEN as usize],
        })
    }

    /// Ends the daemon in order, or not, and starts it again.
    pub(crate) fn restart(&mut self, signal: &str) {
        let process = self.child.id().to_string();
        Command::new("kill")
            .args([signal, &process])
            .status()
            .unwrap();
        self.child.wait().unwrap();
        self.child = daemon(&self.images);
    }

    /// Ends the server that lets others write.
    fn stop_server(&self) {
        let mut own = self.own();
        let export = json!({ "id": "live", "mode": "hard" });
        own.execute("block-export-del", export).unwrap();
        own.execute("nbd-server-stop", json!({})).unwrap();
    }

    fn source(&self, monitor: &str) -> QemuSource {
        let (path, form) = (self.images.dir.path().display(), "qemu:d?qmp=");
        let text = format!("{form}{path}/{monitor}&scratch={path}/scratch&server={path}/nbd");
        QemuSource::parse(Path::new(&text)).unwrap()
    }

    /// As the machine writes.
    pub(crate) fn client(&self) -> NbdClient {
        let socket = self.images.path("nbd");
        let uri = format!("nbd+unix:///live?socket={}", socket.display());
        let uri = NbdUri::parse(&uri).unwrap();
        NbdClient::connect(&uri, &NbdClientOptions::default()).unwrap()
    }

    pub(crate) fn write_at(&mut self, offset: u64, bytes: &[u8]) {
        let client = self.client();
        client.write_at(offset, bytes).unwrap();
        client.flush().unwrap();
        self.bytes[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn open(&self, monitor: &str) -> io::Result<ImageSource> {
        let mut disks = open_disks(&[self.source(monitor)], "test")?;
        let (image, tracker) = disks.remove(0);
        Ok(ImageSource {
            tracker,
            ..ImageSource::untracked(image)
        })
    }

    fn backup_of(&self, source: ImageSource) -> (Outcome, Recorder) {
        let (monitor, options) = (Recorder::default(), BackupOptions::default());
        let repository = self.images.scene.repository();
        let outcome = self
            .images
            .backup_into(&repository, &mut [source], &options, &monitor);
        (outcome.unwrap(), monitor)
    }

    fn assert_restores(&self, outcome: &Outcome, bytes: &[u8]) {
        let repository = self.images.scene.repository();
        let id = outcome.id.unwrap();
        self.images.assert_restores(&repository, id, bytes);
    }

    /// Backs up without a problem, as the disk is now; blocks that were read, and what was noted.
    fn backup(&self) -> (u64, String) {
        let (outcome, monitor) = self.backup_of(self.open("qmp").unwrap());
        let problems = monitor.problems.lock().unwrap();
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(outcome.snapshot.images[0].how, ImageState::Export);
        self.assert_restores(&outcome, &self.bytes);
        let notes = monitor.notes.lock().unwrap().join("; ");
        (outcome.snapshot.counts.bytes_read / BLOCK, notes)
    }

    fn own(&self) -> QmpClient {
        QmpClient::connect(&self.images.path("own")).unwrap()
    }

    fn bitmaps(&self) -> Vec<String> {
        let mut own = self.own();
        let nodes = own
            .execute("query-named-block-nodes", json!({ "flat": true }))
            .unwrap();
        let is_disk = |node: &&Value| node["node-name"] == "d";
        let disk = nodes.as_array().unwrap().iter().find(is_disk).unwrap();
        let bitmaps = disk["dirty-bitmaps"].as_array().into_iter().flatten();
        bitmaps
            .map(|bitmap| bitmap["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Nothing is left of a backup but the bitmap of the last snapshot.
    fn assert_clean(&self) {
        assert_eq!(self.bitmaps().len(), 1, "{:?}", self.bitmaps());
        let mut own = self.own();
        for query in [
            "query-named-block-nodes",
            "query-jobs",
            "query-block-exports",
        ] {
            let found = own.execute(query, json!({})).unwrap();
            for item in found.as_array().unwrap() {
                for name in ["node-name", "id"] {
                    let name = item[name].as_str().unwrap_or_default();
                    assert!(!name.starts_with("bale-"), "{query}: {name}");
                }
            }
        }
        let left = std::fs::read_dir(self.images.path("scratch")).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["bale-lock"]);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _it_may_have_ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// With a monitor for backups and one for the test, and a server that lets others write.
fn daemon(images: &Images) -> Child {
    let at = |name: &str| images.path(name).display().to_string();
    for socket in ["qmp", "own", "nbd"] {
        let _was_not_there = std::fs::remove_file(images.path(socket));
    }
    let chardev = |name: &str| format!("socket,path={},server=on,wait=off,id={name}", at(name));
    let child = Command::new("qemu-storage-daemon")
        .args(["--chardev", &chardev("qmp"), "--monitor", "chardev=qmp"])
        .args(["--chardev", &chardev("own"), "--monitor", "chardev=own"])
        .args(["--blockdev"])
        .arg(format!(
            "driver=file,filename={},node-name=f",
            at("disk.qcow2")
        ))
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
    // The server is the last that it begins.
    while UnixStream::connect(images.path("nbd")).is_err() {
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_disk_is_of_one_moment_and_only_what_was_written_since_the_last_one_is_read() {
    let Some(mut machine) = Machine::start() else {
        return;
    };
    machine.write_at(0, &noise(1, 9 << 20));
    assert_eq!(machine.backup().0, 9);
    machine.assert_clean();
    machine.write_at(3 * BLOCK + 17, b"written");
    machine.write_at(20 * BLOCK, &noise(2, 100));
    // The moment is that of the opening, whatever is written then.
    let (source, moment) = (machine.open("qmp").unwrap(), machine.bytes.clone());
    machine.write_at(3 * BLOCK, &noise(3, 4096));
    machine.write_at(5 * BLOCK, &noise(4, 4096));
    let (outcome, monitor) = machine.backup_of(source);
    assert!(monitor.problems.lock().unwrap().is_empty());
    machine.assert_restores(&outcome, &moment);
    let record = &outcome.snapshot.images[0];
    assert_eq!(
        (record.how, &record.tracker[..]),
        (ImageState::Export, "qemu")
    );
    assert_eq!(record.basis.as_ref(), machine.bitmaps().first());
    // The sixth may have been written to before: nobody knows it better than the bitmap.
    let read = outcome.snapshot.counts.bytes_read / BLOCK;
    assert!((2..=3).contains(&read), "{read}");
    assert_eq!(machine.backup().0, 2);
    assert_eq!(machine.backup().0, 0);
    machine.assert_clean();
}

#[test]
fn a_moment_that_is_not_held_to_the_end_is_fuzzy() {
    let Some(mut machine) = Machine::start() else {
        return;
    };
    machine.write_at(0, &noise(1, 3 << 20));
    let source = machine.open("qmp").unwrap();
    let jobs = machine.own().execute("query-jobs", json!({})).unwrap();
    let cancel = json!({ "id": jobs[0]["id"] });
    machine.own().execute("job-cancel", cancel).unwrap();
    let (outcome, monitor) = machine.backup_of(source);
    let record = &outcome.snapshot.images[0];
    assert_eq!((record.how, &record.basis), (ImageState::Fuzzy, &None));
    let problems = monitor.problems.lock().unwrap();
    assert!(
        problems[0].text.starts_with("QEMU ended the copy"),
        "{problems:?}"
    );
    assert_eq!(machine.backup().0, 3);
    machine.assert_clean();
}

#[test]
fn a_bitmap_that_is_lost_inconsistent_or_disabled_has_all_read_with_the_reason() {
    let Some(mut machine) = Machine::start() else {
        return;
    };
    machine.write_at(0, &noise(1, 5 << 20));
    machine.backup();
    // Ended in order, the bitmap is kept in the disk.
    machine.restart("-TERM");
    machine.write_at(BLOCK, b"written");
    assert_eq!(machine.backup(), (1, String::new()));
    // One that was kept before, and one that never was.
    for (reason, signals) in [
        ("is inconsistent", &["-TERM", "-KILL"][..]),
        ("does not have its bitmap", &["-KILL"]),
    ] {
        signals.iter().for_each(|signal| machine.restart(signal));
        machine.write_at(2 * BLOCK, reason.as_bytes());
        let (read, notes) = machine.backup();
        assert!(read == 5 && notes.contains(reason), "{read}: {notes}");
    }
    let acts: [(&str, &str); 2] = [
        ("block-dirty-bitmap-disable", "was disabled"),
        ("block-dirty-bitmap-remove", "does not have its bitmap"),
    ];
    for (command, reason) in acts {
        let name = machine.bitmaps().remove(0);
        let bitmap = json!({ "node": "d", "name": name });
        machine.own().execute(command, bitmap).unwrap();
        machine.write_at(4 * BLOCK, reason.as_bytes());
        let (read, notes) = machine.backup();
        assert!(read == 5 && notes.contains(reason), "{read}: {notes}");
    }
    machine.assert_clean();
    machine.write_at(3 * BLOCK, b"written");
    assert_eq!(machine.backup(), (1, String::new()));
}

/// A monitor that is cut off in front of this command: so a backup that is killed looks to QEMU.
struct CutMonitor {
    thread: JoinHandle<bool>,
}

impl CutMonitor {
    fn start(machine: &Machine, commands: usize) -> CutMonitor {
        let at: PathBuf = machine.images.path("cut");
        let _was_not_there = std::fs::remove_file(&at);
        let (listener, server) = (UnixListener::bind(&at).unwrap(), machine.images.path("qmp"));
        let thread = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let mut server = UnixStream::connect(server).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            let back = std::thread::spawn(move || io::copy(&mut from, &mut to));
            let mut lines = BufReader::new(client.try_clone().unwrap());
            let mut is_cut = true;
            for _ in 0..commands {
                let mut line = String::new();
                if lines.read_line(&mut line).unwrap_or(0) == 0 {
                    is_cut = false;
                    break;
                }
                server.write_all(line.as_bytes()).unwrap();
            }
            if is_cut {
                // The answer to the last one comes, or not.
                let mut line = String::new();
                is_cut = lines.read_line(&mut line).unwrap_or(0) > 0;
            }
            for end in [&mut client, &mut server] {
                let _it_may_have_ended = end.shutdown(std::net::Shutdown::Both);
            }
            let _ended = back.join().unwrap();
            is_cut
        });
        CutMonitor { thread }
    }

    /// Did it come so far?
    fn was_cut(self) -> bool {
        self.thread.join().unwrap()
    }
}

#[test]
fn a_backup_that_ends_at_any_command_costs_nothing_but_time_and_the_next_one_is_right() {
    let Some(mut machine) = Machine::start() else {
        return;
    };
    machine.write_at(0, &noise(1, 3 << 20));
    machine.backup();
    let mut commands = 0usize;
    loop {
        machine.write_at(commands as u64 % 20 * BLOCK + 512, &commands.to_le_bytes());
        let cut = CutMonitor::start(&machine, commands);
        let before = machine.bytes.clone();
        if let Ok(source) = machine.open("cut") {
            machine.write_at(21 * BLOCK + 4096 * (commands as u64 % 200), b"meanwhile");
            let (outcome, monitor) = machine.backup_of(source);
            machine.assert_restores(&outcome, &before);
            // That the moment was held is said by QEMU, or it was not.
            let is_fuzzy = outcome.snapshot.images[0].how == ImageState::Fuzzy;
            assert_eq!(is_fuzzy, !monitor.problems.lock().unwrap().is_empty());
            assert_eq!(is_fuzzy, outcome.snapshot.images[0].basis.is_none());
        }
        let was_cut = cut.was_cut();
        machine.write_at(22 * BLOCK + 4096 * (commands as u64 % 200), b"between");
        machine.backup();
        machine.assert_clean();
        if !was_cut {
            break;
        }
        commands += 1;
    }
    assert!(commands > 20, "{commands}");
}

#[test]
fn where_a_machine_has_no_server_one_is_started_for_the_backup_and_ended_with_it() {
    let Some(mut machine) = Machine::start() else {
        return;
    };
    machine.write_at(0, &noise(1, 2 << 20));
    let without_server = |monitor: &str| QemuSource {
        server: None,
        ..machine.source(monitor)
    };
    let open = |monitor: &str| open_disks(&[without_server(monitor)], "test");
    // It has one, which is left alone.
    let refused = open("qmp").err().unwrap().to_string();
    assert!(refused.contains("server=SOCKET"), "{refused}");
    machine.stop_server();
    // Killed with its server, and the next one goes on from there.
    for commands in [18, 22, 100] {
        let cut = CutMonitor::start(&machine, commands);
        let image = open("cut").map(|mut disks| disks.remove(0));
        if commands == 100 {
            let (image, tracker) = image.unwrap();
            let source = ImageSource {
                tracker,
                ..ImageSource::untracked(image)
            };
            let (outcome, _) = machine.backup_of(source);
            machine.assert_restores(&outcome, &machine.bytes);
        } else {
            drop(image);
        }
        assert_eq!(cut.was_cut(), commands < 100);
    }
    machine.assert_clean();
    let at = json!({ "type": "unix", "data": { "path": machine.images.path("nbd2") } });
    let started = machine
        .own()
        .execute("nbd-server-start", json!({ "addr": at }));
    started.unwrap();
}
