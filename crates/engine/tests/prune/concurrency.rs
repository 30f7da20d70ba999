//! Backups, prunes, checks and restores at the same time: what is committed restores (CON-03,
//! CON-04, CON-05, CRA-07, SRC-11).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bale_engine::verify::{Subset, check};
use bale_format::ObjectId;
use bale_format::index::IndexEntry;
use bale_pipeline::clock::{Clock, ManualClock};
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress, Recorder};
use bale_repository::repository::{Environment, Repository};
use bale_repository::store::{Area, Store};
use bale_testkit::scene::noise;
use bale_testkit::{Call, DatedStore, HookedStore, Scene, Tree, Turns, Verb};

const GRACE: Duration = Duration::from_secs(24 * 3600);
const THREE_DAYS: Duration = Duration::from_secs(3 * 24 * 3600);
const YEAR_SECONDS: i64 = 365 * 24 * 3600;

/// Runs `act` once, when a backup is about to commit: everything is read, nothing is looked at
/// again.
struct AtCommit<F: Fn() + Sync> {
    act: F,
    done: AtomicBool,
}

impl<F: Fn() + Sync> AtCommit<F> {
    fn new(act: F) -> Self {
        let done = AtomicBool::new(false);
        Self { act, done }
    }
}

impl<F: Fn() + Sync> Monitor for AtCommit<F> {
    fn progress(&self, phase: Phase, _: Progress) {
        if phase == Phase::Commit && !self.done.swap(true, Ordering::SeqCst) {
            (self.act)();
        }
    }

    fn problem(&self, _: &Problem) {}
}

/// A forgotten snapshot whose packs hold all of the source's content, and nothing else that uses
/// them.
fn doomed() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("large noise", &noise(1, 700_000));
    let id = scene.keep();
    scene.repository().forget_snapshot(id).unwrap();
    scene.kept.clear();
    scene.clock.advance(2 * GRACE);
    scene
}

fn forget_all_and_prune(scene: &Scene, store: &DatedStore, grace: Duration) {
    let repository = scene.open(store.clone()).unwrap();
    scene.prune(&repository, grace).unwrap();
}

/// If the backup was committed, it is whole; if not, it said so, and the next one is.
fn whole_or_refused(
    scene: &Scene,
    store: &DatedStore,
    done: Result<ObjectId, String>,
    story: &str,
) {
    match &done {
        Ok(id) => {
            let listed = store.names(Area::Snapshots);
            assert!(
                listed.iter().any(|name| name.id() == Some(*id)),
                "{story}: gone"
            );
        }
        Err(text) => assert!(text.contains("again"), "{story}: {text}"),
    }
    scene.assert_sound(store, &format!("{story}: {done:?}"));
}

fn backed_up(
    scene: &Scene,
    repository: &Arc<Repository>,
    monitor: &dyn Monitor,
) -> Result<ObjectId, String> {
    let outcome = scene.backup_with(repository, &Default::default(), monitor);
    outcome
        .map(|outcome| outcome.id.unwrap())
        .map_err(|error| error.to_string())
}

/// CON-05: the packs that a backup relies on are condemned while it runs. It stores the chunks
/// again.
#[test]
fn chunks_condemned_during_a_backup_are_stored_again() {
    let scene = doomed();
    let store = scene.store.fork();
    let repository = scene.open(store.clone()).unwrap();
    let monitor = AtCommit::new(|| forget_all_and_prune(&scene, &store, GRACE));
    let done = backed_up(&scene, &repository, &monitor);
    assert!(done.is_ok(), "{done:?}");
    assert!(
        !store.names(Area::Condemned).is_empty(),
        "something was condemned"
    );
    scene.assert_restorable(&store, "condemned meanwhile");
    scene.clock.advance(THREE_DAYS);
    forget_all_and_prune(&scene, &store, GRACE);
    whole_or_refused(&scene, &store, done, "condemned meanwhile, then deleted");
}

