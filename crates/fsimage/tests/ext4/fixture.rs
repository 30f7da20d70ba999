//! A tree with one of everything that a file system can hold and a reader can get wrong.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags,
    chownat, fallocate, lsetxattr, makedev, mknodat, utimensat,
};

use super::image::{run, try_run};

/// Names in the large directory: several blocks of index with any block size.
pub const MANY_NAMES: u32 = 10_500;

/// How much of the expensive parts.
#[derive(Clone, Copy)]
pub struct Scale {
    pub names: u32,
    pub links: u32,
}

pub const FULL: Scale = Scale {
    names: MANY_NAMES,
    links: 65_000,
};
pub const USUAL: Scale = Scale {
    names: MANY_NAMES,
    links: 300,
};

pub fn populate(root: &Path, scale: Scale) {
    names(&root.join("names"), scale);
    contents(&root.join("contents"));
    links(&root.join("links"), scale);
    nodes(&root.join("nodes"));
    owners_and_times(&root.join("stat"));
    xattrs(&root.join("xattrs"));
    flags(&root.join("flags"));
    deleted(&root.join("deleted"));
}

/// Bytes that differ from place to place and from seed to seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn names(dir: &Path, scale: Scale) {
    fs::create_dir_all(dir.join("many")).unwrap();
    for i in 0..scale.names {
        File::create(
            dir.join("many")
                .join(format!("name-{i}-{}", "x".repeat(i as usize % 40))),
        )
        .unwrap();
    }
    // Holes in the blocks, and entries that grew over deleted neighbours.
    for i in (0..scale.names).step_by(7) {
        fs::remove_file(
            dir.join("many")
                .join(format!("name-{i}-{}", "x".repeat(i as usize % 40))),
        )
        .unwrap();
    }
    fs::create_dir(dir.join("long")).unwrap();
    for i in 0..20_u8 {
        fs::write(
            dir.join("long")
                .join((b'a' + i).escape_ascii().to_string().repeat(255)),
            [i],
        )
        .unwrap();
    }
    fs::create_dir(dir.join("bytes")).unwrap();
    for byte in (1..=255_u8).filter(|byte| *byte != b'/' && *byte != b'.') {
        File::create(dir.join("bytes").join(OsStr::from_bytes(&[byte]))).unwrap();
    }
    fs::write(dir.join(OsStr::from_bytes(b"\xFF\xFE not utf-8 \n\t")), "x").unwrap();
    let mut deep = dir.join("deep");
    for i in 0..30 {
        deep.push(format!("level{i}"));
    }
    fs::create_dir_all(deep).unwrap();
    // Directories that fit into an inode, and that just do not.
    for count in [0, 1, 2, 3, 5, 8, 12, 20] {
        let small = dir.join(format!("small{count}"));
        fs::create_dir(&small).unwrap();
        for i in 0..count {
            File::create(small.join(format!("entry{i}"))).unwrap();
        }
    }
}

fn contents(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for len in [
        0, 1, 59, 60, 61, 100, 150, 160, 200, 512, 1023, 1024, 1025, 4095, 4096, 4097, 65_537,
        3_000_000,
    ] {
        fs::write(dir.join(format!("len{len}")), pattern(len as u64, len)).unwrap();
    }
    let sparse = File::create(dir.join("sparse")).unwrap();
    // Direct, indirect, double and triple indirect blocks of a classic map with 1 KiB blocks.
    for offset in [0, 7_000, 20_000, 300_000, 2_000_000, 70_000_000, 90_000_001] {
        sparse.write_all_at(&pattern(offset, 3000), offset).unwrap();
    }
    let huge = File::create(dir.join("huge-sparse")).unwrap();
    huge.set_len(4 << 30).unwrap();
    huge.write_all_at(b"end", (4 << 30) - 3).unwrap();
    File::create(dir.join("only-hole"))
        .unwrap()
        .set_len(1_000_000)
        .unwrap();
    let fragments = File::create(dir.join("fragments")).unwrap();
    for i in 0..1_500_u64 {
        fragments.write_all_at(&pattern(i, 1024), i * 9216).unwrap();
    }
    unwritten(dir);
}

