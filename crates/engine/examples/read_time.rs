//! Walks the paths given, reads every file, and says how long it took: for comparisons, not a test.
use bale_format::entry::Kind;
use bale_source::read::{LargeReader, SMALL_BYTES_MAX, SmallReader};
use bale_source::scan::{ScanItem, ScanOptions, Scanner, Sources};

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut threads = None;
    if let Some(n) = args.first().and_then(|a| a.strip_prefix("--threads=")) {
        threads = n.parse().ok();
        args.remove(0);
    }
    let start = std::time::Instant::now();
    let (sources, _) = Sources::resolve(&args).unwrap();
    let small = SmallReader::start(threads);
    let large = LargeReader::start();
    let (mut files, mut bytes, mut problems) = (0u64, 0u64, 0u64);
    std::thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let (mut files, mut bytes, mut problems) = (0u64, 0u64, 0u64);
            while let Some(file) = small.pop() {
                files += 1;
                bytes += file.bytes.len() as u64;
                problems += file.problems.len() as u64;
            }
            (files, bytes, problems)
        });
        for item in Scanner::start(&sources, ScanOptions::default()).unwrap() {
            let ScanItem::Entries(batch) = item else {
                continue;
            };
            for (at, entry) in batch.entries.into_iter().enumerate() {
                let place = batch.places.of(at);
                if entry.kind != Kind::File {
                    continue;
                }
                if entry.size <= SMALL_BYTES_MAX {
                    small.push(&place, entry);
                } else if let Ok(mut file) = large.open(&place, entry) {
                    files += 1;
                    while let Some(piece) = file.next_piece() {
                        if let bale_source::read::ReadPiece::Data(block) = piece {
                            bytes += block.len() as u64;
                        }
                    }
                    problems += file.finish().problems.len() as u64;
                }
            }
        }
        small.close();
        let (f, b, p) = taker.join().unwrap();
        files += f;
        bytes += b;
        problems += p;
    });
    eprintln!(
        "{files} files, {bytes} bytes, {problems} problems, {:?}",
        start.elapsed()
    );
}
