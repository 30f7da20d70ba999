//! What a restore will read of the packs of data, before it reads any: each pack once, in the order
//! in which the restore comes to them, with the ranges in it that it needs.
//!
//! Metadata is read to find this out, and is not among it. What stands in the target already is not
//! looked at. Memory is that of the plan, and the ranges of one pack.

use crate::extents::{Stretch, Stretches};
use crate::pack_reads::{PackReads, ReadsTotals};
use crate::pieces;
use crate::progress::report_problem;
use crate::scratch::{PairSorter, ScratchSpace, SortedPairs};
use crate::warm::{Arrival, Warmer};
use crate::{CatalogSource, ChunkSource, RestoreError, RestoreOptions, row};
use bale_format::{ChunkId, ChunkPlace, Content, Entry, Kind, PackNumber, Piece};
use bale_pipeline::monitor::Monitor;
use std::io;

/// Memory of the sorter.
const SORTER_BYTES: usize = 16 << 20;

/// Takes packs one by one.
pub type PackReadsTaker<'t> = &'t mut dyn FnMut(&PackReads) -> io::Result<()>;

/// Hands out what a restore with these options would read, whatever it restores to.
pub fn plan_reads(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
    found: PackReadsTaker<'_>,
) -> Result<ReadsTotals, RestoreError> {
    let planned = crate::plan::plan(catalog, chunks, scratch, options, monitor)?;
    let mut reads = ReadsSorter::new(chunks, scratch, monitor);
    for pair in planned.content {
        if reads.totals.files.is_multiple_of(STOP_EVERY_FILES) && monitor.interrupted() {
            return Err(RestoreError::Stopped);
        }
        let (_, encoded) = pair.map_err(RestoreError::Scratch)?;
        let entry = row::decode(encoded).map_err(RestoreError::Scratch)?;
        reads.push(&entry, &mut |_| {})?;
    }
    for image in planned.images {
        let (path, size) = (&image.path, image.entry.size);
        for stretch in Stretches::of(catalog, path, size).map_err(RestoreError::Catalog)? {
            if let Stretch::Data(extent) = stretch {
                reads.push_chunk(&extent.chunk, &mut |_| {})?;
            }
        }
    }
    let mut totals = reads.finish(found)?;
    totals.problems += planned.problems;
    Ok(totals)
}

/// Has everything made readable that a restore with these options would read, and waits for all of
/// it: for what cannot take packs as they come. Returns the number of problems; those of the plan
/// are left to whoever plans next.
pub fn make_readable(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
    warmer: &dyn Warmer,
) -> Result<u64, RestoreError> {
    let options = RestoreOptions {
        is_plan_reported: true,
        reported: None,
        ..options.clone()
    };
    let mut want = |reads: &PackReads| warmer.want(reads);
    let totals = plan_reads(catalog, chunks, scratch, &options, monitor, &mut want)?;
    warmer.begin(&totals).map_err(RestoreError::Reads)?;
    let mut problems = totals.problems;
    loop {
        match warmer.next(monitor)? {
            Arrival::Readable(_) => {}
            Arrival::Problem(text) => {
                problems += 1;
                report_problem(monitor, b"", "make readable", &text);
            }
            Arrival::End => return Ok(problems),
        }
    }
}

/// Files between two looks at whether to stop.
const STOP_EVERY_FILES: u64 = 1024;

/// Sorts what files need.
pub(crate) struct ReadsSorter<'a> {
    chunks: &'a dyn ChunkSource,
    monitor: &'a dyn Monitor,
    sorter: PairSorter,
    /// The chunk that was pushed last: files of one chunk follow each other.
    last: [u8; 12],
    totals: ReadsTotals,
}

