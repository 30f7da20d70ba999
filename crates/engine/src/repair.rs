//! Repair: adds, and refuses when in doubt. `packs` saves what opens of damaged packs.
//!
//! `repair_index` reads the trailers of packs that no index names, checks a chunk of each, and names them in new index
//! objects. Index objects that cannot be read are of use to nobody, and keep a prune from working: once every pack is listed
//! again they are removed. Nothing else is deleted.

mod packs;

pub use packs::{PackRepair, PacksRepair, repair_packs};

use crate::error::{Error, Result};
use crate::monitor::{Monitor, Phase, Progress};
use crate::pack::Published;
use crate::repository::Repository;
use crate::store::{Area, ObjectInfo, ObjectName};
use bale_format::chunk::Decompressor;
use bale_format::error::FormatError;
use bale_format::pack::{PACK_FOOTER_BYTES, PackEntry, PackFooter, open_trailer};
use bale_format::{Access, ObjectId};

/// What a repair of the index did.
#[derive(Debug, Default)]
pub struct IndexRepair {
    /// Packs listed again.
    pub packs_listed: u64,
    /// Chunks in them.
    pub chunks_listed: u64,
    /// Packs whose trailer cannot be read, or of which nothing opens, and why.
    pub unreadable: Vec<(ObjectId, String)>,
    /// Packs listed again without so many records, which do not open: they are marked as damaged.
    pub damaged: Vec<(ObjectId, u64)>,
    /// Index objects that could not be read, removed after all packs were listed.
    pub objects_removed: u64,
}

/// Packs named by one new index object.
const PACKS_PER_INDEX: usize = 256;

/// Names packs that no readable index object names.
pub fn repair_index(
    repository: &Repository,
    dry_run: bool,
    monitor: &dyn Monitor,
) -> Result<IndexRepair> {
    repository.check_access(Access::Write)?;
    let index = repository.reload_index_readable()?;
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
    let mut repair = IndexRepair::default();
    let mut listed = Vec::new();
    for (number, info) in orphans.iter().enumerate() {
        let Some(id) = info.name.id() else { continue };
        match read_trailer(repository, info, id) {
            Ok((entries, bad)) => {
                if bad > 0 {
                    repair.damaged.push((id, bad));
                }
                repair.packs_listed += 1;
                repair.chunks_listed += entries.len() as u64;
                listed.push(Published {
                    id,
                    bytes: info.len,
                    entries,
                });
            }
            Err(text) => repair.unreadable.push((id, text)),
        }
        if listed.len() >= PACKS_PER_INDEX {
            write(repository, &mut listed, dry_run)?;
        }
        let progress = Progress {
            done: number as u64 + 1,
            total: orphans.len() as u64,
            ..Progress::default()
        };
        monitor.progress(Phase::Structure, progress);
    }
    write(repository, &mut listed, dry_run)?;
    if !dry_run {
        if !repair.damaged.is_empty() {
            repository.mark_damaged(repair.damaged.iter().map(|(pack, _)| *pack))?;
        }
        if repair.unreadable.is_empty() {
            repair.objects_removed = remove_unreadable(repository)?;
        }
    }
    repository.reload_index_readable()?;
    Ok(repair)
}

/// What cannot be read says nothing that could be lost; what the store fails to hand out, or a later version wrote, is not that.
fn remove_unreadable(repository: &Repository) -> Result<u64> {
    let mut removed = 0;
    for info in repository.list(Area::Index)? {
        let is_damaged = match repository.read_index_object(&info.name) {
            Err(Error::Object { source, .. }) => !matches!(source, FormatError::Newer { .. }),
            _ => false,
        };
        if is_damaged {
            repository.check_access(Access::Delete)?;
            repository.store().delete(&info.name)?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn write(repository: &Repository, listed: &mut Vec<Published>, dry_run: bool) -> Result<()> {
    if !dry_run {
        repository.write_index(listed)?;
    }
    listed.clear();
    Ok(())
}

/// Entries of a pack by its own trailer, without records that do not open, and how many of all are bad or cannot be read. If
/// all are, the pack is left alone.
fn read_trailer(
    repository: &Repository,
    info: &ObjectInfo,
    id: ObjectId,
) -> std::result::Result<(Vec<PackEntry>, u64), String> {
    let text = |error: FormatError| error.to_string();
    let store = repository.store();
    let name = ObjectName::pack(id);
    let footer_at = info
        .len
        .checked_sub(PACK_FOOTER_BYTES as u64)
        .ok_or("too short for a pack")?;
    let mut footer = [0; PACK_FOOTER_BYTES];
    store
        .read_at(&name, footer_at, &mut footer)
        .map_err(|error| error.to_string())?;
    let key = repository.pack_key(id).map_err(|error| error.to_string())?;
    let range = PackFooter::open(&key, &footer, info.len)
        .map_err(text)?
        .trailer_range();
    let mut trailer =
        vec![0; usize::try_from(range.end - range.start).map_err(|_| "trailer too long")?];
    store
        .read_at(&name, range.start, &mut trailer)
        .map_err(|error| error.to_string())?;
    let entries = open_trailer(&key, &trailer, info.len).map_err(text)?;
    let mut contexts = Decompressor::new();
    let listed = entries.len() as u64;
    let mut trouble = None;
    let mut named = Vec::with_capacity(entries.len());
    let mut bad = 0;
    for entry in entries {
        let range = entry.range();
        let mut record = vec![0; (range.end - range.start) as usize];
        match store.read_at(&name, range.start, &mut record) {
            Ok(()) => match key.open_chunk(repository.keys(), &entry, &record, &mut contexts) {
                Ok(_) => named.push(entry),
                Err(error) => {
                    bad += 1;
                    trouble = Some(error.to_string());
                }
            },
            // What a store cannot give now it may give later: the chunk keeps its name, and the pack is marked.
            Err(error) => {
                bad += 1;
                trouble = Some(error.to_string());
                named.push(entry);
            }
        }
    }
    match trouble {
        Some(text) if bad == listed => Err(text),
        _ => Ok((named, bad)),
    }
}
