//! File systems that the kernel of a test machine may not mount for writing: filled by mke2fs from
//! a directory.

use std::path::Path;

use bale_fsimage::FileKind;
use bale_fsimage::ext4::{Ext4, Ext4Error};

use crate::compare::assert_same;
use crate::fixture::{Scale, populate};
use crate::image::{Image, can_run, run};
use crate::scan::{Scan, scan};

const PROGRAMS: [&str; 5] = ["mke2fs", "mount", "umount", "debugfs", "setfacl"];

/// A tree on an ordinary file system, to be copied by `mke2fs -d`; the holder keeps it mounted
/// while `f` runs.
fn with_tree(f: impl FnOnce(&Path)) {
    let image = Image::make(320, "-t ext4");
    let mount = image.mount("noatime");
    let tree = mount.path.join("tree");
    populate(
        &tree,
        Scale {
            names: 3000,
            links: 30,
        },
    );
    // mke2fs 1.47.0 does not copy sockets, and stumbles over what chattr protects.
    std::fs::remove_file(tree.join("nodes/socket")).unwrap();
    run(
        "chattr",
        &["-R", "-i", "-a", tree.join("flags").to_str().unwrap()],
    );
    std::fs::remove_dir_all(tree.join("flags")).unwrap();
    f(&tree);
}

/// Names, types, owners, sizes, targets and contents as in the directory that mke2fs copied.
fn assert_same_as_tree(scan: &Scan, tree: &Path) {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    assert!(scan.problems.is_empty(), "{:#?}", scan.problems);
    let mut count = 0;
    let mut todo = vec![tree.to_owned()];
    while let Some(full) = todo.pop() {
        let path = full.strip_prefix(tree).unwrap().as_os_str().as_bytes();
        let metadata = full.symlink_metadata().unwrap();
        let number = scan
            .paths
            .get(path)
            .unwrap_or_else(|| panic!("{} is missing", path.escape_ascii()));
        let seen = &scan.inodes[number];
        let inode = &seen.inode;
        count += 1;
        assert_eq!(
            (inode.mode, inode.uid, inode.gid),
            (metadata.mode(), metadata.uid(), metadata.gid()),
            "{full:?}"
        );
        // mke2fs copies 32 bits of times. The root directory's is when lost+found was made in it.
        if !path.is_empty() {
            assert_eq!(
                inode.mtime.seconds as u32,
                metadata.mtime() as u32,
                "{full:?}"
            );
        }
        match FileKind::from_mode(inode.mode).unwrap() {
            FileKind::Directory => {
                todo.extend(full.read_dir().unwrap().map(|entry| entry.unwrap().path()))
            }
            FileKind::Symlink => {
                let target = full.read_link().unwrap();
                assert_eq!(
                    scan.fs.read_symlink(&seen.raw()).unwrap(),
                    target.as_os_str().as_bytes(),
                    "{full:?}"
                );
            }
            FileKind::Regular => {
                assert_eq!(inode.size, metadata.size(), "{full:?}");
                if inode.size < 100_000_000 {
                    let extents = scan.fs.extents(&seen.raw()).unwrap();
                    let content = seen.content(&scan.fs, &extents, 0, inode.size as usize);
                    assert!(
                        content == std::fs::read(&full).unwrap(),
                        "{full:?}: content differs"
                    );
                }
            }
            _ => {}
        }
    }
    assert_eq!(
        scan.paths.len(),
        count + usize::from(scan.paths.contains_key(&b"lost+found"[..]))
    );
}

fn copied_tree_reads_back(test: &str, mke2fs: &str, then: impl FnOnce(&Image, &Scan)) {
    if !can_run(test, &PROGRAMS) {
        return;
    }
    with_tree(|tree| {
        let image = Image::make(320, &format!("{mke2fs} -d {}", tree.display()));
        let seen = scan(Ext4::open(image.source()).unwrap());
        assert_same_as_tree(&seen, tree);
        then(&image, &seen);
    });
}

#[test]
fn blocks_of_64k_read_back() {
    let mke2fs = "-t ext4 -b 65536 -O ^has_journal -N 20000";
    copied_tree_reads_back("blocks_of_64k_read_back", mke2fs, |_, seen| {
        assert_eq!(seen.fs.superblock().block_bytes, 65536);
    });
}

#[test]
fn blocks_of_16k_read_back() {
    copied_tree_reads_back("blocks_of_16k_read_back", "-t ext4 -b 16384", |_, _| {});
}

