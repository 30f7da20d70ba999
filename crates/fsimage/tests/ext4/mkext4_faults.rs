//! Targets that fail, runs that are killed, entries that are refused, and the limits of the format.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::mkext4_tree::*;
use bale_fsimage::mkext4::*;

const TOOLS: [&str; 4] = ["e2fsck", "mount", "umount", "find"];

fn small_tree() -> Tree {
    let mut tree = Tree::default();
    for directory in 0..5 {
        tree.add(&format!("d{directory}"), Node::new(Kind::Directory));
        for file in 0..20 {
            tree.add(
                &format!("d{directory}/f{file}"),
                Node::file(&vec![file as u8; 1000 + 100_000 * file]),
            );
        }
    }
    tree
}

fn small_options() -> Ext4Options {
    Ext4Options {
        block_size: 1024,
        size_bytes: Some(120 << 20),
        target_is_zeroed: false,
        ..Ext4Options::default()
    }
}

/// Passes this many writes, then has no space.
struct FullAfter {
    left: u64,
    written: u64,
}

impl BlockSink for FullAfter {
    fn write_at(&mut self, _: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        if self.left == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.left -= 1;
        self.written += 1;
        Ok(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_target_is_said_at_every_write() {
    let (options, tree) = (small_options(), small_tree());
    let (sink, _) = build(
        &options,
        &tree,
        FullAfter {
            left: u64::MAX,
            written: 0,
        },
    )
    .unwrap();
    assert!(sink.written > 20);
    for left in 0..sink.written {
        match build(&options, &tree, FullAfter { left, written: 0 }) {
            Err(error @ MkError::Write { .. }) => {
                let source = std::error::Error::source(&error)
                    .unwrap()
                    .downcast_ref::<io::Error>()
                    .unwrap();
                assert_eq!(source.kind(), io::ErrorKind::StorageFull);
                assert!(error.to_string().starts_with("write "), "{error}");
            }
            other => panic!("after {left} writes: {:?}", other.map(|done| done.1)),
        }
    }
}

#[test]
fn after_a_failed_write_all_work_is_refused() {
    let options = small_options();
    let tree = small_tree();
    let plan = Plan::new(options.clone(), totals(&options, &tree)).unwrap();
    let mut left = 0;
    let mut builder = loop {
        left += 1;
        if let Ok(builder) =
            Ext4Builder::create(plan.clone(), FullAfter { left, written: 0 }, scratch())
        {
            break builder;
        }
    };
    let mut failed = false;
    for_each_entry(&tree, |_, _, entry, data| match builder.push(entry, data) {
        Err(MkError::Write { .. }) if !failed => failed = true,
        Err(MkError::Poisoned) if failed => {}
        Ok(_) if !failed => {}
        other => panic!("{other:?}"),
    });
    assert!(failed);
    assert!(matches!(builder.finish(), Err(MkError::Poisoned)));
}

#[derive(Default)]
struct Recorder(Vec<(u64, Vec<u8>)>);

impl BlockSink for Recorder {
    fn write_at(&mut self, offset: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        self.0.push((offset, buffer));
        Ok(Vec::new())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn mounts(image: &Path, at: &Path) -> bool {
    std::fs::create_dir_all(at).unwrap();
    let output = Command::new("mount")
        .args(["-t", "ext4", "-o", "loop,ro"])
        .arg(image)
        .arg(at)
        .output()
        .unwrap();
    if output.status.success() {
        assert!(Command::new("umount").arg(at).status().unwrap().success());
    }
    output.status.success()
}

/// The target held another file system, which must not come back either.
#[test]
fn a_run_killed_at_any_write_leaves_nothing_that_mounts() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    let dir = work_dir();
    let (image, at) = (dir.path().join("image"), dir.path().join("mnt"));
    let before = Ext4Options {
        uuid: [9; 16],
        target_is_zeroed: true,
        ..small_options()
    };
    write_image(&before, &Tree::default(), &image);
    assert!(mounts(&image, &at));
    let (options, tree) = (small_options(), small_tree());
    let writes = build(&options, &tree, Recorder::default()).unwrap().0.0;
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    for (position, (offset, bytes)) in writes.iter().enumerate() {
        file.write_all_at(bytes, *offset).unwrap();
        let is_last = position + 1 == writes.len();
        assert_eq!(
            mounts(&image, &at),
            is_last,
            "after write {position} of {}",
            writes.len()
        );
    }
    assert_clean(&image);
    let mounted = Mounted::new(&image, &at);
    assert_same(&tree, mounted.path(), &options);
}

#[test]
fn sixty_five_thousand_names_of_one_inode_and_not_one_more() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    let mut tree = Tree::default();
    tree.add("0", Node::file(b"popular"));
    for link in 0..64_999 {
        tree.add(&format!("link{link:05}"), Node::link("0"));
    }
    assert_round_trip(&Ext4Options::default(), &tree);
    tree.add("one more", Node::link("0"));
    match build(&Ext4Options::default(), &tree, Recorder::default()) {
        Err(MkError::Entry {
            path,
            source: EntryError::LinkLimit(_),
        }) => assert_eq!(path, "one more"),
        other => panic!("{:?}", other.map(|done| done.1)),
    }
}

#[test]
fn more_subdirectories_than_a_link_count_can_say() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    let mut tree = Tree::default();
    tree.add("d", Node::new(Kind::Directory));
    for child in 0..65_100 {
        tree.add(&format!("d/{child}"), Node::new(Kind::Directory));
    }
    assert_round_trip(
        &Ext4Options {
            block_size: 1024,
            ..Ext4Options::default()
        },
        &tree,
    );
}

/// `cargo test -p bale-fsimage --release --test ext4 -- --ignored`
#[test]
#[ignore = "takes minutes and gigabytes"]
fn a_directory_of_three_million_names() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    for block_size in [1024, 4096] {
        let options = Ext4Options {
            block_size,
            ..Ext4Options::default()
        };
        let mut tree = Tree::default();
        tree.add("many", Node::new(Kind::Directory));
        tree.add("many/000", Node::file(b"x"));
        for name in 0..3_000_000 {
            let node = if name % 100 == 99 {
                Node::link("many/000")
            } else {
                Node::file(b"")
            };
            tree.add(&format!("many/a name of some length {name}"), node);
        }
        assert_round_trip(&options, &tree);
    }
}

#[test]
fn refused_entries_leave_the_others_complete() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    let options = Ext4Options {
        block_size: 1024,
        size_bytes: Some(64 << 20),
        ..Ext4Options::default()
    };
    let mut tree = Tree::default();
    tree.add("b", Node::new(Kind::Directory));
    tree.add("c", Node::file(b"content"));
    tree.add("b/d", Node::file(b"below"));
    let dir = work_dir();
    let image = dir.path().join("image");
    let plan = Plan::new(
        options.clone(),
        TreeTotals {
            deferred_inodes: 5,
            streamed_inodes: 50,
            data_blocks: 50,
            meta_blocks_max: 50,
            names: 50,
        },
    )
    .unwrap();
    let sink = FileSink::create(&image, plan.bytes());
    let mut builder = Ext4Builder::create(plan, sink, scratch()).unwrap();
    for_each_entry(&tree, |path, _, entry, data| {
        builder.push(entry, data).unwrap();
        for (wrong, expected) in wrong_entries(entry) {
            match builder.push(&wrong, &mut NoData) {
                Err(MkError::Entry { source, .. }) => assert_eq!(source, expected),
                other => panic!("{other:?} for {expected:?}"),
            }
        }
        let linked = builder.push_link(entry.parent, b"zz", 2_000);
        assert!(
            matches!(
                linked,
                Err(MkError::Entry {
                    source: EntryError::LinkTarget(2_000),
                    ..
                })
            ),
            "{linked:?}"
        );
        if path == b"b" {
            let linked = builder.push_link(b"", b"bb", 12);
            assert!(
                matches!(
                    linked,
                    Err(MkError::Entry {
                        source: EntryError::DirectoryLink,
                        ..
                    })
                ),
                "{linked:?}"
            );
        }
    });
    // Children of a directory that was refused have no place either.
    for_each_entry(&tree, |_, _, entry, _| {
        for parent in [&b"b/unknown"[..], b"unknown", b"c"] {
            let orphan = NewEntry {
                parent,
                name: b"y",
                content: NewKind::Fifo,
                ..*entry
            };
            let pushed = builder.push(&orphan, &mut NoData);
            assert!(
                matches!(
                    pushed,
                    Err(MkError::Entry {
                        source: EntryError::Order,
                        ..
                    })
                ),
                "{pushed:?}"
            );
        }
    });
    builder.finish().unwrap();
    assert_clean(&image);
    let mounted = Mounted::new(&image, &dir.path().join("mnt"));
    assert_same(&tree, mounted.path(), &options);
}

