//! Images that change while they are read, runs that end in the middle, stores that lose something.

use crate::bench::{BLOCK, Images, NAME};
use bale_engine::backup::{BackupOptions, backup_images};
use bale_format::snapshot::ImageState;
use bale_format::{ChunkKind, EntryFlags};
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress, Recorder};
use bale_repository::catalog::CatalogReader;
use bale_repository::error::Error;
use bale_testkit::at_every_call;
use bale_testkit::scene::noise;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

/// Does something once a part of the image was read.
struct Meanwhile<'a> {
    recorder: Recorder,
    after_bytes: u64,
    act: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl<'a> Meanwhile<'a> {
    fn after(after_bytes: u64, act: impl FnOnce() + Send + 'a) -> Meanwhile<'a> {
        Meanwhile {
            recorder: Recorder::default(),
            after_bytes,
            act: Mutex::new(Some(Box::new(act))),
        }
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.recorder.problems.lock().unwrap();
        problems
            .iter()
            .map(|problem| problem.text.clone())
            .collect()
    }
}

impl Monitor for Meanwhile<'_> {
    fn progress(&self, phase: Phase, progress: Progress) {
        if phase == Phase::Backup
            && progress.bytes_done >= self.after_bytes
            && let Some(act) = self.act.lock().unwrap().take()
        {
            act();
        }
    }

    fn problem(&self, problem: &Problem) {
        self.recorder.problem(problem);
    }

    fn note(&self, text: &str) {
        self.recorder.note(text);
    }
}

#[test]
fn an_image_cut_short_while_it_is_read_is_named_and_marked_and_what_was_read_comes_back() {
    let images = Images::of(&noise(1, 40 * BLOCK as usize));
    let before = images.bytes();
    let path = images.path(NAME);
    let cut = move || {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_len(2 * BLOCK).unwrap();
    };
    let monitor = Meanwhile::after(BLOCK, cut);
    let repository = images.scene.repository();
    let (mut sources, options) = ([images.source(NAME)], BackupOptions::default());
    let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
    let outcome = outcome.unwrap();
    let problems = monitor.problems();
    assert!(problems[0].contains("cut short"), "{problems:?}");
    assert_eq!(outcome.snapshot.counts.problems, problems.len() as u64);
    assert_eq!(outcome.snapshot.images[0].how, ImageState::Fuzzy);
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, outcome.id.unwrap());
    let catalog =
        CatalogReader::open(repository.segment_source(), snapshot.1.layers.clone()).unwrap();
    let row = catalog.lookup(NAME.as_bytes()).unwrap().unwrap();
    assert!(row.flags.has(EntryFlags::CHANGED));
    let target = images.path("restored.raw");
    let restored = images.restore_to(&repository, &snapshot, &target, &Recorder::default());
    assert_eq!(restored.unwrap().problems, 0);
    let restored = fs::read(&target).unwrap();
    assert_eq!(restored.len(), before.len());
    assert!(restored[..2 * BLOCK as usize] == before[..2 * BLOCK as usize]);
    // The next one is of what is there now.
    let mut images = images;
    images.keep();
    images.kept.drain(..images.kept.len() - 1);
    images.assert_whole();
}

#[test]
fn an_image_written_to_or_grown_while_it_is_read_is_fuzzy_unless_that_is_allowed() {
    let acts: [fn(&Images); 2] = [
        |images| images.write_at(3 * BLOCK, b"x"),
        |images| images.set_len(31 * BLOCK),
    ];
    for act in acts {
        for allowed in [false, true] {
            let images = Images::of(&noise(1, 30 * BLOCK as usize));
            let monitor = Meanwhile::after(BLOCK, || act(&images));
            let (repository, mut sources) = (images.scene.repository(), [images.source(NAME)]);
            let options = BackupOptions::default();
            let outcome = backup_images(&repository, &mut sources, allowed, &options, &monitor);
            let outcome = outcome.unwrap();
            assert_eq!(outcome.snapshot.images[0].how, ImageState::Fuzzy);
            assert_eq!(monitor.problems().is_empty(), allowed);
            assert_eq!(outcome.snapshot.counts.problems, u64::from(!allowed));
        }
    }
}

#[test]
fn an_image_shorter_or_longer_than_before_is_named_and_is_what_it_is_now() {
    let mut images = Images::of(&noise(1, 5 * BLOCK as usize));
    images.keep();
    for bytes in [3 * BLOCK + 17, 7 * BLOCK, 100] {
        images.set_len(bytes);
        let (repository, mut sources) = (images.scene.repository(), [images.source(NAME)]);
        let (options, monitor) = (BackupOptions::default(), Recorder::default());
        let outcome = images.backup_into(&repository, &mut sources, &options, &monitor);
        images
            .kept
            .push((outcome.unwrap().id.unwrap(), images.bytes()));
        let notes = monitor.notes.lock().unwrap().join("; ");
        assert!(notes.contains("in the snapshot before"), "{notes}");
        assert!(monitor.problems.lock().unwrap().is_empty());
    }
    images.assert_whole();
}

/// Interrupts once so many bytes are done.
struct Until {
    bytes: u64,
    done: AtomicU64,
}

