//! Members of a pax archive.

use super::DumpError;
use super::image_bytes;
use super::members::{Members, Sink};
use super::tar::{self, BLOCK_BYTES, Member, RECORD_BYTES};
use crate::xattrs;
use bale_format::{ChunkId, Entry};
use bytes::Bytes;

/// Counts what is written: an archive ends at a whole record.
#[derive(Default)]
pub struct TarMembers {
    written: u64,
}

impl Members for TarMembers {
    fn link(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        first: &[u8],
    ) -> Result<bool, DumpError> {
        self.head(sink, entry, name, Some(first), (0, None))?;
        Ok(true)
    }

    fn without_content(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
    ) -> Result<(), DumpError> {
        self.head(sink, entry, name, None, (0, None))
    }

    fn small(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        bytes: &Bytes,
    ) -> Result<(), DumpError> {
        self.head(sink, entry, name, None, (entry.size, None))?;
        sink.contents.put(bytes, sink.out)?;
        self.fill(sink, entry.size)
    }

    fn large(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        name: &[u8],
        list: &ChunkId,
    ) -> Result<(), DumpError> {
        let path = entry.path();
        let ranges = match entry.flags.has(bale_format::EntryFlags::SPARSE) {
            true => sink.contents.ranges(list, entry.size),
            false => None,
        };
        let data = match &ranges {
            Some(ranges) => ranges.iter().map(|range| range.1).sum(),
            None => entry.size,
        };
        if sink.contents.is_endless(data, &path) {
            return Ok(());
        }
        let Some(ranges) = ranges else {
            self.head(sink, entry, name, None, (entry.size, None))?;
            let whole = [(0, entry.size)];
            sink.contents
                .write_ranges(list, entry.size, &whole, &path, sink.out)?;
            return self.fill(sink, entry.size);
        };
        let map = tar::sparse_map(&ranges, entry.size);
        let size = map.len() as u64 + data;
        self.head(sink, entry, name, None, (size, Some(entry.size)))?;
        sink.write(&map)?;
        sink.contents
            .write_ranges(list, entry.size, &ranges, &path, sink.out)?;
        self.fill(sink, size)
    }

    /// As a file with holes, if there are not too many.
    fn image(&mut self, sink: &mut Sink, entry: &Entry, name: &[u8]) -> Result<(), DumpError> {
        let path = entry.path();
        let ranges = image_bytes::ranges(sink.catalog, &path, entry.size)?;
        let data = match &ranges {
            Some(ranges) => ranges.iter().map(|range| range.1).sum(),
            None => entry.size,
        };
        if sink.contents.is_endless(data, &path) {
            return Ok(());
        }
        let (map, sparse) = match &ranges {
            Some(ranges) => (tar::sparse_map(ranges, entry.size), Some(entry.size)),
            None => (Vec::new(), None),
        };
        let size = map.len() as u64 + data;
        self.head(sink, entry, name, None, (size, sparse))?;
        sink.write(&map)?;
        let wanted = ranges.unwrap_or_else(|| vec![(0, entry.size)]);
        (sink.contents).write_image_ranges(sink.catalog, entry, &path, &wanted, sink.out)?;
        self.fill(sink, size)
    }

    fn end(&mut self, sink: &mut Sink) -> Result<(), DumpError> {
        let size = self.written + 2 * BLOCK_BYTES as u64;
        let zeros = size.next_multiple_of(RECORD_BYTES) - self.written;
        self.written += zeros;
        sink.write(&vec![0; zeros as usize])
    }
}

impl TarMembers {
    /// Bytes that follow, and of a file with holes its length.
    fn head(
        &mut self,
        sink: &mut Sink,
        entry: &Entry,
        path: &[u8],
        link: Option<&[u8]>,
        (size, sparse): (u64, Option<u64>),
    ) -> Result<(), DumpError> {
        let set = match xattrs::of_column(&entry.xattrs, sink.contents.chunks) {
            Ok(set) => set,
            Err(text) => {
                let text = format!("extended attributes: {text}");
                sink.contents.problem(&entry.path(), &text);
                Vec::new()
            }
        };
        let headers = tar::headers(&Member {
            entry,
            path,
            link,
            size,
            sparse,
            xattrs: &set,
        });
        self.written += headers.len() as u64;
        sink.count_member();
        sink.write(&headers)
    }

    /// Fills the content up to the next block.
    fn fill(&mut self, sink: &mut Sink, size: u64) -> Result<(), DumpError> {
        let rest = size.next_multiple_of(BLOCK_BYTES as u64) - size;
        self.written += size + rest;
        sink.write(&[0; BLOCK_BYTES][..rest as usize])
    }
}
