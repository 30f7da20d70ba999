//! A snapshot in memory: rows, chunks that count how often they are read, and the check of a
//! restored tree.

use super::encoded::{Piece, encode_leaf, encode_set};
use bale_format::entry::is_below;
use bale_format::{
    ChunkId, ChunkKind, ChunkPlace, Codec, Content, Entry, EntryFlags, Key, Kind, PackEntry,
    PackNumber, Time,
};
use bale_pipeline::monitor::{Act, Monitor, Phase, Problem, Progress};
use bale_restore::ScratchSpace;
use bale_restore::{
    CatalogRows, CatalogSource, ChunkSource, ChunkTrouble, Everything, RestoreError,
    RestoreOptions, RestoreReport, restore, verify, xattrs,
};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes gathered before a chunk is closed.
const BUNDLE_BYTES: usize = 64 << 10;

#[derive(Default)]
pub struct Model {
    pub rows: BTreeMap<Key, Entry>,
    /// Rows that break the order or repeat a key.
    pub extra: Vec<Entry>,
    pub contents: HashMap<Vec<u8>, Vec<u8>>,
    chunks: HashMap<ChunkId, (ChunkPlace, Bytes)>,
    open: Vec<u8>,
    waiting: Vec<Key>,
    pub reads: Mutex<HashMap<ChunkId, u32>>,
    pub broken: Mutex<BTreeSet<ChunkId>>,
    pub lookups: AtomicU64,
    inode: u64,
}

impl Model {
    pub fn new() -> Model {
        let mut model = Model::default();
        model.dir("");
        model
    }

    /// A model whose inode numbers and times are not those of another.
    pub fn numbered(number: u64) -> Model {
        let mut model = Model {
            inode: number * 1000,
            ..Model::default()
        };
        model.dir("");
        model
    }

    fn add(&mut self, path: &[u8], kind: Kind, mode: u32) -> &mut Entry {
        let key = Key::of_path(path);
        let mut entry = Entry::new(key.parent.clone(), key.name.clone(), kind);
        self.inode += 1;
        entry.inode = self.inode;
        entry.mode = mode;
        entry.uid = rustix::process::geteuid().as_raw();
        entry.gid = rustix::process::getegid().as_raw();
        entry.mtime = Time {
            seconds: 1_600_000_000 + self.inode as i64,
            nanos: (self.inode * 7919 % 1_000_000_000) as u32,
        };
        self.rows.insert(key.clone(), entry);
        self.rows.get_mut(&key).unwrap()
    }

    /// Rows point into chunks only when the open one is closed; every check does so.
    pub fn row(&mut self, path: impl AsRef<[u8]>) -> &mut Entry {
        self.rows.get_mut(&Key::of_path(path.as_ref())).unwrap()
    }

    pub fn dir(&mut self, path: impl AsRef<[u8]>) -> &mut Entry {
        self.add(path.as_ref(), Kind::Directory, 0o755)
    }

    pub fn file(&mut self, path: impl AsRef<[u8]>, bytes: &[u8]) -> &mut Entry {
        let path = path.as_ref();
        self.contents.insert(path.to_vec(), bytes.to_vec());
        let offset = self.open.len() as u32;
        let entry = self.add(path, Kind::File, 0o644);
        entry.size = bytes.len() as u64;
        if !bytes.is_empty() {
            entry.content = Content::Bundled {
                chunk: ChunkId::default(),
                offset,
            };
            let key = Key::of_path(path);
            self.open.extend_from_slice(bytes);
            self.waiting.push(key);
            if self.open.len() > BUNDLE_BYTES {
                self.close();
            }
        }
        self.row(path)
    }

    /// A file of pieces: `None` is a hole of that length.
    pub fn large(&mut self, path: impl AsRef<[u8]>, pieces: &[(u64, Option<&[u8]>)]) -> &mut Entry {
        let path = path.as_ref();
        let mut list = Vec::new();
        let mut content = Vec::new();
        for (length, bytes) in pieces {
            match bytes {
                Some(bytes) => {
                    assert_eq!(bytes.len() as u64, *length);
                    list.push((*length, Piece::Data(self.chunk(bytes))));
                    content.extend_from_slice(bytes);
                }
                None => {
                    list.push((*length, Piece::Hole));
                    if *length < 1 << 30 {
                        content.resize(content.len() + *length as usize, 0);
                    }
                }
            }
        }
        let size = pieces.iter().map(|piece| piece.0).sum();
        let list = self.chunk(&encode_leaf(&list));
        if content.len() as u64 == size {
            self.contents.insert(path.to_vec(), content);
        }
        let entry = self.add(path, Kind::File, 0o600);
        entry.size = size;
        entry.content = Content::Pieces { list };
        if pieces.iter().any(|piece| piece.1.is_none()) {
            entry.flags.set(EntryFlags::SPARSE);
        }
        entry
    }