/// Preallocation and holes punched; file systems without extents refuse some of it.
fn unwritten(dir: &Path) {
    let file = File::create(dir.join("preallocated")).unwrap();
    let _ = fallocate(&file, FallocateFlags::empty(), 0, 1_000_000);
    file.write_all_at(&pattern(1, 5000), 200_000).unwrap();
    let file = File::create(dir.join("beyond-end")).unwrap();
    file.write_all_at(&pattern(2, 5000), 0).unwrap();
    let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 500_000);
    let file = File::create(dir.join("empty-preallocated")).unwrap();
    let _ = fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 100_000);
    let file = File::create(dir.join("punched")).unwrap();
    file.write_all_at(&pattern(3, 1_000_000), 0).unwrap();
    for i in 0..20 {
        let _ = fallocate(
            &file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            i * 40_000,
            9_000,
        );
    }
    let file = File::create(dir.join("zeroed")).unwrap();
    file.write_all_at(&pattern(4, 400_000), 0).unwrap();
    let _ = fallocate(&file, FallocateFlags::ZERO_RANGE, 65_536, 131_072);
    let file = File::create(dir.join("collapsed")).unwrap();
    file.write_all_at(&pattern(5, 400_000), 0).unwrap();
    let _ = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 65_536, 131_072);
    let file = File::create(dir.join("truncated")).unwrap();
    file.write_all_at(&pattern(6, 400_000), 0).unwrap();
    file.set_len(123_456).unwrap();
}

fn links(dir: &Path, scale: Scale) {
    fs::create_dir(dir).unwrap();
    fs::write(dir.join("hard"), "shared").unwrap();
    for i in 1..scale.links {
        fs::hard_link(dir.join("hard"), dir.join(format!("hard{i}"))).unwrap();
    }
    for len in [
        1, 10, 58, 59, 60, 61, 100, 150, 170, 500, 1000, 1023, 2000, 4095,
    ] {
        let target = "t".repeat(len);
        // Longer than a block is refused.
        if symlink(&target, dir.join(format!("symlink{len}"))).is_err() {
            assert!(len >= 1023, "symlink of {len} bytes");
        }
    }
    symlink(
        OsStr::from_bytes(b"\xFF/../\x01"),
        dir.join("symlink-bytes"),
    )
    .unwrap();
}

fn nodes(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let mode = Mode::from_raw_mode(0o640);
    let node = |name: &str, kind, major, minor| {
        mknodat(CWD, dir.join(name), kind, mode, makedev(major, minor)).unwrap();
    };
    node("null", FileType::CharacterDevice, 1, 3);
    node("wide-char", FileType::CharacterDevice, 300, 70_000);
    node("disk", FileType::BlockDevice, 8, 255);
    node("wide-disk", FileType::BlockDevice, 4095, 1_048_575);
    node("zero", FileType::BlockDevice, 0, 0);
    node("fifo", FileType::Fifo, 0, 0);
    node("socket", FileType::Socket, 0, 0);
    lsetxattr(dir.join("null"), "trusted.node", b"n", XattrFlags::empty()).unwrap();
}

