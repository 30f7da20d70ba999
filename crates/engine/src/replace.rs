//! A snapshot in the place of another: with other tags, pinned or not, or without what was excluded
//! later.
//!
//! Objects never change: the new record is written and read back before the old one goes, so that
//! there is no moment without either, and whoever is killed in between leaves both. The new one
//! says whose place it takes, for machines that remember the old one.

use bale_format::snapshot::REPLACES_LISTED_MAX;
use bale_format::{Access, ObjectId, Snapshot};
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_repository::snapshots::remembered;
use bale_repository::store::{Area, ObjectName};

/// May snapshots be replaced here at all? For who does much before.
pub fn can_replace(repository: &Repository) -> Result<()> {
    repository.check_access(Access::Write)?;
    repository.check_access(Access::Delete)
}

/// Writes `new`, which is `old` but for what a user changed, and removes `old`.
pub fn replace(repository: &Repository, old: &Named, new: Snapshot) -> Result<ObjectId> {
    can_replace(repository)?;
    let id = write_beside(repository, old, new)?;
    remove_replaced(repository, old.0, id)?;
    Ok(id)
}

/// Writes `new` and leaves `old` where it is.
pub fn write_beside(repository: &Repository, old: &Named, new: Snapshot) -> Result<ObjectId> {
    let (old_id, _) = old;
    let new = Snapshot {
        replaces: replaces(old),
        ..new
    };
    // Somebody may have removed it on purpose since it was listed.
    let is_there = (repository.store()).stat(&ObjectName::snapshot(*old_id))?;
    if is_there.is_none() {
        return Err(Error::Other(format!(
            "snapshot {} is gone: another process removed it meanwhile, and it is not brought back",
            old_id.short()
        )));
    }
    let id = repository.write_snapshot(&new)?;
    let name = ObjectName::snapshot(id);
    let read_back = repository.read_record(&name)?;
    if read_back != new {
        return Err(Error::Other(format!(
            "{name} was written and reads back as something else: {} stays as it is",
            old_id.short()
        )));
    }
    remembered::made(repository, id, &new);
    Ok(id)
}

/// Removes a snapshot whose successor is there.
pub fn remove_replaced(repository: &Repository, old: ObjectId, new: ObjectId) -> Result<()> {
    let listed = repository.list(Area::Snapshots)?;
    if !listed.iter().any(|info| info.name.id() == Some(new)) {
        return Err(Error::Other(format!(
            "snapshot {} was written in the place of {} and is not listed: the old one stays",
            new.short(),
            old.short()
        )));
    }
    repository.forget_snapshot(old).map_err(|error| {
        Error::Other(format!(
            "snapshot {} is there in the place of {}, which cannot be removed: {error} (bale \
             forget {} removes it where that is allowed)",
            new.short(),
            old.short(),
            old.short()
        ))
    })
}

fn replaces((id, old): &Named) -> Vec<ObjectId> {
    let mut all = old.replaces.clone();
    all.push(*id);
    let excess = all.len().saturating_sub(REPLACES_LISTED_MAX);
    all.split_off(excess)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::Time;

    #[test]
    fn the_last_ones_that_were_replaced_are_named() {
        let mut old = Snapshot::begun([1; 16], Time::default());
        old.replaces = (0..REPLACES_LISTED_MAX as u8)
            .map(|n| ObjectId([n; 32]))
            .collect();
        let all = replaces(&(ObjectId([200; 32]), old));
        assert_eq!(all.len(), REPLACES_LISTED_MAX);
        assert_eq!((all[0].0[0], all[REPLACES_LISTED_MAX - 1].0[0]), (1, 200));
    }
}
