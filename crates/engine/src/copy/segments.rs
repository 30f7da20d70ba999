//! Segments are written anew: the same rows, with ids and content hashes of the target's keys.
//!
//! A segment becomes one segment, or two if it would not fit, so what snapshots share in the source
//! they share in the target. A row whose content is lost has none in the target, and the segment
//! says so: it serves snapshots in which a newer layer hides that row, and no others.

use super::needs::Needs;
use super::reading::Reading;
use super::rows_by_place::{row_key, spilling};
use super::storing::Storing;
use bale_format::segment::Segment;
use bale_format::{
    ChunkKind, Content, Entry, EntryFlags, Kind, SegmentBuilder, SegmentError, SegmentRef,
    XattrsColumn,
};
use bale_pipeline::monitor::Phase;
use bale_pipeline::spill::Sorted;
use bale_repository::error::{Error, Result};
use std::ops::Range;

/// What a segment of the source is in the target.
pub(super) struct NewSegment {
    pub(super) parts: Vec<SegmentRef>,
    /// Content or attributes of some row are lost.
    pub(super) is_lossy: bool,
}

/// Segments of the target by the number of the source's; `None`: it cannot be read any more.
pub(super) type NewSegments = Vec<Option<NewSegment>>;

/// Reads segments of these numbers in turn; `take` gets the number and the decoded segment, or what
/// is wrong.
pub(super) fn read_segments(
    reading: Reading<'_>,
    segments: &[SegmentRef],
    numbers: &[u32],
    phase: Phase,
    mut take: impl FnMut(u32, std::result::Result<Segment, String>) -> Result<()>,
) -> Result<()> {
    let numbers = numbers.iter().map(|number| *number as usize);
    let chunks = numbers.map(|number| (number, segments[number].id, ChunkKind::Segment));
    reading.chunks(chunks, |number, plain| {
        let reference = &segments[number];
        reading
            .monitor
            .place(&[b"/", &reference.first.parent[..]].concat());
        reading.progress(phase, number as u64 + 1, segments.len() as u64);
        let segment = match plain {
            Err(lost) => Err(lost.text),
            Ok(plain) => decode(reference, &plain),
        };
        take(number as u32, segment)
    })
}

fn decode(reference: &SegmentRef, plain: &[u8]) -> std::result::Result<Segment, String> {
    let id = reference.id.short();
    let segment = Segment::decode(plain).map_err(|error| format!("segment {id}: {error}"))?;
    let keys = segment.keys();
    let is_meant = keys.rows() == reference.rows as usize
        && keys.key(0) == reference.first
        && keys.key(keys.rows() - 1) == reference.last;
    match is_meant {
        true => Ok(segment),
        false => Err(format!(
            "segment {id} is not the one that its snapshot describes"
        )),
    }
}

/// Writes all segments anew. `hashes`: of bundled rows, by number of segment and row.
pub(super) fn rewrite(
    reading: Reading<'_>,
    needs: &Needs,
    hashes: Sorted,
    storing: &mut Storing<'_>,
) -> Result<NewSegments> {
    let mut rewriting = Rewriting {
        hashes,
        builder: SegmentBuilder::new(),
    };
    let of_earlier = |number: u32| {
        let parts = needs.there.get(&number)?.clone();
        Some(NewSegment {
            parts,
            is_lossy: false,
        })
    };
    let all = 0..needs.segments.len() as u32;
    let mut made: NewSegments = all.clone().map(of_earlier).collect();
    let new: Vec<u32> = all
        .filter(|number| !needs.there.contains_key(number))
        .collect();
    let segments = &needs.segments;
    read_segments(reading, segments, &new, Phase::Commit, |number, segment| {
        match segment {
            Ok(segment) => {
                let segment = rewriting.segment(number, &segment, storing)?;
                made[number as usize] = Some(segment);
            }
            Err(text) => reading.problem(Vec::new(), text),
        }
        Ok(())
    })?;
    Ok(made)
}

struct Rewriting {
    hashes: Sorted,
    builder: SegmentBuilder,
}

