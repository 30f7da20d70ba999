//! Snapshots copied into a repository with other keys restore to what they were, are sent once, and
//! whatever ends a copy in between costs nothing but time.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use bale_engine::copy::{Copied, CopyOptions, Fate, copy};
use bale_format::{ChunkKind, Content, ObjectId};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_repository::store::{Area, ObjectName, Store};
use bale_testkit::recording_store::Verb;
use bale_testkit::scene::{noise, periodic};
use bale_testkit::{DatedStore, FaultyStore, RecordingStore, Scene};

/// More calls than any copy here makes.
const CALLS_MAX: u64 = 2_000;

fn copy_all(source: &Arc<Repository>, target: &Arc<Repository>) -> Result<Copied> {
    copy_with(source, target, &Recorder::default())
}

fn copy_with(
    source: &Arc<Repository>,
    target: &Arc<Repository>,
    monitor: &Recorder,
) -> Result<Copied> {
    let snapshots = source.snapshots()?;
    copy(source, target, &snapshots, &CopyOptions::default(), monitor)
}

/// Trees of every kind of entry, in three snapshots that share most.
fn history() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    scene.write("big/noise", &noise(11, 3 << 20));
    scene.write("farm/0/x", &noise(12, 900));
    for day in 1..20 {
        let dir = scene.source().join(format!("farm/{day}"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::hard_link(scene.source().join("farm/0/x"), dir.join("x")).unwrap();
    }
    for number in 0..300u64 {
        scene.write(
            &format!("many/{number:03}"),
            &noise(number, 200 + number as usize),
        );
    }
    scene.keep();
    scene.write("dir/deep/c.bin", &noise(4, 2_000));
    scene.write("large", &periodic(800 << 10));
    symlink("nowhere", scene.source().join("dangling")).unwrap();
    scene.keep();
    std::fs::remove_dir_all(scene.source().join("many")).unwrap();
    scene.write("new/d", &noise(5, 700));
    scene.keep();
    scene
}

/// Everything that was kept in the source restores from the target, by the id of the copy.
fn assert_copied(scene: &Scene, target: &Arc<Repository>, story: &str) {
    let snapshots = target.snapshots().expect(story);
    for (id, tree) in &scene.kept {
        let copy = copy_of(&snapshots, *id);
        let copy = copy.unwrap_or_else(|| panic!("{story}: {} is not there", id.short()));
        scene.assert_restores(target, copy, tree, story);
    }
}

fn copy_of(snapshots: &[Named], id: ObjectId) -> Option<&Named> {
    let mut copies = snapshots
        .iter()
        .filter(|(_, copy)| copy.original == Some(id));
    let first = copies.next();
    assert!(copies.next().is_none(), "{} was copied twice", id.short());
    first
}

fn assert_whole(scene: &Scene, store: &DatedStore, story: &str) {
    let report = scene.check(store).expect(story);
    assert!(report.is_clean(), "{story}: {report:?}");
}

#[test]
fn what_was_copied_restores_equal_and_nothing_is_shared_that_is_keyed() {
    let (scene, other) = (history(), Scene::new());
    let (source, target) = (scene.repository(), other.repository());
    let copied = copy_all(&source, &target).unwrap();
    assert!(!copied.is_incomplete(), "{copied:?}");
    assert_eq!(copied.snapshots.len(), 3);
    let target = other.repository();
    assert_copied(&scene, &target, "copied");
    assert_whole(&other, &other.store, "copied");
    let (ours, theirs) = (source.index().unwrap(), target.index().unwrap());
    for place in ours.entries() {
        assert!(
            theirs.positions(&place.chunk.id).is_empty(),
            "an id is keyed"
        );
    }
}

#[test]
fn identity_and_order_of_snapshots_come_along_and_parents_are_those_of_the_target() {
    let (scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    let (old, new) = (
        scene.repository().snapshots().unwrap(),
        other.repository().snapshots().unwrap(),
    );
    for (at, ((id, old), (_, copy))) in old.iter().zip(&new).enumerate() {
        assert_eq!(copy.original, Some(*id));
        assert_eq!(
            (&copy.run, copy.time, &copy.host, &copy.paths, copy.totals),
            (&old.run, old.time, &old.host, &old.paths, old.totals)
        );
        let before = at.checked_sub(1).map(|before| new[before].0);
        assert_eq!(copy.parent, before);
    }
}

#[test]
fn the_next_backup_into_the_target_compares_with_the_copy_and_stores_nothing_again() {
    let (scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    let target = scene.open(other.store.clone()).unwrap();
    let newest = target.snapshots().unwrap().pop().unwrap();
    let known: usize = target.index().unwrap().entries().len();
    let outcome = scene.backup(&target).unwrap();
    assert_eq!(outcome.snapshot.parent, Some(newest.0));
    // As a backup into the source would: what is racy is read again, and is what it was.
    let own = scene.backup(&scene.repository()).unwrap().snapshot.counts;
    let counts = outcome.snapshot.counts;
    assert_eq!(
        (counts.files_new, counts.files_changed),
        (own.files_new, own.files_changed)
    );
    let stored = counts.bytes_stored;
    assert!(stored < 2 * own.bytes_stored, "{stored}");
    let content = |place: &&bale_format::ChunkPlace| place.chunk.kind != ChunkKind::Segment;
    let index = target.reload_index().unwrap();
    let more = index.entries().len() - known;
    assert!(
        more <= index.entries().iter().filter(content).count(),
        "{more}"
    );
}

#[test]
fn content_hashes_are_those_of_the_target_so_new_inodes_with_the_same_bytes_are_not_stored() {
    let (scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    let target = scene.open(other.store.clone()).unwrap();
    let before = rows_of(&target, &["b.txt", "d"]);
    assert_eq!(before.len(), 2);
    for name in ["b.txt", "new/d"] {
        let path = scene.source().join(name);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(
            target.keys().content_hash(&bytes),
            before
                .iter()
                .find(|row| path.ends_with(row.name_text()))
                .unwrap()
                .hash
                .unwrap()
        );
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, bytes).unwrap();
    }
    scene.backup(&target).unwrap();
    assert_eq!(before, rows_of(&target, &["b.txt", "d"]));
}

/// Where the content of a row is.
#[derive(Debug, PartialEq)]
struct ContentOf {
    path: Vec<u8>,
    content: Content,
    hash: Option<[u8; 16]>,
}

impl ContentOf {
    fn name_text(&self) -> &str {
        let path = std::str::from_utf8(&self.path).unwrap();
        path.rsplit('/').next().unwrap()
    }
}

/// Rows of these names in the newest snapshot.
fn rows_of(repository: &Arc<Repository>, names: &[&str]) -> Vec<ContentOf> {
    repository.reload_index().unwrap();
    let (_, newest) = repository.snapshots().unwrap().pop().unwrap();
    let catalog = CatalogReader::open(repository.segment_source(), newest.layers).unwrap();
    let rows = catalog.rows(KeyRange::all()).map(|row| row.unwrap());
    let named = rows.filter(|row| names.iter().any(|name| name.as_bytes() == &row.name[..]));
    let of = named.map(|row| ContentOf {
        path: row.path(),
        content: row.content,
        hash: row.content_hash,
    });
    of.collect()
}

#[test]
fn a_second_copy_reads_no_content_and_sends_nothing() {
    let (scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    let reads = RecordingStore::over(scene.store.clone());
    let writes = RecordingStore::over(other.store.clone());
    let (source, target) = (
        scene.open(reads.clone()).unwrap(),
        other.open(writes.clone()).unwrap(),
    );
    let copied = copy_all(&source, &target).unwrap();
    let is_there = |fate: &Fate| matches!(fate, Fate::There(_));
    assert!(copied.snapshots.iter().all(|copied| is_there(&copied.fate)));
    assert_eq!(reads.count_in(Verb::ReadAt, Area::Packs), 0);
    assert!(writes.calls().iter().all(|call| !call.verb.writes()));
}

#[test]
fn a_snapshot_is_known_under_another_id_and_on_its_way_back() {
    let (scene, other, third) = (history(), Scene::new(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    copy_all(&other.repository(), &third.repository()).unwrap();
    assert_copied(&scene, &third.repository(), "by way of another repository");
    for (from, to) in [(&third, &scene), (&scene, &third), (&third, &other)] {
        let copied = copy_all(&from.repository(), &to.repository()).unwrap();
        let is_there = |fate: &Fate| matches!(fate, Fate::There(_));
        assert!(copied.snapshots.iter().all(|copied| is_there(&copied.fate)));
    }
}

#[test]
fn each_chunk_of_several_snapshots_is_read_once_in_the_order_of_packs() {
    let (scene, other) = (history(), Scene::new());
    let reads = RecordingStore::over(scene.store.clone());
    let source = scene.open(reads.clone()).unwrap();
    let copied = copy_all(&source, &other.repository()).unwrap();
    let index = source.index().unwrap();
    let of_kinds = |kinds: &[ChunkKind]| {
        let entries = index.entries().iter();
        entries
            .filter(|place| kinds.contains(&place.chunk.kind))
            .count()
    };
    let content = of_kinds(&[ChunkKind::Data]);
    let lists = of_kinds(&[ChunkKind::Pieces]);
    assert!(content >= 6 && lists >= 3, "{content} {lists}");
    assert_eq!(copied.chunks_read as usize, content + lists);
    // Lists and segments are read twice: for what they need, and to be written anew. The head of a
    // pack is read once, or its two copies are.
    let twice = lists + of_kinds(&[ChunkKind::Segment]);
    let reads = reads.count_in(Verb::ReadAt, Area::Packs);
    let reads_max = content + 2 * twice + 2 * index.packs().len();
    assert!(reads <= reads_max, "{reads} of {reads_max}");
}

#[test]
fn a_dry_run_counts_what_would_be_read_and_writes_nothing() {
    let (scene, other) = (history(), Scene::new());
    let writes = RecordingStore::over(other.store.clone());
    let (source, target) = (scene.repository(), other.open(writes.clone()).unwrap());
    let options = CopyOptions {
        dry_run: true,
        ..CopyOptions::default()
    };
    let snapshots = source.snapshots().unwrap();
    let would = copy(&source, &target, &snapshots, &options, &Recorder::default()).unwrap();
    assert!(writes.calls().iter().all(|call| !call.verb.writes()));
    assert!(
        would
            .snapshots
            .iter()
            .all(|copied| copied.fate == Fate::WouldCopy)
    );
    let done = copy_all(&source, &target).unwrap();
    assert_eq!(would.chunks_to_read, done.chunks_read);
    assert!(would.bytes_to_read > 3 << 20);
}

#[test]
fn a_copy_killed_at_any_request_to_the_target_goes_on() {
    let (scene, other) = (history(), Scene::new());
    let mut stored = Vec::new();
    for after in 0..CALLS_MAX {
        let mut crashed = false;
        for last_is_done in [false, true] {
            let store = other.store.fork();
            let faulty = FaultyStore::over(store.clone());
            faulty.crash_after(after, last_is_done);
            let story = format!("killed at call {after}, done: {last_is_done}");
            let done = other
                .open(faulty.clone())
                .and_then(|target| copy_all(&scene.repository(), &target));
            crashed |= faulty.crashed();
            assert!(done.is_ok() || faulty.crashed(), "{story}: {done:?}");
            for named in other.open(store.clone()).unwrap().snapshots().unwrap() {
                let id = named.1.original.unwrap();
                let (_, tree) = scene.kept.iter().find(|(kept, _)| *kept == id).unwrap();
                scene.assert_restores(&other.open(store.clone()).unwrap(), &named, tree, &story);
            }
            let target = other.open(store.clone()).unwrap();
            let copied = copy_all(&scene.repository(), &target).expect(&story);
            stored.push(copied.chunks_stored);
            let target = other.open(store.clone()).unwrap();
            assert_copied(&scene, &target, &story);
            assert_whole(&other, &store, &story);
        }
        if !crashed {
            assert!(after > 10, "{after}");
            assert!(
                stored.contains(&0),
                "one was killed when all was stored: {stored:?}"
            );
            return;
        }
    }
    panic!("more than {CALLS_MAX} calls");
}

#[test]
fn a_source_that_stops_answering_ends_the_copy_and_makes_nothing_visible() {
    let scene = history();
    let calls = {
        let reads = RecordingStore::over(scene.store.clone());
        let source = scene.open(reads.clone()).unwrap();
        copy_all(&source, &Scene::new().repository()).unwrap();
        reads.calls().len() as u64
    };
    for after in (0..calls).step_by(3) {
        let other = Scene::new();
        let faulty = FaultyStore::over(scene.store.clone());
        faulty.crash_after(after, false);
        let done = scene
            .open(faulty)
            .and_then(|source| copy_all(&source, &other.repository()));
        assert!(done.is_err(), "at call {after}: {done:?}");
        assert!(other.repository().snapshots().unwrap().is_empty());
    }
}

#[test]
fn what_is_lost_in_the_source_is_named_and_costs_the_snapshots_that_need_it() {
    let mut scene = Scene::new();
    scene.write("a/one", &noise(1, 600 << 10));
    let lost = scene.keep();
    let lost_packs = scene.store.names(Area::Packs);
    std::fs::remove_file(scene.source().join("a/one")).unwrap();
    scene.write("b/two", &noise(2, 1000));
    let whole = scene.keep();
    // Segments are in packs of data, too: the pack of the large file's chunks is damaged inside.
    let index = scene.repository().index().unwrap();
    let place = (index.entries().iter())
        .filter(|place| place.chunk.kind == ChunkKind::Data)
        .find(|place| {
            let pack = index.pack(place.pack).id;
            lost_packs.iter().any(|name| name.id() == Some(pack))
        });
    let place = place.expect("the first snapshot has data");
    let name = ObjectName::pack(index.pack(place.pack).id);
    let mut bytes = scene.store.get(&name, u64::MAX).unwrap();
    bytes[place.chunk.offset as usize + 100] ^= 1;
    scene.store.delete(&name).unwrap();
    scene.store.put(&name, &bytes).unwrap();
    let other = Scene::new();
    let monitor = Recorder::default();
    let copied = copy_with(&scene.repository(), &other.repository(), &monitor).unwrap();
    assert!(copied.is_incomplete());
    assert_eq!((copied.chunks_lost, copied.paths_lost), (1, 1));
    for named in &copied.snapshots {
        match named.source {
            id if id == lost => assert!(matches!(named.fate, Fate::NotMade(_)), "{named:?}"),
            id => assert!(
                id == whole && matches!(named.fate, Fate::Copied(_)),
                "{named:?}"
            ),
        }
    }
    let problems = monitor.problems.lock().unwrap();
    let is_named = |text: &str| problems.iter().any(|problem| problem.text.contains(text));
    assert!(is_named(&place.chunk.id.short()), "{problems:?}");
    assert!(is_named(&lost.short()), "{problems:?}");
    assert!(
        problems
            .iter()
            .any(|problem| problem.path.ends_with(b"a/one")),
        "{problems:?}"
    );
    assert_whole(&other, &other.store, "without the damaged one");
}

#[test]
fn a_catalog_that_cannot_be_read_costs_its_snapshot_and_no_content_is_sent_for_it() {
    let mut scene = Scene::new();
    scene.write("a", &noise(1, 600 << 10));
    let lost = scene.keep();
    let snapshots = scene.repository().snapshots().unwrap();
    let segment = snapshots[0].1.layers[0].segments[0].id;
    scene.lose_from_index(|entry| entry.id == segment);
    let other = Scene::new();
    let copied = copy_all(&scene.repository(), &other.repository()).unwrap();
    assert_eq!(copied.snapshots.len(), 1);
    assert_eq!(copied.snapshots[0].source, lost);
    assert!(matches!(&copied.snapshots[0].fate, Fate::NotMade(_)));
    assert_eq!((copied.chunks_read, copied.chunks_stored), (0, 0));
}

#[test]
fn a_repository_is_not_copied_into_itself() {
    let scene = history();
    let error = copy_all(&scene.repository(), &scene.repository()).unwrap_err();
    assert!(error.to_string().contains("same repository"), "{error}");
}

#[test]
fn a_full_target_ends_the_copy_with_its_snapshots_whole_and_the_next_one_goes_on() {
    let (scene, other) = (history(), Scene::new());
    for bytes in [0, 10_000, 1 << 20, 2 << 20] {
        let store = other.store.fork();
        let faulty = FaultyStore::over(store.clone());
        faulty.full_after(bytes);
        let target = other.open(faulty.clone()).unwrap();
        let error = copy_all(&scene.repository(), &target).unwrap_err();
        let is_full =
            |error: &Error| matches!(error, Error::Store(store) if store.is_storage_full());
        assert!(is_full(&error), "{error}");
        assert_whole(&other, &store, "full");
        copy_all(&scene.repository(), &other.open(store.clone()).unwrap()).unwrap();
        assert_copied(&scene, &other.open(store.clone()).unwrap(), "room again");
    }
}

#[test]
fn what_a_prune_of_the_target_condemns_meanwhile_is_stored_again() {
    let (scene, other) = (history(), Scene::new());
    // A copy that was killed before its snapshots: nothing uses what it has stored.
    copy_all(&scene.repository(), &other.repository()).unwrap();
    let target = other.repository();
    for (id, _) in target.snapshots().unwrap() {
        target.forget_snapshot(id).unwrap();
    }
    let prunes = {
        let (store, scene) = (other.store.clone(), Scene::new());
        move || {
            let target = scene.open(store.clone()).unwrap();
            scene.clock.advance(Duration::from_secs(60));
            scene.prune(&target, Duration::from_secs(3600)).unwrap();
        }
    };
    let monitor = PruneAtCommit::new(prunes);
    let snapshots = scene.repository().snapshots().unwrap();
    let target = other.repository();
    copy(
        &scene.repository(),
        &target,
        &snapshots,
        &CopyOptions::default(),
        &monitor,
    )
    .unwrap();
    assert_copied(&scene, &other.repository(), "condemned meanwhile");
    other.clock.advance(Duration::from_secs(2 * 3600));
    other
        .prune(&other.repository(), Duration::from_secs(3600))
        .unwrap();
    assert_copied(&scene, &other.repository(), "and deleted");
    assert_whole(&other, &other.store, "condemned and deleted");
}

/// Prunes once, when content was copied and catalogs are about to be written.
struct PruneAtCommit<F> {
    prune: std::sync::Mutex<Option<F>>,
}

impl<F: FnOnce() + Send> PruneAtCommit<F> {
    fn new(prune: F) -> Self {
        PruneAtCommit {
            prune: std::sync::Mutex::new(Some(prune)),
        }
    }
}

impl<F: FnOnce() + Send> bale_pipeline::monitor::Monitor for PruneAtCommit<F> {
    fn progress(
        &self,
        phase: bale_pipeline::monitor::Phase,
        _progress: bale_pipeline::monitor::Progress,
    ) {
        if phase == bale_pipeline::monitor::Phase::Commit
            && let Some(prune) = self.prune.lock().unwrap().take()
        {
            prune();
        }
    }

    fn problem(&self, problem: &bale_pipeline::monitor::Problem) {
        panic!("{problem:?}");
    }
}

/// Requests and bytes that a copy reads of packs.
fn reads_of(scene: &Scene, other: &Scene) -> (Copied, usize, u64) {
    let reads = RecordingStore::over(scene.store.clone());
    let source = scene.open(reads.clone()).unwrap();
    let copied = copy_all(&source, &other.repository()).unwrap();
    let calls = reads.calls();
    let of_packs =
        |call: &&bale_testkit::Call| (call.verb, call.area) == (Verb::ReadAt, Area::Packs);
    let bytes = calls.iter().filter(of_packs).map(|call| call.bytes).sum();
    (copied, reads.count_in(Verb::ReadAt, Area::Packs), bytes)
}

#[test]
fn a_copy_reads_nothing_of_what_an_earlier_one_brought_but_catalogs() {
    let (mut scene, other) = (history(), Scene::new());
    let (first, _, bytes_of_first) = reads_of(&scene, &other);
    scene.write("dir/new", &noise(77, 40_000));
    scene.write("many/again", b"few");
    std::fs::remove_file(scene.source().join("new/d")).unwrap();
    scene.keep();
    let (next, requests, bytes) = reads_of(&scene, &other);
    assert_copied(&scene, &other.repository(), "the second copy");
    assert_whole(&other, &other.store, "the second copy");
    assert!(first.chunks_read > 6, "{first:?}");
    // One bundle is new, and what was read again with it.
    assert!(
        next.chunks_read <= 2 && next.bytes_read < 100_000,
        "{next:?}"
    );
    assert!(bytes * 8 < bytes_of_first, "{bytes} in {requests} requests");
}

/// Layers are merged after some backups: what is in them is written anew, and is known all the
/// same.
#[test]
fn catalogs_that_are_written_anew_cost_no_reading_of_content() {
    let (mut scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    let mut read = 0;
    for number in 0..12 {
        scene.write(&format!("day/{number}"), &noise(200 + number, 1_000));
        scene.keep();
        let (copied, ..) = reads_of(&scene, &other);
        assert_eq!(copied.snapshots.len(), scene.kept.len());
        read += copied.bytes_read;
    }
    assert_copied(&scene, &other.repository(), "twelve copies");
    assert!(read < 200_000, "{read}");
}

#[test]
fn what_the_target_lost_of_an_earlier_copy_is_read_and_stored_again() {
    let (mut scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    scene.write("dir/new", &noise(78, 3_000));
    let newest = scene.keep();
    for area in [Area::Packs, Area::Index] {
        for name in other.store.names(area) {
            let store = other.store.fork();
            store.delete(&name).unwrap();
            let story = format!("without {name}");
            let checked = bale_engine::verify::check(
                &other.open(store.clone()).unwrap(),
                Some(bale_engine::verify::Subset::All),
                &Recorder::default(),
            );
            let target = other.open(store.clone()).unwrap();
            bale_engine::verify::mark(&target, &checked.unwrap()).unwrap();
            copy_all(&scene.repository(), &target).expect(&story);
            let target = other.open(store).unwrap();
            let snapshots = target.snapshots().unwrap();
            let copy = copy_of(&snapshots, newest).expect(&story);
            let (_, tree) = scene.kept.last().unwrap();
            scene.assert_restores(&target, copy, tree, &story);
        }
    }
}

/// Each way in which a store loses an object, and what it leaves.
fn spoiled(other: &Scene) -> Vec<(String, DatedStore)> {
    let mut stores = Vec::new();
    for area in [Area::Packs, Area::Index] {
        for name in other.store.names(area) {
            let store = other.store.fork();
            store.delete(&name).unwrap();
            stores.push((format!("without {name}"), store));
            if area == Area::Packs {
                let store = other.store.fork();
                let mut bytes = store.get(&name, u64::MAX).unwrap();
                bytes.truncate(bytes.len() / 2);
                store.delete(&name).unwrap();
                store.put(&name, &bytes).unwrap();
                stores.push((format!("with half of {name}"), store));
            }
        }
    }
    stores
}

#[test]
fn copies_that_lost_something_in_the_target_are_filled_again_and_not_made_twice() {
    let (scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    let before = other.repository().snapshots().unwrap();
    let mut refilled = 0;
    for (story, store) in spoiled(&other) {
        let monitor = Recorder::default();
        let target = other.open(store.clone()).unwrap();
        let copied = copy_with(&scene.repository(), &target, &monitor).expect(&story);
        let is_refilled = |fate: &Fate| matches!(fate, Fate::Refilled(_));
        let fates = copied.snapshots.iter();
        let filled = fates.filter(|copied| is_refilled(&copied.fate)).count();
        assert!(filled > 0, "{story}: {copied:?}");
        refilled += filled;
        let notes = monitor.notes.lock().unwrap();
        let named = notes.iter().filter(|note| note.contains("filled again"));
        assert_eq!(named.count(), filled, "{story}: {notes:?}");
        let target = other.open(store.clone()).unwrap();
        assert_eq!(target.snapshots().unwrap(), before, "{story}: none twice");
        assert_copied(&scene, &target, &story);
        let again = copy_all(&scene.repository(), &target).expect(&story);
        let is_there = |fate: &Fate| matches!(fate, Fate::There(_));
        assert!(again.snapshots.iter().all(|copied| is_there(&copied.fate)));
        assert_eq!(again.chunks_stored, 0, "{story}");
    }
    assert!(refilled > 6, "{refilled}");
}

#[test]
fn a_dry_run_says_which_copies_would_be_filled_again() {
    let (scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    for name in other.store.names(Area::Packs) {
        other.store.delete(&name).unwrap();
    }
    let before = other.store.memory().objects();
    let options = CopyOptions {
        dry_run: true,
        ..CopyOptions::default()
    };
    let snapshots = scene.repository().snapshots().unwrap();
    let (source, target) = (scene.repository(), other.repository());
    let would = copy(&source, &target, &snapshots, &options, &Recorder::default()).unwrap();
    let is_copied = |copied: &bale_engine::copy::CopiedSnapshot| copied.fate == Fate::WouldCopy;
    assert!(would.snapshots.iter().all(is_copied), "{would:?}");
    assert_eq!(before, other.store.memory().objects());
}

/// Nothing in the target tells: the index object went with the packs that it named.
#[test]
fn with_verify_a_copy_finds_what_index_and_packs_together_do_not_tell() {
    let (scene, other) = (history(), Scene::new());
    copy_all(&scene.repository(), &other.repository()).unwrap();
    other.lose_from_index(|chunk| chunk.kind == ChunkKind::Data);
    let (source, target) = (scene.repository(), other.repository());
    let snapshots = source.snapshots().unwrap();
    let copy_and_count = |verify: bool| {
        let options = CopyOptions {
            verify,
            ..CopyOptions::default()
        };
        let copied = copy(&source, &target, &snapshots, &options, &Recorder::default()).unwrap();
        let is_refilled = |fate: &Fate| matches!(fate, Fate::Refilled(_));
        let fates = copied.snapshots.iter();
        fates.filter(|copied| is_refilled(&copied.fate)).count()
    };
    assert_eq!(copy_and_count(false), 0, "it is believed");
    assert_eq!(copy_and_count(true), 3);
    assert_copied(&scene, &other.repository(), "verified");
    assert_whole(&other, &other.store, "verified");
}

/// The older one of two that share a layer shows a row which the newer one hides.
#[test]
fn a_segment_that_lost_something_serves_no_snapshot_that_shows_it() {
    let mut scene = Scene::new();
    for number in 0..40 {
        scene.write(&format!("many/{number}"), &noise(number, 600));
    }
    scene.write("gone", &noise(1, 600 << 10));
    let before = scene.keep();
    std::fs::remove_file(scene.source().join("gone")).unwrap();
    let after = scene.keep();
    let index = scene.repository().index().unwrap();
    let data = index.entries().iter();
    let place = data.max_by_key(|place| place.chunk.sealed_bytes).unwrap();
    let name = ObjectName::pack(index.pack(place.pack).id);
    let whole = scene.store.get(&name, u64::MAX).unwrap();
    let put = |bytes: &[u8]| {
        scene.store.delete(&name).unwrap();
        scene.store.put(&name, bytes).unwrap();
    };
    let mut spoiled = whole.clone();
    spoiled[place.chunk.offset as usize + 200] ^= 1;
    put(&spoiled);
    let other = Scene::new();
    let copied = copy_all(&scene.repository(), &other.repository()).unwrap();
    assert!(matches!(copied.snapshots[0].fate, Fate::NotMade(_)));
    assert!(matches!(copied.snapshots[1].fate, Fate::Copied(_)));
    put(&whole);
    let copied = copy_all(&scene.repository(), &other.repository()).unwrap();
    assert!(!copied.is_incomplete(), "{copied:?}");
    let snapshots = other.repository().snapshots().unwrap();
    for id in [before, after] {
        assert!(copy_of(&snapshots, id).is_some());
    }
    assert_copied(&scene, &other.repository(), "healed");
}
