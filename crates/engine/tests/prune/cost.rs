//! What a prune costs follows what is new and what it deletes.

use std::time::Duration;

use bale_repository::store::Area;
use bale_testkit::{RecordingStore, Scene, Verb};

const GRACE: Duration = Duration::from_secs(24 * 3600);

/// Reads of packs by one prune that a new process makes.
fn reads(scene: &Scene) -> usize {
    let store = RecordingStore::over(scene.store.clone());
    let repository = scene.open(store.clone()).unwrap();
    scene.prune(&repository, GRACE).unwrap();
    store.count_in(Verb::ReadAt, Area::Packs)
}

fn scene(snapshots: u64) -> Scene {
    let mut scene = Scene::new();
    for number in 0..snapshots {
        scene.write(&format!("directory-{number}/file"), &number.to_le_bytes());
        scene.keep();
    }
    scene
}

#[test]
fn a_second_prune_reads_no_segment_and_a_later_one_only_the_new_ones() {
    let mut scene = scene(6);
    let first = reads(&scene);
    assert!(first >= 6, "{first}");
    assert_eq!(reads(&scene), 0);
    scene.write("directory-0/another", b"x");
    scene.keep();
    let third = reads(&scene);
    assert!((1..first).contains(&third), "{third}, {first}");
    scene.assert_sound(&scene.store, "pruned thrice");
}

/// The cache is never the truth: gone, cut, or another's, a prune finds the same.
#[test]
fn without_the_memory_of_earlier_prunes_a_prune_does_the_same() {
    let mut scene = scene(3);
    let (id, _) = scene.kept.remove(0);
    scene.repository().forget_snapshot(id).unwrap();
    scene.clock.advance(2 * GRACE);
    let cache = scene.repository().cache_dir().unwrap().join("segment-uses");
    reads(&scene);
    let whole = std::fs::read(&cache).unwrap();
    for len in [0, 7, 40, whole.len() - 1] {
        std::fs::write(&cache, &whole[..len]).unwrap();
        assert!(reads(&scene) > 0, "{len} bytes are not believed");
    }
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    std::fs::write(&cache, &flipped).unwrap();
    assert!(reads(&scene) > 0);
    std::fs::write(&cache, &whole).unwrap();
    assert_eq!(reads(&scene), 0);
    scene.assert_sound(&scene.store, "pruned with all kinds of caches");
}

/// A pack of one small chunk is mostly head and trailer. All of it is used, so no prune copies it.
#[test]
fn small_packs_in_use_are_not_copied_again_and_again() {
    let scene = scene(3);
    scene.clock.advance(2 * GRACE);
    for _ in 0..3 {
        let pruned = scene.prune(&scene.repository(), GRACE).unwrap();
        assert_eq!((pruned.bytes_repacked, pruned.packs_condemned), (0, 0));
    }
}

/// What a cache says is good enough for a plan. Who deletes reads every segment, and the copies
/// that stay, and no more.
#[test]
fn who_deletes_reads_what_is_used_whatever_the_cache_says() {
    let mut scene = scene(3);
    let (id, _) = scene.kept.remove(0);
    scene.repository().forget_snapshot(id).unwrap();
    scene.clock.advance(2 * GRACE);
    reads(&scene);
    assert_eq!(reads(&scene), 0, "nothing is due: the plan is by the cache");
    scene.clock.advance(2 * GRACE);
    let index = scene.repository().reload_index().unwrap();
    let packs = index.packs().len();
    let deleting = reads(&scene);
    assert!(deleting > 0, "packs are due");
    assert!(deleting <= 4 * packs, "{deleting} reads of {packs} packs");
    assert_eq!(reads(&scene), 0, "nothing is due any more");
    scene.assert_sound(&scene.store, "deleted");
}
