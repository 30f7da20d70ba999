//! A mounted XFS that may not be frozen: what the kernel tells of its inodes and directories gives
//! the snapshot that a walk gives. Nothing of this is read from the device.

use super::snapshots::{Pair, Taken, assert_same_rows, settle};
use crate::xfs_image::fixture::{Abilities, populate};
use crate::xfs_image::operations::operate;
use crate::xfs_image::{Image, Random, can_run, can_run_since};
use bale_fsimage::xfs::Xfs;
use bale_pipeline::monitor::Recorder;
use bale_source::scan::inode::TablesState;
use bale_source::scan::{
    ScanItem, ScanMode, ScanOptions, Sources, StartedScan, TablesUnchanged, choose,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

const TOOLS: [&str; 5] = ["mkfs.xfs", "mount", "setfacl", "cp", "xfs_io"];
const HISTORIES: u64 = 12;
const OPERATIONS: u64 = 60;

/// Of a mounted directory, without a freeze.
fn told(pair: &Pair, directory: &Path) -> Taken {
    let taken = pair.take(directory, ScanMode::Inode).unwrap();
    let is_told = |note: &String| note.contains("listed by the kernel");
    assert!(taken.notes.iter().any(is_told), "{:?}", taken.notes);
    taken
}

fn walked(pair: &Pair, directory: &Path) -> Taken {
    // What is as young as a tick is marked by either at another time.
    std::thread::sleep(std::time::Duration::from_millis(40));
    pair.walk(directory)
}

/// A walk and then the kernel's lists of the same directory give the same rows, and nothing is
/// stored again.
fn assert_same(pair: &Pair, directory: &Path, which: &str) {
    let walked = walked(pair, directory);
    assert_same_as(&walked, pair, directory, which);
}

fn assert_same_as(walked: &Taken, pair: &Pair, directory: &Path, which: &str) {
    assert!(walked.problems.is_empty(), "{which}: {:?}", walked.problems);
    let chunks = pair.data_chunks();
    let mut listed = told(pair, directory);
    assert!(listed.problems.is_empty(), "{which}: {:?}", listed.problems);
    if pair.adopt_other_holes(walked, &mut listed, which) {
        assert_eq!(pair.data_chunks(), chunks, "{which}: stored again");
    }
    assert_same_rows(&walked.rows, &listed.rows, which);
    let totals = |taken: &Taken| {
        let totals = taken.outcome.snapshot.totals;
        (totals.files, totals.others, totals.bytes, totals.hard_links)
    };
    assert_eq!(totals(walked), totals(&listed), "{which}");
}

fn walk_and_kernel_agree(mkfs_arguments: &str, since_kernel: (u32, u32)) {
    if !can_run_since(since_kernel, &TOOLS) {
        return;
    }
    let image = Image::make(2048, mkfs_arguments);
    let mounted = image.mount();
    let can = Abilities {
        reflink: true,
        bigtime: true,
        names: 2000,
        since_kernel,
    };
    populate(&mounted.path(), can);
    mounted.unmount();
    let mut pair = Pair::new();
    // All of it, parts of it, and all of it compared with a snapshot of before.
    let cases = [
        ("", true),
        ("odd names", true),
        ("level0/level1", true),
        ("node", true),
        ("", false),
    ];
    for (part, force) in cases {
        pair.force = force;
        let mounted = image.mount();
        let walked = walked(&pair, &mounted.path().join(part));
        // What was read ahead of ranges that were never written is told as data: each begins with
        // nothing in memory.
        mounted.unmount();
        let mounted = image.mount();
        let which = format!("{mkfs_arguments}: {part:?}");
        assert_same_as(&walked, &pair, &mounted.path().join(part), &which);
        mounted.unmount();
    }
}

#[test]
fn walk_and_kernel_agree_on_xfs_as_usual() {
    walk_and_kernel_agree("", (5, 10));
}

#[test]
fn walk_and_kernel_agree_on_directory_blocks_of_64_kib() {
    walk_and_kernel_agree("-n size=64k -i size=1024", (5, 10));
}

#[test]
fn walk_and_kernel_agree_on_many_small_groups() {
    walk_and_kernel_agree("-b size=2k -d agcount=16", (5, 10));
}

#[test]
fn histories_are_told_as_they_are_walked() {
    if !can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = Image::make(320, "");
    let mounted = image.mount();
    let mut pair = Pair::new();
    let mut done = 0;
    for history in 0..HISTORIES {
        let mut random = Random(5 << 32 | history);
        for _ in 0..OPERATIONS {
            done += u64::from(operate(&mounted.path(), &mut random).is_ok());
        }
        pair.force = history % 4 == 0;
        assert_same(&pair, &mounted.path(), &format!("history {history}"));
    }
    assert!(done > 0);
    mounted.unmount();
}

/// More inodes than are asked for at once, wide and deep, and directories whose parents have
/// greater numbers.
#[test]
fn many_directories_are_each_listed_once() {
    if !can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = Image::make(512, "");
    let mounted = image.mount();
    let root = mounted.path();
    let mut deep = root.join("deep");
    for directory in 0..3000 {
        let wide = root.join(format!("wide/{directory}"));
        std::fs::create_dir_all(&wide).unwrap();
        std::fs::write(wide.join("file"), wide.as_os_str().as_encoded_bytes()).unwrap();
        if directory < 300 {
            std::fs::create_dir(&deep).unwrap();
            std::fs::write(deep.join("file"), directory.to_string()).unwrap();
            deep.push("d");
        }
    }
    std::fs::create_dir(root.join("new parent")).unwrap();
    for directory in 0..1000 {
        let place = root.join(format!("new parent/{directory}"));
        std::fs::rename(root.join(format!("wide/{directory}")), place).unwrap();
    }
    for number in 0..20_000 {
        std::fs::hard_link(
            root.join("wide/2000/file"),
            root.join(format!("wide/2001/{number}")),
        )
        .unwrap();
    }
    // Nothing of it in the kernel's memory, so that it must look for the names of directories.
    mounted.unmount();
    let mounted = image.mount();
    assert_same(&Pair::new(), &mounted.path(), "many directories");
    mounted.unmount();
}

#[test]
fn what_is_left_out_is_left_out_of_what_the_kernel_tells() {
    if !can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = Image::make(320, "");
    let mounted = image.mount();
    super::filters::populate(&mounted.path());
    let mut pair = Pair::new();
    for (which, filter) in super::filters::cases() {
        pair.filter = filter;
        assert_same(&pair, &mounted.path(), which);
    }
    mounted.unmount();
}

/// Turns bits around in a file that is part of no checksum that fits then.
fn damage(image: &Path, offset: u64) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, offset).unwrap();
    file.write_all_at(&bytes.map(|byte| !byte), offset).unwrap();
}

