//! What every store must do, as tests that each of them runs.
//!
//! `run` takes a maker of empty stores and panics, naming the promise, at the first one that is
//! broken. Stores that can have foreign files planted beside their objects also run
//! `foreign_names_are_skipped`, or `foreign_names_are_skipped_and_named` if they can tell.

mod foreign;
mod streams;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Barrier;

use bale_format::ObjectId;

use super::{Area, ObjectName, Store};

pub use foreign::{foreign_names_are_skipped, foreign_names_are_skipped_and_named};

/// Objects in the listing test: more than a directory read or any page of a remote listing holds.
pub(crate) const LISTED_OBJECTS: usize = 10_000;

/// The same for stores that take milliseconds for an object; still more than one page of a remote
/// listing.
pub(crate) const LISTED_OBJECTS_SLOW: usize = 1_200;

/// Threads of the concurrency tests.
const WRITERS: usize = 8;

/// A pack of many pieces that ends in the middle of one.
const LARGE_BYTES: usize = (9 << 20) + 12_345;

const LEN_MAX: u64 = 64 << 20;

/// That of `read_while_written`: some stores show half an object while it is written.
pub const WHOLE_WHILE_WRITTEN: &str = "writers of one name agree";

/// Runs every test, each on a store of its own.
pub fn run(make_store: impl Fn() -> Box<dyn Store>) {
    run_all_but_long_listing(&make_store, &[]);
    a_long_listing_is_complete(&*make_store(), LISTED_OBJECTS);
}

/// `run` with a shorter listing, for stores on which 10,000 objects take long.
pub fn run_slow(make_store: impl Fn() -> Box<dyn Store>) {
    run_slow_but(&[], make_store);
}

/// `run_slow` without promises that a store cannot keep, which its pages must name.
pub fn run_slow_but(broken: &[&str], make_store: impl Fn() -> Box<dyn Store>) {
    run_all_but_long_listing(&make_store, broken);
    a_long_listing_is_complete(&*make_store(), LISTED_OBJECTS_SLOW);
}

type Test = fn(&dyn Store);

fn run_all_but_long_listing(make_store: &dyn Fn() -> Box<dyn Store>, broken: &[&str]) {
    let tests: [(&str, Test); 14] = [
        ("objects come back", an_object_comes_back_as_it_was_put),
        ("an existing object is kept", an_existing_object_is_kept),
        (
            "a missing object is not found",
            a_missing_object_is_not_found,
        ),
        (
            "a longer object is refused",
            a_longer_object_than_asked_for_is_refused,
        ),
        ("ranges are exact or an error", ranges_are_exact_or_an_error),
        ("unfinished is invisible", an_unfinished_object_is_invisible),
        (
            "a dropped writer leaves nothing",
            a_dropped_writer_leaves_nothing,
        ),
        (
            "any pieces will do",
            a_large_object_comes_back_in_any_pieces,
        ),
        (
            "a stream comes back or leaves nothing",
            streams::a_stream_comes_back_or_leaves_nothing,
        ),
        (
            "every short length comes back",
            every_short_length_comes_back,
        ),
        ("listings are complete", listings_are_complete_and_by_area),
        ("deleting is final", deleting_is_final_and_repeatable),
        (WHOLE_WHILE_WRITTEN, writers_of_one_name_agree),
        (
            "writers do not meet",
            writers_of_different_names_do_not_meet,
        ),
    ];
    let is_kept = |promise: &str| !broken.contains(&promise);
    for (promise, test) in tests.into_iter().filter(|(promise, _)| is_kept(promise)) {
        let store = make_store();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&*store)));
        if let Err(panic) = outcome {
            eprintln!("store at {} breaks a promise: {promise}", store.place());
            std::panic::resume_unwind(panic);
        }
    }
}

