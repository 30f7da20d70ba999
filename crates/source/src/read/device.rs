//! Small files on a device: neighbours on the device are read together, whatever directories they
//! are in.

use super::small::{SmallFile, SmallState};
use super::{SALVAGE_BYTES, SMALL_BYTES_MAX, problem};
use crate::image::{ContentMap, Extents, ImageInode, Span};
use bale_format::entry::{Entry, EntryFlags};
use bale_fsimage::MappedExtent;
use bale_pipeline::memory::MemoryPlan;
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use bytes::{Bytes, BytesMut};
use std::io;
use std::ops::Range;

/// One read of many small files, with the usual ceiling of memory.
const GROUP_BYTES_MAX: usize = 1 << 20;
/// Gap between two files that is read rather than skipped.
pub(super) const GROUP_GAP_BYTES_MAX: u64 = 64 << 10;

/// One read of many small files; with the least memory what one of them may have.
pub(super) const fn group_bytes(memory: &MemoryPlan) -> usize {
    memory.inode_share_from(SMALL_BYTES_MAX as usize, GROUP_BYTES_MAX)
}

/// Room for what is read of one small file.
pub(super) const REST_BUFFER_BYTES: usize = group_buffer_bytes(SMALL_BYTES_MAX as usize);

/// Room for a group with what alignment adds.
pub(super) const fn group_buffer_bytes(group_bytes: usize) -> usize {
    group_bytes + 2 * ALIGNMENT
}

/// A small file that is to be read from its device.
pub(super) struct DeviceJob {
    pub(super) inode: ImageInode,
    pub(super) entry: Entry,
    pub(super) extents: Extents,
    /// Its place in the order asked for.
    pub(super) place: u64,
    /// For its bytes; made when they are read if it has none.
    pub(super) room: BytesMut,
}

impl DeviceJob {
    /// Bytes on the device that a group must hold: those of the first extent.
    pub(super) fn span(&self) -> Span {
        self.extents
            .written
            .first()
            .map_or(Span { offset: 0, len: 0 }, span_of)
    }
}

fn span_of(extent: &MappedExtent) -> Span {
    Span {
        offset: extent.device_offset,
        len: u32::try_from(extent.len).unwrap_or(u32::MAX),
    }
}

/// A file before its first read: finished already (no data, or damaged), or a job.
pub(super) enum PreparedFile {
    /// Nothing needs to be read: it is empty, inside of its inode, or unreadable.
    Done(Box<SmallFile>),
    /// To be read.
    Job(Box<DeviceJob>),
}

/// Looks where a file lies.
pub(super) fn prepare(inode: &ImageInode, entry: Entry, place: u64) -> PreparedFile {
    let size = entry.size as usize;
    match inode.content(0) {
        Ok(ContentMap::Inline(mut bytes)) => {
            bytes.resize(size, 0);
            let bytes = Bytes::from(bytes);
            PreparedFile::Done(Box::new(finish(
                inode,
                entry,
                Extents::none(),
                bytes,
                Vec::new(),
                None,
            )))
        }
        Ok(ContentMap::Extents(extents)) if extents.written.is_empty() => {
            PreparedFile::Done(Box::new(finish(
                inode,
                entry,
                extents,
                Bytes::from(vec![0; size]),
                Vec::new(),
                None,
            )))
        }
        Ok(ContentMap::Extents(extents)) => PreparedFile::Job(Box::new(DeviceJob {
            inode: inode.clone(),
            entry,
            extents,
            place,
            room: BytesMut::new(),
        })),
        Ok(ContentMap::Encoded(_)) => {
            let mut file = SmallFile::new(entry);
            file.give_up(io::Error::other("it is not on the device as it is"));
            PreparedFile::Done(Box::new(file))
        }
        Err(error) => {
            let mut file = SmallFile::new(entry);
            file.give_up(error);
            PreparedFile::Done(Box::new(file))
        }
    }
}

/// A file whose bytes were read, and perhaps hashed, already.
pub(super) fn read_prepared(
    inode: &ImageInode,
    entry: Entry,
    (bytes, hash): (Bytes, Option<[u8; 16]>),
) -> SmallFile {
    let mut file = finish(inode, entry, Extents::none(), bytes, Vec::new(), None);
    file.hash = hash;
    file
}

/// Reads one small file from its device.
pub(super) fn read_alone(inode: &ImageInode, entry: Entry) -> SmallFile {
    match prepare(inode, entry, 0) {
        PreparedFile::Done(file) => *file,
        PreparedFile::Job(job) => {
            // As large as it must be: fresh memory costs more than reading a small file does.
            let aligned = |extent| span_of(extent).aligned_len();
            let len = job.extents.written.iter().map(aligned).max();
            let len = len.unwrap_or(0).min(group_buffer_bytes(GROUP_BYTES_MAX));
            read_job(*job, None, &mut AlignedBuffer::new(len))
        }
    }
}

