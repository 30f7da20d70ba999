//! What can be restored: every row of every snapshot is read as a restore reads it, and compared
//! with what it should be.
//!
//! Bytes that are wrong and not called so break the first promise whatever happened before.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use bale_engine::restore::{RepositoryChunks, SnapshotCatalog};
use bale_format::pieces::{Piece, PieceList};
use bale_format::{ChunkId, ChunkKind, ChunkPlace, Content, Entry, Kind, ObjectId};
use bale_repository::repository::{Named, Repository};
use bale_restore::xattrs::of_column;
use bale_restore::{CatalogSource, ChunkSource, ChunkTrouble};
use bytes::Bytes;

use super::tree::{Node, PathBytes, Tree, is_within, text};
use super::world::{Held, Kept, World};

/// What one snapshot is worth.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub whole: BTreeSet<PathBytes>,
    /// What cannot be restored, and the chunks that are at fault.
    pub lost: BTreeMap<PathBytes, Vec<ChunkId>>,
}

pub type States = BTreeMap<ObjectId, State>;

/// Looks at every snapshot that was acknowledged and not forgotten.
pub fn probe(world: &World) -> Held<States> {
    let kept = world.kept_now();
    probe_some(world, &kept)
}

pub fn probe_some(world: &World, kept: &[&Kept]) -> Held<States> {
    let repository = world.open(0)?;
    let told = |error: bale_repository::error::Error| format!("R1 look: {error}");
    let (snapshots, _) = repository.snapshots_readable().map_err(told)?;
    let reader = Reader {
        chunks: RepositoryChunks::new(repository.clone()).map_err(told)?,
        known: Mutex::default(),
    };
    let mut states = States::new();
    for kept in kept {
        let state = match snapshots.iter().find(|(id, _)| *id == kept.id) {
            Some(named) => reader.state(&repository, named, kept)?,
            None => nothing(&kept.tree, &[]),
        };
        states.insert(kept.id, state);
    }
    Ok(states)
}

fn nothing(tree: &Tree, faults: &[ChunkId]) -> State {
    let lost = tree.0.keys().map(|path| (path.clone(), faults.to_vec()));
    State {
        lost: lost.collect(),
        ..State::default()
    }
}

/// Reads each chunk once.
struct Reader {
    chunks: RepositoryChunks,
    known: Mutex<HashMap<ChunkId, Option<Bytes>>>,
}

impl ChunkSource for Reader {
    fn place(&self, id: &ChunkId) -> Option<ChunkPlace> {
        self.chunks.place(id)
    }

    fn read(&self, id: &ChunkId, wanted: ChunkKind) -> Result<Bytes, ChunkTrouble> {
        self.get(id, wanted).map_err(|_| "cannot be read".into())
    }
}

impl Reader {
    /// `Err` names the chunk that cannot be read.
    fn get(&self, id: &ChunkId, wanted: ChunkKind) -> Result<Bytes, ChunkId> {
        let mut known = self.known.lock().expect("no panics while held");
        let read = known
            .entry(*id)
            .or_insert_with(|| self.chunks.read(id, wanted).ok());
        read.clone().ok_or(*id)
    }

    fn state(&self, repository: &Arc<Repository>, named: &Named, kept: &Kept) -> Held<State> {
        let segments = || named.1.layers.iter().flat_map(|layer| &layer.segments);
        let unreadable: Vec<ChunkId> = segments()
            .filter(|segment| {
                repository
                    .read_chunk_uncached(&segment.id, ChunkKind::Segment)
                    .is_err()
            })
            .map(|segment| segment.id)
            .collect();
        let short = named.0.short();
        let catalog = match SnapshotCatalog::of(repository, &named.1) {
            Ok(catalog) => catalog,
            Err(error) if unreadable.is_empty() => {
                return Err(format!("R1 catalog of {short}: {error}"));
            }
            Err(_) => return Ok(nothing(&kept.tree, &unreadable)),
        };
        let mut state = State::default();
        let mut links: BTreeMap<(u32, u64), Vec<PathBytes>> = BTreeMap::new();
        match catalog.rows(b"") {
            Ok(rows) => {
                for row in rows {
                    match row {
                        Ok(entry) => {
                            self.look(&entry, kept, &mut state, &mut links)
                                .map_err(|broken| {
                                    format!(
                                        "R1 snapshot {short}, {}: {broken}",
                                        text(&entry.path())
                                    )
                                })?
                        }
                        Err(error) if unreadable.is_empty() => {
                            return Err(format!("R1 rows of {short}: {error}"));
                        }
                        Err(_) => {}
                    }
                }
            }
            Err(error) if unreadable.is_empty() => {
                return Err(format!("R1 rows of {short}: {error}"));
            }
            Err(_) => {}
        }
        for path in kept.tree.0.keys() {
            if state.whole.contains(path) || state.lost.contains_key(path) {
                continue;
            }
            if unreadable.is_empty() {
                return Err(format!("R1 snapshot {short}: {} is not in it", text(path)));
            }
            state.lost.insert(path.clone(), unreadable.clone());
        }
        if unreadable.is_empty() {
            check_links(kept, &links).map_err(|broken| format!("R1 snapshot {short}: {broken}"))?;
        }
        Ok(state)
    }

