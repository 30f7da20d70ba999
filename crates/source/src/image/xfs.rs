//! XFS for the inode scan.

use super::device::DirectMetadata;
use super::volume::{
    DirectoryNames, FoundInode, FoundXattrs, InodeContent, InodeLog, InodeTables, TableSink,
    Volume, VolumeFacts,
};
use super::{Device, NamesPiece, OpenedAs, Span, TABLE_PIECE_BYTES, TablePiece};
use crate::scan::Atime;
use bale_fsimage::xfs::{
    DevicePiece, DirBlock, ForkKind, InodeChunk, LogPlace, LogState, Xfs, XfsError,
};
use bale_fsimage::{ByteSource, FileKind, Inode, Layout, MappedExtent};
use std::sync::Arc;

/// Gap between two inode chunks that is read rather than skipped. Chunks of 32 KiB lie between the
/// content of their files; reading twice as many bytes in half as many reads is as quick where a
/// device is quick, and twice as quick where a read costs milliseconds.
const GAP_BYTES_MAX: u64 = 128 << 10;
/// What reading a file changes in its inode: access time, checksum, log sequence number.
const ATIME: std::ops::Range<usize> = 32..40;
const TOUCHED_BESIDE_ATIME: [std::ops::Range<usize>; 2] = [100..104, 112..120];

pub(super) struct XfsVolume {
    xfs: Xfs,
    source: Arc<dyn ByteSource>,
    /// Not unmounted: its log is covered, by a freeze or by the kernel a while after the last
    /// change of metadata, when overwritten bytes may still be in memory.
    is_covered: bool,
}

pub(super) enum XfsRefusal {
    NotXfs,
    Because(String),
}

/// Opens a file system that was unmounted cleanly, or one that is mounted and was frozen for a
/// moment.
pub(super) fn open(device: Arc<Device>, state: OpenedAs) -> Result<XfsVolume, XfsRefusal> {
    let refuse = |error: XfsError| match error {
        XfsError::NotXfs => XfsRefusal::NotXfs,
        error => XfsRefusal::Because(bale_pipeline::error::with_causes(&error)),
    };
    let source: Arc<dyn ByteSource> = match state {
        OpenedAs::Still => device,
        OpenedAs::Mounted => Arc::new(DirectMetadata(device)),
    };
    let xfs = Xfs::open(source.as_ref()).map_err(refuse)?;
    let because = |text: &str| Err(XfsRefusal::Because(text.to_owned()));
    let mut is_covered = false;
    match state {
        OpenedAs::Mounted if xfs.no_checksums() => {
            return because(
                "an XFS of version 4 is read from its device only where nothing writes to it",
            );
        }
        OpenedAs::Mounted => {}
        OpenedAs::Still => match xfs.log_state(source.as_ref()).map_err(refuse)? {
            LogState::Clean => {}
            LogState::Covered => is_covered = true,
            LogState::Dirty => {
                return because("its log has to be replayed first: mount and unmount it once");
            }
            LogState::External => return because("its log is on another device"),
        },
    }
    Ok(XfsVolume {
        xfs,
        source,
        is_covered,
    })
}

/// Neighbouring chunks as one read.
struct TablePieces<'a, I: Iterator<Item = Result<InodeChunk, String>>> {
    chunks: std::iter::Peekable<I>,
    xfs: &'a Xfs,
}

impl<I: Iterator<Item = Result<InodeChunk, String>>> Iterator for TablePieces<'_, I> {
    type Item = Result<TablePiece, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let inode_bytes = self.xfs.superblock().inode_bytes;
        let (first, start, mut end) = loop {
            match self.chunks.next()? {
                Err(why) => return Some(Err(why)),
                Ok(chunk) => {
                    if let Some((start, len)) = chunk.device_range(inode_bytes) {
                        break (chunk, start, start + len as u64);
                    }
                }
            }
        };
        let part = |offset: u64, len: usize| {
            let at = (offset - start) as usize;
            at..at + len
        };
        let mut chunks = vec![first];
        let mut parts = vec![part(start, (end - start) as usize)];
        while let Some(Ok(next)) = self.chunks.peek() {
            match next.device_range(inode_bytes) {
                None => {}
                Some((offset, len)) => {
                    let near = offset >= end && offset - end <= GAP_BYTES_MAX;
                    if !near || offset + len as u64 - start > TABLE_PIECE_BYTES as u64 {
                        break;
                    }
                    end = offset + len as u64;
                    chunks.push(*next);
                    parts.push(part(offset, len));
                }
            }
            self.chunks.next();
        }
        Some(Ok(TablePiece {
            span: Span {
                offset: start,
                len: (end - start) as u32,
            },
            first_inode: first.first_inode,
            chunks,
            parts,
        }))
    }
}

