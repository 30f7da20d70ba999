//! Sealed objects of a repository: snapshots, runs, condemned lists, index objects.

use super::first_look::is_named;
use super::{Named, Repository};
use crate::error::{Error, Result, is_missing, object_error};
use crate::metadata_cache::CachedName;
use crate::snapshots::remembered;
use crate::store::{Area, ObjectInfo, ObjectName};
use bale_format::Condemned;
use bale_format::error::{Fault, FormatError};
use bale_format::limits::OBJECT_PLAIN_BYTES_MAX;
use bale_format::sealed::{OBJECT_BYTES_MAX, ObjectType};
use bale_format::{Access, ObjectId, Snapshot};
use bale_pipeline::clock::moment_of;
use std::collections::HashSet;
use std::time::{Duration, SystemTime};

/// A run may have begun so much earlier than its records tell.
const RUN_START_MARGIN: Duration = Duration::from_secs(60);

/// A bad block of a device, as the kernel names it.
const EIO: i32 = 5;

/// Snapshots that can be read, and what is wrong with the others.
pub type Readable = (Vec<Named>, Vec<(ObjectName, Error)>);

/// A list of packs that a prune intends to delete.
#[derive(Clone, Debug)]
pub struct CondemnedList {
    pub name: ObjectName,
    /// What it says.
    pub record: Condemned,
    /// When the store made it, where it knows.
    pub modified: Option<SystemTime>,
}

/// The condemned lists and marks of damage, before packs are listed.
#[derive(Debug)]
pub struct UnreliablePacks {
    packs: HashSet<ObjectId>,
    marks_unreadable: bool,
}

impl UnreliablePacks {
    fn among(self, packs: HashSet<ObjectId>) -> ListedPacks {
        let mut packs = packs;
        packs.retain(|pack| !self.packs.contains(pack));
        ListedPacks {
            reliable: packs,
            unreliable: self.packs,
            marks_unreadable: self.marks_unreadable,
        }
    }
}

/// Packs listed together with the condemned lists and marks of damage.
#[derive(Debug)]
pub struct ListedPacks {
    /// Packs that are in the store, not condemned and not marked as damaged.
    pub reliable: HashSet<ObjectId>,
    /// Packs that are condemned or marked as damaged.
    unreliable: HashSet<ObjectId>,
    /// Some mark of damage could not be read: any of them may be marked.
    pub marks_unreadable: bool,
}

/// An object that cannot be read, and why.
pub type Unreadable = (ObjectName, Error);

impl Repository {
    /// All snapshots that can be read, oldest first, and the trouble with the others.
    pub fn snapshots_readable(&self) -> Result<Readable> {
        self.read_records(self.list(Area::Snapshots)?)
    }

    /// The same, as they were listed when the repository was opened, for whoever looks first. What
    /// is missing then has to be looked for again.
    pub(crate) fn snapshots_first(&self) -> Result<Readable> {
        self.read_records(self.list_first(Area::Snapshots)?)
    }

    /// Records of unfinished runs that can be read, oldest first.
    pub fn runs_readable(&self) -> Result<Readable> {
        self.read_records(self.list_first(Area::Runs)?)
    }

    fn read_records(&self, infos: Vec<ObjectInfo>) -> Result<Readable> {
        let mut readable = Vec::new();
        let mut damaged = Vec::new();
        let read = |name: &ObjectName| self.read_record(name);
        self.read_each(infos, read, |info, record| {
            let Some(id) = info.name.id() else { return };
            match record {
                Ok(snapshot) => readable.push((id, snapshot)),
                // Removed since it was listed, by a forget or by the end of its run.
                Err(error) if is_missing(&error) => {}
                Err(error) => damaged.push((info.name, error)),
            }
        });
        readable.sort_by_key(|(id, snapshot)| (snapshot.time, *id));
        Ok((readable, damaged))
    }

    /// Reads a snapshot, or the record of an unfinished run.
    pub fn read_record(&self, name: &ObjectName) -> Result<Snapshot> {
        let object_type = if name.area == Area::Runs {
            ObjectType::Run
        } else {
            ObjectType::Snapshot
        };
        let json = self.read_sealed(name, object_type)?;
        Snapshot::from_json(&json).map_err(object_error(name.to_string()))
    }

