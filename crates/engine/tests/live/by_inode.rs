//! Opening by inode and generation, and asking XFS for many inodes at once.

use super::mounts::*;
use bale_format::entry::{Entry, Kind};
use bale_pipeline::monitor::Recorder;
use bale_source::image::EntryPlace;
use bale_source::read::{SmallState, read_small};
use bale_source::scan::handle::{Handles, list};
use bale_source::scan::live::live_target;
use bale_source::scan::{
    Batch, LookAgain, ScanItem, ScanMode, ScanOptions, SecondLook, Sources, StartedScan, choose,
};
use bale_sys::bulkstat::{BulkInode, BulkStat, InodeNumbers};
use bale_sys::handle::FileHandle;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

fn handles(mounted: &Mounted) -> Handles {
    let target = live_target(&mounted.path(), &std::env::temp_dir()).unwrap();
    Handles::new(target.directory, target.kind)
}

/// Inode, generation and mode, the generation as the kernel's own handle has it.
fn identity(mounted: &Mounted, name: &str) -> (u64, u32, u32) {
    let c_name = CString::new(name).unwrap();
    let (handle, _) = FileHandle::of(mounted.open().as_fd(), &c_name).unwrap();
    let metadata = std::fs::symlink_metadata(mounted.path().join(name)).unwrap();
    let bytes = handle.bytes();
    let at = if mounted.kind == "xfs" { 8 } else { 4 };
    let generation = u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let ours = match mounted.kind {
        "xfs" => FileHandle::xfs(metadata.ino(), generation),
        _ => FileHandle::ext4(metadata.ino() as u32, generation),
    };
    assert_eq!(
        (ours.kind(), ours.bytes()),
        (handle.kind(), bytes),
        "{name}"
    );
    (metadata.ino(), generation, metadata.mode())
}

fn read(handles: &Handles, (inode, generation, mode): (u64, u32, u32)) -> Option<String> {
    let opened = handles.open(inode, generation, mode).unwrap()?;
    let mut text = String::new();
    File::from(opened.fd).read_to_string(&mut text).unwrap();
    Some(text)
}

#[test]
fn a_file_is_opened_by_its_inode_wherever_it_went_and_never_another() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let handles = handles(&mounted);
        let path = |name: &str| mounted.path().join(name);
        std::fs::write(path("a"), "first").unwrap();
        let first = identity(&mounted, "a");
        assert_eq!(read(&handles, first).as_deref(), Some("first"));
        std::fs::rename(path("a"), path("b")).unwrap();
        assert_eq!(read(&handles, first).as_deref(), Some("first"));
        let held = File::open(path("b")).unwrap();
        std::fs::remove_file(path("b")).unwrap();
        assert_eq!(
            read(&handles, first),
            None,
            "{kind}: deleted, but open elsewhere"
        );
        drop(held);
        assert_eq!(read(&handles, first), None, "{kind}: deleted");
        let second = (0..2000).find_map(|number| {
            let name = format!("new{number}");
            std::fs::write(path(&name), "second").unwrap();
            let identity = identity(&mounted, &name);
            (identity.0 == first.0).then_some(identity)
        });
        let second = second.unwrap_or_else(|| panic!("{kind}: the number is not used again"));
        assert_ne!(second.1, first.1);
        assert_eq!(
            read(&handles, first),
            None,
            "{kind}: another life of the number"
        );
        assert_eq!(read(&handles, second).as_deref(), Some("second"));
        assert!(handles.open(1 << 40, 1, first.2).unwrap().is_none());
    }
}

#[test]
fn generation_0_opens_only_generation_0() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("ext4", 64);
    let handles = handles(&mounted);
    std::fs::write(mounted.path().join("a"), "text").unwrap();
    let (inode, generation, mode) = identity(&mounted, "a");
    assert_ne!(generation, 0);
    assert_eq!(read(&handles, (inode, 0, mode)), None);
    // The root was made by mkfs, with generation 0.
    let root = std::fs::metadata(mounted.path()).unwrap();
    assert!(handles.open(root.ino(), 0, root.mode()).unwrap().is_some());
    assert!(handles.open(root.ino(), 0, 0o100_644).unwrap().is_none());
}

