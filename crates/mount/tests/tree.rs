//! The tree without FUSE: snapshots in memory, and every question that a kernel asks.

use bale_format::{
    ChunkId, ChunkKind, ChunkPlace, Content, Entry, EntryFlags, Key, Kind, ObjectId, Piece,
    PieceListBuilder, Snapshot, Time,
};
use bale_mount::{
    ListedNode, NodeAttributes, SnapshotCatalogs, SnapshotStore, SnapshotTree, StoreTrouble,
    TreeError,
};
use bale_pipeline::memory::MemoryPlan;
use bale_repository::catalog::{
    BoxError, CatalogReader, CatalogWriter, CutRule, DecodedSegments, KeptSegments, SegmentSource,
};
use bale_restore::{CatalogRows, CatalogSource, ChunkSource, ChunkTrouble};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

const ROOT: u64 = 1;
/// Segments of a few rows, so that a directory has many.
const RULE: CutRule = CutRule {
    weight_min: 16,
    weight_max: 64,
    one_in: 16,
};

/// Chunks and snapshots in memory.
#[derive(Default)]
struct Memory {
    chunks: Mutex<HashMap<ChunkId, Bytes>>,
    snapshots: Mutex<BTreeMap<ObjectId, Snapshot>>,
    seconds: AtomicI64,
    is_away: AtomicBool,
}

struct Held(Arc<Memory>);

impl Memory {
    fn put(&self, bytes: &[u8]) -> ChunkId {
        let mut chunks = self.chunks.lock().unwrap();
        let mut id = [0; 32];
        id[..8].copy_from_slice(&(chunks.len() as u64).to_le_bytes());
        chunks.insert(ChunkId(id), Bytes::copy_from_slice(bytes));
        ChunkId(id)
    }

    fn get(&self, id: &ChunkId) -> Result<Bytes, ChunkTrouble> {
        let found = self.chunks.lock().unwrap().get(id).cloned();
        found
            .filter(|_| !self.is_away.load(Ordering::Relaxed))
            .ok_or_else(|| "the chunk is gone".into())
    }

    fn add(self: &Arc<Memory>, number: u8, host: &str, changes: &[Change]) {
        let parent = self.snapshots.lock().unwrap().values().last().cloned();
        let parent = match parent {
            Some(parent) => reader(self, &parent),
            None => CatalogReader::empty(),
        };
        let store = |segment: Vec<u8>| Ok::<_, BoxError>(self.put(&segment));
        let mut writer = CatalogWriter::with_rule(parent, store, RULE);
        for change in changes {
            match change {
                Change::Put(row) => writer.put(row).unwrap(),
                Change::Remove(path) => writer.remove(&Key::of_path(path.as_bytes()), 0).unwrap(),
            }
        }
        let layers = writer.finish().unwrap().layers;
        let record = format!(
            r#"{{"version":1,"run":"{:032x}","time":[{number},0],"finished":[{number},0],
            "host":"{host}","user":"root","program":"test","paths":["Lw=="]}}"#,
            number
        );
        let mut snapshot = Snapshot::from_json(record.as_bytes()).unwrap();
        snapshot.layers = layers;
        let id = ObjectId([number; 32]);
        self.snapshots.lock().unwrap().insert(id, snapshot);
    }

    fn tree(self: &Arc<Memory>) -> SnapshotTree {
        self.seconds.fetch_add(1000, Ordering::Relaxed);
        let store = Arc::new(Held(self.clone()));
        SnapshotTree::open(store.clone(), store, &MemoryPlan::USUAL).unwrap()
    }

    fn later(&self) {
        self.seconds.fetch_add(10, Ordering::Relaxed);
    }
}

enum Change {
    Put(Box<Entry>),
    Remove(String),
}

fn reader(memory: &Arc<Memory>, snapshot: &Snapshot) -> CatalogReader {
    let kept = Arc::new(DecodedSegments::new(100_000));
    let source = KeptSegments::new(Arc::new(Held(memory.clone())), &kept);
    CatalogReader::open(Arc::new(source), snapshot.layers.clone()).unwrap()
}

impl SegmentSource for Held {
    fn segment(&self, id: &ChunkId) -> Result<Bytes, BoxError> {
        self.0.get(id)
    }
}

impl ChunkSource for Held {
    fn place(&self, _: &ChunkId) -> Option<ChunkPlace> {
        None
    }