    /// The same content, with a list in which the second of two chunks is two parts and a third
    /// part begins in the middle of the first chunk.
    fn second_chunk_in_parts(&mut self, path: &str, cut: u32) {
        let content = self.contents[path.as_bytes()].clone();
        let chunk_bytes = 300_000;
        let first = self.chunk(&content[..chunk_bytes]);
        let second = self.chunk(&content[chunk_bytes..]);
        let repeated = 1000..41_000;
        let list = encode_leaf(&[
            (chunk_bytes as u64, Piece::Data(first)),
            (cut.into(), Piece::Part(second, 0)),
            (
                (content.len() - chunk_bytes) as u64 - u64::from(cut),
                Piece::Part(second, cut),
            ),
            (
                repeated.len() as u64,
                Piece::Part(first, repeated.start as u32),
            ),
        ]);
        let list = self.chunk(&list);
        let content = [&content[..], &content[repeated]].concat();
        let row = self.row(path);
        row.size = content.len() as u64;
        row.content = Content::Pieces { list };
        self.contents.insert(path.as_bytes().to_vec(), content);
    }

    pub fn symlink(&mut self, path: impl AsRef<[u8]>, target: &[u8]) -> &mut Entry {
        let entry = self.add(path.as_ref(), Kind::Symlink, 0o777);
        entry.target = target[..].into();
        entry.size = target.len() as u64;
        entry
    }

    pub fn special(&mut self, path: impl AsRef<[u8]>, kind: Kind, rdev: u64) -> &mut Entry {
        let entry = self.add(path.as_ref(), kind, 0o640);
        entry.rdev = rdev;
        entry
    }

    /// `path` is one more name of `first`; both get the right number of names at the end.
    pub fn link(&mut self, path: impl AsRef<[u8]>, first: impl AsRef<[u8]>) {
        let (path, first) = (path.as_ref(), first.as_ref());
        self.close();
        let inode = self.row(first).inode;
        let names = self.row(first).nlink + 1;
        let key = Key::of_path(path);
        let mut entry = self.row(first).clone();
        (entry.parent, entry.name) = (key.parent.clone(), key.name.clone());
        self.rows.insert(key, entry);
        if let Some(content) = self.contents.get(first).cloned() {
            self.contents.insert(path.to_vec(), content);
        }
        for row in self.rows.values_mut().filter(|row| row.inode == inode) {
            row.nlink = names;
        }
    }

    pub fn chunk(&mut self, bytes: &[u8]) -> ChunkId {
        let id = ChunkId(*blake3::hash(bytes).as_bytes());
        let number = self.chunks.len() as u64;
        // Packs and offsets that do not follow the order of the rows.
        let place = ChunkPlace {
            pack: PackNumber((number * 7 % 5) as u32),
            chunk: PackEntry {
                id,
                offset: number * 1_000_003 % 4096,
                sealed_bytes: 0,
                plain_bytes: bytes.len() as u32,
                slot: 0,
                kind: ChunkKind::Data,
                codec: Codec::Stored,
            },
        };
        self.chunks
            .entry(id)
            .or_insert((place, Bytes::copy_from_slice(bytes)));
        id
    }

    pub fn close(&mut self) {
        let bytes = std::mem::take(&mut self.open);
        if bytes.is_empty() {
            return;
        }
        let id = self.chunk(&bytes);
        for key in std::mem::take(&mut self.waiting) {
            if let Content::Bundled { chunk, .. } = &mut self.rows.get_mut(&key).unwrap().content {
                *chunk = id;
            }
        }
    }

    pub fn reads_max(&self) -> u32 {
        self.reads
            .lock()
            .unwrap()
            .values()
            .copied()
            .max()
            .unwrap_or(0)
    }

    pub fn break_chunk_of(&mut self, path: &str) {
        self.close();
        let id = match self.row(path).content {
            Content::Bundled { chunk, .. } => chunk,
            Content::Pieces { list } => list,
            Content::None | Content::Image => panic!("no chunk"),
        };
        self.broken.lock().unwrap().insert(id);
    }
}

impl CatalogSource for Model {
    fn rows(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        let below = path.to_vec();
        let rows = self.rows.values().chain(&self.extra).cloned();
        Ok(Box::new(
            rows.filter(move |row| is_below(&row.path(), &below))
                .map(Ok),
        ))
    }

