//! Content of files of ext4 that nothing changed between two states, by their inodes.
//!
//! So it is with directories and the names in them, unless a check wrote to them. States in which
//! it was in use, and not frozen, are refused: there a flag of the superblock says so.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::error::Ext4Error;
use super::features::COMPAT_HAS_JOURNAL;
use super::inodes::{InodeResult, RawInode};
use super::mapping::Mapping;
use super::superblock::SUPERBLOCK_OFFSET;
use super::{Ext4, Origin};
use crate::unchanged::{
    Compared, JoinedRanges, MARGIN_SECONDS, NotCompared, OTHER_FILE_SYSTEM, PIECE_BYTES,
    UnchangedContent,
};
use crate::{ByteSource, FileKind, Inode, Layout};

/// Of `s_lastcheck` in the superblock.
const LAST_CHECK_OFFSET: u64 = 0x40;
/// `s_state` of one that was unmounted.
const STATE_VALID: u16 = 1;

/// Two states of a file system.
pub(crate) struct Ext4States {
    old: Ext4,
    new: Ext4,
}

impl Ext4States {
    pub(crate) fn between(
        old: &Arc<dyn ByteSource>,
        new: &Arc<dyn ByteSource>,
    ) -> Result<Ext4States, NotCompared> {
        let (old, new) = (Ext4::open(old.clone())?, Ext4::open(new.clone())?);
        let alike = {
            let (old, new) = (old.superblock(), new.superblock());
            old.uuid == new.uuid
                && old.block_bytes == new.block_bytes
                && old.inode_bytes == new.inode_bytes
                && old.inodes_per_group == new.inodes_per_group
                && old.blocks_per_group == new.blocks_per_group
                && old.checksum_seed == new.checksum_seed
                && old.features == new.features
        };
        if last_check(&old)? != last_check(&new)? {
            return Err(NotCompared::Because(
                "it was checked since the snapshot before",
            ));
        }
        for (fs, why) in [
            (&old, "it was in use in the snapshot before, and not frozen"),
            (&new, "it is in use, and not frozen"),
        ] {
            if !fs.was_left_whole()? {
                return Err(NotCompared::Because(why));
            }
        }
        if !alike {
            return Err(NotCompared::Because(OTHER_FILE_SYSTEM));
        }
        Ok(Ext4States { old, new })
    }

    fn is_unchanged(&self, inode: &Inode, new: &RawInode<'_>, old: &RawInode<'_>) -> bool {
        let until = i64::try_from(self.old.superblock().write_time).unwrap_or(0) - MARGIN_SECONDS;
        inode.layout == Layout::Mapped
            && inode.ctime.seconds < until
            && new.same_except_atime(old)
            && self.has_same_nodes(new)
    }

    /// Is what its extents depend on beside the inode as it was?
    fn has_same_nodes(&self, raw: &RawInode<'_>) -> bool {
        if !self.new.mapping_has_nodes(raw) {
            return true;
        }
        let mut are_same = true;
        let mut before = Vec::new();
        let walked = self.new.walk_mapping(raw, &mut |mapping| {
            if let Mapping::Node {
                device_offset,
                bytes,
            } = mapping
            {
                before.resize(bytes.len(), 0);
                let read = self.old.read(device_offset, &mut before, "extents");
                are_same = read.is_ok() && before == bytes;
            }
            match are_same {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        are_same && walked.is_ok()
    }

    fn hand_out(
        &self,
        raw: &RawInode<'_>,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut joined = JoinedRanges::new(found);
        let mut ended = ControlFlow::Continue(());
        let block_bytes = u64::from(self.new.superblock().block_bytes);
        // What cannot be walked is not said to be unchanged.
        let _rest_is_read = self.new.walk_mapping(raw, &mut |mapping| {
            ended = joined.push(match mapping {
                // What is in the last block behind the end of a file is its own, too.
                Mapping::Extent(extent) => {
                    let end = extent.device_offset.saturating_add(extent.len);
                    extent.device_offset..end.checked_next_multiple_of(block_bytes).unwrap_or(end)
                }
                // Compared with what it was.
                Mapping::Node {
                    device_offset,
                    bytes,
                } => device_offset..device_offset + bytes.len() as u64,
            });
            ended
        });
        match ended.is_continue() {
            true => joined.finish(),
            false => ended,
        }
    }
}

impl UnchangedContent for Ext4States {
    /// In the order of the inodes.
    fn walk(
        &self,
        found: &mut dyn FnMut(Range<u64>) -> ControlFlow<()>,
    ) -> Result<Compared, NotCompared> {
        let mut compared = Compared::default();
        let (mut old_bytes, mut new_bytes) = (Vec::new(), Vec::new());
        for range in self.new.itable_ranges() {
            for piece in range.pieces(PIECE_BYTES) {
                // Tables that a resize has moved are others.
                if self.old.inode_offset(piece.first_inode) != Some(piece.device_offset) {
                    continue;
                }
                let len = (piece.inodes_count * u64::from(piece.inode_bytes)) as usize;
                for (fs, bytes) in [(&self.old, &mut old_bytes), (&self.new, &mut new_bytes)] {
                    bytes.resize(len, 0);
                    fs.read(piece.device_offset, bytes, "inode table")?;
                }
                let inode_bytes = piece.inode_bytes as usize;
                let mut ended = ControlFlow::Continue(());
                self.new
                    .parse_inodes(piece.first_inode, &new_bytes, &mut |inode| {
                        let InodeResult::Used(inode, raw) = inode else {
                            return;
                        };
                        let kind = FileKind::from_mode(inode.mode);
                        let has_content = [FileKind::Regular, FileKind::Directory];
                        if !kind.is_some_and(|kind| has_content.contains(&kind)) || ended.is_break()
                        {
                            return;
                        }
                        compared.files += 1;
                        let at = (raw.number() - piece.first_inode) as usize * inode_bytes;
                        let old = old_bytes.get(at..at + inode_bytes);
                        let old = old.and_then(|bytes| RawInode::new(raw.number(), bytes));
                        if old.is_some_and(|old| self.is_unchanged(&inode, &raw, &old)) {
                            compared.unchanged += 1;
                            ended = self.hand_out(&raw, found);
                        }
                    });
                if ended.is_break() {
                    return Ok(compared);
                }
            }
        }
        Ok(compared)
    }
}

/// `s_lastcheck`: seconds of the last check.
fn last_check(fs: &Ext4) -> Result<u32, Ext4Error> {
    let mut bytes = [0; 4];
    let at = SUPERBLOCK_OFFSET + LAST_CHECK_OFFSET;
    fs.read(at, &mut bytes, "superblock")?;
    Ok(u32::from_le_bytes(bytes))
}

impl Ext4 {
    /// Was all that was written on the device: unmounted, or frozen?
    fn was_left_whole(&self) -> Result<bool, Ext4Error> {
        let superblock = self.superblock();
        let has_journal = superblock.features.compat & COMPAT_HAS_JOURNAL != 0;
        let is_valid = has_journal || superblock.state & STATE_VALID != 0;
        Ok(self.origin() == Origin::Primary && is_valid && !self.needs_recovery()?)
    }
}
