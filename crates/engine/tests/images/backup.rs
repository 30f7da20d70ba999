//! What is stored of an image, and of one that was backed up before.

use crate::bench::{BLOCK, Images, NAME, allocated};
use bale_engine::backup::BackupOptions;
use bale_format::Kind;
use bale_format::snapshot::ImageState;
use bale_pipeline::monitor::Recorder;
use bale_pipeline::random::{Random, SeededRandom};
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_testkit::scene::noise;
use std::time::Duration;

#[test]
fn an_image_comes_back_byte_for_byte_whatever_its_length_and_its_holes() {
    let mut with_holes = vec![0; 9 * BLOCK as usize + 77];
    with_holes[3 * BLOCK as usize + 100..][..9000].copy_from_slice(&noise(1, 9000));
    with_holes[9 * BLOCK as usize..].copy_from_slice(&noise(2, 77));
    let cases = [
        Vec::new(),
        vec![7],
        vec![0],
        noise(3, 511),
        noise(4, BLOCK as usize),
        noise(5, BLOCK as usize + 1),
        noise(6, 3 * BLOCK as usize - 4096),
        vec![0; 2 * BLOCK as usize + 5],
        with_holes,
    ];
    for bytes in cases {
        let mut images = Images::of(&bytes);
        let outcome = images.keep();
        let row = &outcome.snapshot.images[0];
        assert_eq!(row.how, ImageState::Still, "{} bytes", bytes.len());
        assert_eq!(outcome.snapshot.totals.bytes, bytes.len() as u64);
        images.assert_whole();
    }
}

#[test]
fn holes_are_not_read_and_zeros_are_not_stored_and_a_restored_file_has_both_as_holes() {
    let images = Images::of(b"");
    images.set_len(64 * BLOCK);
    images.write_at(5 * BLOCK, &noise(1, 4096));
    images.write_at(9 * BLOCK, &vec![0; 3 * BLOCK as usize]);
    images.write_at(40 * BLOCK - 1, b"ab");
    let outcome = images.backup();
    let counts = outcome.snapshot.counts;
    // Four blocks hold data, three of them nothing but zeros; of two a byte each.
    assert!(counts.bytes_read <= 7 * BLOCK, "{counts:?}");
    let starts: Vec<u64> = images.extents(&outcome).iter().map(|of| of.start).collect();
    assert_eq!(starts, [5 * BLOCK, 39 * BLOCK, 40 * BLOCK]);
    images.assert_restores(
        &images.scene.repository(),
        outcome.id.unwrap(),
        &images.bytes(),
    );
    assert!(allocated(&images.path("restored.raw")) <= 64 << 10);
}

#[test]
fn a_second_backup_stores_the_blocks_that_changed_and_keeps_the_rows_of_all_others() {
    let mut images = Images::of(&noise(1, 48 * BLOCK as usize));
    let first = images.keep();
    let before = images.extents(&first);
    images.write_at(7 * BLOCK + 5000, b"some bytes that are others now");
    images.write_at(20 * BLOCK, &vec![0; BLOCK as usize]);
    let second = images.keep();
    let after = images.extents(&second);
    assert_eq!(second.snapshot.parent, first.id);
    let stored = second.snapshot.counts.bytes_stored;
    assert!(stored < 64 << 10, "{stored}");
    let changed = before.iter().filter(|extent| !after.contains(extent));
    let changed: Vec<u64> = changed.map(|extent| extent.start / BLOCK).collect();
    assert_eq!(changed, [7, 20]);
    // Of the one that changed there is what is in front, what is new, and what is behind.
    assert_eq!(after.len(), 49);
    // The new layer is as long as what changed: the image, these, and a block that is gone.
    let layers = &second.snapshot.layers;
    assert_eq!(layers.len(), 2, "{layers:?}");
    assert_eq!(layers[0], first.snapshot.layers[0]);
    assert!(layers[1].rows <= 5, "{layers:?}");
    images.assert_whole();
}