impl Monitor for Until {
    fn progress(&self, _phase: Phase, progress: Progress) {
        self.done.fetch_max(progress.bytes_done, Ordering::Relaxed);
    }

    fn problem(&self, problem: &Problem) {
        panic!("{problem:?}");
    }

    fn interrupted(&self) -> bool {
        self.done.load(Ordering::Relaxed) >= self.bytes
    }
}

#[test]
fn an_interrupted_backup_is_gone_on_from_and_stores_nothing_twice() {
    let mut images = Images::of(&noise(1, 30 * BLOCK as usize));
    let until = Until {
        bytes: 20 * BLOCK,
        done: AtomicU64::new(0),
    };
    let (repository, mut sources) = (images.scene.repository(), [images.source(NAME)]);
    let stopped = images.backup_into(&repository, &mut sources, &BackupOptions::default(), &until);
    assert!(matches!(stopped, Err(Error::Interrupted)), "{stopped:?}");
    let stored = images.keep().snapshot.counts.bytes_stored;
    assert!(stored < 11 * BLOCK, "{stored}");
    images.assert_whole();
}

#[test]
fn a_backup_killed_at_any_call_of_the_store_leaves_every_snapshot_and_the_next_is_right() {
    let mut images = Images::of(&noise(1, 6 * BLOCK as usize));
    images.keep();
    images.write_at(2 * BLOCK, &noise(2, 2 * BLOCK as usize));
    images.write_at(5 * BLOCK, &vec![0; BLOCK as usize]);
    let now = images.bytes();
    let backup = |store: bale_testkit::FaultyStore| {
        let repository = images.scene.open(store)?;
        let (mut sources, monitor) = ([images.source(NAME)], Recorder::default());
        let options = BackupOptions::default();
        images
            .backup_into(&repository, &mut sources, &options, &monitor)
            .map(drop)
    };
    let calls = at_every_call(&images.scene.store, "image", backup, |store, story| {
        let repository = images.scene.open(store.clone()).expect(story);
        let (mut sources, monitor) = ([images.source(NAME)], Recorder::default());
        let options = BackupOptions::default();
        let next = images.backup_into(&repository, &mut sources, &options, &monitor);
        let next = next.expect(story).id.unwrap();
        let repository = images.scene.open(store.clone()).expect(story);
        images.assert_restores(&repository, next, &now);
        images.assert_restores(&repository, images.kept[0].0, &images.kept[0].1);
        let report = images.scene.check(store).expect(story);
        assert!(report.is_clean(), "{story}: {report:?}");
    });
    assert!(calls > 5, "{calls}");
}

#[test]
fn a_block_that_the_repository_lost_is_stored_again_and_until_then_named_with_its_bytes() {
    let mut images = Images::of(&noise(1, 5 * BLOCK as usize));
    images.keep();
    let lost = OnceLock::new();
    images.scene.lose_from_index(|chunk| {
        let is_it = chunk.kind == ChunkKind::Data && lost.get().is_none_or(|id| *id == chunk.id);
        is_it && lost.set(chunk.id).is_ok() || lost.get() == Some(&chunk.id)
    });
    let report = images.scene.check(&images.scene.store).unwrap();
    let paths: Vec<_> = report.lost.iter().map(|lost| lost.path.clone()).collect();
    assert_eq!(paths, [NAME.as_bytes()], "{report:?}");

    // A new file has zeros there; what was there in another stays.
    let repository = images.scene.repository();
    let snapshot = Images::named(&repository, images.kept[0].0);
    for old in [None, Some(vec![9; 5 * BLOCK as usize])] {
        let target = images.path("restored.raw");
        let _was_not_there = fs::remove_file(&target);
        if let Some(old) = &old {
            fs::write(&target, old).unwrap();
        }
        let monitor = Recorder::default();
        let report = images.restore_to(&repository, &snapshot, &target, &monitor);
        let report = report.unwrap();
        assert_eq!((report.problems, report.bytes_missing), (1, BLOCK));
        let problems = monitor.problems.lock().unwrap();
        assert!(problems[0].text.starts_with("bytes "), "{problems:?}");
        let (restored, right) = (fs::read(&target).unwrap(), images.bytes());
        let differing = (0..5).filter(|block| {
            let block = block * BLOCK as usize..(block + 1) * BLOCK as usize;
            restored[block.clone()] != right[block.clone()]
        });
        let differing: Vec<usize> = differing.collect();
        let [block] = differing[..] else {
            panic!("{differing:?}");
        };
        let there = &restored[block * BLOCK as usize..][..BLOCK as usize];
        let expected = if old.is_some() { 9 } else { 0 };
        assert!(there.iter().all(|byte| *byte == expected));
    }

    let stored = images.keep().snapshot.counts.bytes_stored;
    assert!((BLOCK..2 * BLOCK).contains(&stored), "{stored}");
    let again = images.kept.pop().unwrap();
    images.assert_restores(&images.scene.repository(), again.0, &again.1);
    let pruned = images
        .scene
        .prune(&images.scene.repository(), Duration::ZERO);
    pruned.unwrap();
    images.assert_whole();
}
