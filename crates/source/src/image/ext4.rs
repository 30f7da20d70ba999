//! ext4, ext3 and ext2 for the inode scan.

use super::device::DirectMetadata;
use super::volume::{
    DirectoryNames, FoundInode, FoundXattrs, InodeContent, InodeTables, TableSink, Volume,
    VolumeFacts,
};
use super::{Device, NAMES_PIECE_BYTES, NamesPiece, OpenedAs, Span, TABLE_PIECE_BYTES, TablePiece};
use crate::scan::Atime;
use bale_fsimage::ext4::{DirContext, Ext4, InodeResult, Mapping, ROOT_INODE_NUMBER, RawInode};
use bale_fsimage::{FileKind, Inode, Layout, MappedExtent};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Access time and its extra bits, and the two halves of the checksum.
const ATIME: [std::ops::Range<usize>; 2] = [8..12, 140..144];
const CHECKSUM: [std::ops::Range<usize>; 2] = [124..126, 130..132];

/// Of the state of a file system. With a journal it stays set, and the journal tells.
const CLEANLY_UNMOUNTED: u16 = 1;

pub(super) struct Ext4Volume {
    fs: Ext4,
    replayed: bool,
}

/// Opens; the error says why not.
pub(super) fn open(device: Arc<Device>, state: OpenedAs) -> Result<Ext4Volume, String> {
    let words = |error: bale_fsimage::ext4::Ext4Error| bale_pipeline::error::with_causes(&error);
    let fs = Ext4::open(device.clone()).map_err(words)?;
    if state == OpenedAs::Still {
        check_multi_mount(&device, &fs)?;
    }
    if state == OpenedAs::Mounted || !fs.needs_recovery().map_err(words)? {
        return Ok(Ext4Volume {
            fs,
            replayed: false,
        });
    }
    Ok(Ext4Volume {
        fs: Ext4::open_replayed(device).map_err(words)?,
        replayed: true,
    })
}

/// Another machine that shares the device may have it mounted, of which this one knows nothing.
fn check_multi_mount(device: &Arc<Device>, fs: &Ext4) -> Result<(), String> {
    let user = fs
        .superblock()
        .user_elsewhere(&DirectMetadata(device.clone()));
    match user.map_err(|error| format!("read who has it mounted: {error}"))? {
        Some(user) => Err(format!("it {user}")),
        None => Ok(()),
    }
}

impl Ext4Volume {
    fn directory(&self, inode: &Inode, raw: &RawInode<'_>, sink: &mut dyn TableSink) {
        let number = inode.number;
        match &inode.layout {
            Layout::Kernel(why) => sink.incomplete(number, (*why).to_owned()),
            Layout::Inline(content) => {
                let parsed = self.fs.parse_inline_dir(content, &mut |entry| {
                    sink.name(number, entry.name, entry.inode);
                });
                if let Err(damage) = parsed {
                    sink.incomplete(number, damage.to_string());
                }
            }
            _ => self.names_pieces(number, raw, sink),
        }
    }

    fn names_pieces(&self, directory: u64, raw: &RawInode<'_>, sink: &mut dyn TableSink) {
        let context = self.fs.dir_context(raw).to_bytes();
        let walked = self.fs.dir_extents(raw, &mut |part| match part {
            Ok(extent) => {
                let step = u64::from(NAMES_PIECE_BYTES);
                for at in (0..extent.len).step_by(step as usize) {
                    let span = Span {
                        offset: extent.device_offset + at,
                        len: step.min(extent.len - at) as u32,
                    };
                    sink.names(NamesPiece {
                        directory,
                        file_offset: extent.file_offset + at,
                        spans: vec![span],
                        context,
                    });
                }
            }
            Err(problem) => sink.incomplete(directory, problem.damage.to_string()),
        });
        if let Err(error) = walked {
            sink.incomplete(directory, bale_pipeline::error::with_causes(&error));
        }
    }

    fn raw<'a>(number: u64, raw: &'a [u8]) -> Result<RawInode<'a>, String> {
        RawInode::new(number, raw).ok_or_else(|| "cut short".to_owned())
    }
}

impl Volume for Ext4Volume {
    fn facts(&self) -> VolumeFacts {
        let superblock = self.fs.superblock();
        VolumeFacts {
            kind: "ext4",
            uuid: superblock.uuid,
            inode_context: superblock.inode_context(),
            root: ROOT_INODE_NUMBER,
            number_bytes: 4,
            has_metadata_in_page_cache: true,
            is_replayed: self.replayed,
            was_never_mounted: superblock.mount_time == 0,
            // Without a journal it says so itself.
            was_in_use: self.replayed || superblock.state & CLEANLY_UNMOUNTED == 0,
        }
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> std::io::Result<()> {
        self.fs.source().read_exact_at(offset, bytes)
    }

    fn differs_from_device(&self, range: &std::ops::Range<u64>) -> bool {
        self.fs.is_replaced(range)
    }
}

impl InodeTables for Ext4Volume {
    fn inodes_expected(&self) -> u64 {
        self.fs.totals().inodes_used
    }