    /// Since when runs that are under way store packs, by the clock of the store; `None`: none is
    /// under way. It is if it has written a record `within` this time. What a run has stored, and
    /// no record names, is its own: not to be pruned.
    pub fn runs_store_since(&self, within: Duration) -> Result<Option<SystemTime>> {
        let now = self.clock().now();
        let mut since: Option<SystemTime> = None;
        for info in self.list(Area::Runs)? {
            let record = match self.read_record(&info.name) {
                Ok(record) => record,
                Err(error) if is_missing(&error) => continue,
                Err(error) => return Err(error),
            };
            let Some(written) = written_within(&info, &record, now, within) else {
                continue;
            };
            let finished = moment_of(record.finished);
            // How long it lasted, by its own clock; when it began, by the store's, and a little
            // earlier.
            let lasted = finished.duration_since(moment_of(record.time));
            let began = written
                .checked_sub(lasted.unwrap_or_default() + RUN_START_MARGIN)
                .unwrap_or(SystemTime::UNIX_EPOCH);
            since = Some(since.map_or(began, |since| since.min(began)));
        }
        Ok(since)
    }

    /// Runs that have shown a sign of life `within` this time. What cannot be read says nothing of
    /// its run.
    pub fn runs_alive(&self, within: Duration) -> Result<HashSet<[u8; 16]>> {
        let now = self.clock().now();
        let mut alive = HashSet::new();
        for info in self.list(Area::Runs)? {
            let Ok(record) = self.read_record(&info.name) else {
                continue;
            };
            if record.is_sign_of_life() && written_within(&info, &record, now, within).is_some() {
                alive.extend(info.name.run_id());
            }
        }
        Ok(alive)
    }

    /// Writes a snapshot: the step that makes a backup visible.
    pub fn write_snapshot(&self, snapshot: &Snapshot) -> Result<ObjectId> {
        self.write_sealed(
            ObjectType::Snapshot,
            &snapshot.to_json()?,
            ObjectName::snapshot,
        )
    }

    /// Writes what an unfinished run has finished so far.
    pub fn write_run(&self, run: [u8; 16], snapshot: &Snapshot) -> Result<ObjectId> {
        self.write_sealed(ObjectType::Run, &snapshot.to_json()?, |id| {
            ObjectName::run(run, id)
        })
    }

    /// Removes a snapshot. Its chunks stay until a prune.
    pub fn forget_snapshot(&self, id: ObjectId) -> Result<()> {
        self.check_access(Access::Delete)?;
        // Before, for who is killed in between: what is still there is seen and remembered again.
        // After, for who saw it meanwhile.
        remembered::forgotten(self, id);
        self.store.delete(&ObjectName::snapshot(id))?;
        remembered::let_go(self, id);
        Ok(())
    }

    /// All lists of condemned packs.
    pub fn condemned(&self) -> Result<Vec<CondemnedList>> {
        let (lists, unreadable) = self.condemned_readable()?;
        match unreadable.into_iter().next() {
            None => Ok(lists),
            Some((_, error)) => Err(error),
        }
    }

    /// The same for who relies on packs that are not condemned: the error says what to do about a
    /// list that is damaged.
    pub fn condemned_to_do_without(&self) -> Result<Vec<CondemnedList>> {
        self.condemned_listed(self.list(Area::Condemned)?)
    }

    /// The same for who begins.
    pub fn condemned_at_first(&self) -> Result<Vec<CondemnedList>> {
        self.condemned_listed(self.share_first(Area::Condemned)?)
    }

    fn condemned_listed(&self, infos: Vec<ObjectInfo>) -> Result<Vec<CondemnedList>> {
        let (lists, unreadable) = self.read_condemned_lists(infos);
        match unreadable.into_iter().next() {
            None => Ok(lists),
            Some((name, error)) if is_damage(&error) => {
                Err(Error::Other(condemned_advice(&name, &error)))
            }
            Some((_, error)) => Err(error),
        }
    }

    /// Lists of condemned packs that can be read, and the trouble with the others.
    pub fn condemned_readable(&self) -> Result<(Vec<CondemnedList>, Vec<Unreadable>)> {
        Ok(self.read_condemned_lists(self.list(Area::Condemned)?))
    }

