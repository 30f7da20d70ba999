//! Locks on what a snapshot uses, so that until a time nobody deletes it, whoever has which keys:
//! the packs, everything by which they are found, and what opens the repository.
//!
//! A lock that ends soon enough is renewed for a quarter longer than asked for, so that not every
//! run renews all of them. In memory: a byte for each pack, and what finds the chunks in use
//! (`used.rs`).

use crate::limits::REQUESTS_AT_ONCE;
use crate::used::UsedChunks;
use bale_pipeline::monitor::{Monitor, Problem};
use bale_pipeline::ordered::in_order_within;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_repository::store::{Area, ObjectName};
use std::time::{Duration, SystemTime};

/// Objects that are named if they could not be locked; all are counted.
const FAILURES_NAMED_MAX: u64 = 100;

/// A lock that is renewed lasts longer than asked for, by one part in so many.
const RENEWED_LONGER: u32 = 4;

/// What became of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// Every object of them is locked until then at least, but for those that failed.
    pub until: SystemTime,
    /// Objects looked at.
    pub objects: u64,
    /// Locks that were made or renewed.
    pub renewed: u64,
    /// Objects that could not be locked.
    pub failed: u64,
}

/// Are there locks at all where the repository is?
pub fn can_retain(repository: &Repository) -> bool {
    repository.store().object_locks().is_some()
}

/// Locks what a snapshot uses for so long, counted from now.
pub fn retain(
    repository: &Repository,
    snapshot: &Named,
    time: Duration,
    monitor: &dyn Monitor,
) -> Result<Retained> {
    let locks = repository.store().object_locks().ok_or_else(|| {
        let place = repository.store().place();
        Error::Other(format!("{place} locks no objects"))
    })?;
    let (least, until) = times(repository.clock().now(), time)?;
    let mut retained = Retained {
        until: least,
        objects: 0,
        renewed: 0,
        failed: 0,
    };
    let names = objects(repository, snapshot, monitor)?;
    in_order_within(
        REQUESTS_AT_ONCE,
        names.into_iter(),
        || (),
        |(), name| (name, locks.lock(&name, least, until)),
        |(name, locked)| {
            if monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            retained.objects += 1;
            match locked {
                Ok(is_renewed) => retained.renewed += u64::from(is_renewed),
                Err(error) => {
                    retained.failed += 1;
                    if retained.failed <= FAILURES_NAMED_MAX {
                        monitor.problem(&Problem {
                            path: name.path().into_bytes(),
                            action: "lock",
                            text: error.source.to_string(),
                        });
                    }
                }
            }
            Ok(())
        },
    )?;
    if let Some(more) = retained.failed.checked_sub(FAILURES_NAMED_MAX + 1) {
        monitor.note(&format!("{} more objects could not be locked", more + 1));
    }
    Ok(retained)
}

/// Until when a lock must last, and until when one is made.
fn times(now: SystemTime, time: Duration) -> Result<(SystemTime, SystemTime)> {
    let least = now.checked_add(time);
    let until = least.and_then(|least| least.checked_add(time / RENEWED_LONGER));
    let times = least.zip(until);
    times.ok_or_else(|| Error::Other("a lock until a time that no clock knows".to_owned()))
}

/// Names of all that the snapshot comes back from: 33 bytes and a little for each.
fn objects(
    repository: &Repository,
    snapshot: &Named,
    monitor: &dyn Monitor,
) -> Result<Vec<ObjectName>> {
    let index = repository.reload_index()?;
    let used = UsedChunks::find_one_by_cache(repository, index.clone(), snapshot, monitor)?;
    let mut packs = vec![false; index.packs().len()];
    for copies in used.chunks() {
        for place in &index.entries()[copies] {
            packs[place.pack.0 as usize] = true;
        }
    }
    let mut names: Vec<ObjectName> = ObjectName::configs().into();
    for area in [Area::Keys, Area::Index] {
        let listed = repository.list(area)?;
        names.extend(listed.into_iter().map(|info| info.name));
    }
    let used = index.packs().iter().zip(packs);
    names.extend(
        used.filter(|(_, is_used)| *is_used)
            .map(|(pack, _)| ObjectName::pack(pack.id)),
    );
    names.push(ObjectName::snapshot(snapshot.0));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn a_lock_lasts_longer_than_asked_for_and_none_is_made_until_nowhen() {
        let day = Duration::from_secs(86_400);
        let (least, until) = times(UNIX_EPOCH, day * 8).unwrap();
        assert_eq!(least, UNIX_EPOCH + day * 8);
        assert_eq!(until, UNIX_EPOCH + day * 10);
        assert!(times(UNIX_EPOCH, Duration::MAX).is_err());
    }
}
