//! What can go wrong while a file system is written.

use std::io;

/// Ends the operation, except [`MkError::Entry`]: that one entry was refused and nothing was
/// written for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkError {
    /// The options contradict each other or the format.
    #[error("file system options: {0}")]
    Options(String),
    /// The tree does not fit into the size or number of inodes asked for.
    #[error(
        "the tree needs {} and {needed_inodes} inodes, the file system has {} and {inodes} inodes",
        amount(*needed_bytes), amount(*bytes)
    )]
    TooSmall {
        /// Least size that holds the tree.
        needed_bytes: u64,
        /// Least number of inodes.
        needed_inodes: u64,
        /// Size asked for.
        bytes: u64,
        /// Inodes asked for.
        inodes: u64,
    },
    /// More came than the totals announced, and the file system is full.
    #[error("file system full: more {what} than the plan counted ({planned})")]
    PlanExceeded {
        /// What there was more of.
        what: &'static str,
        /// How many were planned.
        planned: u64,
    },
    /// One entry was refused; others may follow.
    #[error("entry {path}: {source}")]
    Entry {
        /// Path of the entry, escaped.
        path: String,
        source: EntryError,
    },
    /// The target did not take the bytes.
    #[error("write {len_bytes} bytes at {offset_bytes} of the target")]
    Write {
        offset_bytes: u64,
        /// How many.
        len_bytes: u64,
        source: io::Error,
    },
    /// The target could not be made durable.
    #[error("flush the target")]
    Flush(#[source] io::Error),
    /// Reading the content of a file failed.
    #[error("read content of {path} at {offset_bytes}")]
    Content {
        /// Path of the entry, escaped.
        path: String,
        /// Where in the file.
        offset_bytes: u64,
        source: io::Error,
    },
    /// A scratch file failed.
    #[error("scratch file for {0}")]
    Scratch(&'static str, #[source] io::Error),
    /// An earlier error ended this writer.
    #[error("writing the file system stopped after an earlier error")]
    Poisoned,
}

/// Why one entry was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum EntryError {
    /// Empty, too long, `.`, `..`, or with `/` or NUL.
    #[error("name is not possible in a directory")]
    Name,
    /// Names of a directory must ascend, and directories come in catalog order.
    #[error("out of catalog order, or its directory was never pushed")]
    Order,
    /// The root is a directory and comes first.
    #[error("the root must be a directory and come first")]
    Root,
    /// `lost+found` belongs to the file system checker and must be a directory.
    #[error("lost+found in the root must be a directory")]
    LostFound,
    /// Larger than extents of this block size can address.
    #[error("file of {size_bytes} bytes is larger than {max_bytes}")]
    FileTooLarge {
        size_bytes: u64,
        /// The limit.
        max_bytes: u64,
    },
    /// A symbolic link must fit into a block, with its closing NUL.
    #[error("symbolic link of {len_bytes} bytes does not fit into a block")]
    SymlinkTooLong { len_bytes: usize },
    /// An empty symbolic link, or one with a NUL.
    #[error("symbolic link target is empty or holds a NUL")]
    SymlinkTarget,
    /// Major above 12 bits or minor above 20.
    #[error("device number {major}:{minor} is not representable")]
    Device { major: u32, minor: u32 },
    /// A name that ext4 has no place for.
    #[error("extended attribute name {0} is not representable")]
    XattrName(String),
    /// Too much for the inode and one block, although large values have inodes of their own.
    #[error("extended attributes of {total_bytes} bytes are too many for the inode and one block")]
    XattrSpace {
        /// Names, values and headers.
        total_bytes: usize,
    },
    /// An ACL in no known form.
    #[error("access control list is malformed")]
    Acl,
    /// The target of a further name is no inode pushed with `more_links`.
    #[error("link to inode {0}, which was not announced to have more names")]
    LinkTarget(u32),
    /// ext4 holds 65,000 names of one inode.
    #[error("inode {0} already has 65000 names")]
    LinkLimit(u32),
    /// A directory or the root cannot have more names.
    #[error("a directory cannot have more names")]
    DirectoryLink,
    /// Nanoseconds beyond a second.
    #[error("time has {0} nanoseconds")]
    Nanoseconds(u32),
}

pub(super) type Result<T> = std::result::Result<T, MkError>;

/// A path for a message.
pub(super) fn path_text(parent: &[u8], name: &[u8]) -> String {
    let mut path = parent.escape_ascii().to_string();
    if !path.is_empty() {
        path.push('/');
    }
    path + &name.escape_ascii().to_string()
}

/// A size in the largest unit that keeps it readable, rounded up, so that who asks for the needed
/// size gets enough.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let power = (0..UNITS.len() - 1)
        .find(|power| bytes < 10_000 << (10 * power))
        .unwrap_or(UNITS.len() - 1);
    format!("{} {}", bytes.div_ceil(1 << (10 * power)), UNITS[power])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_that_is_needed_is_said_in_units_and_is_enough() {
        let error = MkError::TooSmall {
            needed_bytes: (20 << 30) + 1,
            needed_inodes: 5,
            bytes: 20 << 30,
            inodes: 4,
        };
        let text = error.to_string();
        assert!(text.contains("needs 21 GiB and 5"), "{text}");
        assert!(text.contains("has 20 GiB and 4"), "{text}");
        assert_eq!(
            (amount(512), amount(u64::MAX)),
            ("512 bytes".to_owned(), "16777216 TiB".to_owned())
        );
    }
}