#[test]
fn an_image_that_did_not_change_is_read_and_nothing_is_stored_of_it() {
    let mut images = Images::of(&noise(1, 6 * BLOCK as usize));
    images.keep();
    let options = BackupOptions {
        skip_if_unchanged: true,
        ..BackupOptions::default()
    };
    let repository = images.scene.repository();
    let mut sources = [images.source(NAME)];
    let monitor = Recorder::default();
    let again = images.backup_into(&repository, &mut sources, &options, &monitor);
    let again = again.unwrap();
    assert_eq!(again.id, None);
    assert_eq!(again.snapshot.counts.files_unmodified, 1);
    assert_eq!(again.snapshot.counts.bytes_read, 6 * BLOCK);
}

#[test]
fn several_images_are_in_one_snapshot_and_share_their_blocks() {
    let images = Images::of(&noise(1, 3 * BLOCK as usize));
    images.write("a.raw", &noise(1, 3 * BLOCK as usize));
    images.write("z.raw", &noise(2, 100));
    let repository = images.scene.repository();
    let names = ["z.raw", NAME, "a.raw"];
    let mut sources = names.map(|name| images.source(name));
    let (options, monitor) = (BackupOptions::default(), Recorder::default());
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let outcome = outcome.unwrap();
    assert_eq!(outcome.snapshot.totals.files, 3);
    let stored = outcome.snapshot.counts.bytes_stored;
    assert!(stored < 3 * BLOCK + (256 << 10), "{stored}");
    let source = images.scene.repository().segment_source();
    let catalog = CatalogReader::open(source, outcome.snapshot.layers.clone()).unwrap();
    // What lists sees three files.
    let rows: Vec<_> = catalog.rows(KeyRange::all()).map(Result::unwrap).collect();
    assert!(
        rows.iter()
            .all(|row| row.kind == Kind::File && row.is_image())
    );
    let listed: Vec<_> = rows.iter().map(|row| row.name.clone()).collect();
    assert_eq!(listed, ["a.raw", NAME, "z.raw"]);
    let twice = [NAME, NAME].map(|name| images.source(name));
    let mut twice = twice;
    let refused = images.backup_into(&repository, &mut twice, &options, &monitor);
    assert!(refused.unwrap_err().to_string().contains("one by one"));
}

/// Random writes, zeros and lengths, six times; then snapshots go one after the other.
#[test]
fn after_random_changes_any_snapshot_can_go_and_all_others_restore() {
    let mut images = Images::of(&noise(1, 12 * BLOCK as usize + 333));
    let random = SeededRandom::new(42);
    let draw = |below: u64| {
        let mut bytes = [0; 8];
        random.fill(&mut bytes).unwrap();
        u64::from_le_bytes(bytes) % below
    };
    images.keep();
    for round in 0..6 {
        for _ in 0..1 + draw(5) {
            let len = images.bytes().len() as u64;
            let (at, bytes) = (draw(len), 1 + draw(3 * BLOCK) as usize);
            let content = match draw(3) {
                0 => vec![0; bytes],
                _ => noise(draw(1000), bytes),
            };
            images.write_at(at, &content);
        }
        match round % 3 {
            1 => images.set_len(images.bytes().len() as u64 / 2 + draw(BLOCK)),
            2 => images.set_len(images.bytes().len() as u64 + draw(4 * BLOCK)),
            _ => {}
        }
        images.keep();
    }
    images.assert_whole();
    while images.kept.len() > 1 {
        let victim = images
            .kept
            .remove(draw(images.kept.len() as u64) as usize)
            .0;
        images.scene.repository().forget_snapshot(victim).unwrap();
        let pruned = images
            .scene
            .prune(&images.scene.repository(), Duration::ZERO);
        pruned.unwrap();
        images.assert_whole();
    }
    // What is left is compared with like any other.
    images.write_at(17, b"again");
    images.keep();
    images.assert_whole();
}

/// As a template and its copies, or a block that was moved.
#[test]
fn a_block_that_stands_elsewhere_already_is_not_stored_again() {
    let mut images = Images::of(&noise(1, 4 * BLOCK as usize));
    images.keep();
    let first = images.bytes()[..BLOCK as usize].to_vec();
    images.write_at(3 * BLOCK, &first);
    let stored = images.keep().snapshot.counts.bytes_stored;
    assert!(stored < 64 << 10, "{stored}");
    images.assert_whole();
}
