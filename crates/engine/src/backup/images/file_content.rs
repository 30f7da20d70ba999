//! Content of files in an image: where their bytes are in the chunks that its blocks are.
//!
//! Nothing is stored a second time but what is in no stored block as it is: content that is in
//! inodes or compressed by the file system, blocks that a journal has in another state than the
//! image, and blocks that the file system calls free and a file has all the same. Those are read
//! through the file system. Zeros that take room in the file system are parts of a chunk of zeros,
//! and no holes.

use super::block_map::{BlockContent, BlockMap};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_format::pieces::{Piece, PieceListBuilder};
use bale_format::{ChunkId, ChunkKind, Content, Entry, EntryFlags};
use bale_fsimage::allocated::DiskFileSystem;
use bale_pipeline::error::Failure;
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_source::image::{ContentMap, Extents, Image, ImageInode, Span};
use bale_sys::buffer::{ALIGNMENT, AlignedBuffer};
use std::io;
use std::ops::Range;

/// What became of the content of a file.
pub(super) enum Given {
    /// Its row says where it is. The text: what cannot be had, and why.
    Set(Option<String>),
    /// Its row says nothing yet: this is all of it, and it is in no block as it is.
    InInode(Vec<u8>),
}

/// Gives files of one file system their content.
pub(super) struct FileContents<'a> {
    store: &'a ChunkWriter,
    file_system: &'a DiskFileSystem,
    image: &'a Image,
    map: BlockMap,
    /// Room for a block, wherever it begins.
    buffer: AlignedBuffer,
    /// A block of them, once one is needed.
    zeros: Option<ChunkId>,
    /// Read through the file system.
    bytes_read: u64,
}

