//! Layers: what a generation reads and writes, and what is shared.

use crate::catalog_seam::{Memory, SMALL, all, change, file, key, open, put};
use bale_format::{ChunkId, Entry, Key, Kind, Layer, SegmentRef};
use bale_repository::catalog::{
    BoxError, CatalogError, CatalogReader, CatalogWriter, CutRule, Difference, KeyRange,
    ParentCursor, SegmentSource, diff,
};
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// `count` files in directories of fifty.
fn tree(count: u64) -> BTreeMap<Key, Option<Entry>> {
    put((0..count).map(numbered))
}

fn numbered(number: u64) -> Entry {
    let parent = format!("home/d{:05}", number / 50);
    file(
        &key(parent.as_bytes(), format!("f{number:07}").as_bytes()),
        number,
    )
}

fn segments(layers: &[Layer]) -> usize {
    layers.iter().map(|layer| layer.segments.len()).sum()
}

fn ids(layer: &Layer) -> Vec<&SegmentRef> {
    layer.segments.iter().collect()
}

#[test]
fn a_run_without_changes_reads_and_writes_nothing() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(2000));
    let layers = change(&memory, &layers, SMALL, &put([numbered(7), numbered(1500)]));
    memory.forget();
    assert_eq!(change(&memory, &layers, SMALL, &BTreeMap::new()), layers);
    assert_eq!((memory.reads(), memory.rows_written()), (0, 0));
}

#[test]
fn a_first_backup_is_one_layer_and_an_empty_one_is_none() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(2000));
    assert_eq!(layers.len(), 1);
    assert_eq!(layers[0].rows, 2000);
    assert_eq!(
        layers[0]
            .segments
            .iter()
            .map(|segment| segment.bytes)
            .sum::<u64>(),
        1999 * 1000
    );
    assert_eq!(change(&memory, &[], SMALL, &BTreeMap::new()), []);
    let gone = tree(2000).into_keys().map(|key| (key, None)).collect();
    assert_eq!(change(&memory, &layers, SMALL, &gone), []);
}

#[test]
fn one_changed_row_writes_one_row() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(20_000));
    memory.forget();
    let next = change(&memory, &layers, SMALL, &put([numbered(11_111)]));
    assert_eq!((memory.reads(), memory.rows_written()), (0, 1));
    assert_eq!(next.len(), 2);
    assert_eq!(next[0], layers[0]);
}

#[test]
fn rows_written_follow_rows_changed_over_many_generations() {
    const ROWS: u64 = 20_000;
    const CHANGED: u64 = 20; // 0.1 %
    const GENERATIONS: u64 = 150;
    let memory = Arc::new(Memory::default());
    let mut layers = change(&memory, &[], SMALL, &tree(ROWS));
    memory.rows_written();
    let mut most = 0;
    let mut all_written = 0;
    for generation in 0..GENERATIONS {
        let mut changes = BTreeMap::new();
        for number in 0..CHANGED {
            let number = (number * 997 + generation * 31_337) % ROWS;
            let mut entry = numbered(number);
            entry.mtime.seconds = generation as i64;
            changes.insert(entry.key(), Some(entry));
        }
        layers = change(&memory, &layers, SMALL, &changes);
        let written = memory.rows_written();
        most = most.max(written);
        all_written += written;
        assert!(layers.len() <= 8);
    }
    // A row is written once, again for each merge of overlays, and with about eight unchanged rows
    // when it is folded.
    let per_row = all_written as f64 / (GENERATIONS * CHANGED) as f64;
    println!("{per_row:.1} rows written for one changed, {most} at most in one run");
    assert!(per_row < 25.0, "{per_row}");
    assert_eq!(all(&memory, &layers).len() as u64, ROWS);
}

#[test]
fn a_local_change_folds_only_its_own_stretch() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(20_000));
    memory.rows_written();
    // A new directory of 1000 files in one place.
    let new = (0..1000).map(|n| file(&key(b"home/d00200x", format!("{n:05}").as_bytes()), n));
    let next = change(&memory, &layers, SMALL, &put(new));
    let written = memory.rows_written();
    assert!((1000..1300).contains(&written), "{written}");
    assert_eq!(next.len(), 1, "all of it was folded");
    let old = ids(&layers[0]);
    let shared = next[0]
        .segments
        .iter()
        .filter(|segment| old.contains(segment))
        .count();
    assert!(
        shared >= old.len() - 2,
        "{shared} of {} segments are shared",
        old.len()
    );
}