    fn look(
        &self,
        entry: &Entry,
        kept: &Kept,
        state: &mut State,
        links: &mut BTreeMap<(u32, u64), Vec<PathBytes>>,
    ) -> Held {
        let path = entry.path();
        if !kept.sources.iter().any(|source| is_within(&path, source)) {
            return Ok(());
        }
        if kept.own.as_ref() == Some(&path) {
            return Ok(());
        }
        let Some(node) = kept.tree.0.get(&path) else {
            return Err("was never there".to_owned());
        };
        if entry.is_hard_link() {
            links
                .entry((entry.filesystem, entry.inode))
                .or_default()
                .push(path.clone());
        }
        same_metadata(entry, node)?;
        match self.content(entry, node) {
            Ok(Ok(())) => {
                state.whole.insert(path);
            }
            Ok(Err(faults)) => {
                state.lost.insert(path, faults);
            }
            Err(broken) => return Err(broken),
        }
        Ok(())
    }

    /// The inner `Err`: these chunks cannot be read. The outer one: they can, and are wrong.
    fn content(&self, entry: &Entry, node: &Node) -> Held<Result<(), Vec<ChunkId>>> {
        let mut faults = Vec::new();
        match of_column(&entry.xattrs, self) {
            Ok(xattrs) => {
                let found: BTreeMap<Vec<u8>, Vec<u8>> = xattrs
                    .iter()
                    .map(|xattr| (xattr.name.to_vec(), xattr.value.to_vec()))
                    .collect();
                if found != node.xattrs {
                    return Err(format!("has other attributes: {:?}", found.keys()));
                }
            }
            Err(_) if entry.xattrs.first() == Some(&2) => {
                faults.extend(ChunkId::from_slice(&entry.xattrs[1..]).ok());
            }
            Err(error) => return Err(format!("attributes: {error}")),
        }
        let mut bytes = Vec::with_capacity(node.content.len());
        match entry.content {
            Content::None | Content::Image => {}
            Content::Bundled { chunk, offset } => match self.get(&chunk, ChunkKind::Data) {
                Ok(chunk) => {
                    let range = offset as usize..offset as usize + entry.size as usize;
                    let Some(part) = chunk.get(range) else {
                        return Err("lies beyond its chunk".to_owned());
                    };
                    bytes.extend_from_slice(part);
                }
                Err(chunk) => faults.push(chunk),
            },
            Content::Pieces { list } => self.pieces(&list, &mut bytes, &mut faults)?,
        }
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
        if entry.kind == Kind::File && bytes != *node.content {
            return Err(format!(
                "has other bytes: {} of them, {} wanted",
                bytes.len(),
                node.content.len()
            ));
        }
        Ok(Ok(()))
    }

    fn pieces(&self, list: &ChunkId, bytes: &mut Vec<u8>, faults: &mut Vec<ChunkId>) -> Held {
        let list = match self.get(list, ChunkKind::Pieces) {
            Ok(list) => list,
            Err(list) => {
                faults.push(list);
                return Ok(());
            }
        };
        match PieceList::decode(&list).map_err(|error| format!("a list of pieces: {error}"))? {
            PieceList::Inner { lists, .. } => {
                for below in &lists {
                    self.pieces(&below.list, bytes, faults)?;
                }
            }
            PieceList::Leaf(pieces) => {
                for piece in &pieces {
                    match piece {
                        Piece::Data { chunk, .. } => match self.get(chunk, ChunkKind::Data) {
                            Ok(chunk) => {
                                let range = piece.range_in(chunk.len());
                                let range = range.ok_or("a piece beyond its chunk")?;
                                bytes.extend_from_slice(&chunk[range]);
                            }
                            Err(chunk) => faults.push(chunk),
                        },
                        Piece::Hole { bytes: len } => bytes.resize(bytes.len() + *len as usize, 0),
                        Piece::Unreadable { .. } => return Err("was not read".to_owned()),
                    }
                }
            }
        }
        Ok(())
    }
}

fn same_metadata(entry: &Entry, node: &Node) -> Held {
    let mode = entry.kind.mode_bits() | entry.mode;
    if mode != node.mode {
        return Err(format!("has mode {mode:o}, not {:o}", node.mode));
    }
    if (entry.uid, entry.gid) != node.owner {
        return Err(format!("belongs to {}:{}", entry.uid, entry.gid));
    }
    if (entry.mtime.seconds, entry.mtime.nanos) != node.mtime {
        return Err(format!("has mtime {:?}, not {:?}", entry.mtime, node.mtime));
    }
    match entry.kind {
        Kind::File if entry.size != node.content.len() as u64 => {
            Err(format!("has {} bytes", entry.size))
        }
        Kind::Symlink if *entry.target != *node.content => Err("points elsewhere".to_owned()),
        _ => Ok(()),
    }
}

fn check_links(kept: &Kept, links: &BTreeMap<(u32, u64), Vec<PathBytes>>) -> Held {
    for names in links.values() {
        let first = names.iter().min().expect("one at least");
        for name in names {
            if kept.tree.0[name].first_name != *first {
                return Err(format!("{} is no hard link of {}", text(name), text(first)));
            }
        }
    }
    let in_catalog: BTreeMap<&PathBytes, usize> = links
        .values()
        .flat_map(|names| names.iter().map(|name| (name, names.len())))
        .collect();
    for (path, node) in &kept.tree.0 {
        let names = kept
            .tree
            .0
            .values()
            .filter(|other| other.first_name == node.first_name)
            .count();
        if names > 1 && in_catalog.get(path) != Some(&names) {
            return Err(format!("{} is not known by all its names", text(path)));
        }
    }
    Ok(())
}
