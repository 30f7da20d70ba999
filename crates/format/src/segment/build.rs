//! Makes segments from entries.
//!
//! Rows are collected by column, about 150 bytes a row, and encoded in one go. The bytes depend on the rows alone.

use super::{ParentStep, ROWS_MAX, SEGMENT_BYTES_MAX, SegmentError, check_entry};
use crate::entry::{Content, Entry, EntryFlags, Key, Kind};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, Repetition, Type as PhysicalType};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type, TypePtr};
use std::ops::Range;
use std::sync::{Arc, LazyLock};

/// Rows of a page: a look-up decodes one page of a column, so it is small; smaller ones cost space.
const PAGE_ROWS: usize = 8192;
/// Never reached by a page of [`PAGE_ROWS`] usual rows; keeps pages of long paths apart.
const PAGE_BYTES: usize = 1 << 20;
/// Values that the Parquet writer takes at once.
const WRITE_BATCH_ROWS: usize = 1024;

/// How a column is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Integers of few different values.
    Dictionary32,
    /// 32-bit integers near their neighbours.
    Delta32,
    /// 64-bit integers of few different values.
    Dictionary64,
    /// 64-bit integers near their neighbours.
    Delta64,
    /// Byte strings of few different values.
    DictionaryBytes,
    /// Byte strings that begin as their neighbours do.
    PrefixBytes,
    /// Byte strings that have nothing in common.
    PlainBytes,
}

/// Names and forms of all columns, in the order of the file.
const COLUMNS: [(&str, Form); 25] = [
    ("parent", Form::PrefixBytes),
    ("name", Form::PrefixBytes),
    ("kind", Form::Dictionary32),
    ("mode", Form::Dictionary32),
    ("uid", Form::Dictionary32),
    ("gid", Form::Dictionary32),
    ("size", Form::Delta64),
    ("mtime_s", Form::Delta64),
    ("mtime_ns", Form::Delta32),
    ("ctime_s", Form::Delta64),
    ("ctime_ns", Form::Delta32),
    ("inode", Form::Delta64),
    ("generation", Form::Delta32),
    ("nlink", Form::Dictionary32),
    ("filesystem", Form::Dictionary32),
    ("rdev", Form::Dictionary64),
    ("target", Form::PrefixBytes),
    ("xattrs", Form::DictionaryBytes),
    ("inode_flags", Form::Dictionary32),
    ("project", Form::Dictionary32),
    ("flags", Form::Dictionary32),
    ("layout", Form::Dictionary32),
    ("chunk", Form::PrefixBytes),
    ("offset", Form::Delta64),
    ("content_hash", Form::PlainBytes),
];

static SCHEMA: LazyLock<TypePtr> = LazyLock::new(|| {
    let column = |(name, form): &(&str, Form)| {
        let physical = match form {
            Form::Dictionary32 | Form::Delta32 => PhysicalType::INT32,
            Form::Dictionary64 | Form::Delta64 => PhysicalType::INT64,
            Form::DictionaryBytes | Form::PrefixBytes | Form::PlainBytes => {
                PhysicalType::BYTE_ARRAY
            }
        };
        let built = Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .build();
        Arc::new(built.expect("a required column without a logical type is always valid"))
    };
    let built = Type::group_type_builder("entry")
        .with_fields(COLUMNS.iter().map(column).collect())
        .build();
    Arc::new(built.expect("a group of columns with different names is always valid"))
});

static PROPERTIES: LazyLock<Arc<WriterProperties>> = LazyLock::new(|| {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by("bale".to_string())
        .set_compression(Compression::UNCOMPRESSED)
        .set_statistics_enabled(EnabledStatistics::None)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false)
        .set_dictionary_page_size_limit(PAGE_BYTES)
        .set_data_page_size_limit(PAGE_BYTES)
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(WRITE_BATCH_ROWS)
        .set_max_row_group_row_count(Some(ROWS_MAX));
    for (name, form) in &COLUMNS {
        let path = ColumnPath::new(vec![name.to_string()]);
        // With a dictionary, the encoding is what is used once the dictionary is full.
        let (dictionary, encoding) = match form {
            Form::Dictionary32 | Form::Dictionary64 => (true, Encoding::DELTA_BINARY_PACKED),
            Form::Delta32 | Form::Delta64 => (false, Encoding::DELTA_BINARY_PACKED),
            Form::DictionaryBytes => (true, Encoding::DELTA_LENGTH_BYTE_ARRAY),
            Form::PrefixBytes => (false, Encoding::DELTA_BYTE_ARRAY),
            Form::PlainBytes => (false, Encoding::DELTA_LENGTH_BYTE_ARRAY),
        };
        properties = properties
            .set_column_encoding(path.clone(), encoding)
            .set_column_dictionary_enabled(path, dictionary);
    }
    Arc::new(properties.build())
});

