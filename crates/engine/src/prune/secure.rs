//! Before packs are given up: every chunk in use that has a copy in them is somewhere else, read
//! and verified just now.
//!
//! A copy elsewhere counts if its pack is whole, is not condemned, and the copy reads. Where there
//! is none, the chunk is stored again from whatever copy reads. Where none reads, nothing that
//! might hold the chunk is given up.

use super::Pruned;
use super::left_alone::LeftAlone;
use super::pack_states::{PackState, PackStates};
use super::repack::Copier;
use super::staying_copies::{CopyRead, read, read_any};
use crate::used::UsedChunks;
use bale_format::{ChunkId, ObjectId};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// What was found out about packs to be given up. Grows with the chunks in use that they hold: 32
/// bytes for each.
#[derive(Default)]
pub(super) struct Secured {
    chunks: HashSet<ChunkId>,
    /// Packs with a copy of a chunk in use that cannot be had: not to be given up.
    held: HashSet<ObjectId>,
}

impl Secured {
    /// Must it not be given up?
    pub(super) fn holds(&self, pack: &ObjectId) -> bool {
        self.held.contains(pack)
    }

    /// It must not be given up.
    pub(super) fn hold(&mut self, pack: ObjectId) {
        self.held.insert(pack);
    }

    /// Makes sure of all chunks in use of which a copy is in these packs, but for those that were
    /// made sure of before.
    pub(super) fn secure(
        &mut self,
        repository: &Arc<Repository>,
        (standing, used): (&PackStates, &UsedChunks),
        given_up: &HashSet<ObjectId>,
        left: &mut LeftAlone,
        monitor: &dyn Monitor,
        pruned: &mut Pruned,
    ) -> Result<()> {
        let mut copier = Copier::new(repository, monitor, 0);
        let mut safe = Vec::new();
        for copies in self.open(standing, used, given_up) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let id = standing.index.entries()[copies.start].chunk.id;
            if reads_elsewhere(repository, standing, &copies, given_up) {
                safe.push(id);
            } else if let CopyRead::Verified(bytes) = read_any(repository, standing, copies.clone())
            {
                copier.store(standing, copies.start, bytes)?;
                safe.push(id);
            } else {
                self.hold_all((repository, standing), copies, given_up, left, monitor);
            }
        }
        pruned.bytes_repacked += copier.finish()?;
        self.chunks.extend(safe);
        Ok(())
    }

    /// Chunks in use with a copy in these packs, in the order in which their other copies lie.
    fn open(
        &self,
        standing: &PackStates,
        used: &UsedChunks,
        given_up: &HashSet<ObjectId>,
    ) -> Vec<Range<usize>> {
        let entries = standing.index.entries();
        let is_open = |copies: &Range<usize>| {
            !self.chunks.contains(&entries[copies.start].chunk.id)
                && (copies.clone()).any(|copy| given_up.contains(&standing.pack_at(copy)))
        };
        let mut open: Vec<Range<usize>> = used.chunks().filter(is_open).collect();
        open.sort_by_key(|copies| {
            let best = copies.clone().min_by_key(|copy| standing.state_at(*copy));
            best.map(|copy| (entries[copy].pack, entries[copy].chunk.offset))
        });
        open
    }

    fn hold_all(
        &mut self,
        (repository, standing): (&Repository, &PackStates),
        copies: Range<usize>,
        given_up: &HashSet<ObjectId>,
        left: &mut LeftAlone,
        monitor: &dyn Monitor,
    ) {
        for copy in copies {
            let pack = standing.pack_at(copy);
            if !given_up.contains(&pack) {
                continue;
            }
            self.held.insert(pack);
            if standing.state_at(copy) == PackState::Missing {
                left.name_gone(monitor, [pack]);
            } else if let CopyRead::Unread(why) = read(repository, standing, copy) {
                left.name_unread(monitor, pack, &why);
            } else {
                let id = standing.index.entries()[copy].chunk.id;
                let why = format!("chunk {} in it is in use, and cannot be read", id.short());
                left.name(monitor, pack, &why);
            }
        }
    }
}

/// Is a copy that reads in a pack that stays?
fn reads_elsewhere(
    repository: &Repository,
    standing: &PackStates,
    copies: &Range<usize>,
    given_up: &HashSet<ObjectId>,
) -> bool {
    copies.clone().any(|copy| {
        standing.state_at(copy) == PackState::Whole
            && !given_up.contains(&standing.pack_at(copy))
            && read(repository, standing, copy).is_verified()
    })
}