#[test]
fn links_pipes_and_devices_are_found_and_not_opened() {
    if !can_mount() || !can_run(&["mkfifo", "mknod"]) {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let path = |name: &str| mounted.path().join(name);
        std::os::unix::fs::symlink("target", path("link")).unwrap();
        run("mkfifo", &[path("pipe").to_str().unwrap()]);
        run("mknod", &[path("device").to_str().unwrap(), "c", "1", "3"]);
        let handles = handles(&mounted);
        for name in ["link", "pipe", "device"] {
            let (inode, generation, mode) = identity(&mounted, name);
            let opened = handles.open(inode, generation, mode).unwrap().unwrap();
            assert_eq!(u32::from(opened.stat.stx_mode), mode);
            assert!(
                rustix::io::read(&opened.fd, &mut [0; 1]).is_err(),
                "{name} was opened"
            );
        }
        let device = std::fs::symlink_metadata(path("device")).unwrap();
        assert!(device.file_type().is_char_device());
    }
}

#[test]
fn a_directory_opened_by_its_inode_lists_its_names() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let directory = mounted.path().join("many");
        std::fs::create_dir(&directory).unwrap();
        let mut expected = BTreeMap::new();
        for number in 0..3000 {
            let name = format!("name-{number}-{}", "x".repeat(number % 200));
            std::fs::write(directory.join(&name), b"").unwrap();
            let inode = std::fs::metadata(directory.join(&name)).unwrap().ino();
            expected.insert(name.into_bytes(), inode);
        }
        let (inode, generation, mode) = identity(&mounted, "many");
        let opened = handles(&mounted)
            .open(inode, generation, mode)
            .unwrap()
            .unwrap();
        for _ in 0..2 {
            let mut found = BTreeMap::new();
            list(&opened.fd, &mut |name| {
                found.insert(name.name.to_vec(), name.inode);
            })
            .unwrap();
            assert!(found == expected, "{kind}: {} names", found.len());
        }
    }
}

fn all_inodes(mounted: &Mounted, group: Option<u32>, per_call: usize) -> Vec<BulkInode> {
    let directory = mounted.open();
    let mut stat = BulkStat::new(group, per_call);
    let mut found = Vec::new();
    loop {
        let before = found.len();
        found.extend(stat.next(directory.as_fd()).unwrap());
        if found.len() == before {
            return found;
        }
    }
}

fn paths_below(directory: &Path, found: &mut BTreeSet<(u64, std::path::PathBuf)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        found.insert((metadata.ino(), path.clone()));
        if metadata.is_dir() {
            paths_below(&path, found);
        }
    }
}

#[test]
fn bulkstat_tells_of_every_inode_what_stat_tells() {
    if !can_mount() {
        return;
    }
    let mounted = Mounted::new("xfs", 512);
    for directory in 0..20 {
        let directory = mounted.path().join(format!("d{directory}"));
        std::fs::create_dir(&directory).unwrap();
        for number in 0..50 {
            let path = directory.join(format!("f{number}"));
            std::fs::write(&path, vec![7; number * 100]).unwrap();
            std::os::unix::fs::chown(&path, Some(number as u32), Some(70_000)).unwrap();
        }
    }
    std::fs::hard_link(mounted.path().join("d0/f0"), mounted.path().join("d1/link")).unwrap();
    std::os::unix::fs::symlink("x", mounted.path().join("link")).unwrap();
    // It tells the length on the device.
    rustix::fs::syncfs(mounted.open()).unwrap();
    let mut expected = BTreeSet::new();
    let root = std::fs::metadata(mounted.path()).unwrap();
    expected.insert((root.ino(), mounted.path()));
    paths_below(&mounted.path(), &mut expected);
    let inodes: BTreeSet<u64> = expected.iter().map(|(inode, _)| *inode).collect();

    let found = all_inodes(&mounted, None, 37);
    assert_eq!(found, all_inodes(&mounted, None, usize::MAX));
    assert!(found.is_sorted_by_key(|inode| inode.inode));
    assert_eq!(
        found
            .iter()
            .map(|inode| inode.inode)
            .collect::<BTreeSet<_>>(),
        inodes
    );
    let mut numbers = InodeNumbers::default();
    let mut chunks = Vec::new();
    loop {
        let before = chunks.len();
        chunks.extend(numbers.next(mounted.open().as_fd()).unwrap());
        if chunks.len() == before {
            break;
        }
    }
    assert!(chunks.is_sorted_by_key(|chunk| chunk.first_inode));
    let in_use = |inode: &u64| {
        chunks.iter().any(|chunk| {
            let at = inode.wrapping_sub(chunk.first_inode);
            at < 64 && chunk.used >> at & 1 == 1
        })
    };
    assert!(inodes.iter().all(in_use));
    let root = BulkStat::root(mounted.open().as_fd()).unwrap().unwrap();
    assert_eq!(root, found[0]);
    let by_group: Vec<_> = (0..4)
        .flat_map(|group| all_inodes(&mounted, Some(group), 100))
        .collect();
    assert_eq!(by_group, found);

    let found: BTreeMap<u64, BulkInode> = found.into_iter().map(|i| (i.inode, i)).collect();
    for (inode, path) in &expected {
        let (found, stat) = (&found[inode], std::fs::symlink_metadata(path).unwrap());
        let times = |seconds: i64, nanos: i64| (seconds, nanos as u32);
        assert_eq!(found.mode, stat.mode(), "{path:?}");
        assert_eq!(u64::from(found.links), stat.nlink());
        assert_eq!((found.uid, found.gid), (stat.uid(), stat.gid()));
        assert_eq!(found.size_bytes, stat.size());
        assert_eq!(found.blocks * 8, stat.blocks(), "{path:?}");
        assert_eq!(found.ctime, times(stat.ctime(), stat.ctime_nsec()));
        assert_eq!(found.mtime, times(stat.mtime(), stat.mtime_nsec()));
        let name = path.strip_prefix(mounted.path()).unwrap().to_str().unwrap();
        if !name.is_empty() {
            assert_eq!(found.generation, identity(&mounted, name).1, "{path:?}");
        }
    }
    let mut stat = BulkStat::new(None, 1);
    let last = *inodes.last().unwrap();
    stat.seek(last);
    assert_eq!(
        stat.next(mounted.open().as_fd())
            .unwrap()
            .next()
            .unwrap()
            .inode,
        last
    );
    assert_eq!(stat.next(mounted.open().as_fd()).unwrap().len(), 0);
}

