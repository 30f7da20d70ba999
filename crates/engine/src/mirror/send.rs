//! Sending objects: read piece by piece, hashed on the way, published only if the hash is the name.
//!
//! What the target has stays: an object of the same name and length, and with `verify` of the right
//! hash. One that is something else is written again, but only from a source that was read and
//! found intact just before.

use super::segments::PieceError;
use super::{Mirroring, report_objects};
use crate::limits::MIRROR_OBJECTS_AT_ONCE;
use crate::verify::{OTHER_BYTES, hash_object};
use crate::whole::{is_loss, with_archive_advice};
use bale_format::sealed::OBJECT_BYTES_MAX;
use bale_pipeline::monitor::Phase;
use bale_pipeline::ordered::in_order_within;
use bale_repository::error::{Error, Result, is_missing};
use bale_repository::store::{Area, ObjectInfo, ObjectName, PackContent};

/// What became of an object.
pub(super) enum Outcome {
    /// It was there.
    Kept,
    Sent {
        /// What was there was damaged.
        is_replaced: bool,
    },
    /// A prune took it away since it was listed.
    Gone,
    Damaged(String),
}

impl Mirroring<'_> {
    /// Sends what is missing of some areas, each area after the one before.
    pub(super) fn send_areas(&mut self, areas: &[Area]) -> Result<()> {
        for area in areas {
            let objects = self.left_in(*area).collect();
            self.send_all(objects)?;
        }
        Ok(())
    }

    /// What need be looked at still.
    pub(super) fn left_in(&self, area: Area) -> impl Iterator<Item = ObjectInfo> {
        let left = |info: &&ObjectInfo| !self.done.contains(&info.name);
        self.listed.in_area(area).filter(left).cloned()
    }

    /// Several at once; what is done is counted in order.
    pub(super) fn send_all(&mut self, objects: Vec<ObjectInfo>) -> Result<()> {
        let outcomes = {
            let mirroring = &*self;
            let mut outcomes = Vec::with_capacity(objects.len());
            let (mut done, mut bytes) = (0, 0);
            in_order_within(
                MIRROR_OBJECTS_AT_ONCE,
                objects.into_iter(),
                || (),
                |(), info| (mirroring.send(&info), info),
                |(outcome, info)| {
                    if mirroring.monitor.interrupted() {
                        return Err(Error::Interrupted);
                    }
                    (done, bytes) = (done + 1, bytes + info.len);
                    let at = (mirroring.objects_done + done, mirroring.bytes_done + bytes);
                    report_objects(mirroring.monitor, Phase::Copy, at, &mirroring.listed);
                    outcomes.push((outcome?, info));
                    Ok(())
                },
            )?;
            outcomes
        };
        for (outcome, info) in outcomes {
            self.count(outcome, info);
        }
        Ok(())
    }

    pub(super) fn count(&mut self, outcome: Outcome, info: ObjectInfo) {
        self.objects_done += 1;
        self.bytes_done += info.len;
        match outcome {
            Outcome::Gone => {
                if info.name.area != Area::Runs {
                    self.gone = Some(info.name);
                }
                return;
            }
            Outcome::Kept => self.mirrored.objects_there += 1,
            Outcome::Sent { is_replaced } => {
                self.sent_in_round += 1;
                self.mirrored.objects_sent += 1;
                self.mirrored.bytes_sent += info.len;
                self.mirrored.objects_replaced += u64::from(is_replaced);
            }
            Outcome::Damaged(text) => {
                self.damaged += u64::from(info.name.area != Area::Runs);
                let text = format!("{} of the source is not sent: {text}", info.name);
                self.problem(text);
                self.done.insert(info.name);
                return;
            }
        }
        self.done.insert(info.name);
        self.there.add(info);
    }

    pub(super) fn send(&self, info: &ObjectInfo) -> Result<Outcome> {
        let there = self.there.get(&info.name);
        let is_intact = match there {
            Some(there) if there.len == info.len => self.is_intact_there(there)?,
            _ => false,
        };
        if is_intact {
            return Ok(Outcome::Kept);
        }
        let is_replaced = there.is_some();
        let sent = match self.options.dry_run {
            true => Ok(()),
            false => {
                if is_replaced {
                    match self.hash_of_source(info)? {
                        Ok(()) => self.target.delete(&info.name)?,
                        Err(outcome) => return Ok(outcome),
                    }
                }
                self.transfer(info)
            }
        };
        match sent {
            Ok(()) => Ok(Outcome::Sent { is_replaced }),
            Err(Refused::Outcome(outcome)) => Ok(outcome),
            Err(Refused::Error(error)) => Err(error),
        }
    }

    /// Believed by its length, unless it is to be read.
    fn is_intact_there(&self, there: &ObjectInfo) -> Result<bool> {
        if !self.options.verify {
            return Ok(true);
        }
        match hash_object(&*self.target, there) {
            Ok(hash) => Ok(there.name.id().is_some_and(|id| id.0 == hash)),
            Err(error) if is_loss(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The inner error: it is not to be sent.
    fn hash_of_source(&self, info: &ObjectInfo) -> Result<std::result::Result<(), Outcome>> {
        match hash_object(&**self.source.store(), info) {
            Ok(hash) if info.name.id().is_some_and(|id| id.0 == hash) => Ok(Ok(())),
            Ok(_) => Ok(Err(Outcome::Damaged(OTHER_BYTES.to_owned()))),
            Err(error) => self.refusal(info, error).map(Err),
        }
    }

    fn transfer(&self, info: &ObjectInfo) -> std::result::Result<(), Refused> {
        if let Some(segments) = self.segments_for(info) {
            return self.append(info, &segments);
        }
        if info.name.area == Area::Packs {
            return self.stream(info);
        }
        let bytes = (self.source.store())
            .get(&info.name, OBJECT_BYTES_MAX as u64)
            .map_err(|error| self.refused(info, error.into()))?;
        require_hash(info, blake3::hash(&bytes))?;
        let put = self.target.put(&info.name, &bytes);
        put.map_err(|error| Refused::Error(error.into()))
    }

    fn stream(&self, info: &ObjectInfo) -> std::result::Result<(), Refused> {
        let writing = |error: bale_repository::store::StoreError| Refused::Error(error.into());
        let content = self.content_of(&info.name);
        let mut writer = self.target.begin_pack(content).map_err(writing)?;
        let pieces = self.pieces(info, &mut |piece| writer.append(piece));
        let hash = pieces.map_err(|error| match error {
            PieceError::Read(refused) => refused,
            PieceError::Write(error) => writing(error),
        })?;
        require_hash(info, hash)?;
        writer.publish(&info.name).map_err(writing)
    }

    /// Of a pack that no index names nobody knows.
    pub(super) fn content_of(&self, name: &ObjectName) -> PackContent {
        match name.id().is_some_and(|id| self.metadata.contains(&id)) {
            true => PackContent::Metadata,
            false => PackContent::Data,
        }
    }

    pub(super) fn refused(&self, info: &ObjectInfo, error: Error) -> Refused {
        match self.refusal(info, error) {
            Ok(outcome) => Refused::Outcome(outcome),
            Err(error) => Refused::Error(error),
        }
    }

    /// Is the object gone or damaged, or does the store not answer?
    fn refusal(&self, info: &ObjectInfo, error: Error) -> Result<Outcome> {
        if is_missing(&error) && self.source.store().stat(&info.name)?.is_none() {
            return Ok(Outcome::Gone);
        }
        match is_loss(&error) {
            true => Ok(Outcome::Damaged(error.to_string())),
            false => Err(with_archive_advice(error)),
        }
    }
}

/// Why an object is not sent.
pub(super) enum Refused {
    Outcome(Outcome),
    Error(Error),
}

pub(super) fn require_hash(
    info: &ObjectInfo,
    hash: blake3::Hash,
) -> std::result::Result<(), Refused> {
    match info.name.id().is_some_and(|id| id.0 == *hash.as_bytes()) {
        true => Ok(()),
        false => Err(Refused::Outcome(Outcome::Damaged(OTHER_BYTES.to_owned()))),
    }
}