impl<'a> ReadsSorter<'a> {
    pub fn new(
        chunks: &'a dyn ChunkSource,
        scratch: &ScratchSpace,
        monitor: &'a dyn Monitor,
    ) -> ReadsSorter<'a> {
        ReadsSorter {
            chunks,
            monitor,
            sorter: scratch.sorter(SORTER_BYTES),
            last: [0xff; 12],
            totals: ReadsTotals::default(),
        }
    }

    /// Adds what the content of a row needs; `found` learns the packs, some more than once.
    pub fn push(
        &mut self,
        entry: &Entry,
        found: &mut dyn FnMut(PackNumber),
    ) -> Result<(), RestoreError> {
        if entry.kind != Kind::File || entry.size == 0 {
            return Ok(());
        }
        self.totals.files += 1;
        match &entry.content {
            Content::None | Content::Image => Ok(()),
            Content::Bundled { chunk, .. } => self.push_chunk(chunk, found),
            Content::Pieces { list } => self.push_pieces(entry, list, found),
        }
    }

    /// Chunks that no index names are problems when the restore comes to them.
    fn push_chunk(
        &mut self,
        chunk: &ChunkId,
        found: &mut dyn FnMut(PackNumber),
    ) -> Result<(), RestoreError> {
        match self.chunks.place(chunk) {
            Some(place) => self.push_place(&place, found),
            None => Ok(()),
        }
    }

    fn push_place(
        &mut self,
        place: &ChunkPlace,
        found: &mut dyn FnMut(PackNumber),
    ) -> Result<(), RestoreError> {
        found(place.pack);
        let key = place.sort_key();
        if key == self.last {
            return Ok(());
        }
        self.last = key;
        let end = place.chunk.range().end.to_le_bytes();
        let pushed = self.sorter.push(&key, &end);
        pushed.map_err(RestoreError::Scratch)
    }

    fn push_pieces(
        &mut self,
        entry: &Entry,
        list: &ChunkId,
        found: &mut dyn FnMut(PackNumber),
    ) -> Result<(), RestoreError> {
        let (chunks, mut pushed) = (self.chunks, Ok(()));
        let walked = pieces::walk(list, entry.size, chunks, &mut |_, piece| {
            if let Piece::Data { chunk, .. } = piece {
                pushed = self.push_chunk(&chunk, found);
            }
            match pushed {
                Ok(()) => Ok(()),
                Err(_) => Err("no temporary space".to_owned()),
            }
        });
        pushed?;
        if let Err(text) = walked {
            self.totals.problems += 1;
            report_problem(self.monitor, &entry.path(), "plan the reads of", &text);
        }
        Ok(())
    }

    /// Hands out the packs.
    pub fn finish(self, found: PackReadsTaker<'_>) -> Result<ReadsTotals, RestoreError> {
        let mut totals = self.totals;
        let mut give = |reads: PackReads| {
            totals.packs += 1;
            totals.bytes = totals.bytes.saturating_add(reads.bytes());
            found(&reads).map_err(RestoreError::Reads)
        };
        let sorted: SortedPairs = self.sorter.finish().map_err(RestoreError::Scratch)?;
        let mut open: Option<PackReads> = None;
        for pair in sorted {
            let (key, value) = pair.map_err(RestoreError::Scratch)?;
            let (pack, from, to) = decode(&key, &value).map_err(RestoreError::Scratch)?;
            match &mut open {
                Some(reads) if reads.pack == pack => reads.add(from, to),
                _ => {
                    if let Some(whole) = open.take() {
                        give(whole)?;
                    }
                    open.insert(PackReads::new(pack)).add(from, to);
                }
            }
        }
        if let Some(whole) = open {
            give(whole)?;
        }
        Ok(totals)
    }
}

fn decode(key: &[u8], value: &[u8]) -> io::Result<(PackNumber, u64, u64)> {
    let read = || {
        let (pack, from) = key.split_first_chunk::<4>()?;
        let from = u64::from_be_bytes(from.try_into().ok()?);
        let to = u64::from_le_bytes(value.try_into().ok()?);
        (from < to).then_some((PackNumber(u32::from_be_bytes(*pack)), from, to))
    };
    read().ok_or_else(|| io::ErrorKind::InvalidData.into())
}