impl XfsVolume {
    fn chunks_of_group(
        &self,
        ag: u32,
    ) -> Box<dyn Iterator<Item = Result<InodeChunk, String>> + '_> {
        match self.xfs.inode_chunks(self.source.as_ref(), ag) {
            Ok(chunks) => Box::new(
                chunks
                    .map(|chunk| chunk.map_err(|error| bale_pipeline::error::with_causes(&error))),
            ),
            Err(error) => Box::new(std::iter::once(Err(bale_pipeline::error::with_causes(
                &error,
            )))),
        }
    }

    fn directory(&self, inode: &bale_fsimage::xfs::DiskInode<'_>, sink: &mut dyn TableSink) {
        let number = inode.number;
        if inode.is_inline() {
            let read = self
                .xfs
                .read_dir(self.source.as_ref(), inode, &mut |entry| {
                    sink.name(number, entry.name, entry.inode);
                });
            if let Err(error) = read {
                sink.incomplete(number, bale_pipeline::error::with_causes(&error));
            }
            return;
        }
        match self.xfs.dir_blocks(self.source.as_ref(), inode) {
            Err(error) => sink.incomplete(number, bale_pipeline::error::with_causes(&error)),
            Ok(blocks) => blocks.for_each(|block| match block {
                Ok(block) => sink.names(names_piece(&block)),
                Err(error) => sink.incomplete(number, bale_pipeline::error::with_causes(&error)),
            }),
        }
    }
}

fn names_piece(block: &DirBlock) -> NamesPiece {
    let span = |piece: DevicePiece| Span {
        offset: piece.device_offset,
        len: piece.len_bytes,
    };
    NamesPiece {
        directory: block.directory,
        file_offset: block.file_offset,
        spans: block.pieces().map(span).collect(),
        context: [0; 8],
    }
}

fn dir_block(piece: &NamesPiece) -> Option<DirBlock> {
    let mut pieces = piece.spans.iter().map(|span| DevicePiece {
        device_offset: span.offset,
        len_bytes: span.len,
    });
    Some(DirBlock {
        directory: piece.directory,
        file_offset: piece.file_offset,
        first: pieces.next()?,
        others: pieces.collect(),
    })
}

impl Volume for XfsVolume {
    fn facts(&self) -> VolumeFacts {
        let superblock = self.xfs.superblock();
        VolumeFacts {
            kind: "xfs",
            uuid: superblock.uuid,
            inode_context: superblock.inode_context(),
            root: superblock.root_inode,
            number_bytes: 8,
            has_metadata_in_page_cache: false,
            is_replayed: false,
            was_never_mounted: false,
            was_in_use: self.is_covered,
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.source.read_exact_at(offset, bytes)
    }

    fn log(&self) -> Option<&dyn InodeLog> {
        Some(self)
    }
}

impl InodeTables for XfsVolume {
    fn inodes_expected(&self) -> u64 {
        let totals = self.xfs.inode_totals(self.source.as_ref());
        totals.map_or(0, |(count, free)| count.saturating_sub(free))
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = Result<TablePiece, String>> + Send + '_> {
        // One allocation group after the other: the list of all chunks would grow with the number
        // of files.
        let groups = 0..self.xfs.superblock().ag_count;
        Box::new(groups.flat_map(|ag| {
            let pieces = TablePieces {
                chunks: self.chunks_of_group(ag).peekable(),
                xfs: &self.xfs,
            };
            // A group has at most a few ten thousand pieces; collected, they may be sent between
            // threads.
            pieces.collect::<Vec<_>>()
        }))
    }

    fn parse(&self, piece: &TablePiece, bytes: &[u8], sink: &mut dyn TableSink) {
        let inode_bytes = self.xfs.superblock().inode_bytes;
        for chunk in &piece.chunks {
            let Some((offset, len)) = chunk.device_range(inode_bytes) else {
                continue;
            };
            let at = (offset - piece.span.offset) as usize;
            let bytes = bytes.get(at..at + len).unwrap_or_default();
            let first_slot = chunk.used.trailing_zeros();
            for (number, inode) in self.xfs.chunk_inodes(chunk, bytes) {
                match inode {
                    // A name is on its way out, or was never given.
                    Ok(inode) if inode.nlink == 0 => {}
                    Ok(inode) => {
                        let slot = (number - chunk.first_inode) as usize - first_slot as usize;
                        let at = slot * usize::from(inode_bytes);
                        let raw = bytes.get(at..at + usize::from(inode_bytes));
                        let found = FoundInode {
                            number,
                            nlink: inode.nlink,
                            kind: inode.kind,
                            size: inode.size,
                            ctime: inode.ctime,
                        };
                        sink.inode(found, raw.unwrap_or_default());
                        if inode.kind == FileKind::Directory {
                            self.directory(&inode, sink);
                        }
                    }
                    Err(error) => sink.damaged(number, bale_pipeline::error::with_causes(&error)),
                }
            }
        }
    }

