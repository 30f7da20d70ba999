//! Packs of data hold nothing else, whichever operation writes them: what names and describes files
//! can be stored, listed and read without them (FORMAT.md, section 5).

use std::collections::HashMap;
use std::time::Duration;

use bale_engine::prune::{self, PruneOptions};
use bale_format::{ChunkKind, PackNumber};
use bale_pipeline::monitor::Recorder;
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::Repository;
use bale_testkit::Scene;
use bale_testkit::scene::noise;

/// How many chunks of data, and of metadata, each pack holds.
fn packs_of(repository: &Repository) -> HashMap<PackNumber, (u64, u64)> {
    let index = repository.reload_index().unwrap();
    let mut packs: HashMap<PackNumber, (u64, u64)> = HashMap::new();
    for place in index.entries() {
        let (data, metadata) = packs.entry(place.pack).or_default();
        match place.chunk.kind {
            ChunkKind::Data => *data += 1,
            _ => *metadata += 1,
        }
    }
    packs
}

fn check_unmixed(repository: &Repository) {
    let packs = packs_of(repository);
    let mixed = packs.values().filter(|(data, rest)| *data > 0 && *rest > 0);
    assert_eq!(mixed.count(), 0, "{packs:?}");
    for is_there in [
        |(data, _): &(u64, u64)| *data > 0,
        |(_, rest): &(u64, u64)| *rest > 0,
    ] {
        assert!(packs.values().any(is_there), "{packs:?}");
    }
}

#[test]
fn a_writer_of_many_threads_puts_data_and_metadata_in_packs_of_their_own() {
    let scene = Scene::new();
    let repository = scene.repository();
    let writer = ChunkWriter::start(repository.clone(), Default::default(), false).unwrap();
    for number in 0..400u64 {
        let kind = ChunkKind::ALL[number as usize % ChunkKind::ALL.len()];
        writer.store(kind, noise(number, 3000)).unwrap();
        if number == 200 {
            writer.flush().unwrap();
        }
    }
    writer.finish().unwrap();
    check_unmixed(&repository);
    // One of metadata for each flush, whatever the number of threads.
    let packs = packs_of(&repository);
    let metadata = packs.values().filter(|(_, rest)| *rest > 0).count();
    assert_eq!(metadata, 2, "{packs:?}");
}

#[test]
fn backups_and_prunes_do_not_mix_them() {
    let mut scene = Scene::new();
    for number in 0..20u64 {
        scene.write(&format!("small/{number}"), &noise(number, 9000));
    }
    scene.write("large", &noise(99, 700_000));
    scene.keep();
    for number in 0..18u64 {
        scene.write(&format!("small/{number}"), b"");
    }
    let kept = scene.keep();
    check_unmixed(&scene.repository());
    let repository = scene.repository();
    let all = repository.snapshots().unwrap();
    for (id, _) in all {
        if id != kept {
            repository.forget_snapshot(id).unwrap();
        }
    }
    let options = PruneOptions {
        grace: Duration::ZERO,
        repack_below_percent: 100,
    };
    scene.forget_newest_seen();
    let monitor = Recorder::default();
    let plan = prune::plan(&repository, &options, &monitor).unwrap();
    assert!(plan.bytes_to_repack() > 0);
    prune::apply(&repository, &plan, &options, &monitor).unwrap();
    check_unmixed(&scene.repository());
}
