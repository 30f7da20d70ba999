//! Loop mounts for the tests, and the processes of a freezer that can be told to die.

use bale_source::scan::freeze::{FreezeLimits, Freezer, FreezerCommand, Step, serve};
use rustix::process::{Signal, getpid, kill_process};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Long enough for anything that ends at all, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What a freezer shall do to itself: `kill`, `stop`, `pause` or `wait` (until the file is
/// removed),
/// `:`, the step, `:`, a file to make then. `second`: it waits around its second barrier, before it
/// as long as there is a file of that name with `.before`, after it as long as one with `.after`.
const FAULT: &str = "BALE_TEST_FREEZER";

pub const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// Whether these tests may run. Says so loudly if not.
pub fn can_run(tools: &[&str]) -> bool {
    let is_root = bale_testkit::is_root();
    let missing: Vec<_> = tools
        .iter()
        .filter(|tool| !bale_testkit::have(tool))
        .collect();
    if is_root && missing.is_empty() {
        return true;
    }
    let reason = format!("needs root ({is_root}) and the tools {missing:?}");
    bale_testkit::skipped(&reason);
    false
}

pub fn can_mount() -> bool {
    can_run(&["mkfs.ext4", "mkfs.xfs", "mount", "umount"])
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// A file system in a sparse file, mounted. Thawed, unmounted and deleted when dropped, whatever
/// happened.
pub struct Mounted {
    directory: tempfile::TempDir,
    pub kind: &'static str,
}

impl Mounted {
    pub fn new(kind: &'static str, size_mib: u64) -> Mounted {
        Mounted::with(kind, size_mib, &[], "")
    }

    pub fn with(kind: &'static str, size_mib: u64, mkfs: &[&str], options: &str) -> Mounted {
        Mounted::prepared(kind, size_mib, mkfs, options, |_| {})
    }

    /// As `with`; `prepare` gets the image before it is mounted for the first time.
    pub fn prepared(
        kind: &'static str,
        size_mib: u64,
        mkfs: &[&str],
        options: &str,
        prepare: impl FnOnce(&Path),
    ) -> Mounted {
        let mounted = Mounted {
            directory: tempfile::tempdir().unwrap(),
            kind,
        };
        let image = mounted.image();
        let file = File::create_new(&image).unwrap();
        file.set_len(size_mib << 20).unwrap();
        let mut arguments = vec!["-q"];
        arguments.extend(mkfs);
        arguments.push(image.to_str().unwrap());
        run(&format!("mkfs.{kind}"), &arguments);
        prepare(&image);
        std::fs::create_dir(mounted.path()).unwrap();
        mounted.mount(options);
        mounted
    }

    /// A file system without a device.
    pub fn in_memory() -> Mounted {
        let mounted = Mounted {
            directory: tempfile::tempdir().unwrap(),
            kind: "tmpfs",
        };
        std::fs::create_dir(mounted.path()).unwrap();
        run(
            "mount",
            &["-t", "tmpfs", "tmpfs", mounted.path().to_str().unwrap()],
        );
        mounted
    }

    /// An overlay that writes nothing back when it is told to.
    pub fn volatile_overlay() -> Mounted {
        let mounted = Mounted {
            directory: tempfile::tempdir().unwrap(),
            kind: "overlay",
        };
        for name in ["lower", "upper", "work", "mount"] {
            std::fs::create_dir(mounted.beside(name)).unwrap();
        }
        let [lower, upper, work] = ["lower", "upper", "work"].map(|name| {
            let path = mounted.beside(name);
            format!("{name}dir={}", path.display())
        });
        let options = format!("{lower},{upper},{work},volatile");
        let path = mounted.path();
        let place = ["overlay", "overlay", "-o", &options, path.to_str().unwrap()];
        run("mount", &[&["-t"], &place[..]].concat());
        mounted
    }

    fn mount(&self, options: &str) {
        let options = match options {
            "" => "loop".to_string(),
            more => format!("loop,{more}"),
        };
        let (image, path) = (self.image(), self.path());
        let places = [image.to_str().unwrap(), path.to_str().unwrap()];
        run("mount", &["-o", &options, places[0], places[1]]);
    }

    /// Unmounts, does something to the image, and mounts again without options.
    pub fn while_unmounted(&self, act: impl FnOnce(&Path)) {
        run("umount", &[self.path().to_str().unwrap()]);
        act(&self.image());
        self.mount("");
    }

    pub fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    /// The loop device.
    pub fn device(&self) -> PathBuf {
        let number = std::fs::metadata(self.path()).unwrap().dev();
        PathBuf::from(format!("/dev/loop{}", rustix::fs::minor(number)))
    }

    /// A place of the test that is not in the file system.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn open(&self) -> File {
        File::open(self.path()).unwrap()
    }

    pub fn freezer(&self, fault: &str, limits: FreezeLimits) -> Freezer {
        Freezer::start(&freezer_command(fault), self.open().as_fd(), limits).unwrap()
    }

    /// Fails unless the file system takes a write.
    pub fn assert_thawed(&self, when: &str) {
        let (path, (done, wait)) = (self.path().join("probe"), mpsc::channel());
        std::thread::spawn(move || done.send(std::fs::write(path, b"probe")));
        match wait.recv_timeout(PATIENCE) {
            Ok(written) => written.unwrap(),
            Err(_) => panic!("{} is still frozen: {when}", self.kind),
        }
    }

    /// Thaws; true if it was frozen.
    pub fn thaw(&self) -> bool {
        bale_sys::freeze::thaw(self.open().as_fd()).is_ok()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.path();
        if let Ok(directory) = File::open(&path) {
            let _ = bale_sys::freeze::thaw(directory.as_fd());
        }
        for force in [&["-q"][..], &["-q"], &["-q", "-l"]] {
            let umount = Command::new("umount").args(force).arg(&path).status();
            if umount.is_ok_and(|status| status.success()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// A directory mounted on another one, until it is dropped.
pub struct Bind(PathBuf);

impl Bind {
    pub fn new(from: &Path, onto: &Path) -> Bind {
        let words = ["--bind", from.to_str().unwrap(), onto.to_str().unwrap()];
        run("mount", &words);
        Bind(onto.to_owned())
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

/// This program, as a freezer.
pub fn freezer_command(fault: &str) -> FreezerCommand {
    FreezerCommand {
        program: std::env::current_exe().unwrap(),
        arguments: ["--exact", "mounts::freezer_process", "--nocapture"]
            .map(Into::into)
            .to_vec(),
        environment: vec![(FAULT.into(), fault.into())],
    }
}

/// Not a test: what the freezer's command runs.
#[test]
fn freezer_process() {
    let Ok(fault) = std::env::var(FAULT) else {
        return;
    };
    let mut parts = fault.split(':');
    let what = parts.next().unwrap().to_string();
    let step = parts.next().unwrap_or("").to_string();
    let mark = parts.next().map(PathBuf::from);
    let mut done = false;
    let mut barriers = 0;
    serve(&mut |at: Step| {
        if what == "second" {
            barriers += usize::from(at == Step::Announced);
            let ends = [(Step::Announced, "before"), (Step::Finished, "after")];
            let end = ends.iter().find(|(step, _)| *step == at && barriers == 2);
            if let (Some((_, end)), Some(mark)) = (end, &mark) {
                wait_at(&mark.with_extension(end));
            }
            return;
        }
        if done || format!("{at:?}") != step {
            return;
        }
        done = true;
        if let Some(mark) = &mark {
            std::fs::write(mark, b"").unwrap();
        }
        match what.as_str() {
            "kill" => kill_process(getpid(), Signal::KILL).unwrap(),
            "stop" => kill_process(getpid(), Signal::STOP).unwrap(),
            "wait" => {
                while mark.as_ref().is_some_and(|mark| mark.exists()) {
                    std::thread::yield_now();
                }
                return;
            }
            _ => {}
        }
        // A signal to the process reaches this thread a little later; the others just pause.
        std::thread::sleep(Duration::from_millis(500));
    })
    .unwrap();
}

/// Makes a file and waits until somebody removes it.
fn wait_at(mark: &Path) {
    std::fs::write(mark, b"").unwrap();
    while mark.exists() {
        std::thread::yield_now();
    }
}

/// Reads the device behind a file, past all caches: 4 KiB.
pub fn read_device(mounted: &Mounted, offset_bytes: u64) -> u8 {
    let device = File::options()
        .read(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(mounted.device())
        .unwrap();
    let mut buffer = bale_sys::buffer::AlignedBuffer::new(4096);
    let start = offset_bytes / 4096 * 4096;
    device.read_exact_at(&mut buffer, start).unwrap();
    buffer[(offset_bytes - start) as usize]
}

/// Where the last byte of a file lies on its device.
pub fn device_offset_of_end(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    let end = file.metadata().unwrap().len() - 1;
    let mut extents = Vec::new();
    let sync = bale_sys::extents::SYNC;
    bale_sys::extents::extents(file.as_fd(), end, 1, sync, &mut extents).unwrap();
    end - extents[0].logical + extents[0].physical
}

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process lives; one that ended and was not waited for does not.
pub fn lives(process_id: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(format!("{process_id}/stat")));
    stat.is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}
