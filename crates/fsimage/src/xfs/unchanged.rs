//! Content of files of XFS that nothing changed between two states, by their inodes.
//!
//! Whenever an inode is written it gets the place in the log of its change, so one of version 5
//! that is byte for byte what it was did not change; nor did its extents, if the blocks of their
//! btree are what they were. Of regular files nothing more is needed. All else, from inodes to
//! directories and attributes, is handed out only where it was compared itself: directories are not
//! believed by their inodes, since a repair writes to them and leaves no mark.
//!
//! When the earlier state was last written is nowhere, but it has reached the newest change of its
//! inodes; that is the moment that changes must be older than. Where clocks were ahead it is too
//! late, and what changed within one tick of such a state, on both sides of it, is missed.
//!
//! States are refused that no unmount left. A freeze covers the log; but so does the kernel, half a
//! minute after the last change of metadata, while content may still be in memory alone, and what
//! is written to the device behind that is not in the log for half a minute. So what is covered is
//! taken for frozen only if somebody knows it.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex, PoisonError};

use super::Xfs;
use super::bytes::read_into;
use super::error::Result;
use super::free_space::RO_COMPAT_KNOWN;
use super::inobt::{CHUNK_INODES, InodeChunk};
use super::inode::{DiskInode, ForkKind};
use super::log::LogState;
use super::superblock::Superblock;
use crate::in_use::runs_of_ones;
use crate::unchanged::{
    Compared, JoinedRanges, MARGIN_SECONDS, NotCompared, OTHER_FILE_SYSTEM, PIECE_BYTES,
    StateSource, UnchangedContent,
};
use crate::{ByteSource, FileKind};

/// Gap between inode chunks that is read rather than skipped.
const GAP_BYTES_MAX: u64 = 64 << 10;
/// What is compared is handed out in units of so many bytes; blocks are no smaller.
const UNIT_BYTES: usize = 1 << 10;

/// Of states that were frozen, or only idle.
const FROZEN_BEFORE: &str =
    "it was not unmounted in the snapshot before, and that it was frozen was not said";
const FROZEN_NOW: &str = "it was not unmounted, and that it was frozen is not said";

/// Two states of a file system.
pub(crate) struct XfsStates {
    old: State,
    new: State,
    /// Inodes that changed at this second or later are taken for changed.
    until: i64,
}

struct State {
    xfs: Xfs,
    source: Arc<dyn ByteSource>,
}

impl XfsStates {
    pub(crate) fn between(
        of_old: StateSource<'_>,
        of_new: StateSource<'_>,
    ) -> std::result::Result<XfsStates, NotCompared> {
        let old = State::open(
            of_old,
            "it was in use in the snapshot before",
            FROZEN_BEFORE,
        )?;
        let new = State::open(of_new, "it is in use, and not frozen", FROZEN_NOW)?;
        let superblock = &new.xfs.superblock;
        if !superblock.has_checksums {
            return Err(NotCompared::Because(
                "it is of version 4, of which no block proves itself",
            ));
        }
        if superblock.ro_compat & !RO_COMPAT_KNOWN != 0 {
            return Err(NotCompared::Because(
                "it has features of which it is not known what they change",
            ));
        }
        if shape(&old.xfs.superblock) != shape(superblock) {
            return Err(NotCompared::Because(OTHER_FILE_SYSTEM));
        }
        let newest = old.newest_change();
        let newest = newest.ok_or(NotCompared::Because("no inode says when it was written"))?;
        Ok(XfsStates {
            old,
            new,
            until: newest.saturating_sub(MARGIN_SECONDS),
        })
    }

