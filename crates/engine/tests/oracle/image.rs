//! An image of a tree, written by our own writer of ext4: what the inode scanner reads, without
//! root and without mounting.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use bale_format::Key;
use bale_fsimage::Timestamp;
use bale_fsimage::mkext4::{
    Ext4Builder, Ext4Options, FileData, Journal, NewEntry, NewKind, NewXattr, NoData, Plan,
    TotalsCounter,
};

use super::source::bytes_of;
use super::tree::{Node, PathBytes, Tree};

/// Writes what is below `root` into the file `image`, which is made anew.
pub fn write(root: &Path, image: &Path) {
    let mut tree = Tree::below(root);
    tree.0.insert(
        b"lost+found".to_vec(),
        lost_and_found(b"lost+found".to_vec()),
    );
    let mut paths: Vec<&PathBytes> = tree.0.keys().collect();
    paths.sort_by_cached_key(|path| Key::of_path(path));
    let options = Ext4Options {
        block_size: 1024,
        journal: Journal::None,
        inodes: Some(128),
        ..Ext4Options::default()
    };
    let mut counter = TotalsCounter::new(&options);
    each(&tree, &paths, root, &mut |first, entry, data| {
        match first {
            None => counter.add(entry, data),
            Some(_) => counter.add_link(entry.parent, entry.name),
        };
    });
    let plan = Plan::new(options, counter.finish()).expect("a small tree");
    let _none_before = fs::remove_file(image);
    let file = fs::File::create_new(image).expect("a new file");
    file.set_len(plan.bytes()).expect("room");
    let scratch = Box::new(|| Ok(Box::new(tempfile::tempfile()?) as Box<_>));
    let mut builder = Ext4Builder::create(plan, file, scratch).expect("a plan that fits");
    let mut inodes: HashMap<PathBytes, u32> = HashMap::new();
    each(&tree, &paths, root, &mut |first, entry, data| {
        let path = super::tree::join(entry.parent, entry.name);
        match first {
            None => {
                let inode = builder.push(entry, data).expect("an entry of every day");
                inodes.insert(path, inode);
            }
            Some(first) => {
                let inode = inodes[first];
                builder
                    .push_link(entry.parent, entry.name, inode)
                    .expect("a link of every day");
            }
        }
    });
    builder.finish().expect("all was counted");
}

type Each<'a> = &'a mut dyn FnMut(Option<&PathBytes>, &NewEntry<'_>, &mut dyn FileData);

/// Hands out entries in the order of a catalog; the second and later names of an inode with its
/// first one.
fn each(tree: &Tree, paths: &[&PathBytes], root: &Path, act: Each<'_>) {
    let mut first_in_order: HashMap<&PathBytes, &PathBytes> = HashMap::new();
    for path in paths {
        let node = &tree.0[*path];
        let first = *first_in_order.entry(&node.first_name).or_insert(*path);
        let key = Key::of_path(path);
        let ctime = ctime(root, path);
        let xattrs: Vec<NewXattr> = node
            .xattrs
            .iter()
            .map(|(name, value)| NewXattr { name, value })
            .collect();
        let names = tree
            .0
            .values()
            .filter(|other| other.first_name == node.first_name);
        let entry = NewEntry {
            parent: &key.parent,
            name: &key.name,
            content: content(node),
            permissions: node.mode & 0o7777,
            uid: node.owner.0,
            gid: node.owner.1,
            atime: ctime,
            mtime: Timestamp {
                seconds: node.mtime.0,
                nanos: node.mtime.1,
            },
            ctime,
            crtime: None,
            flags: 0,
            project: 0,
            generation: 0,
            xattrs: &xattrs,
            more_links: names.count() > 1,
        };
        let first = (first != *path).then_some(first);
        match node.is_file() {
            true => act(first, &entry, &mut &node.content[..]),
            false => act(first, &entry, &mut NoData),
        }
    }
}

fn content(node: &Node) -> NewKind<'_> {
    match node.kind() {
        0o040000 => NewKind::Directory,
        0o120000 => NewKind::Symlink {
            target: &node.content,
        },
        0o010000 => NewKind::Fifo,
        _ => NewKind::Regular {
            size_bytes: node.content.len() as u64,
        },
    }
}

fn ctime(root: &Path, path: &[u8]) -> Timestamp {
    use std::os::unix::ffi::OsStrExt;
    let path = root.join(std::ffi::OsStr::from_bytes(path));
    // All but `lost+found` are there.
    let Ok(stat) = fs::symlink_metadata(path) else {
        return Timestamp::default();
    };
    Timestamp {
        seconds: stat.ctime(),
        nanos: stat.ctime_nsec() as u32,
    }
}

/// The tree of an image, as a snapshot of it has it.
pub fn tree_of(root: &Path, image: &Path) -> Tree {
    let mut tree = Tree::of(&[root.to_path_buf()]);
    let (from, to) = (bytes_of(root), bytes_of(image));
    let moved = |path: &PathBytes| [&to[..], &path[from.len()..]].concat();
    tree.0 = std::mem::take(&mut tree.0)
        .into_iter()
        .map(|(path, mut node)| {
            node.first_name = moved(&node.first_name);
            (moved(&path), node)
        })
        .collect();
    let name = super::tree::join(&to, b"lost+found");
    tree.0.insert(name.clone(), lost_and_found(name));
    tree
}

fn lost_and_found(first_name: PathBytes) -> Node {
    Node {
        mode: 0o040700,
        owner: (0, 0),
        mtime: (1_600_000_000, 0),
        content: Arc::default(),
        xattrs: BTreeMap::new(),
        first_name,
    }
}
