//! Names in a directory: short form inside the inode, and blocks with names. Nothing is copied.
//!
//! The blocks with hashes (at 32 GiB and behind) say nothing that the names do not, and are never
//! read.

use super::Xfs;
use super::bytes::{SEAL_DIR, be16, be32, be64};
use super::dirblocks::DirBlock;
use super::error::{Result, XfsError};
use super::inode::{DiskInode, ForkFormat};
use crate::{Dirent, FileKind};

const SHORT_STRUCTURE: &str = "directory in inode";
const HEADER_BYTES_V4: usize = 16;
const HEADER_BYTES_V5: usize = 64;
const FREE_TAG: u16 = 0xffff;
/// Entries and free space are cut in steps of this.
const ENTRY_STEP_BYTES: usize = 8;
/// Hash entry in the tail of a block that is a whole directory.
const TAIL_ENTRY_BYTES: usize = 8;
const TAIL_BYTES: usize = 8;

/// One name, as a slice of the block it was found in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirName<'a> {
    /// Inode that the name leads to.
    pub inode: u64,
    /// Not empty, no `/`, no NUL, never `.` or `..`.
    pub name: &'a [u8],
    /// Type as the directory tells it, where it does.
    pub kind: Option<FileKind>,
}

impl DirName<'_> {
    /// A copy in the vocabulary that all readers share.
    pub fn to_dirent(&self) -> Dirent {
        Dirent {
            inode: self.inode,
            name: self.name.to_vec(),
            kind: self.kind,
        }
    }
}