    fn read(&self, id: &ChunkId, _: ChunkKind) -> Result<Bytes, ChunkTrouble> {
        self.0.get(id)
    }
}

impl CatalogSource for Held {
    fn rows(&self, _: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        Err("there are no images".into())
    }

    fn extents(&self, _: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        Err("there are no images".into())
    }

    fn lookup(&self, _: &[u8]) -> Result<Option<Entry>, ChunkTrouble> {
        Err("there are no images".into())
    }
}

impl SnapshotStore for Held {
    fn list(&self) -> Result<Vec<ObjectId>, StoreTrouble> {
        if self.0.is_away.load(Ordering::Relaxed) {
            return Err("the store is away".into());
        }
        let snapshots = self.0.snapshots.lock().unwrap();
        Ok(snapshots.keys().copied().collect())
    }

    fn read(&self, id: &ObjectId) -> Result<Option<Snapshot>, StoreTrouble> {
        Ok(self.0.snapshots.lock().unwrap().get(id).cloned())
    }

    fn open(&self, snapshot: &Snapshot) -> Result<SnapshotCatalogs, StoreTrouble> {
        Ok(SnapshotCatalogs {
            rows: reader(&self.0, snapshot),
            images: Arc::new(Held(self.0.clone())),
        })
    }

    fn now(&self) -> Time {
        Time {
            seconds: self.0.seconds.load(Ordering::Relaxed),
            nanos: 0,
        }
    }
}

fn row(path: &str, kind: Kind) -> Entry {
    let key = Key::of_path(path.as_bytes());
    Entry {
        mode: 0o644,
        ..Entry::new(key.parent, key.name, kind)
    }
}

fn put(row: Entry) -> Change {
    Change::Put(Box::new(row))
}

fn name(number: usize) -> String {
    format!("many/{number:05}")
}

/// Names 0 to 3000 in one directory: some of the first snapshot are gone and some others new in
/// the second one, so that it has two layers.
fn with_layers() -> Arc<Memory> {
    let memory = Arc::new(Memory::default());
    let mut rows = vec![put(row("many", Kind::Directory))];
    let numbers = (0..3000).filter(|number| number % 7 != 3);
    rows.extend(numbers.map(|number| put(row(&name(number), Kind::File))));
    memory.add(1, "web1", &rows);
    let changes = (0..3000).step_by(100).map(|number| match number % 7 {
        3 => put(row(&name(number), Kind::Fifo)),
        _ => Change::Remove(name(number)),
    });
    memory.add(2, "web2", &changes.collect::<Vec<_>>());
    let layers = memory.snapshots.lock().unwrap()[&ObjectId([2; 32])]
        .layers
        .len();
    assert!(layers > 1, "{layers} layers");
    memory
}

fn wanted() -> Vec<String> {
    let is_there = |number: &usize| (number % 7 != 3) != number.is_multiple_of(100);
    let all = (0..3000).filter(is_there);
    all.map(|number| format!("{number:05}")).collect()
}

fn walk(tree: &SnapshotTree, path: &str) -> NodeAttributes {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.fold(tree.attributes(ROOT).unwrap(), |directory, part| {
        let found = tree.lookup(directory.number, part.as_bytes());
        found.unwrap_or_else(|error| panic!("{path}: {part}: {error}"))
    })
}

/// Names and numbers of a directory, so many for each call.
fn list(tree: &SnapshotTree, directory: u64, at_once: usize) -> Vec<(String, u64)> {
    let (mut found, mut cookie) = (Vec::new(), 0);
    loop {
        let mut left = at_once;
        let mut last = None;
        let mut add = |listed: &ListedNode| {
            if left == 0 {
                return false;
            }
            left -= 1;
            last = Some(listed.cookie);
            let name = String::from_utf8(listed.name.to_vec()).unwrap();
            found.push((name, listed.attributes.number));
            true
        };
        tree.list(directory, cookie, &mut add).unwrap();
        match last {
            Some(last) => cookie = last,
            None => return found,
        }
    }
}

fn names(listed: &[(String, u64)]) -> Vec<String> {
    let names = listed.iter().map(|(name, _)| name.clone());
    names.filter(|name| name != "." && name != "..").collect()
}

const SECOND: &str = "snapshots/1970-01-01T00:00:02Z";

