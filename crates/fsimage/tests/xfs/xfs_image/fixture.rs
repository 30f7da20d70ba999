//! Trees that show every form in which XFS keeps things, large and small.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, IFlags, Mode, Timespec, Timestamps, XattrFlags,
    fallocate, lsetxattr, makedev, mknodat, utimensat,
};

use super::{Random, join, run};

/// What the file system of a fixture can do.
#[derive(Clone, Copy)]
pub struct Abilities {
    pub reflink: bool,
    pub bigtime: bool,
    /// Names in the largest directory.
    pub names: u32,
    /// The first kernel that mounts it.
    pub since_kernel: (u32, u32),
}

/// Fills an empty file system.
pub fn populate(root: &Path, can: Abilities) {
    directories(root, can.names);
    contents(root, can.reflink);
    links(root);
    attributes(root);
    owners_and_times(root, can.bigtime);
    flags(root);
}

fn directories(root: &Path, names: u32) {
    // From inside the inode over a single block to hashes in blocks of their own. The long links
    // take blocks between those of the directory, so that it is scattered over the device.
    for (name, count) in [("short", 3), ("block", 40), ("leaf", 400), ("node", names)] {
        let directory = root.join(name);
        fs::create_dir(&directory).unwrap();
        for index in 0..count {
            let padding = "x".repeat(index as usize * 7 % 200);
            let path = directory.join(format!("{index}{padding}"));
            if count > 400 && index % 4 == 0 {
                symlink("t".repeat(700), path).unwrap();
            } else {
                File::create(path).unwrap();
            }
        }
        for index in (0..count).step_by(5) {
            let padding = "x".repeat(index as usize * 7 % 200);
            fs::remove_file(directory.join(format!("{index}{padding}"))).unwrap();
        }
    }
    let odd = root.join("odd names");
    fs::create_dir(&odd).unwrap();
    for name in [
        &b"\xff\xfe not utf-8"[..],
        b"new\nline",
        b" ",
        b"...",
        b"-",
        b"\x01",
        &[b'L'; 255],
        &[0xe9; 254],
    ] {
        File::create(join(&odd, name)).unwrap();
    }
    let mut deep = root.to_path_buf();
    for level in 0..60 {
        deep.push(format!("level{level}"));
        fs::create_dir(&deep).unwrap();
    }
    // More inodes than fit a first chunk, half of them gone again.
    let gone = root.join("gone");
    fs::create_dir(&gone).unwrap();
    for index in 0..500 {
        fs::write(gone.join(index.to_string()), index.to_string()).unwrap();
    }
    for index in (0..500).filter(|index| index % 64 > 20) {
        fs::remove_file(gone.join(index.to_string())).unwrap();
    }
}

