//! What may be scanned from its device.

use super::mounts::*;
use bale_source::image::{Image, OpenedAs};
use bale_source::scan::live::{ClockSteps, LiveKind, live_target};
use bale_sys::open::{HELD_FOR_A_MOMENT, open_exclusively};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const TRIES_MAX: usize = 20;

fn refusal(path: &Path) -> String {
    match live_target(path, &std::env::temp_dir()) {
        Ok(target) => panic!("{}: {target:?}", path.display()),
        Err(why) => why.to_string(),
    }
}

/// Mounted over a directory, unmounted when dropped.
struct Over(PathBuf);

impl Over {
    fn new(arguments: &[&str], path: &Path) -> Over {
        let mut all = arguments.to_vec();
        all.push(path.to_str().unwrap());
        run("mount", &all);
        Over(path.to_path_buf())
    }
}

impl Drop for Over {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-q").arg(&self.0).status();
    }
}

#[test]
fn a_mount_point_a_directory_and_a_bind_mount_lead_to_the_same_device() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let inner = mounted.path().join("a b/c");
        std::fs::create_dir_all(&inner).unwrap();
        let other = mounted.beside("other");
        std::fs::create_dir(&other).unwrap();
        let from = mounted.path().join("a b");
        let _bind = Over::new(&["--bind", from.to_str().unwrap()], &other);
        let image = mounted.image();
        let blkid = run(
            "blkid",
            &["-o", "value", "-s", "UUID", image.to_str().unwrap()],
        );
        let uuid: String = String::from_utf8(blkid.stdout)
            .unwrap()
            .trim()
            .replace('-', "");
        for (path, inside) in [
            (mounted.path(), ""),
            (inner.clone(), "a b/c"),
            (other.join("c"), "a b/c"),
            (other.clone(), "a b"),
        ] {
            let target = live_target(&path, &std::env::temp_dir()).unwrap();
            assert_eq!(target.path_inside, Path::new(inside), "{path:?}");
            let metadata = std::fs::metadata(&path).unwrap();
            assert_eq!(target.inode, metadata.ino());
            assert_eq!(target.device_path(), mounted.device());
            assert_eq!(target.kind == LiveKind::Xfs, kind == "xfs");
            assert_eq!(target.uuid.map(|byte| format!("{byte:02x}")).concat(), uuid);
            assert!(!target.read_only && target.mounts_below.is_empty());
        }
        let path = mounted.path();
        run("mount", &["-o", "remount,ro", path.to_str().unwrap()]);
        assert!(live_target(&path, &std::env::temp_dir()).unwrap().read_only);
    }
}

#[test]
fn what_is_mounted_below_is_told_of() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    let places = ["x/y", "x2", "z"].map(|name| mounted.path().join(name));
    for place in &places {
        std::fs::create_dir_all(place).unwrap();
    }
    let _over = places
        .each_ref()
        .map(|place| Over::new(&["-t", "tmpfs", "none"], place));
    let below = |path: &Path| {
        live_target(path, &std::env::temp_dir())
            .unwrap()
            .mounts_below
    };
    assert_eq!(below(&mounted.path()), places);
    assert_eq!(below(&mounted.path().join("x")), places[..1]);
}

#[test]
fn what_would_be_read_wrongly_is_refused_with_a_reason() {
    if !can_mount() {
        return;
    }
    assert!(refusal(Path::new("/proc")).contains("it is on proc"));
    assert!(refusal(Path::new("/no/such/directory")).contains("No such file"));
    let journal = Mounted::with("ext4", 64, &[], "data=journal");
    assert!(refusal(&journal.path()).contains("data=journal"));
    // By default of the superblock; the table of mounts does not say it on every kernel.
    let journal = Mounted::prepared("ext4", 64, &[], "", |image| {
        run("tune2fs", &["-o", "journal_data", image.to_str().unwrap()]);
    });
    assert!(refusal(&journal.path()).contains("data=journal"));

    let mounted = Mounted::new("ext4", 64);
    let names = ["upper", "work", "lower", "merged"];
    let [upper, work, lower, merged] = names.map(|name| mounted.path().join(name));
    for path in [&upper, &work, &lower, &merged] {
        std::fs::create_dir(path).unwrap();
    }
    let options = format!(
        "upperdir={},workdir={},lowerdir={}",
        upper.display(),
        work.display(),
        lower.display()
    );
    let _over = Over::new(&["-t", "overlay", "none", "-o", &options], &merged);
    assert!(refusal(&merged).contains("it is on overlay"));
}

#[test]
fn an_xfs_of_several_devices_is_refused() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str| {
        let path = place.path().join(name);
        std::fs::File::create_new(&path)
            .unwrap()
            .set_len(512 << 20)
            .unwrap();
        Loop::over(&path)
    };
    let (data, extra) = (file("data"), file("extra"));
    let directory = place.path().join("mount");
    std::fs::create_dir(&directory).unwrap();
    run(
        "mkfs.xfs",
        &["-q", "-f", &format!("-llogdev={}", extra.0), &data.0],
    );
    let option = format!("logdev={}", extra.0);
    let _over = Over::new(&["-o", &option, &data.0], &directory);
    assert!(refusal(&directory).contains("log is on another device"));
}

#[test]
fn a_device_that_somebody_holds_for_a_moment_is_waited_for() {
    if !can_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("image");
    std::fs::File::create_new(&path)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let device = Loop::over(&path);
    run("mkfs.ext4", &["-q", &device.0]);
    let open = || Image::open(Path::new(&device.0), OpenedAs::Still);
    let hold = || open_exclusively(Path::new(&device.0), false).unwrap();
    let holder = hold();
    assert!(open().is_err_and(|error| error.to_string().contains("busy")));
    drop(holder);
    // On a busy machine a moment may last longer than anybody waits.
    let is_waited_for = (0..TRIES_MAX).any(|_| {
        let holder = hold();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(HELD_FOR_A_MOMENT / 10);
                drop(holder);
            });
            open().is_ok()
        })
    });
    assert!(is_waited_for);
}

struct Loop(String);

impl Loop {
    fn over(path: &Path) -> Loop {
        let device = run("losetup", &["-f", "--show", path.to_str().unwrap()]).stdout;
        Loop(String::from_utf8(device).unwrap().trim().to_string())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

#[test]
fn setting_the_clock_is_noticed() {
    if !can_run(&["python3"]) {
        return;
    }
    let steps = ClockSteps::watch().unwrap();
    assert!(!steps.seen());
    // adjtimex(ADJ_SETOFFSET) by a microsecond: a step all the same, and nobody is disturbed.
    let script = "import ctypes, struct, sys\n\
buffer = ctypes.create_string_buffer(struct.pack('=I76xQ', 0x100, 1) + bytes(168))\n\
sys.exit(ctypes.CDLL(None).adjtimex(buffer) < 0)";
    run("python3", &["-c", script]);
    assert!(steps.seen());
    assert!(steps.seen(), "what was seen is not forgotten");
}
