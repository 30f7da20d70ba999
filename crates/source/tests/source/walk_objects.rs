//! Everything a Linux tree holds, as entries.

use crate::walk_support::{BindMount, LoopMount, TempPlace, is_root, threads, walk};
use bale_format::entry::{EntryFlags, Kind, Time};
use bale_source::scan::{NoteKind, ScanOptions};
use bale_sys::inode::{self, flag};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// The set in an entry's `xattrs`.
fn attributes(encoded: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut map = BTreeMap::new();
    let Some((1, mut rest)) = encoded.split_first().map(|(tag, rest)| (*tag, rest)) else {
        assert!(encoded.is_empty());
        return map;
    };
    while !rest.is_empty() {
        let key = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
        let value = u32::from_le_bytes([rest[2], rest[3], rest[4], rest[5]]) as usize;
        map.insert(
            rest[6..6 + key].to_vec(),
            rest[6 + key..6 + key + value].to_vec(),
        );
        rest = &rest[6 + key + value..];
    }
    map
}

#[test]
fn fifos_sockets_and_devices_are_recorded_without_being_opened() {
    let place = TempPlace::new();
    let make = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, place.join(name), kind, Mode::RUSR, device)
    };
    make("fifo", FileType::Fifo, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(place.join("socket")).unwrap();
    let devices = is_root();
    if devices {
        let null = rustix::fs::makedev(1, 3);
        make("char", FileType::CharacterDevice, null).unwrap();
        make(
            "block",
            FileType::BlockDevice,
            rustix::fs::makedev(259, 1 << 18),
        )
        .unwrap();
    }
    let walked = walk(&[&place.path], ScanOptions::default());
    let kinds = [("fifo", Kind::Fifo, 0), ("socket", Kind::Socket, 0)];
    let device_kinds = [
        ("char", Kind::CharDevice, 1 << 32 | 3),
        ("block", Kind::BlockDevice, 259 << 32 | 1 << 18),
    ];
    let all = kinds.iter().chain(device_kinds.iter().filter(|_| devices));
    for (name, kind, rdev) in all {
        // Opening the FIFO without care would wait for ever.
        let (mut entry, place_of_it) = walked.get(&place.join(name));
        place_of_it.complete(&mut entry).unwrap();
        assert_eq!((entry.kind, entry.rdev, entry.size), (*kind, *rdev, 0));
        assert!(entry.xattrs.is_empty());
    }
    assert!(walked.problems.is_empty());
}

#[test]
fn names_of_any_bytes_come_back_exactly() {
    let place = TempPlace::new();
    let long = [b'x'; 255];
    let names: [&[u8]; 9] = [
        &long,
        b"new\nline",
        b"\x1b[31m",
        b"\xff\xfe not UTF-8",
        "\u{fffd}".as_bytes(),
        b"trailing ",
        b"-rf",
        b"\\",
        b"...",
    ];
    for name in names {
        File::create(place.path.join(OsStr::from_bytes(name))).unwrap();
    }
    let mut expected: Vec<&[u8]> = names.to_vec();
    expected.sort();
    assert_eq!(
        walk(&[&place.path], ScanOptions::default()).below(&place.path),
        expected
    );
}

