//! An entry: one path and its metadata, a row of a catalog.
//!
//! Paths are bytes without a leading slash. `parent` and `name` are reference-counted slices, so
//! that a directory's children share one parent. Layout and meaning of every field: docs/FORMAT.md,
//! section 8.

use crate::id::ChunkId;
use bytes::Bytes;
use std::cmp::Ordering;

/// What a path leads to. The numbers are format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Regular file.
    File = 1,
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    BlockDevice = 4,
    /// Character device.
    CharDevice = 5,
    /// Named pipe.
    Fifo = 6,
    /// Socket: recorded, never restored.
    Socket = 7,
    /// No path: a stretch of an image, whose row is its parent.
    Extent = 8,
}

impl Kind {
    /// From the number in a catalog.
    pub fn from_number(number: i32) -> Option<Kind> {
        Some(match number {
            1 => Kind::File,
            2 => Kind::Directory,
            3 => Kind::Symlink,
            4 => Kind::BlockDevice,
            5 => Kind::CharDevice,
            6 => Kind::Fifo,
            7 => Kind::Socket,
            8 => Kind::Extent,
            _ => return None,
        })
    }

    /// From the type bits of `st_mode`.
    pub fn from_mode(mode: u32) -> Option<Kind> {
        Some(match mode & 0o170000 {
            0o100000 => Kind::File,
            0o040000 => Kind::Directory,
            0o120000 => Kind::Symlink,
            0o060000 => Kind::BlockDevice,
            0o020000 => Kind::CharDevice,
            0o010000 => Kind::Fifo,
            0o140000 => Kind::Socket,
            _ => return None,
        })
    }

    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::File => 0o100000,
            Kind::Directory => 0o040000,
            Kind::Symlink => 0o120000,
            Kind::BlockDevice => 0o060000,
            Kind::CharDevice => 0o020000,
            Kind::Fifo => 0o010000,
            Kind::Socket => 0o140000,
            // Nothing that a file system has.
            Kind::Extent => 0,
        }
    }
}

/// Seconds since 1970, possibly negative, and nanoseconds below 1e9. Ordered as time is.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(from = "(i64, u32)", into = "(i64, u32)")]
pub struct Time {
    pub seconds: i64,
    /// Nanoseconds.
    pub nanos: u32,
}

/// Units that file systems cut times to, in nanoseconds, largest first: two seconds (FAT; ext2,
/// ext3 and small inodes of ext4 one), ten milliseconds (exFAT), then what servers and foreign file
/// systems keep.
const STAMP_UNITS: [u64; 5] = [2_000_000_000, 10_000_000, 1_000_000, 1_000, 100];

/// The last seconds that file systems can stamp; whatever happens later is stamped with them, too:
/// ext2, ext3, small inodes of ext4 and XFS of old (2038), HFS+, 32 bits without a sign (2106), FAT
/// and exFAT (2107), ext4, XFS.
const LAST_STAMPS: [i64; 7] = [
    i32::MAX as i64,
    2_212_122_495,
    u32::MAX as i64,
    4_354_819_198,
    4_354_819_199,
    15_032_385_535,
    16_299_260_424,
];

impl Time {
    /// The first moment that can no longer leave this stamp, whatever unit the file system cuts
    /// times to: one that divides the stamp is taken to be it, so a stamp of whole seconds is in
    /// doubt for two. There is none where a clock of file systems ends.
    pub fn end_of_stamp(self) -> Time {
        if self.seconds >= LAST_STAMPS[0] && LAST_STAMPS.contains(&self.seconds) {
            return Time {
                seconds: i64::MAX,
                nanos: 0,
            };
        }
        let nanos = u64::from(self.nanos);
        // Most stamps have nanoseconds, and are done with here.
        let unit = match nanos % 100 {
            0 => {
                let mut units = STAMP_UNITS.into_iter();
                units.find(|unit| nanos.is_multiple_of(*unit)).unwrap_or(1)
            }
            _ => 1,
        };
        let end = nanos + unit;
        Time {
            seconds: self.seconds.saturating_add((end / 1_000_000_000) as i64),
            nanos: (end % 1_000_000_000) as u32,
        }
    }

    /// Is this the stamp of something that happened before a moment, for certain? Of file systems
    /// that cut times to whole seconds, a stamp of the moment's second tells nothing.
    pub fn is_stamped_before(self, moment: Time) -> bool {
        self < moment && self.end_of_stamp() <= moment
    }
}

impl From<(i64, u32)> for Time {
    fn from((seconds, nanos): (i64, u32)) -> Time {
        Time { seconds, nanos }
    }
}

impl From<Time> for (i64, u32) {
    fn from(time: Time) -> (i64, u32) {
        (time.seconds, time.nanos)
    }
}

/// A time or none, in the room of a time: rows are many, and few have a time of last access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OptionalTime(Time);

