//! A tree as a model, written by the ext4 writer and compared with what the kernel shows of it.

pub mod random;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use bale_fsimage::Timestamp;
use bale_fsimage::mkext4::*;

/// Everything the tests vary comes from this generator, so a failure names its seed and happens
/// again.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Directory,
    /// Size, and data by offset; the rest are holes.
    Regular(u64, Vec<(u64, Vec<u8>)>),
    Symlink(Vec<u8>),
    BlockDevice(u32, u32),
    CharDevice(u32, u32),
    Fifo,
    Socket,
    /// A further name of the node at this path.
    Link(Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub permissions: u32,
    pub uid: u32,
    pub gid: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    pub flags: u32,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Node {
    pub fn new(kind: Kind) -> Node {
        let time = |seconds| Timestamp {
            seconds,
            nanos: 123_456_789,
        };
        Node {
            permissions: if kind == Kind::Directory {
                0o755
            } else {
                0o644
            },
            kind,
            uid: 0,
            gid: 0,
            atime: time(1_600_000_001),
            mtime: time(1_600_000_002),
            ctime: time(1_600_000_003),
            flags: 0,
            xattrs: Vec::new(),
        }
    }

    pub fn file(content: &[u8]) -> Node {
        let pieces = if content.is_empty() {
            vec![]
        } else {
            vec![(0, content.to_vec())]
        };
        Node::new(Kind::Regular(content.len() as u64, pieces))
    }

    pub fn link(path: &str) -> Node {
        Node::new(Kind::Link(path.as_bytes().to_vec()))
    }
}

/// Paths to nodes in catalog order; the first name of an inode must come first there.
#[derive(Clone, Debug, Default)]
pub struct Tree(pub BTreeMap<CatalogKey, Node>);

/// Parent components, then name.
pub type CatalogKey = (Vec<Vec<u8>>, Vec<u8>);

impl Tree {
    pub fn put(&mut self, path: &[u8], node: Node) {
        self.0.insert(key(path), node);
    }

    pub fn add(&mut self, path: &str, node: Node) {
        self.put(path.as_bytes(), node);
    }
}

pub fn key(path: &[u8]) -> CatalogKey {
    let mut parts: Vec<Vec<u8>> = path
        .split(|byte| *byte == b'/')
        .map(<[u8]>::to_vec)
        .collect();
    let name = parts.pop().unwrap();
    (parts, name)
}

pub fn path_of(key: &CatalogKey) -> Vec<u8> {
    let mut parts = key.0.clone();
    parts.push(key.1.clone());
    parts.join(&b'/')
}

/// Content of a node.
pub struct Pieces<'a>(pub &'a [(u64, Vec<u8>)]);

impl FileData for Pieces<'_> {
    fn next_data(&mut self, offset: u64, _size: u64) -> Option<Range<u64>> {
        let pieces = self
            .0
            .iter()
            .map(|(start, bytes)| *start..*start + bytes.len() as u64);
        pieces
            .filter(|range| range.end > offset)
            .map(|range| range.start.max(offset)..range.end)
            .next()
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        for (start, bytes) in self.0 {
            let from = offset.max(*start);
            let to = (offset + buf.len() as u64).min(start + bytes.len() as u64);
            if from < to {
                let source = &bytes[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..][..source.len()].copy_from_slice(source);
            }
        }
        Ok(())
    }
}