    fn extents(&self, _path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        Ok(Box::new(std::iter::empty()))
    }

    fn lookup(&self, path: &[u8]) -> Result<Option<Entry>, ChunkTrouble> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(self.rows.get(&Key::of_path(path)).cloned())
    }
}

impl ChunkSource for Model {
    fn place(&self, id: &ChunkId) -> Option<ChunkPlace> {
        self.chunks.get(id).map(|(place, _)| *place)
    }

    fn read(&self, id: &ChunkId, kind: ChunkKind) -> Result<Bytes, ChunkTrouble> {
        if kind == ChunkKind::Data {
            *self.reads.lock().unwrap().entry(*id).or_default() += 1;
        }
        if self.broken.lock().unwrap().contains(id) {
            return Err("damaged pack".into());
        }
        match self.chunks.get(id) {
            Some((_, bytes)) => Ok(bytes.clone()),
            None => Err("no such chunk".into()),
        }
    }
}

/// Remembers everything.
#[derive(Default)]
pub struct Watch {
    pub problems: Mutex<Vec<(String, String)>>,
    pub acts: Mutex<BTreeMap<Vec<u8>, Act>>,
    pub sink: Option<fn()>,
}

impl Watch {
    pub fn problems(&self) -> Vec<(String, String)> {
        self.problems.lock().unwrap().clone()
    }
}

impl Monitor for Watch {
    fn progress(&self, _phase: Phase, _progress: Progress) {
        if let Some(sink) = self.sink {
            sink();
        }
    }

    fn problem(&self, problem: &Problem) {
        let path = String::from_utf8_lossy(&problem.path).into_owned();
        let text = format!("{}: {}", problem.action, problem.text);
        self.problems.lock().unwrap().push((path, text));
    }

    fn would(&self, path: &[u8], act: Act) {
        self.acts.lock().unwrap().insert(path.to_vec(), act);
    }
}

/// Where plans are sorted that do not fit in memory.
pub fn space() -> ScratchSpace {
    ScratchSpace::new("/var/tmp")
}

pub fn options() -> RestoreOptions<'static> {
    RestoreOptions::new(&Everything)
}

/// Restores and returns what the monitor saw.
pub fn run(
    model: &Model,
    target: &Path,
    options: &RestoreOptions,
) -> (Result<RestoreReport, RestoreError>, Watch) {
    let watch = Watch::default();
    let result = restore(model, model, &space(), target, options, &watch);
    (result, watch)
}

/// Restores everything without a problem, and the tree is the model's.
pub fn run_exactly(model: &mut Model, target: &Path, options: &RestoreOptions) -> RestoreReport {
    model.close();
    let (report, watch) = run(model, target, options);
    assert_eq!(watch.problems(), []);
    let report = report.unwrap();
    check(model, target);
    verified(model, target);
    report
}

/// The engine's own comparison finds nothing.
pub fn verified(model: &Model, target: &Path) {
    let watch = Watch::default();
    let report = verify(model, model, &space(), target, &options(), &watch).unwrap();
    assert_eq!(watch.problems(), []);
    assert_eq!(report.differences, 0);
}

