//! Of a repository with segments: packs of data go into segments of the target's own, in the order
//! in which they lie in the source, so that both media are read and written forward.
//!
//! A pack is the same pack in whichever segment it lies, and a segment of the source may be half
//! empty: what was deleted in it is not sent. Where a segment of the source ends and the target's
//! is nearly full, that ends, too; so projects lie as they did, and short ones come together. A
//! segment that is cut off is lost with what was in it, and sent again by the next mirror: packs
//! are named in the target's index only after the last of them is durable.

use super::send::{Refused, require_hash};
use super::{Mirroring, report_objects};
use crate::prune::give_back;
use bale_format::ObjectId;
use bale_format::stretch::StretchName;
use bale_pipeline::monitor::Phase;
use bale_repository::error::{Error, Result};
use bale_repository::store::{Area, ObjectInfo, PackContent, StoreError};
use bale_repository::stretched::StretchedStore;
use std::sync::Arc;

/// Bytes of a pack that are read at once.
const PIECE_BYTES: usize = 4 << 20;

impl Mirroring<'_> {
    /// Sends packs: of segments one after the other, all else several at once.
    pub(super) fn send_packs(&mut self) -> Result<()> {
        let Some(segments) = self.of_target.stretched().cloned() else {
            return self.send_areas(&[Area::Packs]);
        };
        let (data, metadata): (Vec<ObjectInfo>, Vec<ObjectInfo>) = (self.left_in(Area::Packs))
            .partition(|info| self.content_of(&info.name) == PackContent::Data);
        self.send_all(metadata)?;
        let sent = self.send_data(data, &segments);
        // What was sent counts also if the rest is not.
        let settled = segments.settle();
        sent?;
        Ok(settled?)
    }

    fn send_data(&mut self, packs: Vec<ObjectInfo>, segments: &StretchedStore) -> Result<()> {
        let mut placed: Vec<(Option<(StretchName, u64)>, ObjectInfo)> = packs
            .into_iter()
            .map(|info| (self.place_of(&info), info))
            .collect();
        placed.sort_by(|(a, one), (b, other)| (a, one.name).cmp(&(b, other.name)));
        let mut last = None;
        for (place, info) in placed {
            if self.monitor.interrupted() {
                return Err(Error::Interrupted);
            }
            let of = place.map(|(segment, _)| segment);
            if last.is_some_and(|last| last != of) && segments.is_long(segments.filling().open) {
                segments.settle()?;
            }
            last = Some(of);
            let outcome = self.send(&info)?;
            let at = (self.objects_done + 1, self.bytes_done + info.len);
            report_objects(self.monitor, Phase::Copy, at, &self.listed);
            self.count(outcome, info);
        }
        Ok(())
    }

    fn place_of(&self, info: &ObjectInfo) -> Option<(StretchName, u64)> {
        let place = self.source.stretched()?.place_of(&info.name.id()?)?;
        Some((place.stretch, place.offset))
    }

    /// The segments of the target, for what goes into them.
    pub(super) fn segments_for(
        &self,
        info: &ObjectInfo,
    ) -> Option<(Arc<StretchedStore>, ObjectId)> {
        let segments = self.of_target.stretched()?;
        let is_data =
            info.name.area == Area::Packs && self.content_of(&info.name) == PackContent::Data;
        Some((segments.clone(), info.name.id().filter(|_| is_data)?))
    }

    /// Appends a pack to the open segment; one that is not what its name says is named by nobody.
    pub(super) fn append(
        &self,
        info: &ObjectInfo,
        (segments, id): &(Arc<StretchedStore>, ObjectId),
    ) -> std::result::Result<(), Refused> {
        let mut refused = None;
        let appended = segments.append_parts(*id, info.len, &mut |append| match self
            .pieces(info, append)
        {
            Ok(hash) => match require_hash(info, hash) {
                Ok(()) => Ok(true),
                Err(damaged) => {
                    refused = Some(damaged);
                    Ok(false)
                }
            },
            Err(PieceError::Read(why)) => {
                refused = Some(why);
                Ok(false)
            }
            Err(PieceError::Write(error)) => Err(error),
        });
        match (appended, refused) {
            (Err(error), _) => Err(Refused::Error(error.into())),
            (Ok(_), Some(refused)) => Err(refused),
            (Ok(_), None) => Ok(()),
        }
    }

    /// Reads a pack of the source piece by piece; its hash.
    pub(super) fn pieces(
        &self,
        info: &ObjectInfo,
        take: &mut dyn FnMut(&[u8]) -> std::result::Result<(), StoreError>,
    ) -> std::result::Result<blake3::Hash, PieceError> {
        let mut hasher = blake3::Hasher::new();
        let mut buffer = vec![0; PIECE_BYTES];
        let mut offset = 0;
        while offset < info.len {
            if self.monitor.interrupted() {
                return Err(PieceError::Read(Refused::Error(Error::Interrupted)));
            }
            let rest = usize::try_from(info.len - offset).unwrap_or(PIECE_BYTES);
            let piece = &mut buffer[..rest.min(PIECE_BYTES)];
            (self.source.store())
                .read_at(&info.name, offset, piece)
                .map_err(|error| PieceError::Read(self.refused(info, error.into())))?;
            hasher.update(piece);
            take(piece).map_err(PieceError::Write)?;
            offset += piece.len() as u64;
        }
        Ok(hasher.finalize())
    }

    /// Gives back segments of the target of which deleting has left little.
    pub(super) fn give_back_segments(&mut self) -> Result<()> {
        if self.options.dry_run || self.of_target.stretched().is_none() {
            return Ok(());
        }
        self.of_target.reload_index_as_far_as_possible()?;
        let given = give_back(&self.of_target, self.monitor)?;
        self.mirrored.segments_given_back += given.segments;
        for (segment, pack) in given.damaged {
            self.problem(format!(
                "{segment} of the target is not given back: pack {} in it is damaged (bale \
                 mirror --verify sends it again)",
                pack.short()
            ));
        }
        Ok(())
    }
}

/// Which side failed.
pub(super) enum PieceError {
    Read(Refused),
    Write(StoreError),
}