/// CON-05, CRA-07: they are condemned and deleted while it runs (three days asleep): refused, or
/// whole.
#[test]
fn chunks_deleted_during_a_backup_are_noticed_before_it_is_acknowledged() {
    let scene = doomed();
    let store = scene.store.fork();
    let repository = scene.open(store.clone()).unwrap();
    let monitor = AtCommit::new(|| {
        forget_all_and_prune(&scene, &store, GRACE);
        scene.clock.advance(THREE_DAYS);
        forget_all_and_prune(&scene, &store, GRACE);
    });
    let done = backed_up(&scene, &repository, &monitor);
    whole_or_refused(&scene, &store, done, "deleted meanwhile");
}

/// CRA-07 at every call: the machine sleeps for three days just before a call, while two prunes run
/// elsewhere.
#[test]
fn a_backup_asleep_for_days_at_any_call_is_whole_or_refused() {
    for base in [doomed(), {
        let mut scene = Scene::new();
        scene.write_tree();
        scene.keep();
        scene
    }] {
        base.write("fresh", &noise(2, 20_000));
        let mut at = 0_u64;
        loop {
            let store = base.store.fork();
            let count = std::sync::atomic::AtomicU64::new(0);
            let (below, clock) = (store.clone(), base.clock.clone());
            // The prunes run in the hook, through a handle of their own.
            let elsewhere = base.open(store.clone()).unwrap();
            base.forget_newest_seen();
            let struck = Arc::new(AtomicBool::new(false));
            let strikes = struck.clone();
            let hooked = HookedStore::over(below, move |_: &Call| {
                if count.fetch_add(1, Ordering::SeqCst) == at {
                    strikes.store(true, Ordering::SeqCst);
                    for _ in 0..2 {
                        clock.advance(THREE_DAYS);
                        prune_with(&elsewhere);
                    }
                    clock.advance(THREE_DAYS);
                }
            });
            let done = base.open(hooked).map_err(|error| error.to_string());
            let done =
                done.and_then(|repository| backed_up(&base, &repository, &Recorder::default()));
            whole_or_refused(&base, &store, done, &format!("asleep before call {at}"));
            if !struck.load(Ordering::SeqCst) {
                break;
            }
            at += 1;
        }
        assert!(at > 10, "{at}");
    }
}

/// Another computer whose clock is so many seconds off, and which knows the same secret.
fn open_with_clock(scene: &Scene, store: &DatedStore, off_seconds: i64) -> Arc<Repository> {
    let now = scene.clock.now();
    let off = Duration::from_secs(off_seconds.unsigned_abs());
    let now = if off_seconds < 0 {
        now - off
    } else {
        now + off
    };
    let environment = Environment {
        clock: Arc::new(ManualClock::at(now)),
        ..scene.environment()
    };
    Repository::open(Arc::new(store.clone()), &Scene::secret(), environment)
        .map(Arc::new)
        .unwrap()
}

/// SRC-11: who prunes has a clock that is years off, and that goes on by two grace periods while a
/// backup runs.
#[test]
fn prunes_with_clocks_that_are_years_off_take_nothing_from_a_backup() {
    for off_seconds in [-2 * YEAR_SECONDS, 10 * YEAR_SECONDS] {
        let scene = doomed();
        let store = scene.store.fork();
        let repository = scene.open(store.clone()).unwrap();
        let monitor = AtCommit::new(|| {
            for later_seconds in [0, 2 * GRACE.as_secs() as i64] {
                prune_with(&open_with_clock(
                    &scene,
                    &store,
                    off_seconds + later_seconds,
                ));
            }
        });
        let done = backed_up(&scene, &repository, &monitor);
        let story = format!("pruned by a clock {off_seconds} s off");
        whole_or_refused(&scene, &store, done, &story);
    }
}

/// SRC-11: what was condemned a moment ago by a clock that is years behind has not been condemned
/// for years.
#[test]
fn a_grace_period_does_not_begin_in_the_past() {
    let scene = doomed();
    let packs = scene.store.names(Area::Packs);
    let ids = packs.iter().filter_map(|name| name.id()).collect();
    let behind = open_with_clock(&scene, &scene.store, -2 * YEAR_SECONDS);
    behind.condemn(ids).unwrap();
    let pruned = scene.prune(&scene.repository(), GRACE).unwrap();
    assert_eq!(pruned.packs_deleted, 0);
    scene.clock.advance(2 * GRACE);
    let pruned = scene.prune(&scene.repository(), GRACE).unwrap();
    assert_eq!(pruned.packs_deleted, packs.len() as u64);
}

