//! Measures, in CPU time, how fast segments are made and read: `cargo run --release -p bale-format --example segment_speed`.

use bale_format::{ChunkId, Content, Entry, Key, Kind, Segment, SegmentBuilder, SegmentKeys, Time};
use bytes::Bytes;

const ROWS: usize = 65_536;
const REPEATS: usize = 10;

/// A plausible source tree: directories of ten files, sizes and times at random, contents in shared chunks.
fn rows() -> Vec<Entry> {
    let mut state = 1u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut rows = Vec::with_capacity(ROWS);
    let mut offset = 0u32;
    let mut parent = Bytes::new();
    let mut chunk = ChunkId([1; 32]);
    for row in 0..ROWS {
        if row % 10 == 0 {
            // Rows of one directory share their parent, as those of a scan do.
            parent = Bytes::from(format!(
                "home/user/project/src/module-{:06}/tests",
                row / 10
            ));
        }
        let name = Bytes::from(format!("file_{:03}_{:08x}.rs", row % 10, random(1 << 32)));
        let mut entry = Entry::new(parent.clone(), name, Kind::File);
        entry.mode = if random(4) == 0 { 0o755 } else { 0o644 };
        entry.uid = 1000;
        entry.gid = 1000;
        entry.size = random(4096);
        let when = |value| Time {
            seconds: 1_700_000_000 + value as i64 / 3,
            nanos: value as u32 % 1_000_000_000,
        };
        entry.mtime = when(random(1 << 31));
        entry.ctime = when(random(1 << 31));
        entry.inode = 1_000_000 + row as u64;
        entry.generation = random(1 << 32) as u32;
        offset += entry.size as u32;
        if offset > 1 << 20 {
            offset = 0;
            chunk
                .0
                .iter_mut()
                .for_each(|byte| *byte = random(256) as u8);
        }
        entry.content = Content::Bundled { chunk, offset };
        entry.content_hash = Some(std::array::from_fn(|_| random(256) as u8));
        rows.push(entry);
    }
    rows
}

/// CPU time of this thread: the machine may have other work.
fn cpu_seconds() -> f64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = times.split(' ').next().expect("a first number");
    nanos.parse::<f64>().expect("a number") / 1e9
}

fn main() {
    let rows = rows();
    let mut builder = SegmentBuilder::new();
    let speed = |what: &str, start: f64| {
        let rate = (ROWS * REPEATS) as f64 / (cpu_seconds() - start) / 1e6;
        println!("{what:<28}{rate:8.2} M rows/s");
    };
    let mut file = Vec::new();
    let start = cpu_seconds();
    for _ in 0..REPEATS {
        rows.iter()
            .for_each(|row| builder.push(row).expect("valid rows"));
        file = builder.finish().expect("valid rows");
    }
    speed("make", start);
    if std::env::args().nth(1).as_deref() == Some("make") {
        return; // For a profiler.
    }
    println!(
        "{:<28}{:8.2} bytes/row, {:.2} after zstd 3",
        "size",
        file.len() as f64 / ROWS as f64,
        zstd::bulk::compress(&file, 3).expect("zstd").len() as f64 / ROWS as f64
    );
    let start = cpu_seconds();
    for _ in 0..REPEATS {
        std::hint::black_box(Segment::decode(&file).expect("just made"));
    }
    speed("decode", start);
    let start = cpu_seconds();
    for _ in 0..REPEATS {
        let segment = Segment::decode(&file).expect("just made");
        segment
            .entries(0..segment.rows())
            .for_each(|entry| drop(std::hint::black_box(entry)));
    }
    speed("decode and make entries", start);
    let start = cpu_seconds();
    for _ in 0..REPEATS {
        std::hint::black_box(SegmentKeys::decode(&file).expect("just made"));
    }
    speed("decode keys", start);
    let segment = Segment::decode(&file).expect("just made");
    assert!(
        segment.entries(0..ROWS).eq(rows.iter().cloned()),
        "rows survive"
    );
    assert_eq!(
        segment.keys().find(&Key::of_path(&rows[777].path())),
        Ok(777)
    );
}
