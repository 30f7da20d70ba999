//! Extents of an export as a stream: what is allocated, what is dirty.
//!
//! One reply is in memory at a time. Replies about several contexts are joined, neighbours that are
//! alike are one extent, and every reply takes the stream forward, so it ends.

use super::NbdClient;
use super::handshake::Contexts;
use super::pending::Statuses;
use crate::error::NbdError;
use crate::wire::HeaderStyle;
use crate::wire::reply::Descriptor;
use crate::wire::status_flags;
use std::collections::VecDeque;
use std::ops::{Deref, Range};

/// Bytes of one request for extents: a length of 32 bits, and a multiple of the largest block.
const QUERY_BYTES: u64 = (1 << 32) - (64 << 10);

/// With lengths of 64 bits.
const EXTENDED_QUERY_BYTES: u64 = 1 << 50;

/// A stretch of an export of which all bytes are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdExtent {
    pub offset: u64,
    pub bytes: u64,
    /// Nothing is allocated there.
    pub is_hole: bool,
    /// It reads as zeroes.
    pub is_zero: bool,
    /// In the dirty bitmap; `None` if none was requested.
    pub is_dirty: Option<bool>,
}

impl NbdExtent {
    fn is_like(&self, other: &NbdExtent) -> bool {
        (self.is_hole, self.is_zero, self.is_dirty)
            == (other.is_hole, other.is_zero, other.is_dirty)
    }
}

/// Extents of a range, in order and without gaps, of a client lent or shared. After an error
/// there is nothing more.
pub struct NbdExtents<C> {
    client: C,
    /// What is not requested yet.
    left: Range<u64>,
    ready: VecDeque<NbdExtent>,
    open: Option<NbdExtent>,
}

impl<C: Deref<Target = NbdClient>> NbdExtents<C> {
    pub(super) fn new(client: C, range: Range<u64>) -> NbdExtents<C> {
        let end = range.end.min(client.len());
        NbdExtents {
            client,
            left: range.start.min(end)..end,
            ready: VecDeque::new(),
            open: None,
        }
    }

    /// One reply more.
    fn request(&mut self) -> Result<(), NbdError> {
        let contexts = self.client.negotiated.contexts;
        let offset = self.left.start;
        if contexts == Contexts::default() {
            // Nobody says anything: all of it is data.
            self.ready.push_back(NbdExtent {
                offset,
                bytes: self.left.end - offset,
                is_hole: false,
                is_zero: false,
                is_dirty: None,
            });
            self.left.start = self.left.end;
            return Ok(());
        }
        let block = u64::from(self.client.negotiated.blocks.minimum);
        let query = match self.client.negotiated.style {
            HeaderStyle::Extended => EXTENDED_QUERY_BYTES,
            _ => QUERY_BYTES,
        };
        let from = offset - offset % block;
        let until = self.left.end.next_multiple_of(block).min(self.client.len());
        let until = until.min(from + query);
        let statuses = self.client.block_status(from, until - from)?;
        let extents = joined(contexts, &statuses, from..until);
        for extent in extents {
            let end = (extent.offset + extent.bytes).min(self.left.end);
            let start = extent.offset.max(self.left.start);
            if start < end {
                self.left.start = end;
                self.ready.push_back(NbdExtent {
                    offset: start,
                    bytes: end - start,
                    ..extent
                });
            }
        }
        match self.left.start > offset {
            true => Ok(()),
            // Less than a block of what was requested was not.
            false => Err(self.client.impossible(
                crate::error::NbdAction::ListExtents,
                offset,
                self.left.end - offset,
                "the server speaks of less than a block",
            )),
        }
    }
}

impl<C: Deref<Target = NbdClient>> Iterator for NbdExtents<C> {
    type Item = Result<NbdExtent, NbdError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(extent) = self.ready.pop_front() {
                match &mut self.open {
                    Some(open) if open.is_like(&extent) => open.bytes += extent.bytes,
                    open => {
                        if let Some(done) = open.replace(extent) {
                            return Some(Ok(done));
                        }
                    }
                }
            }
            if self.left.is_empty() {
                return self.open.take().map(Ok);
            }
            if let Err(error) = self.request() {
                self.left.start = self.left.end;
                self.open = None;
                return Some(Err(error));
            }
        }
    }
}

/// As far as all contexts go.
fn joined(contexts: Contexts, statuses: &Statuses, range: Range<u64>) -> Vec<NbdExtent> {
    let of = |id: Option<u32>| {
        let found = id.and_then(|id| statuses.found.iter().find(|(of, _)| *of == id));
        found.map(|(_, extents)| extents.as_slice())
    };
    let (allocation, dirty) = (of(contexts.allocation), of(contexts.dirty));
    let mut allocation = Run::new(allocation);
    let mut dirty = Run::new(dirty);
    let mut extents = Vec::new();
    let mut offset = range.start;
    while offset < range.end {
        let left = range.end - offset;
        let (Some(first), Some(second)) = (allocation.at(left), dirty.at(left)) else {
            break;
        };
        let bytes = first.bytes.min(second.bytes).min(left);
        extents.push(NbdExtent {
            offset,
            bytes,
            is_hole: first.flags & status_flags::HOLE != 0,
            is_zero: first.flags & status_flags::ZERO != 0,
            is_dirty: (dirty.extents).map(|_| second.flags & status_flags::DIRTY != 0),
        });
        allocation.skip(bytes);
        dirty.skip(bytes);
        offset += bytes;
    }
    extents
}

/// Descriptors of one context, taken piece by piece; without a context all is one, without flags.
struct Run<'a> {
    extents: Option<&'a [Descriptor]>,
    at: usize,
    taken: u64,
}

impl<'a> Run<'a> {
    fn new(extents: Option<&'a [Descriptor]>) -> Run<'a> {
        let (at, taken) = (0, 0);
        Run { extents, at, taken }
    }

    fn at(&self, left: u64) -> Option<Descriptor> {
        let Some(extents) = self.extents else {
            let (bytes, flags) = (left, 0);
            return Some(Descriptor { bytes, flags });
        };
        let found = extents.get(self.at)?;
        Some(Descriptor {
            bytes: found.bytes - self.taken,
            flags: found.flags,
        })
    }

    fn skip(&mut self, bytes: u64) {
        let Some(extents) = self.extents else {
            return;
        };
        self.taken += bytes;
        if self.taken == extents[self.at].bytes {
            (self.at, self.taken) = (self.at + 1, 0);
        }
    }
}
