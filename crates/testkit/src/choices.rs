//! Choices of a simulation: all of them in turn, or by seeded chance.

use bale_pipeline::random::{SeededRandom, draw};

/// Decides what a crash kept.
pub trait Choices {
    /// One of `options` ways, counted from 0.
    fn pick(&mut self, options: usize) -> usize;
}

impl Choices for SeededRandom {
    fn pick(&mut self, options: usize) -> usize {
        let drawn = u32::from_le_bytes(draw(self).expect("a seeded stream has no end"));
        drawn as usize % options
    }
}

/// Every sequence of choices there is, one after the other: `while every.more() { .. }`.
#[derive(Debug, Default)]
pub struct Every {
    /// What was picked and among how many.
    picked: Vec<(usize, usize)>,
    at: usize,
    started: bool,
}

impl Every {
    /// Goes on to the next sequence; false when all have been.
    pub fn more(&mut self) -> bool {
        self.at = 0;
        if !std::mem::replace(&mut self.started, true) {
            return true;
        }
        while let Some((picked, options)) = self.picked.pop() {
            if picked + 1 < options {
                self.picked.push((picked + 1, options));
                return true;
            }
        }
        false
    }
}

impl Choices for Every {
    fn pick(&mut self, options: usize) -> usize {
        if self.at == self.picked.len() {
            self.picked.push((0, options));
        }
        let (picked, known) = self.picked[self.at];
        assert_eq!(known, options, "the same choices lead to the same question");
        self.at += 1;
        picked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sequence_of_choices_comes_once() {
        let (mut every, mut seen) = (Every::default(), Vec::new());
        while every.more() {
            let first = every.pick(2);
            seen.push((first, if first == 1 { every.pick(3) } else { 9 }));
        }
        assert_eq!(seen, [(0, 9), (1, 0), (1, 1), (1, 2)]);
    }
}
