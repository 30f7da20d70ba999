//! Stores whose listings come behind: whoever backs up, forgets and prunes by what was listed some
//! time ago deletes nothing that is in use, as long as the grace period is longer than that.

use bale_format::ObjectId;
use bale_pipeline::random::SeededRandom;
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::scene::noise;
use bale_testkit::{Choices, Scene, StaleStore, Tree};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const GRACE: Duration = Duration::from_secs(24 * 3_600);

/// Operations of one history.
const STEPS: u32 = 40;

const HISTORIES: u64 = 6;

/// What became of one history.
#[derive(Default)]
struct Done {
    backups: u32,
    prunes: u32,
    /// Operations that ended with an error: they may, by what they cannot see.
    refused: u32,
    packs_deleted: u64,
}

fn back_up(scene: &mut Scene, store: &StaleStore, number: u64, done: &mut Done) {
    scene.write(&format!("f{}", number % 5), &noise(number, 20_000));
    let made = scene.open(store.clone()).and_then(|it| scene.backup(&it));
    match made.ok().and_then(|outcome| outcome.id) {
        Some(id) => {
            done.backups += 1;
            scene.kept.push((id, Tree::read(&scene.source())));
        }
        None => done.refused += 1,
    }
}

fn forget(scene: &mut Scene, store: &StaleStore, which: usize) {
    let (id, _): (ObjectId, Tree) = scene.kept.remove(which);
    store.delete(&ObjectName::snapshot(id)).expect("in memory");
}

fn prune(scene: &Scene, store: &StaleStore, done: &mut Done) {
    let pruned = scene
        .open(store.clone())
        .and_then(|it| scene.prune(&it, GRACE));
    match pruned {
        Ok(pruned) => {
            done.prunes += 1;
            done.packs_deleted += pruned.packs_deleted;
        }
        Err(_) => done.refused += 1,
    }
}

/// Random operations; what was acknowledged and not forgotten restores after each that may delete.
fn history(seed: u64, behind: Duration) -> Done {
    let mut random = SeededRandom::new(seed);
    let mut scene = Scene::new();
    let store = StaleStore::over(&scene.store, scene.clock.clone(), behind);
    let mut done = Done::default();
    for step in 0..STEPS {
        let story = format!("history {seed}, {behind:?} behind, step {step}");
        let pauses = [Duration::ZERO, behind / 2, 2 * behind, HOUR, GRACE + HOUR];
        scene.clock.advance(pauses[random.pick(pauses.len())]);
        match random.pick(4) {
            0 if scene.kept.len() > 1 => {
                let which = random.pick(scene.kept.len() - 1);
                forget(&mut scene, &store, which);
            }
            1 => {
                prune(&scene, &store, &mut done);
                scene.assert_restorable(&scene.store, &story);
            }
            _ => back_up(&mut scene, &store, u64::from(step), &mut done),
        }
    }
    // Once listings have caught up, nothing is missing and nothing is damaged.
    scene.clock.advance(2 * behind);
    let report = scene.check(&scene.store).expect("a repository");
    assert!(report.is_clean(), "history {seed}: {report:?}");
    assert!(!scene.store.names(Area::Snapshots).is_empty());
    done
}

#[test]
fn whoever_lists_what_was_deletes_nothing_in_use_within_the_grace_period() {
    let behinds = [Duration::from_secs(30), 20 * HOUR / 60, 3 * HOUR, 20 * HOUR];
    for behind in behinds {
        let mut all = Done::default();
        for seed in 0..HISTORIES {
            let done = history(seed, behind);
            all.backups += done.backups;
            all.prunes += done.prunes;
            all.refused += done.refused;
            all.packs_deleted += done.packs_deleted;
        }
        let (backups, prunes) = (all.backups, all.prunes);
        assert!(
            backups > 30 && prunes > 10,
            "{behind:?}: {backups}, {prunes}"
        );
        assert!(all.packs_deleted > 0, "{behind:?}: nothing was deleted");
        assert!(
            all.refused < backups + prunes,
            "{behind:?}: {}",
            all.refused
        );
    }
}

/// What it names is not known: who deletes must not go on, and who goes on must know.
#[test]
fn an_index_object_that_is_listed_each_time_and_never_found_is_an_error_or_is_named() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    scene.write("more", &noise(2, 30_000));
    scene.keep();
    let lost = scene.store.names(Area::Index)[0];
    let inner = scene.store.fork();
    let store = StaleStore::over(&inner, scene.clock.clone(), Duration::ZERO);
    inner.delete(&lost).expect("in memory");
    let repository = scene.open(store).unwrap();
    let refused = repository.reload_index().map(drop).unwrap_err().to_string();
    assert!(refused.contains(&lost.to_string()), "{refused}");
    assert!(refused.contains("not found"), "{refused}");
    let mut named = Vec::new();
    let index = repository.reload_index_reporting(&mut |name, _| named.push(*name));
    assert_eq!(named, [lost]);
    assert!(!index.unwrap().is_all());
    assert!(!repository.index().unwrap().is_all());
    let before = inner.memory().objects();
    let refused = scene.prune(&repository, Duration::ZERO);
    assert!(refused.is_err(), "{refused:?}");
    assert_eq!(inner.memory().objects(), before);
}
