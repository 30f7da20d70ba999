//! Written file systems against e2fsck and the kernel.

use crate::mkext4_tree::*;
use bale_fsimage::Timestamp;
use bale_fsimage::mkext4::*;

const TOOLS: [&str; 3] = ["e2fsck", "mount", "umount"];

#[test]
fn an_empty_tree_is_a_clean_file_system_in_every_shape() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    for block_size in [1024, 2048, 4096] {
        for inode_size in [128, 256, 512, 1024] {
            for journal in [Journal::None, Journal::Blocks(1024)] {
                for size_bytes in [None, Some(40 << 20), Some(700 << 20)] {
                    let options = Ext4Options {
                        block_size,
                        inode_size,
                        journal,
                        size_bytes,
                        ..Ext4Options::default()
                    };
                    assert_round_trip(&options, &Tree::default());
                }
            }
        }
    }
}

#[test]
fn every_kind_of_entry_comes_back_in_every_field() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    for block_size in [1024, 2048, 4096] {
        for inode_size in [128, 256, 512] {
            let options = Ext4Options {
                block_size,
                inode_size,
                label: b"round trip".to_vec(),
                ..Ext4Options::default()
            };
            assert_round_trip(&options, &every_kind());
        }
    }
}

fn every_kind() -> Tree {
    let mut tree = Tree::default();
    tree.add("a", Node::new(Kind::Directory));
    tree.add("a/file", Node::file(b"hello"));
    tree.add("a/empty", Node::file(b""));
    tree.add("a/deep", Node::new(Kind::Directory));
    tree.add("a/deep/er", Node::new(Kind::Directory));
    tree.add("a/deep/er/file", Node::file(&vec![9; 70_000]));
    tree.add("a-b", Node::new(Kind::Directory));
    tree.add("a-b/link", Node::new(Kind::Symlink(b"short".to_vec())));
    tree.add("a-b/link59", Node::new(Kind::Symlink(vec![b'x'; 59])));
    tree.add("a-b/link60", Node::new(Kind::Symlink(vec![b'x'; 60])));
    tree.add("a-b/link1000", Node::new(Kind::Symlink(vec![b'x'; 1000])));
    tree.add("null", Node::new(Kind::CharDevice(1, 3)));
    tree.add("sda", Node::new(Kind::BlockDevice(8, 0)));
    tree.add("wide", Node::new(Kind::BlockDevice(4095, 1_048_575)));
    tree.add("whiteout", Node::new(Kind::CharDevice(0, 0)));
    tree.add("fifo", Node::new(Kind::Fifo));
    tree.add("socket", Node::new(Kind::Socket));
    tree.add("one", Node::file(b"linked"));
    tree.add("two", Node::link("one"));
    tree.put(b"odd \n\xff\xfe name", Node::file(b"odd"));
    tree.add(
        "sparse",
        Node::new(Kind::Regular(
            3_000_000,
            vec![
                (0, vec![1; 10]),
                (1_000_001, vec![2; 5000]),
                (2_999_990, vec![3; 10]),
            ],
        )),
    );
    tree.add("hole", Node::new(Kind::Regular(1 << 40, vec![])));
    tree.add(
        "far",
        Node::new(Kind::Regular(
            1 << 41,
            vec![((1 << 41) - 4, b"tail".to_vec())],
        )),
    );
    for (name, seconds) in [
        ("old", -3_000_000_000),
        ("y1902", -2_140_000_000),
        ("y2107", 4_330_000_000),
        ("y2445", 14_990_000_000),
        ("y9999", 253_370_764_800),
    ] {
        let mut node = Node::file(b"time");
        node.mtime = Timestamp {
            seconds,
            nanos: 999_999_999,
        };
        node.atime = Timestamp {
            seconds: seconds + 1,
            nanos: 1,
        };
        tree.add(name, node);
    }
    let mut owned = Node::file(b"owner");
    (owned.uid, owned.gid, owned.permissions) = (4_000_000_000, 3_000_000_000, 0o6755);
    tree.add("owned", owned);
    let mut attributes = Node::file(b"x");
    attributes.xattrs = vec![
        (b"user.small".to_vec(), b"v".to_vec()),
        (b"user.empty".to_vec(), vec![]),
        (b"user.large".to_vec(), vec![5; 500]),
        (b"trusted.t".to_vec(), b"t".to_vec()),
        (
            b"security.capability".to_vec(),
            b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
        ),
    ];
    tree.add("attributes", attributes);
    let mut large = Node::new(Kind::Directory);
    large.xattrs = vec![
        (
            b"user.largest".to_vec(),
            (0..65_536u32).map(|byte| (byte * 7) as u8).collect(),
        ),
        (b"user.large".to_vec(), vec![9; 5_000]),
        (b"user.small".to_vec(), b"beside them".to_vec()),
    ];
    tree.add("large", large);
    let mut acl = Node::new(Kind::Directory);
    acl.permissions = 0o770;
    let entries: [(u16, u16, u32); 5] = [
        (1, 7, !0),
        (2, 5, 1000),
        (4, 7, !0),
        (0x10, 7, !0),
        (0x20, 0, !0),
    ];
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&permissions.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    acl.xattrs = vec![
        (b"system.posix_acl_access".to_vec(), value.clone()),
        (b"system.posix_acl_default".to_vec(), value),
    ];
    tree.add("acl", acl);
    tree
}

