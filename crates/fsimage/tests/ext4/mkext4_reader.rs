//! The crate's own reader agrees with its writer: what was written is what a backup will see. Needs
//! no root.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::mkext4_tree::random::*;
use crate::mkext4_tree::*;
use bale_fsimage::ext4::{Ext4, InodeResult, ROOT_INODE_NUMBER, RawInode};
use bale_fsimage::mkext4::*;
use bale_fsimage::{FileKind, Timestamp};

const TREES: u64 = 150;

#[test]
fn random_trees_are_read_back_by_our_own_reader() {
    for seed in 5_000..5_000 + TREES {
        let mut random = Random(seed);
        let mut options = random_options(&mut random);
        let tree = random_tree(&mut random, &mut options);
        let plan = Plan::new(options.clone(), totals(&options, &tree)).unwrap();
        let (sink, summary) =
            build(&options, &tree, Memory(vec![0; plan.bytes() as usize])).unwrap();
        let ext4 = Ext4::open(Arc::new(sink.0)).unwrap();
        assert_eq!(ext4.group_problems(), []);
        let mut found = Found {
            ext4: &ext4,
            options: &options,
            tree: &tree,
            names: BTreeMap::new(),
        };
        found.directory(&[], ROOT_INODE_NUMBER);
        let paths: Vec<Vec<u8>> = tree.0.keys().map(path_of).collect();
        let missing: Vec<String> = paths
            .iter()
            .filter(|path| !found.names.contains_key(*path))
            .map(|path| path.escape_ascii().to_string())
            .collect();
        assert_eq!(missing, Vec::<String>::new(), "seed {seed}");
        assert_eq!(found.names.len(), tree.0.len(), "seed {seed}");
        assert_eq!(scanned_inodes(&ext4), inodes_of(&tree), "seed {seed}");
        assert_eq!(summary.names, tree.0.len() as u64);
    }
}

/// Inodes that a scan of the tables reports: those of the tree, the root and `lost+found`.
fn scanned_inodes(ext4: &Ext4) -> usize {
    let mut count = 0;
    for range in ext4.itable_ranges() {
        let mut bytes = vec![0; range.len_bytes() as usize];
        ext4.source()
            .read_exact_at(range.device_offset, &mut bytes)
            .unwrap();
        ext4.parse_inodes(range.first_inode, &bytes, &mut |result| match result {
            InodeResult::Used(..) => count += 1,
            InodeResult::Damaged(raw, damage) => panic!("inode {}: {damage}", raw.number()),
        });
    }
    count
}

fn inodes_of(tree: &Tree) -> usize {
    let own = tree
        .0
        .values()
        .filter(|node| !matches!(node.kind, Kind::Link(_)))
        .count();
    let has_lost_found = tree.0.contains_key(&key(b"lost+found"));
    own + 1 + usize::from(!has_lost_found)
}

struct Found<'a> {
    ext4: &'a Ext4,
    options: &'a Ext4Options,
    tree: &'a Tree,
    names: BTreeMap<Vec<u8>, u64>,
}

impl Found<'_> {
    fn directory(&mut self, path: &[u8], number: u64) {
        let bytes = self.ext4.read_inode_bytes(number).unwrap();
        let raw = RawInode::new(number, &bytes).unwrap();
        let mut entries = Vec::new();
        self.ext4
            .read_dir(&raw, &mut |entry| entries.push(entry.unwrap().to_dirent()))
            .unwrap();
        for entry in entries {
            if path.is_empty()
                && entry.name == b"lost+found"
                && !self.tree.0.contains_key(&key(b"lost+found"))
            {
                continue;
            }
            let child = if path.is_empty() {
                entry.name
            } else {
                [path, b"/", &entry.name].concat()
            };
            let node = self
                .tree
                .0
                .get(&key(&child))
                .unwrap_or_else(|| panic!("{} is new", child.escape_ascii()));
            self.entry(&child, node, entry.inode);
            if entry.kind == Some(FileKind::Directory) {
                self.directory(&child, entry.inode);
            }
            assert_eq!(self.names.insert(child, entry.inode), None);
        }
    }

    fn entry(&self, path: &[u8], node: &Node, number: u64) {
        let text = path.escape_ascii().to_string();
        let node = match &node.kind {
            Kind::Link(first) => &self.tree.0[&key(first)],
            _ => node,
        };
        let bytes = self.ext4.read_inode_bytes(number).unwrap();
        let raw = RawInode::new(number, &bytes).unwrap();
        let inode = self.ext4.decode_inode(&raw).unwrap();
        assert_eq!(
            (inode.mode & 0o7777, inode.uid, inode.gid),
            (node.permissions, node.uid, node.gid),
            "{text}"
        );
        let times = [inode.atime, inode.mtime, inode.ctime];
        let stored = [node.atime, node.mtime, node.ctime].map(|time| {
            let (seconds, nanos) = stored_time(time, self.options.inode_size);
            Timestamp {
                seconds,
                nanos: nanos as u32,
            }
        });
        assert_eq!(times, stored, "{text}");
        match &node.kind {
            Kind::Regular(size, pieces) => self.content(&raw, *size, pieces, &text),
            Kind::Symlink(target) => {
                assert_eq!(self.ext4.read_symlink(&raw).unwrap(), *target, "{text}")
            }
            Kind::CharDevice(major, minor) | Kind::BlockDevice(major, minor) => {
                assert_eq!(inode.rdev, (*major, *minor), "{text}");
            }
            _ => {}
        }
        let found = self.ext4.xattrs(&raw).unwrap();
        let mut found: Vec<_> = found
            .into_iter()
            .map(|xattr| (xattr.name, xattr.value))
            .collect();
        found.sort();
        let mut expected = node.xattrs.clone();
        expected.sort();
        assert_eq!(found, expected, "{text}");
    }

    /// Data is where the extents say, and only where there is data.
    fn content(&self, raw: &RawInode<'_>, size: u64, pieces: &[(u64, Vec<u8>)], text: &str) {
        let block = u64::from(self.options.block_size);
        let mut mapped = 0;
        for extent in self.ext4.extents(raw).unwrap() {
            let mut bytes = vec![0; extent.len as usize];
            self.ext4
                .source()
                .read_exact_at(extent.device_offset, &mut bytes)
                .unwrap();
            let mut expected = vec![0; bytes.len()];
            bale_fsimage::mkext4::FileData::read_at(
                &mut Pieces(pieces),
                extent.file_offset,
                &mut expected,
            )
            .unwrap();
            assert!(bytes == expected, "{text} at {}", extent.file_offset);
            // The last one ends with the file.
            mapped += extent.len.div_ceil(block);
        }
        let data: std::collections::BTreeSet<u64> = pieces
            .iter()
            .flat_map(|(start, bytes)| start / block..(start + bytes.len() as u64).div_ceil(block))
            .collect();
        assert_eq!(mapped, data.len() as u64, "{text}");
        assert!(
            size >= pieces
                .last()
                .map_or(0, |(start, bytes)| start + bytes.len() as u64)
        );
    }
}
