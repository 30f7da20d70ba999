//! Segments: a stretch of a catalog's rows as one small Parquet file.
//!
//! Equal rows give equal bytes, so an unchanged stretch is the same chunk in every snapshot.
//! Reading trusts nothing: a segment that decodes has valid names, kinds and layouts in strictly
//! increasing order, and unfolds to a bounded number of bytes. Columns and bounds: docs/FORMAT.md,
//! section 8. Where a catalog is cut is decided elsewhere.

mod atimes;
mod build;
mod check;
pub use check::{check_fields, check_path, may_be_target};
mod columns;
mod encode;
mod file;
mod keys;
mod packed;
mod pages;
mod pointers;
mod thrift;
mod values;

pub use build::SegmentBuilder;
pub use keys::SegmentKeys;
pub use pointers::{Pointer, pointers};

use crate::entry::{Content, Entry, EntryFlags, Kind, Time};
use crate::id::ChunkId;
use atimes::AtimeColumns;
use check::{check_bundled, check_extent, check_strings};
use columns::Columns;
use std::ops::Range;
use values::{BytesColumn, Values};

/// Rows of a segment.
pub(crate) const ROWS_MAX: usize = 131_072;
/// Bytes of a segment as stored: those of a chunk.
pub(crate) const SEGMENT_BYTES_MAX: usize = 16 << 20;
/// Length of a parent path.
pub const PARENT_BYTES_MAX: usize = 4 << 20;
pub const NAME_BYTES_MAX: usize = 255;
/// Length of a symlink's target.
pub(crate) const TARGET_BYTES_MAX: usize = 65_535;
/// Length of an inline set of extended attributes, with its first byte.
pub(crate) const XATTRS_BYTES_MAX: usize = (1 << 20) + 1;
/// Bytes of one column of byte strings, after decoding.
pub(crate) const DECODED_BYTES_MAX: usize = 64 << 20;

const HASH_BYTES: usize = 16;
const NANOS_MAX: i32 = 999_999_999;
const MODE_MAX: i32 = 0o7777;
/// A chunk's length: a bundled file lies inside.
const CHUNK_BYTES_MAX: u64 = 16 << 20;

/// Why a segment cannot be made or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentError {
    /// The bytes are not a valid segment.
    #[error("segment is damaged: {0}")]
    Damaged(&'static str),
    /// An entry that a segment cannot hold.
    #[error("entry {} cannot be stored: {reason}", String::from_utf8_lossy(path).escape_debug())]
    Refused {
        /// Path of the entry.
        path: Vec<u8>,
        /// What is wrong.
        reason: &'static str,
    },
    /// More rows or bytes than a segment holds.
    #[error("segment would be too large: {rows} rows, {bytes} bytes")]
    TooLarge {
        /// Rows asked for.
        rows: usize,
        /// Bytes that came out, 0 if it was not tried.
        bytes: usize,
    },
}

/// Made only when needed: an error that is made and dropped for every value costs more than the
/// value.
#[cold]
fn damage(what: &'static str) -> SegmentError {
    SegmentError::Damaged(what)
}

/// What of a row is compared with what is there now: its fields are those of [`Entry`].
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "documented at Entry")]
pub struct RowView<'a> {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime: Time,
    pub ctime: Time,
    pub inode: u64,
    pub nlink: u32,
    pub filesystem: u32,
    pub rdev: u64,
    pub xattrs: &'a [u8],
    pub flags: EntryFlags,
    pub content: Content,
}

impl RowView<'_> {
    /// Is this one of several names of one inode?
    pub fn is_hard_link(&self) -> bool {
        self.nlink > 1 && self.kind != Kind::Directory
    }
}

/// A decoded segment, checked: the keys of all rows, and all columns of the rows that were asked
/// for. Entries share its bytes.
#[derive(Clone, Debug)]
pub struct Segment {
    keys: SegmentKeys,
    /// The rows that the other columns hold.
    rows: Range<usize>,
    kind: Values<i32>,
    mode: Values<i32>,
    uid: Values<i32>,
    gid: Values<i32>,
    size: Values<i64>,
    mtime_s: Values<i64>,
    mtime_ns: Values<i32>,
    ctime_s: Values<i64>,
    ctime_ns: Values<i32>,
    /// `None`: no row has one.
    atimes: Option<AtimeColumns>,
    inode: Values<i64>,
    generation: Values<i32>,
    nlink: Values<i32>,
    filesystem: Values<i32>,
    rdev: Values<i64>,
    targets: BytesColumn,
    xattrs: BytesColumn,
    inode_flags: Values<i32>,
    project: Values<i32>,
    flags: Values<i32>,
    layout: Values<i32>,
    chunks: BytesColumn,
    offset: Values<i64>,
    content_hash: BytesColumn,
}