impl OptionalTime {
    /// No clock says so many nanoseconds.
    pub const NONE: OptionalTime = OptionalTime(Time {
        seconds: 0,
        nanos: u32::MAX,
    });

    pub fn get(self) -> Option<Time> {
        (self.0.nanos != u32::MAX).then_some(self.0)
    }

    pub fn is_none(self) -> bool {
        self == OptionalTime::NONE
    }
}

impl Default for OptionalTime {
    fn default() -> OptionalTime {
        OptionalTime::NONE
    }
}

impl From<Option<Time>> for OptionalTime {
    fn from(time: Option<Time>) -> OptionalTime {
        match time {
            Some(time) if time.nanos != u32::MAX => OptionalTime(time),
            _ => OptionalTime::NONE,
        }
    }
}

impl From<Time> for OptionalTime {
    fn from(time: Time) -> OptionalTime {
        OptionalTime::from(Some(time))
    }
}

impl std::fmt::Debug for OptionalTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.get().fmt(f)
    }
}

/// Facts about an entry that are bits. Numbers are format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EntryFlags(pub u32);

impl EntryFlags {
    /// Content has holes.
    pub const SPARSE: EntryFlags = EntryFlags(1);
    /// Changed while it was read: what was read is stored.
    pub const CHANGED: EntryFlags = EntryFlags(1 << 1);
    /// No content stored; of a directory: children are missing.
    pub const UNREADABLE: EntryFlags = EntryFlags(1 << 2);
    /// Must be read again by the next backup.
    pub const RACY: EntryFlags = EntryFlags(1 << 3);
    /// Some ranges could not be read.
    pub const INCOMPLETE: EntryFlags = EntryFlags(1 << 4);
    /// In a layer: the path is gone.
    pub const REMOVED: EntryFlags = EntryFlags(1 << 5);
    /// Extended attributes could not be read.
    pub const XATTRS_UNREADABLE: EntryFlags = EntryFlags(1 << 6);
    /// A directory whose content was left out on purpose (other file system, exclude mark).
    pub const NOT_CROSSED: EntryFlags = EntryFlags(1 << 7);

    /// Are all bits of `other` set?
    pub fn has(self, other: EntryFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Is any bit of `other` set?
    pub fn has_any(self, other: EntryFlags) -> bool {
        self.0 & other.0 != 0
    }

    /// Sets all bits of `other`.
    pub fn set(&mut self, other: EntryFlags) {
        self.0 |= other.0;
    }

    /// Clears all bits of `other`.
    pub fn clear(&mut self, other: EntryFlags) {
        self.0 &= !other.0;
    }
}

/// Where a regular file's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Content {
    /// No bytes.
    #[default]
    None,
    /// `chunk[offset..offset + size]`.
    Bundled {
        /// Data chunk that holds many files.
        chunk: ChunkId,
        /// First byte.
        offset: u32,
    },
    /// A list of pieces.
    Pieces {
        /// Chunk of kind pieces.
        list: ChunkId,
    },
    /// The extents that are the rows below this one; zeros where there is none.
    Image,
}

/// One row of a catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path of the directory, no leading or trailing slash; empty for children of `/`.
    pub parent: Bytes,
    /// Last component; empty only for `/` itself.
    pub name: Bytes,
    pub kind: Kind,
    /// Permissions: lower 12 bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; of a symlink, its target's length.
    pub size: u64,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Last access, before this backup read it, of a snapshot that has such times.
    pub atime: OptionalTime,
    pub inode: u64,
    /// Inode generation; 0 if unknown.
    pub generation: u32,
    /// Names of this inode in its file system.
    pub nlink: u32,
    /// Position in the snapshot's list of file systems.
    pub filesystem: u32,
    /// `major << 32 | minor` of a device node.
    pub rdev: u64,
    /// Target of a symlink: its own bytes, since few rows have one and all have room for it.
    pub target: Box<[u8]>,
    /// Extended attributes: encoded as in the `xattrs` column.
    pub xattrs: Bytes,
    /// `FS_IOC_GETFLAGS` bits that are kept.
    pub inode_flags: u32,
    pub project: u32,
    /// What happened.
    pub flags: EntryFlags,
    /// Where the bytes are.
    pub content: Content,
    /// Keyed hash of the content, 16 bytes; `None` without content.
    pub content_hash: Option<[u8; 16]>,
}

impl Entry {
    /// The same with bytes of its own: a row that is held for long must not hold the segment that
    /// it came from.
    pub fn with_own_bytes(mut self) -> Entry {
        for bytes in [&mut self.parent, &mut self.name, &mut self.xattrs] {
            *bytes = Bytes::copy_from_slice(bytes);
        }
        self
    }

    /// Bytes of memory that such a row takes.
    pub fn own_bytes(&self) -> usize {
        let strings = [&self.parent, &self.name, &self.xattrs];
        let strings: usize = strings.iter().map(|bytes| bytes.len()).sum();
        size_of::<Entry>() + strings + self.target.len()
    }

