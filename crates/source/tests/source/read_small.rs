//! Small files: what was read is what was there, or is flagged.

use crate::walk_support::{LoopMount, TempPlace, is_root, walk, while_disturbed};
use bale_format::entry::{Entry, EntryFlags, Kind};
use bale_source::read::{SMALL_BYTES_MAX, SmallReader, SmallState, read_small};
use bale_source::scan::ScanOptions;
use rustix::fs::{CWD, FileType, Mode};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

fn found(path: &Path) -> (Entry, bale_source::image::EntryPlace) {
    walk(&[path], ScanOptions::default()).get(path)
}

#[test]
fn files_come_in_the_order_asked_for_with_their_bytes_whatever_the_threads_and_with_or_without_rings()
 {
    let place = TempPlace::new();
    let bytes_of = |number: usize| vec![number as u8; number * 7 % 5000];
    for number in 0..2000 {
        place.write(&format!("{}/{number}", number % 13), &bytes_of(number));
    }
    let walked = walk(&[&place.path], ScanOptions::default());
    for (threads, rings) in [(0, true), (1, true), (16, true), (1, false), (16, false)] {
        let reader = SmallReader::start(Some(threads));
        let reader = match rings {
            true => reader,
            false => reader.without_rings(),
        };
        let mut taken = 0;
        let mut check = |reader: &SmallReader| {
            let file = reader.pop().unwrap();
            let number: usize = std::str::from_utf8(&file.entry.name)
                .unwrap()
                .parse()
                .unwrap();
            assert_eq!(file.bytes, bytes_of(number));
            assert_eq!(file.state, SmallState::Read);
            assert_eq!(file.entry.flags, EntryFlags::default());
            taken += 1;
            file.entry.path()
        };
        let mut order = Vec::new();
        let mut asked = Vec::new();
        for (entry, at) in walked.entries.iter().zip(&walked.places) {
            if entry.kind != Kind::File {
                continue;
            }
            while !reader.has_room(entry) {
                order.push(check(&reader));
            }
            asked.push(entry.path());
            reader.push(at, entry.clone());
        }
        reader.close();
        while reader.pending() > 0 {
            order.push(check(&reader));
        }
        assert!(reader.pop().is_none());
        assert_eq!(taken, 2000);
        assert!(order == asked);
    }
}

#[test]
fn window_holds_back_whoever_asks_faster_than_files_are_taken() {
    let place = TempPlace::new();
    let path = place.write("file", &vec![7; SMALL_BYTES_MAX as usize]);
    let (entry, at) = found(&path);
    let reader = SmallReader::start(Some(2));
    while reader.has_room(&entry) {
        reader.push(&at, entry.clone());
        assert!(reader.pending() <= 64);
    }
    assert!(reader.pending() > 32);
    let pending = reader.pending();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                reader.push(&at, entry.clone());
            }
            reader.close();
        });
        let mut taken = 0;
        while let Some(file) = reader.pop() {
            assert_eq!(file.bytes.len() as u64, SMALL_BYTES_MAX);
            taken += 1;
        }
        assert_eq!(taken, pending + 20);
    });
}

#[test]
fn file_that_changed_between_scan_and_read_is_read_as_it_is_now_and_not_flagged() {
    let place = TempPlace::new();
    let path = place.write("file", b"as it was");
    let (entry, at) = found(&path);
    std::fs::write(&path, b"as it is now, and longer").unwrap();
    let file = read_small(&at, entry.clone());
    assert_eq!(&file.bytes[..], b"as it is now, and longer");
    assert_eq!(file.entry.flags, EntryFlags::default());
    assert_eq!(file.entry.size, 24);
    assert!(file.entry.ctime > entry.ctime);
    std::fs::write(&path, b"short").unwrap();
    let file = read_small(&at, file.entry);
    assert_eq!((&file.bytes[..], file.entry.size), (&b"short"[..], 5));
    // By another file of the same name.
    std::fs::write(place.join("new"), b"replaced").unwrap();
    std::fs::rename(place.join("new"), &path).unwrap();
    let file = read_small(&at, entry.clone());
    assert_eq!(&file.bytes[..], b"replaced");
    assert_ne!(file.entry.inode, entry.inode);
}