    fn forget_reading(&self, raw: &mut [u8], atime: Atime) {
        let of_atime = (atime == Atime::LeftOut).then_some(ATIME);
        for range in TOUCHED_BESIDE_ATIME.into_iter().chain(of_atime) {
            if let Some(bytes) = raw.get_mut(range) {
                bytes.fill(0);
            }
        }
    }
}

impl InodeLog for XfsVolume {
    fn place(&self) -> Option<LogPlace> {
        let place = self.xfs.newest_log_record(self.source.as_ref());
        place.ok().flatten()
    }

    fn inodes_since(&self, place: LogPlace) -> Option<Vec<u64>> {
        let logged = self.xfs.inodes_logged_since(self.source.as_ref(), place);
        logged.ok().flatten()
    }
}

impl DirectoryNames for XfsVolume {
    fn parse(
        &self,
        piece: &NamesPiece,
        bytes: &[u8],
        name: &mut dyn FnMut(&[u8], u64),
    ) -> Vec<String> {
        let Some(block) = dir_block(piece) else {
            return vec!["no place".to_owned()];
        };
        let parsed = self.xfs.parse_dir_block(&block, bytes, &mut |entry| {
            name(entry.name, entry.inode);
        });
        parsed
            .err()
            .map(|error| bale_pipeline::error::with_causes(&error))
            .into_iter()
            .collect()
    }
}

impl InodeContent for XfsVolume {
    fn read_inode(&self, number: u64) -> Result<Vec<u8>, String> {
        let superblock = self.xfs.superblock();
        let offset = superblock.inode_offset(number);
        let offset = offset.ok_or_else(|| format!("there is no inode {number}"))?;
        let mut raw = vec![0; usize::from(superblock.inode_bytes)];
        let read = self.source.read_exact_at(offset, &mut raw);
        read.map_err(|error| error.to_string())?;
        let checked = self.xfs.parse_inode(number, &raw);
        checked.map_err(|error| bale_pipeline::error::with_causes(&error))?;
        Ok(raw)
    }

    fn decode(&self, number: u64, raw: &[u8]) -> Result<Inode, String> {
        let inode = self
            .xfs
            .parse_kept(number, raw)
            .map_err(|error| bale_pipeline::error::with_causes(&error))?;
        let mut plain = inode.to_inode();
        if inode.is_realtime() {
            plain.layout = Layout::Kernel("on the realtime device");
        }
        Ok(plain)
    }

    fn sectors(&self, number: u64, raw: &[u8]) -> u64 {
        let sectors = u64::from(self.xfs.superblock().block_bytes >> 9);
        let inode = self.xfs.parse_kept(number, raw);
        inode.map_or(0, |inode| inode.blocks.saturating_mul(sectors))
    }

    fn mapping_has_nodes(&self, number: u64, raw: &[u8]) -> bool {
        // Format of the data fork: 3 is a btree.
        let _ = number;
        raw.get(5).is_none_or(|format| *format == 3)
    }

    fn is_self_contained(&self, number: u64, raw: &[u8]) -> bool {
        let inode = self.xfs.parse_kept(number, raw);
        inode.is_ok_and(|inode| inode.xattrs_are_inline()) && !self.mapping_has_nodes(number, raw)
    }

    fn extents(
        &self,
        number: u64,
        raw: &[u8],
        extent: &mut dyn FnMut(MappedExtent) -> bool,
    ) -> Result<(), String> {
        let words = |error: XfsError| bale_pipeline::error::with_causes(&error);
        let inode = self.xfs.parse_kept(number, raw).map_err(words)?;
        let extents = self
            .xfs
            .extents(self.source.as_ref(), &inode, ForkKind::Data);
        for found in extents.map_err(words)? {
            let mut found = found.map_err(words)?;
            if found.file_offset >= inode.size {
                break;
            }
            found.len = found.len.min(inode.size - found.file_offset);
            if !extent(found) {
                break;
            }
        }
        Ok(())
    }

    fn target(&self, number: u64, raw: &[u8]) -> Result<Vec<u8>, String> {
        let words = |error: XfsError| bale_pipeline::error::with_causes(&error);
        let inode = self.xfs.parse_kept(number, raw).map_err(words)?;
        let mut target = Vec::new();
        let read = self
            .xfs
            .symlink_target(self.source.as_ref(), &inode, &mut target);
        read.map_err(words).map(|()| target)
    }

    fn xattrs(&self, number: u64, raw: &[u8]) -> Result<FoundXattrs, String> {
        let words = |error: XfsError| bale_pipeline::error::with_causes(&error);
        let inode = self.xfs.parse_kept(number, raw).map_err(words)?;
        let mut found = Vec::new();
        let read = self
            .xfs
            .xattrs(self.source.as_ref(), &inode, &mut |name, value| {
                found.push((name.to_vec(), value.to_vec()));
            });
        read.map_err(words)?;
        found.sort_unstable();
        Ok(FoundXattrs::all(found))
    }
}
