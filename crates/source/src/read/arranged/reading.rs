//! Reading a window: stretches of the device in the order in which they are needed, each in the
//! order of the device.

use super::scratch::{ArrangedScratch, Filler, lock};
use super::sizes::WindowSizes;
use super::{GroupHasher, MISSING_MAX};
use crate::image::{Image, Span};
use crate::read::device::GROUP_GAP_BYTES_MAX;
use bale_pipeline::ordered::in_order_by;
use bale_pipeline::spill::Sorted;
use bale_sys::buffer::AlignedBuffer;
use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Stretches of the device are this long: shorter ones would have a device with arms move too
/// often, longer ones hold much that is needed late.
const STRETCH_BYTES: u64 = 4 << 20;
/// Of a device that is used here and there, stretches of which nothing is needed take no memory, so
/// many together.
const STRETCHES_TOGETHER: usize = 64 << 10;
/// Files that need stretches of more than so many times what they take are scattered: to read few
/// of them sends the device from one to the next, where all of them are read in one go.
const SCATTERED: u64 = 4;
/// What a file takes of a device, as a rule, is a multiple of this.
const BLOCK_BYTES: u64 = 4 << 10;
/// With more buckets than this that have all their files and wait to be asked for, there is one
/// read at a time: several would take the device from whoever writes what was read.
const BUCKETS_AHEAD: usize = 4;
/// No bucket needs it.
const NOBODY: u16 = u16::MAX;

/// Bucket that needs a stretch first, and offset on the device.
const KEY_BYTES: usize = 10;

/// Which bucket needs a stretch first.
pub(super) struct Stretches {
    /// In parts, so that nothing is copied to become longer.
    first_buckets: Vec<Vec<u16>>,
    stretches_max: usize,
    bucket_bytes: u64,
    /// That anything is needed of.
    needed: u64,
    /// What the files take.
    taken_bytes: u64,
}

impl Stretches {
    pub(super) fn new(sizes: &WindowSizes) -> Stretches {
        Stretches {
            first_buckets: Vec::new(),
            stretches_max: sizes.stretches_max,
            bucket_bytes: sizes.bucket_bytes,
            needed: 0,
            taken_bytes: 0,
        }
    }

    /// Do the files lie here and there on the device, among others?
    pub(super) fn are_scattered(&self) -> bool {
        self.needed * STRETCH_BYTES > self.taken_bytes.saturating_mul(SCATTERED)
    }

    /// What is sorted of a file whose bytes go to `at` of the window; places ascend.
    pub(super) fn record(&mut self, span: Span, at: u64) -> ([u8; KEY_BYTES], [u8; 12]) {
        let last = self.stretches_max as u64 - 1;
        let stretch = (span.offset / STRETCH_BYTES).min(last) as usize;
        let (part, place) = (stretch / STRETCHES_TOGETHER, stretch % STRETCHES_TOGETHER);
        if self.first_buckets.len() <= part {
            self.first_buckets.resize(part + 1, Vec::new());
        }
        let part = &mut self.first_buckets[part];
        if part.is_empty() {
            *part = vec![NOBODY; STRETCHES_TOGETHER];
        }
        let first = &mut part[place];
        self.needed += u64::from(*first == NOBODY);
        let taken = u64::from(span.len).next_multiple_of(BLOCK_BYTES);
        self.taken_bytes = self.taken_bytes.saturating_add(taken);
        *first = (*first).min((at / self.bucket_bytes) as u16);
        let mut key = [0; KEY_BYTES];
        key[..2].copy_from_slice(&first.to_be_bytes());
        key[2..].copy_from_slice(&span.offset.to_be_bytes());
        let mut value = [0; 12];
        value[..4].copy_from_slice(&span.len.to_le_bytes());
        value[4..].copy_from_slice(&at.to_le_bytes());
        (key, value)
    }
}

/// A file and where it belongs.
struct PlacedFile {
    /// The bucket that needs its stretch first.
    first_bucket: u16,
    span: Span,
    at: u64,
}

/// Puts neighbours together.
struct NeighbourGroups {
    places: Sorted,
    group_bytes: u64,
    waiting: Option<PlacedFile>,
    failed: bool,
}

impl NeighbourGroups {
    fn next_placed(&mut self) -> Option<PlacedFile> {
        if let Some(placed) = self.waiting.take() {
            return Some(placed);
        }
        match self.places.next_record() {
            Ok(Some((key, value))) => Some(PlacedFile {
                first_bucket: u16::from_be_bytes(key[..2].try_into().expect("2 of 10 bytes")),
                span: Span {
                    offset: u64::from_be_bytes(key[2..].try_into().expect("8 of 10 bytes")),
                    len: u32::from_le_bytes(value[..4].try_into().expect("4 of 12 bytes")),
                },
                at: u64::from_le_bytes(value[4..].try_into().expect("8 of 12 bytes")),
            }),
            Ok(None) => None,
            Err(_) => {
                self.failed = true;
                None
            }
        }
    }
}