fn an_object_comes_back_as_it_was_put(store: &dyn Store) {
    for (number, name) in names(3).into_iter().enumerate() {
        let bytes = content(number as u64, number * 1_000);
        assert_eq!(stat_len(store, &name), None, "{name}");
        put(store, &name, &bytes);
        assert_eq!(get(store, &name), bytes, "{name}");
        assert_eq!(stat_len(store, &name), Some(bytes.len() as u64), "{name}");
    }
    assert!(!store.place().is_empty());
}

fn an_existing_object_is_kept(store: &dyn Store) {
    for name in names(4) {
        put(store, &name, b"first");
        put(store, &name, b"second, longer");
        let mut writer = store.begin().expect("begin");
        writer.append(b"third").expect("append");
        writer
            .publish(&name)
            .expect("an object that exists is no error");
        assert_eq!(get(store, &name), b"first", "{name}");
        assert_eq!(list(store, name.area).len(), 1);
    }
}

fn a_missing_object_is_not_found(store: &dyn Store) {
    for name in names(5) {
        assert_eq!(
            store
                .get(&name, LEN_MAX)
                .expect_err("nothing was put")
                .kind(),
            ErrorKind::NotFound,
            "{name}"
        );
        assert_eq!(
            store
                .read_at(&name, 0, &mut [0; 1])
                .expect_err("nothing was put")
                .kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            store.stat(&name).expect("a missing object is no error"),
            None
        );
        assert!(list(store, name.area).is_empty());
    }
}

fn a_longer_object_than_asked_for_is_refused(store: &dyn Store) {
    let name = ObjectName::index(id(6));
    put(store, &name, &[7; 1_000]);
    assert_eq!(
        store.get(&name, 999).expect_err("one byte too long").kind(),
        ErrorKind::FileTooLarge
    );
    assert_eq!(
        store.get(&name, 0).expect_err("too long").kind(),
        ErrorKind::FileTooLarge
    );
    assert_eq!(
        store.get(&name, 1_000).expect("exactly as long").len(),
        1_000
    );
    assert_eq!(store.get(&name, u64::MAX).expect("shorter").len(), 1_000);
}

fn ranges_are_exact_or_an_error(store: &dyn Store) {
    let name = ObjectName::pack(id(7));
    let bytes = content(7, 10_000);
    put(store, &name, &bytes);
    for (offset, len) in [
        (0, 10_000),
        (0, 1),
        (9_999, 1),
        (4_095, 2),
        (512, 512),
        (1, 9_998),
        (10_000, 0),
        (3, 0),
    ] {
        let mut part = vec![0; len];
        store
            .read_at(&name, offset as u64, &mut part)
            .expect("inside the object");
        assert_eq!(part, bytes[offset..offset + len], "{offset}+{len}");
    }
    for (offset, len) in [
        (9_999, 2),
        (10_000, 1),
        (0, 10_001),
        (20_000, 1),
        (u64::MAX, 1),
        (u64::MAX - 1, 10),
    ] {
        let refused = store
            .read_at(&name, offset, &mut vec![0; len])
            .expect_err("past the end");
        if offset < LEN_MAX {
            let text = format!("it has 10000 bytes, and {len} from byte {offset} were to be read");
            let said = refused.to_string();
            assert!(said.ends_with(&text), "{said}");
        }
        // Some systems refuse offsets past the largest file by another name.
        let kinds = [ErrorKind::UnexpectedEof, ErrorKind::InvalidInput];
        assert!(
            refused.kind() == kinds[0] || offset > LEN_MAX && refused.kind() == kinds[1],
            "{offset}+{len}"
        );
    }
}

fn an_unfinished_object_is_invisible(store: &dyn Store) {
    let name = ObjectName::pack(id(8));
    let bytes = content(8, 5 << 20);
    let mut writer = store.begin().expect("begin");
    for part in bytes.chunks(1 << 20) {
        writer.append(part).expect("append");
        assert_nothing_is_there(store);
        assert_eq!(stat_len(store, &name), None);
    }
    writer.publish(&name).expect("publish");
    assert_eq!(get(store, &name), bytes);
}

