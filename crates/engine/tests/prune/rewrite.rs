//! What is excluded afterwards is gone: from every snapshot, and after a prune from every chunk;
//! everything else is as it was, also if the rewrite is killed.

use std::fs;
use std::sync::Arc;

use bale_engine::prune::{self, PruneOptions};
use bale_engine::replace::replace;
use bale_engine::rewrite::{RewriteOptions, Rewritten, SnapshotFate, rewrite};
use bale_format::chunk::ChunkKind;
use bale_format::entry::join;
use bale_format::snapshot::Totals;
use bale_format::{Kind, ObjectId, SegmentKeys, Snapshot};
use bale_pipeline::filter::{Filter, FilterOptions, Pattern};
use bale_pipeline::monitor::Recorder;
use bale_repository::catalog::{CatalogReader, KeyRange, counted_rows};
use bale_repository::error::Result;
use bale_repository::repository::{Named, Repository};
use bale_repository::store::ObjectName;
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, FaultyStore, Scene, Tree, at_every_call};
use std::time::Duration;

const SECRET: &[u8] = b"the password of the production database";

fn options(patterns: &[&str], forget: bool) -> RewriteOptions {
    let pattern = |text: &&str| Pattern {
        text: (*text).to_owned(),
        ignore_case: false,
    };
    let filter = Filter::new(&FilterOptions {
        patterns: patterns.iter().map(pattern).collect(),
        ..FilterOptions::default()
    });
    RewriteOptions {
        filter: filter.unwrap(),
        patterns: patterns.iter().map(|text| (*text).to_owned()).collect(),
        forget,
        dry_run: false,
        host: "host".to_owned(),
        program: "test".to_owned(),
    }
}

fn rewrite_all(repository: &Arc<Repository>, options: &RewriteOptions) -> Result<Rewritten> {
    let all = repository.snapshots()?;
    rewrite(repository, &all, &[], options, &Recorder::default())
}

/// How many chunks that the index names hold the secret.
fn chunks_with_secret(repository: &Repository) -> usize {
    let index = repository.reload_index().unwrap();
    let holds = |place: &&bale_format::ChunkPlace| {
        let bytes = repository.read_chunk_uncached(&place.chunk.id, place.chunk.kind);
        bytes
            .unwrap()
            .windows(SECRET.len())
            .any(|bytes| bytes == SECRET)
    };
    index.entries().iter().filter(holds).count()
}

fn prune_all(scene: &Scene) {
    let repository = scene.repository();
    let options = PruneOptions {
        grace: Duration::ZERO,
        repack_below_percent: 100,
    };
    let monitor = Recorder::default();
    let plan = prune::plan(&repository, &options, &monitor).unwrap();
    prune::apply(&repository, &plan, &options, &monitor).unwrap();
}

/// Four backups of many small files: without the secret, with it among them, with it in another
/// place, and without it again but with those that share its bundles.
fn with_secrets() -> Scene {
    let mut scene = Scene::new();
    scene.write_tree();
    for number in 0..60 {
        scene.write(&format!("small/{number:02}"), &noise(number, 300));
    }
    scene.keep();
    scene.write("conf/db.secret", SECRET);
    for number in 0..60 {
        // Text, as the secret is, so that they are in one bundle.
        let text = format!("setting {number} of many\n").repeat(9);
        scene.write(&format!("conf/{number:02}"), text.as_bytes());
    }
    scene.keep();
    fs::remove_file(scene.source().join("conf/db.secret")).unwrap();
    scene.write("private/deep/db", SECRET);
    scene.write("private/large", &[SECRET, &noise(9, 600_000)[..]].concat());
    scene.write("small/00", b"changed");
    scene.keep();
    fs::remove_dir_all(scene.source().join("private")).unwrap();
    scene.write("conf/00", b"changed");
    scene.keep();
    scene
}

fn is_secret(path: &[u8]) -> bool {
    path.ends_with(b".secret") || path == b"private" || path.starts_with(b"private/")
}