#[test]
fn times_before_1901_and_after_2106_and_all_nanoseconds_are_kept() {
    let place = TempPlace::new();
    // tmpfs keeps every second there is; a disk's file system clamps.
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        return crate::walk_support::skipped("no /dev/shm");
    };
    let cases: [(i64, i64); 8] = [
        (-1, 0),
        (-1, 999_999_999),
        (-2_208_988_801, 1),
        (0, 0),
        (2_147_483_648, 5),
        (4_294_967_296, 999_999_999),
        (15_032_385_535, 7),
        (67_768_036_191_676_799, 9),
    ];
    for directory in [place.path.as_path(), memory.path()] {
        for (number, (seconds, nanos)) in cases.iter().enumerate() {
            let path = directory.join(number.to_string());
            File::create(&path).unwrap();
            let stamp = Timespec {
                tv_sec: *seconds,
                tv_nsec: *nanos as _,
            };
            let stamps = Timestamps {
                last_access: stamp,
                last_modification: stamp,
            };
            rustix::fs::utimensat(CWD, &path, &stamps, AtFlags::empty()).unwrap();
        }
        let walked = walk(&[directory], ScanOptions::default());
        for (number, (seconds, nanos)) in cases.iter().enumerate() {
            let path = directory.join(number.to_string());
            let now = std::fs::symlink_metadata(&path).unwrap();
            let kept = Time {
                seconds: now.mtime(),
                nanos: now.mtime_nsec() as u32,
            };
            let entry = walked.find(&path).unwrap();
            assert_eq!(entry.mtime, kept);
            if directory == memory.path() {
                assert_eq!(
                    (entry.mtime.seconds, i64::from(entry.mtime.nanos)),
                    (*seconds, *nanos)
                );
            }
        }
    }
}

#[test]
fn symlinks_keep_targets_of_any_bytes_and_length() {
    let place = TempPlace::new();
    let long = vec![b'y'; 4000];
    let targets: [&[u8]; 4] = [b"nowhere", b"/", b"\xff\n", &long];
    for (number, target) in targets.iter().enumerate() {
        symlink(OsStr::from_bytes(target), place.join(&number.to_string())).unwrap();
    }
    let walked = walk(&[&place.path], ScanOptions::default());
    for (number, target) in targets.iter().enumerate() {
        let (mut entry, place_of_it) = walked.get(&place.join(&number.to_string()));
        place_of_it.complete(&mut entry).unwrap();
        assert_eq!(&entry.target[..], *target);
        assert_eq!(entry.size, target.len() as u64);
    }
}

#[test]
fn names_of_one_inode_share_inode_and_count() {
    let place = TempPlace::new();
    let first = place.write("first", b"x");
    for number in 0..300 {
        std::fs::hard_link(&first, place.join(&format!("link{number}"))).unwrap();
    }
    let walked = walk(&[&place.path], ScanOptions::default());
    let inode = walked.find(&first).unwrap().inode;
    let names = walked.entries.iter().filter(|entry| entry.inode == inode);
    let names: Vec<_> = names.filter(|entry| entry.kind == Kind::File).collect();
    assert_eq!(names.len(), 301);
    assert!(
        names
            .iter()
            .all(|entry| entry.nlink == 301 && entry.is_hard_link())
    );
}

#[test]
fn owners_modes_and_special_bits_are_kept() {
    let place = TempPlace::new();
    let file = place.write("file", b"x");
    std::os::unix::fs::chown(&file, Some(u32::MAX - 1), Some(65_536)).ok();
    rustix::fs::chmod(&file, Mode::from_raw_mode(0o6711)).unwrap();
    rustix::fs::chmod(&place.path, Mode::from_raw_mode(0o1700)).unwrap();
    let walked = walk(&[&place.path], ScanOptions::default());
    let entry = walked.find(&file).unwrap();
    assert_eq!(entry.mode, 0o6711);
    assert_eq!(walked.find(&place.path).unwrap().mode, 0o1700);
    if is_root() {
        assert_eq!((entry.uid, entry.gid), (u32::MAX - 1, 65_536));
    }
}

