//! Reading an export of an NBD server.
//!
//! What the server says to be zeros is not read. A place that its device cannot give is looked at
//! in halves until it is known how much of it is lost; a connection that is lost ends all.

use super::block_ranges::BlockRanges;
use super::device::DeviceRead;
use super::{Changes, DeviceRanges};
use crate::read::SALVAGE_BYTES;
use bale_nbd::{
    EXTENTS_BYTES, NbdClient, NbdClientOptions, NbdError, NbdExtents, NbdReading, NbdUri,
};
use bale_pipeline::error::with_causes;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections to a server that allows several.
const CONNECTIONS: usize = 4;

/// Bytes of one request: of a block, all are in flight at once.
const PART_BYTES: u64 = 256 << 10;

/// Buffers of requests that are kept to be used again: those of four blocks.
const SPARE_PARTS_MAX: usize = 16;

/// What extents of an export take at most: of what holds data, and for each thread of what changed
/// in its block.
pub const fn extents_memory_bytes(threads: usize) -> usize {
    (threads + 1) * EXTENTS_BYTES
}

/// Further requests for what could not be read, of one export; then a part of which a byte is lost
/// is lost whole. Enough for 10,000 places, and a disk that is gone ends in hours, not days.
const SALVAGE_REQUESTS_MAX: usize = 1 << 17;

/// An export that is open, and buffers for its parts.
pub(super) struct ExportReader {
    client: Arc<NbdClient>,
    salvages_left: AtomicUsize,
    give_back: Sender<Vec<u8>>,
    spare: Receiver<Vec<u8>>,
}

impl ExportReader {
    pub(super) fn connect(uri: &NbdUri) -> io::Result<ExportReader> {
        ExportReader::connect_to(uri, true)
    }

    /// The same of one of which it may not be requested what is allocated: all of it may hold data.
    pub(super) fn connect_to_changes(uri: &NbdUri) -> io::Result<ExportReader> {
        ExportReader::connect_to(uri, false)
    }

    fn connect_to(uri: &NbdUri, wants_allocation: bool) -> io::Result<ExportReader> {
        let options = NbdClientOptions {
            connections: CONNECTIONS,
            wants_allocation,
            dirty_bitmap: uri.bitmap.clone(),
            ..NbdClientOptions::default()
        };
        let client = NbdClient::connect(uri, &options).map_err(io_error)?;
        let (give_back, spare) = bounded(SPARE_PARTS_MAX);
        Ok(ExportReader {
            client: Arc::new(client),
            salvages_left: AtomicUsize::new(SALVAGE_REQUESTS_MAX),
            give_back,
            spare,
        })
    }

    pub(super) fn len_bytes(&self) -> u64 {
        self.client.len()
    }

    /// What the bitmap says changed, by blocks. A server that says no is one that does not know;
    /// one that breaks the protocol, or goes, is an error.
    pub(super) fn changes(&self) -> io::Result<Changes> {
        let mut ranges = BlockRanges::default();
        for extent in self.client.extents(0..self.client.len()) {
            match extent {
                Ok(extent) if extent.is_dirty == Some(false) => {}
                Ok(extent) => ranges.push(extent.offset..extent.offset + extent.bytes),
                Err(error) if error.is_of_server() => {
                    return Ok(Changes::Everything(with_causes(&error)));
                }
                Err(error) => return Err(io_error(error)),
            }
        }
        Ok(Changes::Ranges(ranges.finish()))
    }

    /// The bytes of a range that the bitmap says changed, sorted and apart.
    pub(super) fn changes_in(&self, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
        let mut changed: Vec<Range<u64>> = Vec::new();
        for extent in self.client.extents(range) {
            let extent = extent.map_err(io_error)?;
            let end = extent.offset + extent.bytes;
            match changed.last_mut() {
                _ if extent.is_dirty == Some(false) => {}
                Some(last) if last.end == extent.offset => last.end = end,
                _ => changed.push(extent.offset..end),
            }
        }
        Ok(changed)
    }