/// Collects rows in order and encodes them.
#[derive(Default)]
pub struct SegmentBuilder {
    /// Distinct parents, one after the other, and each row's among them.
    parents: Strings,
    parent_of: Vec<u32>,
    names: Strings,
    kind: Vec<i32>,
    mode: Vec<i32>,
    uid: Vec<i32>,
    gid: Vec<i32>,
    size: Vec<i64>,
    mtime_s: Vec<i64>,
    mtime_ns: Vec<i32>,
    ctime_s: Vec<i64>,
    ctime_ns: Vec<i32>,
    inode: Vec<i64>,
    generation: Vec<i32>,
    nlink: Vec<i32>,
    filesystem: Vec<i32>,
    rdev: Vec<i64>,
    targets: Strings,
    xattrs: Strings,
    inode_flags: Vec<i32>,
    project: Vec<i32>,
    flags: Vec<i32>,
    layout: Vec<i32>,
    chunks: Strings,
    offset: Vec<i64>,
    content_hash: Strings,
}

impl SegmentBuilder {
    /// Without rows.
    pub fn new() -> SegmentBuilder {
        SegmentBuilder::default()
    }

    /// Adds a row after those before. An entry that a reader would refuse is refused here and changes nothing.
    pub fn push(&mut self, entry: &Entry) -> Result<(), SegmentError> {
        if self.rows() >= ROWS_MAX {
            return Err(SegmentError::TooLarge {
                rows: self.rows() + 1,
                bytes: 0,
            });
        }
        let step = ParentStep::of(self.last(), entry);
        check_entry(step, entry).map_err(|reason| SegmentError::Refused {
            path: entry.path(),
            reason,
        })?;
        self.push_columns(entry, step);
        Ok(())
    }

    fn push_columns(&mut self, entry: &Entry, step: ParentStep) {
        if matches!(step, ParentStep::Other { .. }) {
            self.parents.push(&entry.parent);
        }
        self.parent_of.push(self.parents.len() as u32 - 1);
        self.names.push(&entry.name);
        self.kind.push(entry.kind as i32);
        self.mode.push(entry.mode as i32);
        self.uid.push(entry.uid as i32);
        self.gid.push(entry.gid as i32);
        self.size.push(entry.size as i64);
        self.mtime_s.push(entry.mtime.seconds);
        self.mtime_ns.push(entry.mtime.nanos as i32);
        self.ctime_s.push(entry.ctime.seconds);
        self.ctime_ns.push(entry.ctime.nanos as i32);
        self.inode.push(entry.inode as i64);
        self.generation.push(entry.generation as i32);
        self.nlink.push(entry.nlink as i32);
        self.filesystem.push(entry.filesystem as i32);
        self.rdev.push(entry.rdev as i64);
        self.targets.push(&entry.target);
        self.xattrs.push(&entry.xattrs);
        self.inode_flags.push(entry.inode_flags as i32);
        self.project.push(entry.project as i32);
        self.flags.push(entry.flags.0 as i32);
        self.push_content(entry);
    }

    /// Adds a row that no reader may accept.
    #[cfg(test)]
    pub(super) fn push_unchecked(&mut self, entry: &Entry) {
        self.push_columns(entry, ParentStep::of(self.last(), entry));
    }

    fn push_content(&mut self, entry: &Entry) {
        let (layout, chunk, offset) = match &entry.content {
            Content::None => (0, &[][..], 0),
            Content::Bundled { chunk, offset } => (1, &chunk.0[..], *offset),
            Content::Pieces { list } => (2, &list.0[..], 0),
        };
        self.layout.push(layout);
        self.chunks.push(chunk);
        self.offset.push(i64::from(offset));
        self.content_hash
            .push(entry.content_hash.as_ref().map_or(&[][..], |hash| hash));
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.kind.len()
    }

    /// Bytes of the regular files of some rows, as a segment reference states them.
    pub fn file_bytes(&self, rows: Range<usize>) -> u64 {
        let is_file = |row: &usize| {
            self.kind[*row] == Kind::File as i32
                && !EntryFlags(self.flags[*row] as u32).has(EntryFlags::REMOVED)
        };
        rows.filter(is_file)
            .fold(0, |sum, row| self.size[row] as u64 + sum)
    }

    /// Key of a row.
    pub fn key(&self, row: usize) -> Key {
        Key {
            parent: Bytes::copy_from_slice(self.parents.get(self.parent_of[row] as usize)),
            name: Bytes::copy_from_slice(self.names.get(row)),
        }
    }

    fn last(&self) -> Option<(&[u8], &[u8])> {
        Some((self.parents.last()?, self.names.last()?))
    }

    /// Encodes all rows and forgets them. There must be one at least.
    pub fn finish(&mut self) -> Result<Vec<u8>, SegmentError> {
        let bytes = self.encode(0..self.rows())?;
        self.clear();
        Ok(bytes)
    }

