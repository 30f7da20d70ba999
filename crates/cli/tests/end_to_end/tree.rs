//! Describing a tree on disk so that two can be compared: all of `stat` but inode and ctime,
//! attributes, content, holes.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// Path below the root to what is there.
pub type Tree = BTreeMap<OsString, String>;

pub fn describe(root: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut links = BTreeMap::new();
    add(root, root, &mut tree, &mut links);
    tree
}

/// Fails with the first lines that differ.
pub fn assert_same(left: &Path, right: &Path) {
    let (left, right) = (describe(left), describe(right));
    let mut differences = Vec::new();
    for (path, text) in &left {
        if right.get(path) != Some(text) {
            differences.push(format!("{path:?}\n  {text}\n  {:?}", right.get(path)));
        }
    }
    for path in right.keys().filter(|path| !left.contains_key(*path)) {
        differences.push(format!("{path:?} was added"));
    }
    differences.truncate(10);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

fn add(root: &Path, path: &Path, tree: &mut Tree, links: &mut BTreeMap<u64, OsString>) {
    let meta = fs::symlink_metadata(path).unwrap();
    let name = path.strip_prefix(root).unwrap().as_os_str().to_owned();
    let mut text = format!(
        "{:o} {}:{} {}.{:09} {}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.mtime(),
        meta.mtime_nsec(),
        attributes(path)
    );
    let kind = meta.file_type();
    if kind.is_block_device() || kind.is_char_device() {
        text.push_str(&format!(" device {}", meta.rdev()));
    }
    if kind.is_symlink() {
        let target = fs::read_link(path).unwrap().into_os_string().into_vec();
        text.push_str(&format!(" to {}", target.escape_ascii()));
    }
    if !kind.is_dir() && meta.nlink() > 1 {
        let first = links.entry(meta.ino()).or_insert_with(|| name.clone());
        text.push_str(&format!(" {} links, first {first:?}", meta.nlink()));
    }
    if kind.is_file() {
        let content = fs::read(path).unwrap();
        let sparse = meta.blocks() * 512 < meta.len() / 2;
        let sum = content.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        text.push_str(&format!(" {} bytes {sum:x} sparse {sparse}", meta.len()));
    }
    tree.insert(name, text);
    if kind.is_dir() {
        let mut children: Vec<_> = fs::read_dir(path)
            .unwrap()
            .map(|child| child.unwrap().path())
            .collect();
        children.sort();
        for child in children {
            add(root, &child, tree, links);
        }
    }
}

fn attributes(path: &Path) -> String {
    let mut names = vec![0; 65536];
    let count = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    let mut found: Vec<String> = names[..count]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .map(|name| {
            let mut value = vec![0; 65536];
            let name = std::ffi::OsStr::from_bytes(name);
            let count = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            format!("{name:?}={}", value[..count].escape_ascii())
        })
        .collect();
    found.sort();
    format!("{found:?}")
}