/// SRC-11: the clock of whoever backs up jumps from one backup to the next. All of them restore,
/// and are kept by prunes.
#[test]
fn backups_by_a_clock_that_jumps_by_years_are_all_whole() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    let right = scene.clock.now();
    let ahead = Duration::from_secs(10 * YEAR_SECONDS as u64);
    let behind = Duration::from_secs(2 * YEAR_SECONDS as u64);
    for (number, now) in [right + ahead, right, right - behind, right]
        .into_iter()
        .enumerate()
    {
        scene.clock.set(now);
        scene.write("changing", &noise(number as u64, 40_000));
        scene.keep();
        let pruned = scene.prune(&scene.repository(), GRACE).unwrap();
        assert_eq!(pruned.packs_deleted, 0);
        scene.assert_restorable(&scene.store, &format!("after jump {number}"));
    }
    scene.assert_sound(&scene.store, "after all jumps");
}

fn prune_with(repository: &Arc<Repository>) {
    use bale_engine::prune::{PruneOptions, apply, plan};
    let options = PruneOptions {
        grace: GRACE,
        repack_below_percent: 60,
    };
    let monitor = Recorder::default();
    let planned = plan(repository, &options, &monitor).unwrap();
    apply(repository, &planned, &options, &monitor).unwrap();
}

/// A prune runs without any grace just before the snapshot is written: the narrowest moment.
#[test]
fn a_prune_between_the_last_look_and_the_snapshot_is_noticed() {
    let scene = doomed();
    let store = scene.store.fork();
    let elsewhere = scene.open(store.clone()).unwrap();
    let clock = scene.clock.clone();
    let hooked = HookedStore::over(store.clone(), move |call: &Call| {
        if call.verb == Verb::Put && call.area == Area::Snapshots {
            for _ in 0..2 {
                prune_with(&elsewhere);
                clock.advance(THREE_DAYS);
            }
        }
    });
    let repository = scene.open(hooked).unwrap();
    let done = backed_up(&scene, &repository, &Recorder::default());
    whole_or_refused(&scene, &store, done, "pruned just before the snapshot");
}

/// The look at packs and condemned lists is two listings: whatever is pruned between them is seen.
#[test]
fn a_deletion_between_two_listings_of_the_last_look_is_noticed() {
    let scene = doomed();
    let store = scene.store.fork();
    let elsewhere = scene.open(store.clone()).unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let (clock, gun) = (scene.clock.clone(), armed.clone());
    let lists = std::sync::atomic::AtomicU64::new(0);
    let hooked = HookedStore::over(store.clone(), move |call: &Call| {
        let looking = matches!(call.area, Area::Packs | Area::Condemned);
        if gun.load(Ordering::SeqCst)
            && call.verb == Verb::List
            && looking
            && lists.fetch_add(1, Ordering::SeqCst) == 1
        {
            clock.advance(THREE_DAYS);
            prune_with(&elsewhere);
        }
    });
    let repository = scene.open(hooked).unwrap();
    let monitor = AtCommit::new(|| {
        forget_all_and_prune(&scene, &store, GRACE);
        armed.store(true, Ordering::SeqCst);
    });
    let done = backed_up(&scene, &repository, &monitor);
    whole_or_refused(&scene, &store, done, "deleted between two listings");
}

/// CON-03: two writers, two pruners, a checker and a restorer, call by call in an order drawn from
/// a seed, while time passes in leaps. Whatever was committed restores, then and at the end.
#[test]
fn whatever_the_order_of_calls_every_committed_snapshot_restores() {
    let (mut committed, mut deleted) = (0, 0);
    for seed in 0..24 {
        let (done, gone) = interleave(seed);
        committed += done;
        deleted += gone;
    }
    assert!(
        committed > 24 && deleted > 8,
        "{committed} committed, {deleted} packs deleted"
    );
}

