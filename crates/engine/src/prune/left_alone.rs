//! Packs that a prune leaves alone because they are damaged, archived or cannot be read now, and
//! packs in use that are gone: each is named once and counted.

use bale_format::ObjectId;
use bale_pipeline::error::without_name;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_repository::error::{Error, is_inconclusive};
use bale_repository::store::ObjectName;
use std::collections::HashSet;

/// What to do about those that are in use.
const ADVICE: &str = "nothing of it is given up. `bale repair packs` saves what opens of it, and \
    `bale check` then says what is lost and what to do";

/// What to do about those that are archived.
const ADVICE_ARCHIVED: &str = "what is in use of it was to be copied, and it is archived in a cold \
    storage class: it stays as it is. To have it given up, bring it back first, and prune again";

/// What to do about those that the store does not hand out.
const ADVICE_FAILED: &str = "nothing of it is given up, and whether it is whole is not known. See \
    to what the store says (rights, the way to it), and prune again";

/// Why nothing is known of what was to be read.
#[derive(Clone, Debug)]
pub(super) enum Unread {
    /// It must be brought back from a cold class before.
    Archived,
    /// The store did not hand it out: what it said.
    Failed(String),
}

impl Unread {
    /// `None`: what was read is damaged, or gone.
    pub(super) fn of(error: &Error) -> Option<Unread> {
        match error {
            Error::Store(error) if error.is_archived() => Some(Unread::Archived),
            error if is_inconclusive(error) => Some(Unread::Failed(error.to_string())),
            _ => None,
        }
    }
}

/// What to do about those that are gone.
const ADVICE_GONE: &str = "it is in use, and not in the repository any more: bring it back from a \
    copy of the repository, or let a backup store again what the sources still have of it; `bale \
    check` says what is lost";
/// Packs that are gone are named one by one; of more only the number.
const GONE_NAMED_MAX: usize = 20;

/// Packs that were named. 32 bytes for each.
#[derive(Clone, Debug, Default)]
pub(super) struct LeftAlone {
    packs: HashSet<ObjectId>,
    /// Nothing is wrong with them, as far as known.
    unread: HashSet<ObjectId>,
    gone: HashSet<ObjectId>,
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

    /// Says that a pack stays, because nothing is known of what was to be read of it.
    pub(super) fn name_unread(&mut self, monitor: &dyn Monitor, pack: ObjectId, why: &Unread) {
        if self.unread.insert(pack) {
            let name = ObjectName::pack(pack);
            monitor.problem(&Problem {
                path: name.path().into_bytes(),
                action: "prune",
                text: match why {
                    Unread::Archived => ADVICE_ARCHIVED.to_owned(),
                    Unread::Failed(text) => {
                        let text = without_name(&name.to_string(), text).to_owned();
                        format!("could not be read ({text}): {ADVICE_FAILED}")
                    }
                },
            });
        }
    }

    /// Says of packs that snapshots use them, and that they are not there.
    pub(super) fn name_gone(
        &mut self,
        monitor: &dyn Monitor,
        packs: impl IntoIterator<Item = ObjectId>,
    ) {
        let mut more = 0;
        for pack in packs {
            if !self.gone.insert(pack) {
                continue;
            }
            if self.gone.len() > GONE_NAMED_MAX {
                more += 1;
                continue;
            }
            monitor.problem(&Problem {
                path: ObjectName::pack(pack).path().into_bytes(),
                action: "prune",
                text: ADVICE_GONE.to_owned(),
            });
        }
        if more > 0 {
            monitor.problem(&Problem {
                path: b"packs".to_vec(),
                action: "prune",
                text: format!("{more} more are in use, and not in the repository any more"),
            });
        }
    }

    pub(super) fn contains(&self, pack: &ObjectId) -> bool {
        self.packs.contains(pack) || self.unread.contains(pack)
    }

    /// Damaged ones.
    pub(super) fn packs(&self) -> impl Iterator<Item = ObjectId> + '_ {
        self.packs.iter().copied()
    }

    /// Packs of all kinds.
    pub(super) fn count(&self) -> u64 {
        (self.packs.len() + self.unread.len() + self.gone.len()) as u64
    }

    /// Packs in use that are not there.
    pub(super) fn count_gone(&self) -> u64 {
        self.gone.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::monitor::Recorder;

    #[test]
    fn of_many_packs_that_are_gone_some_are_named_and_all_are_counted() {
        let (monitor, mut left) = (Recorder::default(), LeftAlone::default());
        let packs = (0..GONE_NAMED_MAX as u8 + 5).map(|number| ObjectId([number; 32]));
        left.name_gone(&monitor, packs.clone());
        left.name_gone(&monitor, packs);
        assert_eq!(left.count_gone(), GONE_NAMED_MAX as u64 + 5);
        let reported = monitor.problems.lock().unwrap();
        assert_eq!(reported.len(), GONE_NAMED_MAX + 1);
        assert!(
            reported[GONE_NAMED_MAX].text.starts_with("5 more"),
            "{reported:?}"
        );
    }
}