#[test]
fn every_name_is_listed_once_however_few_are_taken_at_once() {
    let tree = with_layers().tree();
    let many = walk(&tree, &format!("{SECOND}/many"));
    for at_once in [1, 2, 7, 160, 10_000] {
        let listed = list(&tree, many.number, at_once);
        assert_eq!(names(&listed), wanted(), "{at_once} at once");
        assert_eq!((&listed[0].0[..], &listed[1].0[..]), (".", ".."));
    }
}

#[test]
fn a_number_is_enough_for_a_tree_that_has_never_seen_it() {
    let memory = with_layers();
    let tree = memory.tree();
    let many = walk(&tree, &format!("{SECOND}/many"));
    for (number, (name, _)) in list(&tree, many.number, 100).iter().enumerate().skip(2) {
        let found = tree.lookup(many.number, name.as_bytes()).unwrap();
        let fresh = number.is_multiple_of(500);
        let other = fresh.then(|| memory.tree());
        let again = other.as_ref().unwrap_or(&tree).attributes(found.number);
        assert_eq!(again.unwrap(), found);
    }
    // From the middle on, by one that has listed nothing.
    let mut behind = Vec::new();
    let middle = tree.lookup(many.number, b"01500").unwrap_err();
    assert_eq!(middle, TreeError::NoEntry);
    let middle = tree.lookup(many.number, b"01502").unwrap().number;
    let cookie = (middle & ((1 << 47) - 1)) + 2;
    let mut add = |listed: &ListedNode| {
        behind.push(String::from_utf8(listed.name.to_vec()).unwrap());
        true
    };
    memory.tree().list(many.number, cookie, &mut add).unwrap();
    let rest = wanted().into_iter().filter(|name| &name[..] > "01502");
    assert_eq!(behind, rest.collect::<Vec<_>>());
}

#[test]
fn two_snapshots_share_no_number_and_one_row_has_one() {
    let tree = with_layers().tree();
    let mut seen = std::collections::HashSet::new();
    for number in ["01", "02"] {
        let many = walk(&tree, &format!("snapshots/1970-01-01T00:00:{number}Z/many"));
        for (name, number) in list(&tree, many.number, 1000).into_iter().skip(2) {
            assert!(seen.insert(number), "{name}");
        }
    }
}

#[test]
fn what_is_above_the_snapshots_leads_to_them() {
    let tree = with_layers().tree();
    let target = |path: &str| {
        let link = walk(&tree, path);
        assert_eq!(link.kind, Kind::Symlink, "{path}");
        String::from_utf8(tree.target(link.number).unwrap().to_vec()).unwrap()
    };
    assert_eq!(target("latest"), SECOND);
    assert_eq!(target("ids/01010101"), "../snapshots/1970-01-01T00:00:01Z");
    assert_eq!(target("hosts/web1/latest"), "1970-01-01T00:00:01Z");
    let by_time = target("hosts/web2/1970-01-01T00:00:02Z");
    assert_eq!(by_time, format!("../../{SECOND}"));
    for (directory, wanted) in [
        ("", &["snapshots", "ids", "hosts", "latest"][..]),
        ("hosts", &["web1", "web2"]),
        ("hosts/web1", &["1970-01-01T00:00:01Z", "latest"]),
        ("ids", &["01010101", "02020202"]),
    ] {
        for at_once in [1, 100] {
            let number = walk(&tree, directory).number;
            assert_eq!(names(&list(&tree, number, at_once)), wanted, "{directory}");
        }
    }
    let nothing = tree.lookup(walk(&tree, "hosts/web1").number, b"1970-01-01T00:00:02Z");
    assert_eq!(nothing, Err(TreeError::NoEntry));
}

