//! Packs that a prune leaves alone because they are damaged: each is named once and counted.

use crate::monitor::{Monitor, Problem};
use crate::store::ObjectName;
use bale_format::ObjectId;
use std::collections::HashSet;

/// What to do about those that are in use.
const ADVICE: &str = "nothing of it is given up. `bale repair packs` saves what opens of it, and `bale check` then says \
                      what is lost and what to do";

/// Packs that were named.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftAlone {
    packs: HashSet<ObjectId>,
}

impl LeftAlone {
    /// Says that a pack in use stays, and why.
    pub(super) fn name(&mut self, monitor: &dyn Monitor, pack: ObjectId, why: &str) {
        self.name_with(monitor, pack, &format!("{why}: {ADVICE}"));
    }

    /// Says that a pack stays, why, and what to do.
    pub(super) fn name_with(&mut self, monitor: &dyn Monitor, pack: ObjectId, text: &str) {
        if self.packs.insert(pack) {
            monitor.problem(&Problem {
                path: ObjectName::pack(pack).path().into_bytes(),
                action: "prune",
                text: text.to_owned(),
            });
        }
    }

    pub(super) fn contains(&self, pack: &ObjectId) -> bool {
        self.packs.contains(pack)
    }

    pub(super) fn packs(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.packs.iter().copied()
    }

    pub(super) fn count(&self) -> u64 {
        self.packs.len() as u64
    }
}
