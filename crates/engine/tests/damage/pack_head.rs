//! The first 48 bytes of a pack stand at its end once more: whatever becomes of one copy takes
//! nothing away.

use std::io;
use std::ops::Range;
use std::time::Duration;

use bale_engine::backup::BackupOptions;
use bale_engine::repair::{repair_index, repair_packs};
use bale_engine::verify::{CheckReport, check, mark};
use bale_format::ChunkKind;
use bale_pipeline::monitor::Recorder;
use bale_repository::store::{
    Area, ObjectInfo, ObjectName, ObjectWriter, Result as StoreResult, Store, StoreError,
};
use bale_testkit::scene::noise;
use bale_testkit::{DatedStore, Scene};

const HEAD_BYTES: usize = 48;

/// Two snapshots; each backup writes a pack, or one for each thread.
fn two_packs() -> Scene {
    let mut scene = Scene::new();
    scene.write("a", b"first file\n");
    scene.write("dir/b", &noise(3, 2_000));
    scene.keep();
    scene.write("dir/c", &noise(4, 900));
    scene.keep();
    assert!(scene.store.names(Area::Packs).len() >= 2);
    scene
}

fn bytes_of(store: &DatedStore, name: &ObjectName) -> Vec<u8> {
    store.memory().objects().remove(name).unwrap()
}

fn with(store: &DatedStore, name: &ObjectName, bytes: Vec<u8>) -> DatedStore {
    let changed = store.fork();
    changed.memory().overwrite(name, bytes);
    changed
}

/// Each pack with each byte of these turned round, and what was done to it.
fn flipped(
    scene: &Scene,
    range: impl Fn(usize) -> Range<usize>,
) -> Vec<(DatedStore, ObjectName, usize)> {
    let mut all = Vec::new();
    for name in scene.store.names(Area::Packs) {
        let bytes = bytes_of(&scene.store, &name);
        for at in range(bytes.len()) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            all.push((with(&scene.store, &name, flipped), name, at));
        }
    }
    all
}

/// Which of its packs gets a chunk depends on which encoding thread is free.
fn has_more_than_data(scene: &Scene, name: &ObjectName) -> bool {
    let index = scene.repository().index().unwrap();
    let mut chunks = index.entries().iter();
    chunks.any(|place| {
        name.id() == Some(index.pack(place.pack).id) && place.chunk.kind != ChunkKind::Data
    })
}

/// By a check that reads all, and by one that reads no data wherever it opens the pack: one that
/// has nothing but data it does not open.
fn assert_checks_name_the_head(scene: &Scene, store: &DatedStore, name: &ObjectName, story: &str) {
    let text = "its first 48 bytes are damaged";
    assert_named_and_nothing_lost(&scene.check(store).unwrap(), name, text, story);
    if has_more_than_data(scene, name) {
        let repository = scene.open(store.clone()).unwrap();
        let structure = check(&repository, None, &Recorder::default()).unwrap();
        assert_named_and_nothing_lost(&structure, name, text, story);
    }
}

fn assert_named_and_nothing_lost(report: &CheckReport, name: &ObjectName, text: &str, story: &str) {
    let id = name.id().unwrap();
    assert_eq!(report.packs_damaged, [id], "{story}: {report:?}");
    let [damage] = &report.damage[..] else {
        panic!("{story}: {report:?}");
    };
    assert_eq!(damage.what, format!("pack {id}"), "{story}");
    assert!(damage.text.starts_with(text), "{story}: {}", damage.text);
    assert!(
        damage.text.contains("0 chunks are lost"),
        "{story}: {}",
        damage.text
    );
    assert_eq!(report.lost_count, 0, "{story}");
}

#[test]
fn every_flipped_byte_of_a_head_is_named_and_takes_nothing_away() {
    let scene = two_packs();
    for (store, name, at) in flipped(&scene, |_| 0..HEAD_BYTES) {
        let story = format!("{name}, byte {at}");
        scene.assert_restorable(&store, &story);
        assert_checks_name_the_head(&scene, &store, &name, &story);
    }
}

