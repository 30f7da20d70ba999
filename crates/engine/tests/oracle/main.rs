//! The oracle: random sequences of backups, changes, damage, healing, forgetting, pruning and
//! restoring, and three rules that hold after every step (`oracle/rules.rs`).
//!
//! `BALE_ORACLE_SEQUENCES=n` sets how many sequences are tried, `BALE_ORACLE_SEED=n` tries one (or
//! begins there, if the number is given too). A sequence that breaks a rule is made shorter while
//! it still does, and printed with its seed.

mod act;
mod backing_up;
mod case;
mod copies;
mod damage;
mod draw;
mod expect;
mod generate;
mod image;
mod options;
mod probe;
mod restoring;
mod rules;
mod shelf;
mod shrink;
mod source;
mod spoil;
mod steps;
mod stories;
mod tree;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Sequences of a run without orders.
const SEQUENCES: u64 = 500;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

#[test]
fn what_was_acknowledged_stays_whatever_happens() {
    let seed = number("BALE_ORACLE_SEED");
    let count =
        number("BALE_ORACLE_SEQUENCES").unwrap_or(if seed.is_some() { 1 } else { SEQUENCES });
    let first = seed.unwrap_or(1);
    let goes_on = number("BALE_ORACLE_GO_ON").is_some();
    let (next, ends) = (AtomicU64::new(first), AtomicBool::new(false));
    let failures: Mutex<BTreeMap<u64, String>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || ends.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Err(broken) = shrink::attempt(seed, &generate::sequence(seed)) {
                        ends.store(!goes_on, Ordering::Relaxed);
                        println!("seed {seed}: {broken}");
                        failures
                            .lock()
                            .expect("no panics while held")
                            .insert(seed, broken);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panics while held");
    let tried = next.into_inner().min(first + count) - first;
    println!("{tried} sequences, {} break a rule", failures.len());
    if let Some((seed, broken)) = failures.first_key_value() {
        let told = shrink::shortest(*seed, &generate::sequence(*seed), broken);
        panic!(
            "sequence {} of {tried}: {told}\nagain: BALE_ORACLE_SEED={seed}",
            seed - first + 1
        );
    }
}
