//! Segments: a stretch of a catalog's rows as one small Parquet file.
//!
//! Equal rows give equal bytes, so an unchanged stretch is the same chunk in every snapshot. Reading trusts nothing:
//! a segment that decodes has valid names, kinds and layouts in strictly increasing order, and unfolds to a bounded
//! number of bytes. Columns and bounds: docs/FORMAT.md, section 8. Where a catalog is cut is decided elsewhere.

mod build;
mod encode;
mod file;
mod pages;
mod pointers;
mod thrift;
mod values;

pub use build::SegmentBuilder;
pub use pointers::{Pointer, pointers};

use crate::entry::{Content, Entry, EntryFlags, Key, Kind, Time, compare_keys, compare_parents};
use crate::id::ChunkId;
use pages::Columns;
use std::cmp::Ordering;
use std::ops::Range;
use values::{BytesColumn, Values};

/// Rows of a segment.
pub const ROWS_MAX: usize = 131_072;
/// Bytes of a segment as stored: those of a chunk.
pub const SEGMENT_BYTES_MAX: usize = 16 << 20;
/// Length of a parent path.
pub const PARENT_BYTES_MAX: usize = 4 << 20;
/// Length of a name.
pub const NAME_BYTES_MAX: usize = 255;
/// Length of a symlink's target.
pub const TARGET_BYTES_MAX: usize = 65_535;
/// Length of an inline set of extended attributes, with its first byte.
pub const XATTRS_BYTES_MAX: usize = (1 << 20) + 1;
/// Bytes of one column of byte strings, after decoding.
pub const DECODED_BYTES_MAX: usize = 64 << 20;

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

/// The keys of a segment's rows, without the rest: for look-ups.
#[derive(Clone, Debug)]
pub struct SegmentKeys {
    parents: BytesColumn,
    names: BytesColumn,
}

impl SegmentKeys {
    /// Reads and checks the key columns of an untrusted segment.
    pub fn decode(file: &[u8]) -> Result<SegmentKeys, SegmentError> {
        SegmentKeys::read(&Columns::open(file)?)
    }

    fn read(columns: &Columns<'_>) -> Result<SegmentKeys, SegmentError> {
        let keys = SegmentKeys {
            parents: columns.bytes("parent", &(0..columns.rows))?,
            names: columns.bytes("name", &(0..columns.rows))?,
        };
        for row in 0..keys.rows() {
            keys.check(row).map_err(SegmentError::Damaged)?;
        }
        Ok(keys)
    }

    /// Checks a row's key, and its order after the row before.
    fn check(&self, row: usize) -> Result<(), &'static str> {
        let (parent, name) = (self.parent(row), self.name(row));
        check_name(parent, name)?;
        let before = row.checked_sub(1);
        if before
            .is_some_and(|before| self.parents.spans.get(before) == self.parents.spans.get(row))
        {
            // Same parent: checked already, and most rows come this way.
            if self.name(row - 1) >= name {
                return Err("rows are not in order");
            }
            return Ok(());
        }
        check_parent(parent)?;
        if let Some(before) = before
            && compare_keys(self.parent(before), self.name(before), parent, name) != Ordering::Less
        {
            return Err("rows are not in order");
        }
        Ok(())
    }

    /// Number of rows; never 0.
    pub fn rows(&self) -> usize {
        self.names.spans.rows()
    }

    /// Parent of a row.
    pub fn parent(&self, row: usize) -> &[u8] {
        self.parents.get(row)
    }

    /// Name of a row.
    pub fn name(&self, row: usize) -> &[u8] {
        self.names.get(row)
    }

    /// Key of a row, sharing the segment's bytes.
    pub fn key(&self, row: usize) -> Key {
        Key {
            parent: self.parents.shared(row),
            name: self.names.shared(row),
        }
    }

    /// The row of a key, or where it would be.
    pub fn find(&self, key: &Key) -> Result<usize, usize> {
        let row = self.lower_bound(key);
        let found =
            row < self.rows() && self.parent(row) == key.parent && self.name(row) == key.name;
        if found { Ok(row) } else { Err(row) }
    }

    /// The first row at or after a key.
    pub fn lower_bound(&self, key: &Key) -> usize {
        self.partition(|parent, name| {
            compare_keys(parent, name, &key.parent, &key.name) == Ordering::Less
        })
    }

    /// Number of rows at the beginning for which `before` holds; it must hold for no row after one where it does not.
    pub fn partition(&self, before: impl Fn(&[u8], &[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.rows());
        while low < high {
            let middle = low + (high - low) / 2;
            match before(self.parent(middle), self.name(middle)) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }
}

/// What of a row is compared with what is there now: its fields are those of [`Entry`].
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "documented at Entry")]
pub struct Glance<'a> {
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

impl Glance<'_> {
    /// Is this one of several names of one inode?
    pub fn is_hard_link(&self) -> bool {
        self.nlink > 1 && self.kind != Kind::Directory
    }
}

