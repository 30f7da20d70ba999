//! The reader's view against the kernel's: the same paths, every stat field, every xattr, every
//! byte.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use bale_fsimage::{FileKind, Timestamp};
use rustix::fs::{Mode, OFlags, SeekFrom, ioctl_getflags, open, seek};

use crate::scan::{Scan, Seen};

const READ_BYTES: u64 = 1 << 20;

/// Panics at the first difference between `scan` and what is mounted at `root`.
pub fn assert_same(scan: &Scan, root: &Path) {
    assert!(scan.problems.is_empty(), "problems: {:#?}", scan.problems);
    let mut kernel = BTreeMap::new();
    walk(root, &mut Vec::new(), &mut kernel);
    let only = |a: &BTreeMap<Vec<u8>, _>, b: &BTreeMap<Vec<u8>, u64>| -> Vec<String> {
        a.keys()
            .filter(|path| !b.contains_key(*path))
            .map(|path| path.escape_ascii().to_string())
            .collect()
    };
    let kernel_numbers: BTreeMap<_, _> = kernel
        .iter()
        .map(|(path, entry)| (path.clone(), entry.1.ino()))
        .collect();
    let missing = only(&kernel_numbers, &scan.paths);
    let surplus = only(&scan.paths, &kernel_numbers);
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "missing {missing:#?}\nsurplus {surplus:#?}"
    );
    let nameless = scan.nameless();
    assert!(nameless.is_empty(), "inodes without a name: {nameless:?}");
    // Hard links share one inode: look at its content once.
    let mut contents_seen = std::collections::HashSet::new();
    for (path, (full, metadata)) in &kernel {
        let seen = &scan.inodes[&scan.paths[path]];
        let name = path.escape_ascii();
        assert_eq!(
            describe_scan(scan, seen),
            describe_kernel(full, metadata),
            "{name}"
        );
        if contents_seen.insert(metadata.ino()) {
            assert_same_content(scan, seen, full, metadata);
        }
    }
}

fn walk(full: &Path, path: &mut Vec<u8>, found: &mut BTreeMap<Vec<u8>, (PathBuf, Metadata)>) {
    let metadata = full.symlink_metadata().unwrap();
    let is_dir = metadata.is_dir();
    found.insert(path.clone(), (full.to_owned(), metadata));
    if !is_dir {
        return;
    }
    for entry in full.read_dir().unwrap() {
        let name = entry.unwrap().file_name();
        let before = path.len();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        walk(&full.join(&name), path, found);
        path.truncate(before);
    }
}

fn describe_scan(scan: &Scan, seen: &Seen) -> String {
    let inode = &seen.inode;
    let raw = seen.raw();
    let mut text = format!(
        "ino {} mode {:o} nlink {} uid {} gid {} size {} rdev {:?}\n",
        inode.number, inode.mode, inode.nlink, inode.uid, inode.gid, inode.size, inode.rdev
    );
    let show = |time: Timestamp| format!("{}.{:09}", time.seconds, time.nanos);
    let (atime, mtime, ctime) = (show(inode.atime), show(inode.mtime), show(inode.ctime));
    writeln!(text, "atime {atime} mtime {mtime} ctime {ctime}").unwrap();
    writeln!(text, "crtime {:?}", inode.crtime.map(show)).unwrap();
    let kind = FileKind::from_mode(inode.mode).unwrap();
    if matches!(kind, FileKind::Regular | FileKind::Directory) {
        writeln!(text, "flags {:x}", inode.flags).unwrap();
    }
    if kind == FileKind::Symlink {
        let target = scan.fs.read_symlink(&raw).unwrap();
        writeln!(text, "target {}", target.escape_ascii()).unwrap();
    }
    for xattr in scan.fs.xattrs(&raw).unwrap() {
        writeln!(
            text,
            "{} {}",
            xattr.name.escape_ascii(),
            xattr.value.escape_ascii()
        )
        .unwrap();
    }
    text
}

fn describe_kernel(full: &Path, metadata: &Metadata) -> String {
    let m = metadata;
    let rdev = (rustix::fs::major(m.rdev()), rustix::fs::minor(m.rdev()));
    let mut text = format!(
        "ino {} mode {:o} nlink {} uid {} gid {} size {} rdev {rdev:?}\n",
        m.ino(),
        m.mode(),
        m.nlink(),
        m.uid(),
        m.gid(),
        m.size()
    );
    let show = |seconds: i64, nanos: i64| format!("{seconds}.{nanos:09}");
    let (atime, mtime) = (
        show(m.atime(), m.atime_nsec()),
        show(m.mtime(), m.mtime_nsec()),
    );
    writeln!(
        text,
        "atime {atime} mtime {mtime} ctime {}",
        show(m.ctime(), m.ctime_nsec())
    )
    .unwrap();
    let created = m
        .created()
        .ok()
        .map(|time| time.duration_since(UNIX_EPOCH).unwrap());
    let created = created.map(|since| format!("{}.{:09}", since.as_secs(), since.subsec_nanos()));
    writeln!(text, "crtime {created:?}").unwrap();
    if m.is_file() || m.is_dir() {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = open(full, flags, Mode::empty()).unwrap();
        writeln!(text, "flags {:x}", ioctl_getflags(&fd).unwrap().bits()).unwrap();
    }
    if m.is_symlink() {
        let target = full.read_link().unwrap();
        writeln!(
            text,
            "target {}",
            target.as_os_str().as_bytes().escape_ascii()
        )
        .unwrap();
    }
    for (name, value) in kernel_xattrs(full) {
        writeln!(text, "{} {}", name.escape_ascii(), value.escape_ascii()).unwrap();
    }
    text
}

fn kernel_xattrs(full: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(full, &mut names[..]).unwrap();
    let names = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    let value_of = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(full, OsStr::from_bytes(name), &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    names.map(|name| (name.to_vec(), value_of(name))).collect()
}

/// All bytes where the kernel has data, and all bytes where the reader has data: together
/// everything that is not zero.
fn assert_same_content(scan: &Scan, seen: &Seen, full: &Path, metadata: &Metadata) {
    if !metadata.is_file() {
        return;
    }
    let file = std::fs::File::open(full).unwrap();
    let extents = scan.fs.extents(&seen.raw()).unwrap();
    let mut ranges: Vec<(u64, u64)> = extents
        .iter()
        .map(|extent| (extent.file_offset, extent.len))
        .collect();
    let mut at = 0;
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        // The kernel finds no hole behind inline data, not even the one at the end.
        let end = seek(&file, SeekFrom::Hole(start)).unwrap_or(metadata.size());
        ranges.push((start, end.min(metadata.size()) - start));
        at = end;
    }
    for (start, len) in ranges {
        for offset in (start..start + len).step_by(READ_BYTES as usize) {
            let mut bytes = vec![0; READ_BYTES.min(start + len - offset) as usize];
            file.read_exact_at(&mut bytes, offset).unwrap();
            let ours = seen.content(&scan.fs, &extents, offset, bytes.len());
            let same = bytes == ours || {
                // Kernels forget to write zeros behind inline data that was cut and grown again:
                // what they show from their cache changes when the cache is dropped. What they read
                // from the device is the reference.
                let inline = scan
                    .fs
                    .superblock()
                    .features
                    .names()
                    .contains("inline_data");
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
                file.read_exact_at(&mut bytes, offset).unwrap();
                inline && bytes == ours
            };
            assert!(same, "{}: content differs near {offset}", full.display());
        }
    }
}
