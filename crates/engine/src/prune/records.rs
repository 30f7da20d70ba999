//! Snapshots and unfinished runs, each read once; what cannot be read, or is listed now and then,
//! is an error.

use crate::two_stores::refuse_while_cold_lacks;
use bale_format::ObjectId;
use bale_repository::error::is_missing;
use bale_repository::error::{Error, Result};
use bale_repository::repository::{Named, Repository};
use bale_repository::store::{Area, ObjectName};
use std::collections::BTreeSet;

/// Listings that differ are made again, at most so often: a backup may have ended in between.
const LISTINGS_MAX: usize = 4;

/// Those that were read: 64 bytes for each.
#[derive(Default)]
pub(super) struct RecordSet {
    seen: BTreeSet<ObjectName>,
}

impl RecordSet {
    /// Snapshots that were read.
    pub(super) fn snapshots(&self) -> usize {
        self.count(Area::Snapshots)
    }

    /// Records of unfinished runs that were read.
    pub(super) fn runs(&self) -> usize {
        self.count(Area::Runs)
    }

    fn count(&self, area: Area) -> usize {
        self.seen.iter().filter(|name| name.area == area).count()
    }

    /// Those that are there and were not read before.
    pub(super) fn news(&mut self, repository: &Repository) -> Result<Vec<Named>> {
        let mut all = Vec::new();
        for _ in 0..LISTINGS_MAX {
            let listed = list_twice(repository)?;
            let (news, is_whole) = self.read(repository, &listed)?;
            refuse_hidden_parents(repository, &listed, &news)?;
            all.extend(news);
            // What is gone may have made place for another one: the snapshot of a run that ended.
            if is_whole {
                return Ok(all);
            }
        }
        Err(changing())
    }

    /// Reads what was not read before; false: some of it was gone by then.
    fn read(
        &mut self,
        repository: &Repository,
        listed: &BTreeSet<ObjectName>,
    ) -> Result<(Vec<Named>, bool)> {
        let (mut news, mut is_whole) = (Vec::new(), true);
        let unseen: Vec<ObjectName> = listed.difference(&self.seen).copied().collect();
        for name in unseen {
            let Some(id) = name.id() else { continue };
            match repository.read_record(&name) {
                Ok(record) => news.push((id, record)),
                Err(error) if is_missing(&error) => {
                    is_whole = false;
                    continue;
                }
                Err(error) => {
                    return Err(Error::Other(format!(
                        "prune refuses: {error}. What it uses is not known; bale forget {id} \
                         removes it, and a prune then what only it used"
                    )));
                }
            }
            self.seen.insert(name);
        }
        Ok((news, is_whole))
    }
}

fn changing() -> Error {
    Error::Other(
        "prune refuses: the store lists other snapshots each time (backups or forgets at the same \
         time? run it again)"
            .to_owned(),
    )
}

/// A listing that left a snapshot out would cost what that snapshot uses. So a second one must name
/// the same.
fn list_twice(repository: &Repository) -> Result<BTreeSet<ObjectName>> {
    refuse_while_cold_lacks(repository)?;
    let list = || -> Result<BTreeSet<ObjectName>> {
        let mut names = BTreeSet::new();
        for area in [Area::Runs, Area::Snapshots] {
            names.extend(repository.list(area)?.into_iter().map(|info| info.name));
        }
        Ok(names)
    };
    let mut before = list()?;
    for _ in 1..LISTINGS_MAX {
        let again = list()?;
        if before == again {
            return Ok(again);
        }
        before = again;
    }
    Err(changing())
}

/// No parent of a listed snapshot may be there without being listed.
fn refuse_hidden_parents(
    repository: &Repository,
    listed: &BTreeSet<ObjectName>,
    news: &[Named],
) -> Result<()> {
    let parents: BTreeSet<ObjectId> = news.iter().filter_map(|(_, s)| s.parent).collect();
    for parent in parents {
        let name = ObjectName::snapshot(parent);
        if !listed.contains(&name) && repository.store().stat(&name)?.is_some() {
            return Err(Error::Other(format!(
                "prune refuses: snapshot {} is there, and the store does not list it",
                parent.short()
            )));
        }
    }
    Ok(())
}
