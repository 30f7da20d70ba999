//! Files of NTFS as our reader has them, against what ntfs-3g shows of the same volume.
//!
//! Needs root, ntfs-3g and FUSE. Where something is missing the tests say `SKIPPED:` on stderr, or
//! fail if `BALE_REQUIRE_ALL_TESTS` is 1.

use crate::allocated::image::{Image, can_run, run};
use crate::allocated::tree::{Random, churn};
use bale_fsimage::Layout;
use bale_fsimage::ntfs::{Ntfs, NtfsFile, ROOT_RECORD, SecurityDescriptors};
use rustix::fs::{XattrFlags, lgetxattr, llistxattr, lsetxattr};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const PROGRAMS: [&str; 3] = ["mkntfs", "ntfs-3g", "umount"];
const OPTIONS: &str = "streams_interface=xattr,compression,special_files=wsl,permissions";
const COMPRESSED: u32 = 0x800;

/// What both sides say of a path.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    kind: u32,
    number: u64,
    nlink: u64,
    /// Of a device.
    rdev: u64,
    mtime: (i64, i64),
    /// Content, or target of a link.
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Names that ntfs-3g lists, and those that it has without listing them.
fn xattrs_of(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut buffer = vec![0; 128 << 10];
    let listed = llistxattr(path, &mut buffer[..]).unwrap();
    let listed = buffer[..listed].to_vec();
    let names = listed
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."));
    let hidden = ["system.ntfs_acl", "system.ntfs_attrib"];
    let hidden = hidden.into_iter().map(str::as_bytes);
    let mut found = BTreeMap::new();
    for name in names.chain(hidden) {
        let text = std::str::from_utf8(name).unwrap();
        let len = lgetxattr(path, text, &mut buffer[..]).unwrap();
        found.insert(name.to_vec(), buffer[..len].to_vec());
    }
    found
}

fn shown(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let facts = path.symlink_metadata().unwrap();
            let content = match facts.file_type() {
                kind if !kind.is_file() && !kind.is_symlink() => Vec::new(),
                kind if kind.is_symlink() => {
                    fs::read_link(&path).unwrap().into_os_string().into_vec()
                }
                _ => fs::read(&path).unwrap(),
            };
            if facts.is_dir() {
                dirs.push(path.clone());
            }
            let name = path.strip_prefix(root).unwrap().to_owned();
            seen.insert(
                name,
                Seen {
                    kind: facts.mode() & 0o170_000,
                    number: facts.ino(),
                    // The kernel's number counts 8.3 names.
                    nlink: 0,
                    rdev: facts.rdev(),
                    mtime: (facts.mtime(), facts.mtime_nsec()),
                    content,
                    xattrs: xattrs_of(&path),
                },
            );
        }
    }
    let mut links: HashMap<u64, u64> = HashMap::new();
    for one in seen.values() {
        *links.entry(one.number).or_default() += 1;
    }
    for one in seen.values_mut() {
        one.nlink = links[&one.number];
    }
    seen
}

fn seen_of(ntfs: &Ntfs, file: &NtfsFile, security: &SecurityDescriptors) -> Seen {
    let inode = file.inode();
    let content = match (&inode.layout, file.data()) {
        (Layout::Inline(content), _) => content.clone(),
        (_, Some(stream)) => {
            let mut content = vec![0; stream.size() as usize];
            // In parts that fit nothing.
            for (number, part) in content.chunks_mut(100_003).enumerate() {
                let offset = number as u64 * 100_003;
                ntfs.read_content(inode.number, stream, offset, part)
                    .unwrap();
            }
            content
        }
        _ => Vec::new(),
    };
    let xattrs = ntfs.xattrs(file, Some(security)).unwrap().into_iter();
    Seen {
        kind: inode.mode & 0o170_000,
        number: inode.number,
        nlink: u64::from(inode.nlink),
        rdev: rustix::fs::makedev(inode.rdev.0, inode.rdev.1),
        mtime: (inode.mtime.seconds, inode.mtime.nanos.into()),
        content,
        xattrs: xattrs
            .map(|xattr| (xattr.name, xattr.value.unwrap()))
            .collect(),
    }
}