#[test]
fn large_directories_are_indexed_and_every_name_is_found() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    for (block_size, names) in [(1024, 40_000), (4096, 60_000)] {
        let mut tree = Tree::default();
        tree.add("many", Node::new(Kind::Directory));
        for name in 0..names {
            tree.add(&format!("many/name-{name}"), Node::file(b""));
        }
        for name in 0..300 {
            tree.add(&format!("root-{name}"), Node::new(Kind::Directory));
        }
        assert_round_trip(
            &Ext4Options {
                block_size,
                ..Ext4Options::default()
            },
            &tree,
        );
    }
}

/// The kernel takes over: it finds free blocks and inodes, splits index blocks, uses the journal
/// and zeroes tables.
#[test]
fn the_kernel_goes_on_writing_where_the_writer_stopped() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    for (block_size, target_is_zeroed) in [(1024, true), (1024, false), (4096, false)] {
        let mut tree = every_kind();
        tree.add("many", Node::new(Kind::Directory));
        for name in 0..5_000 {
            tree.add(&format!("many/name-{name}"), Node::file(b""));
        }
        let options = Ext4Options {
            block_size,
            target_is_zeroed,
            size_bytes: Some(100 << 20),
            inodes: Some(20_000),
            ..Ext4Options::default()
        };
        let dir = work_dir();
        let image = dir.path().join("image");
        write_image(&options, &tree, &image);
        let mounted = Mounted::writable(&image, &dir.path().join("mnt"));
        for name in 0..5_000 {
            let path = mounted.path().join(format!("many/later-{name}"));
            std::fs::write(&path, vec![7; name % 3_000]).unwrap();
            if name % 3 == 0 {
                std::fs::remove_file(mounted.path().join(format!("many/name-{name}"))).unwrap();
            }
        }
        std::fs::create_dir_all(mounted.path().join("a/new/er/directories")).unwrap();
        std::fs::write(mounted.path().join("sparse"), vec![1; 5 << 20]).unwrap();
        std::fs::write(mounted.path().join("lost+found/x"), b"x").unwrap();
        drop(mounted);
        assert_clean(&image);
        let mounted = Mounted::new(&image, &dir.path().join("mnt"));
        let names = std::fs::read_dir(mounted.path().join("many"))
            .unwrap()
            .count();
        assert_eq!(names, 10_000 - 5_000usize.div_ceil(3));
        assert!(std::fs::read(mounted.path().join("many/later-2999")).unwrap() == vec![7; 2_999]);
    }
}

/// A test of the tests: e2fsck speaks up when a byte is wrong.
#[test]
fn a_flipped_bit_in_a_table_is_noticed() {
    if !tools_are_here(&TOOLS) {
        return;
    }
    use std::os::unix::fs::FileExt;
    let dir = work_dir();
    let image = dir.path().join("image");
    write_image(&Ext4Options::default(), &every_kind(), &image);
    assert_clean(&image);
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&image)
        .unwrap();
    let mut block = vec![0; 4096];
    FileExt::read_exact_at(&file, &mut block, 4096).unwrap();
    let table = u32::from_le_bytes(block[8..12].try_into().unwrap());
    let root_mode = u64::from(table) * 4096 + 256;
    FileExt::write_all_at(&file, &[0x55], root_mode + 2).unwrap();
    assert!(std::panic::catch_unwind(|| assert_clean(&image)).is_err());
}