#[test]
fn every_flipped_byte_of_its_copy_is_named_and_takes_nothing_away() {
    let scene = two_packs();
    for (store, name, at) in flipped(&scene, |len| len - HEAD_BYTES..len) {
        let story = format!("{name}, byte {at}");
        scene.assert_restorable(&store, &story);
        let report = scene.check(&store).unwrap();
        assert_named_and_nothing_lost(&report, &name, "its last 48 bytes are damaged", &story);
    }
}

/// Whatever is done next, whether a check has marked the pack or not: nothing is lost, and in the
/// end all is well.
#[test]
fn backups_repairs_and_prunes_go_on_over_a_damaged_head() {
    let scene = two_packs();
    // Magic, version, zeros, salt.
    let fields = [0, 8, 12, 20, 47];
    let chosen = flipped(&scene, |_| 0..HEAD_BYTES).into_iter();
    for (store, name, at) in chosen.filter(|(_, _, at)| fields.contains(at)) {
        for (is_marked, is_repaired) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let story = format!("{name}, byte {at}, marked {is_marked}, repaired {is_repaired}");
            let store = store.fork();
            let open = || scene.open(store.clone()).unwrap();
            if is_marked {
                mark(&open(), &scene.check(&store).unwrap()).unwrap();
            }
            if is_repaired {
                let named = [name.id().unwrap()];
                let repaired = repair_packs(&open(), &named, false, &Recorder::default()).unwrap();
                let [pack] = &repaired.packs[..] else {
                    panic!("{story}: {repaired:?}");
                };
                assert_eq!((pack.chunks_lost, repaired.lost_count), (0, 0), "{story}");
                assert!(pack.chunks_saved > 0, "{story}");
                assert!(scene.check(&store).unwrap().is_clean(), "{story}");
            }
            let monitor = Recorder::default();
            let outcome = scene.backup_with(&open(), &BackupOptions::default(), &monitor);
            assert!(outcome.is_ok(), "{story}: {outcome:?}");
            assert!(monitor.problems.lock().unwrap().is_empty(), "{story}");
            scene.assert_restorable(&store, &story);
            for _ in 0..4 {
                scene.clock.advance(Duration::from_secs(10));
                scene.prune(&open(), Duration::from_secs(1)).unwrap();
                scene.assert_restorable(&store, &story);
            }
            assert_eq!(scene.check(&store).unwrap().lost_count, 0, "{story}");
        }
    }
}

/// No index names the packs: what they hold is listed again, whichever copy of the head is damaged.
#[test]
fn a_pack_that_no_index_names_is_listed_again_with_either_copy() {
    let scene = two_packs();
    let both = |len| [3, 30, len - 40, len - 5];
    for name in scene.store.names(Area::Packs) {
        for at in both(bytes_of(&scene.store, &name).len()) {
            let mut bytes = bytes_of(&scene.store, &name);
            bytes[at] ^= 1;
            let store = with(&scene.store, &name, bytes);
            for index in store.names(Area::Index) {
                store.delete(&index).unwrap();
            }
            let story = format!("{name}, byte {at}");
            let repository = scene.open(store.clone()).unwrap();
            let repaired = repair_index(&repository, false, &Recorder::default()).unwrap();
            let packs = scene.store.names(Area::Packs).len();
            assert_eq!(repaired.packs_listed, packs as u64, "{story}");
            assert!(repaired.unreadable.is_empty(), "{story}: {repaired:?}");
            assert!(repaired.damaged.is_empty(), "{story}: {repaired:?}");
            scene.assert_restorable(&store, &story);
        }
    }
}

#[test]
fn the_head_of_another_pack_is_named_and_takes_nothing_away() {
    let scene = two_packs();
    let names = scene.store.names(Area::Packs);
    for (name, other) in [(names[0], names[1]), (names[1], names[0])] {
        let mut bytes = bytes_of(&scene.store, &name);
        let others = bytes_of(&scene.store, &other);
        bytes[..HEAD_BYTES].copy_from_slice(&others[..HEAD_BYTES]);
        let store = with(&scene.store, &name, bytes);
        scene.assert_restorable(&store, "another head");
        assert_checks_name_the_head(&scene, &store, &name, "another head");
    }
}

