//! Opening: the superblock or a backup of it, the group table, and the journal where it is needed.

use std::io;
use std::sync::Arc;

use super::error::{Ext4Error, JournalDamage};
use super::features::{COMPAT_HAS_JOURNAL, INCOMPAT_RECOVER};
use super::groups::GroupTable;
use super::inodes::RawInode;
use super::journal::{JournalSuperblock, Log};
use super::limits::*;
use super::overlay::Replayed;
use super::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use super::{Ext4, Origin};
use crate::ByteSource;

/// Groups that hold a backup of the superblock in every layout.
const BACKUP_GROUPS: [u16; 4] = [1, 3, 5, 7];

impl Ext4 {
    /// Opens a file system as its blocks are now. If [`Ext4::needs_recovery`] then says so, its
    /// metadata is only consistent together with the journal: on an image use
    /// [`Ext4::open_replayed`], on a mounted device take a barrier.
    pub fn open(source: Arc<dyn ByteSource>) -> Result<Ext4, Ext4Error> {
        let (superblock, origin) = find_superblock(source.as_ref())?;
        let (need_bytes, have_bytes) = (superblock.len_bytes(), source.len_bytes());
        if need_bytes > have_bytes {
            return Err(Ext4Error::Truncated {
                need_bytes,
                have_bytes,
            });
        }
        let groups = GroupTable::read(source.as_ref(), &superblock)?;
        Ok(Ext4 {
            source,
            superblock: Arc::new(superblock),
            groups: Arc::new(groups),
            origin,
            replayed: None,
        })
    }

    /// Opens a file system as the kernel would after replaying its journal. Nothing is written.
    pub fn open_replayed(source: Arc<dyn ByteSource>) -> Result<Ext4, Ext4Error> {
        match Ext4::replay(source.clone())? {
            None => Ext4::open(source),
            Some(replayed) => {
                let replayed = Arc::new(replayed);
                Ok(Ext4 {
                    replayed: Some(replayed.clone()),
                    ..Ext4::open(replayed)?
                })
            }
        }
    }

    /// The device as it would be after replaying the journal; `None` if there is nothing to replay.
    pub fn replay(source: Arc<dyn ByteSource>) -> Result<Option<Replayed>, Ext4Error> {
        let fs = Ext4::open(source.clone())?;
        if !fs.needs_recovery()? {
            return Ok(None);
        }
        let (superblock, extents) = journal_of(&fs)?;
        let block_bytes = fs.superblock.block_bytes;
        if superblock.start == 0 {
            return Ok(Some(Replayed::new(source, block_bytes, Vec::new())));
        }
        let log = Log {
            source: source.as_ref(),
            superblock,
            block_bytes,
            blocks_count: fs.superblock.blocks_count,
            extents: &extents,
        };
        let patches = log.replay()?;
        Ok(Some(Replayed::new(source, block_bytes, patches)))
    }

    /// Whether committed changes are still in the journal only.
    pub fn needs_recovery(&self) -> Result<bool, Ext4Error> {
        if self.replayed.is_some() {
            return Ok(false);
        }
        match self.origin {
            Origin::Primary => Ok(self.superblock.incompat(INCOMPAT_RECOVER)),
            // Backups never carry the flag, so the journal is asked itself.
            Origin::Backup { .. } if self.has_journal() => Ok(journal_of(self)?.0.start != 0),
            Origin::Backup { .. } => Ok(false),
        }
    }

    fn has_journal(&self) -> bool {
        self.superblock.features.compat & COMPAT_HAS_JOURNAL != 0
    }
}

/// The journal's superblock and where the journal lies.
fn journal_of(fs: &Ext4) -> Result<(JournalSuperblock, Vec<crate::MappedExtent>), Ext4Error> {
    let number = u64::from(fs.superblock.journal_inode);
    if number == 0 {
        return Err(JournalDamage::External.into());
    }
    let inode_bytes = fs.read_inode_bytes(number)?;
    let raw = RawInode::new(number, &inode_bytes).ok_or(JournalDamage::Superblock)?;
    fs.decode_inode(&raw)?;
    let extents = fs.extents(&raw)?;
    let first = extents
        .first()
        .filter(|extent| extent.file_offset == 0)
        .ok_or(JournalDamage::Hole(0))?;
    let mut bytes = vec![0; fs.superblock.block_bytes as usize];
    fs.read(first.device_offset, &mut bytes, "journal superblock")?;
    Ok((
        JournalSuperblock::parse(&bytes, fs.superblock.block_bytes)?,
        extents,
    ))
}

fn find_superblock(source: &dyn ByteSource) -> Result<(Superblock, Origin), Ext4Error> {
    for _ in 0..SUPERBLOCK_READS_MAX {
        match read_superblock(source, SUPERBLOCK_OFFSET) {
            // On a mounted device the kernel may just be writing it.
            Err(Ext4Error::SuperblockDamaged) => {}
            Ok(superblock) => return Ok((superblock, Origin::Primary)),
            Err(other) => return Err(other),
        }
    }
    for log in 0..=LOG_BLOCK_KIB_MAX {
        for group in BACKUP_GROUPS {
            if let Some(superblock) = backup_superblock(source, 1024 << log, group) {
                return Ok((superblock, Origin::Backup { group }));
            }
        }
    }
    Err(Ext4Error::SuperblockDamaged)
}

/// A backup where mke2fs puts it: at the start of a group that is as large as one bitmap block can
/// describe.
fn backup_superblock(source: &dyn ByteSource, block_bytes: u32, group: u16) -> Option<Superblock> {
    let blocks_per_group = 8 * block_bytes;
    let block = u64::from(group) * u64::from(blocks_per_group) + u64::from(block_bytes == 1024);
    let superblock = read_superblock(source, block * u64::from(block_bytes)).ok()?;
    let fits = superblock.copy_in_group == group
        && superblock.block_bytes == block_bytes
        && superblock.group_start(group.into()) == block;
    fits.then_some(superblock)
}

fn read_superblock(source: &dyn ByteSource, offset: u64) -> Result<Superblock, Ext4Error> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    match source.read_exact_at(offset, &mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Ext4Error::NotExt4),
        Err(source) => Err(Ext4Error::Read {
            what: "superblock",
            offset,
            source,
        }),
        Ok(()) => Superblock::parse(&bytes),
    }
}
