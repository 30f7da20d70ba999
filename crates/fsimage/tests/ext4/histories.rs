//! Random histories of file operations: after each, the reader's view of the device equals the
//! mounted tree.
//!
//! One file system lives through many histories, so that freed blocks and inodes come back in every
//! disguise. The device is read while the file system is mounted, after a freeze-and-thaw barrier,
//! as a live backup does. `BALE_HISTORIES` sets how many per feature set; `BALE_SEED` where the
//! random numbers begin.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};

use bale_fsimage::ext4::Ext4;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags,
    chownat, fallocate, lremovexattr, lsetxattr, makedev, mknodat, utimensat,
};

use crate::compare::assert_same;
use crate::fixture::pattern;
use crate::image::{Image, Mount, can_run};
use crate::scan::scan;

const HISTORIES: u64 = 50;
const STEPS: u64 = 30;
/// Paths alive at once; above, histories delete more than they create.
const PATHS_MAX: usize = 150;
const OPEN_FILES_MAX: usize = 3;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// Small numbers are likely, large ones possible.
    fn skewed(&mut self, max: u64) -> u64 {
        let bits = self.below(max.ilog2() as u64 + 1);
        self.below(1 << bits)
    }
}

struct History {
    random: Random,
    root: PathBuf,
    files: Vec<PathBuf>,
    dirs: Vec<PathBuf>,
    /// Deleted but open: they must not show up.
    held_open: Vec<File>,
    serial: u64,
}

fn histories(test: &str, mke2fs: &str, options: &str) {
    if !can_run(test, &["mke2fs", "mount", "umount", "fsfreeze", "sync"]) {
        return;
    }
    let number = |name: &str, default| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let (count, seed) = (number("BALE_HISTORIES", HISTORIES), number("BALE_SEED", 1));
    let image = Image::make(48, mke2fs);
    let mount = image.mount(options);
    let mut history = History::new(&mount.path);
    for run in seed..seed + count {
        history.random = Random(run.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..STEPS {
            history.step();
        }
        compare_live(&image, &mount, &format!("{mke2fs}: history {run}"));
    }
    drop(history);
    drop(mount);
    assert_same(
        &scan(Ext4::open(image.source()).unwrap()),
        &image.mount("ro,noload").path,
    );
}

fn compare_live(image: &Image, mount: &Mount, which: &str) {
    mount.barrier();
    let seen = scan(Ext4::open(image.source()).unwrap());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        assert_same(&seen, &mount.path)
    }));
    assert!(result.is_ok(), "{which} differs");
}

impl History {
    fn new(root: &Path) -> History {
        History {
            random: Random(1),
            root: root.to_owned(),
            files: Vec::new(),
            dirs: vec![root.to_owned()],
            held_open: Vec::new(),
            serial: 0,
        }
    }

    /// One operation. What the file system refuses (no space, no support) is no concern of the
    /// reader.
    fn step(&mut self) {
        let crowded = self.files.len() + self.dirs.len() > PATHS_MAX;
        match self.random.below(if crowded { 14 } else { 24 }) {
            0 | 1 => self.unlink(),
            2 => self.remove_dir(),
            3 => self.rename(),
            4 => self.truncate(),
            5 | 6 => self.allocate(),
            7 => self.set_xattr(),
            8 => self.remove_xattr(),
            9 => self.set_attributes(),
            10 | 11 => self.overwrite(),
            12 => self.burst_of_names(),
            13 => self.rename_over(),
            14 => self.make_dir(),
            15 => self.make_symlink(),
            16 => self.make_node(),
            17 => self.hard_link(),
            18 => self.fragment(),
            _ => self.create(),
        }
    }

    fn new_path(&mut self) -> PathBuf {
        self.serial += 1;
        let len = self.random.skewed(255) as usize;
        let name = format!("{}{}", self.serial, "n".repeat(len.min(240)));
        let dir = self.random.below(self.dirs.len() as u64) as usize;
        self.dirs[dir].join(name)
    }

    fn any_file(&mut self) -> Option<PathBuf> {
        let index = self.random.below(self.files.len() as u64) as usize;
        self.files.get(index).cloned()
    }