    /// What the server does not say to be zeros.
    pub(super) fn data_ranges(&self) -> DeviceRanges {
        Box::new(ExportData {
            extents: NbdClient::into_extents(self.client.clone()),
            at: 0,
            end: self.client.len(),
        })
    }

    /// Reads `wanted` bytes, or up to the end.
    pub(super) fn read_into(
        &self,
        start: u64,
        buffer: &mut [u8],
        wanted: usize,
    ) -> io::Result<DeviceRead> {
        let end = (start + wanted as u64).min(self.len_bytes()).max(start);
        let mut read = DeviceRead {
            len: (end - start) as usize,
            ..DeviceRead::default()
        };
        for (at, reading) in self.start(start..end).map_err(io_error)? {
            let from = (at - start) as usize;
            let target = from..(from + self.part_bytes() as usize).min(read.len);
            let target = &mut buffer[target];
            match reading.wait() {
                Ok(part) => {
                    target.copy_from_slice(&part);
                    let _dropped_if_there_are_enough = self.give_back.try_send(part);
                }
                Err(error) if error.is_of_device() => {
                    self.salvage((at, from), target, &mut read.bad)
                        .map_err(io_error)?;
                    read.error.get_or_insert_with(|| io_error(error));
                }
                Err(error) => return Err(io_error(error)),
            }
        }
        Ok(read)
    }

    /// Fills all of the buffer, wherever it begins.
    pub(super) fn read_exact_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.len_bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.client.read_at(offset, buffer).map_err(io_error)
    }

    /// Requests in the blocks that the server wants.
    fn part_bytes(&self) -> u64 {
        let block = u64::from(self.client.block_sizes().minimum);
        let part = PART_BYTES.min(self.client.request_bytes_max().into());
        (part - part % block).max(block)
    }

    /// Begins to read a range, all of it at once.
    fn start(&self, range: Range<u64>) -> Result<Vec<(u64, NbdReading)>, NbdError> {
        let mut flights = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let end = (at + self.part_bytes()).min(range.end);
            let mut part = self.spare.try_recv().unwrap_or_default();
            part.resize((end - at) as usize, 0);
            flights.push((at, self.client.start_read(at, part)?));
            at = end;
        }
        Ok(flights)
    }

    /// Reads what can be read of a part that could not be read whole.
    fn salvage(
        &self,
        (offset, from): (u64, usize),
        part: &mut [u8],
        bad: &mut Vec<Range<usize>>,
    ) -> Result<(), NbdError> {
        let step = SALVAGE_BYTES.max(self.client.block_sizes().minimum as usize);
        let left = &self.salvages_left;
        let take_two = |left: usize| left.checked_sub(2);
        let may_go_on = left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take_two)
            .is_ok();
        if part.len() <= step || !may_go_on {
            part.fill(0);
            let range = from..from + part.len();
            match bad.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => bad.push(range),
            }
            return Ok(());
        }
        let half = (part.len() / 2).next_multiple_of(step);
        let (first, second) = part.split_at_mut(half);
        for (part, at) in [(first, 0), (second, half)] {
            let place = (offset + at as u64, from + at);
            match self.client.read_at(place.0, part) {
                Err(error) if error.is_of_device() => self.salvage(place, part, bad)?,
                read => read?,
            }
        }
        Ok(())
    }
}

/// What the server does not say to be zeros.
struct ExportData {
    extents: NbdExtents<Arc<NbdClient>>,
    at: u64,
    end: u64,
}

impl Iterator for ExportData {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        loop {
            let range = match self.extents.next() {
                None => return None,
                Some(Ok(extent)) => {
                    self.at = extent.offset + extent.bytes;
                    // A hole that does not read as zeros holds what nobody can foretell.
                    if extent.is_zero {
                        continue;
                    }
                    extent.offset..self.at
                }
                // What is not known to be zeros is read; a connection that is lost shows there.
                Some(Err(_)) => {
                    let from = std::mem::replace(&mut self.at, self.end);
                    from..self.end
                }
            };
            if !range.is_empty() {
                return Some(range);
            }
        }
    }
}

fn io_error(error: NbdError) -> io::Error {
    io::Error::other(with_causes(&error))
}