impl Iterator for NeighbourGroups {
    type Item = Vec<PlacedFile>;

    fn next(&mut self) -> Option<Vec<PlacedFile>> {
        let first = self.next_placed()?;
        let (start, mut end) = (first.span.offset, first.span.end());
        let mut group = vec![first];
        while let Some(next) = self.next_placed() {
            let near = start..=end + GROUP_GAP_BYTES_MAX;
            if !near.contains(&next.span.offset)
                || next.span.end().max(end) - start > self.group_bytes
            {
                self.waiting = Some(next);
                break;
            }
            end = end.max(next.span.end());
            group.push(next);
        }
        Some(group)
    }
}

/// How far the reading of a window is.
#[derive(Default)]
pub(super) struct Reading {
    state: Mutex<WindowReading>,
    changed: Condvar,
    /// Held while reading by those who have time.
    one_at_a_time: Mutex<()>,
}

#[derive(Default)]
struct WindowReading {
    /// Buckets before this one have all their files, but for the missing.
    complete: usize,
    /// The bucket that was asked for last.
    wanted: usize,
    missing: HashSet<u64>,
    /// Everything was read, or why not.
    ended: Option<Result<(), String>>,
    /// Nobody waits any more.
    is_unwanted: bool,
}

impl Reading {
    /// Reads all files into their buckets.
    pub(super) fn read_all(
        &self,
        image: &Image,
        places: Sorted,
        hasher: Option<&GroupHasher>,
        scratch: &ArrangedScratch,
    ) {
        // Also when a thread panics: nobody waits for ever.
        let _ends = End(self);
        let sizes = scratch.sizes();
        let mut groups = NeighbourGroups {
            places,
            group_bytes: sizes.group_bytes as u64,
            waiting: None,
            failed: false,
        };
        let buffer = || AlignedBuffer::new(sizes.read_buffer_bytes());
        let read = in_order_by(
            sizes.threads,
            &mut groups,
            || (buffer(), scratch.filler()),
            |(buffer, filler), group| {
                let read = |span, buffer: &mut AlignedBuffer| {
                    let _turn = self.turn();
                    image.read_content(span, buffer)
                };
                let missed = read_group(&group, read, hasher, buffer, filler);
                let first_bucket = group.first().map_or(0, |placed| placed.first_bucket);
                missed.map(|missed| (usize::from(first_bucket), missed))
            },
            |read: io::Result<(usize, Vec<u64>)>| -> io::Result<()> {
                let (first_bucket, missed) = read?;
                self.advance(first_bucket, missed)
            },
        );
        let read = match groups.failed {
            true => Err(io::Error::other("a temporary file cannot be read")),
            false => read,
        };
        let mut state = lock(&self.state);
        state.ended = Some(read.map_err(|error| error.to_string()));
    }

    /// Everything before the stretches that this bucket needs first has been read.
    fn advance(&self, first_bucket: usize, missed: Vec<u64>) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.missing.extend(missed);
        if state.is_unwanted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if state.missing.len() > MISSING_MAX {
            return Err(io::Error::other("much of the device cannot be read"));
        }
        if state.complete < first_bucket {
            state.complete = first_bucket;
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits until a bucket has all its files; tells which of them could not be read.
    pub(super) fn await_bucket(
        &self,
        number: usize,
        bucket_bytes: u64,
    ) -> io::Result<HashSet<u64>> {
        let mut state = lock(&self.state);
        state.wanted = number;
        while state.complete <= number && state.ended.is_none() && !state.is_unwanted {
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        match &state.ended {
            _ if state.complete > number => {}
            Some(Ok(())) => {}
            Some(Err(why)) => return Err(io::Error::other(why.clone())),
            None => return Err(io::ErrorKind::Interrupted.into()),
        }
        let is_of_bucket = |at: &u64| at / bucket_bytes == number as u64;
        Ok(state.missing.extract_if(|at| is_of_bucket(at)).collect())
    }

    /// Waits for the reads before, unless somebody waits for what is being read.
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        let is_ahead = {
            let state = lock(&self.state);
            state.complete > state.wanted + BUCKETS_AHEAD
        };
        is_ahead.then(|| lock(&self.one_at_a_time))
    }

    /// Nobody waits any more: what is under way is the last.
    pub(super) fn stop(&self) {
        lock(&self.state).is_unwanted = true;
        self.changed.notify_all();
    }
}

/// Wakes whoever waits when reading has ended in any way.
struct End<'a>(&'a Reading);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        let unknown = || Err("a thread that reads the device panicked".to_owned());
        state.ended.get_or_insert_with(unknown);
        self.0.changed.notify_all();
    }
}