/// Names alone that are too much for a block.
const fn long_names() -> [NewXattr<'static>; 16] {
    static NAMES: [[u8; 260]; 16] = {
        let mut names = [[b'x'; 260]; 16];
        let mut position = 0;
        while position < 16 {
            let mut byte = 0;
            while byte < 5 {
                names[position][byte] = b"user."[byte];
                byte += 1;
            }
            names[position][5] = b'a' + position as u8;
            position += 1;
        }
        names
    };
    let mut xattrs = [NewXattr {
        name: b"",
        value: b"",
    }; 16];
    let mut position = 0;
    while position < 16 {
        xattrs[position].name = &NAMES[position];
        position += 1;
    }
    xattrs
}

/// Variants of a good entry that must be refused after it.
fn wrong_entries<'a>(good: &NewEntry<'a>) -> Vec<(NewEntry<'a>, EntryError)> {
    static LONG: [u8; 5000] = [b'x'; 5000];
    static XATTRS: [NewXattr<'static>; 16] = long_names();
    let later = NewEntry {
        name: b"y",
        content: NewKind::Fifo,
        ..*good
    };
    vec![
        (*good, EntryError::Order),
        (
            NewEntry {
                name: b"a",
                ..*good
            },
            EntryError::Order,
        ),
        (
            NewEntry {
                name: b"..",
                ..later
            },
            EntryError::Name,
        ),
        (
            NewEntry {
                name: b"a/b",
                ..later
            },
            EntryError::Name,
        ),
        (
            NewEntry {
                name: b"nul\0",
                ..later
            },
            EntryError::Name,
        ),
        (
            NewEntry {
                name: &LONG[..256],
                ..later
            },
            EntryError::Name,
        ),
        (
            NewEntry {
                parent: b"",
                name: b"",
                ..later
            },
            EntryError::Root,
        ),
        (
            NewEntry {
                content: NewKind::Symlink { target: b"" },
                ..later
            },
            EntryError::SymlinkTarget,
        ),
        (
            NewEntry {
                content: NewKind::Symlink {
                    target: &LONG[..1024],
                },
                ..later
            },
            EntryError::SymlinkTooLong { len_bytes: 1024 },
        ),
        (
            NewEntry {
                content: NewKind::CharDevice {
                    major: 4096,
                    minor: 0,
                },
                ..later
            },
            EntryError::Device {
                major: 4096,
                minor: 0,
            },
        ),
        (
            NewEntry {
                content: NewKind::Regular {
                    size_bytes: 1 << 43,
                },
                ..later
            },
            EntryError::FileTooLarge {
                size_bytes: 1 << 43,
                max_bytes: 0xffff_ffff << 10,
            },
        ),
        (
            NewEntry {
                xattrs: &XATTRS,
                ..later
            },
            EntryError::XattrSpace {
                total_bytes: 16 * 272,
            },
        ),
        (
            NewEntry {
                mtime: bale_fsimage::Timestamp {
                    seconds: 0,
                    nanos: 1_000_000_000,
                },
                ..later
            },
            EntryError::Nanoseconds(1_000_000_000),
        ),
        (
            NewEntry {
                content: NewKind::Directory,
                more_links: true,
                ..later
            },
            EntryError::DirectoryLink,
        ),
    ]
}

#[test]
fn more_than_was_planned_is_refused_before_anything_is_overwritten() {
    let options = Ext4Options {
        free_percent: 0,
        ..small_options()
    };
    let tree = small_tree();
    let counted = totals(&options, &tree);
    let fewer = TreeTotals {
        deferred_inodes: counted.deferred_inodes - 1,
        ..counted
    };
    let plan = Plan::new(options.clone(), fewer).unwrap();
    let mut builder = Ext4Builder::create(plan, Recorder::default(), scratch()).unwrap();
    let mut outcome = Ok(0);
    for_each_entry(&tree, |_, _, entry, data| {
        if outcome.is_ok() {
            outcome = builder.push(entry, data);
        }
    });
    assert!(
        matches!(outcome, Err(MkError::PlanExceeded { planned: 4, .. })),
        "{outcome:?}"
    );
}

/// The kernel's answers as `find` prints them.
#[test]
fn find_agrees_in_every_field() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    let mut tree = small_tree();
    let mut special = Node::new(Kind::Symlink(b"target".to_vec()));
    (special.uid, special.gid, special.permissions) = (1000, 70_000, 0o777);
    tree.add("link", special);
    tree.add("second", Node::link("d0/f3"));
    // The first name must come first in the catalog: the link goes behind it.
    let node = tree.0.remove(&key(b"second")).unwrap();
    tree.add("d4/second", node);
    let dir = work_dir();
    let image = dir.path().join("image");
    write_image(&small_options(), &tree, &image);
    let mounted = Mounted::new(&image, &dir.path().join("mnt"));
    let format = "%P|%y|%#m|%U|%G|%n|%T@|%A@|%C@|%l|%s\n";
    let args = [
        ".",
        "-mindepth",
        "1",
        "-path",
        "./lost+found",
        "-prune",
        "-o",
        "-mindepth",
        "1",
        "-printf",
        format,
    ];
    let output = Command::new("find")
        .current_dir(mounted.path())
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success());
    let mut found: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    found.sort();
    let mut expected: Vec<String> = tree.0.keys().map(|key| expected_line(&tree, key)).collect();
    expected.sort();
    assert_eq!(found, expected);
}