fn contents(root: &Path, reflink: bool) {
    let mut random = Random(1);
    let contents = root.join("contents");
    fs::create_dir(&contents).unwrap();
    for len in [0, 1, 511, 512, 4095, 4096, 4097, 65536, 1_000_003] {
        fs::write(contents.join(format!("{len} bytes")), random.bytes(len)).unwrap();
    }
    let sparse = File::create(contents.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    sparse.write_all_at(b"far away", (1 << 39) + 12345).unwrap();
    let unwritten = File::create(contents.join("unwritten")).unwrap();
    fallocate(&unwritten, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    unwritten
        .write_all_at(&random.bytes(10_000), 300_000)
        .unwrap();
    let beyond = File::create(contents.join("allocated beyond its end")).unwrap();
    fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    beyond.write_all_at(b"little", 0).unwrap();
    // Every second block a hole: more extents than an inode holds, and an extent btree of several
    // levels.
    for (name, extents) in [("some extents", 40), ("many extents", 6000)] {
        let file = File::create(contents.join(name)).unwrap();
        for index in 0..extents {
            file.write_all_at(format!("extent {index}").as_bytes(), index * 2 * 4096)
                .unwrap();
        }
    }
    if reflink {
        let original = contents.join("1000003 bytes");
        let copy = contents.join("reflinked");
        run(
            "cp",
            &[
                "--reflink=always",
                original.to_str().unwrap(),
                copy.to_str().unwrap(),
            ],
        );
        let copy = File::options().write(true).open(copy).unwrap();
        copy.write_all_at(&random.bytes(5000), 500_000).unwrap();
    }
}

fn links(root: &Path) {
    let links = root.join("links");
    fs::create_dir(&links).unwrap();
    for len in [
        1, 20, 59, 60, 100, 335, 336, 337, 400, 848, 900, 967, 968, 1000, 1023,
    ] {
        let target: String = ('a'..='z').cycle().take(len).collect();
        symlink(target, links.join(len.to_string())).unwrap();
    }
    let farm = root.join("farm");
    fs::create_dir(&farm).unwrap();
    fs::write(farm.join("first"), b"one of many").unwrap();
    for index in 0..1000 {
        fs::hard_link(farm.join("first"), farm.join(index.to_string())).unwrap();
    }
    let nodes = root.join("nodes");
    fs::create_dir(&nodes).unwrap();
    let mode = Mode::from_raw_mode(0o640);
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("block", FileType::BlockDevice, makedev(8, 17)),
        ("char", FileType::CharacterDevice, makedev(511, 0x3_ffff)),
        ("whiteout", FileType::CharacterDevice, makedev(0, 0)),
    ] {
        mknodat(CWD, nodes.join(name), kind, mode, device).unwrap();
    }
}

fn attributes(root: &Path) {
    let mut random = Random(2);
    let attributes = root.join("attributes");
    fs::create_dir(&attributes).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty()).unwrap()
    };
    let few = attributes.join("few");
    File::create(&few).unwrap();
    for (name, len) in [
        ("user.a", 0),
        ("user.b", 10),
        ("trusted.c", 30),
        ("security.d", 20),
    ] {
        set(&few, name, &random.bytes(len));
    }
    // One block of names, then a tree of blocks; values beside the names, in one block, in many.
    for (file, count) in [("one block", 20), ("tree", 400)] {
        let path = attributes.join(file);
        File::create(&path).unwrap();
        for index in 0..count {
            let name = format!("user.{index}{}", "n".repeat(index * 3 % 100));
            set(&path, &name, &random.bytes(index * 13 % 300));
        }
    }
    let large = attributes.join("large");
    fs::create_dir(&large).unwrap();
    for (index, len) in [
        255, 256, 1000, 3000, 4040, 4041, 8000, 20_000, 65_535, 65_536,
    ]
    .into_iter()
    .enumerate()
    {
        set(&large, &format!("user.large{index}"), &random.bytes(len));
    }
    // Removed again, so that the fork has holes.
    for index in [2, 5, 7] {
        rustix::fs::lremovexattr(&large, format!("user.large{index}")).unwrap();
    }
    set(&root.join("links/20"), "trusted.on_link", b"value");
    set(&root.join("nodes/fifo"), "trusted.on_fifo", b"value");
    let acl = attributes.join("acl");
    File::create(&acl).unwrap();
    let default = attributes.join("default acl");
    fs::create_dir(&default).unwrap();
    run(
        "setfacl",
        &["-m", "u:1:r,u:70000:rwx,g:5:-,m:rw", acl.to_str().unwrap()],
    );
    run(
        "setfacl",
        &[
            "-m",
            "u:1:r",
            "-m",
            "d:u:2:rw,d:g:3:x",
            default.to_str().unwrap(),
        ],
    );
    File::create(default.join("inherits")).unwrap();
    fs::create_dir(default.join("inherits too")).unwrap();
}

fn owners_and_times(root: &Path, bigtime: bool) {
    let directory = root.join("owners");
    fs::create_dir(&directory).unwrap();
    for (name, uid, gid) in [
        ("65536", 65536, 65537),
        ("high", 4_000_000_000, 3_999_999_999),
    ] {
        let path = directory.join(name);
        File::create(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
    }
    let directory = root.join("times");
    fs::create_dir(&directory).unwrap();
    let latest: i64 = if bigtime {
        16_299_260_424
    } else {
        i64::from(i32::MAX)
    };
    for seconds in [
        0,
        -1,
        i64::from(i32::MIN),
        i64::from(i32::MAX),
        4_294_967_296,
        5_000_000_000,
        latest,
    ] {
        let path = directory.join(seconds.to_string());
        File::create(&path).unwrap();
        let time = Timespec {
            tv_sec: seconds,
            tv_nsec: 999_999_999,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
    }
}

fn flags(root: &Path) {
    let directory = root.join("flags");
    fs::create_dir(&directory).unwrap();
    for (name, flag) in [
        ("immutable", IFlags::IMMUTABLE),
        ("append", IFlags::APPEND),
        ("sync", IFlags::from_bits_retain(8)),
        ("nodump", IFlags::NODUMP),
        ("noatime", IFlags::NOATIME),
    ] {
        let file = File::create(directory.join(name)).unwrap();
        rustix::fs::ioctl_setflags(&file, flag).unwrap();
    }
    let project = directory.join("project");
    fs::create_dir(&project).unwrap();
    run(
        "xfs_io",
        &[
            "-c",
            "chproj 123456",
            "-c",
            "chattr +P",
            project.to_str().unwrap(),
        ],
    );
    File::create(project.join("inherits")).unwrap();
    let hinted = directory.join("hinted");
    File::create(&hinted).unwrap();
    run("xfs_io", &["-c", "extsize 65536", hinted.to_str().unwrap()]);
    fs::write(hinted, b"hinted").unwrap();
}
