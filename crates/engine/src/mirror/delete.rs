//! Deleting from the target what the source does not have any more: on request, and only while
//! nothing speaks against it.
//!
//! A source that lost its snapshots, or was set back to an older state, must not take those of the
//! mirror with it. So nothing goes if it misses one that this machine saw, or has nothing as new as
//! the newest of the target of each source of backups, which may also have been made in the mirror.

use super::Mirroring;
use super::listing::Listing;
use crate::backup::time_text;
use crate::whole::Wholeness;
use bale_pipeline::amount::counted;
use bale_repository::error::{Error, Result};
use bale_repository::index::PackInfo;
use bale_repository::repository::Named;
use bale_repository::snapshots::SourceKey;
use bale_repository::snapshots::remembered::missed_now;
use bale_repository::store::{Area, ObjectName};

/// What refers goes before what it refers to; what writers do without a pack by, after the pack.
/// Marks of damage stay: those of the target speak of its own packs.
const ORDER: [Area; 6] = [
    Area::Snapshots,
    Area::Runs,
    Area::Index,
    Area::Packs,
    Area::Condemned,
    Area::Keys,
];

/// Snapshots of the target named in one refusal.
const STRANGERS_NAMED_MAX: usize = 8;

impl Mirroring<'_> {
    /// Deletes what two listings of the source do not name, the second made just now.
    pub(super) fn delete(&mut self) -> Result<()> {
        let now = Listing::of(&**self.source.store())?;
        if let Err(error) = self.may_delete(&now) {
            self.problem(format!("nothing is deleted in the target: {error}"));
            self.mirrored.is_deleting_refused = true;
            return Ok(());
        }
        for area in ORDER {
            let gone: Vec<ObjectName> = (self.there.in_area(area))
                .map(|info| info.name)
                .filter(|name| now.get(name).is_none() && self.listed.get(name).is_none())
                .collect();
            for name in gone {
                if self.monitor.interrupted() {
                    return Err(Error::Interrupted);
                }
                if !self.options.dry_run {
                    self.target.delete(&name)?;
                }
                self.mirrored.objects_deleted += 1;
            }
        }
        Ok(())
    }

    fn may_delete(&self, now: &Listing) -> Result<()> {
        if self.mirrored.problems > 0 {
            return Err(Error::Other(
                "not everything of the source is there and intact".to_owned(),
            ));
        }
        let ours = self.source.snapshots()?;
        let theirs = self.source.in_store(self.base.clone()).snapshots()?;
        let is_newer = |named: &&Named| !self.is_listed(now, named) && !has_as_new(&ours, named);
        let newer: Vec<&Named> = theirs.iter().filter(is_newer).collect();
        if !newer.is_empty() {
            return Err(Error::Other(self.strangers_text(&newer)));
        }
        if let Some(missed) = missed_now(self.source)?.first() {
            return Err(Error::Other(format!(
                "of the source, {}; what only that snapshot uses would go in the target",
                missed.text
            )));
        }
        self.require_whole(&ours, now)
    }

    /// What stands in the target and nothing in the source is as new as, and what to do about it.
    fn strangers_text(&self, newer: &[&Named]) -> String {
        let (here, there) = (self.source.store().place(), self.target.place());
        let named = newer
            .iter()
            .take(STRANGERS_NAMED_MAX)
            .map(|(id, snapshot)| {
                let (host, time) = (&snapshot.host, time_text(snapshot.time));
                format!("{} of {host}, {time}", id.short())
            });
        let mut named: Vec<String> = named.collect();
        if newer.len() > named.len() {
            named.push(format!("{} more", newer.len() - named.len()));
        }
        let ids = newer.iter().take(STRANGERS_NAMED_MAX);
        let ids: Vec<String> = ids.map(|(id, _)| id.short()).collect();
        let bring = match self.source.store().is_tiered() {
            true => String::new(),
            false => format!(
                " To have them in the source (with all else that the mirror has): bale -r {there} \
                 mirror --to {here}."
            ),
        };
        format!(
            "nothing is damaged, but it has {} that the source has not, and nothing as new as \
             they are: {}. Either somebody backed up into the mirror, or the source was set back \
             to an older state.{bring} To give them up: bale -r {there} forget {}",
            counted(newer.len() as u64, "snapshot"),
            named.join("; "),
            ids.join(" "),
        )
    }

    /// What a source does not name any more, having lost index objects, its snapshots may need.
    fn require_whole(&self, snapshots: &[Named], now: &Listing) -> Result<()> {
        let index = self.source.reload_index_as_far_as_possible()?;
        let has_pack = |pack: &PackInfo| now.get(&ObjectName::pack(pack.id)).is_some();
        let mut wholeness = Wholeness::new(self.source, index, has_pack);
        for (id, snapshot) in snapshots {
            if !wholeness.is_whole(&snapshot.layers)? {
                return Err(Error::Other(format!(
                    "snapshot {} of the source lacks something: bale check names it",
                    id.short()
                )));
            }
        }
        Ok(())
    }

    fn is_listed(&self, now: &Listing, (id, _): &Named) -> bool {
        now.get(&ObjectName::snapshot(*id)).is_some()
    }
}

/// Is there a snapshot of the same source that is not older?
fn has_as_new(ours: &[Named], (_, theirs): &Named) -> bool {
    let key = SourceKey::of(theirs);
    let is_as_new = |(_, snapshot): &Named| {
        snapshot.time >= theirs.time && key.may_be(&SourceKey::of(snapshot))
    };
    ours.iter().any(is_as_new)
}
