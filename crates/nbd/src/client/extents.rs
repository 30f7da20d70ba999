//! Extents of an export as a stream: what is allocated, what is dirty.
//!
//! One reply is in memory at a time, as far as it is kept. Replies about several contexts are
//! joined as they are taken, neighbours that are alike are one extent, and every reply takes the
//! stream forward: so it ends.

use super::NbdClient;
use super::handshake::Contexts;
use super::pending::Statuses;
use crate::error::{NbdAction, NbdError};
use crate::wire::reply::Descriptor;
use crate::wire::{DESCRIPTORS_KEPT_MAX, HeaderStyle, status_flags};
use std::ops::{Deref, Range};

/// Bytes of one request for extents: a length of 32 bits, and a multiple of the largest block.
const QUERY_BYTES: u64 = (1 << 32) - (64 << 10);

/// With lengths of 64 bits.
const EXTENDED_QUERY_BYTES: u64 = 1 << 50;

/// Contexts of which a reply speaks at most: what is allocated, and what is dirty.
const LISTS_MAX: usize = 2;

/// What a stream of extents takes at most: a reply, and the bytes in which the last of its lists
/// came.
pub const EXTENTS_BYTES: usize = (LISTS_MAX + 1) * DESCRIPTORS_KEPT_MAX * size_of::<Descriptor>();

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
    /// Bytes of the next request at most: what would not be kept need not be sent.
    query: u64,
    reply: Option<JoinedReply>,
    open: Option<NbdExtent>,
}

impl<C: Deref<Target = NbdClient>> NbdExtents<C> {
    pub(super) fn new(client: C, range: Range<u64>) -> NbdExtents<C> {
        let end = range.end.min(client.len());
        NbdExtents {
            client,
            left: range.start.min(end)..end,
            query: u64::MAX,
            reply: None,
            open: None,
        }
    }

    /// One reply more.
    fn request(&mut self) -> Result<JoinedReply, NbdError> {
        let contexts = self.client.negotiated.contexts;
        if contexts == Contexts::default() {
            // Nobody says anything: all of it is data.
            return Ok(JoinedReply::new(
                contexts,
                Statuses::default(),
                self.left.clone(),
            ));
        }
        let block = u64::from(self.client.negotiated.blocks.minimum);
        let query = match self.client.negotiated.style {
            HeaderStyle::Extended => EXTENDED_QUERY_BYTES,
            _ => QUERY_BYTES,
        };
        let query = query.min(self.query);
        let from = self.left.start - self.left.start % block;
        let until = self.left.end.min(from + query).next_multiple_of(block);
        let until = until.min(self.client.len());
        let statuses = self.client.block_status(from, until - from)?;
        let mut lists = statuses.found.iter();
        let is_cut = lists.any(|(_, list)| list.len() == DESCRIPTORS_KEPT_MAX);
        let reply = JoinedReply::new(contexts, statuses, from..until);
        let last = if is_cut { reply.end - from } else { query };
        self.query = last.saturating_mul(2);
        Ok(reply)
    }

    /// The next of the reply that is there, as far as it is requested.
    fn take(&mut self) -> Option<NbdExtent> {
        let reply = self.reply.as_mut()?;
        for extent in reply {
            let end = (extent.offset + extent.bytes).min(self.left.end);
            let start = extent.offset.max(self.left.start);
            if start < end {
                self.left.start = end;
                return Some(NbdExtent {
                    offset: start,
                    bytes: end - start,
                    ..extent
                });
            }
        }
        self.reply = None;
        None
    }
}

impl<C: Deref<Target = NbdClient>> Iterator for NbdExtents<C> {
    type Item = Result<NbdExtent, NbdError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some(extent) = self.take() {
                match &mut self.open {
                    Some(open) if open.is_like(&extent) => open.bytes += extent.bytes,
                    open => {
                        if let Some(done) = open.replace(extent) {
                            return Some(Ok(done));
                        }
                    }
                }
            }
            let offset = self.left.start;
            if self.left.is_empty() {
                return self.open.take().map(Ok);
            }
            match self.request() {
                Ok(reply) if reply.end > offset => self.reply = Some(reply),
                wrong => {
                    let bytes = self.left.end - offset;
                    self.left.start = self.left.end;
                    self.open = None;
                    return Some(Err(wrong.err().unwrap_or_else(|| {
                        // Less than a block of what was requested was not.
                        let why = "the server speaks of less than a block";
                        self.client
                            .impossible(NbdAction::ListExtents, offset, bytes, why)
                    })));
                }
            }
        }
    }
}

/// What a reply says of its range, extent by extent, as far as all contexts go.
struct JoinedReply {
    statuses: Statuses,
    allocation: Cursor,
    dirty: Cursor,
    offset: u64,
    end: u64,
}

impl JoinedReply {
    fn new(contexts: Contexts, statuses: Statuses, range: Range<u64>) -> JoinedReply {
        let list = |id: Option<u32>| {
            let found = statuses.found.iter();
            found.clone().position(|(of, _)| Some(*of) == id)
        };
        let (allocation, dirty) = (list(contexts.allocation), list(contexts.dirty));
        let said = [allocation, dirty].into_iter().flatten().map(|list| {
            let descriptors = statuses.found[list].1.iter();
            descriptors.map(|found| found.bytes).sum::<u64>()
        });
        let left = range.end - range.start;
        let end = range.start + said.fold(left, u64::min);
        JoinedReply {
            statuses,
            allocation: Cursor::new(allocation),
            dirty: Cursor::new(dirty),
            offset: range.start,
            end,
        }
    }
}

impl Iterator for JoinedReply {
    type Item = NbdExtent;

    fn next(&mut self) -> Option<NbdExtent> {
        let (offset, left) = (self.offset, self.end - self.offset);
        if left == 0 {
            return None;
        }
        let first = self.allocation.at(&self.statuses, left)?;
        let second = self.dirty.at(&self.statuses, left)?;
        let bytes = first.bytes.min(second.bytes).min(left);
        self.allocation.skip(&self.statuses, bytes);
        self.dirty.skip(&self.statuses, bytes);
        self.offset += bytes;
        Some(NbdExtent {
            offset,
            bytes,
            is_hole: first.flags & status_flags::HOLE != 0,
            is_zero: first.flags & status_flags::ZERO != 0,
            is_dirty: (self.dirty.list).map(|_| second.flags & status_flags::DIRTY != 0),
        })
    }
}

/// A place in the descriptors of one context; without a context all is one, without flags.
struct Cursor {
    list: Option<usize>,
    at: usize,
    taken: u64,
}

impl Cursor {
    fn new(list: Option<usize>) -> Cursor {
        let (at, taken) = (0, 0);
        Cursor { list, at, taken }
    }

    fn at(&self, statuses: &Statuses, left: u64) -> Option<Descriptor> {
        let Some(list) = self.list else {
            let (bytes, flags) = (left, 0);
            return Some(Descriptor { bytes, flags });
        };
        let found = statuses.found[list].1.get(self.at)?;
        Some(Descriptor {
            bytes: found.bytes - self.taken,
            flags: found.flags,
        })
    }

    fn skip(&mut self, statuses: &Statuses, bytes: u64) {
        let Some(list) = self.list else {
            return;
        };
        self.taken += bytes;
        if self.taken == statuses.found[list].1[self.at].bytes {
            (self.at, self.taken) = (self.at + 1, 0);
        }
    }
}
