//! CPU time of the parts of a backup that need no disk: cutting, hashing, compressing, sealing,
//! reading back, rows.
//!
//! Counts the time that this thread runs, so that other work on the machine disturbs less. An
//! argument names a file whose bytes stand for the content; without one, half is random and half is
//! text.

use bale_format::chunk::{ChunkKind, Compressor, Decompressor, LEVEL_DEFAULT};
use bale_format::gear::Cutter;
use bale_format::pack::{PackLayout, Payload};
use bale_format::{
    ChunkId, ChunkSizes, Content, Entry, Keys, Kind, RepositoryId, RootKey, Segment,
    SegmentBuilder, Time,
};
use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::reader::ColumnReader;
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::TypePtr;
use std::hint::black_box;
use std::sync::Arc;

const CHUNK_BYTES: usize = 3 << 20;
const FILE_BYTES: usize = 1536;
const ROWS: usize = 40_000;

/// Nanoseconds that this thread has run.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    let first = text.split(' ').next();
    first
        .and_then(|number| number.parse().ok())
        .expect("begins with a number")
}

/// The kernel counts in ticks: work is repeated until it took so long.
const MEASURED_NS_MIN: u64 = 200_000_000;

/// The best of a few.
fn measure(what: &str, bytes: usize, count: usize, mut work: impl FnMut()) {
    let mut best = u64::MAX;
    for _ in 0..5 {
        let (start, mut times, mut spent) = (cpu_ns(), 0, 0);
        while spent < MEASURED_NS_MIN {
            work();
            times += 1;
            spent = cpu_ns() - start;
        }
        best = best.min(spent / times);
    }
    let per = |number: usize| best as f64 / number as f64;
    println!(
        "{what:28} {:8.0} MB/s {:9.0} ns each, {:6.3} s for 1.5 GB",
        1000.0 / per(bytes),
        per(count),
        per(bytes) * 1.536,
    );
}

fn random(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new()
        .update(b"random")
        .finalize_xof()
        .fill(&mut bytes);
    bytes
}

fn text(len: usize) -> Vec<u8> {
    const WORDS: [&str; 16] = [
        "the ",
        "mail ",
        "from: ",
        "subject ",
        "<div>",
        "return ",
        "if (x == NULL) ",
        "0.0.0.0 ",
        "index ",
        "value=",
        "\n",
        "struct ",
        "{ \"id\": ",
        "config ",
        "error: ",
        "2024-01-",
    ];
    let choices = random(len);
    let mut bytes = Vec::with_capacity(len + 32);
    for choice in choices.chunks_exact(4).cycle() {
        bytes.extend_from_slice(WORDS[usize::from(choice[0] & 15)].as_bytes());
        if choice[1] & 7 == 0 {
            let number = u32::from_le_bytes([choice[0], choice[1], choice[2], 0]);
            bytes.extend_from_slice(format!("{number} ").as_bytes());
        }
        if bytes.len() >= len {
            break;
        }
    }
    bytes.truncate(len);
    bytes
}

fn store(name: &str, keys: &Keys, plain: &[u8]) {
    let chunks = plain.len() / CHUNK_BYTES;
    let plains: Vec<&[u8]> = plain.chunks_exact(CHUNK_BYTES).collect();
    let mut compressor = Compressor::new(LEVEL_DEFAULT);
    let mut compressed_bytes = 0;
    measure(&format!("{name}: compress"), plain.len(), chunks, || {
        compressed_bytes = 0;
        for plain in &plains {
            let (_, bytes) = compressor.compress(ChunkKind::Data, plain);
            compressed_bytes += black_box(bytes).len();
        }
    });
    println!("{name}: {} bytes become {compressed_bytes}", plain.len());
    let mut layout = PackLayout::new(keys, [1; 32]);
    let mut decompressor = Decompressor::new();
    let mut buffer = Vec::new();
    let ids: Vec<ChunkId> = plains
        .iter()
        .map(|plain| keys.chunk_id(ChunkKind::Data, plain))
        .collect();
    let mut records = Vec::new();
    for (plain, id) in plains.iter().zip(&ids) {
        let (codec, bytes) = compressor.compress(ChunkKind::Data, plain);
        let payload = Payload {
            codec,
            bytes,
            plain_bytes: plain.len(),
        };
        let mut record = Vec::new();
        let entry = layout
            .push(*id, ChunkKind::Data, &payload, &mut record)
            .expect("fits");
        records.push((entry, record, bytes.to_vec()));
    }
    measure(&format!("{name}: seal"), plain.len(), chunks, || {
        for (entry, _, bytes) in &records {
            buffer.clear();
            layout.key().seal_record(entry, bytes, &mut buffer);
        }
    });
    measure(&format!("{name}: read back"), plain.len(), chunks, || {
        for (entry, record, _) in &records {
            let verified = layout
                .key()
                .verify_record(keys, entry, record, &mut decompressor);
            verified.expect("just sealed");
        }
    });
    measure(
        &format!("{name}: hash the pack"),
        plain.len(),
        chunks,
        || {
            let mut hasher = blake3::Hasher::new();
            for (_, record, _) in &records {
                hasher.update(record);
            }
            black_box(hasher.finalize());
        },
    );
}

