//! Backups that are skipped because nothing changed (issue 13, 3): a change that only the second
//! look finds is a change.

use super::backup::{EmitOptions, INODE, UNFROZEN, backup_with, hardly_any};
use super::hooks::Meddler;
use super::mounts::*;
use bale_engine::backup::{BackupOptions, Outcome};
use bale_pipeline::monitor::{Monitor, Recorder};
use bale_testkit::scene::STEP;
use bale_testkit::{LiveTree, Scene, Tree};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// Longer than the doubt about the clock of ctimes.
const SETTLED: Duration = Duration::from_millis(150);

fn skipping(scene: &Scene, mounted: &Mounted, way: EmitOptions, monitor: &dyn Monitor) -> Outcome {
    std::thread::sleep(SETTLED);
    scene.clock.advance(STEP);
    let options = BackupOptions {
        skip_if_unchanged: true,
        ..BackupOptions::default()
    };
    let (source, spill) = (mounted.path().join("tree"), mounted.beside(""));
    let repository = scene.repository();
    backup_with(source, spill, (way, ""), &options, &repository, monitor).unwrap()
}

#[test]
fn what_only_the_second_look_finds_is_stored_by_a_backup_that_skips() {
    if !can_mount() {
        return;
    }
    let ways = [INODE, UNFROZEN];
    for (kind, way) in FILESYSTEMS
        .into_iter()
        .flat_map(|kind| ways.map(|way| (kind, way)))
    {
        let mounted = Mounted::new(kind, 512);
        let source = mounted.path().join("tree");
        std::fs::create_dir(&source).unwrap();
        LiveTree::create(&source, hardly_any());
        let path = source.join("quietly");
        std::fs::write(&path, [b'a'; 4096]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let scene = Scene::new();
        let first = skipping(&scene, &mounted, way, &Recorder::default());
        assert!(first.id.is_some(), "{kind} {way:?}: there was none");
        // Beside the source, so that the file system is not the one that was seen.
        std::fs::write(mounted.path().join("elsewhere"), "x").unwrap();
        let change = || {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.write_all_at(b"b", 0).unwrap();
        };
        let meddler = Meddler {
            gathered: &change,
            looked_again: &|| (),
            recorder: Recorder::default(),
        };
        let second = skipping(&scene, &mounted, way, &meddler);
        let (id, notes) = (second.id, meddler.recorder.notes.lock().unwrap());
        assert!(id.is_some(), "{kind} {way:?}: it was skipped: {notes:?}");
        let target = mounted.beside("restored");
        assert!(super::backup::restore_newest(&scene, &source, &target));
        let differing = Tree::read(&target).differences(&Tree::read(&source));
        assert!(differing.is_empty(), "{kind} {way:?}: {differing:?}");
        if way.freezes() {
            // Not in doubt any more, so that there is something to skip.
            skipping(&scene, &mounted, way, &Recorder::default());
            let fourth = skipping(&scene, &mounted, way, &Recorder::default());
            assert!(fourth.id.is_none(), "{kind} {way:?}: nothing changed");
        }
    }
}
