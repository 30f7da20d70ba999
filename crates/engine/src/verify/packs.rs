//! What damaged packs hold and no undamaged pack does: lost if it does not open, in danger if it
//! does.

use super::CheckReport;
use super::damage::Findings;
use bale_format::error::FormatError;
use bale_format::{Access, ObjectId, PackNumber};
use bale_repository::error::{Result, is_inconclusive};
use bale_repository::index::ChunkIndex;
use bale_repository::repository::Repository;
use bale_repository::store::Area;
use std::collections::HashSet;

/// Reads such chunks. `whole`: packs that this very check has read and found undamaged, whatever
/// marks say.
pub(super) fn look_into_damaged(
    repository: &Repository,
    index: &ChunkIndex,
    whole: &HashSet<PackNumber>,
    findings: &mut Findings,
) {
    for (number, pack) in (0..).map(PackNumber).zip(index.packs()) {
        if pack.damaged && !whole.contains(&number) {
            findings.damaged_pack(number, "found damaged before");
        }
    }
    if !findings.has_damaged_packs() {
        return;
    }
    for copies in index.entries().chunk_by(|a, b| a.chunk.id == b.chunk.id) {
        if copies.iter().any(|place| !findings.is_damaged(place.pack)) {
            continue;
        }
        let id = copies[0].chunk.id;
        let mut is_known = true;
        let opens = copies.iter().any(|place| {
            findings.is_there(place.pack)
                && match repository.read_place(index, place.chunk.kind, place) {
                    Ok(_) => true,
                    Err(error) => {
                        is_known &= !is_inconclusive(&error);
                        false
                    }
                }
        });
        match opens {
            // Nothing is said of what may open another time.
            false if !is_known => {}
            true if findings.bad_chunks.contains_key(&id) => {}
            true => {
                findings.in_danger.insert(id);
            }
            false => findings.bad_chunk(id, "every pack that holds it is missing or damaged"),
        }
    }
}

/// Records of such packs open by the copy at the end: it may be damaged next.
pub(super) fn report_damaged_heads(
    repository: &Repository,
    index: &ChunkIndex,
    findings: &mut Findings,
) {
    for (pack, text) in repository.damaged_heads() {
        if let Some(number) = index.pack_number(&pack) {
            findings.damaged_pack(number, text);
        }
    }
}

/// What became of marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    /// Packs marked as damaged that were not before.
    pub marked: usize,
    /// Packs whose marks were taken back.
    pub unmarked: usize,
}

/// Marks the packs that a check found damaged, so that writers do without them; takes back the
/// marks of packs that it read and found whole, and marks that cannot be read once every pack was.
pub fn mark(repository: &Repository, report: &CheckReport) -> Result<Marked> {
    let mut done = Marked::default();
    if !report.packs_damaged.is_empty() {
        done.marked = repository.mark_damaged(report.packs_damaged.iter().copied())?;
    }
    if !report.packs_whole.is_empty() {
        done.unmarked = repository.unmark_damaged(&report.packs_whole)?;
    }
    if report.read_all {
        for (name, error) in repository.damage_marks()?.unreadable {
            if is_damage(&error) {
                repository.check_access(Access::Delete)?;
                repository.store().delete(&name)?;
            }
        }
    }
    Ok(done)
}

/// A mark of a later version may say more than this program knows.
fn is_damage(error: &bale_repository::error::Error) -> bool {
    match error {
        bale_repository::error::Error::Object { source, .. } => {
            !matches!(source, FormatError::Newer { .. })
        }
        _ => false,
    }
}

/// Packs that are marked and that the store does not have any more: their marks have served.
pub fn marked_and_gone(repository: &Repository) -> Result<HashSet<ObjectId>> {
    let marks = repository.damage_marks()?;
    let mut gone: HashSet<ObjectId> = marks.packs().copied().collect();
    repository.store().list(Area::Packs, &mut |info| {
        info.name.id().map(|id| gone.remove(&id));
    })?;
    Ok(gone)
}
