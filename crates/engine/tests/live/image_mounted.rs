//! An image that is mounted somewhere is no still image: what is new in its file system is not in
//! it yet.

use super::mounts::*;
use bale_engine::backup::{BackupOptions, backup};
use bale_pipeline::monitor::Recorder;
use bale_source::scan::{ScanMode, ScanOptions, Sources};
use bale_testkit::Scene;
use std::path::{Path, PathBuf};

/// A loop device, detached when it is dropped.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(what: &Path) -> LoopDevice {
        let words = ["-f", "--show", "--read-only", what.to_str().unwrap()];
        let name = run("losetup", &words).stdout;
        LoopDevice(String::from_utf8(name).unwrap().trim().into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        run("losetup", &["-d", self.0.to_str().unwrap()]);
    }
}

fn backup_of(scene: &Scene, mounted: &Mounted, image: &Path) -> Result<u64, String> {
    let (sources, _) = Sources::resolve(&[image]).unwrap();
    let scan = ScanOptions {
        mode: ScanMode::Inode,
        spill_directory: mounted.beside(""),
        ..ScanOptions::default()
    };
    let (options, monitor) = (BackupOptions::default(), Recorder::default());
    let outcome = backup(&scene.repository(), &sources, scan, &options, &monitor);
    let outcome = outcome.map_err(|error| error.to_string())?;
    Ok(outcome.snapshot.totals.files)
}

#[test]
fn an_image_that_is_mounted_for_writing_is_refused_by_whichever_name() {
    if !can_mount() || !can_run(&["losetup"]) {
        return;
    }
    for kind in FILESYSTEMS {
        let (scene, mounted) = (Scene::new(), Mounted::new(kind, 512));
        std::fs::write(mounted.path().join("a"), b"settled").unwrap();
        let place = mounted.path();
        let other_name = mounted.beside("other-name");
        std::fs::hard_link(mounted.image(), &other_name).unwrap();
        // A second device over the image, and one over the device that is mounted.
        let image = mounted.image();
        let over = [
            LoopDevice::over(&image),
            LoopDevice::over(&mounted.device()),
        ];
        let names = [mounted.image(), other_name, mounted.device()].into_iter();
        for name in names.chain(over.iter().map(|over| over.0.clone())) {
            let why = backup_of(&scene, &mounted, &name).expect_err("it is mounted");
            let expected = format!("is mounted at {}: ", place.display());
            assert!(why.contains(&expected), "{kind}: {why}");
            assert!(why.contains(&format!("Back up {} instead", place.display())));
        }
        drop(over);
        assert!(scene.repository().snapshots().unwrap().is_empty());
        mounted.while_unmounted(|image| {
            assert_eq!(backup_of(&scene, &mounted, image), Ok(1), "{kind}");
        });
        // Mounted read-only, it is as still as unmounted.
        let words = ["-o", "remount,ro", place.to_str().unwrap()];
        run("mount", &words);
        let files = backup_of(&scene, &mounted, &mounted.image());
        assert_eq!(files, Ok(1), "{kind}");
    }
}