/// Returns the places that are missing.
fn read_group(
    group: &[PlacedFile],
    read: impl Fn(Span, &mut AlignedBuffer) -> io::Result<Range<usize>>,
    hasher: Option<&GroupHasher>,
    buffer: &mut AlignedBuffer,
    filler: &mut Filler,
) -> io::Result<Vec<u64>> {
    let start = group.first().map_or(0, |placed| placed.span.offset);
    let end = group.iter().map(|placed| placed.span.end()).max();
    let span = Span {
        offset: start,
        len: (end.unwrap_or(start) - start) as u32,
    };
    let Ok(range) = read(span, buffer) else {
        // Each is read on its own later, around what is bad.
        return Ok(group.iter().map(|placed| placed.at).collect());
    };
    let content_of = |placed: &PlacedFile| {
        let at = range.start + (placed.span.offset - start) as usize;
        &buffer[at..at + placed.span.len as usize]
    };
    let contents: Vec<&[u8]> = group.iter().map(content_of).collect();
    let mut hashes = Vec::new();
    match hasher {
        Some(hasher) => hasher(&contents, &mut hashes),
        None => hashes.resize(contents.len(), [0; 32]),
    }
    for ((placed, content), hash) in group.iter().zip(contents).zip(&hashes) {
        let hash = hash.first_chunk().expect("a hash is longer than its part");
        filler.add(placed.at, hash, content)?;
    }
    Ok(Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: WindowSizes = WindowSizes::USUAL;
    const BUCKET_BYTES: u64 = SIZES.bucket_bytes;

    fn span(offset: u64) -> Span {
        Span { offset, len: 100 }
    }

    #[test]
    fn a_stretch_comes_with_the_first_bucket_that_needs_it() {
        let mut stretches = Stretches::new(&SIZES);
        let mut keys: Vec<[u8; KEY_BYTES]> = Vec::new();
        // The first bucket needs the third stretch, the second bucket the first stretch and once
        // more the third.
        for (offset, at) in [
            (2 * STRETCH_BYTES + 500, 0),
            (70, BUCKET_BYTES),
            (2 * STRETCH_BYTES + 20, BUCKET_BYTES + 200),
            (u64::MAX, 2 * BUCKET_BYTES),
        ] {
            keys.push(stretches.record(span(offset), at).0);
        }
        let [first, second, again, behind_all] = keys[..] else {
            panic!("four files");
        };
        assert!(again < first, "within a stretch in the order of the device");
        assert!(first < second && second < behind_all);
        assert_eq!(again[..2], [0, 0]);
    }

    #[test]
    fn a_bucket_waits_for_its_stretches_and_knows_what_is_missing() {
        let reading = Reading::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| reading.await_bucket(1, BUCKET_BYTES));
            reading.advance(1, vec![7, BUCKET_BYTES + 7]).unwrap();
            assert_eq!(
                reading.await_bucket(0, BUCKET_BYTES).unwrap(),
                HashSet::from([7])
            );
            reading.advance(2, Vec::new()).unwrap();
            let missing = waiting.join().unwrap().unwrap();
            assert_eq!(missing, HashSet::from([BUCKET_BYTES + 7]));
        });
    }

    #[test]
    fn whoever_is_far_ahead_reads_alone() {
        let reading = Reading::default();
        reading.advance(BUCKETS_AHEAD, Vec::new()).unwrap();
        assert!(reading.turn().is_none() && reading.turn().is_none());
        reading.advance(BUCKETS_AHEAD + 1, Vec::new()).unwrap();
        let turn = reading.turn();
        assert!(turn.is_some() && reading.one_at_a_time.try_lock().is_err());
        reading.await_bucket(1, BUCKET_BYTES).unwrap();
        assert!(reading.turn().is_none(), "somebody is behind no longer");
    }

    #[test]
    fn whoever_waits_is_told_when_nothing_comes_any_more() {
        let reading = Reading::default();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| reading.await_bucket(3, BUCKET_BYTES));
            drop(End(&reading));
            assert!(waiting.join().unwrap().is_err());
        });
        let stopped = Reading::default();
        stopped.stop();
        assert!(stopped.await_bucket(0, BUCKET_BYTES).is_err());
        assert!(stopped.advance(1, Vec::new()).is_err());
    }

    #[test]
    fn too_many_missing_end_the_reading() {
        let reading = Reading::default();
        let missed = (0..=MISSING_MAX as u64).collect();
        assert!(reading.advance(1, missed).is_err());
    }
}