/// All that is below the root, by path.
fn read(image: &Image) -> BTreeMap<PathBuf, Seen> {
    let ntfs = Ntfs::open(Arc::new(image.file())).unwrap();
    let security = ntfs.security_descriptors().unwrap();
    let mut files = HashMap::new();
    let mut children: HashMap<u64, Vec<(Vec<u8>, u64)>> = HashMap::new();
    ntfs.files(0, u64::MAX, &mut |number, file| {
        let file = file.unwrap();
        for name in &file.names {
            let list = children.entry(name.parent.number).or_default();
            list.push((name.name.clone(), number));
        }
        files.insert(number, file);
    });
    let mut seen = BTreeMap::new();
    let mut dirs = vec![(PathBuf::new(), ROOT_RECORD)];
    while let Some((dir, number)) = dirs.pop() {
        for (name, number) in children.remove(&number).unwrap_or_default() {
            if number == ROOT_RECORD {
                continue;
            }
            let file = &files[&number];
            let path = dir.join(std::ffi::OsStr::from_bytes(&name));
            if file.is_directory {
                dirs.push((path.clone(), number));
            }
            assert!(seen.insert(path, seen_of(&ntfs, file, &security)).is_none());
        }
    }
    seen
}

fn set(path: &Path, name: &str, value: &[u8]) {
    lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// One of each kind of thing.
fn fill(root: &Path) {
    let mut random = Random(1);
    fs::write(root.join("resident"), b"in its record").unwrap();
    fs::write(root.join("empty"), b"").unwrap();
    fs::write(root.join("large"), random.bytes(3_000_000)).unwrap();
    fs::write(
        root.join("Größe, ein Name mit Umlauten und \u{1f600}"),
        b"x",
    )
    .unwrap();
    fs::hard_link(root.join("large"), root.join("another name")).unwrap();
    symlink("resident", root.join("link")).unwrap();
    run("mkfifo", &[root.join("pipe").to_str().unwrap()]);
    run(
        "mknod",
        &[root.join("device").to_str().unwrap(), "c", "5", "77"],
    );
    symlink("a/long/target/".repeat(40), root.join("long link")).unwrap();
    // Thousands of runs: they need further records.
    let holes = fs::File::create(root.join("holes")).unwrap();
    for number in 0..4000 {
        holes
            .write_all_at(&random.bytes(100), number * 9_000)
            .unwrap();
    }
    let named = root.join("named");
    fs::write(&named, b"a file of many names").unwrap();
    for number in 0..40 {
        let name = format!("number {number} of the names of a file with many names");
        fs::hard_link(&named, root.join(name)).unwrap();
    }
    let streams = root.join("streams");
    fs::write(&streams, b"the first").unwrap();
    set(&streams, "user.small", b"a second");
    set(&streams, "user.large", &random.bytes(60_000));
    let short = root.join("with a short name.text");
    fs::write(&short, b"which is left out").unwrap();
    set(&short, "system.ntfs_dos_name", b"WITHAS~1.TEX");
    let plain = root.join("plain");
    fs::write(&plain, b"without any flag").unwrap();
    set(&plain, "system.ntfs_attrib", &0u32.to_le_bytes());
    let hidden = root.join("hidden");
    fs::write(&hidden, b"").unwrap();
    set(&hidden, "system.ntfs_attrib", &0x23u32.to_le_bytes());
    for mode in [0o600, 0o640, 0o755] {
        let path = root.join(format!("mode {mode:o}"));
        fs::write(&path, b"whose descriptor differs").unwrap();
        run("chmod", &[&format!("{mode:o}"), path.to_str().unwrap()]);
        run("chown", &["1000:100", path.to_str().unwrap()]);
    }
    let compressed = root.join("compressed");
    fs::create_dir(&compressed).unwrap();
    set(&compressed, "system.ntfs_attrib", &COMPRESSED.to_le_bytes());
    let text: Vec<u8> = (0..400_000)
        .map(|at| (at / 97 % 61 + at % 3) as u8)
        .collect();
    fs::write(compressed.join("text"), &text).unwrap();
    fs::write(compressed.join("zeros"), vec![0; 300_000]).unwrap();
    fs::write(compressed.join("random"), random.bytes(200_000)).unwrap();
    let mixed = [
        &text[..150_000],
        &random.bytes(90_000),
        &vec![0; 140_000],
        &text[..50_001],
    ];
    fs::write(compressed.join("mixed"), mixed.concat()).unwrap();
}

/// A volume with some files, as bytes.
fn small_volume() -> (Image, Vec<u8>) {
    let image = Image::new(20 << 20);
    run("mkntfs", &["-q", "-F", "-f", &image.name()]);
    {
        let mounted = image.mount_ntfs(OPTIONS);
        for number in 0..50 {
            fs::write(
                mounted.path.join(format!("file {number}")),
                vec![number; 3000],
            )
            .unwrap();
        }
        let compressed = mounted.path.join("compressed");
        fs::create_dir(&compressed).unwrap();
        set(&compressed, "system.ntfs_attrib", &COMPRESSED.to_le_bytes());
        fs::write(compressed.join("zeros"), vec![1; 300_000]).unwrap();
    }
    let bytes = fs::read(image.path()).unwrap();
    (image, bytes)
}

/// Names of files that are read, and numbers of those that are not.
fn names_of(bytes: Vec<u8>) -> (Vec<Vec<u8>>, Vec<u64>) {
    let ntfs = Ntfs::open(Arc::new(bytes)).unwrap();
    let (mut names, mut damaged) = (Vec::new(), Vec::new());
    ntfs.files(0, u64::MAX, &mut |number, file| match file {
        Ok(file) => names.extend(file.names.into_iter().map(|name| name.name)),
        Err(_) => damaged.push(number),
    });
    (names, damaged)
}

#[test]
fn a_record_that_is_torn_is_named_and_all_others_are_read() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let (_, whole) = small_volume();
    let (names, damaged) = names_of(whole.clone());
    assert!(names.contains(&b"file 7".to_vec()) && damaged.is_empty());
    let name: Vec<u8> = "file 7".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut places = whole.chunks(1024).enumerate().filter(|(_, record)| {
        record.starts_with(b"FILE") && record.windows(name.len()).any(|found| found == name)
    });
    let (place, record) = places.next().unwrap();
    let number = u32::from_le_bytes(*record[44..].first_chunk().unwrap());
    // The end of its second sector is of another moment; its head is not there.
    for at in [1023, 0] {
        let mut torn = whole.clone();
        torn[place * 1024 + at] ^= 1;
        let (found, damaged) = names_of(torn);
        assert_eq!(damaged, [u64::from(number)]);
        let expected = names.iter().filter(|name| name.as_slice() != b"file 7");
        assert!(found.iter().eq(expected));
    }
}