    pub(super) fn read_condemned_lists(
        &self,
        infos: Vec<ObjectInfo>,
    ) -> (Vec<CondemnedList>, Vec<Unreadable>) {
        let (mut lists, mut unreadable) = (Vec::new(), Vec::new());
        let read = |name: &ObjectName| self.read_condemned(name);
        self.read_each(infos, read, |info, record| match record {
            Ok(record) => lists.push(CondemnedList {
                name: info.name,
                record,
                modified: info.modified,
            }),
            // Its packs are gone, which a listing of a moment ago does not know.
            Err(error) if is_missing(&error) => self.forget_first_packs(),
            Err(error) => unreadable.push((info.name, error)),
        });
        (lists, unreadable)
    }

    fn read_condemned(&self, name: &ObjectName) -> Result<Condemned> {
        let json = self.read_sealed(name, ObjectType::Condemned)?;
        Condemned::from_json(&json).map_err(object_error(name.to_string()))
    }

    pub fn condemn(&self, packs: Vec<ObjectId>) -> Result<ObjectId> {
        let record = Condemned::new(self.clock().time(), packs);
        self.write_sealed(
            ObjectType::Condemned,
            &record.to_json()?,
            ObjectName::condemned,
        )
    }

    /// Packs that are in the store now, not condemned and not marked as damaged.
    pub fn reliable_packs(&self) -> Result<HashSet<ObjectId>> {
        Ok(self.packs_now()?.reliable)
    }

    /// The same, and whether every mark of damage could be read.
    pub fn packs_now(&self) -> Result<ListedPacks> {
        // Lists first: a deletion removes the pack before the list, so whatever goes meanwhile is
        // missed by one of the looks.
        let unreliable = self.unreliable_packs()?;
        self.packs_behind(unreliable)
    }

    /// Packs that are condemned or marked as damaged.
    pub fn unreliable_packs(&self) -> Result<UnreliablePacks> {
        let (condemned, marks) =
            self.at_once(|| self.condemned_to_do_without(), || self.damage_marks());
        let (condemned, marks) = (condemned?, marks?);
        let listed = condemned.iter().flat_map(|list| &list.record.packs);
        Ok(UnreliablePacks {
            packs: listed.chain(marks.packs()).copied().collect(),
            marks_unreadable: !marks.unreadable.is_empty(),
        })
    }

    /// Packs that are in the store now, behind the look at those that are not reliable.
    pub fn packs_behind(&self, unreliable: UnreliablePacks) -> Result<ListedPacks> {
        let mut packs: HashSet<ObjectId> = HashSet::new();
        self.store
            .list(Area::Packs, &mut |info| packs.extend(info.name.id()))?;
        Ok(unreliable.among(packs))
    }

    /// The same of these packs alone, where the store can look at them at once.
    pub fn packs_among(
        &self,
        unreliable: UnreliablePacks,
        wanted: HashSet<ObjectId>,
    ) -> std::result::Result<Result<ListedPacks>, UnreliablePacks> {
        let names: Vec<_> = wanted.into_iter().map(ObjectName::pack).collect();
        let Some(there) = self.store.are_there(&names) else {
            return Err(unreliable);
        };
        Ok(there.map_err(Error::from).map(|there| {
            let there = names.iter().zip(there).filter(|(_, is_there)| *is_there);
            let there = there.filter_map(|(name, _)| name.id());
            unreliable.among(there.collect())
        }))
    }

    /// Looks for packs that were not listed: listings of some stores come behind, and what was
    /// stored a moment ago is not in them. What is found counts as listed.
    pub fn find_unlisted(
        &self,
        packs: &mut ListedPacks,
        wanted: impl Iterator<Item = ObjectId>,
    ) -> Result<()> {
        let unreliable = &packs.unreliable;
        let missing =
            |pack: &ObjectId| !packs.reliable.contains(pack) && !unreliable.contains(pack);
        let missing: HashSet<ObjectId> = wanted.filter(missing).collect();
        for pack in missing {
            if self.store.stat(&ObjectName::pack(pack))?.is_some() {
                packs.reliable.insert(pack);
            }
        }
        Ok(())
    }

    /// Lists an area. The list is in memory: meant for areas whose objects are few (everything but
    /// packs).
    pub fn list(&self, area: Area) -> Result<Vec<ObjectInfo>> {
        let mut infos = Vec::new();
        self.store.list(area, &mut |info| infos.push(info))?;
        Ok(sorted(infos))
    }