    fn any_path(&mut self) -> PathBuf {
        let index = self
            .random
            .below((self.files.len() + self.dirs.len()) as u64) as usize;
        self.files
            .iter()
            .chain(&self.dirs)
            .nth(index)
            .unwrap_or(&self.root)
            .clone()
    }

    /// A regular file, open for writing.
    fn any_open_file(&mut self) -> Option<File> {
        let path = self.any_file()?;
        let is_file = path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_file());
        is_file
            .then(|| OpenOptions::new().read(true).write(true).open(path).ok())
            .flatten()
    }

    fn create(&mut self) {
        let (path, len) = (self.new_path(), self.random.skewed(400_000) as usize);
        if fs::write(&path, pattern(self.serial, len)).is_ok() || path.exists() {
            self.files.push(path);
        }
    }

    fn overwrite(&mut self) {
        let Some(file) = self.any_open_file() else {
            return;
        };
        let (offset, len) = (
            self.random.skewed(2_000_000),
            self.random.skewed(50_000) as usize,
        );
        let _ = file.write_all_at(&pattern(self.random.next(), len), offset);
    }

    fn fragment(&mut self) {
        let Some(file) = self.any_open_file() else {
            return;
        };
        for i in 0..self.random.below(200) {
            let _ = file.write_all_at(&pattern(i, 600), i * 5000);
        }
    }

    fn truncate(&mut self) {
        let Some(file) = self.any_open_file() else {
            return;
        };
        let _ = file.set_len(self.random.skewed(2_000_000));
    }

    fn allocate(&mut self) {
        let Some(file) = self.any_open_file() else {
            return;
        };
        let keep = FallocateFlags::KEEP_SIZE;
        let modes = [
            FallocateFlags::empty(),
            keep,
            FallocateFlags::PUNCH_HOLE | keep,
            FallocateFlags::ZERO_RANGE,
            FallocateFlags::COLLAPSE_RANGE,
            FallocateFlags::INSERT_RANGE,
        ];
        let mode = modes[self.random.below(modes.len() as u64) as usize];
        let shift = mode == FallocateFlags::COLLAPSE_RANGE || mode == FallocateFlags::INSERT_RANGE;
        // Shifting works on whole clusters only.
        let unit = if shift { 16_384 } else { 1 };
        let (offset, len) = (
            self.random.skewed(1_000_000) / unit * unit,
            self.random.skewed(300_000) / unit * unit,
        );
        let _ = fallocate(&file, mode, offset, len);
    }

    fn unlink(&mut self) {
        if self.files.is_empty() {
            return;
        }
        let index = self.random.below(self.files.len() as u64) as usize;
        let path = self.files.swap_remove(index);
        if self.random.below(4) == 0
            && path
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_file())
        {
            self.held_open.extend(File::open(&path));
            if self.held_open.len() > OPEN_FILES_MAX {
                self.held_open.remove(0);
            }
        }
        let _ = fs::remove_file(path);
    }

    fn remove_dir(&mut self) {
        if self.dirs.len() < 2 {
            return;
        }
        let index = 1 + self.random.below(self.dirs.len() as u64 - 1) as usize;
        let dir = self.dirs.swap_remove(index);
        let _ = fs::remove_dir_all(&dir);
        self.dirs.retain(|other| !other.starts_with(&dir));
        self.files.retain(|file| !file.starts_with(&dir));
    }

    fn rename(&mut self) {
        let Some(from) = self.any_file() else { return };
        let to = self.new_path();
        if fs::rename(&from, &to).is_ok() {
            self.files.retain(|file| *file != from);
            self.files.push(to);
        }
    }

    fn rename_over(&mut self) {
        let (Some(from), Some(to)) = (self.any_file(), self.any_file()) else {
            return;
        };
        // Renaming one hard link over another leaves both.
        let _ = fs::rename(&from, &to);
        self.files
            .retain(|file| *file != from || file.symlink_metadata().is_ok());
    }

    fn make_dir(&mut self) {
        let path = self.new_path();
        if fs::create_dir(&path).is_ok() {
            self.dirs.push(path);
        }
    }

    fn burst_of_names(&mut self) {
        let dir = self.new_path();
        if fs::create_dir(&dir).is_err() {
            return;
        }
        let count = self.random.skewed(400);
        for i in 0..count {
            let _ = File::create(dir.join(format!("burst-{i}-{}", "b".repeat(i as usize % 90))));
        }
        for i in (0..count).filter(|i| i % 3 == 0) {
            let _ = fs::remove_file(dir.join(format!("burst-{i}-{}", "b".repeat(i as usize % 90))));
        }
        self.dirs.push(dir);
    }

    fn make_symlink(&mut self) {
        let (path, len) = (self.new_path(), 1 + self.random.skewed(1000) as usize);
        if symlink("s".repeat(len), &path).is_ok() {
            self.files.push(path);
        }
    }

    fn make_node(&mut self) {
        let path = self.new_path();
        let kinds = [
            FileType::CharacterDevice,
            FileType::BlockDevice,
            FileType::Fifo,
            FileType::Socket,
        ];
        let kind = kinds[self.random.below(4) as usize];
        let device = makedev(
            self.random.skewed(4096) as u32,
            self.random.skewed(1 << 20) as u32,
        );
        if mknodat(CWD, &path, kind, Mode::from_raw_mode(0o600), device).is_ok() {
            self.files.push(path);
        }
    }

    fn hard_link(&mut self) {
        let Some(from) = self.any_file() else { return };
        let to = self.new_path();
        if fs::hard_link(from, &to).is_ok() {
            self.files.push(to);
        }
    }

    fn set_xattr(&mut self) {
        let path = self.any_path();
        let names = [
            "trusted.a",
            "trusted.long-name-of-an-attribute",
            "security.b",
            "user.c",
            "user.d",
        ];
        let name = names[self.random.below(names.len() as u64) as usize];
        let value = pattern(self.random.next(), self.random.skewed(9_000) as usize);
        let _ = lsetxattr(&path, name, &value, XattrFlags::empty());
    }

    fn remove_xattr(&mut self) {
        let path = self.any_path();
        let _ = lremovexattr(&path, "trusted.a");
        let _ = lremovexattr(&path, "user.c");
    }

    fn set_attributes(&mut self) {
        let path = self.any_path();
        let (uid, gid) = (
            Uid::from_raw(self.random.skewed(1 << 31) as u32),
            Gid::from_raw(self.random.below(70_000) as u32),
        );
        let _ = chownat(CWD, &path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW);
        let mode = Mode::from_raw_mode(self.random.below(0o10000) as u32);
        if path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.mode() & 0o170000 != 0o120000)
        {
            let _ = rustix::fs::chmod(&path, mode);
        }
        let mut time = || Timespec {
            tv_sec: self.random.below(1 << 34) as i64 - (1 << 31),
            tv_nsec: self.random.below(1_000_000_000) as i64,
        };
        let times = Timestamps {
            last_access: time(),
            last_modification: time(),
        };
        let _ = utimensat(CWD, &path, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

#[test]
fn histories_on_ext4_as_made_by_default() {
    histories("histories_on_ext4_as_made_by_default", "-t ext4", "noatime");
}

#[test]
fn histories_with_inline_data_and_ea_inodes() {
    let mke2fs = "-t ext4 -O inline_data,ea_inode,orphan_file -b 1024 -N 6000";
    histories(
        "histories_with_inline_data_and_ea_inodes",
        mke2fs,
        "noatime",
    );
}

#[test]
fn histories_with_bigalloc_and_large_inodes() {
    let mke2fs = "-t ext4 -O bigalloc -C 16384 -I 512 -N 4000";
    histories(
        "histories_with_bigalloc_and_large_inodes",
        mke2fs,
        "noatime",
    );
}

#[test]
fn histories_on_ext3_with_block_maps() {
    histories(
        "histories_on_ext3_with_block_maps",
        "-t ext3 -b 1024 -I 128 -N 6000",
        "noatime",
    );
}

#[test]
fn histories_with_meta_bg_and_no_checksums() {
    let mke2fs = "-t ext4 -b 1024 -O meta_bg,^resize_inode,^metadata_csum,^flex_bg -N 6000";
    histories("histories_with_meta_bg_and_no_checksums", mke2fs, "noatime");
}
