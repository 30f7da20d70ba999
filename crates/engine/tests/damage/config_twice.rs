//! `config` stands twice: whichever of the two is damaged, missing or another repository's,
//! everything goes on with the other, a check names it, and a repair writes it again (REP-21).

use std::collections::BTreeMap;

use bale_engine::repair::{renew_config_copy, repair_config};
use bale_engine::verify::scrub;
use bale_format::error::FormatError;
use bale_pipeline::monitor::Recorder;
use bale_repository::error::Error;
use bale_repository::repository::ConfigFault;
use bale_repository::store::{LocalStore, ObjectName, Store};
use bale_testkit::{DatedStore, Effect, Scene, Verb};

type Objects = BTreeMap<ObjectName, Vec<u8>>;

/// One snapshot of a small tree.
fn small() -> Scene {
    let mut scene = Scene::new();
    scene.write("file", b"content");
    scene.keep();
    scene
}

fn config() -> ObjectName {
    ObjectName::config()
}

fn copy() -> ObjectName {
    ObjectName::config_copy()
}

fn with(store: &DatedStore, name: ObjectName, bytes: &[u8]) -> DatedStore {
    let other = store.fork();
    other.memory().overwrite(&name, bytes.to_vec());
    other
}

fn without(store: &DatedStore, name: ObjectName) -> DatedStore {
    let other = store.fork();
    other.delete(&name).unwrap();
    other
}

fn bytes_of(store: &DatedStore, name: ObjectName) -> Vec<u8> {
    store.get(&name, 1 << 20).unwrap()
}

fn objects(store: &DatedStore) -> Objects {
    store.memory().objects()
}

/// Another repository's, whole and sound there.
fn foreign() -> Vec<u8> {
    bytes_of(&Scene::new().store, config())
}

fn scrub_names(store: &DatedStore) -> Vec<String> {
    let report = scrub(store, &Recorder::default()).unwrap();
    report.damage.into_iter().map(|found| found.what).collect()
}

fn check_names(scene: &Scene, store: &DatedStore, story: &str) -> Vec<String> {
    let report = scene.check(store).expect(story);
    assert_eq!(report.lost_count, 0, "{story}");
    report.damage.into_iter().map(|found| found.what).collect()
}

/// It opens and restores, a check names the one that is not sound and nothing else, a dry run
/// writes nothing, and after a repair everything is as it was.
fn is_survived(scene: &Scene, damaged: &DatedStore, name: ObjectName, story: &str) {
    let found = objects(damaged);
    let repository = scene.open(damaged.clone()).expect(story);
    let trouble = repository.config_trouble().expect(story);
    assert_eq!(trouble.name, name, "{story}");
    assert_eq!(
        check_names(scene, damaged, story),
        [name.to_string()],
        "{story}"
    );
    let planned = repair_config(&repository, true).expect(story);
    assert_eq!(planned.as_ref(), Some(trouble), "{story}");
    assert_eq!(
        objects(damaged),
        found,
        "{story}: reading changed something"
    );
    let mended = repair_config(&repository, false).expect(story);
    assert_eq!(mended, planned, "{story}");
    assert_eq!(objects(damaged), objects(&scene.store), "{story}");
    assert_eq!(check_names(scene, damaged, story), [""; 0], "{story}");
    assert_eq!(repair_config(&repository, false).expect(story), None);
}

#[test]
fn both_have_the_same_bytes_from_the_beginning() {
    let scene = small();
    let bytes = bytes_of(&scene.store, config());
    assert_eq!(bytes, bytes_of(&scene.store, copy()));
    assert_eq!(scene.repository().config_trouble(), None);
    assert_eq!(scrub_names(&scene.store), [""; 0]);
    assert_eq!(check_names(&scene, &scene.store, "undamaged"), [""; 0]);
}