#[test]
fn what_the_kernel_cannot_read_is_told_of_as_a_walk_tells_it() {
    if !can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = Image::make(320, "");
    let mounted = image.mount();
    let root = mounted.path();
    for directory in ["sound", "damaged", "many"] {
        std::fs::create_dir(root.join(directory)).unwrap();
        for number in 0..300 {
            std::fs::write(root.join(format!("{directory}/{number}")), directory).unwrap();
        }
    }
    let inode = |path: &str| std::fs::metadata(root.join(path)).unwrap().ino();
    let inodes = ["damaged", "sound/7", "sound/8", "sound/299"].map(inode);
    let listing = inode("many");
    mounted.unmount();
    settle(&image.path());
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    let offset = |inode| xfs.superblock().inode_offset(inode).unwrap();
    let mut raw = vec![0; usize::from(xfs.superblock().inode_bytes)];
    source.read_exact_at(&mut raw, offset(listing)).unwrap();
    let many = xfs.parse_inode(listing, &raw).unwrap();
    let block = xfs.dir_blocks(&source, &many).unwrap().next().unwrap();
    damage(&image.path(), block.unwrap().first.device_offset + 100);
    // The owner.
    inodes
        .iter()
        .for_each(|inode| damage(&image.path(), offset(*inode) + 8));

    let pair = Pair::new();
    let mounted = image.mount();
    let walked = walked(&pair, &mounted.path());
    let listed = told(&pair, &mounted.path());
    let paths = |taken: &Taken| -> BTreeSet<Vec<u8>> {
        let problems = taken.problems.iter();
        problems.map(|problem| problem.path.clone()).collect()
    };
    assert!(
        paths(&walked).len() >= inodes.len(),
        "{:?}",
        walked.problems
    );
    assert_eq!(paths(&walked), paths(&listed), "{:?}", listed.problems);
    assert_same_rows(&walked.rows, &listed.rows, "damaged");
    mounted.unmount();
}

