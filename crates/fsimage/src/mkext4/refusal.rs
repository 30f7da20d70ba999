//! What is refused of an entry, and why.

use super::entry::{NAME_BYTES_MAX, NewEntry, NewKind};
use super::error::{EntryError, MkError};
use super::extents::FILE_BLOCKS_MAX;
use super::options::Ext4Options;
use super::xattr;

/// ext4 holds this many names of one inode; a directory with more subdirectories says 1.
pub const LINKS_MAX: u32 = 65_000;

/// Either the entry is refused, or the writer is at its end.
pub(super) enum PushError {
    Refused(EntryError),
    Fatal(MkError),
}

impl From<EntryError> for PushError {
    fn from(error: EntryError) -> PushError {
        PushError::Refused(error)
    }
}

impl From<MkError> for PushError {
    fn from(error: MkError) -> PushError {
        PushError::Fatal(error)
    }
}

/// Checks what can be known of an entry before anything is written for it.
pub(super) fn check_entry(
    entry: &NewEntry<'_>,
    block_size: u32,
) -> std::result::Result<(), EntryError> {
    let block_bytes = u64::from(block_size);
    if !(entry.name.is_empty() && entry.parent.is_empty()) {
        check_name(entry.name)?;
    }
    match entry.content {
        NewKind::Directory if entry.more_links => return Err(EntryError::DirectoryLink),
        NewKind::Regular { size_bytes } if size_bytes.div_ceil(block_bytes) > FILE_BLOCKS_MAX => {
            return Err(EntryError::FileTooLarge {
                size_bytes,
                max_bytes: FILE_BLOCKS_MAX * block_bytes,
            });
        }
        NewKind::Symlink { target } if target.is_empty() || target.contains(&0) => {
            return Err(EntryError::SymlinkTarget);
        }
        NewKind::Symlink { target } if target.len() >= block_size as usize => {
            return Err(EntryError::SymlinkTooLong {
                len_bytes: target.len(),
            });
        }
        NewKind::BlockDevice { major, minor } | NewKind::CharDevice { major, minor }
            if major >= 1 << 12 || minor >= 1 << 20 =>
        {
            return Err(EntryError::Device { major, minor });
        }
        _ => {}
    }
    for time in [entry.atime, entry.mtime, entry.ctime]
        .into_iter()
        .chain(entry.crtime)
    {
        if time.nanos >= 1_000_000_000 {
            return Err(EntryError::Nanoseconds(time.nanos));
        }
    }
    Ok(())
}

/// Would `push` refuse this entry, wherever it comes? The order of entries and their links are not
/// looked at.
pub fn check(entry: &NewEntry<'_>, options: &Ext4Options) -> std::result::Result<(), EntryError> {
    check_entry(entry, options.block_size)?;
    // The seed changes no size.
    xattr::encode(entry.xattrs, (options.inode_size, options.block_size), 0).map(|_| ())
}

pub(super) fn check_name(name: &[u8]) -> std::result::Result<(), EntryError> {
    let is_possible = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0));
    if is_possible {
        Ok(())
    } else {
        Err(EntryError::Name)
    }
}

/// The order of runs: components one by one, so the separator sorts before every byte of a name.
pub(super) fn path_order(left: &[u8], right: &[u8]) -> std::cmp::Ordering {
    let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    left.iter().map(key).cmp(right.iter().map(key))
}