    fn pieces(&self) -> Box<dyn Iterator<Item = Result<TablePiece, String>> + Send + '_> {
        let lost = self.fs.group_problems().iter().map(|problem| {
            Err(format!(
                "{} inodes from number {} on: {}",
                problem.inodes_count, problem.first_inode, problem.damage
            ))
        });
        let ranges = self.fs.itable_ranges().into_iter();
        let pieces = ranges.flat_map(|range| range.pieces(TABLE_PIECE_BYTES as u64));
        Box::new(lost.chain(pieces.map(|range| {
            Ok(TablePiece {
                span: Span {
                    offset: range.device_offset,
                    len: range.len_bytes() as u32,
                },
                first_inode: range.first_inode,
                chunks: Vec::new(),
                parts: Vec::new(),
            })
        })))
    }

    fn parse(&self, piece: &TablePiece, bytes: &[u8], sink: &mut dyn TableSink) {
        self.fs
            .parse_inodes(piece.first_inode, bytes, &mut |result| match result {
                InodeResult::Used(inode, raw) => {
                    let Some(found) = FoundInode::new(&inode) else {
                        return sink.damaged(inode.number, "unknown file type".to_owned());
                    };
                    sink.inode(found, raw.bytes());
                    if found.kind == FileKind::Directory {
                        self.directory(&inode, &raw, sink);
                    }
                }
                InodeResult::Damaged(raw, damage) => {
                    sink.damaged(raw.number(), damage.to_string());
                }
            });
    }

    fn forget_reading(&self, raw: &mut [u8], atime: Atime) {
        let of_atime = (atime == Atime::LeftOut).then_some(ATIME);
        for range in CHECKSUM.into_iter().chain(of_atime.into_iter().flatten()) {
            if let Some(bytes) = raw.get_mut(range) {
                bytes.fill(0);
            }
        }
    }
}

impl DirectoryNames for Ext4Volume {
    fn parse(
        &self,
        piece: &NamesPiece,
        bytes: &[u8],
        name: &mut dyn FnMut(&[u8], u64),
    ) -> Vec<String> {
        let context = DirContext::from_bytes(piece.context);
        let block_bytes = self.fs.superblock().block_bytes as usize;
        let first = piece.file_offset / block_bytes as u64;
        let mut problems = Vec::new();
        for (index, block) in (first..).zip(bytes.chunks(block_bytes)) {
            let parsed = self
                .fs
                .parse_dir_block(&context, index, block, &mut |entry| {
                    name(entry.name, entry.inode);
                });
            if let Err(damage) = parsed {
                problems.push(damage.to_string());
            }
        }
        problems
    }
}

impl InodeContent for Ext4Volume {
    fn read_inode(&self, number: u64) -> Result<Vec<u8>, String> {
        let read = self.fs.read_inode_bytes(number);
        let bytes = read.map_err(|error| bale_pipeline::error::with_causes(&error))?;
        let checked = self.fs.decode_inode(&Self::raw(number, &bytes)?);
        checked
            .map_err(|error| bale_pipeline::error::with_causes(&error))
            .map(|_| bytes)
    }

    fn decode(&self, number: u64, raw: &[u8]) -> Result<Inode, String> {
        let raw = Self::raw(number, raw)?;
        self.fs
            .decode_kept(&raw)
            .map_err(|error| bale_pipeline::error::with_causes(&error))
    }

    fn sectors(&self, number: u64, raw: &[u8]) -> u64 {
        Self::raw(number, raw).map_or(0, |raw| self.fs.sectors(&raw))
    }

    fn mapping_has_nodes(&self, number: u64, raw: &[u8]) -> bool {
        Self::raw(number, raw).is_ok_and(|raw| self.fs.mapping_has_nodes(&raw))
    }

    fn is_self_contained(&self, number: u64, raw: &[u8]) -> bool {
        Self::raw(number, raw)
            .is_ok_and(|raw| self.fs.xattrs_are_in_inode(&raw) && !self.fs.mapping_has_nodes(&raw))
    }

    fn extents(
        &self,
        number: u64,
        raw: &[u8],
        extent: &mut dyn FnMut(MappedExtent) -> bool,
    ) -> Result<(), String> {
        let raw = Self::raw(number, raw)?;
        let walked = self.fs.walk_mapping(&raw, &mut |mapping| match mapping {
            Mapping::Extent(found) if !extent(found) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        });
        walked.map_err(|error| bale_pipeline::error::with_causes(&error))
    }

    fn target(&self, number: u64, raw: &[u8]) -> Result<Vec<u8>, String> {
        let raw = Self::raw(number, raw)?;
        self.fs
            .read_symlink(&raw)
            .map_err(|error| bale_pipeline::error::with_causes(&error))
    }

    fn xattrs(&self, number: u64, raw: &[u8]) -> Result<FoundXattrs, String> {
        let raw = Self::raw(number, raw)?;
        let found = self
            .fs
            .xattrs(&raw)
            .map_err(|error| bale_pipeline::error::with_causes(&error))?;
        let found = found.into_iter().map(|one| (one.name, one.value));
        Ok(FoundXattrs::all(found.collect()))
    }
}