fn a_dropped_writer_leaves_nothing(store: &dyn Store) {
    drop(store.begin().expect("begin"));
    let mut writer = store.begin().expect("begin");
    writer.append(&content(9, LARGE_BYTES)).expect("append");
    drop(writer);
    assert_nothing_is_there(store);
}

fn a_large_object_comes_back_in_any_pieces(store: &dyn Store) {
    let bytes = content(10, LARGE_BYTES);
    for (number, piece_bytes) in [1 << 12, 12_347, 1 << 20, 3 << 20, LARGE_BYTES]
        .into_iter()
        .enumerate()
    {
        let name = ObjectName::pack(id(100 + number as u64));
        let mut writer = store.begin().expect("begin");
        for piece in bytes.chunks(piece_bytes) {
            writer.append(piece).expect("append");
        }
        writer.publish(&name).expect("publish");
        assert!(get(store, &name) == bytes, "pieces of {piece_bytes}");
        assert_eq!(stat_len(store, &name), Some(LARGE_BYTES as u64));
        for (offset, len) in [
            (0, 2 << 20),
            (4_096, 1 << 20),
            (1_000_001, 3_000_003),
            (LARGE_BYTES - 5, 5),
        ] {
            let mut part = vec![0; len];
            store
                .read_at(&name, offset as u64, &mut part)
                .expect("inside the object");
            assert!(part == bytes[offset..offset + len], "{offset}+{len}");
        }
    }
}

fn every_short_length_comes_back(store: &dyn Store) {
    // Around the block sizes that a store may pad to, and the empty object.
    for len in [0, 1, 511, 512, 513, 4_095, 4_096, 4_097, 65_536] {
        let bytes = content(11, len);
        let (published, put_name) = (
            ObjectName::pack(id(200 + len as u64)),
            ObjectName::index(id(200 + len as u64)),
        );
        let mut writer = store.begin().expect("begin");
        writer.append(&bytes).expect("append");
        writer.append(&[]).expect("nothing is no error");
        writer.publish(&published).expect("publish");
        put(store, &put_name, &bytes);
        assert_eq!(get(store, &published), bytes);
        assert_eq!(get(store, &put_name), bytes);
    }
}

fn listings_are_complete_and_by_area(store: &dyn Store) {
    assert_nothing_is_there(store);
    let mut put_bytes = BTreeMap::new();
    for seed in 0..3 {
        for name in names(300 + seed) {
            let len = 10 + seed as usize;
            put(store, &name, &content(seed, len));
            put_bytes.entry(name).or_insert(len as u64);
        }
    }
    for area in Area::ALL {
        let expected: BTreeMap<_, _> = put_bytes
            .iter()
            .filter(|(name, _)| name.area == area)
            .collect();
        assert!(list(store, area).iter().eq(expected), "{area}");
    }
}

fn a_long_listing_is_complete(store: &dyn Store, objects: usize) {
    let names: Vec<_> = (0..objects)
        .map(|number| ObjectName::index(id(1_000 + number as u64)))
        .collect();
    // Many writers: on a store where every object waits for a device or a network, they wait
    // together.
    in_threads(|writer| {
        names
            .iter()
            .skip(writer)
            .step_by(WRITERS)
            .for_each(|name| put(store, name, b"x"));
    });
    let listed = list(store, Area::Index);
    assert_eq!(listed.len(), objects);
    assert!(names.iter().all(|name| listed.get(name) == Some(&1)));
}

fn deleting_is_final_and_repeatable(store: &dyn Store) {
    for name in names(12) {
        store
            .delete(&name)
            .expect("deleting what is not there is no error");
        put(store, &name, b"here");
        store.read_at(&name, 0, &mut [0; 4]).expect("it is there");
        store.delete(&name).expect("delete");
        store.delete(&name).expect("delete again");
        assert_eq!(stat_len(store, &name), None);
        assert_eq!(
            store
                .read_at(&name, 0, &mut [0; 4])
                .expect_err("deleted")
                .kind(),
            ErrorKind::NotFound
        );
        assert!(list(store, name.area).is_empty());
        put(store, &name, b"there");
        let mut part = [0; 5];
        store
            .read_at(&name, 0, &mut part)
            .expect("it is there again");
        assert_eq!(&part, b"there", "not what was there before");
    }
}