/// Everything that a scan tells of regular files below a directory: entries and the places to read
/// them at.
fn scanned(mounted: &Mounted, freeze: bool) -> (Option<LookAgain>, Vec<(Entry, EntryPlace)>) {
    let (sources, _) = Sources::resolve(&[mounted.path()]).unwrap();
    let options = ScanOptions {
        mode: ScanMode::Inode,
        freezer: freeze.then(|| freezer_command("")),
        spill_directory: mounted.beside(""),
        ..ScanOptions::default()
    };
    let started = choose(&sources, options, &Recorder::default()).unwrap();
    let (items, look_again) = started.into_stream();
    let mut files = Vec::new();
    for item in items {
        if let ScanItem::Entries(Batch { places, entries }) = item {
            let found = entries.into_iter().enumerate();
            let found = found.map(|(at, entry)| (entry, places.of(at)));
            files.extend(found.filter(|(entry, _)| entry.kind == Kind::File));
        }
    }
    (look_again, files)
}

#[test]
fn what_the_kernel_reads_for_a_scan_is_the_inode_that_was_scanned_wherever_it_was_moved() {
    if !can_mount() {
        return;
    }
    // The kernel reads all content of what is not frozen; of a frozen XFS, files of many extents.
    for (kind, freeze) in [("ext4", false), ("xfs", false), ("xfs", true)] {
        let mounted = Mounted::new(kind, 512);
        let path = |name: &str| mounted.path().join(name);
        let names = ["moved/file", "renamed", "replaced", "gone"];
        std::fs::create_dir(path("moved")).unwrap();
        for (number, name) in names.iter().enumerate() {
            let file = File::create(path(name)).unwrap();
            for block in 0..50u64 {
                let bytes = [number as u8 + 1; 4096];
                std::os::unix::fs::FileExt::write_all_at(&file, &bytes, block * 8192).unwrap();
            }
            file.sync_all().unwrap();
        }
        let (_look_again, files) = scanned(&mounted, freeze);
        assert_eq!(files.len(), names.len(), "{kind}");
        std::fs::rename(path("moved"), path("elsewhere")).unwrap();
        std::fs::create_dir(path("moved")).unwrap();
        std::fs::write(path("moved/file"), "of another directory").unwrap();
        std::fs::rename(path("renamed"), path("else")).unwrap();
        std::fs::write(path("renamed"), "another file").unwrap();
        std::fs::write(path("new"), "in its place").unwrap();
        std::fs::rename(path("new"), path("replaced")).unwrap();
        std::fs::remove_file(path("gone")).unwrap();
        for (entry, place) in files {
            assert!(
                matches!(place, EntryPlace::Directory(_)),
                "{kind}: {entry:?}"
            );
            let name = String::from_utf8(entry.path()).unwrap();
            let name = &name[mounted.path().as_os_str().len()..];
            let inode = entry.inode;
            let file = read_small(&place, entry);
            match name {
                "moved/file" | "renamed" => {
                    let letter = if name == "renamed" { 2 } else { 1 };
                    assert_eq!(file.state, SmallState::Read, "{kind}: {name}");
                    assert_eq!(
                        (file.bytes[0], file.entry.inode),
                        (letter, inode),
                        "{kind}: {name}"
                    );
                }
                // Its inode is gone: what has its name now, and told as what it is.
                "replaced" => {
                    assert_eq!(&file.bytes[..], b"in its place", "{kind}");
                    assert_ne!(file.entry.inode, inode);
                }
                _ => assert_eq!(file.state, SmallState::Vanished, "{kind}: {name}"),
            }
        }
    }
}

