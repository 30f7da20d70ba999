//! A pack that lies in two segments, as a prune leaves it that was stopped: both can be given back.

use std::sync::Arc;

use bale_format::{Keys, ObjectId, RepositoryId, RootKey};
use bale_pipeline::random::OsRandom;
use bale_repository::store::{Area, MemoryStore, ObjectName, PackContent, Store};
use bale_repository::stretched::{Reclaimed, STRETCH_BYTES_MIN, StretchedStore};
use bale_testkit::scene::noise;

fn over(base: MemoryStore) -> StretchedStore {
    let keys = Keys::derive(&RootKey::from_bytes([7; 32]), RepositoryId([3; 16]));
    StretchedStore::new(Arc::new(base), keys, Arc::new(OsRandom), STRETCH_BYTES_MIN)
}

/// Stores something like a pack.
fn upload(store: &StretchedStore, seed: u64, len: usize) -> (ObjectName, Vec<u8>) {
    let bytes = noise(seed, len);
    let name = ObjectName::pack(ObjectId(*blake3::hash(&bytes).as_bytes()));
    let mut never = |_: &_| panic!("a memory has no second tries");
    let pack = bytes.clone().into();
    store
        .upload(&name, &pack, PackContent::Data, &mut never)
        .unwrap();
    (name, bytes)
}

#[test]
fn segments_that_share_a_pack_are_both_given_back() {
    let memory = MemoryStore::new();
    let writer = over(memory.clone());
    let (kept, bytes) = upload(&writer, 1, 10_000);
    let (gone, _) = upload(&writer, 2, 90_000);
    writer.settle().unwrap();
    let first = writer.uses().unwrap()[0].name;
    // Copied and durable, and then the prune was killed.
    assert_eq!(
        writer.copy_rest(&first).unwrap(),
        Reclaimed::Copied(100_000)
    );
    writer.settle().unwrap();

    let store = over(memory.clone());
    store.list(Area::Packs, &mut |_| {}).unwrap();
    store.delete(&gone).unwrap();
    let mut uses = store.uses().unwrap();
    uses.retain(|stretch| stretch.is_below(40));
    assert_eq!(uses.len(), 2);
    for stretch in &uses {
        assert!(matches!(
            store.copy_rest(&stretch.name),
            Ok(Reclaimed::Copied(_))
        ));
    }
    store.settle().unwrap();
    for stretch in &uses {
        assert!(store.let_go(&stretch.name).unwrap());
    }
    let later = over(memory);
    assert_eq!(later.get(&kept, 1 << 20).unwrap(), bytes);
    let uses = later.uses().unwrap();
    assert_eq!(uses.len(), 1);
    assert_eq!(uses[0].used, 10_000, "it is there once");
}
