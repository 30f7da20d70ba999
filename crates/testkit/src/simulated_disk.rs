//! `SimulatedDisk`: a file system that, when the power goes, forgets any subset of what was not
//! synced.
//!
//! Rules, harsher than any real file system: bytes written last only after a sync of the file, and
//! until then each write may be lost, torn at a sector, or present as length without content; a
//! name that came or went lasts only after a sync of its directory, and a rename is two such
//! changes that may be lost separately, in any combination and order. A sync that fails drops what
//! it was asked to keep, and the next one reports success.
//!
//! A test runs code over the disk with `cut_power_after(n)`, then looks at `crashed(..)`, a new
//! disk for each way the unsynced changes may have gone; `Every` walks through all of them.

mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bale_repository::store::disk::{DirEntryKind, Disk, Expect, FileStat, NewFile, OpenFile};

use crate::choices::Choices;
use nodes::{DirNode, FileNode, Node, Write, change, write_at};

/// A file system in memory. Clones share it.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    /// The root is the first. Nodes without names stay: there are few.
    nodes: Vec<Node>,
    /// Changes asked for so far, syncs among them.
    ops: u64,
    power_ends_after: Option<u64>,
    failing: BTreeMap<u64, io::ErrorKind>,
    bytes_free: Option<u64>,
    now: SystemTime,
}