    /// Deletes an index object; listings that name it still are no riddle from then on.
    pub fn delete_index_object(&self, name: &ObjectName) -> Result<()> {
        self.store.delete(name)?;
        let mut deleted = self.index_objects_deleted.lock();
        let deleted = deleted.as_mut().expect("holders do not panic");
        deleted.insert(*name);
        Ok(())
    }

    /// Was it deleted here?
    pub(super) fn has_deleted(&self, name: &ObjectName) -> bool {
        let deleted = self.index_objects_deleted.lock();
        deleted.expect("holders do not panic").contains(name)
    }

    /// Reads, opens and checks a sealed object.
    pub fn read_sealed(&self, name: &ObjectName, object_type: ObjectType) -> Result<Vec<u8>> {
        let bytes = self.read_object(name)?;
        self.keys
            .open_object(object_type, &bytes, OBJECT_PLAIN_BYTES_MAX)
            .map_err(object_error(name.to_string()))
    }

    /// Seals and stores an object under the hash of its bytes; tells its id.
    pub fn write_sealed(
        &self,
        object_type: ObjectType,
        plain: &[u8],
        name: impl FnOnce(ObjectId) -> ObjectName,
    ) -> Result<ObjectId> {
        let sealed = self
            .keys
            .seal_object(object_type, plain, self.salt()?)
            .map_err(object_error("new object"))?;
        let id = ObjectId(*blake3::hash(&sealed).as_bytes());
        let name = name(id);
        self.store.put(&name, &sealed)?;
        self.cache_object(&name, &sealed);
        Ok(id)
    }

    /// From the cache if it is there and whole, else from the store.
    fn read_object(&self, name: &ObjectName) -> Result<Vec<u8>> {
        let cached = self.metadata.as_ref().and_then(|cache| {
            let bytes = cache.load(&CachedName::of_object(name)?, OBJECT_BYTES_MAX as u64)?;
            is_named(name, &bytes).then_some(bytes)
        });
        if let Some(bytes) = cached {
            return Ok(bytes);
        }
        let bytes = self.store.get(name, OBJECT_BYTES_MAX as u64)?;
        // Sealed well, and yet another object's: a store must not pass one snapshot off as another.
        if !is_named(name, &bytes) {
            let source = FormatError::Damaged {
                what: "object",
                fault: Fault::Mismatch { field: "name" },
            };
            return Err(object_error(name.to_string())(source));
        }
        self.cache_object(name, &bytes);
        Ok(bytes)
    }

    fn cache_object(&self, name: &ObjectName, bytes: &[u8]) {
        if let Some((cache, cached)) = (self.metadata.as_ref()).zip(CachedName::of_object(name)) {
            cache.save(&cached, bytes);
        }
    }
}

/// In the order of names, each once.
pub(super) fn sorted(mut infos: Vec<ObjectInfo>) -> Vec<ObjectInfo> {
    infos.sort_by_key(|a| a.name);
    infos.dedup_by(|a, b| a.name == b.name);
    infos
}

/// What a list of condemned packs costs that cannot be read, and what removes it.
pub fn condemned_advice(name: &ObjectName, error: &Error) -> String {
    let id = name.id().map(|id| id.to_string()).unwrap_or_default();
    format!(
        "{error}. It lists packs that a prune is about to delete, and no backup can rely on packs \
         without it: bale forget {id} removes it, and the next prune condemns anew what is unused"
    )
}

/// When the record of a run was written, by the store's clock where it has one; `None`: longer ago
/// than `within`, or as far in the future, which is no time that can be believed.
fn written_within(
    info: &ObjectInfo,
    record: &Snapshot,
    now: SystemTime,
    within: Duration,
) -> Option<SystemTime> {
    let written = info.modified.unwrap_or(moment_of(record.finished));
    let apart = now.duration_since(written);
    (apart.unwrap_or_else(|ahead| ahead.duration()) < within).then_some(written)
}

/// Are the bytes themselves damaged, so that trying again, or a later program, would not help?
pub fn is_damage(error: &Error) -> bool {
    match error {
        Error::Object { source, .. } => !matches!(
            source,
            FormatError::Newer { .. } | FormatError::UnknownFeature { .. }
        ),
        Error::Store(error) => {
            error.kind() == std::io::ErrorKind::FileTooLarge
                || error.source.raw_os_error() == Some(EIO)
        }
        _ => false,
    }
}