#[test]
fn bytes_that_are_others_end_in_files_or_errors() {
    if !can_run(&PROGRAMS) {
        return;
    }
    let (_, whole) = small_volume();
    let records: Vec<_> = (0..whole.len() / 1024)
        .filter(|number| whole[number * 1024..].starts_with(b"FILE"))
        .collect();
    let mut random = Random(3);
    let mut files = 0;
    for _ in 0..400 {
        let mut damaged = whole.clone();
        for _ in 0..20 {
            let record = records[random.below(records.len() as u64) as usize];
            let at = record * 1024 + random.below(600) as usize;
            damaged[at] = random.below(256) as u8;
        }
        let Ok(ntfs) = Ntfs::open(Arc::new(damaged)) else {
            continue;
        };
        let security = ntfs.security_descriptors();
        let mut buffer = vec![0; 20_000];
        ntfs.files(0, u64::MAX, &mut |number, file| {
            let Ok(file) = file else {
                return;
            };
            files += 1;
            for (_, stream) in file.streams() {
                let len = stream.size().min(20_000) as usize;
                let _ = ntfs.read_content(number, stream, 0, &mut buffer[..len]);
                let _ = ntfs.extents(stream).count();
            }
            let _ = ntfs.xattrs(&file, security.as_ref().ok());
        });
    }
    assert!(files > 5000, "{files}");
}

#[test]
fn files_are_as_ntfs_3g_shows_them() {
    if !can_run(&PROGRAMS) {
        return;
    }
    for mkntfs in ["", "-c 1024", "-s 4096"] {
        let image = Image::new(150 << 20);
        let name = image.name();
        let words: Vec<_> = mkntfs.split_whitespace().collect();
        run(
            "mkntfs",
            &[&["-q", "-F", "-f"], words.as_slice(), &[&name]].concat(),
        );
        {
            let mounted = image.mount_ntfs(OPTIONS);
            churn(&mounted.path, 3, 3);
            fill(&mounted.path);
        }
        let expected = shown(&image.mount_ntfs(&format!("ro,{OPTIONS}")).path);
        let found = read(&image);
        let paths = |tree: &BTreeMap<PathBuf, Seen>| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(paths(&found), paths(&expected));
        for (path, expected) in &expected {
            let found = &found[path];
            assert!(found.content == expected.content, "{path:?}");
            let facts = |seen: &Seen| (seen.kind, seen.number, seen.nlink, seen.rdev, seen.mtime);
            assert_eq!(facts(found), facts(expected), "{path:?}");
            assert_eq!(found.xattrs, expected.xattrs, "{path:?}");
        }
        // It was what it was meant to be.
        let ntfs = Ntfs::open(Arc::new(image.file())).unwrap();
        let (mut compressed, mut mapped, mut runs) = (0, 0, 0);
        ntfs.files(0, u64::MAX, &mut |_, file| {
            let file = file.unwrap();
            let Some(stream) = file.data() else {
                return;
            };
            match file.inode().layout {
                Layout::Mapped => {
                    mapped += 1;
                    runs = runs.max(ntfs.extents(stream).count());
                }
                Layout::Encoded => compressed += 1,
                _ => {}
            }
        });
        assert!(mapped > 10 && runs > 1000, "{mapped} {runs}");
        assert_eq!(compressed, 4, "{mkntfs}");
    }
}