#[test]
fn every_flipped_byte_of_either_is_survived_named_and_mended() {
    let scene = small();
    for name in ObjectName::configs() {
        let bytes = bytes_of(&scene.store, name);
        for at in 0..bytes.len() {
            for bit in [0, at % 8] {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                let damaged = with(&scene.store, name, &flipped);
                let story = format!("{name}, bit {bit} of byte {at} flipped");
                assert_eq!(scrub_names(&damaged).len(), 1, "{story}");
                is_survived(&scene, &damaged, name, &story);
            }
        }
        let mut flipped = bytes;
        flipped[40] ^= 1;
        let damaged = with(&scene.store, name, &flipped);
        scene.assert_restorable(&damaged, "damaged");
    }
}

#[test]
fn either_may_be_missing_cut_empty_too_long_or_another_repositorys() {
    let scene = small();
    let foreign = foreign();
    for name in ObjectName::configs() {
        let bytes = bytes_of(&scene.store, name);
        let long = [&bytes[..], &[b' '; 80 << 10]].concat();
        for (what, put) in [
            ("empty", &b""[..]),
            ("a newline", b"\n"),
            ("cut", &bytes[..bytes.len() / 2]),
            ("too long", &long),
            ("another repository's", &foreign),
            ("no text", &[0xff; 300]),
        ] {
            let story = format!("{name} {what}");
            let damaged = with(&scene.store, name, put);
            assert_eq!(scrub_names(&damaged).len(), 1, "{story}");
            is_survived(&scene, &damaged, name, &story);
        }
        let story = format!("{name} missing");
        let missing = without(&scene.store, name);
        assert_eq!(scrub_names(&missing), [name.to_string()], "{story}");
        is_survived(&scene, &missing, name, &story);
    }
}

/// The end of the last line says nothing.
#[test]
fn a_last_line_without_its_end_is_sound() {
    let scene = small();
    for name in ObjectName::configs() {
        let bytes = bytes_of(&scene.store, name);
        let cut = with(&scene.store, name, &bytes[..bytes.len() - 1]);
        assert_eq!(check_names(&scene, &cut, "cut"), [""; 0]);
        assert_eq!(scrub_names(&cut), [""; 0]);
    }
}

#[test]
fn where_both_are_bad_the_error_says_what_is_wrong_with_each() {
    let scene = small();
    let bytes = bytes_of(&scene.store, config());
    let mut flipped = bytes.clone();
    *flipped.last_chunk_mut::<2>().unwrap() = *b"0\n";
    if flipped == bytes {
        *flipped.last_chunk_mut::<2>().unwrap() = *b"1\n";
    }
    let foreign = foreign();
    for (config_bytes, copy_bytes, says) in [
        (
            &b""[..],
            &foreign[..],
            ["second line: missing", "no key slot opens under the id"],
        ),
        (
            &foreign,
            &flipped,
            [
                "no key slot opens under the id",
                "authentication tag does not match",
            ],
        ),
        (
            &flipped,
            b"{}\nx\n",
            ["authentication tag does not match", "json"],
        ),
        (
            &foreign,
            &foreign,
            ["no key slot opens under the id", "the same bytes"],
        ),
    ] {
        let damaged = with(
            &with(&scene.store, config(), config_bytes),
            copy(),
            copy_bytes,
        );
        let before = objects(&damaged);
        let error = scene.open(damaged.clone()).map(drop).unwrap_err();
        assert!(matches!(error, Error::ConfigsDamaged { .. }), "{error}");
        let text = error.to_string();
        let (first, second) = text.split_once("; config.copy: ").unwrap();
        assert!(first.contains(says[0]), "{text}");
        assert!(second.contains(says[1]), "{text}");
        assert!(second.contains("from a copy of the repository"), "{text}");
        assert_eq!(objects(&damaged), before);
    }
    let neither = without(&without(&scene.store, config()), copy());
    let error = scene.open(neither).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoRepository(_)), "{error}");
}

