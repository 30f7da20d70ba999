//! Rows of what could not be read, or was written to meanwhile: none of them is taken for good by
//! the next backup.

use super::backup::{Bench, INODE, WALK, backup_into, hardly_any};
use super::hooks::Meddler;
use super::mounts::*;
use bale_format::entry::EntryFlags;
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use bale_testkit::Scene;
use bale_testkit::scene::STEP;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Longer than the doubt about the clock of ctimes, and than what mkfs makes is in doubt.
const SETTLED: Duration = Duration::from_millis(2_100);

/// A second name shares what was read for the first, and must share the doubt.
#[test]
fn every_name_of_a_file_that_could_not_be_read_whole_is_read_again() {
    if !can_mount() {
        return;
    }
    for bytes in [40_000_u64, 4_000_000] {
        // Whatever is written behind the end of the image would make it longer again.
        let quiet = ["-E", "lazy_itable_init=0", "-O", "^has_journal"];
        let mounted = Mounted::with("ext4", 64, &quiet, "");
        let mut bench = Bench::on(mounted, WALK, hardly_any());
        let names = ["first", "second"].map(|name| bench.source().join(name));
        fs::write(&names[0], vec![b'a'; bytes as usize]).unwrap();
        fs::hard_link(&names[0], &names[1]).unwrap();
        let end = device_offset_of_end(&names[0]);
        let whole = bench.mounted.beside("whole");
        bench.mounted.while_unmounted(|image| {
            fs::copy(image, &whole).unwrap();
        });
        std::thread::sleep(SETTLED);
        let image = File::options().write(true).open(bench.mounted.image());
        image.unwrap().set_len(end / 4096 * 4096).unwrap();
        let first = bench.backup();
        bench
            .mounted
            .while_unmounted(|image| fs::rename(&whole, image).unwrap());
        let next = bench.backup();
        for (outcome, is_incomplete) in [(first, true), (next, false)] {
            let layers = outcome.snapshot.layers.clone();
            let catalog = CatalogReader::open(bench.repository().segment_source(), layers);
            let catalog = catalog.unwrap();
            for name in &names {
                let row = catalog.lookup(&name.as_os_str().as_bytes()[1..]);
                let flags = row.unwrap().unwrap().flags;
                let found = flags.has(EntryFlags::INCOMPLETE);
                assert_eq!(found, is_incomplete, "{bytes}: {name:?} {flags:?}");
            }
        }
        bench.next_backup_has_every_byte();
    }
}

/// Somebody wrote to an image while it was read, and left no time behind: a virtual machine that
/// was killed, say. The backup says so; what it stored is not taken for good by the next one.
#[test]
fn what_was_read_of_an_image_that_was_written_to_is_read_again() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    let path = mounted.path().join("file");
    fs::write(&path, [b'a'; 8192]).unwrap();
    let end = device_offset_of_end(&path);
    let image = mounted.beside("copy");
    mounted.while_unmounted(|original| {
        fs::copy(original, &image).unwrap();
    });
    std::thread::sleep(SETTLED);
    let write = |byte: u8| {
        let file = File::options().write(true).open(&image).unwrap();
        file.write_all_at(&[byte], end).unwrap();
    };
    let (scene, spill) = (Scene::new(), mounted.beside(""));
    let backup = |meddler: &Meddler| {
        scene.clock.advance(STEP);
        let (image, spill) = (image.clone(), spill.clone());
        backup_into(image, spill, INODE, "", &scene.repository(), meddler).unwrap()
    };
    let during = Meddler {
        gathered: &|| write(b'x'),
        looked_again: &|| (),
        recorder: Recorder::default(),
    };
    backup(&during);
    let problems = during.recorder.problems.into_inner().unwrap();
    assert_eq!(problems.len(), 1, "{problems:?}");
    write(b'a');
    std::thread::sleep(SETTLED);
    let quiet = Meddler {
        gathered: &|| (),
        looked_again: &|| (),
        recorder: Recorder::default(),
    };
    let next = backup(&quiet);
    assert_eq!(next.snapshot.counts.bytes_read, 8192, "it was in doubt");
    assert_eq!(
        backup(&quiet).snapshot.counts.bytes_read,
        0,
        "now it is not"
    );
}

/// Built twice from other bytes, on purpose with the same times, numbers and UUID.
#[test]
fn an_image_that_was_built_anew_under_its_old_times_is_read_again() {
    if !can_mount() || !can_run(&["mke2fs", "debugfs", "env"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (image, payload) = (
        directory.path().join("image"),
        directory.path().join("payload"),
    );
    let scene = Scene::new();
    for content in ["setting=1", "setting=2"] {
        let _of_the_build_before = fs::remove_file(&image);
        File::create_new(&image).unwrap().set_len(16 << 20).unwrap();
        fs::write(&payload, content).unwrap();
        let built = |program: &str, arguments: &[&str]| {
            let clock = ["E2FSPROGS_FAKE_TIME=1700000000", program];
            run(
                "env",
                &[&clock, arguments, &[image.to_str().unwrap()]].concat(),
            );
        };
        let uuid = "11111111-2222-3333-4444-555555555555";
        let seed = format!("hash_seed={uuid}");
        built("mke2fs", &["-q", "-t", "ext4", "-U", uuid, "-E", &seed]);
        let write = format!("write {} file", payload.display());
        built("debugfs", &["-w", "-R", &write]);
        let (scene, spill) = (&scene, directory.path().to_path_buf());
        scene.clock.advance(STEP);
        let recorder = Recorder::default();
        let repository = scene.repository();
        let outcome = backup_into(image.clone(), spill, INODE, "", &repository, &recorder);
        assert_eq!(outcome.unwrap().snapshot.counts.bytes_read, 9, "{content}");
    }
}

/// The times of a node say nothing of who writes to its device through another one: in a container,
/// say.
#[test]
fn a_device_that_is_written_to_while_it_is_read_is_told() {
    if !can_mount() || !can_run(&["losetup"]) {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    fs::write(mounted.path().join("file"), [b'a'; 8192]).unwrap();
    let image = mounted.beside("copy");
    mounted.while_unmounted(|original| {
        fs::copy(original, &image).unwrap();
    });
    let device = LoopDevice::of(&image);
    let number = device.0.metadata().unwrap().rdev();
    let another = mounted.beside("another");
    let (kind, mode) = (FileType::BlockDevice, Mode::RUSR | Mode::WUSR);
    mknodat(CWD, &another, kind, mode, number).unwrap();
    let (scene, spill) = (Scene::new(), mounted.beside(""));
    for is_written in [false, true] {
        let meddler = Meddler {
            gathered: &|| {
                if is_written {
                    let file = File::options().write(true).open(&another).unwrap();
                    // Boot code: no file system looks at it.
                    file.write_all_at(b"x", 0).unwrap();
                    file.sync_all().unwrap();
                }
            },
            looked_again: &|| (),
            recorder: Recorder::default(),
        };
        scene.clock.advance(STEP);
        let (source, spill) = (device.0.clone(), spill.clone());
        backup_into(source, spill, INODE, "", &scene.repository(), &meddler).unwrap();
        let problems = meddler.recorder.problems.into_inner().unwrap();
        assert_eq!(problems.len(), usize::from(is_written), "{problems:?}");
    }
}

/// An image as a device, until this is dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn of(image: &Path) -> LoopDevice {
        let found = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
        let path = String::from_utf8(found.stdout).unwrap();
        LoopDevice(PathBuf::from(path.trim_end()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let detach = Command::new("losetup").arg("-d").arg(&self.0).status();
        assert!(detach.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}