fn interleave(seed: u64) -> (usize, u64) {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("large noise", &noise(seed, 600_000));
    let first = scene.keep();
    fs::remove_file(scene.source().join("large noise")).unwrap();
    scene.write("other", &noise(seed + 100, 40_000));
    scene.keep();
    // Content that only a forgotten snapshot uses, and that a writer will meet again.
    scene.write("large noise", &noise(seed, 600_000));
    scene.repository().forget_snapshot(first).unwrap();
    scene.kept.remove(0);
    scene.clock.advance(2 * GRACE);
    if seed % 2 == 1 {
        scene.prune(&scene.repository(), GRACE).unwrap();
        scene.clock.advance(GRACE);
    }
    let clock = scene.clock.clone();
    let turns = Turns::new(seed, move |drawn| {
        if drawn % 32 == 0 {
            clock.advance(GRACE / 8 * (drawn / 128 + 1) as u32);
        }
    });
    let store = scene.store.clone();
    let now = Tree::read(&scene.source());
    let stores: Vec<_> = (0..6).map(|_| turns.actor(store.clone())).collect();
    let mut stores = stores.into_iter();
    let scene = &scene;
    let mut deleted = 0;
    let committed = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let store = stores.next().unwrap();
                scope.spawn(move || write_twice(scene, store))
            })
            .collect();
        let pruners: Vec<_> = (0..2)
            .map(|_| {
                let store = stores.next().unwrap();
                scope.spawn(move || prune_thrice(scene, store))
            })
            .collect();
        let (checked, restored) = (stores.next().unwrap(), stores.next().unwrap());
        let checker = scope.spawn(move || {
            let repository = scene.open(checked).unwrap();
            let report = check(&repository, Some(Subset::All), &Recorder::default()).unwrap();
            assert!(report.is_clean(), "checked while pruned: {report:?}");
            assert_eq!(report.packs_damaged, [], "checked while pruned");
        });
        let restorer = scope.spawn(move || {
            let repository = scene.open(restored).unwrap();
            let snapshots = repository.snapshots().unwrap();
            let (id, tree) = &scene.kept[0];
            let kept = snapshots.iter().find(|(other, _)| other == id).unwrap();
            scene.assert_restores(&repository, kept, tree, "restored while pruned");
        });
        let committed: Vec<_> = writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .collect();
        deleted = pruners
            .into_iter()
            .map(|pruner| pruner.join().unwrap())
            .sum();
        checker.join().unwrap();
        restorer.join().unwrap();
        committed
    });
    let story = format!("seed {seed}");
    let repository = scene.open(store.clone()).unwrap();
    let snapshots = repository.snapshots().unwrap();
    for id in &committed {
        let named = snapshots.iter().find(|(other, _)| other == id);
        let named = named.unwrap_or_else(|| panic!("{story}: {} is gone", id.short()));
        scene.assert_restores(&repository, named, &now, &story);
    }
    scene.assert_sound(&store, &story);
    (committed.len(), deleted)
}

fn write_twice(scene: &Scene, store: impl Store + Clone + 'static) -> Vec<ObjectId> {
    let mut committed = Vec::new();
    for _ in 0..2 {
        let done = scene.open(store.clone()).map_err(|error| error.to_string());
        match done.and_then(|repository| backed_up(scene, &repository, &Recorder::default())) {
            Ok(id) => committed.push(id),
            Err(text) => assert!(text.contains("again"), "{text}"),
        }
    }
    committed
}

fn prune_thrice(scene: &Scene, store: impl Store + Clone + 'static) -> u64 {
    let mut deleted = 0;
    for _ in 0..3 {
        // Another prune may take away what this one is reading: it says so, and deletes nothing it
        // does not know.
        let repository = scene.open(store.clone()).unwrap();
        if let Ok(pruned) = scene.prune(&repository, GRACE) {
            deleted += pruned.packs_deleted;
        }
    }
    deleted
}

/// Four snapshots with a pack or more each, of which all but the last are forgotten and condemned
/// six hours apart; one index object names all packs.
fn condemned_in_turn() -> Scene {
    let mut scene = Scene::new();
    for number in 0..4 {
        scene.write("noise", &noise(number, 30_000));
        scene.keep();
    }
    scene.clock.advance(2 * GRACE);
    for _ in 0..3 {
        let (id, _) = scene.kept.remove(0);
        let repository = scene.repository();
        repository.forget_snapshot(id).unwrap();
        scene.prune(&repository, GRACE).unwrap();
        scene.clock.advance(GRACE / 4);
    }
    let repository = scene.repository();
    let (mut packs, mut entries) = (Vec::new(), Vec::new());
    let names = scene.store.names(Area::Index);
    for name in &names {
        let object = repository.read_index_object(name).unwrap();
        let before = packs.len() as u32;
        packs.extend(object.packs());
        entries.extend(object.iter().map(|entry| IndexEntry {
            pack: entry.pack + before,
            ..entry
        }));
    }
    repository.write_index_object(&packs, entries).unwrap();
    names
        .iter()
        .for_each(|name| scene.store.delete(name).unwrap());
    assert!(scene.store.names(Area::Condemned).len() == 3);
    scene
}