fn chosen(directory: &Path, known: Option<TablesUnchanged>) -> StartedScan {
    let (sources, _) = Sources::resolve(&[directory]).unwrap();
    let options = ScanOptions {
        mode: ScanMode::Inode,
        spill_directory: std::env::temp_dir(),
        known,
        ..ScanOptions::default()
    };
    choose(&sources, options, &Recorder::default()).unwrap()
}

fn state_of(directory: &Path) -> TablesState {
    match chosen(directory, None) {
        StartedScan::Inodes(scan) => scan.state,
        _ => panic!("inodes are scanned"),
    }
}

fn entries_of(chosen: StartedScan) -> usize {
    let (items, _look_again) = chosen.into_stream();
    let batches = items.map(|item| match item {
        ScanItem::Entries(batch) => batch.entries.len(),
        ScanItem::Problem(problem) => panic!("{problem:?}"),
        _ => 0,
    });
    batches.sum()
}

#[test]
fn reading_changes_nothing_and_every_change_is_told() {
    if !can_run(&["mkfs.xfs", "mount"]) {
        return;
    }
    let image = Image::make(320, "");
    let mounted = image.mount();
    let path = |name: &str| mounted.path().join(name);
    for name in ["a", "b", "c"] {
        std::fs::write(path(name), vec![7; 10_000]).unwrap();
    }
    let mut before = state_of(&mounted.path());
    assert!(before.is_complete);
    std::fs::read(path("a")).unwrap();
    std::fs::read_dir(mounted.path()).unwrap().count();
    assert_eq!(state_of(&mounted.path()), before);
    // What is known needs no names, and what might be is listed afterwards.
    let tables_unchanged = chosen(
        &mounted.path(),
        Some(Arc::new(move |state| *state == before)),
    );
    assert!(matches!(tables_unchanged, StartedScan::TablesUnchanged(_)));
    assert_eq!(entries_of(tables_unchanged), 0);
    let unlike = chosen(&mounted.path(), Some(Arc::new(|_| false)));
    assert_eq!(
        entries_of(unlike),
        entries_of(chosen(&mounted.path(), None))
    );
    let changes: [&dyn Fn(); 5] = [
        &|| std::fs::write(path("a"), vec![8; 10_000]).unwrap(),
        &|| std::fs::set_permissions(path("b"), PermissionsExt::from_mode(0o600)).unwrap(),
        &|| std::fs::hard_link(path("b"), path("link")).unwrap(),
        &|| std::fs::rename(path("c"), path("d")).unwrap(),
        &|| std::fs::remove_file(path("d")).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        // Two changes in one tick of the clock may look alike, which is what barriers are for.
        std::thread::sleep(std::time::Duration::from_millis(20));
        change();
        let after = state_of(&mounted.path());
        assert_ne!(after.digest, before.digest, "change {number}");
        let root = std::fs::metadata(mounted.path()).unwrap();
        assert!(
            (root.ctime(), root.ctime_nsec())
                <= (
                    after.not_racy_from.seconds,
                    i64::from(after.not_racy_from.nanos)
                )
        );
        before = after;
    }
    mounted.unmount();
}
