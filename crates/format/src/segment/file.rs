//! The frame of a segment: pages, their headers, and the footer of a Parquet file.
//!
//! Headers are Thrift structs in the compact protocol. Only what a reader needs is written: no
//! statistics, no indexes.

use super::encode::{push_varint, push_zigzag};

const MAGIC: &[u8; 4] = b"PAR1";
/// Version of Parquet that data pages are of.
const VERSION: i64 = 2;
const CREATED_BY: &[u8] = b"bale";

const PAGE_DICTIONARY: i64 = 2;
const PAGE_DATA_V2: i64 = 3;

/// Types of the compact protocol.
const FALSE: u8 = 2;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Physical types. The numbers are Parquet's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Physical {
    Int32 = 1,
    Int64 = 2,
    Bytes = 6,
}

/// Encodings. The numbers are Parquet's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Plain = 0,
    Rle = 3,
    Deltas = 5,
    DeltaLengthStrings = 6,
    DeltaStrings = 7,
    Dictionary = 8,
}

/// A file being written: columns in order, each `begin_column` and then its pages.
pub(super) struct File {
    bytes: Vec<u8>,
    columns: Vec<Column>,
}

struct Column {
    name: &'static str,
    physical: Physical,
    encoding: Encoding,
    rows: usize,
    start: usize,
    data_start: Option<usize>,
    end: usize,
}

impl File {
    /// With room for so many bytes.
    pub(super) fn new(capacity: usize) -> File {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend_from_slice(MAGIC);
        File {
            bytes,
            columns: Vec::new(),
        }
    }

    /// The pages that follow are of this column.
    pub(super) fn begin_column(
        &mut self,
        name: &'static str,
        physical: Physical,
        encoding: Encoding,
    ) {
        self.columns.push(Column {
            name,
            physical,
            encoding,
            rows: 0,
            start: self.bytes.len(),
            data_start: None,
            end: self.bytes.len(),
        });
    }

    /// The values that the column's indices stand for: before all other pages of it.
    pub(super) fn dictionary_page(&mut self, values: usize, body: &[u8]) {
        let mut header = Struct::new(&mut self.bytes);
        header.integer(1, I32, PAGE_DICTIONARY);
        header.integer(2, I32, body.len() as i64);
        header.integer(3, I32, body.len() as i64);
        header.nested(7, |page| {
            page.integer(1, I32, values as i64);
            page.integer(2, I32, Encoding::Plain as i64);
            page.flag(3, FALSE);
        });
        header.end();
        self.bytes.extend_from_slice(body);
    }

    /// Rows of the column, in its encoding.
    pub(super) fn data_page(&mut self, rows: usize, body: &[u8]) {
        let start = self.bytes.len();
        let column = self.columns.last_mut().expect("a page follows its column");
        column.data_start.get_or_insert(start);
        column.rows += rows;
        let encoding = column.encoding;
        let mut header = Struct::new(&mut self.bytes);
        header.integer(1, I32, PAGE_DATA_V2);
        header.integer(2, I32, body.len() as i64);
        header.integer(3, I32, body.len() as i64);
        header.nested(8, |page| {
            page.integer(1, I32, rows as i64);
            page.integer(2, I32, 0);
            page.integer(3, I32, rows as i64);
            page.integer(4, I32, encoding as i64);
            page.integer(5, I32, 0);
            page.integer(6, I32, 0);
            page.flag(7, FALSE);
        });
        header.end();
        self.bytes.extend_from_slice(body);
        column.end = self.bytes.len();
    }

