//! Every path of a file system with all that can be seen of it: once through the kernel, once
//! through the reader.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use bale_fsimage::xfs::{ForkKind, Xfs};
use bale_fsimage::{ByteSource, FileKind, Timestamp};
use rustix::fs::{OFlags, SeekFrom};

/// Content is compared in units of this; units of zeros say nothing, so that holes and zeros are
/// the same.
const UNIT_BYTES: usize = 512;

/// One path.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    pub number: u64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub crtime: Option<Timestamp>,
    pub rdev: (u32, u32),
    /// Flags, where the kernel tells them: files and directories.
    pub flags: Option<u32>,
    pub generation: u32,
    pub project: u32,
    pub xattrs: BTreeMap<String, Vec<u8>>,
    pub target: Option<Vec<u8>>,
    pub content: u32,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let xattrs: Vec<_> = self
            .xattrs
            .iter()
            .map(|(name, value)| (name, value.len(), crc32c::crc32c(value)))
            .collect();
        write!(
            out,
            "inode {} mode {:o} nlink {} owner {}:{} size {} times {:?} {:?} {:?} {:?} rdev {:?} \
             flags {:x?} generation {} project {} target {:?} content {:x} xattrs {xattrs:?}",
            self.number,
            self.mode,
            self.nlink,
            self.uid,
            self.gid,
            self.size,
            self.atime,
            self.mtime,
            self.ctime,
            self.crtime,
            self.rdev,
            self.flags,
            self.generation,
            self.project,
            self.target,
            self.content
        )
    }
}

pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// Fails with the first few differences.
pub fn assert_same(kernel: &Tree, reader: &Tree, context: &str) {
    let mut differences = Vec::new();
    for path in kernel
        .keys()
        .chain(reader.keys().filter(|path| !kernel.contains_key(*path)))
    {
        let (by_kernel, by_reader) = (kernel.get(path), reader.get(path));
        if by_kernel != by_reader {
            differences.push(format!(
                "{}\n  kernel {by_kernel:?}\n  reader {by_reader:?}",
                String::from_utf8_lossy(path)
            ));
        }
    }
    let count = differences.len();
    differences.truncate(5);
    assert!(
        count == 0,
        "{context}: {count} differences\n{}",
        differences.join("\n")
    );
}

/// What the kernel shows of a mounted tree.
pub fn by_kernel(root: &Path) -> Tree {
    let numbers = bulkstat(root);
    let mut tree = Tree::new();
    let mut todo = vec![(root.to_path_buf(), Vec::new())];
    while let Some((path, name)) = todo.pop() {
        let seen = see_path(&path, &numbers);
        if seen.mode & 0o170000 == 0o040000 {
            for entry in std::fs::read_dir(&path).unwrap() {
                let entry = entry.unwrap();
                let mut child = name.clone();
                child.push(b'/');
                child.extend_from_slice(entry.file_name().as_bytes());
                todo.push((entry.path(), child));
            }
        }
        tree.insert(name, seen);
    }
    tree
}

fn see_path(path: &Path, numbers: &HashMap<u64, (u32, u32)>) -> Seen {
    let meta = std::fs::symlink_metadata(path).unwrap();
    let mut seen = Seen {
        number: meta.ino(),
        mode: meta.mode(),
        nlink: meta.nlink() as u32,
        uid: meta.uid(),
        gid: meta.gid(),
        size: meta.size(),
        atime: timestamp(meta.atime(), meta.atime_nsec()),
        mtime: timestamp(meta.mtime(), meta.mtime_nsec()),
        ctime: timestamp(meta.ctime(), meta.ctime_nsec()),
        crtime: meta.created().ok().map(|time| {
            let since = time.duration_since(UNIX_EPOCH).unwrap();
            timestamp(since.as_secs() as i64, i64::from(since.subsec_nanos()))
        }),
        rdev: (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        ),
        flags: None,
        generation: numbers[&meta.ino()].0,
        project: numbers[&meta.ino()].1,
        xattrs: kernel_xattrs(path),
        target: None,
        content: 0,
    };
    match FileKind::from_mode(meta.mode()).unwrap() {
        FileKind::Regular => {
            let file = File::open(path).unwrap();
            seen.flags = Some(rustix::fs::ioctl_getflags(&file).unwrap().bits());
            seen.content = kernel_content(&file, meta.size());
        }
        FileKind::Directory => {
            let directory =
                rustix::fs::open(path, OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap();
            seen.flags = Some(rustix::fs::ioctl_getflags(&directory).unwrap().bits());
        }
        FileKind::Symlink => {
            seen.target = Some(
                std::fs::read_link(path)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            )
        }
        _ => (),
    }
    seen
}

fn timestamp(seconds: i64, nanos: i64) -> Timestamp {
    Timestamp {
        seconds,
        nanos: nanos as u32,
    }
}

/// Generation and project id of every inode.
fn bulkstat(root: &Path) -> HashMap<u64, (u32, u32)> {
    let output = super::run("xfs_io", &["-r", "-c", "bulkstat", root.to_str().unwrap()]);
    let mut found = HashMap::new();
    let mut number = 0;
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let Some((field, value)) = line.trim().split_once(" = ") else {
            continue;
        };
        match field {
            "bs_ino" => {
                number = value.parse().unwrap();
                found.insert(number, (0, 0));
            }
            "bs_gen" => {
                found.get_mut(&number).unwrap().0 =
                    u32::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
            }
            "bs_projectid" => found.get_mut(&number).unwrap().1 = value.parse().unwrap(),
            _ => (),
        }
    }
    found
}

