//! rclone on two pipes, in front of its own remotes: what it keeps in memory, and a directory.

use bale_format::ObjectId;
use bale_remote::rclone::{RcloneOptions, RclonePlace, open};
use bale_repository::store::{Area, ObjectName, Store};

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
