//! What `bale serve` answers where a request cannot be done: in words that a client understands,
//! and never as a failure of the server that would pass.

use crate::client::{Running, hashed, raw, status_of};
use bale_repository::store::{Area, LocalStore, ObjectName, Store};
use std::io::ErrorKind;
use std::os::unix::fs::symlink;

fn post(running: &Running, path: &str, body: &str) -> u16 {
    let len = body.len();
    let head = format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n");
    status_of(&raw(
        running,
        &format!("{head}Connection: close\r\n\r\n{body}"),
    ))
}

fn get(running: &Running, path: &str) -> String {
    let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
    raw(running, &head)
}

fn there(running: &Running, path: &str) -> Vec<u8> {
    std::fs::read(running.dir().join(path)).unwrap()
}

/// It was answered with 200, and whoever sent it believed that it was stored.
#[test]
fn a_config_with_other_bytes_than_the_one_there_is_a_conflict() {
    let running = Running::new();
    running.create("a");
    for name in ["config", "config.copy"] {
        let path = format!("/a/{name}");
        assert_eq!(post(&running, &path, "first"), 200);
        assert_eq!(post(&running, &path, "first"), 200, "the same once more");
        for other in ["other", "longer than it", ""] {
            assert_eq!(post(&running, &path, other), 409, "{other:?}");
        }
        assert_eq!(there(&running, &path[1..]), b"first");
        let long = "x".repeat(300 << 10);
        assert_eq!(post(&running, &path, &long), 413);
    }
    assert_eq!(running.temporary_files("a"), 0);
    // The store of a client reads back what it wrote: that one stays is no error.
    let store = running.open("a");
    store.put(&ObjectName::config(), b"other").unwrap();
    assert_eq!(store.get(&ObjectName::config(), 5).unwrap(), b"first");
}

/// Of two who come at once, one is told.
#[test]
fn of_two_who_send_a_config_at_once_one_is_refused() {
    let running = Running::new();
    for round in 0..20 {
        running.create(&format!("r{round}"));
        let path = format!("/r{round}/config");
        let bodies = ["one".to_owned(), "other".to_owned()];
        let answers: Vec<u16> = std::thread::scope(|scope| {
            let sent: Vec<_> = (bodies.iter())
                .map(|body| scope.spawn(|| post(&running, &path, body)))
                .collect();
            sent.into_iter().map(|sent| sent.join().unwrap()).collect()
        });
        let kept = there(&running, &path[1..]);
        for (body, answer) in bodies.iter().zip(answers) {
            let expected = if body.as_bytes() == kept { 200 } else { 409 };
            assert_eq!(answer, expected, "{body} in round {round}");
        }
    }
}

/// A directory that was made by hand for a repository to come: it was a failure of the server, and
/// `bale init` waited a quarter of an hour and said that packs are there.
#[test]
fn what_is_not_there_is_listed_as_other_servers_list_it() {
    let running = Running::new();
    std::fs::create_dir(running.dir().join("empty")).unwrap();
    for path in ["/empty/packs/", "/empty/keys/", "/packs/", "/none/index/"] {
        assert_eq!(status_of(&get(&running, path)), 404, "{path}");
    }
    let listed = get(&running, "/empty/runs/");
    assert!(listed.contains("[]"), "{listed}");
    for name in ["empty", ""] {
        for area in [Area::Packs, Area::Snapshots] {
            let store = running.open(name);
            let error = store.list(area, &mut |_| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
    }
    assert_eq!(running.log(), Vec::<String>::new(), "nothing is wrong");
    // Of a repository it is: what was in it would count as gone. No client waits for it.
    let store = running.create("a");
    store.put(&ObjectName::config(), b"config").unwrap();
    std::fs::remove_dir(running.dir().join("a/snapshots")).unwrap();
    std::fs::remove_dir(running.dir().join("a/condemned")).unwrap();
    let error = store.list(Area::Snapshots, &mut |_| {}).unwrap_err();
    assert!(!error.may_pass(), "{error}");
    let said = error.to_string();
    assert!(said.contains("snapshots is not there"), "{said}");
    assert!(running.log()[0].contains("a/snapshots is not there"));
    store.list(Area::Condemned, &mut |_| {}).unwrap();
}

/// They were passed over in silence: `keys/` looked empty.
#[test]
fn a_link_in_the_place_of_an_object_is_not_followed_and_is_named() {
    let running = Running::new();
    let store = running.create("a");
    let [(linked, bytes), (dir, _)] = [10, 20].map(|len| hashed(Area::Keys, len));
    let target = running.outside().join("key");
    std::fs::write(&target, &bytes).unwrap();
    symlink(&target, running.dir().join("a").join(linked.path())).unwrap();
    std::fs::create_dir(running.dir().join("a").join(dir.path())).unwrap();
    std::fs::write(running.dir().join("a/keys/README"), b"x").unwrap();
    for _ in 0..2 {
        store
            .list(Area::Keys, &mut |info| panic!("{}", info.name))
            .unwrap();
    }
    assert!(store.get(&linked, 10).unwrap_err().is_not_found());
    let error = store.put(&linked, &bytes).unwrap_err();
    assert!(!error.may_pass(), "{error}");
    let log = running.log();
    for path in [linked.path(), dir.path(), "keys/README".to_owned()] {
        let named = log.iter().filter(|line| {
            line.contains("not an object of this repository") && line.contains(&path)
        });
        assert_eq!(named.count(), 1, "{path} in {log:?}");
    }
    let metrics = running.metrics();
    let counted = "bale_serve_foreign_entries_total 6\n";
    assert!(metrics.contains(counted), "{metrics}");
    let local = LocalStore::open(&running.dir().join("a")).unwrap();
    let mut named = Vec::new();
    let found = &mut |entry: bale_repository::store::ForeignEntry| named.push(entry.path);
    local.list_foreign(Area::Keys, found).unwrap();
    named.sort();
    let mut expected = [linked.path(), dir.path(), "keys/README".to_owned()];
    expected.sort();
    assert_eq!(named, expected);
    // A whole area that is elsewhere is refused for good.
    std::fs::remove_dir(running.dir().join("a/index")).unwrap();
    symlink(running.outside(), running.dir().join("a/index")).unwrap();
    let error = store.list(Area::Index, &mut |_| {}).unwrap_err();
    assert!(!error.may_pass(), "{error}");
}