#[test]
fn cuts_fall_into_step_after_an_insertion() {
    let memory = Arc::new(Memory::default());
    let before = change(&memory, &[], SMALL, &tree(20_000));
    let mut rows = tree(20_000);
    rows.extend(put(
        (0..10).map(|n| file(&key(b"home/d00100", format!("g{n}").as_bytes()), n))
    ));
    let after = change(&memory, &[], SMALL, &rows);
    let old: Vec<_> = before[0]
        .segments
        .iter()
        .map(|segment| segment.id)
        .collect();
    let new = after[0]
        .segments
        .iter()
        .filter(|segment| !old.contains(&segment.id))
        .count();
    assert!(
        new <= 3,
        "{new} of {} segments are new",
        after[0].segments.len()
    );
}

#[test]
fn the_format_cuts_between_its_bounds() {
    let memory = Arc::new(Memory::default());
    let names = (0..300_000).map(|n| file(&key(b"huge", format!("{n:08}").as_bytes()), 1));
    let layers = change(&memory, &[], CutRule::FORMAT, &put(names));
    let sizes: Vec<u32> = layers[0]
        .segments
        .iter()
        .map(|segment| segment.rows)
        .collect();
    assert!(sizes.len() >= 3, "{sizes:?}");
    assert!(
        sizes[..sizes.len() - 1]
            .iter()
            .all(|rows| (32_768..=131_072).contains(rows)),
        "{sizes:?}"
    );
    // A directory of 300,000 names streams, and one name of it is one segment.
    let reader = open(&memory, &layers);
    memory.reads();
    assert_eq!(
        reader.list(b"huge").filter(|row| row.is_ok()).count(),
        300_000
    );
    assert_eq!(memory.reads(), sizes.len() as u64);
    assert!(reader.lookup(b"huge/00123456").unwrap().is_some());
    assert_eq!(memory.reads(), 1);
}

#[test]
fn listing_and_subtree_are_exactly_that() {
    let memory = Arc::new(Memory::default());
    let deep = vec!["d"; 5000].join("/");
    let paths = [
        "", "a", "a-b", "a.b", "a/x", "a/y", "a-b/x", "a.b/x", "a/x/1", "a/x/1/2", "a/x.y", "b",
        "a\u{1}", "a\u{1}/x",
    ];
    let entries = paths.iter().map(|path| {
        let mut entry = file(&Key::of_path(path.as_bytes()), 1);
        let below = format!("{path}/");
        if path.is_empty() || paths.iter().any(|other| other.starts_with(&below)) {
            entry.kind = Kind::Directory;
        }
        entry
    });
    let entries = entries.chain([file(&Key::of_path(deep.as_bytes()), 2)]);
    let layers = change(&memory, &[], SMALL, &put(entries));
    let reader = open(&memory, &layers);
    let text = |rows: bale_repository::catalog::Rows| -> Vec<String> {
        let paths = rows.map(|row| String::from_utf8(row.unwrap().path()).unwrap());
        paths.filter(|path| *path != deep).collect()
    };
    assert_eq!(text(reader.list(b"")), ["a", "a\u{1}", "a-b", "a.b", "b"]);
    assert_eq!(text(reader.list(b"a")), ["a/x", "a/x.y", "a/y"]);
    assert_eq!(text(reader.list(b"a/x")), ["a/x/1"]);
    assert_eq!(text(reader.list(b"b")), [""; 0]);
    assert_eq!(
        text(reader.subtree(b"a").unwrap()),
        ["a", "a/x", "a/x.y", "a/y", "a/x/1", "a/x/1/2"]
    );
    assert_eq!(text(reader.subtree(b"a.b").unwrap()), ["a.b", "a.b/x"]);
    assert_eq!(text(reader.subtree(b"").unwrap()).len(), paths.len());
    assert_eq!(text(reader.subtree(b"nothing").unwrap()), [""; 0]);
    assert_eq!(reader.lookup(deep.as_bytes()).unwrap().unwrap().size, 2);
    assert_eq!(reader.lookup(b"").unwrap().unwrap().name, "");
    let above = reader.subtree(&deep.as_bytes()[..2001]).unwrap();
    assert_eq!(above.count(), 1);
}

#[test]
fn a_diff_reads_only_what_is_not_shared() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(20_000));
    let mut touched = numbered(5000);
    touched.mode = 0o600;
    let added = file(&key(b"home/d00100", b"zzz"), 1);
    let mut changes = put([touched.clone(), added.clone(), numbered(6000)]);
    changes.insert(numbered(7000).key(), None);
    changes.insert(key(b"never", b"was"), None);
    let next = change(&memory, &layers, SMALL, &changes);
    memory.reads();
    let differences: Vec<Difference> = diff(&open(&memory, &layers), &open(&memory, &next))
        .map(|difference| difference.unwrap())
        .collect();
    let expected = [
        Difference::Changed {
            old: numbered(5000),
            new: touched,
        },
        Difference::Added(added),
        Difference::Removed(numbered(7000)),
    ];
    assert_eq!(differences.len(), 3);
    assert!(
        expected
            .iter()
            .all(|difference| differences.contains(difference))
    );
    let reads = memory.reads();
    assert!(reads <= 12, "{reads} segments read");
    assert_eq!(
        diff(&open(&memory, &next), &open(&memory, &next)).count(),
        0
    );
    assert_eq!(memory.reads(), 0);
    let from_nothing = diff(&CatalogReader::empty(), &open(&memory, &next));
    assert_eq!(from_nothing.count(), 20_000);
}

