//! What is in a directory, as values: all that a restore brings back, and, for what must not
//! change, the stamps that tell.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a path, without a slash in front.
pub type PathBytes = Vec<u8>;

/// One entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    /// Type and permissions.
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, u32),
    /// Bytes of a file, target of a link.
    pub content: Arc<Vec<u8>>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// First path of the same inode.
    pub first_name: PathBytes,
}

impl Node {
    pub fn kind(&self) -> u32 {
        self.mode & 0o170000
    }

    pub fn is_dir(&self) -> bool {
        self.kind() == 0o040000
    }

    pub fn is_file(&self) -> bool {
        self.kind() == 0o100000
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hash = blake3::hash(&self.content).to_hex();
        write!(
            f,
            "{:o} {:?} {:?} {} bytes {} {:?} first {}",
            self.mode,
            self.owner,
            self.mtime,
            self.content.len(),
            &hash[..8],
            self.xattrs.keys().map(|key| text(key)).collect::<Vec<_>>(),
            text(&self.first_name)
        )
    }
}

/// Entries by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<PathBytes, Node>);

/// Inodes met so far, and their first names.
pub type Inodes = BTreeMap<(u64, u64), Vec<PathBytes>>;

impl Tree {
    /// Everything below a directory, by path from there; the directory itself has the empty path.
    pub fn below(root: &Path) -> Tree {
        let (mut tree, mut inodes) = (Tree::default(), Inodes::new());
        tree.add(root, Vec::new(), &mut inodes);
        tree.name_links(&inodes);
        tree
    }

    /// Several paths with all that is below, each under its own absolute path.
    pub fn of(paths: &[std::path::PathBuf]) -> Tree {
        let (mut tree, mut inodes) = (Tree::default(), Inodes::new());
        for path in paths {
            tree.add(path, path.as_os_str().as_bytes()[1..].to_vec(), &mut inodes);
        }
        tree.name_links(&inodes);
        tree
    }

    /// Keeps some, and names hard links after the first name that stayed.
    pub fn retain(&mut self, keep: impl Fn(&[u8], &Node) -> bool) {
        self.0.retain(|path, node| keep(path, node));
        let mut first: BTreeMap<PathBytes, PathBytes> = BTreeMap::new();
        for (path, node) in &mut self.0 {
            let name = first.entry(node.first_name.clone()).or_insert(path.clone());
            node.first_name = name.clone();
        }
    }

    fn name_links(&mut self, inodes: &Inodes) {
        for names in inodes.values().filter(|names| names.len() > 1) {
            let first = names.iter().min().expect("two at least").clone();
            for name in names {
                if let Some(node) = self.0.get_mut(name) {
                    node.first_name = first.clone();
                }
            }
        }
    }

    fn add(&mut self, path: &Path, name: PathBytes, inodes: &mut Inodes) {
        let Ok(stat) = fs::symlink_metadata(path) else {
            return;
        };
        let content = if stat.is_file() {
            fs::read(path).expect("a file of the test's own")
        } else if stat.is_symlink() {
            let target = fs::read_link(path).expect("a link of the test's own");
            target.as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        if !stat.is_dir() {
            let names = inodes.entry((stat.dev(), stat.ino())).or_default();
            names.push(name.clone());
        }
        let node = Node {
            mode: stat.mode(),
            owner: (stat.uid(), stat.gid()),
            mtime: (stat.mtime(), stat.mtime_nsec() as u32),
            content: Arc::new(content),
            xattrs: xattrs(path),
            first_name: name.clone(),
        };
        self.0.insert(name.clone(), node);
        if stat.is_dir() {
            for child in fs::read_dir(path).expect("a directory of the test's own") {
                let child = child.expect("a directory of the test's own").file_name();
                self.add(&path.join(&child), join(&name, child.as_bytes()), inodes);
            }
        }
    }
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names).unwrap_or(0);
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value);
        value.truncate(len.expect("an attribute that was just listed"));
        found.insert(name.to_vec(), value);
    }
    found
}

/// What tells that an entry was not touched.
#[derive(PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    names: u64,
    changed: (i64, i64),
    modified: (i64, i64),
    len: u64,
    mode: u32,
}

impl Stamp {
    /// An inode that has names elsewhere, too, tells of their coming and going by its time of
    /// change.
    fn is_as(&self, other: &Stamp) -> bool {
        self == other
            || self.names.max(other.names) > 1
                && (self.inode, self.modified, self.len, self.mode)
                    == (other.inode, other.modified, other.len, other.mode)
    }
}

/// Stamps of everything below a directory, but for some subtrees.
pub fn stamps(root: &Path, skipped: &[&Path]) -> BTreeMap<PathBytes, Stamp> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![root.to_path_buf()];
    while let Some(path) = waiting.pop() {
        if skipped.contains(&path.as_path()) {
            continue;
        }
        let Ok(stat) = fs::symlink_metadata(&path) else {
            continue;
        };
        // Of a directory that holds something skipped the times say nothing.
        let holds_skipped = skipped.iter().any(|other| other.starts_with(&path));
        let of = |time| if holds_skipped { (0, 0) } else { time };
        let stamp = Stamp {
            inode: stat.ino(),
            names: if stat.is_dir() { 1 } else { stat.nlink() },
            changed: of((stat.ctime(), stat.ctime_nsec())),
            modified: of((stat.mtime(), stat.mtime_nsec())),
            len: if stat.is_dir() { 0 } else { stat.len() },
            mode: stat.mode(),
        };
        found.insert(path.as_os_str().as_bytes().to_vec(), stamp);
        if stat.is_dir()
            && let Ok(children) = fs::read_dir(&path)
        {
            waiting.extend(children.flatten().map(|child| child.path()));
        }
    }
    found
}

/// Paths at which two sets of stamps differ.
pub fn touched(
    before: &BTreeMap<PathBytes, Stamp>,
    after: &BTreeMap<PathBytes, Stamp>,
) -> Vec<String> {
    let paths = before.keys().chain(after.keys());
    let mut differing: Vec<String> = paths
        .filter(|path| match (before.get(*path), after.get(*path)) {
            (Some(before), Some(after)) => !before.is_as(after),
            _ => true,
        })
        .map(|path| text(path))
        .collect();
    differing.sort();
    differing.dedup();
    differing
}

pub fn join(parent: &[u8], name: &[u8]) -> PathBytes {
    match parent.is_empty() {
        true => name.to_vec(),
        false => [parent, b"/", name].concat(),
    }
}

/// Is `path` at `above` or below it?
pub fn is_within(path: &[u8], above: &[u8]) -> bool {
    above.is_empty()
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

pub fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
