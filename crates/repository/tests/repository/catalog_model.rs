//! A catalog behaves as a sorted map through any number of generations, and costs what has changed.

use crate::catalog_seam::{Memory, SMALL, all, change, file, key, open};
use bale_format::{Entry, Key, Layer};
use bale_repository::catalog::{CatalogWriter, KeyRange, LAYERS_MAX, splice};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Keys near each other, with all the bytes that make orders go wrong.
fn any_key() -> impl Strategy<Value = Key> {
    let component = prop_oneof![
        8 => (0..40u32).prop_map(|number| format!("n{number}").into_bytes()),
        2 => prop::sample::select(vec![
            b"a".to_vec(), b"a.b".to_vec(), b"a-b".to_vec(), b"a \
                b".to_vec(), b"\x01".to_vec(), b"a\x01".to_vec(),
            b"\xff\xfe".to_vec(), "\u{e9}".as_bytes().to_vec(),
        ]),
    ];
    let parent = prop::collection::vec(component.clone(), 0..3).prop_map(|parts| parts.join(&b'/'));
    prop_oneof![
        60 => (parent, component).prop_map(|(parent, name)| key(&parent, &name)),
        1 => Just(key(b"", b"")),
    ]
}

/// One generation: some keys anywhere, and a range that is removed or rewritten as a whole. Some
/// stop on the way, one in a thousand parts as far, and are gone on from by the next.
fn any_generation() -> impl Strategy<Value = Generation> {
    let single = prop::collection::vec((any_key(), prop::option::weighted(0.7, 1..1000u64)), 0..60);
    let stretch = prop::option::weighted(0.3, (any_key(), any_key(), prop::option::of(1..1000u64)));
    let stops = prop::option::weighted(0.3, (0..1000usize, any::<bool>()));
    (single, stretch, stops).prop_map(|(single, stretch, stops)| Generation {
        single,
        stretch,
        stops,
    })
}

#[derive(Debug, Clone)]
struct Generation {
    single: Vec<(Key, Option<u64>)>,
    stretch: Option<(Key, Key, Option<u64>)>,
    /// After how many thousandths of its changes, and whether the record holds all of them.
    stops: Option<(usize, bool)>,
}

impl Generation {
    fn changes(&self, model: &BTreeMap<Key, Entry>) -> Changes {
        let mut changes = BTreeMap::new();
        if let Some((one, other, size)) = &self.stretch {
            let (start, end) = (one.min(other), one.max(other));
            for (key, _) in model.range(start.clone()..end.clone()) {
                changes.insert(key.clone(), size.map(|size| file(key, size)));
            }
        }
        for (key, size) in &self.single {
            changes.insert(key.clone(), size.map(|size| file(key, size)));
        }
        changes
    }
}

/// What changes, by key; `None` removes.
type Changes = BTreeMap<Key, Option<Entry>>;

fn apply(model: &mut BTreeMap<Key, Entry>, changes: &Changes) {
    for (key, entry) in changes {
        match entry {
            Some(entry) => drop(model.insert(key.clone(), entry.clone())),
            None => drop(model.remove(key)),
        }
    }
}

/// Rows are counted exactly as long as no generation stopped.
fn check_layers(layers: &[Layer], memory: &Arc<Memory>, is_exact: bool) {
    assert!(layers.len() <= LAYERS_MAX, "{} layers", layers.len());
    for layer in layers {
        let rows =
            bale_repository::catalog::counted_rows(&open(memory, std::slice::from_ref(layer)))
                .unwrap();
        assert!(rows <= layer.rows, "rows that count");
        assert!(rows == layer.rows || !is_exact, "rows that count");
    }
}

/// A generation that makes some of its changes and a record of them.
struct Stopped {
    /// What the next one goes on from,
    spliced: Vec<Layer>,
    /// and the changes that it holds.
    made: Changes,
    /// What the writer of the record itself makes of all changes.
    gone_on: Vec<Layer>,
}

fn stopped(
    memory: &Arc<Memory>,
    layers: &[Layer],
    changes: &Changes,
    (parts, holds_all): (usize, bool),
) -> Option<Stopped> {
    let store = |segment| memory.store(segment);
    let mut writer = CatalogWriter::with_rule(open(memory, layers), store, SMALL);
    let make = |writer: &mut CatalogWriter<_>, range: std::ops::Range<usize>| {
        for (key, entry) in changes.iter().take(range.end).skip(range.start) {
            match entry {
                Some(entry) => writer.put(entry).unwrap(),
                None => writer.remove(key, 0).unwrap(),
            }
        }
    };
    let stop = changes.len() * parts / 1000;
    make(&mut writer, 0..stop);
    let (last, _) = changes.iter().take(stop).next_back()?;
    let partial = writer.checkpoint(last, holds_all).unwrap();
    assert!(!holds_all || partial.until > *last, "all is in the record");
    let made = changes.range(..partial.until.clone());
    let made = made.map(|(key, entry)| (key.clone(), entry.clone()));
    make(&mut writer, stop..changes.len());
    Some(Stopped {
        spliced: splice(&partial.layers, layers, &partial.until),
        made: made.collect(),
        gone_on: writer.finish().unwrap().layers,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn merged_rows_equal_a_sorted_map_after_every_generation(
        first in prop::collection::btree_set(any_key(), 0..1500),
        generations in prop::collection::vec(any_generation(), 1..25),
        probes in prop::collection::vec((any_key(), any_key()), 8),
    ) {
        let memory = Arc::new(Memory::default());
        let mut model: BTreeMap<Key, Entry> = first.iter().map(|key| (key.clone(), file(key, 1))).collect();
        let start = model.iter().map(|(key, entry)| (key.clone(), Some(entry.clone()))).collect();
        let mut layers = change(&memory, &[], SMALL, &start);
        let mut is_exact = true;
        for generation in &generations {
            let changes = generation.changes(&model);
            let stops = generation.stops.and_then(|stops| stopped(&memory, &layers, &changes, stops));
            let gone_on = stops.as_ref().map(|stopped| stopped.gone_on.clone());
            if let Some(Stopped { spliced, made, .. }) = stops {
                (layers, is_exact) = (spliced, false);
                apply(&mut model, &made);
                prop_assert!(all(&memory, &layers).iter().eq(model.values()));
            }
            layers = change(&memory, &layers, SMALL, &changes);
            apply(&mut model, &changes);
            prop_assert!(all(&memory, &layers).iter().eq(model.values()));
            check_layers(&layers, &memory, is_exact);
            if let Some(gone_on) = gone_on {
                prop_assert!(all(&memory, &gone_on).iter().eq(model.values()));
            }
        }
        let reader = open(&memory, &layers);
        for (one, other) in probes {
            let found = reader.lookup(&bale_format::entry::join(&one.parent, &one.name)).unwrap();
            prop_assert_eq!(found.as_ref(), model.get(&one));
            let (start, end) = (one.clone().min(other.clone()), one.max(other));
            let range = KeyRange { start: Some(start.clone()), end: Some(end.clone()) };
            let rows: Vec<Entry> = reader.rows(range).map(|row| row.unwrap()).collect();
            prop_assert!(rows.iter().eq(model.range(start..end).map(|(_, entry)| entry)));
        }
    }
}