/// Whether a segment that a snapshot points at has a row of the secret, also under another layer.
fn has_secret_row(repository: &Repository, (_, snapshot): &Named) -> bool {
    let mut segments = snapshot.layers.iter().flat_map(|layer| &layer.segments);
    let source = [&snapshot.paths[0].0[1..], b"/"].concat();
    segments.any(|segment| {
        let bytes = repository.read_chunk(&segment.id, ChunkKind::Segment);
        let keys = SegmentKeys::decode(&bytes.unwrap()).unwrap();
        (0..keys.rows()).any(|row| {
            let path = join(keys.parent(row), keys.name(row));
            path.strip_prefix(&source[..]).is_some_and(is_secret)
        })
    })
}

fn without_secrets(tree: &Tree) -> Tree {
    let kept = tree.0.iter().filter(|(path, _)| !is_secret(path));
    Tree(
        kept.map(|(path, node)| (path.clone(), node.clone()))
            .collect(),
    )
}

fn patterns(scene: &Scene) -> Vec<String> {
    let private = scene.source().join("private");
    vec!["*.secret".to_owned(), private.to_str().unwrap().to_owned()]
}

/// As a backup would have counted, and as many rows as its layers say.
fn assert_counted(repository: &Arc<Repository>, snapshot: &Snapshot) {
    let catalog =
        CatalogReader::open(repository.segment_source(), snapshot.layers.clone()).unwrap();
    let mut totals = Totals::default();
    let source = &snapshot.paths[0].0[1..];
    for row in catalog.rows(KeyRange::all()) {
        let row = row.unwrap();
        if !row.path().starts_with(source) {
            continue;
        }
        match row.kind {
            Kind::File => totals.files += 1,
            Kind::Directory => totals.dirs += 1,
            _ => totals.others += 1,
        }
        totals.bytes += if row.kind == Kind::File { row.size } else { 0 };
        totals.hard_links += u64::from(row.nlink > 1 && row.kind != Kind::Directory);
    }
    let found = snapshot.totals;
    assert_eq!((found.files, found.bytes), (totals.files, totals.bytes));
    assert_eq!(
        (found.others, found.hard_links),
        (totals.others, totals.hard_links)
    );
    let rows: u64 = snapshot.layers.iter().map(|layer| layer.rows).sum();
    assert_eq!(rows, counted_rows(&catalog).unwrap());
}

#[test]
fn what_is_excluded_is_in_no_snapshot_and_after_a_prune_in_no_chunk() {
    let mut scene = with_secrets();
    let patterns = patterns(&scene);
    let patterns: Vec<&str> = patterns.iter().map(|text| &text[..]).collect();
    let repository = scene.repository();
    assert!(chunks_with_secret(&repository) > 1);
    let rewritten = rewrite_all(&repository, &options(&patterns, true)).unwrap();
    let fates: Vec<_> = rewritten.snapshots.iter().map(|one| &one.fate).collect();
    assert_eq!(fates.len(), 4);
    // The first one has nothing of it, and shares no bundle.
    assert_eq!(*fates[0], SnapshotFate::Unchanged);
    assert!(
        fates[1..]
            .iter()
            .all(|fate| matches!(fate, SnapshotFate::Rewritten(_))),
        "{fates:?}"
    );
    let excluded: Vec<_> = rewritten
        .snapshots
        .iter()
        .map(|one| one.excluded.files)
        .collect();
    assert_eq!(excluded, [0, 1, 2, 0]);
    assert_eq!(rewritten.bundles_unreadable, 0);
    assert!(
        rewritten.bundles > 0,
        "a bundle is shared, or this shows little"
    );

    let expected: Vec<Tree> = scene
        .kept
        .iter()
        .map(|(_, tree)| without_secrets(tree))
        .collect();
    scene.kept.clear();
    let snapshots = repository.snapshots().unwrap();
    assert_eq!(snapshots.len(), 4);
    for ((id, snapshot), tree) in snapshots.iter().zip(expected) {
        assert_counted(&repository, snapshot);
        scene.kept.push((*id, tree));
    }
    prune_all(&scene);
    assert_eq!(chunks_with_secret(&scene.repository()), 0);
    scene.assert_restorable(&scene.store, "rewritten and pruned");
    let report = scene.check(&scene.store).unwrap();
    assert!(report.is_clean(), "{report:?}");
    // A backup goes on from there.
    let outcome = scene.backup(&scene.repository()).unwrap();
    assert_eq!(outcome.snapshot.counts.files_new, 0);
    scene.assert_restorable(&scene.store, "backed up again");
}