fn rows() {
    let directory = |n: usize| {
        Bytes::from(format!(
            "tree/d{:03}-{:05x}",
            n / 9000,
            n / 90 * 977 % 99_991
        ))
    };
    let mut entries: Vec<Entry> = (0..ROWS)
        .map(|n| {
            let mut entry = Entry::new(
                directory(n),
                format!("f{:04}-{:x}", n % 90, n * 7919).into(),
                Kind::File,
            );
            let mixed = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (entry.mode, entry.size, entry.inode) =
                (0o644, 1024 + (mixed >> 54), 12 + mixed % 1_000_000);
            entry.mtime = Time {
                seconds: 1_700_000_000 + n as i64 / 30_000,
                nanos: (mixed >> 35) as u32,
            };
            entry.ctime = entry.mtime;
            entry.generation = mixed as u32;
            entry.content = Content::Bundled {
                chunk: ChunkId([(n / 2000) as u8; 32]),
                offset: (n % 2000 * 1500) as u32,
            };
            let hash = mixed.wrapping_mul(mixed | 1).to_le_bytes();
            entry.content_hash = Some(
                [hash, mixed.to_le_bytes()]
                    .concat()
                    .try_into()
                    .expect("16 bytes"),
            );
            entry
        })
        .collect();
    entries.sort_by_key(Entry::key);
    entries.dedup_by_key(|entry| entry.key());
    let mut builder = SegmentBuilder::new();
    measure("rows: collect", ROWS * FILE_BYTES, ROWS, || {
        builder.clear();
        for entry in &entries {
            builder.push(entry).expect("valid");
        }
    });
    let mut segment = Vec::new();
    measure("rows: encode", ROWS * FILE_BYTES, ROWS, || {
        segment = builder.encode(0..builder.rows()).expect("fits");
    });
    let hash = blake3::hash(&segment);
    println!(
        "rows: {} rows, {} bytes, {hash}",
        entries.len(),
        segment.len()
    );
    measure("rows: decode", ROWS * FILE_BYTES, ROWS, || {
        black_box(Segment::decode(&segment).expect("just encoded"));
    });
    by_parquet(&segment);
    let mut compressor = Compressor::new(LEVEL_DEFAULT);
    let mut compressed_bytes = 0;
    measure("rows: compress", ROWS * FILE_BYTES, ROWS, || {
        compressed_bytes = compressor.compress(ChunkKind::Segment, &segment).1.len();
    });
    println!("rows: {compressed_bytes} bytes compressed");
}

/// A column as the parquet crate has it.
enum Column {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Bytes(Vec<ByteArray>),
}

