//! Copies in the target that do not have everything any more: what their index names is gone, has
//! another length, or was found damaged. They are filled again from the source, as if they had not
//! been copied.
//!
//! Where index and packs of the target agree, and nothing in it is marked as damaged, its snapshots
//! are believed; else each of those that are copies is followed to its packs, once for what they
//! share. What stands in the packs is not read: that is for a check of the target, which marks what
//! it finds.

use super::choose::{is_copy_of, origin};
use crate::whole::Wholeness;
use bale_format::ObjectId;
use bale_pipeline::amount::counted;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::index::{ChunkIndex, PackInfo};
use bale_repository::repository::{Named, Repository};
use bale_repository::store::Area;
use std::collections::{HashMap, HashSet};

/// How far the index of the target and its packs agree.
pub(super) struct Gaps {
    /// Packs that the index names and that are not there, or have another length: 32 bytes for
    /// each.
    pub(super) missing: HashSet<ObjectId>,
    /// Something is missing, marked as damaged, named by nobody or cannot be read.
    are_some: bool,
}

impl Gaps {
    pub(super) fn find(target: &Repository, index: &ChunkIndex) -> Result<Gaps> {
        let mut missing: HashMap<ObjectId, u64> = (index.packs().iter())
            .map(|pack| (pack.id, pack.len))
            .collect();
        let mut is_some_unnamed = false;
        target.store().list(Area::Packs, &mut |info| {
            let Some(id) = info.name.id() else { return };
            is_some_unnamed |= index.pack_number(&id).is_none();
            if missing.get(&id) == Some(&info.len) {
                missing.remove(&id);
            }
        })?;
        let is_marked = index.packs().iter().any(|pack| pack.damaged);
        let missing: HashSet<ObjectId> = missing.into_keys().collect();
        Ok(Gaps {
            are_some: is_some_unnamed || is_marked || !missing.is_empty() || !index.is_all(),
            missing,
        })
    }

    /// Of those that a prune of the target was about to delete it is as it should be.
    fn note(&self, index: &ChunkIndex, monitor: &dyn Monitor) {
        let is_gone = |pack: &&PackInfo| !pack.condemned && self.missing.contains(&pack.id);
        let gone = index.packs().iter().filter(is_gone).count() as u64;
        if gone > 0 {
            monitor.note(&format!(
                "{} that the index of the target names {} not there, or not of the right length: \
                 what of that is needed here is copied again; bale check of the target says what \
                 else is lost",
                counted(gone, "pack"),
                if gone == 1 { "is" } else { "are" },
            ));
        }
    }

    /// Which of the copies of these snapshots lack something, by what they are copies of. With
    /// `verify`, nothing is believed.
    pub(super) fn spoiled<'t>(
        &self,
        (target, index): (&Repository, &std::sync::Arc<ChunkIndex>),
        (chosen, in_target): (&[Named], &'t [Named]),
        verify: bool,
        monitor: &dyn Monitor,
    ) -> Result<HashMap<ObjectId, &'t Named>> {
        self.note(index, monitor);
        let is_named = |named: &Named| {
            let mut segments = named.1.layers.iter().flat_map(|layer| &layer.segments);
            segments.all(|segment| !index.positions(&segment.id).is_empty())
        };
        let by_origin: HashMap<ObjectId, &Named> =
            chosen.iter().map(|named| (origin(named), named)).collect();
        let is_meant = |copy: &&Named| {
            let chosen = by_origin.get(&origin(copy));
            chosen.is_some_and(|chosen| is_copy_of(copy, chosen))
        };
        let has_pack = |pack: &PackInfo| !pack.damaged && !self.missing.contains(&pack.id);
        let mut wholeness = Wholeness::new(target, index.clone(), has_pack);
        let (mut spoiled, mut whole) = (HashMap::new(), HashSet::new());
        for copy in in_target.iter().filter(is_meant) {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let is_believed = !verify && !self.are_some && is_named(copy);
            match is_believed || wholeness.is_whole(&copy.1.layers)? {
                true => drop(whole.insert(origin(copy))),
                false => drop(spoiled.insert(origin(copy), copy)),
            }
        }
        // One that is whole is enough.
        spoiled.retain(|origin, _| !whole.contains(origin));
        for (id, _) in spoiled.values() {
            monitor.note(&format!(
                "snapshot {} of the target lacks something that it needs: it is filled again from \
                 the source",
                id.short()
            ));
        }
        Ok(spoiled)
    }
}