#[test]
fn the_old_snapshots_stay_until_they_are_to_go_and_a_second_rewrite_has_nothing_to_do() {
    let scene = with_secrets();
    let patterns = patterns(&scene);
    let patterns: Vec<&str> = patterns.iter().map(|text| &text[..]).collect();
    let repository = scene.repository();
    let before = repository.snapshots().unwrap();
    let dry = RewriteOptions {
        dry_run: true,
        ..options(&patterns, true)
    };
    let would = rewrite_all(&repository, &dry).unwrap();
    assert_eq!(would.snapshots[1].fate, SnapshotFate::WouldRewrite);
    assert_eq!(repository.snapshots().unwrap(), before);

    let rewritten = rewrite_all(&repository, &options(&patterns, false)).unwrap();
    let all = repository.snapshots().unwrap();
    assert_eq!(all.len(), 7);
    for (id, snapshot) in &before {
        assert!(
            all.iter()
                .any(|(other, one)| other == id && one == snapshot)
        );
    }
    let successors: Vec<&Named> = (all.iter())
        .filter(|(_, snapshot)| !snapshot.replaces.is_empty())
        .collect();
    assert_eq!(successors.len(), 3);
    for (_, snapshot) in &successors {
        let old = before
            .iter()
            .find(|(id, _)| *id == snapshot.replaces[0])
            .unwrap();
        assert_eq!((snapshot.time, &snapshot.run), (old.1.time, &old.1.run));
        assert!(snapshot.excludes.iter().any(|text| text == "*.secret"));
    }
    let is_new = |id: &ObjectId| before.iter().all(|(other, _)| other != id);
    for one in &rewritten.snapshots[1..] {
        assert!(matches!(&one.fate, SnapshotFate::Rewritten(id) if is_new(id)));
    }
    // Of a source with both the successor is the newest.
    let now = repository.clock().time();
    let newest = bale_repository::snapshots::newest_first(&all, now);
    assert!(!newest.in_order[0].1.replaces.is_empty());

    let successors: Vec<Named> = successors.into_iter().cloned().collect();
    let monitor = Recorder::default();
    let again = rewrite(
        &repository,
        &successors,
        &before,
        &options(&patterns, true),
        &monitor,
    );
    let again = again.unwrap();
    assert!(
        again
            .snapshots
            .iter()
            .all(|one| one.fate == SnapshotFate::Unchanged),
        "{again:?}"
    );
    // And who holds a row of it still is named: the two that have it, and the last one if it is in
    // layers of which the lowest is theirs.
    let holding = before.iter().filter(|one| has_secret_row(&repository, one));
    let holding: Vec<_> = holding.map(|(id, _)| *id).collect();
    assert_eq!(again.held_by, holding);
    let (first, ids) = (&before[0].0, before[1..3].iter().map(|(id, _)| *id));
    assert!(!holding.contains(first) && holding.starts_with(&ids.collect::<Vec<_>>()));
}

/// As after one that was killed before it removed them.
#[test]
fn a_second_rewrite_takes_the_successors_that_are_there() {
    let scene = with_secrets();
    let patterns = patterns(&scene);
    let patterns: Vec<&str> = patterns.iter().map(|text| &text[..]).collect();
    let repository = scene.repository();
    let first = rewrite_all(&repository, &options(&patterns, false)).unwrap();
    assert_eq!(repository.snapshots().unwrap().len(), 7);
    let second = rewrite_all(&repository, &options(&patterns, true)).unwrap();
    assert!(second.is_old_removed);
    let snapshots = repository.snapshots().unwrap();
    assert_eq!(snapshots.len(), 4);
    for one in &first.snapshots[1..] {
        let SnapshotFate::Rewritten(id) = one.fate else {
            panic!("{one:?}");
        };
        assert!(snapshots.iter().any(|(other, _)| *other == id));
    }
}

