//! What is asked for by path is found without reading the rest of the catalog.

use crate::catalog_seam::{Memory, SMALL, change, file, key, open, put};
use bale_engine::restore::Patterns;
use bale_format::{ChunkId, ChunkKind, ChunkPlace, Entry, Kind};
use bale_pipeline::monitor::{Monitor, Problem};
use bale_repository::catalog::CatalogReader;
use bale_restore::ScratchSpace;
use bale_restore::{
    CatalogRows, CatalogSource, ChunkSource, ChunkTrouble, RestoreOptions, RestoreReport, restore,
};
use bytes::Bytes;
use std::path::Path;
use std::sync::Arc;

struct Catalog(CatalogReader);

impl CatalogSource for Catalog {
    fn rows(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        let rows = self.0.subtree(path)?;
        Ok(Box::new(rows.map(|row| Ok(row?))))
    }

    fn extents(&self, path: &[u8]) -> Result<CatalogRows<'_>, ChunkTrouble> {
        Ok(Box::new(self.0.extents(path).map(|row| Ok(row?))))
    }

    fn lookup(&self, path: &[u8]) -> Result<Option<Entry>, ChunkTrouble> {
        Ok(self.0.lookup(path)?)
    }
}

/// All files are empty.
struct NoChunks;

impl ChunkSource for NoChunks {
    fn place(&self, _: &ChunkId) -> Option<ChunkPlace> {
        None
    }

    fn read(&self, _: &ChunkId, _: ChunkKind) -> Result<Bytes, ChunkTrouble> {
        Err("nothing is stored".into())
    }
}

struct Silent;

impl Monitor for Silent {
    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }
}

/// `srv/d000` to `srv/d199` with 40 files each, in more than a hundred segments.
fn catalog() -> (Arc<Memory>, Catalog, usize) {
    let memory = Arc::new(Memory::default());
    let directory = |parent: &[u8], name: &[u8]| {
        Entry::new(
            Bytes::copy_from_slice(parent),
            Bytes::copy_from_slice(name),
            Kind::Directory,
        )
    };
    let mut rows = vec![directory(b"", b""), directory(b"", b"srv")];
    for number in 0..200 {
        let name = format!("d{number:03}");
        rows.push(directory(b"srv", name.as_bytes()));
        let parent = format!("srv/{name}");
        rows.extend((0..40).map(|file_number| {
            let name = format!("file-{file_number:02}");
            file(&key(parent.as_bytes(), name.as_bytes()), 0)
        }));
    }
    let layers = change(&memory, &[], SMALL, &put(rows));
    let segments = layers[0].segments.len();
    let catalog = Catalog(open(&memory, &layers));
    memory.forget();
    (memory, catalog, segments)
}

fn included(catalog: &Catalog, target: &Path, below: &str, patterns: &[&str]) -> RestoreReport {
    let texts: Vec<String> = patterns.iter().map(|text| text.to_string()).collect();
    let patterns = Patterns::new(below.as_bytes(), &texts, &[]).unwrap();
    let options = RestoreOptions {
        below: Bytes::copy_from_slice(below.as_bytes()),
        ..RestoreOptions::new(&patterns)
    };
    let space = ScratchSpace::new("/var/tmp");
    restore(catalog, &NoChunks, &space, target, &options, &Silent).unwrap()
}

#[test]
fn an_exact_include_reads_a_few_segments_however_many_there_are() {
    let (memory, catalog, segments) = catalog();
    assert!(segments > 100, "{segments}");
    let place = tempfile::tempdir().unwrap();
    let report = included(&catalog, place.path(), "", &["/srv/d100/file-07"]);
    let reads = memory.reads();
    assert_eq!((report.files_written, report.directories), (1, 2));
    assert!(place.path().join("srv/d100/file-07").exists());
    assert!(reads <= 6, "{reads} of {segments} segments were read");

    // A directory comes with all that is in it; a path that is not there costs no more.
    let report = included(&catalog, place.path(), "srv", &["/d003", "/d100/none"]);
    assert_eq!(report.files_written, 40);
    assert!(memory.reads() <= 12);
}

#[test]
fn wildcards_read_no_more_than_the_directory_before_them() {
    let (memory, catalog, segments) = catalog();
    let place = tempfile::tempdir().unwrap();
    let report = included(&catalog, place.path(), "", &["/srv/d1[0-9]0/file-0?"]);
    assert_eq!(report.files_written, 100);
    memory.forget();
    let place = tempfile::tempdir().unwrap();
    let patterns = ["/srv/d150/*-3?", "/srv/d150/file-00", "/srv/d150/file-31"];
    let report = included(&catalog, place.path(), "", &patterns);
    let reads = memory.reads();
    assert_eq!((report.files_written, report.kept), (11, 0), "each once");
    assert!(reads <= 8, "{reads} of {segments} segments were read");
}

#[test]
fn a_pattern_without_a_slash_in_front_still_means_any_directory() {
    let (_, catalog, _) = catalog();
    let place = tempfile::tempdir().unwrap();
    let report = included(
        &catalog,
        place.path(),
        "",
        &["/srv/d001/file-01", "file-00"],
    );
    assert_eq!(report.files_written, 201);
}

#[test]
fn the_subtree_of_a_file_is_its_row() {
    let (memory, catalog, _) = catalog();
    let rows: Vec<_> = catalog.0.subtree(b"srv/d007/file-39").unwrap().collect();
    assert_eq!(rows.len(), 1);
    assert_eq!(memory.reads(), 1);
}
