//! What the reader sees of a whole image, joined to paths the way a scan does it.

use std::collections::{BTreeMap, HashMap, HashSet};

use bale_fsimage::ext4::{Ext4, InodeResult, ROOT_INODE_NUMBER, RawInode};
use bale_fsimage::{FileKind, Inode, Layout, MappedExtent};

/// Pieces small enough that every image has several.
const PIECE_BYTES: u64 = 256 << 10;

pub struct Scan {
    pub fs: Ext4,
    pub inodes: BTreeMap<u64, Seen>,
    /// Paths without a leading slash; the root is the empty path.
    pub paths: BTreeMap<Vec<u8>, u64>,
    pub problems: Vec<String>,
}

pub struct Seen {
    pub inode: Inode,
    pub bytes: Vec<u8>,
}

pub fn scan(fs: Ext4) -> Scan {
    let mut scan = Scan {
        fs,
        inodes: BTreeMap::new(),
        paths: BTreeMap::new(),
        problems: Vec::new(),
    };
    scan.problems.extend(
        scan.fs
            .group_problems()
            .iter()
            .map(|problem| format!("{problem:?}")),
    );
    scan.read_tables();
    let names = scan.read_names();
    scan.join(&names);
    scan
}

/// Names below each directory.
type Names = HashMap<u64, Vec<(Vec<u8>, u64)>>;

impl Scan {
    fn read_tables(&mut self) {
        let (inodes, problems) = (&mut self.inodes, &mut self.problems);
        for range in self
            .fs
            .itable_ranges()
            .into_iter()
            .flat_map(|range| range.pieces(PIECE_BYTES))
        {
            let mut bytes = vec![0; range.len_bytes() as usize];
            if let Err(error) = self
                .fs
                .source()
                .read_exact_at(range.device_offset, &mut bytes)
            {
                problems.push(format!("{range:?}: {error}"));
            }
            self.fs
                .parse_inodes(range.first_inode, &bytes, &mut |result| match result {
                    InodeResult::Used(inode, raw) => {
                        inodes.insert(
                            raw.number(),
                            Seen {
                                inode,
                                bytes: raw.bytes().to_vec(),
                            },
                        );
                    }
                    InodeResult::Damaged(raw, damage) => {
                        problems.push(format!("inode {}: {damage}", raw.number()));
                    }
                });
        }
    }

    /// Directory blocks in physical order, as a scan reads them; checked against reading them one
    /// directory at a time.
    fn read_names(&mut self) -> Names {
        let mut names = Names::new();
        let mut parts: Vec<(MappedExtent, u64)> = Vec::new();
        let directories = self
            .inodes
            .values()
            .filter(|seen| seen.inode.mode & 0o170000 == 0o040000);
        for seen in directories {
            let (number, raw) = (seen.inode.number, seen.raw());
            let list = names.entry(number).or_default();
            match &seen.inode.layout {
                Layout::Inline(content) => {
                    let parsed = self.fs.parse_inline_dir(content, &mut |entry| {
                        list.push((entry.name.to_vec(), entry.inode));
                    });
                    self.problems.extend(
                        parsed
                            .err()
                            .map(|damage| format!("inline directory {number}: {damage}")),
                    );
                }
                Layout::Mapped => {
                    let problems = &mut self.problems;
                    let walked = self.fs.dir_extents(&raw, &mut |part| match part {
                        Ok(extent) => parts.push((extent, number)),
                        Err(problem) => problems.push(format!("directory {number}: {problem:?}")),
                    });
                    self.problems.extend(
                        walked
                            .err()
                            .map(|error| format!("directory {number}: {error:?}")),
                    );
                }
                _ => {}
            }
        }
        parts.sort_unstable_by_key(|(extent, _)| extent.device_offset);
        for (extent, number) in parts {
            self.read_dir_extent(extent, number, &mut names);
        }
        self.check_against_read_dir(&names);
        names
    }