/// What cannot be read is found by the old snapshots, once it can be again.
#[test]
fn old_snapshots_stay_while_a_bundle_that_holds_some_of_it_cannot_be_read() {
    let scene = with_secrets();
    let repository = scene.repository();
    let pattern = format!("{}/conf/db.secret", scene.source().display());
    let index = repository.index().unwrap();
    let holds = |place: &&bale_format::ChunkPlace| {
        let is_data = place.chunk.kind == bale_format::ChunkKind::Data;
        let bytes = repository.read_chunk_uncached(&place.chunk.id, place.chunk.kind);
        is_data
            && bytes
                .unwrap()
                .windows(SECRET.len())
                .any(|bytes| bytes == SECRET)
    };
    let packs: Vec<_> = (index.entries().iter().filter(holds))
        .map(|place| ObjectName::pack(index.packs()[place.pack.0 as usize].id))
        .collect();
    let whole = scene.store.memory().objects().clone();
    for pack in &packs {
        let mut bytes = whole[pack].clone();
        bytes
            .iter_mut()
            .skip(200)
            .step_by(50)
            .for_each(|byte| *byte ^= 1);
        scene.store.memory().overwrite(pack, bytes);
    }
    let before = repository.snapshots().unwrap().len();
    let rewritten = rewrite_all(&scene.repository(), &options(&[&pattern], true)).unwrap();
    assert!(
        rewritten.bundles_unreadable > 0 && !rewritten.is_old_removed,
        "{rewritten:?} {packs:?}"
    );
    assert!(repository.snapshots().unwrap().len() > before);
    for pack in &packs {
        scene.store.memory().overwrite(pack, whole[pack].clone());
    }
    let again = rewrite_all(&scene.repository(), &options(&[&pattern], true)).unwrap();
    assert!(again.is_old_removed && again.bundles_unreadable == 0);
}

#[test]
fn a_source_itself_is_not_excluded() {
    let scene = with_secrets();
    let repository = scene.repository();
    let name = scene.source();
    let name = name.file_name().unwrap().to_str().unwrap();
    let refused = rewrite_all(&repository, &options(&[name], true)).unwrap_err();
    assert!(
        refused.to_string().contains("forget the snapshot"),
        "{refused}"
    );
    assert_eq!(repository.snapshots().unwrap().len(), 4);
}

/// Each snapshot restores to all of what it was, or to that without the secrets, and of each backup
/// one is there at least.
fn assert_either(scene: &Scene, store: &DatedStore, story: &str) {
    let repository = scene.open(store.clone()).expect(story);
    let snapshots = repository.snapshots().expect(story);
    let mut found = vec![false; scene.kept.len()];
    for snapshot in &snapshots {
        let of = |id: &ObjectId| scene.kept.iter().position(|(kept, _)| kept == id);
        let (at, is_new) = match of(&snapshot.0) {
            Some(at) => (at, false),
            None => (of(&snapshot.1.replaces[0]).expect(story), true),
        };
        let kept = &scene.kept[at].1;
        let expected = if is_new {
            without_secrets(kept)
        } else {
            kept.clone()
        };
        scene.assert_restores(&repository, snapshot, &expected, story);
        found[at] = true;
    }
    assert!(found.iter().all(|found| *found), "{story}: {found:?}");
    let report = scene.check(store).expect(story);
    assert!(report.is_clean(), "{story}: {report:?}");
}

#[test]
fn a_rewrite_killed_anywhere_leaves_every_backup_in_one_form_or_the_other() {
    let scene = with_secrets();
    let patterns = patterns(&scene);
    let patterns: Vec<&str> = patterns.iter().map(|text| &text[..]).collect();
    let calls = at_every_call(
        &scene.store,
        "rewrite",
        |store: FaultyStore| {
            scene.forget_newest_seen();
            rewrite_all(&scene.open(store)?, &options(&patterns, true)).map(drop)
        },
        |store, story| assert_either(&scene, store, story),
    );
    assert!(calls > 10, "{calls}");
}