    /// An entry with empty metadata: for tombstones and tests.
    pub fn new(parent: Bytes, name: Bytes, kind: Kind) -> Entry {
        Entry {
            parent,
            name,
            kind,
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            mtime: Time::default(),
            ctime: Time::default(),
            atime: OptionalTime::NONE,
            inode: 0,
            generation: 0,
            nlink: 1,
            filesystem: 0,
            rdev: 0,
            target: Box::default(),
            xattrs: Bytes::new(),
            inode_flags: 0,
            project: 0,
            flags: EntryFlags::default(),
            content: Content::None,
            content_hash: None,
        }
    }

    /// `parent/name`, without a leading slash.
    pub fn path(&self) -> Vec<u8> {
        join(&self.parent, &self.name)
    }

    /// The path that it is a part of: of an extent, that of its image.
    pub fn path_to_name(&self) -> Vec<u8> {
        match self.kind {
            Kind::Extent => self.parent.to_vec(),
            _ => self.path(),
        }
    }

    /// Key of this row.
    pub fn key(&self) -> Key {
        Key {
            parent: self.parent.clone(),
            name: self.name.clone(),
        }
    }

    /// Is it an image, whose bytes are those of its extents?
    pub fn is_image(&self) -> bool {
        self.content == Content::Image
    }

    /// Is this one of several names of one inode?
    pub fn is_hard_link(&self) -> bool {
        self.nlink > 1 && self.kind != Kind::Directory
    }
}

/// A row's place in the order of a catalog. `Ord` is the catalog's order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Key {
    /// Path of the directory.
    pub parent: Bytes,
    /// Last component.
    pub name: Bytes,
}

impl Key {
    /// Splits a path without leading slash at its last slash.
    pub fn of_path(path: &[u8]) -> Key {
        let (parent, name) = split(path);
        Key {
            parent: Bytes::copy_from_slice(parent),
            name: Bytes::copy_from_slice(name),
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        compare_keys(&self.parent, &self.name, &other.parent, &other.name)
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The catalog's order: parents component by component, then names.
pub fn compare_keys(parent_a: &[u8], name_a: &[u8], parent_b: &[u8], name_b: &[u8]) -> Ordering {
    // Neighbours mostly are in one directory, and equal paths are told quickly as bytes.
    match parent_a == parent_b {
        true => name_a.cmp(name_b),
        false => compare_parents(parent_a, parent_b).then_with(|| name_a.cmp(name_b)),
    }
}

/// Compares paths as if every slash were a zero byte, which no name contains.
pub fn compare_parents(a: &[u8], b: &[u8]) -> Ordering {
    let common = a.iter().zip(b).position(|(x, y)| x != y);
    match common {
        None => a.len().cmp(&b.len()),
        Some(at) => {
            let rank = |byte: u8| if byte == b'/' { 0 } else { byte };
            rank(a[at]).cmp(&rank(b[at]))
        }
    }
}

/// Is `path` equal to `root` or below it? Both without leading slash; an empty root contains
/// everything.
pub fn is_below(path: &[u8], root: &[u8]) -> bool {
    root.is_empty()
        || (path.starts_with(root) && (path.len() == root.len() || path[root.len()] == b'/'))
}

/// `parent/name`; the parent's children of `/` have an empty parent.
pub fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(parent.len() + 1 + name.len());
    path.extend_from_slice(parent);
    if !parent.is_empty() && !name.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Parent and last component of a path without leading slash.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64, nanos: u32) -> Time {
        Time { seconds, nanos }
    }

    #[test]
    fn a_stamp_is_in_doubt_for_the_largest_unit_that_divides_it() {
        for (stamp, end) in [
            (time(7, 123_456_789), time(7, 123_456_790)),
            (time(7, 999_999_999), time(8, 0)),
            (time(7, 123_456_700), time(7, 123_456_800)),
            (time(7, 123_456_000), time(7, 123_457_000)),
            (time(7, 123_000_000), time(7, 124_000_000)),
            (time(7, 990_000_000), time(8, 0)),
            (time(7, 0), time(9, 0)),
            (time(-1, 0), time(1, 0)),
        ] {
            assert_eq!(stamp.end_of_stamp(), end, "{stamp:?}");
            assert!(stamp.is_stamped_before(end));
            let just_before = match end.nanos {
                0 => time(end.seconds - 1, 999_999_999),
                nanos => time(end.seconds, nanos - 1),
            };
            assert!(!stamp.is_stamped_before(just_before), "{stamp:?}");
        }
        for seconds in LAST_STAMPS {
            let later = time(seconds + 1_000_000, 0);
            assert!(!time(seconds, 0).is_stamped_before(later), "{seconds}");
            assert!(time(seconds - 2, 0).is_stamped_before(later), "{seconds}");
        }
        let last = time(i64::MAX, 0);
        assert!(!last.is_stamped_before(last), "the sum has no room");
    }
}
