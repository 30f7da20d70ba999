//! What is in a directory, as a value that can be kept and compared.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Everything below a directory, by path from there. Inodes stand as the first path that has them,
/// so that hard links count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<Vec<u8>, Node>);

/// One entry of a tree.
#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    /// Kind and permissions, owner, times.
    pub metadata: (u32, u32, u32, i64, i64),
    /// Bytes of a file, target of a link.
    pub content: Vec<u8>,
    /// First path of the same inode.
    pub first_name: Vec<u8>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hash = self.content.iter().fold(7_u32, |hash, byte| {
            hash.wrapping_mul(31).wrapping_add(u32::from(*byte))
        });
        let (len, first) = (
            self.content.len(),
            String::from_utf8_lossy(&self.first_name),
        );
        write!(f, "{:?} {len} bytes ({hash:08x}) {first}", self.metadata)
    }
}

impl Tree {
    /// Reads a directory. Its own metadata is under the empty path.
    pub fn read(root: &Path) -> Tree {
        let mut tree = Tree::default();
        let mut names = BTreeMap::new();
        tree.add(root, Vec::new(), &mut names);
        tree
    }

    /// Paths at which two trees differ.
    pub fn differences(&self, other: &Tree) -> Vec<Vec<u8>> {
        let paths = self.0.keys().chain(other.0.keys());
        let mut differing: Vec<Vec<u8>> = paths
            .filter(|path| self.0.get(*path) != other.0.get(*path))
            .cloned()
            .collect();
        differing.sort();
        differing.dedup();
        differing
    }

    fn add(&mut self, path: &Path, below: Vec<u8>, names: &mut BTreeMap<(u64, u64), Vec<u8>>) {
        let stat = fs::symlink_metadata(path).expect("a tree that nobody changes meanwhile");
        let content = if stat.is_file() {
            fs::read(path).expect("a file of the test's own")
        } else if stat.is_symlink() {
            let target = fs::read_link(path).expect("a link of the test's own");
            target.into_os_string().into_vec()
        } else {
            Vec::new()
        };
        let first_name = names
            .entry((stat.dev(), stat.ino()))
            .or_insert_with(|| below.clone())
            .clone();
        let node = Node {
            metadata: (
                stat.mode(),
                stat.uid(),
                stat.gid(),
                stat.mtime(),
                stat.mtime_nsec(),
            ),
            content,
            first_name,
        };
        self.0.insert(below.clone(), node);
        if stat.is_dir() {
            let mut children: Vec<_> = fs::read_dir(path)
                .expect("a directory of the test's own")
                .map(|child| child.expect("a directory of the test's own").file_name())
                .collect();
            children.sort();
            for name in children {
                let mut child = below.clone();
                if !child.is_empty() {
                    child.push(b'/');
                }
                child.extend_from_slice(name.as_bytes());
                self.add(&path.join(&name), child, names);
            }
        }
    }
}