impl Rewriting {
    fn segment(
        &mut self,
        number: u32,
        segment: &Segment,
        storing: &mut Storing<'_>,
    ) -> Result<NewSegment> {
        self.builder.clear();
        let mut is_lossy = false;
        for row in 0..segment.rows() {
            let mut entry = segment.entry(row);
            let hash = self.hash(number, row as u32)?;
            is_lossy |= !rewrite_row(&mut entry, hash, storing);
            self.builder.push(&entry).map_err(refused)?;
        }
        let mut parts = Vec::new();
        self.store(0..segment.rows(), storing, &mut parts)?;
        Ok(NewSegment { parts, is_lossy })
    }

    /// Content hash of a bundled row, if its bytes could be read. Rows come in order.
    fn hash(&mut self, segment: u32, row: u32) -> Result<Option<[u8; 16]>> {
        let wanted = row_key(segment, row);
        loop {
            if let Some((key, hash)) = self.hashes.current()
                && key >= &wanted[..]
            {
                return Ok((key == wanted).then(|| hash.try_into().expect("16 bytes")));
            }
            if self.hashes.next_record().map_err(spilling)?.is_none() {
                return Ok(None);
            }
        }
    }

    /// As a catalog's writer cuts what does not fit.
    fn store(
        &mut self,
        rows: Range<usize>,
        storing: &mut Storing<'_>,
        parts: &mut Vec<SegmentRef>,
    ) -> Result<()> {
        let segment = match self.builder.encode(rows.clone()) {
            Err(SegmentError::TooLarge { .. }) if rows.len() > 1 => {
                let middle = rows.start + rows.len() / 2;
                self.store(rows.start..middle, storing, parts)?;
                return self.store(middle..rows.end, storing, parts);
            }
            encoded => encoded.map_err(refused)?,
        };
        parts.push(SegmentRef {
            id: storing.writer.store(ChunkKind::Segment, segment)?,
            rows: rows.len() as u32,
            bytes: self.builder.file_bytes(rows.clone()),
            first: self.builder.key(rows.start),
            last: self.builder.key(rows.end - 1),
            from: None,
            to: None,
        });
        Ok(())
    }
}

/// Puts the target's ids and hashes in the place of the source's. False: some of it is lost.
fn rewrite_row(entry: &mut Entry, hash: Option<[u8; 16]>, storing: &Storing<'_>) -> bool {
    let has_attributes = rewrite_attributes(entry, storing);
    let content = match entry.content {
        Content::None | Content::Image => Some((entry.content, None)),
        Content::Bundled { chunk, offset } if entry.kind == Kind::Extent => {
            let chunk = storing.new_id(&chunk);
            chunk.map(|chunk| (Content::Bundled { chunk, offset }, None))
        }
        Content::Bundled { chunk, offset } => {
            let chunk = storing.new_id(&chunk);
            let content = |(chunk, hash)| (Content::Bundled { chunk, offset }, Some(hash));
            chunk.zip(hash).map(content)
        }
        Content::Pieces { list } => {
            let content = |(list, hash)| (Content::Pieces { list }, Some(hash));
            storing.new_list(&list).map(content)
        }
    };
    let has_content = content.is_some();
    if !has_content && entry.kind == Kind::Extent {
        // There is no extent without content; nobody sees this row.
        let mut gone = Entry::new(entry.parent.clone(), entry.name.clone(), Kind::File);
        gone.flags.set(EntryFlags::REMOVED);
        *entry = gone;
        return false;
    }
    let (content, hash) = content.unwrap_or_default();
    entry.content = content;
    // What the source does not say the target does not either.
    entry.content_hash = entry.content_hash.and(hash);
    if !has_content {
        entry.flags.set(EntryFlags::UNREADABLE);
    }
    has_attributes && has_content
}

fn rewrite_attributes(entry: &mut Entry, storing: &Storing<'_>) -> bool {
    let Some(set) = XattrsColumn::chunk_of(&entry.xattrs) else {
        return true;
    };
    let id = storing.new_id(&set);
    entry.xattrs = id.map(XattrsColumn::chunk).unwrap_or_default();
    if id.is_none() {
        entry.flags.set(EntryFlags::XATTRS_UNREADABLE);
    }
    id.is_some()
}

fn refused(error: SegmentError) -> Error {
    Error::Other(format!("write a segment of the catalog anew: {error}"))
}
