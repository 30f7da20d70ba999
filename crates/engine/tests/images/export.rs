//! Images that are served as they are in the repository.

use crate::bench::{BLOCK, Images, NAME};
use bale_engine::export::{ImageExport, open_images};
use bale_nbd::NbdExport;
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Error;
use bale_repository::repository::Repository;
use bale_repository::store::Area;
use bale_restore::ScratchSpace;
use bale_testkit::scene::noise;
use bale_testkit::{FaultyStore, InjectedFault, RecordingStore, Verb};
use std::sync::Arc;

/// Data, a hole, data that is no whole block, and a hole at the end.
fn scattered() -> Images {
    let mut images = Images::of(&noise(1, 2 * BLOCK as usize + 4096));
    images.set_len(40 * BLOCK + 9);
    images.write_at(7 * BLOCK + 4096, &noise(2, 9000));
    images.write_at(30 * BLOCK, &noise(3, 3 * BLOCK as usize));
    images.keep();
    images
}

fn open(images: &Images, repository: &Arc<Repository>, number: usize) -> Arc<ImageExport> {
    let snapshot = Images::named(repository, images.kept[number].0);
    let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
    let path = NAME.as_bytes();
    let opened = open_images(
        repository,
        &snapshot,
        path,
        None,
        &scratch,
        &Recorder::default(),
    );
    opened.unwrap().0.remove(0)
}

fn read(image: &ImageExport, offset: usize, len: usize) -> Vec<u8> {
    let mut buffer = vec![1; len];
    image.read_at(offset as u64, &mut buffer).unwrap();
    buffer
}

#[test]
fn every_range_of_an_image_is_what_was_backed_up_and_holes_are_holes() {
    let mut images = scattered();
    images.write_at(BLOCK + 77, b"other");
    images.write_at(20 * BLOCK, &noise(4, 100));
    images.keep();
    let repository = images.scene.repository();
    for number in 0..2 {
        let image = open(&images, &repository, number);
        let bytes = &images.kept[number].1;
        assert_eq!(image.len(), bytes.len() as u64);
        let places = [0, 1, 4095, 4096, BLOCK as usize, 2 * BLOCK as usize + 4000];
        let blocks = (0..40).map(|block| block * BLOCK as usize);
        for from in blocks.flat_map(|block| places.map(|place| block + place)) {
            for len in [1, 4096, BLOCK as usize + 5, 5 * BLOCK as usize] {
                let Some(expected) = bytes.get(from..from + len) else {
                    continue;
                };
                assert!(read(&image, from, len) == expected, "{from} {len}");
            }
        }
        // Runs are without gaps, and what is called a hole is zeros.
        let (mut at, mut holes) = (0, 0);
        while at < bytes.len() {
            let run = image.run_at(at as u64).unwrap();
            let end = at + run.bytes as usize;
            assert!(run.bytes > 0 && end <= bytes.len());
            if run.is_hole {
                assert!(bytes[at..end].iter().all(|byte| *byte == 0));
                holes += run.bytes;
            }
            at = end;
        }
        assert!(holes > 30 * BLOCK, "{holes}");
    }
}

#[test]
fn who_reads_forward_reads_each_chunk_once() {
    let mut images = Images::of(&noise(1, 24 * BLOCK as usize));
    images.keep();
    let store = RecordingStore::over(images.scene.store.clone());
    let repository = images.scene.open(store.clone()).unwrap();
    let image = open(&images, &repository, 0);
    let bytes = &images.kept[0].1;
    let before = store.bytes(Verb::ReadAt);
    for from in (0..bytes.len()).step_by(64 << 10) {
        assert!(read(&image, from, 64 << 10) == bytes[from..from + (64 << 10)]);
    }
    drop(image);
    let read = store.bytes(Verb::ReadAt) - before;
    assert!((24 * BLOCK..25 * BLOCK).contains(&read), "{read}");
}

#[test]
fn a_read_that_fails_names_its_range_once_and_the_next_one_may_go_well() {
    let images = scattered();
    let store = FaultyStore::over(images.scene.store.clone());
    let repository = images.scene.open(store.clone()).unwrap();
    let image = open(&images, &repository, 0);
    let bytes = &images.kept[0].1;
    let whole = read(&image, 7 * BLOCK as usize, 8192);
    store.inject(
        InjectedFault::error()
            .of(Verb::ReadAt)
            .within(Area::Packs)
            .for_ever(),
    );
    let mut buffer = vec![0; 4096];
    for _ in 0..3 {
        let failed = image.read_at(30 * BLOCK + 5, &mut buffer).unwrap_err();
        let range = format!("bytes {} to {} of the image", 30 * BLOCK, 31 * BLOCK);
        assert!(failed.to_string().contains(&range), "{failed}");
    }
    // What was read before, and holes, need no store.
    assert_eq!(read(&image, 7 * BLOCK as usize, 8192), whole);
    assert!(
        read(&image, 12 * BLOCK as usize, 4096)
            .iter()
            .all(|byte| *byte == 0)
    );
    store.heal();
    let from = 30 * BLOCK as usize;
    assert!(read(&image, from, 4096) == bytes[from..from + 4096]);
    let monitor = Recorder::default();
    assert_eq!(image.report_problems(&monitor), 1);
    assert_eq!(image.report_problems(&monitor), 0);
    assert_eq!(monitor.problems.lock().unwrap()[0].path, NAME.as_bytes());
}

#[test]
fn a_path_that_is_no_image_is_refused_with_the_images_that_there_are() {
    let images = scattered();
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, images.kept[0].0);
    let open = |path: &[u8]| {
        let scratch = ScratchSpace::new(repository.spill_dir().unwrap());
        open_images(
            &repository,
            &snapshot,
            path,
            None,
            &scratch,
            &Recorder::default(),
        )
    };
    assert_eq!(open(b"").unwrap().0.len(), 1);
    assert!(matches!(open(b"nothing"), Err(Error::NoPath { .. })));
    assert!(matches!(
        open(b"disk.raw/0000000000000000"),
        Err(Error::NoPath { .. })
    ));
    assert!(matches!(open(b"disk.ra"), Err(Error::NoPath { .. })));
}
