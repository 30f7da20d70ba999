//! Backups that take longer than the grace period of prunes that go on meanwhile (issue 13, S1).

use std::sync::Mutex;
use std::time::{Duration, Instant};

use bale_engine::backup::BackupOptions;
use bale_format::Snapshot;
use bale_pipeline::clock::Clock;
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress, Recorder};
use bale_repository::store::{Area, ObjectName};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, Scene};

const DAY: Duration = Duration::from_secs(24 * 3600);
const PATIENCE: Duration = Duration::from_secs(60);

/// Packs of a run under way, which no record names: those of a forgotten snapshot stand for them.
fn running() -> (Scene, Snapshot) {
    let scene = Scene::new();
    scene.write("noise", &noise(1, 700_000));
    let outcome = scene.backup(&scene.repository()).unwrap();
    let repository = scene.repository();
    repository.forget_snapshot(outcome.id.unwrap()).unwrap();
    let draft = Snapshot {
        partial: true,
        until: None,
        layers: Vec::new(),
        thin: Vec::new(),
        ..outcome.snapshot
    };
    (scene, draft)
}

fn prune_daily(scene: &Scene, days: usize, mut each_day: impl FnMut()) -> usize {
    for _ in 0..days {
        scene.clock.advance(DAY + Duration::from_secs(60));
        each_day();
        scene.prune(&scene.repository(), DAY).unwrap();
    }
    scene.store.names(Area::Packs).len()
}

#[test]
fn what_a_run_stores_outlasts_daily_prunes_as_long_as_it_shows_signs_of_life() {
    let (scene, draft) = running();
    let packs = scene.store.names(Area::Packs).len();
    let repository = scene.repository();
    let mut last: Option<ObjectName> = None;
    let sign_of_life = || {
        let sign = Snapshot {
            finished: repository.clock().time(),
            ..draft.clone()
        };
        let id = repository.write_run([7; 16], &sign).unwrap();
        if let Some(old) = last.replace(ObjectName::run([7; 16], id)) {
            bale_repository::store::Store::delete(&scene.store, &old).unwrap();
        }
    };
    assert_eq!(prune_daily(&scene, 5, sign_of_life), packs, "it lives");
    assert_eq!(prune_daily(&scene, 5, || ()), 0, "it died");
}

#[test]
fn what_nobody_stores_is_not_kept_by_the_signs_of_a_later_run() {
    let (scene, draft) = running();
    let repository = scene.repository();
    let began = scene.clock.now() + DAY;
    let sign_of_life = || {
        let sign = Snapshot {
            time: bale_pipeline::clock::time_of(began),
            finished: repository.clock().time(),
            ..draft.clone()
        };
        repository.write_run([7; 16], &sign).unwrap();
    };
    assert_eq!(prune_daily(&scene, 5, sign_of_life), 0);
}

/// Records of another run of the same source: a sign of life, and what it has finished so far.
fn records_of_another_run(scene: &Scene, draft: &Snapshot) -> Vec<ObjectName> {
    let repository = scene.repository();
    let began = scene.clock.now();
    let sign = Snapshot {
        time: bale_pipeline::clock::time_of(began),
        finished: bale_pipeline::clock::time_of(began),
        ..draft.clone()
    };
    let so_far = Snapshot {
        until: Some(bale_format::Key::of_path(b"no row yet")),
        ..sign.clone()
    };
    let write = |record: &Snapshot| repository.write_run([7; 16], record).unwrap();
    [sign, so_far]
        .iter()
        .map(|record| ObjectName::run([7; 16], write(record)))
        .collect()
}

#[test]
fn a_backup_that_commits_leaves_what_another_run_of_its_source_shows_while_that_lives() {
    let (scene, draft) = running();
    let mut records = records_of_another_run(&scene, &draft);
    records.sort();
    scene.backup(&scene.repository()).unwrap();
    assert_eq!(scene.store.names(Area::Runs), records, "it lives");
    scene.clock.advance(Duration::from_secs(3_600));
    scene.backup(&scene.repository()).unwrap();
    assert_eq!(scene.store.names(Area::Runs), [], "it died");
}

/// Holds a backup at its first sight of progress until it has shown a sign of life.
struct UntilSign {
    store: DatedStore,
    seen: Mutex<Option<Vec<ObjectName>>>,
}

impl Monitor for UntilSign {
    fn progress(&self, phase: Phase, _: Progress) {
        let mut seen = self.seen.lock().unwrap();
        if phase != Phase::Commit || seen.is_some() {
            return;
        }
        let began = Instant::now();
        while self.store.names(Area::Runs).is_empty() {
            assert!(began.elapsed() < PATIENCE, "no sign of life");
            std::thread::yield_now();
        }
        *seen = Some(self.store.names(Area::Runs));
    }

    fn problem(&self, _: &Problem) {}
}

#[test]
fn a_run_that_lasts_shows_signs_of_life_and_takes_them_back() {
    let scene = Scene::new();
    scene.write_tree();
    let monitor = UntilSign {
        store: scene.store.clone(),
        seen: Mutex::default(),
    };
    let options = BackupOptions {
        sign_of_life_every: Some(Duration::from_millis(1)),
        ..BackupOptions::default()
    };
    let outcome = scene.backup_with(&scene.repository(), &options, &monitor);
    assert!(outcome.unwrap().id.is_some());
    assert!(monitor.seen.into_inner().unwrap().is_some());
    assert_eq!(scene.store.names(Area::Runs), []);
    let failed = BackupOptions {
        parent: Some(bale_format::ObjectId([1; 32])),
        ..options
    };
    let failed = scene.backup_with(&scene.repository(), &failed, &Recorder::default());
    assert!(failed.is_err());
    assert_eq!(scene.store.names(Area::Runs), []);
}

/// The store's clock was wrong once: what it made then stays young until then, and that is said
/// each time.
#[test]
fn what_the_store_dates_in_the_future_is_named_and_not_given_up_early() {
    let scene = Scene::new();
    let now = scene.clock.now();
    scene.clock.set(now + 1_000 * DAY);
    scene.write("noise", &noise(1, 700_000));
    let id = scene.backup(&scene.repository()).unwrap().id.unwrap();
    let repository = scene.repository();
    repository.forget_snapshot(id).unwrap();
    let packs = scene.store.names(Area::Packs);
    let notes_at = |now| {
        scene.clock.set(now);
        let monitor = Recorder::default();
        let options = bale_engine::prune::PruneOptions {
            grace: DAY,
            repack_below_percent: 60,
        };
        let plan = bale_engine::prune::plan(&repository, &options, &monitor).unwrap();
        bale_engine::prune::apply(&repository, &plan, &options, &monitor).unwrap();
        monitor.notes.into_inner().unwrap()
    };
    for days in [0, 2, 4] {
        let notes = notes_at(now + days * DAY);
        assert!(
            notes.iter().any(|note| note.contains("in the future")),
            "{notes:?}"
        );
        assert_eq!(scene.store.names(Area::Packs), packs);
        assert_eq!(scene.store.names(Area::Condemned), []);
    }
    // When that time has come, they go as others do; a list of that time is named in its turn.
    assert!(notes_at(now + 1_002 * DAY).is_empty());
    assert_eq!(scene.store.names(Area::Condemned).len(), 1);
    let notes = notes_at(now + 4 * DAY);
    assert!(notes[0].contains("condemned/"), "{notes:?}");
    assert_eq!(scene.store.names(Area::Packs), packs);
    assert!(notes_at(now + 1_004 * DAY).is_empty());
    assert_eq!(scene.store.names(Area::Packs), []);
}