/// mke2fs marks a file that is one hole as inline, whatever its length.
#[test]
fn inline_file_that_is_one_hole_reads_as_the_kernel_reads_it() {
    let test = "inline_file_that_is_one_hole_reads_as_the_kernel_reads_it";
    if !can_run(test, &PROGRAMS) {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    std::fs::File::create(tree.path().join("hole"))
        .unwrap()
        .set_len(1_000_000)
        .unwrap();
    let image = Image::make(
        16,
        &format!("-t ext4 -O inline_data -d {}", tree.path().display()),
    );
    let seen = scan(Ext4::open(image.source()).unwrap());
    assert_same(&seen, &image.mount("ro,noload").path);
}

/// The kernel writes quota files only if it knows their format; mounting read-only needs no such
/// thing.
#[test]
fn quota_inodes_are_no_files() {
    let mke2fs = "-t ext4 -O quota,project -E quotatype=usrquota:grpquota:prjquota";
    copied_tree_reads_back("quota_inodes_are_no_files", mke2fs, |image, seen| {
        assert_same(seen, &image.mount("ro,noload").path);
        run(
            "debugfs",
            &[
                "-w",
                "-R",
                "set_inode_field /xattrs/small projid 4242",
                image.name(),
            ],
        );
        let again = scan(Ext4::open(image.source()).unwrap());
        assert_eq!(again.at("xattrs/small").inode.project, 4242);
    });
}

/// Directory flag set by debugfs: few kernels of test machines are built with Unicode tables. Names
/// are stored as given.
#[test]
fn casefolded_directories_read_back() {
    let mke2fs = "-t ext4 -O casefold -E encoding=utf8";
    copied_tree_reads_back("casefolded_directories_read_back", mke2fs, |image, seen| {
        const CASEFOLD_FLAG: u32 = 0x4000_0000;
        let before = seen.at("names/many").inode.flags;
        let flags = format!("{:#x}", before | CASEFOLD_FLAG);
        run(
            "debugfs",
            &[
                "-w",
                "-R",
                &format!("set_inode_field /names/many flags {flags}"),
                image.name(),
            ],
        );
        let again = scan(Ext4::open(image.source()).unwrap());
        assert_eq!(again.problems, Vec::<String>::new());
        assert_eq!(again.at("names/many").inode.flags, before | CASEFOLD_FLAG);
        assert_eq!(again.paths, seen.paths);
    });
}

/// The second opinion on extents, for every file: debugfs lists the blocks one by one.
#[test]
fn extents_are_what_debugfs_says() {
    for mke2fs in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        copied_tree_reads_back("extents_are_what_debugfs_says", mke2fs, |image, seen| {
            for path in [
                "contents/fragments",
                "contents/sparse",
                "contents/len3000000",
                "names/many",
            ] {
                let file = seen.at(path);
                let mut blocks: Vec<u64> = Vec::new();
                for extent in seen.fs.extents(&file.raw()).unwrap() {
                    blocks.extend(
                        (0..extent.len.div_ceil(1024)).map(|i| extent.device_offset / 1024 + i),
                    );
                }
                let mut nodes = Vec::new();
                let _ = seen.fs.walk_mapping(&file.raw(), &mut |mapping| {
                    if let bale_fsimage::ext4::Mapping::Node { device_offset, .. } = mapping {
                        nodes.push(device_offset / 1024);
                    }
                    std::ops::ControlFlow::Continue(())
                });
                // `blocks` lists data and metadata together.
                blocks.extend(nodes);
                let output =
                    run("debugfs", &["-R", &format!("blocks /{path}"), image.name()]).stdout;
                let mut expected: Vec<u64> = String::from_utf8(output)
                    .unwrap()
                    .split_whitespace()
                    .map(|block| block.parse().unwrap())
                    .collect();
                blocks.sort_unstable();
                expected.sort_unstable();
                assert_eq!(blocks, expected, "{mke2fs} {path}");
            }
        });
    }
}

#[test]
fn journal_devices_and_unknown_features_are_refused_by_name() {
    if !can_run(
        "journal_devices_and_unknown_features_are_refused_by_name",
        &["mke2fs", "debugfs"],
    ) {
        return;
    }
    let refused = |image: &Image| match Ext4::open(image.source()) {
        Err(Ext4Error::Unsupported {
            incompat_bits,
            names,
        }) => (incompat_bits, names),
        other => panic!("{:?}", other.map(|_| ())),
    };
    let device = Image::make(16, "-O journal_dev");
    assert_eq!(refused(&device), (0x8, "journal_dev".to_owned()));
    let image = Image::make(16, "-t ext4 -O ^metadata_csum");
    run(
        "debugfs",
        &[
            "-w",
            "-R",
            "set_super_value feature_incompat 0x800002c2",
            image.name(),
        ],
    );
    assert_eq!(
        refused(&image),
        (0x8000_0000, "incompat_0x80000000".to_owned())
    );
}

#[test]
fn damaged_superblock_is_replaced_by_a_backup() {
    if !can_run("damaged_superblock_is_replaced_by_a_backup", &["mke2fs"]) {
        return;
    }
    use bale_fsimage::ext4::Origin;
    use std::os::unix::fs::FileExt;
    for blocks in ["1024", "2048", "4096"] {
        let image = Image::make(300, &format!("-t ext4 -b {blocks}"));
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&image.path)
            .unwrap();
        let intact = Ext4::open(image.source()).unwrap();
        file.write_all_at(&[0xAA; 8], 1024 + 0x178).unwrap();
        let fs = Ext4::open(image.source()).unwrap();
        assert_eq!(fs.origin(), Origin::Backup { group: 1 });
        assert_eq!(fs.superblock().uuid, intact.superblock().uuid);
        assert_eq!(fs.needs_recovery().ok(), Some(false));
        assert!(scan(fs).paths.contains_key(&b"lost+found"[..]));
        // The primary descriptors too: the backup knows where the tables are.
        let descriptors =
            (1024 / blocks.parse::<u64>().unwrap() + 1) * blocks.parse::<u64>().unwrap();
        file.write_all_at(&[0x55; 512], descriptors).unwrap();
        let fs = Ext4::open(image.source()).unwrap();
        assert_eq!(fs.group_problems(), []);
        assert!(scan(fs).paths.contains_key(&b"lost+found"[..]));
    }
}

