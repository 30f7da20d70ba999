//! Which chunks of doomed packs are in use, by a listing of snapshots that is fresh.
//!
//! The first look reads every catalog, which may take hours. So snapshots are listed again and what
//! is new is looked at, until a listing is fresh: from then on packs may be deleted for a while.
//! docs/decisions/0003-two-phase-deletion.md.

use super::left_alone::{LeftAlone, Unread};
use super::pack_states::{PackState, PackStates};
use super::records::RecordSet;
use super::secure::Secured;
use super::trailer;
use super::{Pruned, refuse_while_missed};
use crate::two_clocks::TwoClocks;
use crate::used::UsedChunks;
use bale_format::{ChunkPlace, ObjectId};
use bale_pipeline::error::without_name;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::index::ChunkIndex;
use bale_repository::pack::Published;
use bale_repository::repository::Repository;
use bale_repository::store::ObjectName;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// A listing of snapshots is believed for so long; a prune that was stopped in between (a closed
/// lid) lists again.
const BELIEF_MAX: Duration = Duration::from_secs(15 * 60);
/// Listings until one is fresh. All but the first look at new snapshots only.
const LISTINGS_MAX: usize = 1_000;

/// What is known of packs that are to be deleted.
pub(super) struct UseOfDoomed<'a> {
    repository: &'a Arc<Repository>,
    monitor: &'a dyn Monitor,
    doomed: HashSet<ObjectId>,
    /// What is in them, as the index or their trailers said at first: later no index names them.
    contents: HashMap<ObjectId, Published>,
    records: RecordSet,
    used: Option<UsedChunks>,
    missing: HashSet<ObjectId>,
    secured: Secured,
    listed: Option<TwoClocks>,
}

impl<'a> UseOfDoomed<'a> {
    pub(super) fn new(
        repository: &'a Arc<Repository>,
        doomed: HashSet<ObjectId>,
        monitor: &'a dyn Monitor,
    ) -> UseOfDoomed<'a> {
        UseOfDoomed {
            repository,
            monitor,
            doomed,
            contents: HashMap::new(),
            records: RecordSet::default(),
            used: None,
            missing: HashSet::new(),
            secured: Secured::default(),
            listed: None,
        }
    }

    /// Packs to be deleted, whatever was found out about them.
    pub(super) fn doomed(&self) -> &HashSet<ObjectId> {
        &self.doomed
    }

    /// Must it stay?
    pub(super) fn holds(&self, pack: &ObjectId) -> bool {
        self.secured.holds(pack)
    }

    /// Packs whose names no index needs any more.
    pub(super) fn nameless(&self) -> HashSet<ObjectId> {
        let packs = self.doomed.union(&self.missing);
        packs.filter(|pack| !self.holds(pack)).copied().collect()
    }

    /// Lists snapshots, unless that was done a moment ago, and makes sure of what new ones use,
    /// until the last listing is fresh.
    pub(super) fn refresh(&mut self, left: &mut LeftAlone, pruned: &mut Pruned) -> Result<()> {
        let repository = self.repository;
        for _ in 0..LISTINGS_MAX {
            if (self.listed).is_some_and(|listed| listed.is_within(BELIEF_MAX, repository)) {
                return Ok(());
            }
            let began = TwoClocks::now(repository);
            let news = self.records.news(repository)?;
            refuse_while_missed(repository)?;
            if self.used.is_none() || !news.is_empty() {
                let standing = self.stand(left)?;
                let used = match self.used.take() {
                    Some(used) => used.in_index(standing.index.clone())?,
                    None => UsedChunks::none(standing.index.clone()),
                };
                let used = self.used.insert(used);
                used.add(repository, &news, self.monitor)?;
                let given_up = self.doomed.union(&self.missing).copied().collect();
                let seen = (&standing, &*used);
                let monitor = self.monitor;
                self.secured
                    .secure(repository, seen, &given_up, left, monitor, pruned)?;
            }
            self.listed = Some(began);
        }
        Err(Error::Other(
            "backups keep ending while prune looks at what they use: run it again".to_owned(),
        ))
    }

    /// Looks at the index and the packs. The index also names what is in the packs to be deleted.
    fn stand(&mut self, left: &mut LeftAlone) -> Result<PackStates> {
        let mut standing = PackStates::look(self.repository)?;
        if self.used.is_none() {
            self.missing = standing.missing();
            self.missing.retain(|pack| !self.doomed.contains(pack));
            self.find_contents(&standing, left)?;
        }
        let is_unnamed = |pack: &&Published| standing.index.pack_number(&pack.id).is_none();
        let unnamed: Vec<&Published> = self.contents.values().filter(is_unnamed).collect();
        if !unnamed.is_empty() {
            let mut index = ChunkIndex::clone(&standing.index);
            for content in unnamed {
                let pack = index.add_pack(content.id, content.bytes);
                index.condemn(&content.id);
                let chunks = content.entries.iter();
                chunks.for_each(|chunk| {
                    index.add(ChunkPlace {
                        pack,
                        chunk: *chunk,
                    })
                });
            }
            let index = self.repository.keep_index(index);
            standing = PackStates::of_index(self.repository, index)?;
        }
        Ok(standing)
    }

    fn find_contents(&mut self, standing: &PackStates, left: &mut LeftAlone) -> Result<()> {
        let index = &standing.index;
        for place in index.entries() {
            let pack = index.pack(place.pack);
            if self.doomed.contains(&pack.id) {
                let content = self.contents.entry(pack.id).or_insert_with(|| Published {
                    id: pack.id,
                    bytes: pack.len,
                    entries: Vec::new(),
                });
                content.entries.push(place.chunk);
            }
        }
        let unnamed = self.doomed.iter();
        let unnamed: Vec<ObjectId> = unnamed
            .filter(|pack| !self.contents.contains_key(pack))
            .copied()
            .collect();
        for id in unnamed {
            // A listing that left it out is no proof that it is gone.
            let Some(info) = self.repository.store().stat(&ObjectName::pack(id))? else {
                continue;
            };
            let bytes = info.len;
            match trailer::entries(self.repository, id, bytes) {
                Ok(entries) => {
                    let content = Published { id, bytes, entries };
                    self.contents.insert(id, content);
                }
                Err(error) => {
                    self.secured.hold(id);
                    if let Some(why) = Unread::of(&error) {
                        left.name_unread(self.monitor, id, &why);
                        continue;
                    }
                    let name = ObjectName::pack(id).to_string();
                    let error = error.to_string();
                    let text = format!(
                        "no index names it, and what it holds is not known ({}): bale repair index \
                         lists what opens of it; if nothing does, bale forget {id} removes it",
                        without_name(&name, &error)
                    );
                    left.name_with(self.monitor, id, &text);
                }
            }
        }
        Ok(())
    }

    /// A pack that turned out to be needed after the index was rewritten is named again.
    pub(super) fn name_held(&self) -> Result<()> {
        let held = self.contents.values().filter(|pack| self.holds(&pack.id));
        let held: Vec<&Published> = held.collect();
        if held.is_empty() {
            return Ok(());
        }
        let standing = PackStates::look(self.repository)?;
        for pack in held {
            let number = standing.index.pack_number(&pack.id);
            let is_there = standing.packs.iter().any(|found| found.id == pack.id);
            if is_there && number.is_none_or(|number| standing.state(number) == PackState::Missing)
            {
                self.repository.write_index(std::slice::from_ref(pack))?;
            }
        }
        Ok(())
    }
}