/// Packs that the index names and the store does not have.
fn dangling(scene: &Scene, store: &DatedStore) -> usize {
    let there = store.names(Area::Packs);
    let index = scene.open(store.clone()).unwrap().reload_index().unwrap();
    let named = index.packs().iter().map(|pack| pack.id);
    named
        .filter(|id| !there.iter().any(|name| name.id() == Some(*id)))
        .count()
}

/// CON-04: a prune is about to write what stays of an index object; meanwhile another one, for
/// which more is due, replaces that object and deletes the packs.
#[test]
fn an_index_object_replaced_twice_names_nothing_that_is_gone() {
    let scene = condemned_in_turn();
    scene.clock.advance(GRACE / 4);
    let store = scene.store.clone();
    let elsewhere = scene.open(store.clone()).unwrap();
    let (clock, done) = (scene.clock.clone(), AtomicBool::new(false));
    let hooked = HookedStore::over(store.clone(), move |call: &Call| {
        let writes_index = call.verb == Verb::Put && call.area == Area::Index;
        if writes_index && !done.swap(true, Ordering::SeqCst) {
            clock.advance(GRACE);
            prune_with(&elsewhere);
        }
    });
    let first = scene.open(hooked).unwrap();
    // It notices that it stood still for a day, or finds nothing left to do.
    let _ = scene.prune(&first, GRACE);
    assert_eq!(dangling(&scene, &store), 0);
    scene.assert_sound(&store, "two prunes, one index object");
}

/// CON-04 in any order of calls.
#[test]
fn prunes_at_once_leave_no_names_of_packs_that_are_gone() {
    let mut deleted = 0;
    for seed in 0..300 {
        // Names of packs are random, and so is who meets whom: now and then it takes more to see
        // some deleted.
        if seed >= 30 && deleted > 5 {
            break;
        }
        let scene = condemned_in_turn();
        let clock = scene.clock.clone();
        let turns = Turns::new(seed, move |drawn| {
            if drawn % 16 == 0 {
                clock.advance(GRACE / 16);
            }
        });
        let stores: Vec<_> = (0..3).map(|_| turns.actor(scene.store.clone())).collect();
        let gone: u64 = std::thread::scope(|scope| {
            let scene = &scene;
            let pruners = stores
                .into_iter()
                .map(|store| scope.spawn(move || prune_thrice(scene, store)));
            let pruners: Vec<_> = pruners.collect();
            pruners
                .into_iter()
                .map(|pruner| pruner.join().unwrap())
                .sum()
        });
        deleted += gone;
        let story = format!("seed {seed}");
        assert_eq!(dangling(&scene, &scene.store), 0, "{story}");
        scene.assert_sound(&scene.store, &story);
    }
    assert!(deleted > 5, "{deleted}");
}

/// A prune was killed between writing an index object and looking whether it still may (or an older
/// program left it so): names of packs that are gone count for nothing, and the next prune drops
/// them.
#[test]
fn copies_in_packs_that_are_gone_are_not_counted_on() {
    let mut scene = Scene::new();
    scene.write("noise", &noise(1, 30_000));
    let first = scene.keep();
    // The same chunks a second time, in another pack.
    let repository = scene.repository();
    let index = repository.index().unwrap();
    let writer =
        bale_repository::pack::ChunkWriter::start(repository.clone(), Default::default(), false);
    let writer = writer.unwrap();
    for place in index.entries() {
        let (id, kind) = (place.chunk.id, place.chunk.kind);
        let bytes = repository.read_chunk_uncached(&id, kind).unwrap();
        writer.store_again(kind, id, bytes.into()).unwrap();
    }
    writer.finish().unwrap();
    let packs = scene.store.names(Area::Packs);
    for gone in &packs {
        let store = scene.store.fork();
        store.delete(gone).unwrap();
        let lost = scene
            .open(store.clone())
            .unwrap()
            .read_chunk_uncached(&index.entries()[0].chunk.id, index.entries()[0].chunk.kind);
        // Packs by kind: only where the other copy is there, there is something to show.
        if lost.is_err() || dangling(&scene, &store) != 1 {
            continue;
        }
        scene.clock.advance(2 * GRACE);
        for _ in 0..2 {
            forget_all_and_prune(&scene, &store, GRACE);
            scene.clock.advance(2 * GRACE);
        }
        assert_eq!(dangling(&scene, &store), 0);
        scene.assert_sound(&store, "one of two copies is gone");
    }
    assert!(packs.len() >= 2 && scene.kept[0].0 == first);
}