impl Default for SimulatedDisk {
    fn default() -> Self {
        Self::with_nodes(vec![Node::Dir(DirNode::default())])
    }
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn with_nodes(nodes: Vec<Node>) -> Self {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let state = State {
            nodes,
            ops: 0,
            power_ends_after: None,
            failing: BTreeMap::new(),
            bytes_free: None,
            now,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// After so many more changes, nothing works any more.
    pub fn cut_power_after(&self, ops: u64) {
        let mut state = self.lock();
        state.power_ends_after = Some(state.ops + ops);
    }

    /// The power did not really go: only a process died, and what it changed is still in the
    /// machine's memory.
    pub fn restart_process(&self) {
        self.lock().power_ends_after = None;
    }

    /// Changes so far, syncs among them.
    pub fn ops(&self) -> u64 {
        self.lock().ops
    }

    /// The change after `ops` more fails. A sync that fails loses what it was to keep; an append
    /// does half its work.
    pub fn fail_after(&self, ops: u64, kind: io::ErrorKind) {
        let mut state = self.lock();
        let at = state.ops + ops + 1;
        state.failing.insert(at, kind);
    }

    /// Room for so many more bytes; none is won back by deleting.
    pub fn full_after(&self, bytes: u64) {
        self.lock().bytes_free = Some(bytes);
    }

    /// Time stamped on what is written from now on.
    pub fn set_now(&self, now: SystemTime) {
        self.lock().now = now;
    }

    /// Every file by path, as programs see it.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let state = self.lock();
        let mut files = BTreeMap::new();
        let mut dirs = vec![(String::new(), 0)];
        while let Some((prefix, node)) = dirs.pop() {
            let Node::Dir(dir) = &state.nodes[node] else {
                unreachable!("only directories are pushed")
            };
            for (name, &child) in &dir.live {
                match &state.nodes[child] {
                    Node::File(file) => {
                        drop(files.insert(format!("{prefix}{name}"), file.live.clone()))
                    }
                    Node::Dir(_) => dirs.push((format!("{prefix}{name}/"), child)),
                }
            }
        }
        files
    }

    /// What is found after the power went now: everything synced, and of the rest what `choices`
    /// says.
    pub fn crashed(&self, choices: &mut dyn Choices) -> Self {
        let state = self.lock();
        let mut nodes = state.nodes.clone();
        // Only what a kept name leads to is decided on: the fate of the rest cannot be seen.
        let (mut reached, mut decided) = (vec![0], BTreeSet::new());
        while let Some(node) = reached.pop() {
            if !decided.insert(node) {
                continue;
            }
            match &mut nodes[node] {
                Node::File(file) => file.crash(choices),
                Node::Dir(dir) => {
                    dir.crash(choices);
                    reached.extend(dir.live.values());
                }
            }
        }
        let disk = Self::with_nodes(nodes);
        disk.set_now(state.now);
        disk
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a change goes.
enum Fate {
    Done,
    Fails(io::Error),
}

impl State {
    /// Counts a change. `Err` if the power is off.
    fn begin_change(&mut self) -> io::Result<Fate> {
        self.check_power()?;
        if self.power_ends_after == Some(self.ops) {
            self.ops += 1;
            return Err(power_off());
        }
        self.ops += 1;
        match self.failing.get(&self.ops) {
            Some(&kind) => Ok(Fate::Fails(kind.into())),
            None => Ok(Fate::Done),
        }
    }

    /// For changes that are all or nothing.
    fn begin_whole_change(&mut self) -> io::Result<()> {
        match self.begin_change()? {
            Fate::Done => Ok(()),
            Fate::Fails(error) => Err(error),
        }
    }

    fn check_power(&self) -> io::Result<()> {
        match self.power_ends_after {
            Some(end) if self.ops > end => Err(power_off()),
            _ => Ok(()),
        }
    }

    fn find(&self, path: &str) -> io::Result<usize> {
        let mut node = 0;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            node = *self
                .dir(node)?
                .live
                .get(part)
                .ok_or(io::ErrorKind::NotFound)?;
        }
        Ok(node)
    }

    fn dir(&self, node: usize) -> io::Result<&DirNode> {
        match &self.nodes[node] {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn dir_mut(&mut self, node: usize) -> io::Result<&mut DirNode> {
        match &mut self.nodes[node] {
            Node::Dir(dir) => Ok(dir),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn file_mut(&mut self, node: usize) -> &mut FileNode {
        match &mut self.nodes[node] {
            Node::File(file) => file,
            Node::Dir(_) => unreachable!("a file stays a file"),
        }
    }

    /// The directory of a path and the last part.
    fn parent<'path>(&self, path: &'path str) -> io::Result<(usize, &'path str)> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        Ok((self.find(dir)?, name))
    }

    fn add(&mut self, path: &str, node: Node) -> io::Result<usize> {
        let (parent, name) = self.parent(path)?;
        if self.dir(parent)?.live.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.nodes.push(node);
        let added = self.nodes.len() - 1;
        self.dir_mut(parent)?.set(name, Some(added));
        Ok(added)
    }
}

fn power_off() -> io::Error {
    io::Error::other("the power is off")
}

impl Disk for SimulatedDisk {
    fn create(&self, path: &str, _expect: Expect) -> io::Result<Box<dyn NewFile>> {
        let mut state = self.lock();
        state.begin_whole_change()?;
        let modified = Some(state.now);
        let node = state.add(
            path,
            Node::File(FileNode {
                modified,
                ..FileNode::default()
            }),
        )?;
        Ok(Box::new(SimulatedNewFile {
            disk: self.clone(),
            node,
        }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn OpenFile>> {
        let state = self.lock();
        state.check_power()?;
        match &state.nodes[state.find(path)?] {
            Node::File(file) => Ok(Arc::new(SimulatedOpenFile {
                bytes: file.live.clone(),
            })),
            Node::Dir(_) => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn stat(&self, path: &str) -> io::Result<Option<FileStat>> {
        let state = self.lock();
        state.check_power()?;
        match state.find(path) {
            Ok(node) => Ok(Some(match &state.nodes[node] {
                Node::File(file) => FileStat {
                    kind: DirEntryKind::File,
                    len: file.live.len() as u64,
                    modified: file.modified,
                },
                Node::Dir(_) => FileStat {
                    kind: DirEntryKind::Dir,
                    len: 0,
                    modified: None,
                },
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn rename_new(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.begin_whole_change()?;
        let (from_dir, from_name) = state.parent(from)?;
        let (to_dir, to_name) = state.parent(to)?;
        let node = state.find(from)?;
        if state.dir(to_dir)?.live.contains_key(to_name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.dir_mut(to_dir)?.set(to_name, Some(node));
        state.dir_mut(from_dir)?.set(from_name, None);
        Ok(())
    }

    fn unlink(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.begin_whole_change()?;
        if let Node::Dir(_) = &state.nodes[state.find(path)?] {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (parent, name) = state.parent(path)?;
        state.dir_mut(parent)?.set(name, None);
        Ok(())
    }

    fn make_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.begin_whole_change()?;
        state.add(path, Node::Dir(DirNode::default())).map(|_| ())
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        state.begin_whole_change()?;
        let node = state.find(path)?;
        if !state.dir(node)?.live.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let (parent, name) = state.parent(path)?;
        state.dir_mut(parent)?.set(name, None);
        Ok(())
    }

    fn sync_dir(&self, path: &str) -> io::Result<()> {
        let mut state = self.lock();
        let fate = state.begin_change()?;
        let node = state.find(path)?;
        let dir = state.dir_mut(node)?;
        let changes = std::mem::take(&mut dir.dirty);
        match fate {
            Fate::Done => changes
                .iter()
                .for_each(|(name, node)| change(&mut dir.durable, name, *node)),
            Fate::Fails(error) => return Err(error),
        }
        Ok(())
    }

    fn list(
        &self,
        path: &str,
        found: &mut dyn FnMut(&[u8], Option<DirEntryKind>),
    ) -> io::Result<()> {
        let names: Vec<_> = {
            let state = self.lock();
            state.check_power()?;
            state.dir(state.find(path)?)?.live.keys().cloned().collect()
        };
        names.iter().for_each(|name| found(name.as_bytes(), None));
        Ok(())
    }

    fn place(&self) -> String {
        "simulated disk".to_owned()
    }
}

struct SimulatedNewFile {
    disk: SimulatedDisk,
    node: usize,
}

impl NewFile for SimulatedNewFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.lock();
        let (done, error) = match state.begin_change()? {
            Fate::Done => (bytes, None),
            Fate::Fails(error) => (&bytes[..bytes.len() / 2], Some(error)),
        };
        let free = state.bytes_free.unwrap_or(u64::MAX);
        let room = usize::try_from(free).unwrap_or(usize::MAX);
        let (done, error) = match done.len() <= room {
            true => (done, error),
            false => (&done[..room], Some(io::ErrorKind::StorageFull.into())),
        };
        state.bytes_free = state.bytes_free.map(|free| free - done.len() as u64);
        let now = state.now;
        let file = state.file_mut(self.node);
        file.dirty.push(Write {
            offset: file.live.len(),
            bytes: done.to_vec(),
        });
        file.live.extend_from_slice(done);
        file.modified = Some(now);
        error.map_or(Ok(()), Err)
    }

    fn sync(self: Box<Self>) -> io::Result<()> {
        let mut state = self.disk.lock();
        let fate = state.begin_change()?;
        let file = state.file_mut(self.node);
        let writes = std::mem::take(&mut file.dirty);
        match fate {
            Fate::Done => writes
                .iter()
                .for_each(|write| write_at(&mut file.durable, write.offset, &write.bytes)),
            Fate::Fails(error) => return Err(error),
        }
        Ok(())
    }
}

struct SimulatedOpenFile {
    bytes: Vec<u8>,
}

impl OpenFile for SimulatedOpenFile {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| Some(start..start.checked_add(buf.len())?));
        let part = range
            .and_then(|range| self.bytes.get(range))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