#[test]
fn every_row_of_the_parent_is_found_or_vanished() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(3000));
    let layers = change(
        &memory,
        &layers,
        SMALL,
        &put((0..30).map(|n| numbered(n * 100))),
    );
    let mut cursor = ParentCursor::open(&open(&memory, &layers), Default::default());
    let (mut found, mut vanished) = (0, Vec::new());
    for number in (0..3000).filter(|number| number % 7 != 0) {
        let row = cursor.advance_to(&numbered(number).parent, &numbered(number).name, |entry| {
            vanished.push(entry.size);
            Ok::<(), CatalogError>(())
        });
        found += u64::from(row.unwrap().is_some());
    }
    let again = cursor.advance_to(&numbered(100).parent, &numbered(100).name, |_| {
        Ok::<(), CatalogError>(())
    });
    assert!(matches!(again, Err(CatalogError::Order { .. })));
    cursor
        .finish(|entry| {
            vanished.push(entry.size);
            Ok::<(), CatalogError>(())
        })
        .unwrap();
    assert_eq!(found + vanished.len() as u64, 3000);
    assert!(vanished.iter().all(|number| number % 7 == 0));
}

/// Rows wait while others are compared: where changes are spread over everything, each would keep
/// another segment.
#[test]
fn a_row_of_the_parent_keeps_nothing_of_its_segment() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(3_000));
    let mut cursor = ParentCursor::open(&open(&memory, &layers), Default::default());
    let key = numbered(1_000).key();
    let found = cursor.advance_to(&key.parent, &key.name, |_| Ok::<(), CatalogError>(()));
    let row = found.unwrap().expect("it is there").entry();
    drop(key);
    assert!(row.parent.is_unique() && row.name.is_unique());
}

#[test]
fn rows_between_ranges_are_not_read_and_all_others_are_passed() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(20_000));
    let again = put((0..200).map(|n| numbered(n * 100)));
    let layers = change(&memory, &layers, SMALL, &again);
    let below = |number: u64| KeyRange::below(&numbered(number).parent);
    // Not in order, the first and the last, and two that touch.
    let far = KeyRange {
        start: Some(numbered(3_000).key()),
        end: Some(numbered(17_000).key()),
    };
    let left_out = vec![below(19_990), far, below(17_000), below(0), below(900)];
    let ranges = KeyRange::all_but(left_out.clone());
    memory.reads();
    let cursor = ParentCursor::open_ranges(&open(&memory, &layers), ranges.clone());
    let mut passed = Vec::new();
    cursor
        .finish(|entry| {
            passed.push(entry.size);
            Ok::<(), CatalogError>(())
        })
        .unwrap();
    let is_left_out = |number: &u64| {
        let key = numbered(*number).key();
        let inside = left_out.iter().filter(|range| range.contains(&key)).count();
        let outside = ranges.iter().filter(|range| range.contains(&key)).count();
        assert_eq!(inside + outside, 1, "{number}");
        inside == 1
    };
    let rest: Vec<u64> = (0..20_000).filter(|number| !is_left_out(number)).collect();
    assert_eq!(passed, rest);
    let (read, of) = (memory.reads(), segments(&layers) as u64);
    assert!(read * 2 < of, "{read} segments read of {of}");
}

#[test]
fn all_but_nothing_is_all_and_all_but_all_is_nothing() {
    assert_eq!(KeyRange::all_but(Vec::new()), [KeyRange::all()]);
    assert_eq!(KeyRange::all_but(vec![KeyRange::all()]), []);
    let (home, inside) = (KeyRange::below(b"home"), KeyRange::below(b"home/d00003"));
    let rest = KeyRange::all_but(vec![inside.clone(), home.clone(), home.clone()]);
    assert_eq!(rest, KeyRange::all_but(vec![home.clone()]));
    let with_end = KeyRange::all_but(vec![home, KeyRange::all(), inside]);
    assert_eq!(with_end, []);
}

#[test]
fn a_writer_refuses_rows_out_of_order_and_everything_after() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(300));
    let mut writer = CatalogWriter::with_rule(
        open(&memory, &layers),
        |segment| memory.store(segment),
        SMALL,
    );
    writer.put(&numbered(100)).unwrap();
    assert!(matches!(
        writer.put(&numbered(100)),
        Err(CatalogError::Order { .. })
    ));
    assert!(matches!(
        writer.put(&numbered(200)),
        Err(CatalogError::Poisoned)
    ));
    assert!(matches!(
        writer.finish().err(),
        Some(CatalogError::Poisoned)
    ));
}

