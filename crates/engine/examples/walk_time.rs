//! Walks the paths given and says how long it took: for comparisons, not a test.
use bale_source::scan::{ScanItem, ScanOptions, Scanner, Sources};
fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut options = ScanOptions::default();
    if let Some(n) = args.first().and_then(|a| a.strip_prefix("--threads=")) {
        options.threads = n.parse().ok();
        args.remove(0);
    }
    let print = args.first().is_some_and(|a| a == "--print");
    if print {
        args.remove(0);
    }
    let start = std::time::Instant::now();
    let (sources, _) = Sources::resolve(&args).unwrap();
    let (mut entries, mut bytes, mut problems) = (0u64, 0u64, 0u64);
    for item in Scanner::start(&sources, options).unwrap() {
        match item {
            ScanItem::Entries(batch) => {
                entries += batch.entries.len() as u64;
                for e in &batch.entries {
                    bytes += e.size;
                    if print {
                        println!("{}", String::from_utf8_lossy(&e.path()));
                    }
                }
            }
            ScanItem::Problem(p) => {
                problems += 1;
                eprintln!(
                    "{}: {} {}",
                    String::from_utf8_lossy(&p.path),
                    p.action,
                    p.error
                )
            }
            ScanItem::Filesystem(f) => eprintln!("{f:?}"),
            other => eprintln!("{other:?}"),
        }
    }
    eprintln!(
        "{entries} entries, {bytes} bytes, {problems} problems, {:?}",
        start.elapsed()
    );
}