#[test]
fn verity_files_are_left_to_the_kernel() {
    if !can_run(
        "verity_files_are_left_to_the_kernel",
        &["mke2fs", "debugfs"],
    ) {
        return;
    }
    let tree = tempfile::tempdir().unwrap();
    std::fs::write(tree.path().join("file"), "content").unwrap();
    let image = Image::make(
        16,
        &format!("-t ext4 -O verity -d {}", tree.path().display()),
    );
    run(
        "debugfs",
        &[
            "-w",
            "-R",
            "set_inode_field /file flags 0x180000",
            image.name(),
        ],
    );
    let seen = scan(Ext4::open(image.source()).unwrap());
    assert!(matches!(
        seen.at("file").inode.layout,
        bale_fsimage::Layout::Kernel(_)
    ));
}

#[test]
fn inode_bitmap_tells_files_from_leftovers() {
    if !can_run(
        "inode_bitmap_tells_files_from_leftovers",
        &["mke2fs", "mount"],
    ) {
        return;
    }
    for mke2fs in [
        "-t ext4",
        "-t ext4 -O ^64bit",
        "-t ext2",
        "-t ext4 -b 1024 -O meta_bg,^resize_inode",
    ] {
        let image = Image::make(32, mke2fs);
        {
            let mount = image.mount("noatime");
            (0..50).for_each(|i| std::fs::write(mount.path.join(i.to_string()), "x").unwrap());
            (0..50)
                .step_by(2)
                .for_each(|i| std::fs::remove_file(mount.path.join(i.to_string())).unwrap());
        }
        let seen = scan(Ext4::open(image.source()).unwrap());
        let last = seen.inodes.keys().max().copied().unwrap();
        for number in 11..=last {
            let used = seen.inodes.contains_key(&number);
            assert_eq!(
                seen.fs.inode_is_allocated(number).unwrap(),
                used,
                "{mke2fs} {number}"
            );
        }
        let count = u64::from(seen.fs.superblock().inodes_count);
        assert!(!seen.fs.inode_is_allocated(count).unwrap());
        assert!(
            seen.fs.inode_is_allocated(count + 1).is_err()
                && seen.fs.inode_is_allocated(0).is_err()
        );
    }
}

/// Meta groups keep two backups of their descriptors; with all three copies gone the group is
/// named, and nothing else lost.
#[test]
fn group_without_any_descriptor_is_a_problem_and_not_a_gap() {
    if !can_run(
        "group_without_any_descriptor_is_a_problem_and_not_a_gap",
        &["mke2fs", "debugfs"],
    ) {
        return;
    }
    use std::os::unix::fs::FileExt;
    let image = Image::make(
        64,
        "-t ext4 -b 1024 -O meta_bg,^resize_inode,^flex_bg -N 2048",
    );
    let intact = Ext4::open(image.source()).unwrap();
    assert_eq!(intact.group_problems(), []);
    let bytes = std::fs::read(&image.path).unwrap();
    // All copies of the first group's descriptor: 64 bytes that occur only there.
    let descriptor = bytes[2048..2048 + 64].to_vec();
    let copies: Vec<usize> = (0..bytes.len())
        .step_by(1024)
        .filter(|at| bytes[*at..].starts_with(&descriptor))
        .collect();
    assert!(copies.len() >= 2, "{copies:?}");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .unwrap();
    for (i, at) in copies.iter().enumerate() {
        let fs = Ext4::open(image.source()).unwrap();
        assert_eq!(fs.group_problems(), [], "{i} copies gone");
        assert!(scan(fs).paths.contains_key(&b"lost+found"[..]));
        file.write_all_at(&[0x77; 64], *at as u64).unwrap();
    }
    let fs = Ext4::open(image.source()).unwrap();
    let [problem] = fs.group_problems() else {
        panic!("{:?}", fs.group_problems())
    };
    assert_eq!((problem.group, problem.first_inode), (0, 1));
    assert_eq!(problem.inodes_count, fs.superblock().inodes_per_group);
    assert!(fs.read_inode(2).is_err() && fs.inode_offset(2).is_none());
}

#[test]
fn truncated_image_is_refused() {
    if !can_run("truncated_image_is_refused", &["mke2fs"]) {
        return;
    }
    let image = Image::make(16, "-t ext4");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&image.path)
        .unwrap()
        .set_len(15 << 20)
        .unwrap();
    assert!(matches!(
        Ext4::open(image.source()),
        Err(Ext4Error::Truncated {
            need_bytes: 16_777_216,
            ..
        })
    ));
}