    /// Appends the footer.
    pub(super) fn finish(mut self, rows: usize) -> Vec<u8> {
        let start = self.bytes.len();
        let columns = &self.columns;
        let pages_bytes = (start - MAGIC.len()) as i64;
        let mut footer = Struct::new(&mut self.bytes);
        footer.integer(1, I32, VERSION);
        footer.list(2, STRUCT, columns.len() + 1, |out| {
            let mut root = Struct::new(out);
            root.binary(4, b"entry");
            root.integer(5, I32, columns.len() as i64);
            root.end();
            columns.iter().for_each(|column| column.write_schema(out));
        });
        footer.integer(3, I64, rows as i64);
        footer.list(4, STRUCT, 1, |out| {
            let mut group = Struct::new(out);
            group.list(1, STRUCT, columns.len(), |out| {
                columns.iter().for_each(|column| column.write_chunk(out));
            });
            group.integer(2, I64, pages_bytes);
            group.integer(3, I64, rows as i64);
            group.end();
        });
        footer.binary(6, CREATED_BY);
        footer.end();
        let footer_bytes = (self.bytes.len() - start) as u32;
        self.bytes.extend_from_slice(&footer_bytes.to_le_bytes());
        self.bytes.extend_from_slice(MAGIC);
        self.bytes
    }
}

impl Column {
    fn write_schema(&self, out: &mut Vec<u8>) {
        let mut element = Struct::new(out);
        element.integer(1, I32, self.physical as i64);
        // Required.
        element.integer(3, I32, 0);
        element.binary(4, self.name.as_bytes());
        element.end();
    }

    fn write_chunk(&self, out: &mut Vec<u8>) {
        let data_start = self.data_start.unwrap_or(self.start);
        let has_dictionary = data_start != self.start;
        let mut chunk = Struct::new(out);
        chunk.integer(2, I64, 0);
        chunk.nested(3, |meta| {
            meta.integer(1, I32, self.physical as i64);
            let mut encodings = vec![self.encoding as i64, Encoding::Rle as i64];
            encodings.extend(has_dictionary.then_some(Encoding::Plain as i64));
            encodings.sort_unstable();
            meta.list(2, I32, encodings.len(), |out| {
                for encoding in &encodings {
                    push_zigzag(*encoding, out);
                }
            });
            meta.list(3, BINARY, 1, |out| push_binary(self.name.as_bytes(), out));
            // Not compressed.
            meta.integer(4, I32, 0);
            meta.integer(5, I64, self.rows as i64);
            meta.integer(6, I64, (self.end - self.start) as i64);
            meta.integer(7, I64, (self.end - self.start) as i64);
            meta.integer(9, I64, data_start as i64);
            if has_dictionary {
                meta.integer(11, I64, self.start as i64);
            }
        });
        chunk.end();
    }
}

/// A Thrift struct being written; fields in rising order.
struct Struct<'a> {
    out: &'a mut Vec<u8>,
    last_id: u8,
}

impl<'a> Struct<'a> {
    fn new(out: &'a mut Vec<u8>) -> Struct<'a> {
        Struct { out, last_id: 0 }
    }

    /// All fields here are less than 16 apart, so that head and type share a byte.
    fn head(&mut self, id: u8, kind: u8) {
        self.out.push((id - self.last_id) << 4 | kind);
        self.last_id = id;
    }

    fn integer(&mut self, id: u8, kind: u8, value: i64) {
        self.head(id, kind);
        push_zigzag(value, self.out);
    }

    fn flag(&mut self, id: u8, value: u8) {
        self.head(id, value);
    }

    fn binary(&mut self, id: u8, value: &[u8]) {
        self.head(id, BINARY);
        push_binary(value, self.out);
    }

    fn nested(&mut self, id: u8, fields: impl FnOnce(&mut Struct<'_>)) {
        self.head(id, STRUCT);
        let mut nested = Struct::new(self.out);
        fields(&mut nested);
        nested.end();
    }

    fn list(&mut self, id: u8, kind: u8, count: usize, elements: impl FnOnce(&mut Vec<u8>)) {
        self.head(id, LIST);
        if count < 15 {
            self.out.push((count as u8) << 4 | kind);
        } else {
            self.out.push(0xf0 | kind);
            push_varint(count as u64, self.out);
        }
        elements(self.out);
    }

    fn end(self) {
        self.out.push(0);
    }
}

fn push_binary(value: &[u8], out: &mut Vec<u8>) {
    push_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}