#[test]
fn extended_attributes_acls_and_capabilities_are_read_of_every_kind_of_file() {
    if !is_root() {
        return;
    }
    let place = TempPlace::new();
    let file = place.write("file", b"x");
    let empty = place.write("empty", b"");
    let directory = place.join("directory");
    std::fs::create_dir(&directory).unwrap();
    let link = place.join("link");
    symlink("nowhere", &link).unwrap();
    let fifo = place.join("fifo");
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let set = |path: &Path, key: &str, value: &[u8]| {
        rustix::fs::lsetxattr(path, key, value, XattrFlags::empty()).unwrap();
    };
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let acl: Vec<u8> = [2u32, 0x7_0001, u32::MAX, 0x4_0002, 1000, 0x4_0004, u32::MAX]
        .into_iter()
        .chain([0x7_0010, u32::MAX, 0x4_0020, u32::MAX])
        .flat_map(u32::to_le_bytes)
        .collect();
    set(&file, "user.z", b"last");
    set(&file, "user.a", &[0, 255, 10]);
    set(&file, "security.capability", &capability);
    set(&directory, "system.posix_acl_default", &acl);
    for path in [&link, &fifo, &empty, &file, &directory] {
        set(path, "trusted.bale", b"t");
    }
    let walked = walk(&[&place.path], ScanOptions::default());
    for path in [&link, &fifo, &empty, &file, &directory] {
        let (mut entry, parent) = walked.get(path);
        parent.complete(&mut entry).unwrap();
        let mut expected = BTreeMap::from([(b"trusted.bale".to_vec(), b"t".to_vec())]);
        if path == &file {
            expected.insert(b"user.z".to_vec(), b"last".to_vec());
            expected.insert(b"user.a".to_vec(), vec![0, 255, 10]);
            expected.insert(b"security.capability".to_vec(), capability.to_vec());
        }
        if path == &directory {
            expected.insert(b"system.posix_acl_default".to_vec(), acl.clone());
        }
        assert_eq!(attributes(&entry.xattrs), expected, "{}", path.display());
        let keys = attributes(&entry.xattrs).into_keys();
        assert!(keys.is_sorted());
    }
}

/// Sets flags and a project, and looks whether they are read.
fn check_inode_facts(mount: &LoopMount, cases: &[(&str, u32, u32)]) {
    std::fs::create_dir(mount.point.join("dir")).unwrap();
    for (name, flags, project) in cases {
        let path = mount.point.join(name);
        if !path.exists() {
            File::create(&path).unwrap();
        }
        let file = File::open(&path).unwrap();
        if *project != 0 {
            let mut attributes = inode::fsxattr(file.as_fd()).unwrap();
            attributes.project = *project;
            inode::set_fsxattr(file.as_fd(), &attributes).unwrap();
        }
        let old = inode::flags(file.as_fd()).unwrap();
        inode::set_flags(file.as_fd(), old | flags).unwrap();
    }
    let walked = walk(&[&mount.point], ScanOptions::default());
    for (name, flags, project) in cases {
        let path = mount.point.join(name);
        let (mut entry, place_of_it) = walked.get(&path);
        place_of_it.complete(&mut entry).unwrap();
        let file = File::open(&path).unwrap();
        let generation = inode::generation(file.as_fd()).unwrap();
        let old = inode::flags(file.as_fd()).unwrap();
        inode::set_flags(file.as_fd(), old & !flags).unwrap();
        assert_eq!(entry.inode_flags, *flags, "{name}");
        assert_eq!(entry.project, *project, "{name}");
        assert_eq!(entry.generation, generation, "{name}");
        assert_ne!(generation, 0);
    }
}

#[test]
fn inode_flags_and_generation_are_read_on_ext4() {
    let place = TempPlace::new();
    if let Some(mount) = LoopMount::new(&place, "ext4", 32) {
        let cases = [
            ("immutable", flag::IMMUTABLE, 0),
            ("append", flag::APPEND | flag::NOATIME, 0),
            ("nodump", flag::NODUMP | flag::SYNC, 0),
            ("dir", flag::DIRSYNC | flag::NODUMP, 0),
        ];
        check_inode_facts(&mount, &cases);
    }
}

#[test]
fn inode_flags_projects_and_generation_are_read_on_xfs() {
    let place = TempPlace::new();
    if let Some(mount) = LoopMount::xfs(&place, "xfs") {
        let cases = [
            ("immutable", flag::IMMUTABLE, 0),
            ("append", flag::APPEND | flag::NOATIME, 7),
            ("nodump", flag::NODUMP | flag::SYNC, u32::MAX - 1),
            ("dir", flag::NODUMP, 9),
        ];
        check_inode_facts(&mount, &cases);
    }
}

