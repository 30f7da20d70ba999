//! A repository on the fake server, and what is in it.

use super::{FakeServer, Manners, Node, PATIENCE};
use bale_format::ObjectId;
use bale_remote::sftp::SftpStore;
use bale_repository::store::{ObjectName, Store};
use std::collections::BTreeMap;
use std::sync::OnceLock;

pub fn name(first: u8) -> ObjectName {
    ObjectName::pack(ObjectId([first; 32]))
}

pub fn content() -> Vec<u8> {
    (0..3_000u32).map(|number| number as u8).collect()
}

/// Asks for something behind the removal of what was written, which nobody waits for.
pub fn settle(store: &SftpStore) {
    assert!(store.stat(&name(200)).expect("an answer").is_none());
}

/// A server with an empty repository.
pub fn laid_out() -> FakeServer {
    static EMPTY: OnceLock<BTreeMap<String, Node>> = OnceLock::new();
    let empty = EMPTY.get_or_init(|| {
        let fake = FakeServer::new(Manners::default());
        settle(&SftpStore::create(fake.reach(PATIENCE)).expect("a good server"));
        fake.tree()
    });
    let fake = FakeServer::new(Manners::default());
    empty
        .iter()
        .for_each(|(path, node)| fake.set(path, Some(node.clone())));
    fake
}

pub fn open(fake: &FakeServer) -> SftpStore {
    SftpStore::open(fake.reach(PATIENCE)).expect("a good server")
}

pub fn path(name: &ObjectName) -> String {
    format!("repo/{name}")
}

/// What is under the name of an object, if anything.
pub fn there(fake: &FakeServer, name: &ObjectName) -> Option<Vec<u8>> {
    match fake.tree().get(&path(name)) {
        Some(Node::File { bytes, .. }) => Some(bytes.to_vec()),
        Some(Node::Dir) => panic!("a directory under the name of an object"),
        None => None,
    }
}

pub fn temporary_files(fake: &FakeServer) -> Vec<String> {
    let tree = fake.tree();
    let paths = tree.keys().filter(|path| path.starts_with("repo/tmp/"));
    paths.cloned().collect()
}