#[test]
fn a_pack_with_the_bytes_of_another_is_told_by_its_name() {
    let scene = two_packs();
    let names = scene.store.names(Area::Packs);
    for (name, other) in [(names[0], names[1]), (names[1], names[0])] {
        let store = with(&scene.store, &name, bytes_of(&scene.store, &other));
        let repository = scene.open(store.clone()).unwrap();
        let named = [name.id().unwrap()];
        let repaired = repair_packs(&repository, &named, true, &Recorder::default()).unwrap();
        let text = repaired.packs[0].trouble.clone().unwrap();
        let expected = format!("it holds the bytes of pack {}", other.id().unwrap());
        assert_eq!(text, expected);
        let told = &scene.check(&store).unwrap().damage[0];
        assert_eq!(told.what, format!("pack {}", name.id().unwrap()));
        assert!(told.text.starts_with(&expected), "{}", told.text);
    }
}

/// A pack that is hardly there says how much of it is.
#[test]
fn a_pack_that_is_cut_says_how_many_bytes_it_has() {
    let scene = two_packs();
    for name in scene.store.names(Area::Packs) {
        for len in [0, 10, 47] {
            let mut bytes = bytes_of(&scene.store, &name);
            bytes.truncate(len);
            let store = with(&scene.store, &name, bytes);
            let story = format!("{name} cut to {len}");
            let id = name.id().unwrap();
            let report = scene.check(&store).unwrap();
            let told = report.damage.iter();
            let told: Vec<_> = told
                .filter(|damage| damage.what.contains("pack "))
                .collect();
            assert_eq!(told.len(), 1, "{story}: {report:?}");
            assert!(
                told[0]
                    .text
                    .starts_with(&format!("{len} bytes, should be ")),
                "{story}: {}",
                told[0].text
            );
            let repository = scene.open(store).unwrap();
            let error = repository.pack_key(id).map(drop).unwrap_err().to_string();
            let expected = format!("{name}: pack is damaged: {len} bytes, needs 192");
            assert_eq!(error, expected, "{story}");
        }
    }
}

/// A disk with a bad sector where packs begin.
struct BadSector(DatedStore);

impl Store for BadSector {
    fn put(&self, name: &ObjectName, bytes: &[u8]) -> StoreResult<()> {
        self.0.put(name, bytes)
    }

    fn begin(&self) -> StoreResult<Box<dyn ObjectWriter>> {
        self.0.begin()
    }

    fn get(&self, name: &ObjectName, len_max: u64) -> StoreResult<Vec<u8>> {
        self.0.get(name, len_max)
    }

    fn read_at(&self, name: &ObjectName, offset: u64, buf: &mut [u8]) -> StoreResult<()> {
        if name.area == Area::Packs && offset < HEAD_BYTES as u64 {
            return Err(StoreError {
                action: "read",
                object: name.to_string(),
                source: io::Error::from_raw_os_error(5),
            });
        }
        self.0.read_at(name, offset, buf)
    }

    fn stat(&self, name: &ObjectName) -> StoreResult<Option<ObjectInfo>> {
        self.0.stat(name)
    }

    fn list(&self, area: Area, found: &mut dyn FnMut(ObjectInfo)) -> StoreResult<()> {
        self.0.list(area, found)
    }

    fn delete(&self, name: &ObjectName) -> StoreResult<()> {
        self.0.delete(name)
    }

    fn place(&self) -> String {
        self.0.place()
    }
}

#[test]
fn a_head_that_cannot_be_read_takes_nothing_away() {
    let scene = two_packs();
    let repository = scene.open(BadSector(scene.store.clone())).unwrap();
    for snapshot in &repository.snapshots().unwrap() {
        let (_, expected) = scene.kept.iter().find(|(id, _)| *id == snapshot.0).unwrap();
        scene.assert_restores(&repository, snapshot, expected, "a bad sector");
    }
    let report = check(&repository, None, &Recorder::default()).unwrap();
    assert_eq!(report.lost_count, 0);
    assert!(!report.damage.is_empty());
    for damage in &report.damage {
        let text = "its first 48 bytes cannot be read: ";
        assert!(damage.text.starts_with(text), "{}", damage.text);
        assert!(
            damage.text.contains("Input/output error"),
            "{}",
            damage.text
        );
    }
}
