//! Times `keyed_hashes` beside `blake3::keyed_hash`, one content after the other.
//!
//!     cargo run --release -p bale-sys --example lanes

use std::time::Instant;

fn main() {
    let bytes: Vec<u8> = (0..1u32 << 20).map(|n| (n * 2_654_435_761) as u8).collect();
    for len in [100, 500, 1024, 1500, 2048, 2560, 3072, 3500, 4096, 8192] {
        let contents: Vec<&[u8]> = bytes
            .chunks(4096.max(len))
            .map(|some| &some[..len])
            .collect();
        let mut hashes = Vec::new();
        let key = [1; 32];
        let (mut together, mut alone) = (f64::MAX, f64::MAX);
        for _ in 0..50 {
            let began = Instant::now();
            bale_sys::lanes::keyed_hashes(&key, &contents, &mut hashes);
            together = together.min(began.elapsed().as_secs_f64());
            let began = Instant::now();
            let one_by_one: Vec<[u8; 32]> = contents
                .iter()
                .map(|content| *blake3::keyed_hash(&key, content).as_bytes())
                .collect();
            alone = alone.min(began.elapsed().as_secs_f64());
            assert_eq!(one_by_one, hashes);
        }
        let per = |seconds: f64| seconds / contents.len() as f64 * 1e9;
        println!(
            "{len:5} bytes: together {:6.0} ns, alone {:6.0} ns, {:.2}",
            per(together),
            per(alone),
            together / alone
        );
    }
}
