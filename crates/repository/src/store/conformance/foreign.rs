//! What others have put among the objects of a store: skipped by whoever lists objects, named to
//! whoever looks for it.

use super::{id, list, put};
use crate::store::{Area, ForeignEntry, ForeignKind, ObjectName, Store};

/// `plant` writes a file at a relative path of the store's own tree, making directories as needed.
pub fn foreign_names_are_skipped(store: &dyn Store, plant: &mut dyn FnMut(&str, &[u8])) {
    let name = ObjectName::key(id(1));
    put(store, &name, b"ours");
    let id = "0123456789abcdef".repeat(4);
    let foreign = [
        "keys/README".to_owned(),
        format!("keys/{id}.bak"),
        format!("index/{}", id.to_uppercase()),
        format!("index/{}", &id[2..]),
        format!("packs/{id}"),
        format!("packs/02/{id}"),
        format!("packs/01/{id}.tmp"),
        format!("runs/{id}"),
        format!("runs/xyz/{id}"),
        "snapshots/.DS_Store".to_owned(),
        format!("lost+found/{id}"),
    ];
    for path in &foreign {
        plant(path, b"not ours");
    }
    let listed: Vec<_> = Area::ALL
        .into_iter()
        .flat_map(|area| list(store, area).into_keys())
        .collect();
    assert_eq!(listed, [name]);
}

/// As `foreign_names_are_skipped`; and whoever looks for foreign names gets each of them once, by
/// itself or by the directory that it is in, and no others.
pub fn foreign_names_are_skipped_and_named(store: &dyn Store, plant: &mut dyn FnMut(&str, &[u8])) {
    let mut planted = Vec::new();
    foreign_names_are_skipped(store, &mut |path, bytes| {
        // Nobody looks beside the areas.
        if !path.starts_with("lost+found/") {
            planted.push(path.to_owned());
        }
        plant(path, bytes);
    });
    let mut named = Vec::new();
    for area in Area::ALL {
        let found = &mut |entry: ForeignEntry| named.push(entry);
        store.list_foreign(area, found).expect("list_foreign");
    }
    for path in &planted {
        let is_it = |entry: &&ForeignEntry| {
            let rest = path.strip_prefix(entry.path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let by = named.iter().filter(is_it).count();
        assert_eq!(by, 1, "{path} in {named:?}");
    }
    assert_eq!(named.len(), planted.len(), "{named:?}");
    let kinds = named.iter().map(|entry| entry.kind);
    assert!(kinds.into_iter().all(|kind| kind == ForeignKind::Name));
}