/// Who has forgotten his password is not told that his files are damaged.
#[test]
fn a_wrong_secret_is_called_wrong_whatever_is_damaged() {
    let scene = small();
    let other = bale_repository::repository::Secret::KeyFile(vec![7; 40]);
    for name in ObjectName::configs() {
        let damaged = with(&scene.store, name, b"no config");
        let opened = bale_repository::repository::Repository::open(
            std::sync::Arc::new(damaged),
            &other,
            scene.environment(),
        );
        let error = opened.map(drop).unwrap_err();
        assert!(matches!(error, Error::WrongKey), "{error}");
    }
}

/// Only a holder of a key can have written both: what a later program means by that is not guessed.
#[test]
fn two_that_are_sound_and_differ_are_refused() {
    let scene = small();
    let repository = scene.repository();
    let mut later = repository.config().clone();
    later.features_gc = vec!["later".to_owned()];
    let later = later.encode(repository.keys()).unwrap();
    for name in ObjectName::configs() {
        let store = with(&scene.store, name, &later);
        let before = objects(&store);
        let error = scene.open(store.clone()).map(drop).unwrap_err();
        assert!(matches!(error, Error::ConfigsDiffer(_)), "{error}");
        assert!(repair_config(&repository, false).unwrap().is_none());
        assert_eq!(objects(&store), before);
        assert_eq!(scrub_names(&store), ["config.copy"]);
    }
}

/// A format that means nothing here, under the seal of this repository's key, is no damage.
#[test]
fn one_that_a_later_program_wrote_is_newer_and_not_written_over() {
    let scene = small();
    let repository = scene.repository();
    let line = format!("{{\"format\":7,\"repository\":\"{}\"}}", repository.id());
    let mac = repository.keys().config_mac(line.as_bytes());
    let later = format!("{line}\n{}\n", mac.to_hex());
    for name in ObjectName::configs() {
        let store = with(&scene.store, name, later.as_bytes());
        let error = scene.open(store).map(drop).unwrap_err();
        let newer = FormatError::Newer {
            what: "config",
            found: 7,
            known: 1,
        };
        assert!(
            matches!(&error, Error::Object { object, source } if *object == name.to_string() && *source == newer),
            "{error}"
        );
        // Without the seal it is damage, whatever it says of its format.
        let claimed = later.replace(&mac.to_hex()[..8], "00000000");
        let store = with(&scene.store, name, claimed.as_bytes());
        is_survived(&scene, &store, name, "a format that nobody wrote");
    }
}

#[test]
fn a_writer_adds_the_copy_and_leaves_config_alone() {
    let scene = small();
    let whole = objects(&scene.store);
    for (store, fault) in [
        (without(&scene.store, copy()), ConfigFault::Missing),
        (
            with(&scene.store, copy(), b""),
            ConfigFault::Damaged("second line: missing".to_owned()),
        ),
    ] {
        let repository = scene.open(store.clone()).unwrap();
        let renewed = renew_config_copy(&repository).unwrap().unwrap();
        assert_eq!((renewed.name, renewed.fault), (copy(), fault));
        assert_eq!(objects(&store), whole);
        // As one that was opened before sees it.
        assert_eq!(renew_config_copy(&repository).unwrap(), None);
    }
    for store in [
        without(&scene.store, config()),
        with(&scene.store, config(), b"x"),
        // No object of ours is so long: somebody must look at it.
        with(&scene.store, copy(), &vec![b'x'; 100 << 10]),
    ] {
        let before = objects(&store);
        let repository = scene.open(store.clone()).unwrap();
        assert_eq!(renew_config_copy(&repository).unwrap(), None);
        assert_eq!(objects(&store), before);
    }
}