/// Reads files that lie near each other, in the order of their first extents, into a buffer with
/// room for a group. Calls `done` for each; `rest` has room for a file.
pub(super) fn read_group(
    jobs: Vec<DeviceJob>,
    buffer: &mut AlignedBuffer,
    rest: &mut AlignedBuffer,
    mut done: impl FnMut(u64, SmallFile),
) {
    let start = jobs.first().map_or(0, |job| job.span().offset);
    let end = jobs.iter().map(|job| job.span().end()).max().unwrap_or(0);
    let read = match jobs.first() {
        Some(first) if end - start <= (buffer.len() - 2 * ALIGNMENT) as u64 => {
            let len = (end - start) as u32;
            first
                .inode
                .image
                .read_content(Span { offset: start, len }, buffer)
                .ok()
        }
        _ => None,
    };
    for job in jobs {
        let span = job.span();
        let place = job.place;
        let bytes = read.as_ref().map(|range| {
            let at = range.start + (span.offset - start) as usize;
            &buffer[at..at + span.len as usize]
        });
        done(place, read_job(job, bytes, rest));
    }
}

/// Puts a file together; `first` is its first extent, if that was read with its neighbours.
fn read_job(job: DeviceJob, first: Option<&[u8]>, buffer: &mut AlignedBuffer) -> SmallFile {
    let size = job.entry.size as usize;
    let mut bytes = job.room;
    bytes.resize(size, 0);
    let mut bad = Vec::new();
    let mut error = None;
    for (number, extent) in job.extents.written.iter().enumerate() {
        let at = (extent.file_offset as usize).min(size);
        let len = (extent.len as usize).min(size - at);
        let room = &mut bytes[at..at + len];
        match first.filter(|_| number == 0) {
            Some(read) => room.copy_from_slice(&read[..len]),
            None => {
                let failed = read_extent(
                    &job.inode,
                    extent.device_offset,
                    room,
                    buffer,
                    &mut |range| {
                        bad.push((at + range.start) as u64..(at + range.end) as u64);
                    },
                );
                error = error.or(failed);
            }
        }
    }
    finish(
        &job.inode,
        job.entry,
        job.extents,
        bytes.freeze(),
        bad,
        error,
    )
}

/// Fills `room`; unreadable ranges become zeros and a problem.
fn read_extent(
    inode: &ImageInode,
    offset: u64,
    room: &mut [u8],
    buffer: &mut AlignedBuffer,
    bad: &mut dyn FnMut(Range<usize>),
) -> Option<io::Error> {
    let len = room.len() as u32;
    if let Ok(range) = inode.image.read_content(Span { offset, len }, buffer) {
        room.copy_from_slice(&buffer[range]);
        return None;
    }
    let mut failed = None;
    let mut at = 0;
    for part in room.chunks_mut(SALVAGE_BYTES) {
        let span = Span {
            offset: offset + at as u64,
            len: part.len() as u32,
        };
        match inode.image.read_content(span, buffer) {
            Ok(range) => part.copy_from_slice(&buffer[range]),
            Err(error) => {
                failed = failed.or(Some(error));
                bad(at..at + part.len());
            }
        }
        at += part.len();
    }
    failed
}

fn finish(
    inode: &ImageInode,
    entry: Entry,
    extents: Extents,
    bytes: Bytes,
    bad: Vec<Range<u64>>,
    error: Option<io::Error>,
) -> SmallFile {
    let mut file = SmallFile::new(entry);
    file.state = SmallState::Read;
    file.problems.extend(inode.complete(&mut file.entry).err());
    if extents.sparse {
        file.holes = extents.gaps(file.entry.size);
    }
    if !file.holes.is_empty() {
        file.entry.flags.set(EntryFlags::SPARSE);
    }
    file.bytes = bytes;
    file.bad = join(bad);
    if let Some(error) = error {
        file.entry.flags.set(EntryFlags::INCOMPLETE);
        file.problems.push(problem(&file.entry, "read", error));
    }
    file
}

/// Puts ranges that touch together.
fn join(ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range),
        }
    }
    joined
}

/// The first bytes of a file, fewer if it is shorter.
pub fn read_first_bytes(inode: &ImageInode, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = match inode.content(0)? {
        ContentMap::Inline(bytes) => bytes,
        ContentMap::Encoded(_) => return Err(io::Error::other("it is not there as it is")),
        ContentMap::Extents(extents) => {
            let mut bytes = vec![0; len];
            let mut buffer = AlignedBuffer::new(group_buffer_bytes(GROUP_BYTES_MAX));
            for extent in &extents.written {
                let Some(at) = usize::try_from(extent.file_offset)
                    .ok()
                    .filter(|at| *at < len)
                else {
                    break;
                };
                let wanted = (extent.len as usize).min(len - at).min(GROUP_BYTES_MAX);
                let room = &mut bytes[at..at + wanted];
                if let Some(error) =
                    read_extent(inode, extent.device_offset, room, &mut buffer, &mut |_| {})
                {
                    return Err(error);
                }
            }
            bytes
        }
    };
    bytes.truncate(len);
    Ok(bytes)
}