fn writers_of_one_name_agree(store: &dyn Store) {
    for round in 0..5 {
        for name in names(400 + round) {
            let bytes = content(13, 100_000);
            in_threads(|writer| match writer % 4 {
                0 => put(store, &name, &bytes),
                1 => {
                    let mut writer = store.begin().expect("begin");
                    bytes
                        .chunks(10_000)
                        .for_each(|part| writer.append(part).expect("append"));
                    writer.publish(&name).expect("publish");
                }
                _ => read_while_written(store, &name, &bytes),
            });
            assert!(get(store, &name) == bytes, "{name}");
        }
    }
}

fn read_while_written(store: &dyn Store, name: &ObjectName, bytes: &[u8]) {
    for _ in 0..20 {
        match store.get(name, LEN_MAX) {
            Ok(read) => assert!(read == bytes, "{name} was visible before it was whole"),
            // A server that is busy with the writers says so, and is asked again.
            Err(error) if error.may_pass() => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
    }
}

fn writers_of_different_names_do_not_meet(store: &dyn Store) {
    in_threads(|writer| {
        for round in 0..20 {
            let seed = (writer * 1_000 + round) as u64;
            for name in [
                ObjectName::pack(id(seed)),
                ObjectName::run([writer as u8; 16], id(seed)),
            ] {
                let mut object = store.begin().expect("begin");
                object.append(&content(seed, 5_000)).expect("append");
                object.publish(&name).expect("publish");
                assert_eq!(get(store, &name), content(seed, 5_000));
                if round % 3 == 0 {
                    store.delete(&name).expect("delete");
                }
            }
        }
    });
    let kept = WRITERS * (0..20).filter(|round| round % 3 != 0).count();
    assert_eq!(list(store, Area::Packs).len(), kept);
    assert_eq!(list(store, Area::Runs).len(), kept);
}

fn in_threads(work: impl Fn(usize) + Sync) {
    let start = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (work, start) = (&work, &start);
            scope.spawn(move || {
                start.wait();
                work(writer);
            });
        }
    });
}

/// One name of each area.
fn names(seed: u64) -> [ObjectName; 9] {
    let mut run = [0; 16];
    run[..8].copy_from_slice(&seed.to_le_bytes());
    [
        ObjectName::config(),
        ObjectName::config_copy(),
        ObjectName::key(id(seed)),
        ObjectName::pack(id(seed)),
        ObjectName::index(id(seed)),
        ObjectName::snapshot(id(seed)),
        ObjectName::run(run, id(seed)),
        ObjectName::condemned(id(seed)),
        ObjectName::damaged(id(seed)),
    ]
}

fn id(seed: u64) -> ObjectId {
    ObjectId(*blake3::hash(&seed.to_le_bytes()).as_bytes())
}

fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

fn put(store: &dyn Store, name: &ObjectName, bytes: &[u8]) {
    store.put(name, bytes).expect("put");
}

fn get(store: &dyn Store, name: &ObjectName) -> Vec<u8> {
    store.get(name, LEN_MAX).expect("get")
}

fn stat_len(store: &dyn Store, name: &ObjectName) -> Option<u64> {
    let info = store.stat(name).expect("stat")?;
    assert_eq!(info.name, *name);
    Some(info.len)
}

fn list(store: &dyn Store, area: Area) -> BTreeMap<ObjectName, u64> {
    let mut listed = BTreeMap::new();
    let mut add = |info: super::ObjectInfo| {
        assert_eq!(
            listed.insert(info.name, info.len),
            None,
            "{} is listed twice",
            info.name
        );
    };
    store.list(area, &mut add).expect("list");
    listed
}

fn assert_nothing_is_there(store: &dyn Store) {
    for area in Area::ALL {
        assert!(list(store, area).is_empty(), "{area}");
    }
}
