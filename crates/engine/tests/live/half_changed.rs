//! Files of which the kernel tells another length and the ctime of before: a truncation shows for some twenty microseconds
//! like that, on ext4 and on XFS.

use super::mounts::*;
use bale_engine::backup::{BackupOptions, Outcome, backup};
use bale_engine::catalog::CatalogReader;
use bale_engine::monitor::Recorder;
use bale_engine::scan::{ScanMode, ScanOptions, Sources};
use bale_format::entry::EntryFlags;
use bale_testkit::Scene;
use bale_testkit::scene::STEP;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

fn walk(scene: &Scene, source: &Path) -> Outcome {
    scene.clock.advance(STEP);
    let (sources, _) = Sources::resolve(&[source.to_path_buf()]).unwrap();
    let scan = ScanOptions {
        mode: ScanMode::Walk,
        ..ScanOptions::default()
    };
    let options = BackupOptions {
        host: "host".to_owned(),
        ..BackupOptions::default()
    };
    let monitor = Recorder::default();
    backup(&scene.repository(), &sources, scan, &options, &monitor).unwrap()
}

fn is_racy(scene: &Scene, outcome: &Outcome, path: &Path) -> bool {
    let layers = outcome.snapshot.layers.clone();
    let catalog = CatalogReader::open(scene.repository().segment_source(), layers).unwrap();
    let row = catalog.lookup(&path.as_os_str().as_bytes()[1..]);
    row.unwrap().unwrap().flags.has(EntryFlags::RACY)
}

/// Nobody can be made to truncate slowly, so the length is changed behind the kernel's back.
#[test]
fn a_length_that_changed_under_its_old_ctime_is_read_again_by_the_next_backup() {
    if !can_mount() || !can_run(&["debugfs"]) {
        return;
    }
    let scene = Scene::new();
    let mounted = Mounted::new("ext4", 64);
    let (file, other) = (mounted.path().join("file"), mounted.path().join("other"));
    std::fs::write(&file, [b'a'; 4096]).unwrap();
    std::fs::write(&other, [b'b'; 4096]).unwrap();
    // Old enough to be settled.
    std::thread::sleep(Duration::from_millis(100));
    walk(&scene, &mounted.path());
    mounted.while_unmounted(|image| {
        let image = image.to_str().unwrap();
        run("debugfs", &["-w", "-R", "sif file size 1000", image]);
    });
    let second = walk(&scene, &mounted.path());
    assert_eq!(second.snapshot.counts.files_changed, 1);
    assert_eq!(second.snapshot.counts.bytes_read, 1000);
    assert!(is_racy(&scene, &second, &file), "it may be half a change");
    assert!(!is_racy(&scene, &second, &other), "nothing happened to it");
    let third = walk(&scene, &mounted.path());
    assert_eq!(third.snapshot.counts.bytes_read, 1000, "it was in doubt");
    assert!(!is_racy(&scene, &third, &file), "now it is not");
    let fourth = walk(&scene, &mounted.path());
    assert_eq!(fourth.snapshot.counts.bytes_read, 0);
}