#[test]
fn endless_files_that_say_they_are_empty_are_never_opened() {
    let walked = walk(&[Path::new("/proc/sys/kernel")], ScanOptions::default());
    let mut seen = 0;
    for (entry, at) in walked.entries.iter().zip(&walked.places) {
        if entry.kind == Kind::File {
            assert_eq!(entry.size, 0);
            let mut entry = entry.clone();
            let _ = at.complete(&mut entry);
            seen += 1;
        }
    }
    assert!(seen > 10);
    let proc = &walked.filesystems[1];
    assert_eq!(
        (proc.kind.as_str(), &proc.mount.0[..]),
        ("proc", &b"/proc"[..])
    );
}

#[test]
fn one_file_system_stays_on_the_mount_and_says_where_it_stopped() {
    let place = TempPlace::new();
    let Some(mount) = LoopMount::new(&place, "other", 16) else {
        return;
    };
    std::fs::write(mount.point.join("inside"), b"x").unwrap();
    let bound = place.join("bound");
    std::fs::create_dir(&bound).unwrap();
    place.write("real/file", b"1");
    let _bind = BindMount::new(&place.join("real"), &bound);
    let bound_file = place.write("bound file", b"");
    let _bind_file = BindMount::new(&mount.point.join("inside"), &bound_file);

    let one = ScanOptions {
        one_file_system: true,
        ..ScanOptions::default()
    };
    let walked = walk(&[&place.path], one);
    let stopped = walked.find(&mount.point).unwrap();
    assert!(stopped.flags.has(EntryFlags::NOT_CROSSED));
    assert!(!walked.has(&mount.point.join("inside")));
    assert!(walked.has(&bound.join("file")));
    assert!(walked.has(&place.join("real/file")));
    assert!(!walked.has(&bound_file));
    assert!(
        walked
            .notes
            .iter()
            .any(|note| note.kind == NoteKind::OtherFilesystem)
    );
    assert!(walked.problems.is_empty());

    let walked = walk(&[&place.path], ScanOptions::default());
    let inside = walked.find(&mount.point.join("inside")).unwrap();
    let outside = walked.find(&place.join("real/file")).unwrap();
    assert_ne!(inside.filesystem, outside.filesystem);
    let filesystem = &walked.filesystems[inside.filesystem as usize];
    assert_eq!(filesystem.kind, "ext4");
    assert_eq!(filesystem.mount.0, mount.point.as_os_str().as_bytes());
    assert_eq!(filesystem.uuid.len(), 36);
    assert!(walked.has(&bound.join("file")));

    // A mount that is a source itself is entered.
    let one = ScanOptions {
        one_file_system: true,
        ..ScanOptions::default()
    };
    let walked = walk(&[&place.path, &mount.point], one);
    assert!(walked.has(&mount.point.join("inside")));
    assert!(walked.has(&bound.join("file")));
}

#[test]
fn a_directory_bound_into_itself_is_not_descended_for_ever() {
    if !is_root() {
        return;
    }
    let place = TempPlace::new();
    place.write("a/b/file", b"1");
    let inner = place.join("a/b/loop");
    std::fs::create_dir(&inner).unwrap();
    let _bind = BindMount::new(&place.join("a"), &inner);
    for options in [threads(0), threads(16)] {
        let walked = walk(&[&place.path], options);
        let entry = walked.find(&inner).unwrap();
        assert!(entry.flags.has(EntryFlags::NOT_CROSSED));
        assert_eq!(walked.problems.len(), 1);
        assert_eq!(
            walked.below(&place.path),
            [&b"a"[..], b"a/b", b"a/b/file", b"a/b/loop"]
        );
    }
}