/// Compares a tree with the model, path by path, with nothing but the standard library.
pub fn check(model: &Model, target: &Path) {
    let mut found = BTreeSet::new();
    list(target, Path::new(""), &mut found);
    let mut wanted = BTreeSet::new();
    let mut first_names: HashMap<u64, u64> = HashMap::new();
    for row in model.rows.values() {
        let path = row.path();
        if !path.is_empty() {
            wanted.insert(path.clone());
        }
        let place = target.join(std::ffi::OsStr::from_bytes(&path));
        check_row(model, row, &path, &place);
        if row.nlink > 1 && row.kind != Kind::Directory {
            let inode = place.symlink_metadata().unwrap().ino();
            assert_eq!(
                *first_names.entry(row.inode).or_insert(inode),
                inode,
                "{place:?}"
            );
        }
    }
    let text = |set: &BTreeSet<Vec<u8>>| {
        set.iter()
            .map(|path| String::from_utf8_lossy(path).into_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(text(&found), text(&wanted));
}

fn check_row(model: &Model, row: &Entry, path: &[u8], place: &Path) {
    let stat = place
        .symlink_metadata()
        .unwrap_or_else(|error| panic!("{place:?}: {error}"));
    let kind = stat.file_type();
    let same_kind = match row.kind {
        Kind::File => kind.is_file(),
        Kind::Directory => kind.is_dir(),
        Kind::Symlink => kind.is_symlink(),
        Kind::BlockDevice => kind.is_block_device(),
        Kind::CharDevice => kind.is_char_device(),
        Kind::Fifo => kind.is_fifo(),
        Kind::Socket => kind.is_socket(),
        Kind::Extent => false,
    };
    assert!(same_kind, "{place:?} is {kind:?}");
    if row.kind != Kind::Symlink {
        assert_eq!(stat.mode() & 0o7777, row.mode, "mode of {place:?}");
    }
    assert_eq!(
        (stat.uid(), stat.gid()),
        (row.uid, row.gid),
        "owner of {place:?}"
    );
    let mtime = (stat.mtime(), stat.mtime_nsec() as u32);
    assert_eq!(
        mtime,
        (row.mtime.seconds, row.mtime.nanos),
        "mtime of {place:?}"
    );
    match row.kind {
        Kind::File => {
            assert_eq!(stat.size(), row.size, "size of {place:?}");
            if let Some(content) = model.contents.get(path) {
                assert!(
                    std::fs::read(place).unwrap() == *content,
                    "content of {place:?}"
                );
            }
        }
        Kind::Symlink => {
            let target = std::fs::read_link(place).unwrap();
            assert_eq!(target.as_os_str().as_bytes(), &row.target[..]);
        }
        Kind::BlockDevice | Kind::CharDevice => {
            let (major, minor) = ((row.rdev >> 32) as u32, row.rdev as u32);
            assert_eq!(stat.rdev(), rustix::fs::makedev(major, minor));
        }
        _ => {}
    }
    if row.kind != Kind::Symlink {
        check_xattrs(model, row, place);
    }
}

fn check_xattrs(model: &Model, row: &Entry, place: &Path) {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(place, &mut names[..]).unwrap_or(0);
    let found: BTreeMap<Vec<u8>, Vec<u8>> = names[..len]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && *name != b"security.selinux")
        .map(|name| {
            let mut value = vec![0; 65536];
            let len = rustix::fs::lgetxattr(place, name, &mut value[..]).unwrap();
            (name.to_vec(), value[..len].to_vec())
        })
        .collect();
    let wanted: BTreeMap<Vec<u8>, Vec<u8>> = xattrs::of_column(&row.xattrs, model)
        .unwrap()
        .into_iter()
        .map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec()))
        .collect();
    assert_eq!(found, wanted, "attributes of {place:?}");
}

fn list(root: &Path, below: &Path, found: &mut BTreeSet<Vec<u8>>) {
    for entry in std::fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let path: PathBuf = below.join(entry.file_name());
        if path == Path::new("lost+found") {
            continue;
        }
        found.insert(path.clone().into_os_string().into_vec());
        if entry.file_type().unwrap().is_dir() {
            list(root, &path, found);
        }
    }
}

/// The `xattrs` column of a small set.
pub fn column(set: &[(&[u8], &[u8])]) -> Bytes {
    let mut column = vec![1];
    column.extend(encode_set(set));
    Bytes::from(column)
}

/// Bytes that differ from place to place.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let mut hasher = blake3::Hasher::new();
    hasher.update(&seed.to_le_bytes());
    hasher.finalize_xof().fill(&mut out);
    out
}

/// Some directories, files of many sizes, links: a tree of everyday life.
pub fn everyday(files: u64) -> Model {
    let mut model = Model::new();
    for number in 0..files {
        let dir = format!("d{}/e{}", number % 7, number % 3);
        if number < 21 {
            model.dir(format!("d{}", number % 7));
            model.dir(&dir);
        }
        let len = (number * 977 % 5000) as usize;
        model.file(format!("{dir}/f{number}"), &noise(number, len));
    }
    model.symlink("d0/link", b"e0/f0");
    model.large(
        "d1/big",
        &[
            (300_000, Some(&noise(1, 300_000))),
            (200_000, Some(&noise(2, 200_000))),
        ],
    );
    model.second_chunk_in_parts("d1/big", 50_000);
    model.link("d2/again", "d1/big");
    model.link("d2/more", "d0/e0/f0");
    model.close();
    model
}

pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Are we root? Says loudly if a test cannot run without.
pub fn root_or_skip(test: &str) -> bool {
    let is_root = bale_testkit::is_root();
    if !is_root {
        skipped(test, "it needs root");
    }
    is_root
}

pub fn skipped(test: &str, why: &str) {
    bale_testkit::skipped(&format!("{test}: {why}"));
}
