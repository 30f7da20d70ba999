//! A scan of an image that begins before the repository is open finds what one finds that begins
//! later, and counts only where there is nothing to compare with.

use super::image::Image;
use super::snapshots::{Pair, Taken, settle};
use super::unchanged::{comparing, is_as_known, populated};
use bale_engine::backup::{BackupOptions, EarlyScan, backup_begun};
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Error;
use bale_source::scan::{ScanMode, ScanOptions, Sources};
use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

const FILES: usize = 300;

fn image(test: &str) -> Option<Image> {
    populated(test, |root| {
        for number in 0..FILES {
            let directory = root.join(format!("directory{}", number % 7));
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(format!("file{number}")), number.to_string()).unwrap();
        }
    })
}

/// The cache of all repositories.
fn cache_of(pair: &Pair) -> PathBuf {
    let of_this = pair.scene.repository().cache_dir().unwrap();
    of_this.parent().unwrap().to_owned()
}

/// A backup with a scan that began before, if one did.
fn begun(pair: &Pair, image: &Path) -> (Taken, bool) {
    let (cache, has_begun) = (cache_of(pair), Cell::new(false));
    let taken = pair.take_begun(image, ScanMode::Inode, |sources, scan| {
        let early = EarlyScan::begin(sources, scan, &cache);
        has_begun.set(early.is_some());
        early
    });
    (taken.unwrap(), has_begun.get())
}

#[test]
fn a_scan_that_began_before_finds_the_same_and_the_next_backup_goes_on_from_it() {
    let test = "a_scan_that_began_before_finds_the_same_and_the_next_backup_goes_on_from_it";
    let Some(image) = image(test) else {
        return;
    };
    let (pair, other) = (comparing(), comparing());
    let usual = other.inode_scan(&image.path);
    let (early, has_begun) = begun(&pair, &image.path);
    assert!(has_begun);
    assert_eq!(early.rows.len(), usual.rows.len());
    for (path, row) in &early.rows {
        let usual = &usual.rows[path];
        assert_eq!(
            (row.size, row.mtime, row.mode),
            (usual.size, usual.mtime, usual.mode)
        );
    }
    let said = |taken: &Taken| {
        taken
            .notes
            .iter()
            .filter(|note| note.contains("inode scan of"))
            .count()
    };
    assert_eq!((said(&early), said(&usual)), (1, 1), "{:?}", early.notes);
    assert_eq!(early.outcome.snapshot.counts.files_new, FILES as u64);

    let (second, has_begun) = begun(&pair, &image.path);
    assert!(!has_begun, "there is something to compare with");
    assert!(is_as_known(&second), "{:?}", second.notes);
    fs::write(
        image.mount("noatime").path.join("directory3/file3"),
        "other",
    )
    .unwrap();
    settle(&image.path);
    let (third, has_begun) = begun(&pair, &image.path);
    assert!(!has_begun);
    let counts = &third.outcome.snapshot.counts;
    assert_eq!((counts.files_changed, counts.bytes_read), (1, 5));
    assert!(is_as_known(&begun(&pair, &image.path).0));
}

#[test]
fn where_there_is_a_snapshot_a_scan_that_began_before_is_given_up() {
    let test = "where_there_is_a_snapshot_a_scan_that_began_before_is_given_up";
    let Some(image) = image(test) else {
        return;
    };
    let pair = comparing();
    let first = pair.inode_scan(&image.path);
    fs::remove_dir_all(pair.cache()).unwrap();
    let (second, has_begun) = begun(&pair, &image.path);
    assert!(has_begun, "the cache is lost");
    assert_eq!(
        second.outcome.snapshot.counts.files_unmodified,
        FILES as u64
    );
    assert_eq!(second.outcome.snapshot.counts.bytes_read, 0);
    assert_eq!(first.rows.len(), second.rows.len());
    let is_scan = |note: &&String| note.contains("inode scan of");
    assert_eq!(
        second.notes.iter().filter(is_scan).count(),
        1,
        "{:?}",
        second.notes
    );
    let (third, has_begun) = begun(&pair, &image.path);
    assert!(!has_begun);
    assert!(is_as_known(&third), "{:?}", third.notes);
}

#[test]
fn nothing_but_an_image_is_scanned_before() {
    let Some(image) = image("nothing_but_an_image_is_scanned_before") else {
        return;
    };
    let pair = comparing();
    let scan = |mode| ScanOptions {
        mode,
        spill_directory: std::env::temp_dir(),
        ..ScanOptions::default()
    };
    let cache = cache_of(&pair);
    let is_begun = |path: &Path, mode| {
        let (sources, missing) = Sources::resolve(&[path]).unwrap();
        assert!(missing.is_empty());
        EarlyScan::begin(&sources, &scan(mode), &cache).is_some()
    };
    let directory = image.path.parent().unwrap();
    assert!(is_begun(&image.path, ScanMode::Inode));
    assert!(!is_begun(&image.path, ScanMode::Auto), "a file, then");
    assert!(!is_begun(&image.path, ScanMode::Walk));
    assert!(!is_begun(directory, ScanMode::Inode));
    // What is no file system is an error of the backup, once it asks.
    let none = pair.scene.source().join("none");
    fs::write(&none, "no file system").unwrap();
    let taken = pair.take_begun(&none, ScanMode::Inode, |sources, scan| {
        Some(EarlyScan::begin(sources, scan, &cache).expect("it is a file"))
    });
    let error = taken.map(drop).unwrap_err().to_string();
    assert!(error.contains("read the file system in"), "{error}");
}

#[test]
fn a_backup_whose_scan_began_before_can_be_interrupted() {
    let Some(image) = image("a_backup_whose_scan_began_before_can_be_interrupted") else {
        return;
    };
    let pair = comparing();
    let (sources, _) = Sources::resolve(&[&image.path.canonicalize().unwrap()]).unwrap();
    let scan = ScanOptions {
        mode: ScanMode::Inode,
        spill_directory: std::env::temp_dir(),
        ..ScanOptions::default()
    };
    let early = EarlyScan::begin(&sources, &scan, &cache_of(&pair));
    let monitor = Recorder::default();
    monitor.interrupt.store(true, Ordering::Relaxed);
    let begun = (&sources, Some(early.expect("begun")));
    let options = BackupOptions::default();
    let done = backup_begun(&pair.scene.repository(), begun, scan, &options, &monitor);
    assert!(matches!(done, Err(Error::Interrupted)), "{done:?}");
}
