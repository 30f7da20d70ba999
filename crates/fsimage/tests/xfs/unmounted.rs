//! File systems that are never mounted: made by mkfs.xfs from a list, read back, and asked of
//! xfs_db. This needs no root, and no kernel that still knows version 4.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::xfs_image::damage::{for_each_damage, scan};
use crate::xfs_image::seen::{Tree, by_reader};
use crate::xfs_image::{Image, Random, has_tools};
use bale_fsimage::FileKind;
use bale_fsimage::xfs::{LogState, Xfs};

const TOOLS: [&str; 2] = ["mkfs.xfs", "xfs_db"];

/// What the list asks for at one path.
#[derive(Debug, PartialEq)]
struct Wanted {
    kind: FileKind,
    permissions: u32,
    uid: u32,
    gid: u32,
    rdev: (u32, u32),
    target: Option<Vec<u8>>,
    size: Option<u64>,
}

/// The list that mkfs.xfs reads, and what it should lead to.
struct List {
    text: String,
    wanted: BTreeMap<Vec<u8>, Wanted>,
    path: String,
}

impl List {
    /// Adds one line: `kind` as mkfs.xfs writes it, and what belongs to that kind.
    fn add(&mut self, name: &str, letter: char, rest: &str, wanted: Wanted) {
        let Wanted {
            permissions,
            uid,
            gid,
            ..
        } = wanted;
        writeln!(
            self.text,
            "{name} {letter}--{permissions:03o} {uid} {gid} {rest}"
        )
        .unwrap();
        self.wanted
            .insert(format!("{}/{name}", self.path).into_bytes(), wanted);
    }

    fn enter(&mut self, name: &str) {
        self.add(
            name,
            'd',
            "",
            Wanted {
                permissions: 0o750,
                ..wanted(FileKind::Directory)
            },
        );
        write!(self.path, "/{name}").unwrap();
    }

    fn leave(&mut self) {
        self.text.push_str("$\n");
        self.path.truncate(self.path.rfind('/').unwrap());
    }
}

fn wanted(kind: FileKind) -> Wanted {
    Wanted {
        kind,
        permissions: 0o644,
        uid: 3,
        gid: 70_000,
        rdev: (0, 0),
        target: None,
        size: None,
    }
}

fn list(content: &str, content_bytes: u64, target_bytes_max: usize) -> List {
    let mut list = List {
        text: "/dev/null\n0 0\nd--755 0 0\n".to_owned(),
        wanted: BTreeMap::new(),
        path: String::new(),
    };
    let file = || Wanted {
        size: Some(content_bytes),
        ..wanted(FileKind::Regular)
    };
    for (directory, count) in [("short", 3), ("block", 6), ("leaf", 30), ("node", 600)] {
        list.enter(directory);
        for index in 0..count {
            let name = format!("{index}{}", "n".repeat(index * 7 % 200));
            // Content takes blocks between those of the directory, until it needs an extent btree.
            if index % 3 == 0 {
                list.add(&name, '-', content, file());
            } else {
                let target = "t".repeat(1 + index % target_bytes_max);
                let link = Wanted {
                    target: Some(target.clone().into_bytes()),
                    ..wanted(FileKind::Symlink)
                };
                list.add(
                    &name,
                    'l',
                    &target,
                    Wanted {
                        permissions: 0o777,
                        ..link
                    },
                );
            }
        }
        list.leave();
    }
    list.enter("nodes");
    list.add(
        "block",
        'b',
        "8 17",
        Wanted {
            rdev: (8, 17),
            ..wanted(FileKind::BlockDevice)
        },
    );
    list.add(
        "char",
        'c',
        "5 1",
        Wanted {
            rdev: (5, 1),
            ..wanted(FileKind::CharDevice)
        },
    );
    list.add("fifo", 'p', "", wanted(FileKind::Fifo));
    list.leave();
    list.text.push_str("$\n");
    list
}

/// Makes a file system of `size_mib` from the list.
fn made_from_list(size_mib: u64, mkfs_arguments: &str) -> (Image, List) {
    let directory = tempfile::tempdir().unwrap();
    let (content, proto) = (
        directory.path().join("content"),
        directory.path().join("list"),
    );
    let bytes = Random(4).bytes(1700);
    std::fs::write(&content, &bytes).unwrap();
    // Some versions of mkfs.xfs forget the header of long links that version 5 demands.
    let target_bytes_max = if mkfs_arguments.contains("crc=0") {
        1000
    } else {
        300
    };
    let list = list(
        content.to_str().unwrap(),
        bytes.len() as u64,
        target_bytes_max,
    );
    std::fs::write(&proto, &list.text).unwrap();
    (
        Image::make(
            size_mib,
            &format!("{mkfs_arguments} -p {}", proto.display()),
        ),
        list,
    )
}

