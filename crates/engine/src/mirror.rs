//! `mirror`: all objects of a repository as they are, in a second store.
//!
//! Nothing is opened or sealed anew: the target has the same keys and is the same repository. Each
//! object is hashed on its way, and what is not what its name says is not sent. The order leaves
//! the target a repository in which every snapshot has what it needs, whenever it ends:
//!
//! ```text
//! keys ▶ config, its copy ▶ condemned, damaged ▶ packs ▶ index ▶ runs ▶ snapshots
//! ```
//!
//! Packs in segments are sent as packs, into segments of the target's own (`segments`).
//!
//! The source goes on meanwhile: it is listed in the opposite order, and once more until a round
//! finds nothing new. Deleting is a request of its own.

mod delete;
mod listing;
mod same;
mod segments;
mod send;

use crate::two_stores::refuse_hot_alone;
use crate::whole::Wholeness;
use bale_format::{Access, ObjectId, SegmentRef};
use bale_pipeline::monitor::{Monitor, Phase, Problem, Progress};
use bale_repository::error::{Error, Result};
use bale_repository::index::PackInfo;
use bale_repository::repository::{Named, Repository};
use bale_repository::store::{Area, ObjectName, Store};
use listing::Listing;
use std::collections::HashSet;
use std::sync::Arc;

/// Rounds after which a source that goes on changing is left for the next mirror.
const ROUNDS_MAX: usize = 8;

/// How to mirror.
#[derive(Clone, Debug, Default)]
pub struct MirrorOptions {
    /// Read what is there already, and write again what is damaged.
    pub verify: bool,
    /// Delete what the source does not have any more.
    pub delete: bool,
    /// Write and delete nothing.
    pub dry_run: bool,
}

/// What a mirror has done; of a dry run, would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirrored {
    pub objects_sent: u64,
    pub bytes_sent: u64,
    pub objects_there: u64,
    /// Of those sent: something damaged was there.
    pub objects_replaced: u64,
    pub objects_deleted: u64,
    /// Segments of the target that were deleted, since deleting had left little or nothing of them.
    pub segments_given_back: u64,
    /// Snapshots not sent, since something that they need is damaged in the source.
    pub snapshots_withheld: u64,
    /// Damaged objects, snapshots withheld, and a reason to delete nothing; each was named.
    pub problems: u64,
    /// Deleting was asked for, and something spoke against it: the last of the problems.
    pub is_deleting_refused: bool,
}

/// Refuses a hot store without its cold one.
pub fn refuse_unfit(source: &Repository) -> Result<()> {
    let advice = "Name that beside it with --cold, or that alone with -r";
    refuse_hot_alone(source, "a mirror", advice)
}

/// Segments are written in one stream.
fn refuse_without_streams(of_target: &Repository, target: &Arc<dyn Store>) -> Result<()> {
    match of_target.stretched().is_some() && !target.takes_streams() {
        true => Err(Error::NoStreams(target.place())),
        false => Ok(()),
    }
}

/// Brings the objects of `source` to `target`.
pub fn mirror(
    source: &Arc<Repository>,
    target: &Arc<dyn Store>,
    options: &MirrorOptions,
    monitor: &dyn Monitor,
) -> Result<Mirrored> {
    source.check_access(Access::Read)?;
    refuse_unfit(source)?;
    let mut mirroring = Mirroring::begin(source, target, options, monitor)?;
    let place = target.place();
    let sent = mirroring.send_everything();
    sent.map_err(|error| with_full_advice(error, &place))?;
    if options.delete {
        mirroring.delete()?;
        if !mirroring.mirrored.is_deleting_refused {
            mirroring.give_back_segments()?;
        }
    }
    Ok(mirroring.mirrored)
}

/// The order of sending leaves the target as the advice says, whichever object had no room.
fn with_full_advice(error: Error, target: &str) -> Error {
    match error {
        Error::Store(error) if error.is_storage_full() => Error::Other(format!(
            "{error}. {target} is full: what was sent stays, and every snapshot in it is whole. \
             Make room there, and mirror again: it goes on from here"
        )),
        other => other,
    }
}

/// A mirror under way.
struct Mirroring<'a> {
    source: &'a Arc<Repository>,
    /// The target as it is.
    base: &'a Arc<dyn Store>,
    /// The source's repository in it.
    of_target: Repository,
    /// The target, with segments around it where the repository has some.
    target: Arc<dyn Store>,
    options: &'a MirrorOptions,
    monitor: &'a dyn Monitor,
    /// The bytes of `config`.
    config: Vec<u8>,
    /// The source, as of this round.
    listed: Listing,
    /// The target, with what was sent.
    there: Listing,
    /// Objects that need not be looked at again.
    done: HashSet<ObjectName>,
    /// Packs of what names and describes files.
    metadata: HashSet<ObjectId>,
    sent_in_round: u64,
    /// Something that was listed for this round, and was not found: a prune took it away.
    gone: Option<ObjectName>,
    /// Objects of the source that are damaged, or named and not there, or packs that nothing names.
    damaged: u64,
    objects_done: u64,
    bytes_done: u64,
    mirrored: Mirrored,
}