/// Hands every entry of a tree to `each`, with the path of the first name for links.
pub fn for_each_entry(
    tree: &Tree,
    mut each: impl FnMut(&[u8], Option<&[u8]>, &NewEntry<'_>, &mut dyn FileData),
) {
    let linked: Vec<&Vec<u8>> = tree
        .0
        .values()
        .filter_map(|node| {
            if let Kind::Link(target) = &node.kind {
                Some(target)
            } else {
                None
            }
        })
        .collect();
    let linked: std::collections::HashSet<&Vec<u8>> = linked.into_iter().collect();
    for (key, node) in &tree.0 {
        let parent = key.0.join(&b'/');
        let path = path_of(key);
        let xattrs: Vec<NewXattr<'_>> = node
            .xattrs
            .iter()
            .map(|(name, value)| NewXattr { name, value })
            .collect();
        let (content, pieces, first) = match &node.kind {
            Kind::Directory => (NewKind::Directory, &[][..], None),
            Kind::Regular(size_bytes, pieces) => (
                NewKind::Regular {
                    size_bytes: *size_bytes,
                },
                &pieces[..],
                None,
            ),
            Kind::Symlink(target) => (NewKind::Symlink { target }, &[][..], None),
            Kind::BlockDevice(major, minor) => (
                NewKind::BlockDevice {
                    major: *major,
                    minor: *minor,
                },
                &[][..],
                None,
            ),
            Kind::CharDevice(major, minor) => (
                NewKind::CharDevice {
                    major: *major,
                    minor: *minor,
                },
                &[][..],
                None,
            ),
            Kind::Fifo => (NewKind::Fifo, &[][..], None),
            Kind::Socket => (NewKind::Socket, &[][..], None),
            Kind::Link(first) => (NewKind::Fifo, &[][..], Some(first.as_slice())),
        };
        let entry = NewEntry {
            parent: &parent,
            name: &key.1,
            content,
            permissions: node.permissions,
            uid: node.uid,
            gid: node.gid,
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
            crtime: Some(Timestamp {
                seconds: 1_500_000_000,
                nanos: 5,
            }),
            flags: node.flags,
            project: 0,
            generation: 77,
            xattrs: &xattrs,
            more_links: linked.contains(&path),
        };
        each(&path, first, &entry, &mut Pieces(pieces));
    }
}

pub fn totals(options: &Ext4Options, tree: &Tree) -> TreeTotals {
    let mut counter = TotalsCounter::new(options);
    for_each_entry(tree, |_, first, entry, data| match first {
        Some(_) => counter.add_link(entry.parent, entry.name),
        None => counter.add(entry, data),
    });
    counter.finish()
}

pub fn scratch() -> ScratchMaker {
    Box::new(|| Ok(Box::new(tempfile::tempfile()?)))
}

/// Pushes a whole tree and finishes.
pub fn build<S: BlockSink>(
    options: &Ext4Options,
    tree: &Tree,
    sink: S,
) -> Result<(S, Ext4Summary), MkError> {
    let plan = Plan::new(options.clone(), totals(options, tree))?;
    let mut builder = Ext4Builder::create(plan, sink, scratch())?;
    let mut inodes: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
    let mut outcome = Ok(());
    for_each_entry(tree, |path, first, entry, data| {
        if outcome.is_ok() {
            outcome = match first {
                Some(first) => builder.push_link(entry.parent, entry.name, inodes[first]),
                None => builder.push(entry, data).map(|inode| {
                    inodes.insert(path.to_vec(), inode);
                }),
            };
        }
    });
    outcome?;
    builder.finish()
}

/// A sparse file.
pub struct FileSink(pub File);

impl FileSink {
    pub fn create(path: &Path, len_bytes: u64) -> FileSink {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .unwrap();
        file.set_len(len_bytes).unwrap();
        FileSink(file)
    }
}

impl BlockSink for FileSink {
    fn write_at(&mut self, offset: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        assert!(
            offset.is_multiple_of(1024) && buffer.len().is_multiple_of(1024),
            "writes are whole blocks"
        );
        self.0.write_all_at(&buffer, offset)?;
        Ok(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An image in memory; what is never written takes none.
pub struct Memory(pub Vec<u8>);

impl BlockSink for Memory {
    fn write_at(&mut self, offset: u64, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
        self.0[offset as usize..][..buffer.len()].copy_from_slice(&buffer);
        Ok(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Old bytes of a target that is not zeroed, up to this many.
const GARBAGE_BYTES_MAX: u64 = 12 << 20;

/// Writes a tree to an image file, over garbage where the options do not promise zeros.
pub fn write_image(options: &Ext4Options, tree: &Tree, path: &Path) -> Ext4Summary {
    let plan = Plan::new(options.clone(), totals(options, tree)).unwrap();
    let sink = FileSink::create(path, plan.bytes());
    if !options.target_is_zeroed {
        let garbage: Vec<u8> = (0..1 << 20)
            .map(|byte: u32| (byte % 251) as u8 + 3)
            .collect();
        let mut offset = 0;
        while offset < plan.bytes().min(GARBAGE_BYTES_MAX) {
            let len = (plan.bytes() - offset).min(garbage.len() as u64) as usize;
            sink.0.write_all_at(&garbage[..len], offset).unwrap();
            offset += len as u64;
        }
    }
    build(options, tree, sink).unwrap().1
}

/// A directory for images, with room.
pub fn work_dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// `None`, loudly, where a tool is missing; with `BALE_REQUIRE_ALL_TESTS=1` that is a failure.
pub fn tools_are_here(tools: &[&str]) -> bool {
    for tool in tools {
        let found = Command::new("sh")
            .arg("-c")
            .arg(format!("command -v {tool}"))
            .output()
            .unwrap()
            .status
            .success();
        if !found || !rustix::process_is_root() {
            let text = format!("SKIPPED: needs {tool} and root");
            assert!(
                std::env::var_os("BALE_REQUIRE_ALL_TESTS").is_none_or(|value| value != "1"),
                "{text}"
            );
            eprintln!("{text}");
            return false;
        }
    }
    true
}

mod rustix {
    pub use ::rustix::*;
    pub fn process_is_root() -> bool {
        std::fs::metadata("/proc/self")
            .map(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0)
            .unwrap_or(false)
    }
}

/// `e2fsck -fn` has nothing to say.
pub fn assert_clean(image: &Path) {
    let output = Command::new("e2fsck")
        .arg("-fn")
        .arg(image)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "e2fsck: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Five passes and a summary, nothing between.
    let talk: Vec<&str> = text
        .lines()
        .filter(|line| !line.starts_with("Pass "))
        .collect();
    assert_eq!(talk.len(), 1, "e2fsck: {text}");
}

/// A mounted image, unmounted when it goes.
pub struct Mounted(PathBuf);

impl Mounted {
    pub fn new(image: &Path, at: &Path) -> Mounted {
        Mounted::with(image, at, "loop,ro,noatime")
    }

    pub fn writable(image: &Path, at: &Path) -> Mounted {
        Mounted::with(image, at, "loop")
    }

    fn with(image: &Path, at: &Path, options: &str) -> Mounted {
        fs::create_dir_all(at).unwrap();
        let output = Command::new("mount")
            .args(["-t", "ext4", "-o", options])
            .arg(image)
            .arg(at)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "mount: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Mounted(at.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// What is mounted is the tree, in every field, and nothing else.
pub fn assert_same(tree: &Tree, root: &Path, options: &Ext4Options) {
    let mut names = 0;
    let mut links: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut directories: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for (key, node) in &tree.0 {
        let first = if let Kind::Link(first) = &node.kind {
            first.clone()
        } else {
            path_of(key)
        };
        *links.entry(first).or_default() += 1;
        if node.kind == Kind::Directory {
            *directories.entry(key.0.join(&b'/')).or_default() += 1;
        }
    }
    for (key, node) in &tree.0 {
        let path = path_of(key);
        let at = root.join(OsStr::from_bytes(&path));
        let text = format!("{}", path.escape_ascii());
        let meta = fs::symlink_metadata(&at).unwrap_or_else(|error| panic!("{text}: {error}"));
        names += 1;
        if let Kind::Link(first) = &node.kind {
            let first = fs::symlink_metadata(root.join(OsStr::from_bytes(first))).unwrap();
            assert_eq!(meta.ino(), first.ino(), "{text}");
            continue;
        }
        let subdirectories = directories.get(&path).copied().unwrap_or(0);
        let nlink = match node.kind {
            Kind::Directory if subdirectories + 2 > 65_000 => 1,
            Kind::Directory => subdirectories + 2,
            _ => links[&path],
        };
        assert_eq!(meta.nlink(), nlink, "{text}");
        assert_fields(node, &meta, options, &text);
        assert_content(node, &at, &meta, options, &text);
        assert_xattrs(node, &at, &text);
    }
    assert_eq!(
        names,
        count_names(
            root,
            !tree.0.contains_key(&(vec![], b"lost+found".to_vec()))
        )
    );
}

fn assert_fields(node: &Node, meta: &fs::Metadata, options: &Ext4Options, text: &str) {
    let kind_bits = match node.kind {
        Kind::Directory => 0o040000,
        Kind::Regular(..) => 0o100000,
        Kind::Symlink(_) => 0o120000,
        Kind::BlockDevice(..) => 0o060000,
        Kind::CharDevice(..) => 0o020000,
        Kind::Fifo => 0o010000,
        Kind::Socket => 0o140000,
        Kind::Link(_) => unreachable!(),
    };
    assert_eq!(meta.mode(), kind_bits | node.permissions, "{text}");
    assert_eq!((meta.uid(), meta.gid()), (node.uid, node.gid), "{text}");
    let stored = |time: Timestamp| stored_time(time, options.inode_size);
    assert_eq!(
        (meta.mtime(), meta.mtime_nsec()),
        stored(node.mtime),
        "{text} mtime"
    );
    assert_eq!(
        (meta.atime(), meta.atime_nsec()),
        stored(node.atime),
        "{text} atime"
    );
    assert_eq!(
        (meta.ctime(), meta.ctime_nsec()),
        stored(node.ctime),
        "{text} ctime"
    );
}

/// The nearest time that the inode can say.
pub fn stored_time(time: Timestamp, inode_size: u32) -> (i64, i64) {
    let max = if inode_size == 128 {
        (1 << 31) - 1
    } else {
        0x3_7fff_ffff
    };
    let seconds = time.seconds.clamp(-(1 << 31), max);
    let has_nanos = inode_size > 128 && seconds == time.seconds;
    (seconds, if has_nanos { i64::from(time.nanos) } else { 0 })
}

fn assert_content(node: &Node, at: &Path, meta: &fs::Metadata, options: &Ext4Options, text: &str) {
    match &node.kind {
        Kind::Regular(size, pieces) => {
            assert_eq!(meta.size(), *size, "{text}");
            let file = File::open(at).unwrap();
            let block = u64::from(options.block_size);
            let mut data_blocks = std::collections::BTreeSet::new();
            for (start, bytes) in pieces {
                let mut read = vec![0; bytes.len()];
                file.read_exact_at(&mut read, *start).unwrap();
                assert!(read == *bytes, "{text}: content differs at {start}");
                data_blocks.extend(start / block..(start + bytes.len() as u64).div_ceil(block));
            }
            if *size < 1 << 22 {
                let mut expected = vec![0; *size as usize];
                Pieces(pieces).read_at(0, &mut expected).unwrap();
                assert!(fs::read(at).unwrap() == expected, "{text}: content differs");
            }
            // Attributes and the extent tree take blocks too, but holes do not.
            let used = meta.blocks() * 512 / block;
            let data = data_blocks.len() as u64;
            let attributes: u64 = node
                .xattrs
                .iter()
                .map(|(_, value)| (value.len() as u64).div_ceil(block))
                .sum();
            assert!(
                (data..=data + 2 + data / 80 + attributes).contains(&used),
                "{text}: {used} blocks for {data} of data"
            );
        }
        Kind::Symlink(target) => {
            assert_eq!(
                fs::read_link(at).unwrap().as_os_str().as_bytes(),
                target,
                "{text}"
            );
            assert_eq!(meta.size(), target.len() as u64);
        }
        Kind::BlockDevice(major, minor) | Kind::CharDevice(major, minor) => {
            let rdev = meta.rdev();
            assert_eq!(
                (rustix::fs::major(rdev), rustix::fs::minor(rdev)),
                (*major, *minor),
                "{text}"
            );
        }
        _ => {}
    }
}

fn assert_xattrs(node: &Node, at: &Path, text: &str) {
    let mut list = vec![0u8; 64 << 10];
    let len = rustix::fs::llistxattr(at, &mut list[..]).unwrap();
    let mut found: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for name in list[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0u8; 64 << 10];
        let len = rustix::fs::lgetxattr(at, OsStr::from_bytes(name), &mut value[..]).unwrap();
        found.push((name.to_vec(), value[..len].to_vec()));
    }
    found.sort();
    let mut expected = node.xattrs.clone();
    expected.sort();
    assert_eq!(found, expected, "{text}");
}

fn count_names(root: &Path, without_lost_found: bool) -> usize {
    let mut count = 0;
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            if without_lost_found && entry.path() == root.join("lost+found") {
                continue;
            }
            count += 1;
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
        }
    }
    count
}

/// Writes, checks, mounts and compares.
pub fn assert_round_trip(options: &Ext4Options, tree: &Tree) {
    let dir = work_dir();
    let image = dir.path().join("image");
    write_image(options, tree, &image);
    assert_clean(&image);
    let mounted = Mounted::new(&image, &dir.path().join("mnt"));
    assert_same(tree, mounted.path(), options);
}
