//! What a simulated disk holds: each file and directory as programs see it, as it lasts, and the
//! changes between.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::choices::Choices;

/// A torn write ends at a multiple of this.
const SECTOR_BYTES: usize = 512;

/// What a device may hold where bytes were promised and never came.
pub(super) const GARBAGE: u8 = 0xa5;

#[derive(Clone)]
pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
}

#[derive(Clone, Default)]
pub(super) struct FileNode {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    pub(super) dirty: Vec<Write>,
    pub(super) modified: Option<SystemTime>,
}

#[derive(Clone)]
pub(super) struct Write {
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Default)]
pub(super) struct DirNode {
    pub(super) live: BTreeMap<String, usize>,
    pub(super) durable: BTreeMap<String, usize>,
    /// Name and what it stands for now; `None` if it went.
    pub(super) dirty: Vec<(String, Option<usize>)>,
}

impl DirNode {
    pub(super) fn set(&mut self, name: &str, node: Option<usize>) {
        self.dirty.push((name.to_owned(), node));
        change(&mut self.live, name, node);
    }
}

pub(super) fn change(names: &mut BTreeMap<String, usize>, name: &str, node: Option<usize>) {
    match node {
        Some(node) => names.insert(name.to_owned(), node),
        None => names.remove(name),
    };
}

impl FileNode {
    pub(super) fn crash(&mut self, choices: &mut dyn Choices) {
        for write in std::mem::take(&mut self.dirty) {
            let torn_at = write.bytes.len() / 2 / SECTOR_BYTES * SECTOR_BYTES;
            let bytes = match choices.pick(5) {
                0 => continue,
                1 => write.bytes,
                2 => write.bytes[..torn_at].to_vec(),
                3 => vec![0; write.bytes.len()],
                _ => vec![GARBAGE; write.bytes.len()],
            };
            write_at(&mut self.durable, write.offset, &bytes);
        }
        self.live.clone_from(&self.durable);
    }
}

pub(super) fn write_at(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}

impl DirNode {
    pub(super) fn crash(&mut self, choices: &mut dyn Choices) {
        for (name, node) in std::mem::take(&mut self.dirty) {
            if choices.pick(2) == 1 {
                change(&mut self.durable, &name, node);
            }
        }
        self.live.clone_from(&self.durable);
    }
}
