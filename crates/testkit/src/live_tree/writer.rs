//! One writer of files, with every way of writing that there is.

use super::Load;
use super::content::{BLOCK_BYTES, FileContent, Stamp};
use super::log::{Log, Manner, States};
use crate::choices::Choices;
use bale_pipeline::random::SeededRandom;
use bale_sys::buffer::AlignedBuffer;
use bale_sys::mapped::store_through_mapping;
use rustix::fs::{FallocateFlags, OFlags, Timespec, Timestamps, fallocate, futimens};
use std::fs::{self, File};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Files grow no longer than this.
const BLOCKS_MAX: u64 = 16;
const BLOCK: u64 = BLOCK_BYTES as u64;

pub(super) fn busy_path(number: u32) -> String {
    format!("busy/{number}")
}

pub(super) fn large_path(number: u32) -> String {
    format!("large/{number}")
}

/// One to eight blocks; every third file ends within one.
pub(super) fn first_len(number: u32) -> u64 {
    let blocks = u64::from(number % 8) + 1;
    match number % 3 {
        0 => blocks * BLOCK - 1000,
        _ => blocks * BLOCK,
    }
}

pub(super) struct Writer<'a> {
    root: &'a Path,
    load: Load,
    number: u32,
    random: SeededRandom,
    states: States,
    version: u32,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        root: &'a Path,
        load: Load,
        number: usize,
        seed: u64,
        states: States,
    ) -> Writer<'a> {
        Writer {
            root,
            load,
            number: number as u32,
            random: SeededRandom::new(seed.wrapping_mul(31).wrapping_add(number as u64)),
            version: 1 + states
                .values()
                .flatten()
                .filter_map(newest)
                .max()
                .unwrap_or(0),
            states,
        }
    }

    pub(super) fn run(&mut self, stop: &AtomicBool, log: &Log) {
        while !stop.load(Ordering::Relaxed) {
            self.version += 1;
            if self.load.large_files > self.number && self.random.pick(40) == 0 {
                self.write_large(log);
            } else if self.load.files > self.number {
                self.write_busy(log);
            }
            let pause = self
                .load
                .pause_max
                .mul_f64(self.random.pick(1000) as f64 / 1000.0);
            if self.random.pick(3) == 0 {
                std::thread::sleep(pause);
            }
        }
    }

    /// A file of this writer: they share none.
    fn pick(&mut self, count: u32) -> u32 {
        let mine = (count - self.number).div_ceil(self.load.writers as u32);
        self.number + self.random.pick(mine as usize) as u32 * self.load.writers as u32
    }

    /// The whole file by a single call.
    fn write_large(&mut self, log: &Log) {
        let number = self.pick(self.load.large_files);
        let path = large_path(number);
        let content = FileContent::whole(2_000_000 + number, self.version, self.load.large_bytes);
        let bytes = content.bytes();
        let file = File::options().write(true).open(self.root.join(&path));
        let file = file.expect("a file of the test's own");
        self.step(log, &path, content, || {
            let written = rustix::io::writev(&file, &[IoSlice::new(&bytes)]);
            assert_eq!(written.expect("room on the device"), bytes.len());
        });
    }

    fn write_busy(&mut self, log: &Log) {
        let number = self.pick(self.load.files);
        let path = busy_path(number);
        let old = self.states[&path].clone().expect("files come back at once");
        let same = FileContent::whole(number, self.version, old.len_bytes());
        let len = (self.random.pick(8) as u64 + 1) * BLOCK - [0, 1000][self.random.pick(2)];
        let other = FileContent::whole(number, self.version, len);
        match self.random.pick(14) {
            0 | 1 => self.overwrite(log, &path, same),
            2 | 3 => self.overwrite_direct(log, &path, same),
            4 | 5 => self.overwrite_mapped(log, &path, same),
            6 => self.rewrite(log, &path, other),
            7 => self.replace(log, &path, other),
            8 => self.recreate(log, &path, other),
            9 => self.append(log, &path, number, &old),
            10 => self.write_block(log, &path, number, &old),
            11 => self.punch(log, &path, &old),
            12 => self.shift(log, &path, &old),
            _ => self.touch(&path),
        }
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    fn open(&self, path: &str) -> File {
        let file = File::options()
            .read(true)
            .write(true)
            .open(self.place(path));
        file.expect("a file of the test's own")
    }

    fn step(&mut self, log: &Log, path: &str, content: FileContent, act: impl FnOnce()) {
        self.step_of(Manner::AtOnce, log, path, content, act);
    }

    fn step_of(
        &mut self,
        manner: Manner,
        log: &Log,
        path: &str,
        content: FileContent,
        act: impl FnOnce(),
    ) {
        log.step(&[(path, Some(content.clone()))], manner, act);
        self.states.insert(path.to_owned(), Some(content));
    }

    fn overwrite(&mut self, log: &Log, path: &str, content: FileContent) {
        let (file, bytes) = (self.open(path), content.bytes());
        self.step(log, path, content, || write_at(&file, &bytes, 0));
    }

    /// Direct writes end on blocks.
    fn overwrite_direct(&mut self, log: &Log, path: &str, content: FileContent) {
        if !content.len_bytes().is_multiple_of(BLOCK) || content.len_bytes() == 0 {
            return self.overwrite(log, path, content);
        }
        let flags = OFlags::DIRECT.bits() as i32;
        let file = File::options()
            .write(true)
            .custom_flags(flags)
            .open(self.place(path));
        let file = file.expect("a file of the test's own");
        let mut bytes = AlignedBuffer::new(content.len_bytes() as usize);
        bytes.copy_from_slice(&content.bytes());
        self.step(log, path, content, || write_at(&file, &bytes, 0));
    }

    fn overwrite_mapped(&mut self, log: &Log, path: &str, content: FileContent) {
        let (file, bytes) = (self.open(path), content.bytes());
        let act = || store_through_mapping(file.as_fd(), &bytes).expect("room on the device");
        self.step_of(Manner::ByBlock, log, path, content, act);
    }

    /// Truncated, then written: two steps, between which it is empty.
    fn rewrite(&mut self, log: &Log, path: &str, content: FileContent) {
        let (file, bytes) = (self.open(path), content.bytes());
        let empty = content.with(0, Vec::clear);
        self.step_of(Manner::Truncation, log, path, empty, || {
            file.set_len(0).expect("a file of ours")
        });
        self.step(log, path, content, || write_at(&file, &bytes, 0));
    }

    /// Another file takes its name.
    fn replace(&mut self, log: &Log, path: &str, content: FileContent) {
        let new_path = format!("{path}.new");
        self.write_new(log, &new_path, content.clone());
        let (from, to) = (self.place(&new_path), self.place(path));
        let changes = [(&new_path[..], None), (path, Some(content.clone()))];
        log.step(&changes, Manner::AtOnce, || {
            fs::rename(from, to).expect("files of ours")
        });
        self.states.insert(path.to_owned(), Some(content));
    }

    /// Removed and made anew, often with the same inode number.
    fn recreate(&mut self, log: &Log, path: &str, content: FileContent) {
        let place = self.place(path);
        log.step(&[(path, None)], Manner::AtOnce, || {
            fs::remove_file(place).expect("a file of ours");
        });
        self.write_new(log, path, content);
    }

    fn write_new(&mut self, log: &Log, path: &str, content: FileContent) {
        let (place, bytes) = (self.place(path), content.bytes());
        let mut file = None;
        self.step(log, path, content.with(0, Vec::clear), || {
            file = Some(File::create_new(place).expect("a new name"));
        });
        let file = file.expect("made just now");
        self.step(log, path, content, || write_at(&file, &bytes, 0));
    }

    fn append(&mut self, log: &Log, path: &str, file_number: u32, old: &FileContent) {
        let len = old.len_bytes();
        if !len.is_multiple_of(BLOCK) || len >= BLOCKS_MAX * BLOCK {
            let content = FileContent::whole(file_number, self.version, BLOCK);
            return self.rewrite(log, path, content);
        }
        let stamp = self.stamp(file_number, old.blocks());
        let content = old.with(len + BLOCK, |stamps| stamps.push(Some(stamp)));
        let (file, bytes) = (self.open(path), content.bytes());
        self.step(log, path, content, || {
            write_at(&file, &bytes[len as usize..], len)
        });
    }

    /// One block in the middle.
    fn write_block(&mut self, log: &Log, path: &str, file_number: u32, old: &FileContent) {
        let whole_blocks = (old.len_bytes() / BLOCK) as usize;
        if whole_blocks == 0 {
            return;
        }
        let at = self.random.pick(whole_blocks);
        let stamp = self.stamp(file_number, at);
        let content = old.with(old.len_bytes(), |stamps| stamps[at] = Some(stamp));
        let (file, bytes) = (self.open(path), content.bytes());
        let part = &bytes[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES];
        let offset = (at * BLOCK_BYTES) as u64;
        self.step(log, path, content.clone(), || write_at(&file, part, offset));
    }

    fn punch(&mut self, log: &Log, path: &str, old: &FileContent) {
        let whole_blocks = (old.len_bytes() / BLOCK) as usize;
        if whole_blocks == 0 {
            return;
        }
        let at = self.random.pick(whole_blocks);
        let content = old.with(old.len_bytes(), |stamps| stamps[at] = None);
        let file = self.open(path);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.step(log, path, content, || {
            fallocate(&file, flags, at as u64 * BLOCK, BLOCK).expect("a hole");
        });
    }

    /// A block is cut out of the file, or let in.
    fn shift(&mut self, log: &Log, path: &str, old: &FileContent) {
        let len = old.len_bytes();
        let blocks = (len / BLOCK) as usize;
        if blocks < 2 {
            return;
        }
        let at = self.random.pick(blocks - 1);
        let offset = at as u64 * BLOCK;
        let (content, flags) = match self.random.pick(2) == 0 || blocks as u64 >= BLOCKS_MAX {
            true => (
                old.with(len - BLOCK, |stamps| {
                    stamps.remove(at);
                }),
                FallocateFlags::COLLAPSE_RANGE,
            ),
            false => (
                old.with(len + BLOCK, |stamps| stamps.insert(at, None)),
                FallocateFlags::INSERT_RANGE,
            ),
        };
        let file = self.open(path);
        self.step(log, path, content, || {
            fallocate(&file, flags, offset, BLOCK).expect("whole blocks");
        });
    }

    /// Changes what is not content; sets an mtime of long ago.
    fn touch(&mut self, path: &str) {
        let file = self.open(path);
        if self.random.pick(2) == 0 {
            let mode = [0o600, 0o644, 0o4755][self.random.pick(3)];
            file.set_permissions(fs::Permissions::from_mode(mode))
                .expect("a file of ours");
            return;
        }
        let time = Timespec {
            tv_sec: 1_000_000_000 + i64::from(self.version),
            tv_nsec: 5,
        };
        let times = Timestamps {
            last_access: time,
            last_modification: time,
        };
        futimens(&file, &times).expect("a file of ours");
    }

    fn stamp(&self, file: u32, block: usize) -> Stamp {
        Stamp {
            file,
            version: self.version,
            block: block as u32,
        }
    }
}

fn newest(content: &FileContent) -> Option<u32> {
    let stamps = (0..content.blocks()).filter_map(|at| content.stamp(at));
    stamps.map(|stamp| stamp.version).max()
}

/// In a single system call.
fn write_at(file: &File, bytes: &[u8], offset: u64) {
    let written = file.write_at(bytes, offset).expect("room on the device");
    assert_eq!(written, bytes.len());
}
