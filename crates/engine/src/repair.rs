//! Repair: adds, and refuses when in doubt. `packs` saves what opens of damaged packs, `config`
//! writes the one of the two files again that is not sound, `hot` makes a hot store anew, `cold`
//! brings back what the cold one lost and the hot one has.
//!
//! `repair_index` reads packs that no index names, by their trailers or record by record, and names
//! what they hold in new index objects; packs of which something does not open are marked as
//! damaged before. Index objects that cannot be read are of use to nobody, and keep a prune from
//! working: once every pack that says what it holds is listed again, and the store failed in none,
//! those that could not be read before the packs were looked for, and still cannot, are removed:
//! what read well then was believed. Nothing else is deleted.

mod cold;
mod config;
mod hot;
mod packs;
mod unlisted;

pub use cold::{ColdOptions, ColdReport, OnlyHot, repair_cold};
pub use config::{renew_config_copy, repair_config};
pub use hot::{HotReport, repair_hot};
pub use packs::{PackRepair, PacksRepair, repair_packs};

use bale_format::{Access, ObjectId};
use bale_pipeline::monitor::{Monitor, Phase, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::limits::INDEX_ENTRIES_TARGET;
use bale_repository::pack::Published;
use bale_repository::repository::{Repository, is_damage};
use bale_repository::store::{Area, ObjectInfo, ObjectName};
use unlisted::PackRecords;

/// What a repair of the index did.
#[derive(Debug, Default)]
pub struct IndexRepair {
    /// Packs listed again.
    pub packs_listed: u64,
    pub chunks_listed: u64,
    /// Packs that do not say what they hold, and why.
    pub unreadable: Vec<(ObjectId, String)>,
    /// Packs listed again of which so many records (the trailer is one) do not open: they are
    /// marked as damaged.
    pub damaged: Vec<(ObjectId, u64)>,
    /// Index objects that the store did not hand out, and why: they stay.
    pub unread: Vec<(ObjectName, String)>,
    /// Index objects that could not be read, removed after all packs were listed.
    pub objects_removed: u64,
    /// Records of segments written from their tables.
    pub segments_listed: u64,
    /// Records of segments that could not be read, removed after that.
    pub segment_records_removed: u64,
}

/// Packs named by one new index object, at most.
const PACKS_PER_INDEX: usize = 256;

/// Why nothing that is in a pack can be read: neither its trailer nor, from head to head, one of
/// its records. `None`: some of it opens, or it may another time.
pub(crate) fn nothing_opens(
    repository: &Repository,
    info: &ObjectInfo,
    id: ObjectId,
) -> Option<String> {
    let unopened = unlisted::open(repository, info, id).err()?;
    (!unopened.is_passing).then_some(unopened.text)
}

/// Names packs that no readable index object names.
pub fn repair_index(
    repository: &Repository,
    dry_run: bool,
    monitor: &dyn Monitor,
) -> Result<IndexRepair> {
    repository.check_access(Access::Write)?;
    let mut damaged = Vec::new();
    let mut repair = IndexRepair::default();
    let index =
        repository.reload_index_reporting(&mut |name, error| match is_damaged_object(&error) {
            true => damaged.push(*name),
            false => repair.unread.push((*name, error.to_string())),
        })?;
    repair_segments(repository, &mut repair, dry_run)?;
    let mut orphans: Vec<ObjectInfo> = Vec::new();
    repository.store().list(Area::Packs, &mut |info| {
        if info
            .name
            .id()
            .is_some_and(|id| index.pack_number(&id).is_none())
        {
            orphans.push(info);
        }
    })?;
    let mut listed = Vec::new();
    let mut is_passing = false;
    for (number, info) in orphans.iter().enumerate() {
        let Some(id) = info.name.id() else { continue };
        match unlisted::open(repository, info, id) {
            Ok(PackRecords { entries, bad }) => {
                if bad > 0 {
                    repair.damaged.push((id, bad));
                }
                repair.packs_listed += 1;
                repair.chunks_listed += entries.len() as u64;
                if !has_room_for(entries.len(), &listed) {
                    write(repository, &mut listed, &repair.damaged, dry_run)?;
                }
                listed.push(Published {
                    id,
                    bytes: info.len,
                    entries,
                });
            }
            Err(unopened) => {
                is_passing |= unopened.is_passing;
                repair.unreadable.push((id, unopened.text));
            }
        }
        let progress = Progress {
            done: number as u64 + 1,
            total: orphans.len() as u64,
            ..Progress::default()
        };
        monitor.progress(Phase::Structure, progress);
    }
    write(repository, &mut listed, &repair.damaged, dry_run)?;
    // A pack that says nothing of what it holds says so next time, too, and must not keep a prune
    // from working for ever.
    if !dry_run && !is_passing {
        repair.objects_removed = remove_unreadable(repository, &damaged)?;
    }
    repository.reload_index_readable()?;
    Ok(repair)
}

/// Before packs are listed: records say which are there. Removing what is damaged is deleting.
fn repair_segments(repository: &Repository, repair: &mut IndexRepair, dry_run: bool) -> Result<()> {
    let Some(stretched) = repository.stretched() else {
        return Ok(());
    };
    if !dry_run {
        repository.check_access(Access::Delete)?;
    }
    let done = stretched.repair_records(dry_run)?;
    (repair.segments_listed, repair.segment_records_removed) = (done.written, done.removed);
    Ok(())
}

/// May one more pack with so many chunks be named by the index object that names these? Of tiny
/// chunks a few packs hold as many as an index object may name.
fn has_room_for(chunks: usize, listed: &[Published]) -> bool {
    let named: usize = listed.iter().map(|pack| pack.entries.len()).sum();
    let fits = listed.len() < PACKS_PER_INDEX && named + chunks <= INDEX_ENTRIES_TARGET;
    fits || listed.is_empty()
}

/// What cannot be read says nothing that could be lost; what the store fails to hand out, or a
/// later version wrote, is not that.
fn is_damaged_object(error: &Error) -> bool {
    matches!(error, Error::Object { .. }) && is_damage(error)
}

/// Of objects that were damaged: what is not any more, stays.
fn remove_unreadable(repository: &Repository, damaged: &[ObjectName]) -> Result<u64> {
    let mut removed = 0;
    for name in damaged {
        if repository
            .read_index_object(name)
            .is_err_and(|error| is_damaged_object(&error))
        {
            repository.check_access(Access::Delete)?;
            repository.store().delete(name)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Marks come first: a crash in between must not leave a damaged pack that writers believe.
fn write(
    repository: &Repository,
    listed: &mut Vec<Published>,
    damaged: &[(ObjectId, u64)],
    dry_run: bool,
) -> Result<()> {
    if !dry_run {
        if !damaged.is_empty() {
            repository.mark_damaged(damaged.iter().map(|(pack, _)| *pack))?;
        }
        repository.write_index(listed)?;
    }
    listed.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_format::chunk::Codec;
    use bale_format::limits::{INDEX_CHUNKS_MAX, PACK_CHUNKS_MAX};
    use bale_format::pack::PackEntry;
    use bale_format::{ChunkId, ChunkKind};

    fn pack(chunks: usize) -> Published {
        let entry = PackEntry {
            id: ChunkId([0; 32]),
            offset: 0,
            sealed_bytes: 0,
            plain_bytes: 0,
            slot: 0,
            kind: ChunkKind::Data,
            codec: Codec::Stored,
        };
        Published {
            id: ObjectId::default(),
            bytes: 0,
            entries: vec![entry; chunks],
        }
    }

    /// 256 packs of 64 MiB, full of chunks of a kilobyte, are sixteen times what an index object
    /// may name.
    #[test]
    fn no_index_object_is_asked_to_name_more_than_it_may() {
        for (packs, chunks) in [(300, 60_000), (1000, 3), (3, PACK_CHUNKS_MAX)] {
            let (mut listed, mut objects) = (Vec::new(), 1);
            for _ in 0..packs {
                if !has_room_for(chunks, &listed) {
                    listed.clear();
                    objects += 1;
                }
                listed.push(pack(chunks));
                let named: usize = listed.iter().map(|pack| pack.entries.len()).sum();
                assert!(named <= INDEX_CHUNKS_MAX && listed.len() <= PACKS_PER_INDEX);
            }
            assert!(objects <= packs, "none is empty");
        }
    }
}
