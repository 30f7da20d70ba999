//! `copy`: snapshots of one repository into another that has keys of its own.
//!
//! Chunk ids, content hashes and seals are keyed: whatever is copied is read, opened, compared with
//! its id, and sealed anew, and every row that points at it is written again. What several
//! snapshots share is read once, in the order of the source's packs; what they share with snapshots
//! that were copied before is not read at all. A chunk that the target has is not stored again, so
//! a copy that was killed goes on where it was, but for the reading.
//!
//! Snapshots become visible last, when all they need is durable. One of which something is lost in
//! the source is not made: what can be read of it stays in the source, and the next copy makes it
//! once the source is whole again. The source is not written to.

mod choose;
mod commit;
mod earlier;
mod lost_rows;
mod needs;
mod positions;
mod reading;
mod rows_by_place;
mod segments;
mod spoiled;
mod storing;

use crate::heartbeat::Heartbeat;
use crate::limits::copy_flight_bytes;
use crate::two_stores::refuse_hot_alone;
use bale_format::{Access, ObjectId};
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::pack::{ChunkWriter, WriterOptions};
use bale_repository::repository::{ChunkFlights, Named, Repository};
use choose::{Choice, choose, origin};
use earlier::EarlierCopies;
use lost_rows::LostRows;
use needs::Needs;
use reading::Reading;
use spoiled::Gaps;
use std::collections::HashMap;
use std::sync::Arc;
use storing::Storing;

/// How to copy.
#[derive(Clone, Debug, Default)]
pub struct CopyOptions {
    /// Store nothing, and read no content.
    pub dry_run: bool,
    /// Follow every copy that is there to its packs, whatever index and packs say.
    pub verify: bool,
    /// Recorded host name of who copies, while it does.
    pub host: String,
    /// Recorded program and version of the same.
    pub program: String,
}

/// What became of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its id in the target.
    Copied(ObjectId),
    /// It was there already, under this id.
    There(ObjectId),
    /// The same, and it lacked something, which was copied again.
    Refilled(ObjectId),
    /// A dry run would copy it.
    WouldCopy,
    /// Something that it needs is lost in the source; says what.
    NotMade(String),
}

/// One of the snapshots that were chosen.
#[derive(Clone, Debug)]
pub struct CopiedSnapshot {
    /// Its id in the source.
    pub source: ObjectId,
    pub fate: Fate,
}

/// What a copy has done.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// Oldest first.
    pub snapshots: Vec<CopiedSnapshot>,
    /// Of a dry run: chunks of content to be read, and stored unless the target has them.
    pub chunks_to_read: u64,
    /// The same in bytes as they are stored in the source.
    pub bytes_to_read: u64,
    pub chunks_read: u64,
    /// Before compression.
    pub bytes_read: u64,
    pub chunks_stored: u64,
    /// Chunks that the target had.
    pub chunks_known: u64,
    pub bytes_stored: u64,
    /// Chunks that cannot be read in the source.
    pub chunks_lost: u64,
    /// Paths whose content is lost, of all snapshots.
    pub paths_lost: u64,
}

impl Copied {
    /// Was something lost, or a snapshot not made?
    pub fn is_incomplete(&self) -> bool {
        let is_not_made = |copied: &CopiedSnapshot| matches!(copied.fate, Fate::NotMade(_));
        self.chunks_lost > 0 || self.snapshots.iter().any(is_not_made)
    }
}

/// Copies snapshots of `source` that `target` does not have.
pub fn copy(
    source: &Arc<Repository>,
    target: &Arc<Repository>,
    snapshots: &[Named],
    options: &CopyOptions,
    monitor: &dyn Monitor,
) -> Result<Copied> {
    require_another(source, target)?;
    source.check_access(Access::Read)?;
    let advice = "That one is complete: name it as the source (--from-repo)";
    refuse_hot_alone(source, "a copy", advice)?;
    target.check_access(Access::Write)?;
    let (in_target, damaged) = target.snapshots_readable()?;
    for (name, error) in damaged {
        monitor.note(&format!(
            "{name} of the target cannot be read ({error}): what it is a copy of may be copied \
             again"
        ));
    }
    let index_there = target.reload_index_as_far_as_possible()?;
    let gaps = Gaps::find(target, &index_there)?;
    let spoiled = gaps.spoiled(
        (target, &index_there),
        (snapshots, &in_target),
        options.verify,
        monitor,
    )?;
    target.do_without(&gaps.missing)?;
    let mut choice = choose(snapshots, &in_target, &spoiled);
    let index = source.reload_index_as_far_as_possible()?;
    let memory = target.memory();
    let flights = ChunkFlights::start(source, copy_flight_bytes(&memory));
    let reading = Reading {
        source,
        index: &index,
        memory,
        flights: flights.as_ref(),
        monitor,
    };
    if !choice.queue.is_empty() && !options.dry_run {
        // Now, and not at the commit: a list that cannot be read would have it refused.
        target.condemned_to_do_without()?;
    }
    let mut earlier = earlier_copies(source, target, &choice.queue, &in_target)?;
    let needs = needs::find(reading, &choice.queue, &mut earlier)?;
    let mut copied = match options.dry_run {
        true => would_copy(reading, &needs, &choice.queue),
        false if choice.queue.is_empty() => Copied::default(),
        false => {
            let chosen = (&mut choice, &spoiled);
            copy_needed(reading, target, (needs, &earlier), chosen, options)?
        }
    };
    copied.snapshots = fates(snapshots, &choice, copied.snapshots);
    Ok(copied)
}

