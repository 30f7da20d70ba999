//! Packs that a prune leaves alone because they are damaged: each is named once and counted.

use crate::monitor::{Monitor, Problem};
use crate::store::ObjectName;
use bale_format::ObjectId;
use std::collections::HashSet;

/// What to do about them.
const ADVICE: &str = "nothing of it is given up. A backup stores again what still exists; bale check --read-data tells \
                      what is lost";

/// Packs that were named.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftAlone {
    packs: HashSet<ObjectId>,
}

impl LeftAlone {
    /// Says that a pack stays, and why.
    pub(super) fn name(&mut self, monitor: &dyn Monitor, pack: ObjectId, why: &str) {
        if self.packs.insert(pack) {
            monitor.problem(&Problem {
                path: ObjectName::pack(pack).path().into_bytes(),
                action: "prune",
                text: format!("{why}: {ADVICE}"),
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