#[test]
fn snapshots_come_and_go_and_what_cannot_be_looked_at_stays() {
    let memory = with_layers();
    let tree = memory.tree();
    let snapshots = walk(&tree, "snapshots").number;
    let count = || names(&list(&tree, snapshots, 10)).len();
    let first = walk(&tree, "snapshots/1970-01-01T00:00:01Z/many");
    // The kernel keeps a list until this changes, and asks for nothing else before.
    let changed = || tree.attributes(snapshots).unwrap().mtime;
    let at_first = changed();
    assert_eq!(count(), 2);
    memory.add(3, "web1", &[]);
    assert_eq!(count(), 2, "it was looked at a moment ago");
    memory.later();
    let with_three = changed();
    assert!(with_three > at_first);
    assert_eq!(count(), 3);
    memory.is_away.store(true, Ordering::Relaxed);
    memory.later();
    assert_eq!(count(), 3);
    memory.later();
    assert_eq!(count(), 3);
    assert_eq!(tree.take_problems().len(), 1);
    memory.is_away.store(false, Ordering::Relaxed);
    memory.snapshots.lock().unwrap().remove(&ObjectId([1; 32]));
    assert_eq!(changed(), with_three);
    memory.later();
    assert!(changed() > with_three, "though the newest is there yet");
    assert_eq!(count(), 2);
    // Whoever is in it goes on.
    assert_eq!(tree.attributes(first.number).unwrap(), first);
    let gone = tree.lookup(snapshots, b"1970-01-01T00:00:01Z");
    assert_eq!(gone, Err(TreeError::NoEntry));
}

#[test]
fn bytes_are_read_at_any_place_and_what_is_lost_is_named_once() {
    let memory = Arc::new(Memory::default());
    let bundle = memory.put(b"....small file....");
    let (first, lost) = (memory.put(&[7; 5000]), ChunkId([9; 32]));
    let mut list = PieceListBuilder::new();
    let mut store = |plain: &[u8]| Ok::<_, bale_format::FormatError>(memory.put(plain));
    for piece in [
        Piece::whole(5000, first),
        Piece::Hole { bytes: 10_000 },
        Piece::Data {
            bytes: 1000,
            chunk: first,
            start: Some(100),
        },
        Piece::whole(4000, lost),
    ] {
        list.push(piece, &mut store).unwrap();
    }
    let list = list.finish(&mut store).unwrap().list;
    let mut small = row("small", Kind::File);
    (small.size, small.content) = (
        10,
        Content::Bundled {
            chunk: bundle,
            offset: 4,
        },
    );
    let mut large = row("large", Kind::File);
    (large.size, large.content) = (20_000, Content::Pieces { list });
    large.flags.set(EntryFlags::SPARSE);
    memory.add(
        1,
        "web1",
        &[put(large), put(small), put(row("void", Kind::File))],
    );
    let tree = memory.tree();
    let at = |name: &str| walk(&tree, &format!("snapshots/1970-01-01T00:00:01Z/{name}"));
    let small = at("small").number;
    assert_eq!(&tree.read(small, 0..100).unwrap()[..], b"small file");
    assert_eq!(&tree.read(small, 6..8).unwrap()[..], b"fi");
    assert!(tree.read(small, 10..20).unwrap().is_empty());
    assert!(tree.read(at("void").number, 0..9).unwrap().is_empty());
    let large = at("large");
    assert_eq!(large.blocks, 24, "of 10,000 bytes that are stored");
    let read = tree.read(large.number, 4990..15_010).unwrap();
    let wanted = [&[7; 10][..], &[0; 10_000], &[7; 10]].concat();
    assert!(read == wanted);
    for _ in 0..3 {
        let unread = tree.read(large.number, 15_000..20_000);
        assert_eq!(unread, Err(TreeError::Unreadable));
    }
    let problems = tree.take_problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].path.ends_with(b"/large"), "{problems:?}");
    assert_eq!(tree.read(at("").number, 0..1), Err(TreeError::IsDirectory));
}

#[test]
fn numbers_that_were_never_given_are_errors() {
    let tree = with_layers().tree();
    for number in [
        0,
        5,
        77 << 16,
        9 << 48,
        u64::MAX,
        1 << 48 | 1 << 40,
        1 << 47,
    ] {
        assert!(tree.attributes(number).is_err(), "{number:x}");
        assert!(tree.lookup(number, b"x").is_err(), "{number:x}");
        assert!(tree.list(number, 0, &mut |_| true).is_err(), "{number:x}");
        assert!(tree.read(number, 0..1).is_err(), "{number:x}");
        assert!(tree.target(number).is_err(), "{number:x}");
    }
    let many = walk(&tree, &format!("{SECOND}/many"));
    let file = tree.lookup(many.number, b"00001").unwrap().number;
    assert_eq!(tree.lookup(file, b"x"), Err(TreeError::NotDirectory));
    let listed = tree.list(file, 0, &mut |_| true);
    assert_eq!(listed, Err(TreeError::NotDirectory));
    let behind = tree.list(many.number, 1 << 40, &mut |_| true);
    assert_eq!(behind, Err(TreeError::Gone));
}