/// The same rows, read and written by the parquet crate (docs/decisions/0013), without the checks
/// of [`Segment::decode`].
fn by_parquet(segment: &[u8]) {
    let file = Bytes::copy_from_slice(segment);
    let reader = SerializedFileReader::new(file.clone()).expect("a segment is a Parquet file");
    let schema = reader.metadata().file_metadata().schema_descr();
    let mut properties = WriterProperties::builder()
        .set_statistics_enabled(EnabledStatistics::None)
        .set_dictionary_enabled(false);
    for column in reader.metadata().row_group(0).columns() {
        let path = column.column_path().clone();
        let encodings: Vec<_> = column.encodings().collect();
        let is_delta = |encoding: &&Encoding| encoding.to_string().starts_with("DELTA");
        properties = match encodings.iter().find(is_delta) {
            Some(encoding) => properties.set_column_encoding(path, *encoding),
            None => properties.set_column_dictionary_enabled(path, true),
        };
    }
    let properties = Arc::new(properties.build());
    let mut columns = Vec::new();
    measure("rows: decode by parquet", ROWS * FILE_BYTES, ROWS, || {
        columns = read_columns(file.clone()).expect("a segment is a Parquet file");
    });
    let mut written = Vec::new();
    measure("rows: encode by parquet", ROWS * FILE_BYTES, ROWS, || {
        written = write_columns(schema.root_schema_ptr(), properties.clone(), &columns)
            .expect("it was read like that");
    });
    println!("rows: {} bytes by parquet", written.len());
}

fn read_columns(file: Bytes) -> parquet::errors::Result<Vec<Column>> {
    let reader = SerializedFileReader::new(file)?;
    let group = reader.get_row_group(0)?;
    let rows = group.metadata().num_rows() as usize;
    let column = |at| {
        Ok(match group.get_column_reader(at)? {
            ColumnReader::Int32ColumnReader(mut reader) => {
                let mut values = Vec::with_capacity(rows);
                reader.read_records(rows, None, None, &mut values)?;
                Column::Int32(values)
            }
            ColumnReader::Int64ColumnReader(mut reader) => {
                let mut values = Vec::with_capacity(rows);
                reader.read_records(rows, None, None, &mut values)?;
                Column::Int64(values)
            }
            ColumnReader::ByteArrayColumnReader(mut reader) => {
                let mut values = Vec::with_capacity(rows);
                reader.read_records(rows, None, None, &mut values)?;
                Column::Bytes(values)
            }
            _ => unreachable!("a segment has no other columns"),
        })
    };
    (0..group.num_columns()).map(column).collect()
}

fn write_columns(
    schema: TypePtr,
    properties: Arc<WriterProperties>,
    columns: &[Column],
) -> parquet::errors::Result<Vec<u8>> {
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, properties)?;
    let mut group = writer.next_row_group()?;
    for values in columns {
        let mut column = group.next_column()?.expect("as many as were read");
        match values {
            Column::Int32(values) => column
                .typed::<Int32Type>()
                .write_batch(values, None, None)?,
            Column::Int64(values) => column
                .typed::<Int64Type>()
                .write_batch(values, None, None)?,
            Column::Bytes(values) => column
                .typed::<ByteArrayType>()
                .write_batch(values, None, None)?,
        };
        column.close()?;
    }
    group.close()?;
    writer.into_inner()
}

fn main() {
    let keys = Keys::derive(&RootKey::from_bytes([7; 32]), RepositoryId([9; 16]));
    let noise = random(48 << 20);
    let sizes = ChunkSizes::default();
    measure("cut", noise.len(), noise.len() / CHUNK_BYTES, || {
        let (mut cutter, mut rest) = (Cutter::new(&sizes), &noise[..]);
        while let Some(count) = cutter.push(keys.gear_table(), rest) {
            rest = &rest[count..];
        }
    });
    measure(
        "id of a chunk",
        noise.len(),
        noise.len() / CHUNK_BYTES,
        || {
            for chunk in noise.chunks_exact(CHUNK_BYTES) {
                black_box(keys.chunk_id(ChunkKind::Data, chunk));
            }
        },
    );
    measure(
        "hash of a file",
        noise.len(),
        noise.len() / FILE_BYTES,
        || {
            for file in noise.chunks_exact(FILE_BYTES) {
                black_box(keys.content_hash(file));
            }
        },
    );
    match std::env::args().nth(1) {
        Some(path) => store("file", &keys, &std::fs::read(path).expect("a file")),
        None => {
            store("random", &keys, &noise);
            store("text", &keys, &text(48 << 20));
        }
    }
    rows();
}