/// A copy has other keys; the same objects elsewhere are a mirror.
fn require_another(source: &Repository, target: &Repository) -> Result<()> {
    if source.id() != target.id() {
        return Ok(());
    }
    Err(Error::Other(format!(
        "source and target are the same repository, {}: a copy goes into another one, which bale \
         init makes; bale mirror keeps the same one in a second place",
        source.id()
    )))
}

/// Of all snapshots of the source, whichever were chosen.
fn earlier_copies<'t>(
    source: &Repository,
    target: &'t Repository,
    queue: &[Named],
    in_target: &[Named],
) -> Result<EarlierCopies<'t>> {
    if queue.is_empty() {
        return EarlierCopies::find(&[], &[], (target, &[]));
    }
    let (in_source, _) = source.snapshots_readable()?;
    EarlierCopies::find(queue, &in_source, (target, in_target))
}

/// What is copied; and the copies in the target that lack something, by what they are copies of.
type Chosen<'a> = (&'a mut Choice, &'a HashMap<ObjectId, &'a Named>);

/// Reads everything that is needed, once, and stores it; then the snapshots.
fn copy_needed(
    reading: Reading<'_>,
    target: &Arc<Repository>,
    (mut needs, earlier): (Needs, &EarlierCopies<'_>),
    chosen: Chosen<'_>,
    options: &CopyOptions,
) -> Result<Copied> {
    let _signs_until_the_end = Heartbeat::of_operation(target, &options.host, &options.program)?;
    let writer = ChunkWriter::start_with(target.clone(), WriterOptions::default())?;
    earlier.rely_on_all(&writer)?;
    let known = needs.take_known_chunks(reading);
    let mut storing = Storing::new(reading, known, &writer);
    let mut lost_rows = LostRows::default();
    let done = store_all(reading, target, needs, chosen, &mut storing, &mut lost_rows);
    // Named by the index, so that the next copy finds it.
    match &done {
        Ok(_) => {}
        Err(Error::Interrupted) => {
            writer.flush()?;
        }
        Err(_) => {
            let _is_sent_again_by_the_next = writer.name_durable();
        }
    }
    let (snapshots, lost) = done?;
    let written = writer.written();
    Ok(Copied {
        snapshots,
        chunks_read: storing.chunks_read,
        bytes_read: storing.bytes_read,
        chunks_lost: lost + storing.chunks_lost,
        paths_lost: lost_rows.rows,
        chunks_stored: written.chunks_new,
        chunks_known: written.chunks_known,
        bytes_stored: written.bytes_stored,
        ..Copied::default()
    })
}

fn store_all(
    reading: Reading<'_>,
    target: &Arc<Repository>,
    mut needs: Needs,
    (choice, spoiled): Chosen<'_>,
    storing: &mut Storing<'_>,
    lost: &mut LostRows,
) -> Result<(Vec<CopiedSnapshot>, u64)> {
    let rows = needs.take_rows()?;
    let hashes = storing.copy_content(reading, &needs, rows)?;
    storing.copy_lists(reading, &needs)?;
    let made = segments::rewrite(reading, &needs, hashes, storing)?;
    let chosen = (&choice.queue[..], &mut choice.there, spoiled);
    let written = commit::commit(reading, target, (&needs, &made), storing, chosen, lost)?;
    Ok((written, needs.lost))
}

/// What content is would be known only once it is read, so this is the most that would be stored.
fn would_copy(reading: Reading<'_>, needs: &Needs, queue: &[Named]) -> Copied {
    let (chunks_to_read, bytes_to_read) = needs.sum(reading.index);
    let fate = |id: &ObjectId| match needs.unreadable.get(id) {
        Some(why) => Fate::NotMade(why.clone()),
        None => Fate::WouldCopy,
    };
    let snapshots = queue.iter().map(|(id, _)| CopiedSnapshot {
        source: *id,
        fate: fate(id),
    });
    Copied {
        snapshots: snapshots.collect(),
        chunks_to_read,
        bytes_to_read,
        chunks_lost: needs.lost,
        ..Copied::default()
    }
}

/// Of all that were chosen, in their order; two of one origin are copied once.
fn fates(chosen: &[Named], choice: &Choice, copied: Vec<CopiedSnapshot>) -> Vec<CopiedSnapshot> {
    let mut of_queue: HashMap<ObjectId, Fate> = (copied.into_iter())
        .map(|copied| (copied.source, copied.fate))
        .collect();
    let fate = |named: &Named| {
        let there = choice.there.get(&origin(named)).copied();
        let made = of_queue.remove(&named.0);
        made.or(there.map(Fate::There)).unwrap_or(Fate::WouldCopy)
    };
    let mut fate = fate;
    let snapshots = chosen.iter().map(|named| CopiedSnapshot {
        source: named.0,
        fate: fate(named),
    });
    snapshots.collect()
}
