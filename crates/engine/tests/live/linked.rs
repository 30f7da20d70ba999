//! Names of one inode of which one is reused and another is new: readers that see other holes must
//! not make two files of them.
//!
//! What is allocated and not written is a hole to an inode scan. The kernel calls it data for as
//! long as it is in its cache, and reading it leaves no trace in a time.

use super::backup::{EmitOptions, INODE, WALK, backup_of, restore_newest};
use super::mounts::*;
use bale_engine::backup::Outcome;
use bale_format::{Entry, EntryFlags};
use bale_repository::catalog::CatalogReader;
use bale_testkit::scene::{STEP, noise};
use bale_testkit::{Scene, Tree};
use rustix::fs::FallocateFlags;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// Longer than the doubt about the clock of ctimes.
const SETTLED: Duration = Duration::from_millis(150);
/// Name, written bytes, bytes allocated behind them, and size.
const FILES: [(&str, usize, u64, u64); 4] = [
    ("large", 400_000, 400_000, 4_000_000),
    ("small", 40_000, 40_000, 400_000),
    ("large, unwritten", 0, 700_000, 3_000_000),
    ("small, unwritten", 0, 100_000, 300_000),
];
/// Directory of the names that stay, and of those that move: before and after them.
const KEPT: &str = "k";
const MOVES: [(&str, &str); 4] = [("p", "q"), ("b", "c"), ("p", "c"), ("b", "q")];

fn populate(source: &Path, moving: &str) {
    for directory in [KEPT, moving] {
        fs::create_dir_all(source.join(directory)).unwrap();
    }
    for (name, written, allocated, size) in FILES {
        let path = source.join(KEPT).join(name);
        let mut file = File::create(&path).unwrap();
        file.write_all(&noise(size, written)).unwrap();
        // The beginning of what has no byte written is a hole.
        let from = (written as u64).max(100_000 * u64::from(written == 0));
        rustix::fs::fallocate(&file, FallocateFlags::empty(), from, allocated).unwrap();
        file.set_len(size).unwrap();
        fs::hard_link(&path, source.join(moving).join(name)).unwrap();
    }
}

/// The row of a file of the source.
fn row(scene: &Scene, outcome: &Outcome, path: &Path) -> Entry {
    let segments = scene.repository().segment_source();
    let catalog = CatalogReader::open(segments, outcome.snapshot.layers.clone()).unwrap();
    let row = catalog.lookup(&path.as_os_str().as_bytes()[1..]).unwrap();
    row.unwrap()
}

/// A backup, a move of one name of each inode, and another backup.
fn assert_names_stay_one_file(
    kind: &'static str,
    ways: [EmitOptions; 2],
    (from, to): (&str, &str),
    is_cached: bool,
) {
    let which = format!("{kind}, {from} to {to}, {ways:?}, cached: {is_cached}");
    let mounted = Mounted::new(kind, 320);
    let source = mounted.path().join("tree");
    populate(&source, from);
    // Nothing of it stays in the cache.
    mounted.while_unmounted(|_| ());
    std::thread::sleep(SETTLED);
    let scene = Scene::new();
    let backup = |way| {
        scene.clock.advance(STEP);
        let (spill, repository) = (mounted.beside(""), scene.repository());
        backup_of(source.clone(), spill, way, "", &repository)
    };
    backup(ways[0]);
    if is_cached {
        for (name, ..) in FILES {
            fs::read(source.join(KEPT).join(name)).unwrap();
        }
    }
    fs::rename(source.join(from), source.join(to)).unwrap();
    let second = backup(ways[1]);
    if to > KEPT {
        assert_eq!(second.snapshot.counts.bytes_read, 0, "{which}");
    }
    let shared = |row: &Entry| {
        let is_sparse = row.flags.has(EntryFlags::SPARSE);
        (row.inode, row.content, row.content_hash, is_sparse)
    };
    for (name, ..) in FILES {
        let rows = [KEPT, to].map(|directory| {
            let path = source.join(directory).join(name);
            row(&scene, &second, &path)
        });
        assert_eq!(shared(&rows[0]), shared(&rows[1]), "{which}: {name}");
        assert!(rows[0].content_hash.is_some() && rows[0].nlink == 2);
    }
    let target = mounted.beside("restored");
    assert!(restore_newest(&scene, &source, &target));
    let differing = Tree::read(&target).differences(&Tree::read(&source));
    assert!(differing.is_empty(), "{which}: {differing:?}");
}

#[test]
fn a_moved_name_of_a_file_that_was_only_read_stays_a_name_of_it() {
    if !can_mount() {
        return;
    }
    for (kind, names) in FILESYSTEMS
        .iter()
        .flat_map(|k| MOVES.map(|names| (*k, names)))
    {
        assert_names_stay_one_file(kind, [WALK, WALK], names, true);
    }
}

#[test]
fn a_moved_name_stays_a_name_of_its_file_when_walks_and_inode_scans_take_turns() {
    if !can_mount() {
        return;
    }
    for (kind, names) in FILESYSTEMS
        .iter()
        .flat_map(|k| MOVES.map(|names| (*k, names)))
    {
        for ways in [[WALK, INODE], [INODE, WALK], [INODE, INODE]] {
            assert_names_stay_one_file(kind, ways, names, false);
        }
    }
}
