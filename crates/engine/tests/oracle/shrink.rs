//! Running a sequence, and making one that breaks a rule shorter.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::act;
use super::steps::Step;
use super::world::{Broken, Held};

/// Runs of one sequence while it is made shorter.
const RUNS_MAX: usize = 200;
/// Names are random, and so is who meets whom: a shorter sequence gets more than one chance.
const CHANCES: usize = 3;

/// Runs a sequence; a panic breaks a promise, too.
pub fn attempt(seed: u64, steps: &[Step]) -> Held {
    match catch_unwind(AssertUnwindSafe(|| act::run(seed, steps))) {
        Ok(held) => held,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Err(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// Leaves out steps as long as the same rule is broken; tells what is left.
pub fn shortest(seed: u64, steps: &[Step], broken: &Broken) -> String {
    let mut steps = steps.to_vec();
    let mut broken = broken.clone();
    let mut runs = 0;
    let mut at = steps.len();
    while at > 0 && runs < RUNS_MAX {
        at -= 1;
        let mut shorter = steps.clone();
        shorter.remove(at);
        for _ in 0..CHANCES {
            runs += 1;
            match attempt(seed, &shorter) {
                Err(other) if kind(&other) == kind(&broken) => {
                    (steps, broken) = (shorter.clone(), other);
                    break;
                }
                _ => {}
            }
        }
    }
    let lines: Vec<String> = steps
        .iter()
        .enumerate()
        .map(|(number, step)| format!("  {number}: {step:?}"))
        .collect();
    format!("{broken}\n{}", lines.join("\n"))
}

/// The sentence without what differs from run to run.
fn kind(broken: &str) -> String {
    let sentence = broken
        .split_once(": ")
        .map_or(broken, |(_, sentence)| sentence);
    sentence
        .chars()
        .filter(|letter| letter.is_ascii_alphabetic())
        .take(12)
        .collect()
}