#[test]
fn file_that_vanished_grew_large_or_is_no_file_any_more_says_so() {
    let place = TempPlace::new();
    let path = place.write("file", b"content");
    let (entry, at) = found(&path);
    std::fs::File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_len(SMALL_BYTES_MAX + 1)
        .unwrap();
    assert_eq!(read_small(&at, entry.clone()).state, SmallState::Grown);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(read_small(&at, entry.clone()).state, SmallState::Vanished);

    let refused = |entry: &Entry| {
        let file = read_small(&at, entry.clone());
        assert_eq!(file.state, SmallState::Unreadable);
        assert_eq!(file.problems.len(), 1);
        assert!(file.entry.flags.has(EntryFlags::UNREADABLE));
        assert!(file.bytes.is_empty());
        std::fs::remove_file(&path).unwrap();
    };
    let secret = place.write("secret", b"content");
    symlink(&secret, &path).unwrap();
    refused(&entry);
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    refused(&entry);
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    refused(&entry);
}

/// The dangerous moment is a write that began before the scan looked: it stamped the file when it
/// began.
#[test]
fn file_rewritten_all_the_time_is_whole_or_flagged_and_never_silently_torn() {
    let place = TempPlace::new();
    let size = 500_000;
    let path = place.write("file", &vec![1; size]);
    let (mut flagged, mut torn) = (0, 0);
    let writer = std::fs::File::options().write(true).open(&path).unwrap();
    let mut bytes = vec![1u8; size];
    let rewrite = || {
        let next = bytes[0].wrapping_add(1);
        bytes.fill(next);
        writer.write_all_at(&bytes, 0).unwrap();
    };
    while_disturbed(rewrite, || {
        let (mut entry, at) = found(&path);
        for _ in 0..1000 {
            let file = read_small(&at, entry);
            assert_eq!(file.state, SmallState::Read);
            assert_eq!((file.bytes.len(), file.entry.size), (size, size as u64));
            let changed = file.entry.flags.has(EntryFlags::CHANGED);
            let whole = file.bytes.iter().all(|byte| *byte == file.bytes[0]);
            flagged += u32::from(changed);
            torn += u32::from(!whole);
            assert!(whole || changed, "torn and not flagged");
            entry = file.entry;
            entry.flags.clear(EntryFlags::CHANGED);
        }
    });
    eprintln!("{flagged} flagged, {torn} torn");
}

#[test]
fn file_that_grows_for_ever_or_shrinks_is_stored_as_read_without_padding() {
    let place = TempPlace::new();
    let path = place.write("file", b"x");
    let (entry, at) = found(&path);
    let mut writer = std::fs::File::options().append(true).open(&path).unwrap();
    let mut written = 0;
    let grow_and_shrink = || {
        writer.write_all(b"y").unwrap();
        written += 1;
        if written % 50_000 == 0 {
            writer.set_len(1).unwrap();
        }
    };
    while_disturbed(grow_and_shrink, || {
        for _ in 0..200 {
            let file = read_small(&at, entry.clone());
            assert_eq!(file.state, SmallState::Read);
            assert_eq!(file.bytes.len() as u64, file.entry.size);
            assert_eq!(file.bytes.first(), Some(&b'x'));
            assert!(file.bytes[1..].iter().all(|byte| *byte == b'y'));
        }
    });
}

#[test]
fn holes_of_small_files_are_told_and_their_bytes_are_zero() {
    let place = TempPlace::new();
    let path = place.join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(300_000).unwrap();
    file.write_all_at(b"data", 100_000).unwrap();
    file.sync_all().unwrap();
    let (entry, at) = found(&path);
    let file = read_small(&at, entry);
    assert!(file.entry.flags.has(EntryFlags::SPARSE));
    assert_eq!(file.bytes.len(), 300_000);
    assert_eq!(&file.bytes[100_000..100_004], b"data");
    assert_eq!(file.holes.len(), 2);
    assert_eq!((file.holes[0].start, file.holes[1].end), (0, 300_000));
    let data = file.holes[0].end..file.holes[1].start;
    assert!(data.contains(&100_000) && data.end - data.start <= 65_536);
}