/// Hands the names of a directory that lies in its inode to `visit`.
pub(super) fn parse_short_form(
    xfs: &Xfs,
    inode: &DiskInode<'_>,
    visit: &mut dyn FnMut(DirName<'_>),
) -> Result<()> {
    debug_assert_eq!(inode.data.format, ForkFormat::Local);
    let bytes = &inode.data.bytes[..inode.size as usize];
    walk_short_form(xfs, bytes, visit)
        .map_err(|fault| XfsError::damaged(SHORT_STRUCTURE, inode.device_offset, fault))
}

fn walk_short_form(
    xfs: &Xfs,
    bytes: &[u8],
    visit: &mut dyn FnMut(DirName<'_>),
) -> std::result::Result<(), &'static str> {
    const CUT_SHORT: &str = "cut short";
    let [count, wide_count, ..] = *bytes else {
        return Err(CUT_SHORT);
    };
    let number_bytes = if wide_count > 0 { 8 } else { 4 };
    let number = |at: usize| {
        let field = bytes.get(at..at + number_bytes)?;
        Some(if wide_count > 0 {
            be64(field, 0)
        } else {
            u64::from(be32(field, 0))
        })
    };
    let parent = number(2).ok_or(CUT_SHORT)?;
    check_number(xfs, parent)?;
    let type_bytes = usize::from(xfs.superblock().has_file_types);
    let mut at = 2 + number_bytes;
    for _ in 0..count {
        let name_len = usize::from(*bytes.get(at).ok_or(CUT_SHORT)?);
        let name_at = at + 3;
        let name = bytes.get(name_at..name_at + name_len).ok_or(CUT_SHORT)?;
        let number_at = name_at + name_len + type_bytes;
        let inode = number(number_at).ok_or(CUT_SHORT)?;
        check_number(xfs, inode)?;
        let kind = if type_bytes == 1 {
            file_type(bytes[number_at - 1])?
        } else {
            None
        };
        if matches!(name, b"." | b"..") {
            return Err("holds a name that is not stored");
        }
        check_name(name)?;
        visit(DirName { inode, name, kind });
        at = number_at + number_bytes;
    }
    if at == bytes.len() {
        Ok(())
    } else {
        Err("holds more than its names")
    }
}

/// Hands the names of one block to `visit`. On an error the names handed over are good, but others
/// are missing.
pub(super) fn parse_block(
    xfs: &Xfs,
    block: &DirBlock,
    bytes: &[u8],
    visit: &mut dyn FnMut(DirName<'_>),
) -> Result<()> {
    let device_offset = block.first.device_offset;
    let superblock = xfs.superblock();
    let damaged = |fault| XfsError::damaged(SEAL_DIR.structure, device_offset, fault);
    if bytes.len() != superblock.dir_block_bytes as usize {
        return Err(damaged("cut short"));
    }
    let is_whole_directory = match (&bytes[..4], superblock.has_checksums) {
        (b"XDD3", true) | (b"XD2D", false) => false,
        (b"XDB3", true) | (b"XD2B", false) => true,
        _ => return Err(damaged("wrong magic")),
    };
    if superblock.has_checksums {
        SEAL_DIR.check(xfs, bytes, device_offset, block.directory)?;
    }
    if is_whole_directory && block.file_offset != 0 {
        return Err(damaged("claims to be the only block"));
    }
    let header_bytes = if superblock.has_checksums {
        HEADER_BYTES_V5
    } else {
        HEADER_BYTES_V4
    };
    let tail = if is_whole_directory {
        Some(BlockTail::parse(bytes, header_bytes).map_err(damaged)?)
    } else {
        None
    };
    let end = tail.as_ref().map_or(bytes.len(), |tail| tail.names_end);
    let found = walk_entries(xfs, block, &bytes[..end], header_bytes, visit).map_err(damaged)?;
    if tail.is_some_and(|tail| tail.names != found) {
        return Err(damaged("holds other names than it counts"));
    }
    Ok(())
}

/// Tail of a block that is a whole directory.
struct BlockTail {
    names_end: usize,
    /// Names with `.` and `..`.
    names: usize,
}

impl BlockTail {
    fn parse(bytes: &[u8], header_bytes: usize) -> std::result::Result<BlockTail, &'static str> {
        let at = bytes.len() - TAIL_BYTES;
        let count = be32(bytes, at) as usize;
        let stale = be32(bytes, at + 4) as usize;
        let room = at - header_bytes;
        if count > room / TAIL_ENTRY_BYTES || stale > count {
            return Err("impossible number of names");
        }
        Ok(BlockTail {
            names_end: at - count * TAIL_ENTRY_BYTES,
            names: count - stale,
        })
    }
}

/// Visits every entry between header and end, which entries and free space must fill; returns how
/// many there were.
fn walk_entries(
    xfs: &Xfs,
    block: &DirBlock,
    bytes: &[u8],
    header_bytes: usize,
    visit: &mut dyn FnMut(DirName<'_>),
) -> std::result::Result<usize, &'static str> {
    let type_bytes = usize::from(xfs.superblock().has_file_types);
    let mut at = header_bytes;
    let (mut entries, mut dots) = (0, 0);
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest.len() < ENTRY_STEP_BYTES {
            return Err("entry cut short");
        }
        if be16(rest, 0) == FREE_TAG {
            at += free_len(rest, at)?;
            continue;
        }
        let name_len = usize::from(*rest.get(8).ok_or("entry cut short")?);
        let entry_len = (9 + name_len + type_bytes + 2).next_multiple_of(ENTRY_STEP_BYTES);
        let entry = rest.get(..entry_len).ok_or("entry cut short")?;
        if usize::from(be16(entry, entry_len - 2)) != at & 0xffff {
            return Err("entry tells another place");
        }
        let inode = be64(entry, 0);
        check_number(xfs, inode)?;
        let name = &entry[9..9 + name_len];
        match name {
            b"." if inode != block.directory => return Err("belongs to another directory"),
            b"." | b".." => dots += 1,
            _ => {
                check_name(name)?;
                let kind = if type_bytes == 1 {
                    file_type(entry[9 + name_len])?
                } else {
                    None
                };
                visit(DirName { inode, name, kind });
            }
        }
        entries += 1;
        at += entry_len;
    }
    let dots_expected = if block.file_offset == 0 { 2 } else { 0 };
    if dots == dots_expected {
        Ok(entries)
    } else {
        Err("lacks or repeats its own name or its parent's")
    }
}

/// Length of a stretch of free space.
fn free_len(rest: &[u8], at: usize) -> std::result::Result<usize, &'static str> {
    let len = usize::from(be16(rest, 2));
    if len == 0 || len % ENTRY_STEP_BYTES != 0 || len > rest.len() {
        return Err("impossible free space");
    }
    if usize::from(be16(rest, len - 2)) != at & 0xffff {
        return Err("free space tells another place");
    }
    Ok(len)
}

fn check_number(xfs: &Xfs, inode: u64) -> std::result::Result<(), &'static str> {
    if xfs.superblock().inode_offset(inode).is_none() {
        return Err("name leads outside of the file system");
    }
    Ok(())
}

fn check_name(name: &[u8]) -> std::result::Result<(), &'static str> {
    if name.is_empty() {
        return Err("empty name");
    }
    if name.iter().any(|&byte| byte == 0 || byte == b'/') {
        return Err("name with a byte that no name can have");
    }
    Ok(())
}

/// Types as directories number them; 0 is unknown and 8 a whiteout, which the inode knows better.
fn file_type(disk: u8) -> std::result::Result<Option<FileKind>, &'static str> {
    Ok(Some(match disk {
        0 | 8 => return Ok(None),
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return Err("name with an unknown type"),
    }))
}