/// Paths below the mount point and what they lead to.
fn paths_of(mounted: &Mounted, items: impl Iterator<Item = ScanItem>) -> BTreeMap<String, u64> {
    let mut paths = BTreeMap::new();
    for item in items {
        match item {
            ScanItem::Entries(Batch { entries, .. }) => {
                for entry in entries {
                    let path = format!("/{}", String::from_utf8(entry.path()).unwrap());
                    if let Some(path) = path.strip_prefix(mounted.path().to_str().unwrap()) {
                        paths.insert(path.to_owned(), entry.inode);
                    }
                }
            }
            ScanItem::Problem(problem) => panic!("{problem:?}"),
            _ => {}
        }
    }
    paths
}

fn walked(mounted: &Mounted) -> BTreeMap<String, u64> {
    let (sources, _) = Sources::resolve(&[mounted.path()]).unwrap();
    let started = choose(&sources, ScanOptions::default(), &Recorder::default()).unwrap();
    let (items, _look_again) = started.into_stream();
    paths_of(mounted, items)
}

#[test]
fn a_second_look_without_a_freeze_tells_what_there_is_now_or_that_all_is_as_it_was() {
    if !can_mount() {
        return;
    }
    for kind in FILESYSTEMS {
        let mounted = Mounted::new(kind, 512);
        let path = |name: &str| mounted.path().join(name);
        for directory in ["moved/deep/deeper", "quiet", "left", "removed"] {
            std::fs::create_dir_all(path(directory)).unwrap();
            for number in 0..200 {
                std::fs::write(path(directory).join(number.to_string()), directory).unwrap();
            }
        }
        // Older than the first look, for certain: what mkfs makes has whole seconds.
        std::thread::sleep(std::time::Duration::from_millis(2_100));
        let (sources, _) = Sources::resolve(&[mounted.path()]).unwrap();
        let begun = || {
            let options = ScanOptions {
                mode: ScanMode::Inode,
                spill_directory: mounted.beside(""),
                ..ScanOptions::default()
            };
            let started = choose(&sources, options, &Recorder::default()).unwrap();
            let StartedScan::Inodes(scan) = started else {
                panic!("{kind}: inodes are scanned");
            };
            let LookAgain::Mounted(looked) = scan.look_again else {
                panic!("{kind}: it is mounted");
            };
            (paths_of(&mounted, scan.items), looked, scan.state)
        };
        let (paths, looked, state) = begun();
        assert_eq!(paths, walked(&mounted), "{kind}");
        let second = looked.look_again(&sources).unwrap();
        assert!(matches!(second, SecondLook::Still), "{kind}");

        let (paths, looked, again) = begun();
        assert_eq!((paths, again), (walked(&mounted), state), "{kind}");
        std::fs::rename(path("moved"), path("left/now here")).unwrap();
        std::fs::remove_dir_all(path("removed")).unwrap();
        std::fs::create_dir_all(path("new/newer")).unwrap();
        std::fs::write(path("new/newer/file"), "new").unwrap();
        std::fs::hard_link(path("quiet/3"), path("new/link")).unwrap();
        std::fs::rename(path("quiet/4"), path("quiet/other")).unwrap();
        match looked.look_again(&sources).unwrap() {
            SecondLook::Changed { items, changed, .. } => {
                let inodes = changed.len();
                assert!(inodes < 300, "{kind}: {inodes} inodes");
                assert_eq!(paths_of(&mounted, items), walked(&mounted), "{kind}");
            }
            SecondLook::Still => panic!("{kind}: nothing was seen"),
            SecondLook::Unsure { why, .. } => panic!("{kind}: {why}"),
        }
    }
}