impl Segment {
    /// Reads and checks an untrusted segment.
    pub fn decode(file: &[u8]) -> Result<Segment, SegmentError> {
        Segment::decode_rows(file, |keys| 0..keys.rows())
    }

    /// Reads and checks the keys, and of the other columns only the pages with the rows that
    /// `choose` wants: a look-up of one row costs its keys and 25 pages. Other rows must not be
    /// asked for.
    pub fn decode_rows(
        file: &[u8],
        choose: impl FnOnce(&SegmentKeys) -> Range<usize>,
    ) -> Result<Segment, SegmentError> {
        if file.len() > SEGMENT_BYTES_MAX {
            return Err(SegmentError::Damaged("longer than a chunk"));
        }
        let columns = Columns::open(file)?;
        let keys = SegmentKeys::read(&columns)?;
        let chosen = choose(&keys);
        let end = chosen.end.min(keys.rows());
        let rows = chosen.start.min(end)..end;
        let segment = Segment {
            kind: columns.int32("kind", &rows)?,
            mode: columns.int32("mode", &rows)?,
            uid: columns.int32("uid", &rows)?,
            gid: columns.int32("gid", &rows)?,
            size: columns.int64("size", &rows)?,
            mtime_s: columns.int64("mtime_s", &rows)?,
            mtime_ns: columns.int32("mtime_ns", &rows)?,
            ctime_s: columns.int64("ctime_s", &rows)?,
            ctime_ns: columns.int32("ctime_ns", &rows)?,
            atimes: AtimeColumns::read(&columns, &rows)?,
            inode: columns.int64("inode", &rows)?,
            generation: columns.int32("generation", &rows)?,
            nlink: columns.int32("nlink", &rows)?,
            filesystem: columns.int32("filesystem", &rows)?,
            rdev: columns.int64("rdev", &rows)?,
            targets: columns.bytes("target", &rows)?,
            xattrs: columns.bytes("xattrs", &rows)?,
            inode_flags: columns.int32("inode_flags", &rows)?,
            project: columns.int32("project", &rows)?,
            flags: columns.int32("flags", &rows)?,
            layout: columns.int32("layout", &rows)?,
            chunks: columns.bytes("chunk", &rows)?,
            offset: columns.int64("offset", &rows)?,
            content_hash: columns.bytes("content_hash", &rows)?,
            keys,
            rows,
        };
        for row in 0..segment.rows.len() {
            segment.check(row).map_err(SegmentError::Damaged)?;
        }
        Ok(segment)
    }

