//! Feeds every fuzz target with its seeds, whole and slightly damaged, on any toolchain.
//!
//! This finds what breaks a decoder outright; `fuzz/run` searches for more. Everything is
//! deterministic: a finding names target, seed and damage, and comes again.

use bale_fuzz_targets::{NamedTarget, TARGETS, canary};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Cuts of each seed, at equal distances.
const CUTS: usize = 16;
/// Bytes of all copies of one seed with a changed byte: what a large one may cost.
const CHANGED_BYTES_MAX: usize = 4 << 20;
const CHANGES_MIN: usize = 16;
const CHANGES_MAX: usize = 1000;
/// Headers are here: every second change is.
const HEAD_BYTES: usize = 256;

struct Seed {
    target: NamedTarget,
    /// Its name below the target's directory.
    file: String,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Whole,
    CutTo { bytes: usize },
    Set { at: usize, to: u8 },
}

fn seeds_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds")
}

/// Seeds of a target, in the order of their names. None if it has no directory.
fn seeds_of(target: NamedTarget) -> Vec<Seed> {
    let Ok(entries) = std::fs::read_dir(seeds_directory().join(target.0)) else {
        return Vec::new();
    };
    let mut entries: Vec<_> = entries.map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let seed = |entry: std::fs::DirEntry| Seed {
        target,
        file: entry.file_name().into_string().unwrap(),
        bytes: std::fs::read(entry.path()).unwrap(),
    };
    entries.into_iter().map(seed).collect()
}

impl Seed {
    fn name(&self) -> String {
        format!("fuzz/seeds/{}/{}", self.target.0, self.file)
    }
}

impl Damage {
    /// All that is done to a seed, one after the other.
    fn all_of(seed: &[u8]) -> Vec<Damage> {
        let len = seed.len();
        let mut all = vec![Damage::Whole];
        let cuts = (0..CUTS).map(|cut| Damage::CutTo {
            bytes: len * cut / CUTS,
        });
        all.extend(cuts);
        if len == 0 {
            return all;
        }
        all.push(Damage::CutTo { bytes: len - 1 });
        let changes = (CHANGED_BYTES_MAX / len).clamp(CHANGES_MIN, CHANGES_MAX);
        let mut random = len as u64;
        for change in 0..changes {
            random = next_random(random);
            let within = if change % 2 == 0 {
                len.min(HEAD_BYTES)
            } else {
                len
            };
            let at = (random >> 16) as usize % within;
            let to = match random % 4 {
                0 => 0,
                1 => 0xff,
                _ => seed[at] ^ (1 << ((random >> 8) % 8)),
            };
            all.push(Damage::Set { at, to });
        }
        all
    }

    fn apply(self, seed: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        match self {
            Damage::Whole => {}
            Damage::CutTo { bytes: len } => bytes.truncate(len),
            Damage::Set { at, to } => bytes[at] = to,
        }
        bytes
    }
}

/// The generator "splitmix64": every number leads to another.
fn next_random(state: u64) -> u64 {
    let mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

struct Feed {
    inputs: usize,
    took: Duration,
    /// What broke the target first.
    finding: Option<String>,
}

fn feed(seed: &Seed) -> Feed {
    let began = Instant::now();
    let (_, target) = seed.target;
    let mut feed = Feed {
        inputs: 0,
        took: Duration::ZERO,
        finding: None,
    };
    for damage in Damage::all_of(&seed.bytes) {
        let input = damage.apply(&seed.bytes);
        feed.inputs += 1;
        if catch_unwind(|| target(&input)).is_err() {
            feed.finding = Some(format!("{}: {damage:?}", seed.name()));
            break;
        }
    }
    feed.took = began.elapsed();
    feed
}

/// Feeds on all processors; in no order.
fn feed_all(seeds: &[Seed]) -> Vec<(&Seed, Feed)> {
    let next = AtomicUsize::new(0);
    let feeds = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let feed = feed(seed);
                    feeds.lock().unwrap().push((seed, feed));
                }
            });
        }
    });
    feeds.into_inner().unwrap()
}

#[test]
fn no_seed_breaks_its_target_whole_or_damaged() {
    let seeds: Vec<_> = TARGETS
        .iter()
        .flat_map(|target| seeds_of(*target))
        .collect();
    let feeds = feed_all(&seeds);
    assert_eq!(feeds.len(), seeds.len(), "each is fed");

    let inputs: usize = feeds.iter().map(|(_, feed)| feed.inputs).sum();
    let slowest = feeds.iter().max_by_key(|(_, feed)| feed.took).unwrap();
    println!(
        "{inputs} inputs of {} seeds; the slowest seed took {} ms: {}",
        seeds.len(),
        slowest.1.took.as_millis(),
        slowest.0.name()
    );
    let findings: Vec<_> = feeds
        .into_iter()
        .filter_map(|(_, feed)| feed.finding)
        .collect();
    assert!(
        findings.is_empty(),
        "these inputs break their targets:\n  {}",
        findings.join("\n  ")
    );
}

#[test]
fn every_target_has_seeds_and_every_directory_of_seeds_a_target() {
    let targets: BTreeSet<_> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "a name is one target's");
    for target in TARGETS {
        assert!(!seeds_of(*target).is_empty(), "{}: no seed", target.0);
    }
    let directories: BTreeSet<_> = std::fs::read_dir(seeds_directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(directories, targets);
}

/// Otherwise nothing above would prove anything.
#[test]
fn a_target_that_panics_is_named_with_its_seed() {
    let seed = Seed {
        target: ("canary", canary),
        file: "alive".to_owned(),
        // Alive, but for one bit.
        bytes: b"dig".to_vec(),
    };
    let finding = feed(&seed).finding.expect("the canary dies");
    assert_eq!(finding, "fuzz/seeds/canary/alive: Set { at: 2, to: 101 }");
}
