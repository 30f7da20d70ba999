//! Memory does not grow with the number of files (RES-01): writing, comparing, reading and planning
//! a catalog.
//!
//! The tests of this file look at the peak of the whole process, so there is one.

use bale_format::{ChunkId, ChunkKind, ChunkPlace, Entry, Kind, Layer};
use bale_pipeline::monitor::{Monitor, Problem};
use bale_repository::catalog::{
    BoxError, CatalogError, CatalogReader, CatalogWriter, KeyRange, ParentCursor, SegmentSource,
};
use bale_restore::ScratchSpace;
use bale_restore::{
    CatalogRows, CatalogSource, ChunkSource, ChunkTrouble, Everything, RestoreOptions, restore,
};
use bytes::Bytes;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

const FILES_IN_DIRECTORY: u64 = 80;
const FEW: u64 = 150_000;
const MANY: u64 = 2_000_000;
/// What the peak may grow by between them: lists of segments, and noise of the allocator. A byte
/// for each file would be 2 MB, a row in memory 400 MB.
const GROWTH_BYTES_MAX: u64 = 32 << 20;

/// Where each chunk is, and where the next one goes.
type Offsets = (HashMap<ChunkId, (u64, usize)>, u64);

/// Segments in a file.
struct OnDisk {
    file: File,
    places: Mutex<Offsets>,
}

impl OnDisk {
    fn store(&self, segment: &[u8]) -> Result<ChunkId, BoxError> {
        let id = ChunkId(*blake3::hash(segment).as_bytes());
        let mut places = self.places.lock().unwrap();
        let at = places.1;
        self.file.write_all_at(segment, at)?;
        places.1 += segment.len() as u64;
        places.0.insert(id, (at, segment.len()));
        Ok(id)
    }
}

impl SegmentSource for OnDisk {
    fn segment(&self, id: &ChunkId) -> Result<Bytes, BoxError> {
        let place = self.places.lock().unwrap().0.get(id).copied();
        let (at, len) = place.ok_or("no such segment")?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes.into())
    }
}

struct Catalog(CatalogReader);

impl CatalogSource for Catalog {
    fn rows(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        Ok(Box::new(self.0.subtree(path)?.map(|row| Ok(row?))))
    }

    fn extents(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        Ok(Box::new(self.0.extents(path).map(|row| Ok(row?))))
    }

    fn lookup(&self, path: &[u8]) -> Result<Option<Entry>, ChunkTrouble> {
        Ok(self.0.lookup(path)?)
    }
}

struct NoChunks;

impl ChunkSource for NoChunks {
    fn place(&self, _: &ChunkId) -> Option<ChunkPlace> {
        None
    }

    fn read(&self, _: &ChunkId, _: ChunkKind) -> Result<Bytes, ChunkTrouble> {
        Err("all files are empty".into())
    }
}

struct Silent;

impl Monitor for Silent {
    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }
}

/// A dense tree: rows in order, made on the way.
fn rows(files: u64) -> impl Iterator<Item = Entry> {
    let directories = files / FILES_IN_DIRECTORY;
    let name = |number: u64| format!("d{number:07}");
    let directory = |parent: &[u8], name: &[u8]| {
        let (parent, name) = (Bytes::copy_from_slice(parent), Bytes::copy_from_slice(name));
        Entry::new(parent, name, Kind::Directory)
    };
    let root = std::iter::once(directory(b"", b""));
    let top = (0..directories).map(move |number| directory(b"", name(number).as_bytes()));
    let below = (0..directories).flat_map(move |number| {
        let parent = Bytes::from(name(number));
        (0..FILES_IN_DIRECTORY).map(move |file| {
            let name = Bytes::from(format!("file-{file:02}"));
            let mut entry = Entry::new(parent.clone(), name, Kind::File);
            entry.inode = number * FILES_IN_DIRECTORY + file;
            entry.ctime.nanos = (entry.inode.wrapping_mul(0x9e37_79b9) % 1_000_000_000) as u32;
            entry.mtime = entry.ctime;
            entry
        })
    });
    root.chain(top).chain(below)
}

fn write(
    store: &Arc<OnDisk>,
    parent: CatalogReader,
    entries: impl Iterator<Item = Entry>,
) -> Vec<Layer> {
    let mut writer = CatalogWriter::new(parent, |segment: Vec<u8>| store.store(&segment));
    entries.for_each(|entry| writer.put(&entry).unwrap());
    writer.finish().unwrap().layers
}

/// A first catalog, a second one in which one file of a thousand changed, a comparison, a whole
/// reading, a restore's plan.
fn everything(files: u64, place: &Path) {
    let store = Arc::new(OnDisk {
        file: File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(place.join(format!("{files}")))
            .unwrap(),
        places: Mutex::default(),
    });
    let layers = write(&store, CatalogReader::empty(), rows(files));
    let parent = CatalogReader::open(store.clone(), layers).unwrap();
    let changed = rows(files)
        .filter(|row| row.inode % 1_000 == 7)
        .map(|mut row| {
            row.size = 0;
            row.mode = 0o600;
            row
        });
    let layers = write(&store, parent.clone(), changed);
    let second = CatalogReader::open(store, layers).unwrap();

    let mut cursor = ParentCursor::open(&parent, KeyRange::all());
    let mut found = 0;
    for row in rows(files) {
        let old = cursor
            .advance_to::<CatalogError>(&row.parent, &row.name, |gone| panic!("{gone:?} is gone"))
            .unwrap();
        found += u64::from(old.is_some());
    }
    assert!(found > files);
    let differences = bale_repository::catalog::diff(&parent, &second);
    assert_eq!(
        differences.inspect(|each| assert!(each.is_ok())).count() as u64,
        files.div_ceil(1_000)
    );

    let options = RestoreOptions {
        dry_run: true,
        force_space: true,
        ..RestoreOptions::new(&Everything)
    };
    let (catalog, scratch) = (Catalog(second), ScratchSpace::new(place.to_owned()));
    let target = place.join("target");
    let report = restore(&catalog, &NoChunks, &scratch, &target, &options, &Silent).unwrap();
    assert_eq!(report.files_written, files);
}

/// Peak of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

#[test]
fn thirteen_times_the_files_need_the_same_memory() {
    let place = tempfile::tempdir().unwrap();
    everything(FEW, place.path());
    let few = peak_bytes();
    everything(MANY, place.path());
    let grown = peak_bytes() - few;
    assert!(
        grown <= GROWTH_BYTES_MAX,
        "{FEW} files: {} MiB; {MANY} files: {} MiB more",
        few >> 20,
        grown >> 20
    );
}