    /// `row` counts from the first one decoded.
    fn check(&self, row: usize) -> Result<(), &'static str> {
        let kind = Kind::from_number(self.kind.get(row)).ok_or("unknown kind")?;
        if !(0..=MODE_MAX).contains(&self.mode.get(row)) {
            return Err("mode has more than twelve bits");
        }
        let nanos_valid = |nanos: i32| (0..=NANOS_MAX).contains(&nanos);
        if !nanos_valid(self.mtime_ns.get(row)) || !nanos_valid(self.ctime_ns.get(row)) {
            return Err("nanoseconds out of range");
        }
        let size = u64::try_from(self.size.get(row)).map_err(|_| "negative size")?;
        check_strings(self.targets.get(row), self.xattrs.get(row))?;
        let hash_len = self.content_hash.get(row).len();
        if hash_len != 0 && hash_len != HASH_BYTES {
            return Err("length of a content hash");
        }
        let chunk_len = self.chunks.get(row).len();
        let offset = u64::try_from(self.offset.get(row)).map_err(|_| "negative offset")?;
        match (self.layout.get(row), kind, chunk_len) {
            (0, Kind::Extent, _) => Err("an extent without content"),
            (0, _, 0) if offset == 0 => Ok(()),
            (1, Kind::File, 32) => check_bundled(offset, size),
            (2, Kind::File, 32) if offset == 0 => Ok(()),
            (3, Kind::File, 0) if offset == 0 => Ok(()),
            (1, Kind::Extent, 32) => {
                check_bundled(offset, size)?;
                check_extent(self.keys.name(self.rows.start + row), size)
            }
            _ => Err("layout does not fit the row"),
        }
    }

    /// Keys of the rows.
    pub fn keys(&self) -> &SegmentKeys {
        &self.keys
    }

    /// Number of rows; never 0.
    pub fn rows(&self) -> usize {
        self.keys.rows()
    }

    /// Does this row, one of the decoded, only say that a path is gone?
    pub fn is_removed(&self, row: usize) -> bool {
        EntryFlags(self.flags.get(row - self.rows.start) as u32).has(EntryFlags::REMOVED)
    }

    /// The rows that were decoded.
    pub fn decoded(&self) -> Range<usize> {
        self.rows.clone()
    }

    /// Bytes of memory that it takes, about.
    pub fn memory_bytes(&self) -> usize {
        let small = [
            &self.kind,
            &self.mode,
            &self.uid,
            &self.gid,
            &self.mtime_ns,
            &self.ctime_ns,
            &self.generation,
            &self.nlink,
            &self.filesystem,
            &self.inode_flags,
            &self.project,
            &self.flags,
            &self.layout,
        ];
        let large = [
            &self.size,
            &self.mtime_s,
            &self.ctime_s,
            &self.inode,
            &self.rdev,
            &self.offset,
        ];
        let strings = [
            &self.keys.parents,
            &self.keys.names,
            &self.targets,
            &self.xattrs,
            &self.chunks,
            &self.content_hash,
        ];
        let small: usize = small.iter().map(|values| values.bytes()).sum();
        let large: usize = large.iter().map(|values| values.bytes()).sum();
        let strings: usize = strings.iter().map(|column| column.bytes()).sum();
        let atimes = self.atimes.as_ref().map_or(0, AtimeColumns::bytes);
        size_of::<Segment>() + small + large + strings + atimes
    }

    /// What `stat` told of one of the decoded rows, and where its bytes are: without its path, and
    /// sharing nothing.
    pub fn view(&self, row: usize) -> RowView<'_> {
        let row = row - self.rows.start;
        RowView {
            kind: Kind::from_number(self.kind.get(row)).expect("checked by decode"),
            mode: self.mode.get(row) as u32,
            uid: self.uid.get(row) as u32,
            gid: self.gid.get(row) as u32,
            size: self.size.get(row) as u64,
            mtime: Time {
                seconds: self.mtime_s.get(row),
                nanos: self.mtime_ns.get(row) as u32,
            },
            ctime: Time {
                seconds: self.ctime_s.get(row),
                nanos: self.ctime_ns.get(row) as u32,
            },
            inode: self.inode.get(row) as u64,
            nlink: self.nlink.get(row) as u32,
            filesystem: self.filesystem.get(row) as u32,
            rdev: self.rdev.get(row) as u64,
            xattrs: self.xattrs.get(row),
            flags: EntryFlags(self.flags.get(row) as u32),
            content: self.content(row),
        }
    }

    /// The hash of the content of one of the decoded rows, if it has one.
    pub fn content_hash(&self, row: usize) -> Option<[u8; 16]> {
        let row = row - self.rows.start;
        self.content_hash.get(row).try_into().ok()
    }

    /// When one of the decoded rows was last accessed, if that is stored.
    pub fn atime(&self, row: usize) -> Option<Time> {
        self.atimes.as_ref()?.get(row - self.rows.start)
    }

    /// One of the decoded rows. Its byte strings keep the segment's buffers alive.
    pub fn entry(&self, row: usize) -> Entry {
        let (parent, name) = (self.keys.parents.shared(row), self.keys.names.shared(row));
        let view = self.view(row);
        let atime = self.atime(row).into();
        let row = row - self.rows.start;
        Entry {
            parent,
            name,
            kind: view.kind,
            mode: view.mode,
            uid: view.uid,
            gid: view.gid,
            size: view.size,
            mtime: view.mtime,
            ctime: view.ctime,
            atime,
            inode: view.inode,
            generation: self.generation.get(row) as u32,
            nlink: view.nlink,
            filesystem: view.filesystem,
            rdev: view.rdev,
            target: self.targets.get(row).into(),
            xattrs: self.xattrs.shared(row),
            inode_flags: self.inode_flags.get(row) as u32,
            project: self.project.get(row) as u32,
            flags: view.flags,
            content: view.content,
            content_hash: self.content_hash.get(row).try_into().ok(),
        }
    }

    /// `row` counts from the first one decoded.
    fn content(&self, row: usize) -> Content {
        let chunk = || ChunkId(self.chunks.get(row).try_into().expect("checked by decode"));
        match self.layout.get(row) {
            1 => Content::Bundled {
                chunk: chunk(),
                offset: self.offset.get(row) as u32,
            },
            2 => Content::Pieces { list: chunk() },
            3 => Content::Image,
            _ => Content::None,
        }
    }

    /// Rows of a range, in order.
    pub fn entries(&self, rows: Range<usize>) -> impl Iterator<Item = Entry> + '_ {
        rows.map(|row| self.entry(row))
    }
}

#[cfg(test)]
mod tests;
