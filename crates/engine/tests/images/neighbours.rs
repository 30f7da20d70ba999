//! What other operations make of a snapshot with images.

use crate::bench::{BLOCK, Images, NAME};
use bale_engine::backup::BackupOptions;
use bale_engine::copy::{CopyOptions, copy};
use bale_format::snapshot_json::SNAPSHOT_VERSION_IMAGES;
use bale_format::{Kind, Segment};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::{CatalogReader, Difference, KeyRange, diff, export};
use bale_testkit::Scene;
use bale_testkit::scene::noise;

/// Three snapshots.
fn history() -> Images {
    let mut images = Images::of(&noise(1, 9 * BLOCK as usize + 5));
    images.keep();
    images.write_at(4 * BLOCK, b"changed");
    images.keep();
    images.write_at(6 * BLOCK, &vec![0; BLOCK as usize]);
    images.write_at(8 * BLOCK, &noise(2, 50_000));
    images.keep();
    images
}

fn catalog(images: &Images, number: usize) -> CatalogReader {
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, images.kept[number].0);
    CatalogReader::open(repository.segment_source(), snapshot.1.layers).unwrap()
}

#[test]
fn copies_restore_to_the_same_images_and_later_ones_send_what_changed() {
    let mut images = history();
    let other = Scene::new();
    let send = |images: &Images| {
        let (source, target) = (images.scene.repository(), other.repository());
        let snapshots = source.snapshots().unwrap();
        let monitor = Recorder::default();
        let copied = copy(
            &source,
            &target,
            &snapshots,
            &CopyOptions::default(),
            &monitor,
        );
        let copied = copied.unwrap();
        assert!(!copied.is_incomplete(), "{copied:?}");
        let target = other.repository();
        for (id, bytes) in &images.kept {
            let copies = target.snapshots().unwrap();
            let copy = copies.iter().find(|(_, copy)| copy.original == Some(*id));
            let (copy, snapshot) = copy.unwrap();
            assert_eq!(snapshot.version, SNAPSHOT_VERSION_IMAGES);
            assert_eq!(snapshot.images.len(), 1);
            images.assert_restores(&target, *copy, bytes);
        }
        let report = other.check(&other.store).unwrap();
        assert!(report.is_clean(), "{report:?}");
        copied.chunks_read
    };
    assert!(send(&images) >= 11);
    images.write_at(0, b"one block more");
    images.keep();
    // A block, and a segment or two.
    assert!(send(&images) <= 4);
    assert_eq!(send(&images), 0);
}

#[test]
fn no_listing_and_no_look_up_shows_an_extent_and_an_export_has_only_paths() {
    let images = history();
    let catalog = catalog(&images, 2);
    let names = |rows: bale_repository::catalog::Rows| {
        let rows = rows.map(Result::unwrap);
        rows.map(|row| (row.kind, row.path())).collect::<Vec<_>>()
    };
    let only = [(Kind::File, NAME.as_bytes().to_vec())];
    assert_eq!(names(catalog.rows(KeyRange::all())), only);
    assert_eq!(names(catalog.subtree(b"").unwrap()), only);
    assert_eq!(names(catalog.subtree(NAME.as_bytes()).unwrap()), only);
    assert_eq!(names(catalog.list(b"")), only);
    assert_eq!(names(catalog.list(NAME.as_bytes())), []);
    let extent = format!("{NAME}/{:016x}", 4 * BLOCK);
    assert_eq!(catalog.lookup(extent.as_bytes()).unwrap(), None);
    // One is gone, and two are in two parts.
    assert_eq!(catalog.extents(NAME.as_bytes()).count(), 11);
    let directory = images.path("export");
    std::fs::create_dir(&directory).unwrap();
    let exported = export(&catalog, KeyRange::all(), &directory).unwrap();
    assert_eq!((exported.files, exported.rows), (1, 1));
    let file = std::fs::read(directory.join("catalog-000000.parquet")).unwrap();
    assert!(Segment::decode(&file).unwrap().entry(0).is_image());
}

#[test]
fn two_snapshots_differ_in_the_extents_that_changed() {
    let images = history();
    let differences = diff(&catalog(&images, 1), &catalog(&images, 2));
    let differences: Vec<_> = differences.map(Result::unwrap).collect();
    let extents = differences.iter().filter_map(|difference| {
        let row = difference.entry();
        let what = match difference {
            Difference::Added(_) => '+',
            Difference::Removed(_) => '-',
            Difference::Changed { .. } => 'M',
        };
        (row.kind == Kind::Extent).then(|| (what, row.name.clone()))
    });
    let name = |at: u64| bytes::Bytes::from(format!("{at:016x}"));
    // What is new lies in front of what stays of the block.
    let behind = name(8 * BLOCK + 53_248);
    let expected = [
        ('-', name(6 * BLOCK)),
        ('M', name(8 * BLOCK)),
        ('+', behind),
    ];
    assert_eq!(extents.collect::<Vec<_>>(), expected);
}

/// The file that an image is in, backed up as a file, is another source.
#[test]
fn a_backup_of_the_file_that_an_image_is_in_is_compared_with_no_image_and_the_other_way_round() {
    let mut images = Images::new();
    let path = images.scene.source().join(NAME);
    std::fs::write(&path, noise(1, 3 * BLOCK as usize)).unwrap();
    let repository = images.scene.repository();
    let file = images.scene.backup(&repository).unwrap();
    std::fs::write(images.path(NAME), std::fs::read(&path).unwrap()).unwrap();
    let image = images.keep();
    assert_eq!(image.snapshot.parent, None);
    let again = images.scene.backup(&images.scene.repository()).unwrap();
    assert_eq!(again.snapshot.parent, file.id);
    // Asked for, it is: whatever is not of this backup is not in its snapshot.
    let options = BackupOptions {
        parent: file.id,
        ..BackupOptions::default()
    };
    let (mut sources, monitor) = ([images.source(NAME)], Recorder::default());
    let repository = images.scene.repository();
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let outcome = outcome.unwrap();
    let repository = images.scene.repository();
    let catalog =
        CatalogReader::open(repository.segment_source(), outcome.snapshot.layers).unwrap();
    assert_eq!(catalog.rows(KeyRange::all()).count(), 1);
    images.kept.push((outcome.id.unwrap(), images.bytes()));
    images.assert_whole();
}