#[test]
fn empty_file_is_completed_without_being_read() {
    let place = TempPlace::new();
    let path = place.write("empty", b"");
    let (entry, at) = found(&path);
    let key = c"user.bale";
    rustix::fs::setxattr(&path, key, b"v", rustix::fs::XattrFlags::empty()).unwrap();
    let file = read_small(&at, entry);
    assert_eq!((file.state, file.bytes.len()), (SmallState::Read, 0));
    assert!(!file.entry.xattrs.is_empty());
}

#[test]
fn files_of_the_kernel_that_are_shorter_than_they_say_are_read_as_far_as_they_go() {
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    if !path.exists() {
        return crate::walk_support::skipped("no such file in /sys");
    }
    let (entry, at) = found(path);
    assert_eq!(entry.size, 4096);
    let file = read_small(&at, entry);
    assert_eq!(file.state, SmallState::Read);
    assert_eq!(file.bytes, std::fs::read(path).unwrap());
    assert!(!file.entry.flags.has(EntryFlags::CHANGED));
}

#[test]
fn reading_leaves_access_times_alone() {
    if !is_root() {
        return;
    }
    let place = TempPlace::new();
    let path = place.write("file", b"content");
    let old = rustix::fs::Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let stamps = rustix::fs::Timestamps {
        last_access: old,
        last_modification: old,
    };
    rustix::fs::utimensat(CWD, &path, &stamps, rustix::fs::AtFlags::empty()).unwrap();
    rustix::fs::utimensat(CWD, &place.path, &stamps, rustix::fs::AtFlags::empty()).unwrap();
    let (entry, at) = found(&path);
    assert_eq!(&read_small(&at, entry).bytes[..], b"content");
    walk(&[&place.path], ScanOptions::default());
    for path in [&path, &place.path] {
        let atime = std::fs::metadata(path).unwrap().accessed().unwrap();
        let since = atime.duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(since.as_secs(), 1, "{}", path.display());
    }
}

/// The image under a mounted file system is cut short: what was there gives EIO.
#[test]
fn bytes_that_the_device_cannot_give_are_named_and_the_rest_is_read() {
    let place = TempPlace::new();
    let Some(mount) = LoopMount::new(&place, "failing", 64) else {
        return;
    };
    let size = 400_000;
    let path = mount.point.join("file");
    std::fs::write(&path, vec![7; size]).unwrap();
    let (file, mut extents) = (std::fs::File::open(&path).unwrap(), Vec::new());
    file.sync_all().unwrap();
    use std::os::fd::AsFd;
    bale_sys::extents::extents(file.as_fd(), 0, u64::MAX, 0, &mut extents).unwrap();
    drop(file);
    mount.remount();
    let (entry, at) = found(&path);
    // Some block in the middle, if the file is in one piece as files of fresh file systems are.
    let cut = extents[0].physical + 200_000 / 4096 * 4096;
    let image = std::fs::File::options()
        .write(true)
        .open(&mount.image)
        .unwrap();
    image.set_len(cut).unwrap();
    let file = read_small(&at, entry);
    image.set_len(64 << 20).unwrap();
    assert_eq!(file.state, SmallState::Read, "{:?}", file.problems);
    assert!(file.entry.flags.has(EntryFlags::INCOMPLETE));
    assert_eq!(file.bad.len(), 1);
    assert_eq!(file.bad[0].end, size as u64);
    assert!(file.bad[0].start > 100_000 && file.bad[0].start.is_multiple_of(4096));
    let good = &file.bytes[..file.bad[0].start as usize];
    assert!(good.iter().all(|byte| *byte == 7));
    assert_eq!(file.bytes.len(), size);
    assert_eq!(file.problems.len(), 1);
}
