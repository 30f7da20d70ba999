//! rclone on two pipes, in front of its own remotes: what it keeps in memory, and a directory.

use bale_format::ObjectId;
use bale_remote::rclone::{RcloneOptions, RclonePlace, open};
use bale_remote::{RealWaiting, Retried, RetryRules};
use bale_repository::store::{Area, ObjectName, Store, conformance};
use std::sync::Arc;
use std::time::Duration;

/// As every store is used, but that nobody waits for long.
const SOON: RetryRules = RetryRules {
    first: Duration::from_millis(10),
    longest: Duration::from_millis(200),
    give_up_after: Duration::from_secs(60),
};

fn place(text: &str) -> RclonePlace {
    RclonePlace::parse(text).unwrap()
}

#[test]
fn objects_come_back_from_a_directory_and_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let at = format!(":local:{}", dir.path().display());
    let store = open(&place(&at), &RcloneOptions::default()).unwrap();
    let run = ObjectName::run([7; 16], ObjectId([3; 32]));
    let names = [
        ObjectName::pack(ObjectId([1; 32])),
        ObjectName::index(ObjectId([2; 32])),
        run,
    ];
    let large = vec![7; 9 << 20];
    for name in names {
        store.put(&name, &large).unwrap();
        store.put(&name, &large).unwrap();
        assert!(store.get(&name, 1 << 30).unwrap() == large);
        let mut part = [0; 5];
        store.read_at(&name, 1 << 20, &mut part).unwrap();
        let mut listed = Vec::new();
        let area = name.area;
        store
            .list(area, &mut |info| listed.push((info.name, info.len)))
            .unwrap();
        assert_eq!(listed, [(name, large.len() as u64)]);
    }
    store.delete(&run).unwrap();
    store
        .list(Area::Runs, &mut |_| panic!("it is deleted"))
        .unwrap();
    assert_eq!(store.stat(&run).unwrap(), None);
}

/// rclone itself replaces whatever is there; and what it writes to a directory, it writes under the
/// name of the object, where half of it is seen.
#[test]
fn a_place_of_rclone_is_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    conformance::run_slow_but(&[conformance::WHOLE_WHILE_WRITTEN], || {
        number.set(number.get() + 1);
        let at = format!(":local:{}/{}", dir.path().display(), number.get());
        let store = open(&place(&at), &RcloneOptions::default()).unwrap();
        let waiting = RealWaiting::new(|| false, |_, _| {});
        Box::new(Retried::new(Arc::new(store), SOON, Arc::new(waiting)))
    });
}

/// Half of an object is what some remotes keep of an upload that was cut.
#[test]
fn half_an_object_is_written_again_and_a_whole_one_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let at = format!(":local:{}", dir.path().display());
    let store = open(&place(&at), &RcloneOptions::default()).unwrap();
    let whole = vec![7; 100_000];
    let name = ObjectName::pack(ObjectId(*blake3::hash(&whole).as_bytes()));
    let file = dir.path().join(name.path());
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, &whole[..70_000]).unwrap();
    store.put(&name, &whole).unwrap();
    assert!(std::fs::read(&file).unwrap() == whole);
    // Bytes that are not what the name says take nobody's place.
    for other in [&whole[..50_000], b"", &[whole.clone(), vec![1]].concat()] {
        store.put(&name, other).unwrap();
        assert!(std::fs::read(&file).unwrap() == whole);
    }
}

#[test]
fn the_last_words_of_a_command_that_ends_are_in_the_error() {
    let command = ["sh", "-c", "echo no such remote >&2; exit 3"].map(str::to_owned);
    let options = RcloneOptions {
        command: Some(command.to_vec()),
        ..RcloneOptions::default()
    };
    let store = open(&place("r:x"), &options).unwrap();
    let error = store.stat(&ObjectName::config()).unwrap_err();
    assert!(error.to_string().contains("no such remote"), "{error}");
    assert!(!error.is_not_found(), "{error}");
}
