//! Which snapshots are to be copied, and which are in the target already.
//!
//! A snapshot is known by the one that it is a copy of, first of all: so it is found whatever id it
//! has, on either side. Who says to be a copy and is of another run or time is none.

use bale_format::ObjectId;
use bale_repository::repository::Named;
use std::collections::{HashMap, HashSet};

/// What is copied and what need not be.
pub(super) struct Choice {
    /// To be copied, oldest first.
    pub(super) queue: Vec<Named>,
    /// Ids in the target by what they are copies of.
    pub(super) there: HashMap<ObjectId, ObjectId>,
}

/// The snapshot of which this one is a copy, or itself.
pub(super) fn origin((id, snapshot): &Named) -> ObjectId {
    snapshot.original.unwrap_or(*id)
}

/// Is it a copy of this snapshot, as far as both say?
pub(super) fn is_copy_of(copy: &Named, named: &Named) -> bool {
    origin(copy) == origin(named) && copy.1.run == named.1.run && copy.1.time == named.1.time
}

/// `spoiled`: of those no copy in the target has everything.
pub(super) fn choose(
    chosen: &[Named],
    in_target: &[Named],
    spoiled: &HashMap<ObjectId, &Named>,
) -> Choice {
    let is_believed = |copy: &&Named| !spoiled.contains_key(&origin(copy));
    let believed: HashMap<ObjectId, &Named> = (in_target.iter())
        .filter(is_believed)
        .map(|copy| (origin(copy), copy))
        .collect();
    let is_there = |named: &&Named| {
        let found = believed.get(&origin(named));
        found.is_some_and(|copy| is_copy_of(copy, named))
    };
    let mut queued = HashSet::new();
    let mut queue: Vec<Named> = (chosen.iter())
        .filter(|named| !is_there(named) && queued.insert(origin(named)))
        .cloned()
        .collect();
    queue.sort_by_key(|(id, snapshot)| (snapshot.time, *id));
    let there = believed.iter().map(|(origin, copy)| (*origin, copy.0));
    let mut there: HashMap<ObjectId, ObjectId> = there.collect();
    for named in &queue {
        there.remove(&origin(named));
    }
    Choice { queue, there }
}