impl<'a> FileContents<'a> {
    pub(super) fn new(
        store: &'a ChunkWriter,
        file_system: &'a DiskFileSystem,
        image: &'a Image,
        map: BlockMap,
    ) -> FileContents<'a> {
        FileContents {
            store,
            file_system,
            image,
            map,
            buffer: AlignedBuffer::new(IMAGE_BLOCK_BYTES as usize + 2 * ALIGNMENT),
            zeros: None,
            bytes_read: 0,
        }
    }

    /// For the next file system of the same image; and what was read through this one.
    pub(super) fn into_map(self) -> (BlockMap, u64) {
        (self.map, self.bytes_read)
    }

    /// Sets content and hash of the row of a regular file, and flags for what cannot be had.
    /// `first`: where its content is, from its first byte on.
    pub(super) fn give(
        &mut self,
        inode: &ImageInode,
        first: io::Result<ContentMap>,
        entry: &mut Entry,
    ) -> Result<Given> {
        match first {
            Ok(ContentMap::Inline(mut bytes)) if bytes.len() as u64 >= entry.size => {
                bytes.truncate(entry.size as usize);
                Ok(Given::InInode(bytes))
            }
            first => Ok(Given::Set(self.set(inode, first, entry)?)),
        }
    }

    fn set(
        &mut self,
        inode: &ImageInode,
        first: io::Result<ContentMap>,
        entry: &mut Entry,
    ) -> Result<Option<String>> {
        let mut pieces = FilePieces::new(self.store);
        match self.pieces_of((inode, first), entry.size, &mut pieces)? {
            Ok(()) => {}
            Err(why) => {
                entry.flags.set(EntryFlags::UNREADABLE);
                return Ok(Some(why));
            }
        }
        if pieces.has_holes {
            entry.flags.set(EntryFlags::SPARSE);
        }
        let trouble = pieces.trouble.take();
        if trouble.is_some() {
            entry.flags.set(EntryFlags::INCOMPLETE);
        }
        (entry.content, entry.content_hash) = pieces.finish()?;
        Ok(trouble)
    }

    /// The inner error: nothing is known of the content.
    fn pieces_of(
        &mut self,
        (inode, first): (&ImageInode, io::Result<ContentMap>),
        size: u64,
        pieces: &mut FilePieces<'_>,
    ) -> Result<std::result::Result<(), String>> {
        let (mut at, mut first) = (0, Some(first));
        while at < size {
            let content = first.take().unwrap_or_else(|| inode.content(at));
            let extents = match content {
                Err(error) => return Ok(Err(error.to_string())),
                Ok(ContentMap::Inline(bytes)) => {
                    let inline = bytes.get(at as usize..).unwrap_or_default();
                    let inline = &inline[..inline.len().min((size - at) as usize)];
                    pieces.store_bytes(inline)?;
                    pieces.hole(size - at - inline.len() as u64)?;
                    return Ok(Ok(()));
                }
                Ok(ContentMap::Encoded(extents)) => {
                    self.encoded(inode, size, &extents, pieces)?;
                    return Ok(Ok(()));
                }
                Ok(ContentMap::Extents(extents)) => extents,
            };
            let end = extents.known_until.min(size);
            if end <= at {
                return Ok(Err("the list of its extents does not go on".to_owned()));
            }
            for extent in &extents.written {
                let behind = extent.file_offset.saturating_add(extent.len).min(end);
                let from = extent.file_offset.max(at);
                if from >= behind {
                    continue;
                }
                self.gap(extents.sparse, from - at, pieces)?;
                let start = extent.device_offset + (from - extent.file_offset);
                self.on_device(start..start + (behind - from), pieces)?;
                at = behind;
            }
            self.gap(extents.sparse, end - at, pieces)?;
            at = end;
        }
        Ok(Ok(()))
    }

    /// What is on the device in another form, block by block. Units of zeros are holes: in the file
    /// system they take no room either.
    fn encoded(
        &mut self,
        inode: &ImageInode,
        size: u64,
        extents: &Extents,
        pieces: &mut FilePieces<'_>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < size {
            let part = (size - at).min(IMAGE_BLOCK_BYTES);
            bytes.resize(part as usize, 0);
            match inode.read_encoded(at, &mut bytes) {
                Ok(()) => store_without_zeros(&bytes, pieces)?,
                Err(error) => pieces.unreadable(part, error.to_string())?,
            }
            at += part;
        }
        if !self.are_stored(extents)? {
            self.bytes_read += size;
        }
        Ok(())
    }

    /// Are all these in blocks that the image has?
    fn are_stored(&mut self, extents: &Extents) -> Result<bool> {
        let file_system = self.file_system;
        for extent in &extents.written {
            let range = extent.device_offset..extent.device_offset.saturating_add(extent.len);
            for run in file_system.on_disk(range) {
                let mut at = run.start;
                while at < run.end {
                    let (content, until) = self.content_at(at)?;
                    if content == BlockContent::Unknown {
                        return Ok(false);
                    }
                    at = until;
                }
            }
        }
        Ok(extents.known_until == u64::MAX)
    }

    /// What is at a byte of the image, and where that ends.
    fn content_at(&mut self, disk: u64) -> Result<(BlockContent, u64)> {
        self.map.get(disk).map_err(|error| {
            let failure = Failure::local("read what is known of blocks in", ".")(error);
            Error::Other(failure.to_string())
        })
    }

    /// What is not written: a hole, or zeros that take room.
    fn gap(&mut self, is_hole: bool, bytes: u64, pieces: &mut FilePieces<'_>) -> Result<()> {
        match is_hole {
            true => pieces.hole(bytes),
            false => self.zeros(bytes, pieces),
        }
    }

    fn zeros(&mut self, bytes: u64, pieces: &mut FilePieces<'_>) -> Result<()> {
        let chunk = match self.zeros {
            Some(chunk) => chunk,
            None => {
                let zeros = vec![0; IMAGE_BLOCK_BYTES as usize];
                *self.zeros.insert(self.store.store(ChunkKind::Data, zeros)?)
            }
        };
        let mut left = bytes;
        while left > 0 {
            let part = left.min(IMAGE_BLOCK_BYTES);
            pieces.part(chunk, 0, part)?;
            left -= part;
        }
        Ok(())
    }

    /// Bytes of the file system, block by block of the image.
    fn on_device(&mut self, range: Range<u64>, pieces: &mut FilePieces<'_>) -> Result<()> {
        let (mut at, file_system) = (range.start, self.file_system);
        for run in file_system.on_disk(range.clone()) {
            let mut disk = run.start;
            while disk < run.end {
                let block_end = (disk / IMAGE_BLOCK_BYTES + 1) * IMAGE_BLOCK_BYTES;
                let bytes = run.end.min(block_end) - disk;
                self.in_block(disk, at..at + bytes, pieces)?;
                disk += bytes;
                at += bytes;
            }
        }
        if at < range.end {
            let text = format!("byte {at} of the file system is behind its end");
            pieces.unreadable(range.end - at, text)?;
        }
        Ok(())
    }

    /// A run within one block of the image, and where in the file system it is.
    fn in_block(
        &mut self,
        disk: u64,
        inside: Range<u64>,
        pieces: &mut FilePieces<'_>,
    ) -> Result<()> {
        if self.image.differs_from_device(&inside) {
            return self.through_file_system(inside, pieces);
        }
        let mut at = inside.start;
        while at < inside.end {
            let byte = disk + (at - inside.start);
            let (content, until) = self.content_at(byte)?;
            let bytes = (until - byte).min(inside.end - at);
            match content {
                BlockContent::Zeros => self.zeros(bytes, pieces)?,
                BlockContent::Unknown => self.through_file_system(at..at + bytes, pieces)?,
                BlockContent::Stored(part) => {
                    if part.is_incomplete {
                        let first = part.start;
                        pieces.trouble(|| {
                            format!("a part of the block at byte {first} of the image was not read")
                        });
                    }
                    let offset = u64::from(part.offset) + (byte - part.start);
                    pieces.part(part.chunk, offset, bytes)?;
                }
            }
            at += bytes;
        }
        Ok(())
    }

    fn through_file_system(
        &mut self,
        inside: Range<u64>,
        pieces: &mut FilePieces<'_>,
    ) -> Result<()> {
        let span = Span {
            offset: inside.start,
            len: (inside.end - inside.start) as u32,
        };
        match self.image.read_content(span, &mut self.buffer) {
            Ok(place) => {
                self.bytes_read += u64::from(span.len);
                let bytes = &self.buffer[place];
                match bytes.iter().all(|byte| *byte == 0) {
                    true => self.zeros(u64::from(span.len), pieces),
                    false => pieces.store_bytes(bytes),
                }
            }
            Err(error) => {
                let text = format!("byte {} of the file system: {error}", inside.start);
                pieces.unreadable(u64::from(span.len), text)
            }
        }
    }
}