fn owners_and_times(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for (i, (uid, gid)) in [
        (0, 0),
        (65_535, 65_536),
        (100_000, 70_000),
        (4_294_967_294, 4_000_000_000),
    ]
    .iter()
    .enumerate()
    {
        let path = dir.join(format!("owner{i}"));
        fs::write(&path, "x").unwrap();
        chownat(
            CWD,
            &path,
            Some(Uid::from_raw(*uid)),
            Some(Gid::from_raw(*gid)),
            AtFlags::empty(),
        )
        .unwrap();
    }
    for mode in [0o000, 0o777, 0o4755, 0o2755, 0o1777, 0o7777] {
        let path = dir.join(format!("mode{mode:o}"));
        fs::write(&path, "x").unwrap();
        rustix::fs::chmod(&path, Mode::from_raw_mode(mode)).unwrap();
    }
    // 1901, just before and after 1970, 2038 and 2106, the largest time of 34 bits (2446).
    let seconds = [
        -2_147_483_648,
        -1,
        0,
        1,
        2_147_483_647,
        2_147_483_648,
        4_294_967_295,
        4_294_967_296,
        15_032_385_535,
    ];
    for (i, tv_sec) in seconds.into_iter().enumerate() {
        let path = dir.join(format!("time{i}"));
        fs::write(&path, "x").unwrap();
        let times = Timestamps {
            last_access: Timespec {
                tv_sec,
                tv_nsec: 999_999_999,
            },
            last_modification: Timespec {
                tv_sec,
                tv_nsec: i as i64,
            },
        };
        utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
}

fn xattrs(dir: &Path) {
    fs::create_dir(dir).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        lsetxattr(path, name, value, XattrFlags::empty()).is_ok()
    };
    let file = |name: &str| {
        let path = dir.join(name);
        fs::write(&path, name).unwrap();
        path
    };
    assert!(set(&file("small"), "user.a", b"1"));
    assert!(set(&file("empty-value"), "user.empty", b""));
    let several = file("several");
    for i in 0..12 {
        assert!(set(
            &several,
            &format!("user.number{i}"),
            &pattern(i, 5 + 3 * i as usize)
        ));
    }
    assert!(set(&several, "trusted.t", b"\0\xFF") && set(&several, "security.bale", b"s"));
    assert!(set(&file("block"), "user.block", &pattern(1, 700)));
    // Equal attributes share a block.
    for i in 0..5 {
        assert!(set(
            &file(&format!("shared{i}")),
            "user.shared",
            &pattern(2, 600)
        ));
    }
    // Up to 64 KiB with ea_inode, refused without.
    for len in [1500, 3000, 5000, 20_000, 65_536] {
        set(
            &file(&format!("large{len}")),
            "user.large",
            &pattern(3, len),
        );
    }
    let mixed = file("mixed");
    set(&mixed, "user.small", b"x");
    set(&mixed, "user.first", &pattern(4, 10_000));
    set(&mixed, "user.second", &pattern(5, 40_000));
    set(
        &file("long-name"),
        &format!("user.{}", "n".repeat(250)),
        b"v",
    );
    symlink("target", dir.join("link")).unwrap();
    assert!(set(&dir.join("link"), "trusted.link", b"on a symlink"));
    fs::create_dir(dir.join("dir")).unwrap();
    assert!(set(&dir.join("dir"), "user.dir", b"on a directory"));
    acls(dir);
}

fn acls(dir: &Path) {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    fs::write(dir.join("acl"), "x").unwrap();
    run(
        "setfacl",
        &["-m", "u:1000:rwx,g:70000:r,m::rx", &path("acl")],
    );
    fs::create_dir(dir.join("acl-dir")).unwrap();
    run(
        "setfacl",
        &["-m", "u:1:r,d:u:65537:rw,d:g:3:x", &path("acl-dir")],
    );
    fs::write(dir.join("acl-dir/inherits"), "x").unwrap();
    fs::create_dir(dir.join("acl-dir/inherits-too")).unwrap();
}

fn flags(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for letter in ["i", "a", "d", "A", "S", "c", "s", "u", "D", "T", "P", "j"] {
        let path = dir.join(format!("flag-{letter}"));
        match letter {
            "D" | "T" | "P" => fs::create_dir(&path).unwrap(),
            _ => fs::write(&path, letter).unwrap(),
        }
        // Which letters a file system accepts differs; what matters is that both sides say the
        // same.
        try_run("chattr", &[&format!("+{letter}"), path.to_str().unwrap()]);
    }
    let project = dir.join("project");
    fs::write(&project, "x").unwrap();
    try_run("chattr", &["-p", "4242", project.to_str().unwrap()]);
}

/// Inodes and names that are gone, and numbers that were used twice.
fn deleted(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for i in 0..200 {
        fs::write(dir.join(format!("d{i}")), pattern(i, 3000)).unwrap();
    }
    for i in (0..200).filter(|i| i % 3 != 0) {
        fs::remove_file(dir.join(format!("d{i}"))).unwrap();
    }
    for i in 0..40 {
        fs::write(dir.join(format!("again{i}")), "x").unwrap();
    }
    assert!(fs::metadata(dir).unwrap().nlink() > 0);
}
