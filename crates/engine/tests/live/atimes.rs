//! Times of last access of a mounted file system: the same whichever way it is looked at, and left
//! as they are by looking.

use super::backup::{Bench, INODE, UNFROZEN, WALK, hardly_any};
use super::mounts::*;
use bale_engine::backup::{BackupOptions, Outcome};
use bale_format::Time;
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::CatalogReader;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const FILES: usize = 40;

fn atime_of(path: &Path) -> Time {
    let stat = path.symlink_metadata().unwrap();
    Time::from((stat.atime(), stat.atime_nsec() as u32))
}

/// What the kernel says of files in a directory and of itself.
fn atimes(directory: &Path) -> BTreeMap<Vec<u8>, Time> {
    let files = (0..FILES).map(|number| format!("file{number}"));
    let mut found: BTreeMap<_, _> = files
        .map(|name| (name.clone().into_bytes(), atime_of(&directory.join(name))))
        .collect();
    found.insert(Vec::new(), atime_of(directory));
    found
}

/// What the rows of a snapshot say of them.
fn atimes_of_rows(bench: &Bench, outcome: &Outcome, directory: &Path) -> BTreeMap<Vec<u8>, Time> {
    let segments = bench.repository().segment_source();
    let catalog = CatalogReader::open(segments, outcome.snapshot.layers.clone()).unwrap();
    let below = &directory.as_os_str().as_bytes()[1..];
    let rows = catalog.subtree(below).unwrap().map(|row| row.unwrap());
    let found = rows.map(|row| {
        let path = row.path();
        let name = path.get(below.len() + 1..).unwrap_or_default().to_vec();
        (name, row.atime.get().expect("somebody asked for it"))
    });
    found.collect()
}

#[test]
fn every_way_of_looking_finds_the_same_access_times_and_leaves_them() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        for way in [WALK, INODE, UNFROZEN] {
            let which = format!("{kind} {way:?}");
            let mounted = Mounted::with(kind, 512, &[], "strictatime");
            let bench = Bench::on(mounted, way, hardly_any());
            let directory = bench.source().join("accessed");
            fs::create_dir(&directory).unwrap();
            for number in 0..FILES {
                let path = directory.join(format!("file{number}"));
                fs::write(&path, format!("content {number}")).unwrap();
                let time = format!("@{}.{:09}", number as i64 * 100_000_000 - 1_000, number);
                run("touch", &["-a", "-d", &time, path.to_str().unwrap()]);
            }
            let backup = || {
                // Old enough not to be racy.
                std::thread::sleep(Duration::from_millis(50));
                let options = BackupOptions {
                    with_atime: true,
                    ..BackupOptions::default()
                };
                bench.backup_as(&options, &Recorder::default())
            };
            let seen = atimes(&directory);
            let outcome = backup();
            assert_eq!(
                atimes_of_rows(&bench, &outcome, &directory),
                seen,
                "{which}"
            );
            assert_eq!(atimes(&directory), seen, "{which}: reading left a mark");
            for number in [3, 5, 8] {
                fs::read(directory.join(format!("file{number}"))).unwrap();
            }
            let now = atimes(&directory);
            let later = now.iter().filter(|(name, time)| seen[*name] != **time);
            assert_eq!(later.count(), 3, "{which}");
            for round in ["some were read", "nothing was done"] {
                let outcome = backup();
                let counts = outcome.snapshot.counts;
                let found = atimes_of_rows(&bench, &outcome, &directory);
                assert_eq!(found, now, "{which}: {round}");
                let changed = (counts.files_new, counts.files_changed);
                assert_eq!(changed, (0, 0), "{which}: {round}");
                // Without a freeze files are read again as long as somebody may be writing them.
                if way.freezes() {
                    assert_eq!(counts.bytes_read, 0, "{which}: {round}");
                }
            }
        }
    }
}