/// What file systems compress together and leave out if it is zeros.
const ENCODED_UNIT_BYTES: usize = 64 << 10;

fn store_without_zeros(bytes: &[u8], pieces: &mut FilePieces<'_>) -> Result<()> {
    let is_zeros = |unit: &&[u8]| unit.iter().all(|byte| *byte == 0);
    let units: Vec<&[u8]> = bytes.chunks(ENCODED_UNIT_BYTES).collect();
    let mut at = 0;
    for run in units.chunk_by(|one, next| is_zeros(one) == is_zeros(next)) {
        let len: usize = run.iter().map(|unit| unit.len()).sum();
        match is_zeros(&run[0]) {
            true => pieces.hole(len as u64)?,
            false => pieces.store_bytes(&bytes[at..at + len])?,
        }
        at += len;
    }
    Ok(())
}

/// The pieces of one file: a row that points into a chunk if it is one, a list otherwise.
struct FilePieces<'a> {
    store: &'a ChunkWriter,
    list: PieceListBuilder,
    /// In front of what was pushed to the list.
    pending: Option<Piece>,
    is_listed: bool,
    has_holes: bool,
    /// Why some of it could not be read.
    trouble: Option<String>,
}

impl<'a> FilePieces<'a> {
    fn new(store: &'a ChunkWriter) -> FilePieces<'a> {
        FilePieces {
            store,
            list: PieceListBuilder::new(),
            pending: None,
            is_listed: false,
            has_holes: false,
            trouble: None,
        }
    }

    fn hole(&mut self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.has_holes = true;
        self.push(Piece::Hole { bytes })
    }

    fn unreadable(&mut self, bytes: u64, text: String) -> Result<()> {
        self.trouble.get_or_insert(text);
        self.push(Piece::Unreadable { bytes })
    }

    fn trouble(&mut self, text: impl FnOnce() -> String) {
        self.trouble.get_or_insert_with(text);
    }

    fn part(&mut self, chunk: ChunkId, start: u64, bytes: u64) -> Result<()> {
        let start = u32::try_from(start)
            .map_err(|_| Error::Other("an extent begins behind the end of its chunk".to_owned()))?;
        self.push(Piece::Data {
            bytes,
            chunk,
            start: Some(start),
        })
    }

    fn store_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let chunk = self.store.store(ChunkKind::Data, bytes.to_vec())?;
        self.push(Piece::whole(bytes.len() as u64, chunk))
    }

    /// Those that go on where the last one ends are one.
    fn push(&mut self, piece: Piece) -> Result<()> {
        let Some(before) = self.pending.take() else {
            self.pending = Some(piece);
            return Ok(());
        };
        if let Some(joined) = joined(&before, &piece) {
            self.pending = Some(joined);
            return Ok(());
        }
        self.pending = Some(piece);
        self.list_piece(before)
    }

    fn list_piece(&mut self, piece: Piece) -> Result<()> {
        self.is_listed = true;
        let store = self.store;
        self.list
            .push(piece, &mut |plain: &[u8]| -> Result<ChunkId> {
                store.store(ChunkKind::Pieces, plain.to_vec())
            })
    }

    /// What a row has.
    fn finish(mut self) -> Result<(Content, Option<[u8; 16]>)> {
        let Some(last) = self.pending.take() else {
            return Ok((Content::None, None));
        };
        if let (false, Piece::Data { chunk, start, .. }) = (self.is_listed, last) {
            let offset = start.unwrap_or(0);
            return Ok((Content::Bundled { chunk, offset }, None));
        }
        self.list_piece(last)?;
        let store = self.store;
        let root = self.list.finish(&mut |plain: &[u8]| -> Result<ChunkId> {
            store.store(ChunkKind::Pieces, plain.to_vec())
        })?;
        let hash = store.keys().content_hash(&root.plain);
        Ok((Content::Pieces { list: root.list }, Some(hash)))
    }
}

/// Two parts of one chunk, one behind the other.
fn joined(before: &Piece, next: &Piece) -> Option<Piece> {
    let (
        Piece::Data {
            bytes,
            chunk,
            start: Some(start),
        },
        Piece::Data {
            bytes: more,
            chunk: same,
            start: Some(goes_on),
        },
    ) = (*before, *next)
    else {
        return None;
    };
    let is_next = chunk == same && u64::from(start) + bytes == u64::from(goes_on);
    is_next.then_some(Piece::Data {
        bytes: bytes + more,
        chunk,
        start: Some(start),
    })
}