#[test]
fn a_failed_store_fails_the_catalog() {
    let full = |_| Err("no space".into());
    let mut writer = CatalogWriter::with_rule(CatalogReader::empty(), full, SMALL);
    writer.put(&numbered(1)).unwrap();
    assert!(matches!(
        writer.finish().err(),
        Some(CatalogError::Store(_))
    ));
}

#[test]
fn a_checkpoint_is_the_catalog_up_to_its_key() {
    let memory = Arc::new(Memory::default());
    let mut layers = Vec::new();
    let mut model: BTreeMap<Key, Entry> = BTreeMap::new();
    for generation in 0..6u64 {
        let changed =
            (0..4000).filter(|number| generation == 0 || number % (97 - generation) == generation);
        let mut changes = BTreeMap::new();
        for number in changed {
            let mut entry = numbered(number);
            entry.mtime.seconds = generation as i64;
            let removed = generation > 0 && number % 5 == 0;
            changes.insert(entry.key(), (!removed).then_some(entry));
        }
        let mut next_model = model.clone();
        let mut writer = CatalogWriter::with_rule(
            open(&memory, &layers),
            |segment| memory.store(segment),
            SMALL,
        );
        for (count, (key, entry)) in changes.iter().enumerate() {
            match entry {
                Some(entry) => {
                    writer.put(entry).unwrap();
                    next_model.insert(key.clone(), entry.clone());
                }
                None => {
                    writer.remove(key, 0).unwrap();
                    next_model.remove(key);
                }
            }
            if count % 37 == 0 {
                let holds_all = count % 2 == 0;
                let partial = writer.checkpoint(key, holds_all).unwrap();
                assert!(!holds_all || partial.until > *key);
                let rows = all(&memory, &partial.layers);
                let expected = next_model
                    .range(..partial.until.clone())
                    .map(|(_, entry)| entry);
                assert!(
                    rows.iter().eq(expected),
                    "generation {generation}, change {count}"
                );
            }
        }
        layers = writer.finish().unwrap().layers;
        model = next_model;
        assert!(all(&memory, &layers).iter().eq(model.values()));
    }
}

#[test]
fn a_snapshot_that_lies_about_its_segments_is_found_out() {
    let memory = Arc::new(Memory::default());
    let layers = change(&memory, &[], SMALL, &tree(1000));
    let lies: [fn(&mut Vec<SegmentRef>); 4] = [
        |segments| segments[1].rows += 1,
        |segments| segments[1].last.name = b"f9999999"[..].into(),
        |segments| segments[1].id = segments[2].id,
        |segments| segments.swap(0, 1),
    ];
    for lie in lies {
        let mut layers = layers.clone();
        lie(&mut layers[0].segments);
        let rows = CatalogReader::open(memory.clone(), layers)
            .map(|reader| reader.rows(Default::default()));
        let is_found = rows.map_or(true, |mut rows| rows.any(|row| row.is_err()));
        assert!(is_found);
    }
}

/// Far away, with room for three segments.
#[derive(Default)]
struct FarAway {
    memory: Arc<Memory>,
    fetched: Mutex<HashSet<ChunkId>>,
    /// Read without having been fetched before.
    alone: AtomicU64,
}

impl SegmentSource for FarAway {
    fn segment(&self, id: &ChunkId) -> Result<Bytes, BoxError> {
        if !self.fetched.lock().unwrap().remove(id) {
            self.alone.fetch_add(1, Ordering::Relaxed);
        }
        self.memory.segment(id)
    }

    fn ahead_max(&self) -> usize {
        16
    }

    fn fetch_ahead(&self, ids: &[ChunkId]) -> usize {
        self.fetched.lock().unwrap().extend(ids.iter().take(3));
        ids.len().min(3)
    }
}

#[test]
fn segments_that_there_was_no_room_for_are_named_again_and_none_is_fetched_alone() {
    let source = Arc::new(FarAway::default());
    let layers = change(&source.memory, &[], SMALL, &tree(5_000));
    let [layer] = &layers[..] else {
        panic!("{} layers", layers.len());
    };
    assert!(layer.segments.len() > 30);
    let catalog = CatalogReader::open(source.clone(), layers.clone()).unwrap();
    let rows = catalog.rows(Default::default()).map(|row| row.unwrap());
    assert!(rows.eq(all(&source.memory, &layers)));
    let alone = source.alone.load(Ordering::Relaxed);
    assert!(alone <= 1, "{alone} of {}", layer.segments.len());
}