fn kernel_xattrs(path: &Path) -> BTreeMap<String, Vec<u8>> {
    // The list of all names of a file is limited by the kernel to 64 KiB.
    let mut names = vec![0u8; 64 << 10];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut found = BTreeMap::new();
    for name in names[..len]
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
    {
        let name = std::str::from_utf8(name).unwrap();
        if name.starts_with("trusted.SGI_ACL_") {
            continue; // The kernel shows ACLs a second time, raw.
        }
        let mut value = vec![0u8; 64 << 10];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        value.truncate(len);
        found.insert(name.to_owned(), value);
    }
    found
}

fn kernel_content(file: &File, size: u64) -> u32 {
    let mut content = Content::default();
    let mut at = 0;
    while at < size {
        let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) else {
            break;
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap();
        content.add(start, end.min(size), &mut |offset, buffer| {
            file.read_exact_at(offset, buffer).unwrap()
        });
        at = end;
    }
    content.sum
}

/// Sum over all units that are not zero, with their offsets.
#[derive(Default)]
struct Content {
    sum: u32,
    buffer: Vec<u8>,
}

impl Content {
    /// Takes bytes `start..end` of the file; `start` is at a unit.
    fn add(&mut self, start: u64, end: u64, read: &mut dyn FnMut(u64, &mut [u8])) {
        let start = start / UNIT_BYTES as u64 * UNIT_BYTES as u64;
        let mut at = start;
        while at < end {
            let len = (end - at).min(1 << 20) as usize;
            self.buffer.clear();
            self.buffer.resize(len.next_multiple_of(UNIT_BYTES), 0);
            read(at, &mut self.buffer[..len]);
            for (index, unit) in self.buffer.chunks_exact(UNIT_BYTES).enumerate() {
                if unit.iter().any(|&byte| byte != 0) {
                    let offset = at + (index * UNIT_BYTES) as u64;
                    self.sum = crc32c::crc32c_append(self.sum, &offset.to_le_bytes());
                    self.sum = crc32c::crc32c_append(self.sum, unit);
                }
            }
            at += len as u64;
        }
    }
}

/// What the reader finds in an image. Panics at the first error: the images are sound.
pub fn by_reader(source: &dyn ByteSource) -> Tree {
    let xfs = Xfs::open(source).unwrap();
    let mut inodes: HashMap<u64, Seen> = HashMap::new();
    let mut names: HashMap<u64, Vec<(Vec<u8>, u64)>> = HashMap::new();
    let mut bytes = Vec::new();
    for ag in 0..xfs.superblock().ag_count {
        for chunk in xfs.inode_chunks(source, ag).unwrap() {
            let chunk = chunk.unwrap();
            let Some((offset, len)) = chunk.device_range(xfs.superblock().inode_bytes) else {
                continue;
            };
            bytes.resize(len, 0);
            source.read_exact_at(offset, &mut bytes).unwrap();
            for (number, inode) in xfs.chunk_inodes(&chunk, &bytes) {
                let inode = inode.unwrap();
                assert_eq!(inode.number, number);
                if inode.kind == FileKind::Directory {
                    let found = names.entry(number).or_default();
                    xfs.read_dir(source, &inode, &mut |name| {
                        found.push((name.name.to_vec(), name.inode))
                    })
                    .unwrap();
                }
                inodes.insert(number, see_inode(&xfs, source, &inode));
            }
        }
    }
    let mut tree = Tree::new();
    let mut todo = vec![(xfs.superblock().root_inode, Vec::new())];
    while let Some((number, path)) = todo.pop() {
        for (name, child) in names.get(&number).into_iter().flatten() {
            let mut child_path = path.clone();
            child_path.push(b'/');
            child_path.extend_from_slice(name);
            todo.push((*child, child_path));
        }
        tree.insert(path, inodes[&number].clone());
    }
    tree
}

/// One inode as the reader sees it.
pub fn see_inode(
    xfs: &Xfs,
    source: &dyn ByteSource,
    disk: &bale_fsimage::xfs::DiskInode<'_>,
) -> Seen {
    let inode = disk.to_inode();
    let mut seen = Seen {
        number: inode.number,
        mode: inode.mode,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        crtime: inode.crtime,
        rdev: inode.rdev,
        flags: matches!(disk.kind, FileKind::Regular | FileKind::Directory).then_some(inode.flags),
        generation: inode.generation,
        project: inode.project,
        xattrs: BTreeMap::new(),
        target: None,
        content: 0,
    };
    xfs.xattrs(source, disk, &mut |name, value| {
        let name = String::from_utf8(name.to_vec()).unwrap();
        assert!(
            seen.xattrs.insert(name, value.to_vec()).is_none(),
            "an attribute twice"
        );
    })
    .unwrap();
    match disk.kind {
        FileKind::Symlink => {
            let mut target = Vec::new();
            xfs.symlink_target(source, disk, &mut target).unwrap();
            seen.target = Some(target);
        }
        FileKind::Regular => {
            let mut content = Content::default();
            for extent in xfs.extents(source, disk, ForkKind::Data).unwrap() {
                let extent = extent.unwrap();
                if !extent.unwritten {
                    let end = (extent.file_offset + extent.len).min(inode.size);
                    content.add(extent.file_offset, end, &mut |offset, buffer| {
                        source
                            .read_exact_at(
                                extent.device_offset + (offset - extent.file_offset),
                                buffer,
                            )
                            .unwrap();
                    });
                }
            }
            seen.content = content.sum;
        }
        _ => (),
    }
    seen
}