#[test]
fn a_pin_killed_anywhere_leaves_the_snapshot_pinned_or_not() {
    let mut scene = Scene::new();
    scene.write_tree();
    let id = scene.keep();
    at_every_call(
        &scene.store,
        "pin",
        |store: FaultyStore| {
            scene.forget_newest_seen();
            let repository = scene.open(store)?;
            let named = repository.snapshots()?.remove(0);
            let pinned = Snapshot {
                pinned: true,
                ..named.1.clone()
            };
            replace(&repository, &named, pinned).map(drop)
        },
        |store, story| {
            let repository = scene.open(store.clone()).expect(story);
            let snapshots = repository.snapshots().expect(story);
            assert!(!snapshots.is_empty(), "{story}");
            for (found, snapshot) in &snapshots {
                assert_eq!(*found != id, snapshot.pinned, "{story}");
                assert!(*found == id || snapshot.replaces == [id], "{story}");
            }
            assert_either(&scene, store, story);
        },
    );
}

/// A backup to which no file looks as if it could still change: those are read again by the next,
/// and their rows written anew.
fn keep_settled(scene: &mut Scene) {
    std::thread::sleep(Duration::from_millis(300));
    scene.keep();
}

/// Catalogs of several segments in several layers, of which some count in part.
#[test]
fn large_catalogs_lose_what_is_excluded_and_nothing_else() {
    let mut scene = Scene::new();
    let long = "long".repeat(40);
    let name = |directory: u32, number: u32| match (directory * 1000 + number) % 997 {
        0 => format!("d{directory:02}/{number:04}{long}.secret"),
        _ => format!("d{directory:02}/{number:04}{long}"),
    };
    for directory in 0..70 {
        for number in 0..1000 {
            scene.write(&name(directory, number), &number.to_le_bytes());
        }
    }
    keep_settled(&mut scene);
    // A few everywhere: an overlay over all of the base.
    for directory in 0..70 {
        scene.write(&format!("d{directory:02}/more"), &[1; 10]);
    }
    scene.write("d20/more.secret", SECRET);
    keep_settled(&mut scene);
    // Many at one place: that stretch is folded, and counts no more in the overlay.
    for directory in 30..50 {
        for number in (0..1000).step_by(2) {
            let _ = fs::remove_file(scene.source().join(name(directory, number)));
        }
    }
    keep_settled(&mut scene);
    scene.write("d60/more.secret", SECRET);
    scene.write("d60/more", b"changed");
    keep_settled(&mut scene);
    let repository = scene.repository();
    let before = repository.snapshots().unwrap();
    let layers = before.iter().flat_map(|(_, one)| &one.layers);
    let segments = layers.flat_map(|layer| &layer.segments);
    let in_part = segments.filter(|one| one.from.is_some() || one.to.is_some());
    assert!(in_part.count() > 0, "or this shows nothing");
    rewrite_all(&repository, &options(&["*.secret"], true)).unwrap();
    let after = repository.snapshots().unwrap();
    for ((_, old), (_, new)) in before.iter().zip(&after) {
        assert_counted(&repository, new);
        let rows = |one: &Snapshot| {
            let catalog = CatalogReader::open(repository.segment_source(), one.layers.clone());
            let rows = catalog.unwrap().rows(KeyRange::all());
            rows.map(|row| row.unwrap()).collect::<Vec<_>>()
        };
        let expected = rows(old);
        let expected: Vec<_> = (expected.iter())
            .filter(|row| !row.name.ends_with(b".secret"))
            .map(|row| (row.path(), row.size, row.content_hash))
            .collect();
        let found = rows(new);
        let found: Vec<_> = (found.iter())
            .map(|row| (row.path(), row.size, row.content_hash))
            .collect();
        assert!(found == expected);
    }
    prune_all(&scene);
    let report = scene.check(&scene.store).unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(chunks_with_secret(&scene.repository()), 0);
}