    fn walk_group(
        &self,
        ag: u32,
        walked: &mut Walked,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for piece in self.new.pieces(ag)? {
            let piece = piece?;
            self.old.read(piece.start..piece.end, &mut old)?;
            self.new.read(piece.start..piece.end, &mut new)?;
            let ended = self.walk_piece(&piece, (&old[..], &new[..]), walked, found);
            if ended.is_break() {
                return Ok(ended);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Hands out what did not change of a piece, which was read of both states.
    fn walk_piece(
        &self,
        piece: &ChunkPiece,
        (old, new): (&[u8], &[u8]),
        walked: &mut Walked,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let inode_bytes = self.new.xfs.superblock.inode_bytes;
        for chunk in &piece.chunks {
            // Those that are not in use, too: they are in blocks that are.
            for run in chunk.places(inode_bytes) {
                let its = (run.start - piece.start) as usize..(run.end - piece.start) as usize;
                hand_out_equal(run.start, (&old[its.clone()], &new[its]), found)?;
            }
            let Some((start, len)) = chunk.chunk.device_range(inode_bytes) else {
                continue;
            };
            let at = (start - piece.start) as usize;
            let inodes = self.new.xfs.chunk_inodes(&chunk.chunk, &new[at..at + len]);
            // Of a damaged one nothing is believed.
            for inode in inodes.filter_map(|(_, inode)| inode.ok()) {
                self.compare_blocks(&inode, ForkKind::Attributes, walked, found)?;
                if inode.kind != FileKind::Regular {
                    self.compare_blocks(&inode, ForkKind::Data, walked, found)?;
                    continue;
                }
                walked.compared.files += 1;
                let at = (inode.device_offset - piece.start) as usize;
                let its = at..at + usize::from(inode_bytes);
                if old[its.clone()] == new[its] && self.is_unchanged(&inode) {
                    walked.compared.unchanged += 1;
                    self.hand_out(&inode, found)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads what a fork has in blocks, of both states, and hands out what is equal.
    fn compare_blocks(
        &self,
        inode: &DiskInode<'_>,
        fork: ForkKind,
        walked: &mut Walked,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let nodes = Nodes::new(&self.old, &self.new);
        let extents = self.new.xfs.extents(&nodes, inode, fork);
        // What cannot be walked or read is not said to be equal.
        for extent in extents.into_iter().flatten().map_while(Result::ok) {
            nodes.take().into_iter().try_for_each(&mut *found)?;
            let end = extent.device_offset + extent.len;
            let mut at = extent.device_offset;
            while at < end && walked.budget_bytes > 0 {
                let piece = (end - at).min(PIECE_BYTES);
                walked.budget_bytes = walked.budget_bytes.saturating_sub(piece);
                let (old, new) = &mut walked.blocks;
                let read = self.old.read(at..at + piece, old);
                if read
                    .and_then(|()| self.new.read(at..at + piece, new))
                    .is_ok()
                {
                    hand_out_equal(at, (old, new), found)?;
                }
                at += piece;
            }
        }
        ControlFlow::Continue(())
    }

    /// Of an inode that is what it was: is it old enough, and are its extents what they were?
    fn is_unchanged(&self, inode: &DiskInode<'_>) -> bool {
        let nodes = Nodes::new(&self.old, &self.new);
        inode.ctime.seconds < self.until
            && inode.mtime.seconds < self.until
            && (self.new.xfs.extents(&nodes, inode, ForkKind::Data)).is_ok_and(|mut extents| {
                extents.all(|extent| {
                    nodes.take();
                    extent.is_ok()
                })
            })
    }

    /// Its extents, and the nodes that they are in, which were compared.
    fn hand_out(
        &self,
        inode: &DiskInode<'_>,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let nodes = Nodes::new(&self.old, &self.new);
        let mut joined = JoinedRanges::new(found);
        let extents = self.new.xfs.extents(&nodes, inode, ForkKind::Data);
        // What cannot be walked is not said to be unchanged.
        for extent in extents.into_iter().flatten().map_while(Result::ok) {
            for node in nodes.take() {
                joined.push(node)?;
            }
            joined.push(extent.device_offset..extent.device_offset + extent.len)?;
        }
        joined.finish()
    }
}

impl UnchangedContent for XfsStates {
    /// Group by group, in the order of the inodes.
    fn walk(
        &self,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> std::result::Result<Compared, NotCompared> {
        let mut walked = Walked::of(&self.new.xfs);
        for ag in 0..self.new.xfs.superblock.ag_count {
            if self.walk_group(ag, &mut walked, found)?.is_break() {
                break;
            }
        }
        Ok(walked.compared)
    }
}

/// How far a walk has come.
struct Walked {
    compared: Compared,
    /// Of blocks that are compared; who maps more than there is, maps some twice.
    budget_bytes: u64,
    /// Of the two states.
    blocks: (Vec<u8>, Vec<u8>),
}

impl Walked {
    fn of(xfs: &Xfs) -> Walked {
        Walked {
            compared: Compared::default(),
            budget_bytes: xfs.superblock.blocks * u64::from(xfs.superblock.block_bytes),
            blocks: Default::default(),
        }
    }
}

/// Hands out those units of two buffers, from `at` on, that are equal.
fn hand_out_equal(
    mut at: u64,
    (old, new): (&[u8], &[u8]),
    found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut joined = JoinedRanges::new(found);
    for (old, new) in old.chunks(UNIT_BYTES).zip(new.chunks(UNIT_BYTES)) {
        let end = at + new.len() as u64;
        if old == new {
            joined.push(at..end)?;
        }
        at = end;
    }
    joined.finish()
}

impl State {
    /// Of one that was left whole.
    fn open(
        of: StateSource<'_>,
        in_use: &'static str,
        maybe_frozen: &'static str,
    ) -> std::result::Result<State, NotCompared> {
        let source = of.source.clone();
        let xfs = Xfs::open(source.as_ref())?;
        match xfs.log_state(source.as_ref())? {
            LogState::Clean => Ok(State { xfs, source }),
            LogState::Covered if of.was_frozen => Ok(State { xfs, source }),
            LogState::Covered => Err(NotCompared::Because(maybe_frozen)),
            LogState::Dirty | LogState::External => Err(NotCompared::Because(in_use)),
        }
    }

    fn read(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> Result<()> {
        let len = (range.end - range.start) as usize;
        read_into(self.source.as_ref(), range.start, len, bytes)
    }

    fn pieces(&self, ag: u32) -> Result<impl Iterator<Item = Result<ChunkPiece>> + '_> {
        let mut chunks = self.xfs.inode_chunks(self.source.as_ref(), ag)?;
        let chunks = std::iter::from_fn(move || chunks.next_present());
        Ok(ChunkPieces {
            inode_bytes: self.xfs.superblock.inode_bytes,
            chunks: chunks.map(|chunk| {
                let (chunk, present) = chunk?;
                Ok(PresentChunk { chunk, present })
            }),
            next: None,
        })
    }

    /// When an inode was changed last, in seconds. What cannot be read says nothing, and the answer
    /// is the earlier for it.
    fn newest_change(&self) -> Option<i64> {
        let mut newest = None;
        let mut bytes = Vec::new();
        let groups = 0..self.xfs.superblock.ag_count;
        for piece in groups
            .filter_map(|ag| self.pieces(ag).ok())
            .flatten()
            .flatten()
        {
            if self.read(piece.start..piece.end, &mut bytes).is_err() {
                continue;
            }
            for chunk in &piece.chunks {
                let range = chunk.chunk.device_range(self.xfs.superblock.inode_bytes);
                let Some((start, len)) = range else { continue };
                let at = (start - piece.start) as usize;
                let inodes = self.xfs.chunk_inodes(&chunk.chunk, &bytes[at..at + len]);
                let times = inodes.filter_map(|(_, inode)| Some(inode.ok()?.ctime.seconds));
                newest = newest.max(times.max());
            }
        }
        newest
    }
}

/// What of a superblock stays as long as nobody makes another file system of it.
fn shape(superblock: &Superblock) -> Superblock {
    Superblock {
        label: Vec::new(),
        inode_count: 0,
        inode_free_count: 0,
        ..superblock.clone()
    }
}

/// A chunk, and which of its inodes are there, in use or not.
struct PresentChunk {
    chunk: InodeChunk,
    present: u64,
}

impl PresentChunk {
    /// Where the inodes are that are there, run by run.
    fn places(&self, inode_bytes: u16) -> Vec<Range<u64>> {
        let mut places = Vec::new();
        let slots = self.present.to_le_bytes();
        runs_of_ones(&slots, CHUNK_INODES.into(), |run| {
            let at = |slot| self.chunk.device_offset + slot * u64::from(inode_bytes);
            places.push(at(run.start)..at(run.end));
        });
        places
    }
}

/// Neighbouring chunks as one read, of a piece at most.
struct ChunkPiece {
    start: u64,
    end: u64,
    chunks: Vec<PresentChunk>,
}

struct ChunkPieces<I> {
    inode_bytes: u16,
    chunks: I,
    /// Of the next piece.
    next: Option<ChunkPiece>,
}

impl<I: Iterator<Item = Result<PresentChunk>>> Iterator for ChunkPieces<I> {
    type Item = Result<ChunkPiece>;

    fn next(&mut self) -> Option<Self::Item> {
        for chunk in self.chunks.by_ref() {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => return Some(Err(error)),
            };
            let places = chunk.places(self.inode_bytes);
            let (Some(first), Some(last)) = (places.first(), places.last()) else {
                continue;
            };
            let (start, end) = (first.start, last.end);
            match &mut self.next {
                Some(piece) if piece.takes(start..end) => {
                    piece.end = end;
                    piece.chunks.push(chunk);
                }
                next => {
                    let chunks = vec![chunk];
                    let piece = next.replace(ChunkPiece { start, end, chunks });
                    if piece.is_some() {
                        return piece.map(Ok);
                    }
                }
            }
        }
        self.next.take().map(Ok)
    }
}

impl ChunkPiece {
    fn takes(&self, range: Range<u64>) -> bool {
        let is_near = range.start >= self.end && range.start - self.end <= GAP_BYTES_MAX;
        is_near && range.end - self.start <= PIECE_BYTES
    }
}

/// What is read of the later state must be what the earlier one has there. Remembers where it was,
/// until it is taken.
struct Nodes<'a> {
    old: &'a dyn ByteSource,
    new: &'a dyn ByteSource,
    read: Mutex<Vec<Range<u64>>>,
}

impl<'a> Nodes<'a> {
    fn new(old: &'a State, new: &'a State) -> Nodes<'a> {
        Nodes {
            old: old.source.as_ref(),
            new: new.source.as_ref(),
            read: Mutex::default(),
        }
    }

    fn take(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.read.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ByteSource for Nodes<'_> {
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.new.read_exact_at(offset, buf)?;
        let mut before = vec![0; buf.len()];
        self.old.read_exact_at(offset, &mut before)?;
        if before != buf {
            return Err(std::io::Error::other("it is not what it was"));
        }
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.push(offset..offset + buf.len() as u64);
        Ok(())
    }

    fn len_bytes(&self) -> u64 {
        self.new.len_bytes()
    }
}

/// Compares two devices in a made-up file system of which there is one group, for fuzzing.
pub(super) fn check_states(
    xfs: &Xfs,
    devices: [Vec<u8>; 2],
    found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
) -> u64 {
    let [old, new] = devices.map(|device| State {
        xfs: xfs.clone(),
        source: Arc::new(device),
    });
    let until = old.newest_change().unwrap_or(i64::MAX);
    let states = XfsStates { old, new, until };
    let mut walked = Walked::of(&states.new.xfs);
    let _ = states.walk_group(0, &mut walked, found);
    walked.compared.unchanged
}