impl<'a> Mirroring<'a> {
    fn begin(
        source: &'a Arc<Repository>,
        target: &'a Arc<dyn Store>,
        options: &'a MirrorOptions,
        monitor: &'a dyn Monitor,
    ) -> Result<Mirroring<'a>> {
        let judged = source.judge_configs()?;
        if let Some(trouble) = &judged.trouble {
            monitor.note(&format!("of the source, {}", trouble.note()));
        }
        let of_target = source.in_store(target.clone());
        refuse_without_streams(&of_target, target)?;
        let index = source.reload_index_as_far_as_possible()?;
        let described = index.entries().iter();
        let described = described.filter(|place| place.chunk.kind.is_metadata());
        let listed = Listing::of(&**source.store())?;
        let is_missing = |pack: &&PackInfo| listed.get(&ObjectName::pack(pack.id)).is_none();
        let missing = index.packs().iter().filter(is_missing).count();
        // An index object that is gone named them, or a run that was given up left them.
        let is_unnamed = |id: &ObjectId| index.pack_number(id).is_none();
        let packs = listed
            .in_area(Area::Packs)
            .filter_map(|info| info.name.id());
        let unnamed = packs.filter(is_unnamed).count();
        Ok(Mirroring {
            source,
            base: target,
            there: Listing::of(&**of_target.store())?,
            target: of_target.store().clone(),
            of_target,
            options,
            monitor,
            config: judged.intact_bytes().to_vec(),
            listed,
            done: HashSet::new(),
            metadata: described.map(|place| index.pack(place.pack).id).collect(),
            sent_in_round: 0,
            gone: None,
            damaged: (missing + unnamed) as u64,
            objects_done: 0,
            bytes_done: 0,
            mirrored: Mirrored::default(),
        })
    }

    /// What refers after what it refers to, in rounds while the source goes on.
    fn send_everything(&mut self) -> Result<()> {
        self.require_same()?;
        self.send_areas(&[Area::Keys])?;
        self.send_configs()?;
        for _ in 0..ROUNDS_MAX {
            (self.sent_in_round, self.gone) = (0, None);
            self.send_areas(&[Area::Keys, Area::Condemned, Area::Damaged])?;
            self.send_packs()?;
            self.send_areas(&[Area::Index])?;
            // What took the place of something that is gone is in the next listing.
            if self.gone.is_none() {
                self.leave_out_what_lives()?;
                self.send_areas(&[Area::Runs])?;
                self.withhold_what_is_not_whole()?;
                self.send_areas(&[Area::Snapshots])?;
            }
            if self.is_done() {
                return Ok(());
            }
            self.listed = Listing::of(&**self.source.store())?;
        }
        match self.gone {
            Some(gone) => self.problem(format!(
                "{gone} of the source is listed, and not found when it is read, {ROUNDS_MAX} \
                 times: snapshots that came since the last mirror are not sent (bale check says \
                 what is lost)"
            )),
            None => {
                let text =
                    "the source goes on changing: what came last is left for the next mirror";
                self.monitor.note(text);
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.options.dry_run || (self.sent_in_round == 0 && self.gone.is_none())
    }

    fn problem(&mut self, text: String) {
        self.mirrored.problems += 1;
        self.monitor.problem(&Problem {
            path: Vec::new(),
            action: "mirror",
            text,
        });
    }

    /// Signs of life say that a run is under way, and are replaced every few minutes: in a mirror
    /// nobody runs.
    fn leave_out_what_lives(&mut self) -> Result<()> {
        let (runs, _) = self.source.runs_readable()?;
        let signs = runs.iter().filter(|(_, run)| run.is_sign_of_life());
        let signs: HashSet<ObjectId> = signs.map(|(id, _)| *id).collect();
        let runs = self.listed.in_area(Area::Runs);
        let names = runs.filter(|info| info.name.id().is_some_and(|id| signs.contains(&id)));
        self.done.extend(names.map(|info| info.name));
        Ok(())
    }

    /// Where something was not sent, or seems to be lost, a snapshot goes only if the target can
    /// serve it.
    fn withhold_what_is_not_whole(&mut self) -> Result<()> {
        if self.options.dry_run {
            return Ok(());
        }
        let (snapshots, _) = self.source.snapshots_readable()?;
        let index = self.source.index()?;
        let mut layers = snapshots.iter().flat_map(|(_, snapshot)| &snapshot.layers);
        let is_named = |segment: &SegmentRef| !index.positions(&segment.id).is_empty();
        if self.damaged == 0 && layers.all(|layer| layer.segments.iter().all(is_named)) {
            return Ok(());
        }
        let is_new = |(id, _): &&Named| {
            let name = ObjectName::snapshot(*id);
            self.there.get(&name).is_none() && !self.done.contains(&name)
        };
        let there = self.source.in_store(self.base.clone());
        let has_pack = |pack: &PackInfo| self.there.get(&ObjectName::pack(pack.id)).is_some();
        let mut wholeness = Wholeness::new(&there, there.index()?, has_pack);
        let mut withheld = Vec::new();
        for (id, snapshot) in snapshots.iter().filter(is_new) {
            if !wholeness.is_whole(&snapshot.layers)? {
                withheld.push(*id);
            }
        }
        for id in withheld {
            self.mirrored.snapshots_withheld += 1;
            self.done.insert(ObjectName::snapshot(id));
            self.problem(format!(
                "snapshot {} is not sent: something that it needs is damaged in the source",
                id.short()
            ));
        }
        Ok(())
    }
}

/// Of all objects of the source.
fn report_objects(
    monitor: &dyn Monitor,
    phase: Phase,
    (objects, bytes): (u64, u64),
    listed: &Listing,
) {
    let progress = Progress {
        done: objects,
        total: listed.count().max(objects),
        bytes_done: bytes,
        bytes_total: listed.bytes().max(bytes),
    };
    monitor.progress(phase, progress);
}