#[test]
fn no_repository_is_made_where_either_is_left() {
    let scene = small();
    for name in ObjectName::configs() {
        let store = without(&scene.store, name);
        let before = objects(&store);
        let error = scene.init(store.clone()).map(drop).unwrap_err();
        assert!(matches!(error, Error::RepositoryExists(_)), "{error}");
        assert_eq!(objects(&store), before);
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join(name.path()), "x").unwrap();
        assert!(LocalStore::create(place.path()).is_err(), "{name}");
    }
}

/// Slots of an init that did not end stay, for they may be those of one that is under way, or of a
/// `config` that is on its way; and they are named.
#[test]
fn init_names_the_key_slots_that_were_there_before() {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    let faulty = bale_testkit::FaultyStore::over(scene.store.clone());
    faulty.inject(
        bale_testkit::InjectedFault::new(Effect::Fail(std::io::ErrorKind::TimedOut))
            .of(Verb::Put)
            .within(bale_repository::store::Area::Config)
            .for_ever(),
    );
    assert!(scene.init(faulty).is_err());
    let left = scene.store.names(bale_repository::store::Area::Keys);
    assert_eq!(left.len(), 2);
    let made = scene.init(scene.store.clone()).unwrap();
    let mut named = made.slots_before;
    named.sort();
    let left: Vec<_> = left.iter().filter_map(|name| name.id()).collect();
    assert_eq!(named, left);
    let repository = scene.repository();
    for id in left {
        repository.remove_key(&id.to_string()).unwrap();
    }
    scene.repository();
}

/// A copy that cannot be written costs nothing but the copy: the recovery key is shown, and the
/// next writer adds it.
#[test]
fn a_repository_is_made_although_its_copy_cannot_be_written() {
    let mut scene = Scene::new();
    scene.store = DatedStore::new(scene.clock.clone());
    let faulty = bale_testkit::FaultyStore::over(scene.store.clone());
    faulty.inject(
        bale_testkit::InjectedFault::error()
            .of(Verb::Put)
            .within(bale_repository::store::Area::ConfigCopy)
            .for_ever(),
    );
    let made = scene.init(faulty).unwrap();
    assert!(made.copy_missing.is_some());
    let repository = scene.repository();
    assert!(renew_config_copy(&repository).unwrap().is_some());
    assert_eq!(check_names(&scene, &scene.store, "renewed"), [""; 0]);
}

#[test]
fn without_any_key_slot_that_is_said() {
    let scene = small();
    for name in scene.store.names(bale_repository::store::Area::Keys) {
        scene.store.delete(&name).unwrap();
    }
    let error = scene.open(scene.store.clone()).map(drop).unwrap_err();
    assert!(matches!(error, Error::NoKeys(_)), "{error}");
    assert!(error.to_string().contains("no key slot is left in keys/"));
}

/// One answer that was garbled on its way had `config.copy` deleted and written anew.
#[test]
fn what_is_read_damaged_now_and_then_is_not_written_again() {
    use bale_repository::store::Area;
    use bale_testkit::{FaultyStore, InjectedFault};
    let scene = small();
    for area in Area::CONFIGS {
        let garbled = |after: u64| {
            let fault = InjectedFault::new(Effect::FlipBit(77)).of(Verb::Get);
            fault.within(area).after(after)
        };
        // Which of the reads since the opening are garbled.
        for reads in [&[0][..], &[1], &[2], &[3], &[0, 1], &[0, 2], &[0, 1, 2]] {
            let story = format!("{area}, reads {reads:?}");
            let store = scene.store.fork();
            let before = objects(&store);
            let faulty = FaultyStore::over(store.clone());
            for read in reads {
                faulty.inject(garbled(*read));
            }
            let repository = scene.open(faulty).expect(&story);
            assert_eq!(renew_config_copy(&repository).unwrap(), None, "{story}");
            // It says so, or it did not meet it.
            let repaired = repair_config(&repository, false);
            assert!(
                matches!(&repaired, Ok(None) | Err(Error::Other(_))),
                "{story}: {repaired:?}"
            );
            assert_eq!(objects(&store), before, "{story}");
        }
    }
}