    /// Forgets all rows, keeping the memory.
    pub fn clear(&mut self) {
        for column in self.columns_32() {
            column.clear();
        }
        for column in [
            &mut self.size,
            &mut self.mtime_s,
            &mut self.ctime_s,
            &mut self.inode,
            &mut self.rdev,
            &mut self.offset,
        ] {
            column.clear();
        }
        self.parent_of.clear();
        for column in [
            &mut self.parents,
            &mut self.names,
            &mut self.targets,
            &mut self.xattrs,
            &mut self.chunks,
            &mut self.content_hash,
        ] {
            column.clear();
        }
    }

    fn columns_32(&mut self) -> [&mut Vec<i32>; 13] {
        [
            &mut self.kind,
            &mut self.mode,
            &mut self.uid,
            &mut self.gid,
            &mut self.mtime_ns,
            &mut self.ctime_ns,
            &mut self.generation,
            &mut self.nlink,
            &mut self.filesystem,
            &mut self.inode_flags,
            &mut self.project,
            &mut self.flags,
            &mut self.layout,
        ]
    }

    /// Encodes some of the rows, at least one, as a segment of their own.
    pub fn encode(&self, rows: Range<usize>) -> Result<Vec<u8>, SegmentError> {
        assert!(!rows.is_empty(), "a segment has at least one row");
        let bytes = self
            .encode_columns(&rows)
            .map_err(|error| SegmentError::Encode(error.to_string()))?;
        match bytes.len() <= SEGMENT_BYTES_MAX {
            true => Ok(bytes),
            false => Err(SegmentError::TooLarge {
                rows: rows.len(),
                bytes: bytes.len(),
            }),
        }
    }

    fn encode_columns(&self, rows: &Range<usize>) -> parquet::errors::Result<Vec<u8>> {
        let file = Vec::with_capacity(64 * rows.len() + 8192);
        let mut file = SerializedFileWriter::new(file, SCHEMA.clone(), PROPERTIES.clone())?;
        let mut group = file.next_row_group()?;
        let distinct = self.parents.shared(0..self.parents.len());
        let parents = self.parent_of[rows.clone()].iter();
        let parents = parents
            .map(|at| distinct[*at as usize].clone())
            .collect::<Vec<_>>();
        write::<ByteArrayType>(&mut group, &parents)?;
        write::<ByteArrayType>(&mut group, &self.names.shared(rows.clone()))?;
        write::<Int32Type>(&mut group, &self.kind[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.mode[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.uid[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.gid[rows.clone()])?;
        write::<Int64Type>(&mut group, &self.size[rows.clone()])?;
        write::<Int64Type>(&mut group, &self.mtime_s[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.mtime_ns[rows.clone()])?;
        write::<Int64Type>(&mut group, &self.ctime_s[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.ctime_ns[rows.clone()])?;
        write::<Int64Type>(&mut group, &self.inode[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.generation[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.nlink[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.filesystem[rows.clone()])?;
        write::<Int64Type>(&mut group, &self.rdev[rows.clone()])?;
        write::<ByteArrayType>(&mut group, &self.targets.shared(rows.clone()))?;
        write::<ByteArrayType>(&mut group, &self.xattrs.shared(rows.clone()))?;
        write::<Int32Type>(&mut group, &self.inode_flags[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.project[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.flags[rows.clone()])?;
        write::<Int32Type>(&mut group, &self.layout[rows.clone()])?;
        write::<ByteArrayType>(&mut group, &self.chunks.shared(rows.clone()))?;
        write::<Int64Type>(&mut group, &self.offset[rows.clone()])?;
        write::<ByteArrayType>(&mut group, &self.content_hash.shared(rows.clone()))?;
        group.close()?;
        file.into_inner()
    }
}

fn write<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
) -> parquet::errors::Result<()> {
    let mut column = group
        .next_column()?
        .expect("the schema has a column for every call");
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

/// Byte strings, one after the other in one buffer.
#[derive(Default)]
struct Strings {
    data: Vec<u8>,
    ends: Vec<usize>,
}

impl Strings {
    fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.ends.push(self.data.len());
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn clear(&mut self) {
        self.data.clear();
        self.ends.clear();
    }

    fn range(&self, at: usize) -> Range<usize> {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        start..self.ends[at]
    }

    fn get(&self, at: usize) -> &[u8] {
        &self.data[self.range(at)]
    }

    fn last(&self) -> Option<&[u8]> {
        Some(self.get(self.len().checked_sub(1)?))
    }

    /// Values as the Parquet writer wants them, sharing one copy of the buffer.
    fn shared(&self, rows: Range<usize>) -> Vec<ByteArray> {
        if rows.is_empty() {
            return Vec::new();
        }
        let base = self.range(rows.start).start;
        let data = Bytes::copy_from_slice(&self.data[base..self.ends[rows.end - 1]]);
        rows.map(|at| {
            let range = self.range(at);
            // Empty values, the most of some columns, need not count references.
            ByteArray::from(match range.is_empty() {
                true => Bytes::new(),
                false => data.slice(range.start - base..range.end - base),
            })
        })
        .collect()
    }
}