/// Makes a file system from the list and compares every path.
fn list_is_read_back(mkfs_arguments: &str) {
    if !has_tools(&TOOLS) {
        return;
    }
    let (image, list) = made_from_list(320, mkfs_arguments);
    let source = image.open();
    let xfs = Xfs::open(&source).unwrap();
    assert_eq!(xfs.no_checksums(), mkfs_arguments.contains("crc=0"));
    assert_eq!(xfs.log_state(&source).unwrap(), LogState::Clean);
    let tree = by_reader(&source);
    let content_sum = tree[&b"/short/0"[..]].content;
    for (path, wanted) in &list.wanted {
        let name = String::from_utf8_lossy(path);
        let seen = tree
            .get(path)
            .unwrap_or_else(|| panic!("{mkfs_arguments}: {name} is missing"));
        let found = Wanted {
            kind: FileKind::from_mode(seen.mode).unwrap(),
            permissions: seen.mode & 0o7777,
            uid: seen.uid,
            gid: seen.gid,
            rdev: seen.rdev,
            target: seen.target.clone(),
            size: wanted.size.map(|_| seen.size),
        };
        assert_eq!(&found, wanted, "{mkfs_arguments}: {name}");
        assert_eq!(
            seen.content,
            if wanted.kind == FileKind::Regular {
                content_sum
            } else {
                0
            },
            "{name}"
        );
    }
    assert_eq!(
        tree.len(),
        list.wanted.len() + 1,
        "{mkfs_arguments}: names that nobody asked for"
    );
    assert_ne!(content_sum, 0);
    numbers_agree(&image, &tree, mkfs_arguments);
    if !mkfs_arguments.contains("attr=1") {
        attributes_are_read_back(&image, &tree); // With those, xfs_db does not survive at all.
    }
}

/// Names and inode numbers are those that xfs_db finds, and so are the counts of extents.
fn numbers_agree(image: &Image, tree: &Tree, context: &str) {
    let output = image.xfs_db(&["-r"], &["blockget -n".into(), "ncheck".into()]);
    let mut compared = 0;
    for line in output.lines() {
        let (number, path) = line.trim().split_once(' ').unwrap();
        let path = format!("/{}", path.trim_end_matches("/."));
        if let Some(seen) = tree.get(path.as_bytes()) {
            assert_eq!(seen.number.to_string(), number, "{context}: {path}");
            compared += 1;
        }
    }
    assert_eq!(compared, tree.len() - 1, "{context}");
}

/// Attributes that xfs_db sets, from a few in the inode to a tree of blocks and values in blocks of
/// their own.
fn attributes_are_read_back(image: &Image, tree: &Tree) {
    let cases = [
        ("/short/0", 2, 10),
        ("/block/0", 5, 200),
        ("/leaf/0", 60, 100),
        ("/nodes/fifo", 2, 30_000),
    ];
    for (path, count, len) in cases {
        let inode = format!("inode {}", tree[path.as_bytes()].number);
        // One command at a time, and a small one first: some versions of xfs_db do not survive it
        // otherwise.
        image.xfs_db(&["-x"], &[inode.clone(), "attr_set -u -v 1 first".into()]);
        for index in 0..count {
            image.xfs_db(
                &["-x"],
                &[inode.clone(), format!("attr_set -u -v {len} name{index}")],
            );
        }
        image.xfs_db(&["-x"], &[inode, format!("attr_set -r -v {len} root")]);
    }
    let tree = by_reader(&image.open());
    for (path, count, len) in cases {
        let xattrs = &tree[path.as_bytes()].xattrs;
        assert_eq!(xattrs.len(), count + 2, "{path}");
        for index in 0..count {
            assert_eq!(
                xattrs[&format!("user.name{index}")],
                vec![b'v'; len],
                "{path}"
            );
        }
        assert_eq!(xattrs["trusted.root"].len(), len);
    }
}

#[test]
fn version_5_is_read_back() {
    list_is_read_back("-m crc=1");
}

#[test]
fn version_5_with_small_blocks_is_read_back() {
    list_is_read_back("-m crc=1 -b size=1k");
}

#[test]
fn version_4_is_read_back() {
    list_is_read_back("-m crc=0");
}

#[test]
fn version_4_with_blocks_and_inodes_of_the_least_size_is_read_back() {
    list_is_read_back("-m crc=0 -b size=512 -i size=256");
}

#[test]
fn version_4_without_file_types_is_read_back() {
    list_is_read_back("-m crc=0 -n ftype=0 -i size=256 -b size=1k -n size=8k");
}

#[test]
fn version_4_with_old_attributes_and_project_ids_is_read_back() {
    list_is_read_back("-m crc=0 -i attr=1,projid32bit=0,size=512 -l version=1");
}

/// Without checksums damage may be believed, but it must neither panic nor make the reader loop.
#[test]
fn damaged_version_4_neither_panics_nor_loops() {
    if !has_tools(&TOOLS) {
        return;
    }
    let (image, _) = made_from_list(
        32,
        "--unsupported -m crc=0 -b size=512 -i size=256 -l size=4806b",
    );
    let mut bytes = std::fs::read(image.path()).unwrap();
    let sound = scan(&bytes);
    assert!(sound.errors.is_empty(), "{:?}", sound.errors);
    let (mut noticed, mut believed) = (0, 0);
    for_each_damage(&mut bytes, &sound, 1000, false, |damaged, _| {
        noticed += u64::from(!damaged.errors.is_empty());
        believed += u64::from(damaged.errors.is_empty() && damaged.facts != sound.facts);
    });
    assert!(
        noticed > 300 && believed > 10,
        "{noticed} noticed, {believed} believed"
    );
}