/// What a condemned pack alone holds, and a snapshot uses, is copied before the pack goes: whatever
/// let it come to this.
#[test]
fn condemned_packs_in_use_are_copied_before_they_are_deleted() {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.keep();
    let packs = scene.store.names(Area::Packs);
    let ids = packs.iter().filter_map(|name| name.id()).collect();
    scene.repository().condemn(ids).unwrap();
    scene.clock.advance(2 * GRACE);
    let pruned = scene.prune(&scene.repository(), GRACE).unwrap();
    assert_eq!(pruned.packs_deleted, packs.len() as u64);
    assert!(pruned.bytes_repacked > 0);
    assert!(scene.store.names(Area::Condemned).is_empty());
    scene.assert_sound(&scene.store, "everything was condemned");
}

/// A snapshot that uses packs which a prune is about to delete, and another one; the first is
/// forgotten, its packs are due.
fn due() -> (Scene, bale_format::ObjectId, Vec<u8>) {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("large noise", &noise(1, 700_000));
    let first = scene.keep();
    fs::remove_file(scene.source().join("large noise")).unwrap();
    scene.write("other", &noise(2, 40_000));
    scene.keep();
    let name = bale_repository::store::ObjectName::snapshot(first);
    let bytes = scene.store.get(&name, 1 << 20).unwrap();
    scene.repository().forget_snapshot(first).unwrap();
    scene.clock.advance(2 * GRACE);
    let condemned = scene.prune(&scene.repository(), GRACE).unwrap();
    assert!(condemned.packs_condemned > 0);
    scene.clock.advance(2 * GRACE);
    (scene, first, bytes)
}

/// Looking takes hours, by the clock: what is due is deleted all the same.
#[test]
fn a_prune_that_looks_for_hours_deletes_what_is_due() {
    let (mut scene, first, _) = due();
    scene.kept.retain(|(id, _)| *id != first);
    let clock = scene.clock.clone();
    let slow = HookedStore::over(scene.store.clone(), move |call: &Call| {
        if call.verb == Verb::ReadAt && call.area == Area::Packs {
            clock.advance(Duration::from_secs(20 * 60));
        }
    });
    let pruned = scene.prune(&scene.open(slow).unwrap(), GRACE).unwrap();
    assert!(
        pruned.packs_deleted > 0 && pruned.problems == 0,
        "{pruned:?}"
    );
    scene.assert_sound(&scene.store, "pruned slowly");
}

/// A writer that slept commits just when a slow prune reads, or has dropped the names of the packs:
/// its snapshot is seen before anything goes, and what it uses is stored again.
#[test]
fn a_snapshot_that_appears_while_a_prune_looks_is_looked_at_before_packs_go() {
    for (verb, area) in [(Verb::ReadAt, Area::Packs), (Verb::Delete, Area::Index)] {
        let (scene, first, bytes) = due();
        let (clock, store) = (scene.clock.clone(), scene.store.clone());
        let slow = HookedStore::over(scene.store.clone(), move |call: &Call| {
            if call.verb == verb && call.area == area {
                let name = bale_repository::store::ObjectName::snapshot(first);
                store.put(&name, &bytes).unwrap();
                clock.advance(Duration::from_secs(20 * 60));
            }
        });
        scene.prune(&scene.open(slow).unwrap(), GRACE).unwrap();
        let story = format!("a snapshot appears at {verb:?} {area}");
        assert!(scene.kept.iter().any(|(id, _)| *id == first));
        scene.assert_sound(&scene.store, &story);
    }
}