    fn read_dir_extent(&mut self, extent: MappedExtent, number: u64, names: &mut Names) {
        let block_bytes = u64::from(self.fs.superblock().block_bytes);
        let mut bytes = vec![0; extent.len as usize];
        if let Err(error) = self
            .fs
            .source()
            .read_exact_at(extent.device_offset, &mut bytes)
        {
            self.problems.push(format!("directory {number}: {error}"));
            return;
        }
        let dir = self.fs.dir_context(&self.inodes[&number].raw());
        let list = names.entry(number).or_default();
        for (index, block) in
            (extent.file_offset / block_bytes..).zip(bytes.chunks(block_bytes as usize))
        {
            let parsed = self.fs.parse_dir_block(&dir, index, block, &mut |entry| {
                list.push((entry.name.to_vec(), entry.inode));
            });
            self.problems.extend(
                parsed
                    .err()
                    .map(|damage| format!("directory {number} block {index}: {damage}")),
            );
        }
    }

    fn check_against_read_dir(&self, names: &Names) {
        for (number, list) in names {
            let mut again = Vec::new();
            let read = self.fs.read_dir(&self.inodes[number].raw(), &mut |entry| {
                again.extend(entry.ok().map(|entry| (entry.name.to_vec(), entry.inode)));
            });
            if read.is_ok() {
                let mut list = list.clone();
                list.sort_unstable();
                again.sort_unstable();
                assert!(
                    list == again,
                    "read_dir of {number} differs from its blocks"
                );
            }
        }
    }

    fn join(&mut self, names: &Names) {
        self.paths.insert(Vec::new(), ROOT_INODE_NUMBER);
        let mut entered = HashSet::from([ROOT_INODE_NUMBER]);
        let mut todo = vec![(Vec::new(), ROOT_INODE_NUMBER)];
        while let Some((path, number)) = todo.pop() {
            for (name, child) in names.get(&number).into_iter().flatten() {
                let child_path = if path.is_empty() {
                    name.clone()
                } else {
                    [&path[..], b"/", name].concat()
                };
                let kind = self
                    .inodes
                    .get(child)
                    .map(|seen| FileKind::from_mode(seen.inode.mode));
                match kind {
                    None => self
                        .problems
                        .push(format!("name without inode: {}", child_path.escape_ascii())),
                    // Without this, two entries that lead upwards would make 2^depth paths.
                    Some(Some(FileKind::Directory)) if entered.insert(*child) => {
                        todo.push((child_path.clone(), *child))
                    }
                    Some(Some(FileKind::Directory)) => self
                        .problems
                        .push(format!("directory {child} has two names")),
                    Some(_) => {}
                }
                self.paths.insert(child_path, *child);
            }
        }
    }

    /// Inodes that no path leads to.
    pub fn nameless(&self) -> Vec<u64> {
        let named: HashSet<_> = self.paths.values().collect();
        self.inodes
            .keys()
            .copied()
            .filter(|number| !named.contains(number))
            .collect()
    }

    pub fn at(&self, path: &str) -> &Seen {
        let number = self
            .paths
            .get(path.as_bytes())
            .unwrap_or_else(|| panic!("{path} is missing"));
        &self.inodes[number]
    }
}

impl Seen {
    pub fn raw(&self) -> RawInode<'_> {
        RawInode::new(self.inode.number, &self.bytes).unwrap()
    }

    /// Bytes `offset..offset + len` of the content.
    pub fn content(&self, fs: &Ext4, extents: &[MappedExtent], offset: u64, len: usize) -> Vec<u8> {
        let mut content = vec![0; len];
        if let Layout::Inline(inline) = &self.inode.layout {
            let stored = inline.get(offset as usize..).unwrap_or(&[]);
            let stored = &stored[..stored.len().min(len)];
            content[..stored.len()].copy_from_slice(stored);
            return content;
        }
        let end = offset + len as u64;
        for extent in extents.iter().filter(|extent| !extent.unwritten) {
            let from = extent.file_offset.max(offset);
            let to = (extent.file_offset + extent.len).min(end);
            if from < to {
                let into = &mut content[(from - offset) as usize..(to - offset) as usize];
                fs.source()
                    .read_exact_at(extent.device_offset + (from - extent.file_offset), into)
                    .unwrap();
            }
        }
        content
    }
}
