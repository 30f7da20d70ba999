//! Of every chunk in use, the copy that stays.
//!
//! A copy is given up only for one that this prune has read and verified. So where packs are to go
//! that hold a copy, the one that stays is read. If it does not read, its whole pack is doubted and
//! others stay; if none reads, all copies of the chunk do. Chunks of one copy are not read.

use super::left_alone::Unread;
use super::pack_states::{PackState, PackStates};
use crate::used::UsedChunks;
use bale_format::{ObjectId, PackNumber};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::repository::Repository;
use bytes::Bytes;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// Positions in the index, a bit for each.
pub(super) struct Staying {
    bits: Vec<u64>,
    /// Copies that this prune has read: 8 bytes for each chunk that had several.
    proven: HashSet<usize>,
    bad: HashSet<usize>,
}

impl Staying {
    /// The copy that is believed most; if nothing is there, whatever the index names.
    pub(super) fn choose(standing: &PackStates, used: &UsedChunks) -> Staying {
        let mut staying = Staying {
            bits: vec![0; standing.index.entries().len().div_ceil(64)],
            proven: HashSet::new(),
            bad: HashSet::new(),
        };
        for copies in used.chunks() {
            staying.choose_of(standing, copies);
        }
        staying
    }

    /// Does the copy at this position stay?
    pub(super) fn stays(&self, position: usize) -> bool {
        self.bits[position / 64] >> (position % 64) & 1 == 1
    }

    /// Packs of copies that stay and are not there: nothing else has these chunks.
    pub(super) fn in_missing(&self, standing: &PackStates) -> BTreeSet<ObjectId> {
        let copies = 0..standing.index.entries().len();
        let missing = copies
            .filter(|copy| self.stays(*copy) && standing.state_at(*copy) == PackState::Missing);
        missing.map(|copy| standing.pack_at(copy)).collect()
    }

    /// Is it there, and does it not read, being archived or not?
    pub(super) fn is_bad(&self, position: usize) -> bool {
        self.bad.contains(&position)
    }

    /// Reads the copies that stay where another one is given up. True: some did not read, and the
    /// choice is another one.
    pub(super) fn prove(
        &mut self,
        repository: &Repository,
        standing: &mut PackStates,
        used: &UsedChunks,
        is_given_up: impl Fn(PackNumber) -> bool,
        monitor: &dyn Monitor,
    ) -> Result<bool> {
        let index = standing.index.clone();
        let entries = index.entries();
        let mut is_changed = false;
        for copies in used.chunks().filter(|copies| copies.len() > 1) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let gives_up = |staying: &Staying| {
                let mut others = copies.clone().filter(|copy| !staying.stays(*copy));
                others.any(|copy| is_given_up(entries[copy].pack))
            };
            while gives_up(self) {
                let mut chosen = copies.clone().filter(|copy| self.stays(*copy));
                let copy = chosen.next().expect("of a chunk in use some copy stays");
                if self.proven.contains(&copy) {
                    break;
                }
                match read(repository, standing, copy) {
                    CopyRead::Verified(_) => {
                        self.proven.insert(copy);
                        continue;
                    }
                    CopyRead::Unread(why) => standing.find_unread(entries[copy].pack, why),
                    CopyRead::Unreadable => standing.doubt(entries[copy].pack),
                }
                self.bad.insert(copy);
                self.choose_of(standing, copies.clone());
                is_changed = true;
            }
        }
        if is_changed {
            used.chunks()
                .for_each(|copies| self.choose_of(standing, copies));
        }
        Ok(is_changed)
    }

    fn choose_of(&mut self, standing: &PackStates, copies: Range<usize>) {
        for copy in copies.clone() {
            self.bits[copy / 64] &= !(1 << (copy % 64));
        }
        let best = copies
            .clone()
            .filter(|copy| !self.bad.contains(copy))
            .filter(|copy| standing.state_at(*copy) != PackState::Missing)
            .min_by_key(|copy| (standing.state_at(*copy), *copy));
        for copy in best.map_or(copies, |copy| copy..copy + 1) {
            self.bits[copy / 64] |= 1 << (copy % 64);
        }
    }
}

/// What reading a copy showed.
pub(super) enum CopyRead {
    /// It is what it should be.
    Verified(Bytes),
    /// Nothing is known of it, and why.
    Unread(Unread),
    /// It is damaged, or gone.
    Unreadable,
}

impl CopyRead {
    pub(super) fn is_verified(&self) -> bool {
        matches!(self, CopyRead::Verified(_))
    }
}

pub(super) fn read(repository: &Repository, standing: &PackStates, copy: usize) -> CopyRead {
    let place = &standing.index.entries()[copy];
    match repository.read_place(&standing.index, place.chunk.kind, place) {
        Ok(bytes) => CopyRead::Verified(bytes),
        Err(error) => match Unread::of(&error) {
            Some(why) => CopyRead::Unread(why),
            None => CopyRead::Unreadable,
        },
    }
}

/// A chunk from the best copy that reads. Unread: none does, and of some nothing is known.
pub(super) fn read_any(
    repository: &Repository,
    standing: &PackStates,
    copies: Range<usize>,
) -> CopyRead {
    let mut copies: Vec<usize> = copies
        .filter(|copy| standing.state_at(*copy) != PackState::Missing)
        .collect();
    copies.sort_by_key(|copy| (standing.state_at(*copy), *copy));
    let mut found = CopyRead::Unreadable;
    for copy in copies {
        match read(repository, standing, copy) {
            CopyRead::Unreadable => {}
            CopyRead::Unread(why) => found = CopyRead::Unread(why),
            verified => return verified,
        }
    }
    found
}
