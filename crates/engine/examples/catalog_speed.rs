//! Measures catalogs and the sorter: `cargo run --release -p bale-engine --example catalog_speed`.

use bale_format::segment::pointers;
use bale_format::{ChunkId, Content, Entry, Kind, Segment, SegmentKeys, Time};
use bale_pipeline::spill::Sorter;
use bale_repository::catalog::{BoxError, CatalogReader, CatalogWriter, KeyRange, SegmentSource};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

const ROWS: u64 = 1_000_000;

#[derive(Default)]
struct Memory(Mutex<HashMap<ChunkId, Bytes>>);

impl SegmentSource for Memory {
    fn segment(&self, id: &ChunkId) -> Result<Bytes, BoxError> {
        let segments = self.0.lock().expect("no panic while it is locked");
        Ok(segments.get(id).ok_or("no such segment")?.clone())
    }
}

impl Memory {
    fn store(&self, segment: Vec<u8>) -> Result<ChunkId, BoxError> {
        let id = ChunkId(*blake3::hash(&segment).as_bytes());
        let mut segments = self.0.lock().expect("no panic while it is locked");
        segments.insert(id, segment.into());
        Ok(id)
    }
}

fn random(number: u64) -> u64 {
    number
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(31)
        .wrapping_mul(0xD6E8_FEB8_6659_FD93)
        >> 16
}

fn row(parent: &Bytes, number: u64) -> Entry {
    let name = Bytes::from(format!("file-{number:08}.dat"));
    let mut entry = Entry::new(parent.clone(), name, Kind::File);
    (entry.mode, entry.uid, entry.gid) = (0o644, 1000, 1000);
    entry.size = random(number) % 4096;
    entry.inode = 100_000 + number;
    entry.mtime = Time {
        seconds: 1_700_000_000 + (random(number) % 100_000_000) as i64,
        nanos: (random(number + 1) % 1_000_000_000) as u32,
    };
    entry.ctime = entry.mtime;
    // A bundle holds some fifteen hundred of these files.
    let chunk = blake3::hash(&(number / 1500).to_le_bytes());
    entry.content = Content::Bundled {
        chunk: ChunkId(*chunk.as_bytes()),
        offset: (number % 1500 * 2048) as u32,
    };
    entry
}

fn speed(what: &str, rows: u64, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{what:<40}{:8.2} M rows/s{seconds:9.3} s",
        rows as f64 / seconds / 1e6
    );
}

fn main() -> Result<(), BoxError> {
    let memory = Arc::new(Memory::default());
    let start = Instant::now();
    let mut writer = CatalogWriter::new(CatalogReader::empty(), |segment| memory.store(segment));
    let mut parent = Bytes::new();
    for number in 0..ROWS {
        if number % 50 == 0 {
            parent = Bytes::from(format!("srv/data/directory-{:06}", number / 50));
        }
        writer.put(&row(&parent, number))?;
    }
    let layers = writer.finish()?.layers;
    speed("first backup (rows made on the way)", ROWS, start);

    let reader = CatalogReader::open(memory.clone(), layers)?;
    let start = Instant::now();
    let bytes: u64 = reader
        .rows(KeyRange::all())
        .map(|row| row.map_or(0, |row| row.size))
        .sum();
    speed("read all rows", ROWS, start);
    println!(
        "{} segments, {bytes} bytes of files",
        reader.layers()[0].segments.len()
    );

    let start = Instant::now();
    let mut writer = CatalogWriter::new(reader.clone(), |segment| memory.store(segment));
    for number in (0..ROWS).step_by(1000) {
        let parent = Bytes::from(format!("srv/data/directory-{:06}", number / 50));
        writer.put(&row(&parent, number))?;
    }
    let layers = writer.finish()?.layers;
    speed("0.1 % changed: write", ROWS / 1000, start);

    let reader = CatalogReader::open(memory.clone(), layers)?;
    let start = Instant::now();
    let count = reader.rows(KeyRange::all()).count();
    speed("read base and overlay", count as u64, start);
    let path = b"srv/data/directory-010000/file-00500000.dat";
    let mut best = f64::MAX;
    for _ in 0..20 {
        let start = Instant::now();
        reader.lookup(path)?.ok_or("it is there")?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!("one look-up, at best{:>43.2} ms", best * 1e3);
    let segments = memory
        .0
        .lock()
        .expect("no panic while it is locked")
        .clone();
    let each = |what: &str, read: &dyn Fn(&[u8]) -> usize| {
        let start = Instant::now();
        let found: usize = segments.values().map(|segment| read(segment)).sum();
        speed(what, found as u64, start);
    };
    each("decode segments", &|segment| {
        Segment::decode(segment).map_or(0, |segment| segment.rows())
    });
    each("decode keys", &|segment| {
        SegmentKeys::decode(segment).map_or(0, |keys| keys.rows())
    });
    each("what rows point at (rows of pointers only)", &|segment| {
        pointers(segment).map_or(0, |found| found.len())
    });

    for (what, memory_bytes) in [
        ("sort in memory", 512 << 20),
        ("sort through files, 16 MiB", 16 << 20),
    ] {
        let start = Instant::now();
        let mut sorter = Sorter::new(&std::env::temp_dir(), memory_bytes);
        for number in 0..2 * ROWS {
            sorter.push(&random(number).to_be_bytes(), &[number as u8; 24])?;
        }
        let mut sorted = sorter.finish()?;
        while sorted.next_record()?.is_some() {}
        speed(what, 2 * ROWS, start);
    }
    Ok(())
}