fn expected_line(tree: &Tree, key: &CatalogKey) -> String {
    let path = String::from_utf8(path_of(key)).unwrap();
    let node = match &tree.0[key].kind {
        Kind::Link(first) => &tree.0[&crate::mkext4_tree::key(first)],
        _ => &tree.0[key],
    };
    let is_pair = path == "d0/f3" || path == "d4/second";
    let (letter, links, target, size) = match &node.kind {
        Kind::Directory => ("d", 2, "", 1024),
        Kind::Regular(size, _) => ("f", if is_pair { 2 } else { 1 }, "", *size),
        Kind::Symlink(target) => ("l", 1, "target", target.len() as u64),
        _ => unreachable!(),
    };
    let time = |time: bale_fsimage::Timestamp| format!("{}.{:09}0", time.seconds, time.nanos);
    format!(
        "{path}|{letter}|{:#05o}|{}|{}|{links}|{}|{}|{}|{target}|{size}",
        node.permissions,
        node.uid,
        node.gid,
        time(node.mtime),
        time(node.atime),
        time(node.ctime)
    )
    .replace("|0o", "|0")
}

/// On a tmpfs, which takes sparse files larger than ext4 does; 300 MB of it are used.
#[test]
#[ignore = "takes a quarter of a minute and memory"]
fn more_blocks_than_32_bits_count() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    let dir = work_dir();
    let tmpfs = dir.path().join("tmpfs");
    std::fs::create_dir(&tmpfs).unwrap();
    let status = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2g", "none"])
        .arg(&tmpfs)
        .status()
        .unwrap();
    assert!(status.success());
    let options = Ext4Options {
        size_bytes: Some(20 << 40),
        inodes: Some(1_000_000),
        ..Ext4Options::default()
    };
    let attempt = std::panic::catch_unwind(|| {
        let image = tmpfs.join("image");
        write_image(&options, &small_tree(), &image);
        assert_clean(&image);
        let mounted = Mounted::new(&image, &dir.path().join("mnt"));
        assert_same(&small_tree(), mounted.path(), &options);
    });
    assert!(
        Command::new("umount")
            .arg(&tmpfs)
            .status()
            .unwrap()
            .success()
    );
    attempt.unwrap();
}
