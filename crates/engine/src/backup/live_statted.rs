//! Inodes whose metadata came from a live stat during an inode scan: the digest cache must not
//! vouch for them.

use crate::limits::live_statted_max;
use bale_pipeline::memory::MemoryPlan;

/// Inodes whose metadata came from a live stat; their row may be newer than their digest.
#[derive(Default)]
pub(super) struct LiveStatted {
    inodes: Vec<u64>,
    inodes_max: usize,
    too_many: bool,
}

impl LiveStatted {
    /// None yet, and room for as many as the plan allows.
    pub(super) fn within(memory: &MemoryPlan) -> LiveStatted {
        LiveStatted {
            inodes_max: live_statted_max(memory),
            ..LiveStatted::default()
        }
    }

    pub(super) fn add(&mut self, inode: u64) {
        if self.inodes.len() >= self.inodes_max {
            self.too_many = true;
            self.inodes = Vec::new();
        }
        if !self.too_many {
            self.inodes.push(inode);
        }
    }

    pub(super) fn add_all(&mut self, others: LiveStatted) {
        self.too_many |= others.too_many;
        others.inodes.into_iter().for_each(|inode| self.add(inode));
    }

    /// Together with others, sorted; `None`: there were too many.
    pub(super) fn and(mut self, others: &[u64]) -> Option<Vec<u64>> {
        self.inodes.extend_from_slice(others);
        self.inodes.sort_unstable();
        self.inodes.dedup();
        (!self.too_many).then_some(self.inodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live_statted(inodes: impl IntoIterator<Item = u64>) -> LiveStatted {
        let mut live_statted = LiveStatted::within(&MemoryPlan::USUAL);
        inodes.into_iter().for_each(|inode| live_statted.add(inode));
        live_statted
    }

    #[test]
    fn of_more_inodes_than_are_remembered_none_is_vouched_for() {
        let mut few = live_statted([5, 3]);
        few.add_all(live_statted([9, 3]));
        assert_eq!(few.and(&[1, 5]), Some(vec![1, 3, 5, 9]));
        let max = live_statted_max(&MemoryPlan::USUAL) as u64;
        assert_eq!(
            live_statted(0..max).and(&[]).map(|all| all.len()),
            Some(max as usize)
        );
        assert_eq!(live_statted(0..max + 9).and(&[]), None);
        let mut halves = live_statted(0..max);
        halves.add_all(live_statted([max]));
        assert_eq!(halves.and(&[]), None);
    }
}