/// A decoded segment, checked: the keys of all rows, and all columns of the rows that were asked for. Entries share its
/// bytes.
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

    /// Reads and checks the keys, and of the other columns only the pages with the rows that `choose` wants: a look-up of
    /// one row costs its keys and 25 pages. Other rows must not be asked for.
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
            (0, _, 0) if offset == 0 => Ok(()),
            (1, Kind::File, 32) => check_bundled(offset, size),
            (2, Kind::File, 32) if offset == 0 => Ok(()),
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

    /// What `stat` told of one of the decoded rows, and where its bytes are: without its path, and sharing nothing.
    pub fn glance(&self, row: usize) -> Glance<'_> {
        let row = row - self.rows.start;
        Glance {
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

    /// One of the decoded rows. Its byte strings keep the segment's buffers alive.
    pub fn entry(&self, row: usize) -> Entry {
        let (parent, name) = (self.keys.parents.shared(row), self.keys.names.shared(row));
        let told = self.glance(row);
        let row = row - self.rows.start;
        Entry {
            parent,
            name,
            kind: told.kind,
            mode: told.mode,
            uid: told.uid,
            gid: told.gid,
            size: told.size,
            mtime: told.mtime,
            ctime: told.ctime,
            inode: told.inode,
            generation: self.generation.get(row) as u32,
            nlink: told.nlink,
            filesystem: told.filesystem,
            rdev: told.rdev,
            target: self.targets.shared(row),
            xattrs: self.xattrs.shared(row),
            inode_flags: self.inode_flags.get(row) as u32,
            project: self.project.get(row) as u32,
            flags: told.flags,
            content: told.content,
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
            _ => Content::None,
        }
    }

    /// Rows of a range, in order.
    pub fn entries(&self, rows: Range<usize>) -> impl Iterator<Item = Entry> + '_ {
        rows.map(|row| self.entry(row))
    }
}

/// A single component that is safe to join to a path, or the empty name of the root row.
fn check_name(parent: &[u8], name: &[u8]) -> Result<(), &'static str> {
    if name.is_empty() && !parent.is_empty() {
        return Err("empty name");
    }
    check_component(name)
}

fn check_component(name: &[u8]) -> Result<(), &'static str> {
    if name.len() > NAME_BYTES_MAX {
        return Err("name is too long");
    }
    if name == b"." || name == b".." {
        return Err("name is a dot or two");
    }
    // Without an early exit the compiler can look at many bytes at once.
    let is_special = |byte: &u8| *byte == 0 || *byte == b'/';
    if name
        .iter()
        .fold(false, |found, byte| found | is_special(byte))
    {
        return Err("name has a slash or a zero byte");
    }
    Ok(())
}

/// Nothing but valid components between single slashes.
fn check_parent(parent: &[u8]) -> Result<(), &'static str> {
    if parent.is_empty() {
        return Ok(());
    }
    if parent.len() > PARENT_BYTES_MAX {
        return Err("parent is too long");
    }
    for component in parent.split(|byte| *byte == b'/') {
        if component.is_empty() {
            return Err("parent has an empty component");
        }
        check_component(component)?;
    }
    Ok(())
}

fn check_strings(target: &[u8], xattrs: &[u8]) -> Result<(), &'static str> {
    if target.len() > TARGET_BYTES_MAX || target.contains(&0) {
        return Err("target of a symlink");
    }
    check_xattrs(xattrs)
}

fn check_xattrs(xattrs: &[u8]) -> Result<(), &'static str> {
    match (xattrs.first(), xattrs.len()) {
        (None, _) | (Some(1), 2..=XATTRS_BYTES_MAX) | (Some(2), 33) => Ok(()),
        _ => Err("form of the extended attributes"),
    }
}

fn check_bundled(offset: u64, size: u64) -> Result<(), &'static str> {
    match offset.checked_add(size) {
        Some(end) if end <= CHUNK_BYTES_MAX => Ok(()),
        _ => Err("bundled file lies outside its chunk"),
    }
}

/// How an entry's parent and the parent of the row before relate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParentStep {
    /// The same; `is_after`: the name is greater.
    Same { is_after: bool },
    /// Another; `is_after`: it is greater.
    Other { is_after: bool },
}

impl ParentStep {
    fn of(before: Option<(&[u8], &[u8])>, entry: &Entry) -> ParentStep {
        match before {
            None => ParentStep::Other { is_after: true },
            Some((parent, name)) if parent == entry.parent => ParentStep::Same {
                is_after: name < &entry.name[..],
            },
            Some((parent, _)) => ParentStep::Other {
                is_after: compare_parents(parent, &entry.parent).is_lt(),
            },
        }
    }
}

/// Checks that an entry may be the next in a segment.
fn check_entry(step: ParentStep, entry: &Entry) -> Result<(), &'static str> {
    check_name(&entry.parent, &entry.name)?;
    match step {
        ParentStep::Same { is_after: true } => {}
        ParentStep::Other { is_after: true } => check_parent(&entry.parent)?,
        _ => return Err("it is not after the one before"),
    }
    if entry.mode > MODE_MAX as u32 {
        return Err("mode has more than twelve bits");
    }
    if entry.mtime.nanos > NANOS_MAX as u32 || entry.ctime.nanos > NANOS_MAX as u32 {
        return Err("nanoseconds out of range");
    }
    if entry.size > i64::MAX as u64 {
        return Err("size is out of range");
    }
    check_strings(&entry.target, &entry.xattrs)?;
    match entry.content {
        Content::None => Ok(()),
        _ if entry.kind != Kind::File => Err("only regular files have content"),
        Content::Bundled { offset, .. } => check_bundled(u64::from(offset), entry.size),
        Content::Pieces { .. } => Ok(()),
    }
}

#[cfg(test)]
mod tests;
