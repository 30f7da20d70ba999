//! Images that QEMU reads for us: a file of their chain that changes is seen, and a process that
//! ends in the middle takes nothing with it.

use crate::bench::Images;
use bale_engine::backup::{BackupOptions, ImageSource};
use bale_format::snapshot::ImageState;
use bale_pipeline::monitor::Recorder;
use bale_source::raw::RawImage;
use bale_testkit::scene::noise;
use bale_testkit::{have, skipped};
use std::path::Path;
use std::process::Command;

/// `top.qcow2`, based on `base.raw`.
fn chain(images: &Images) -> bool {
    if !have("qemu-img") || !have("qemu-nbd") {
        skipped("qemu-img and qemu-nbd not installed");
        return false;
    }
    images.write("base.raw", &noise(1, 6 << 20));
    let (top, base) = (images.path("top.qcow2"), images.path("base.raw"));
    let create = ["create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
    let mut made = Command::new("qemu-img");
    made.args(create).arg(base).arg(top);
    made.status().unwrap().success()
}

/// Opens the image, does something, and backs it up; how it is recorded, and the problems.
fn after(images: &Images, act: impl FnOnce(&Path)) -> (ImageState, Vec<String>) {
    let image = RawImage::open(&images.path("top.qcow2")).unwrap();
    act(&images.path("top.qcow2"));
    let (monitor, options) = (Recorder::default(), BackupOptions::default());
    let repository = images.scene.repository();
    let mut sources = [ImageSource::untracked(image)];
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let problems = monitor.problems.lock().unwrap();
    let problems = problems.iter().map(|problem| problem.text.clone());
    (outcome.unwrap().snapshot.images[0].how, problems.collect())
}

#[test]
fn an_image_of_which_any_file_changes_is_fuzzy_and_the_file_is_named() {
    let images = Images::new();
    if !chain(&images) {
        return;
    }
    let (how, problems) = after(&images, |_| ());
    assert_eq!((how, problems.len()), (ImageState::Still, 0));
    let (how, problems) = after(&images, |_| {
        let base = std::fs::File::options()
            .write(true)
            .open(images.path("base.raw"));
        std::os::unix::fs::FileExt::write_all_at(&base.unwrap(), b"x", 5).unwrap();
    });
    assert_eq!(how, ImageState::Fuzzy);
    assert!(
        problems[0].contains("base.raw: the image was written to"),
        "{problems:?}"
    );
}

#[test]
fn a_process_that_is_killed_ends_its_image_with_a_reason() {
    let images = Images::new();
    if !chain(&images) {
        return;
    }
    let (_, problems) = after(&images, |path| {
        let mut found = Command::new("pgrep");
        found.args(["-f", &format!("qemu-nbd.*{}", path.display())]);
        let found = String::from_utf8(found.output().unwrap().stdout).unwrap();
        assert_eq!(found.lines().count(), 1, "{found}");
        Command::new("kill")
            .args(["-9", found.trim()])
            .status()
            .unwrap();
    });
    assert!(
        problems[0].contains("byte 0 and all behind it: "),
        "{problems:?}"
    );
    assert!(
        problems[0].contains("the connection is lost"),
        "{problems:?}"
    );
    let (how, problems) = after(&images, |_| ());
    assert_eq!((how, problems.len()), (ImageState::Still, 0));
}
