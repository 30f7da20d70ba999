//! Choices of one sequence: the same seed draws the same ones.

/// A stream of numbers (splitmix64): seeds of neighbours give streams that have nothing in common.
#[derive(Clone, Debug)]
pub struct Draw(std::cell::Cell<u64>);

impl Draw {
    pub fn new(seed: u64) -> Draw {
        Draw((seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d).into())
    }

    pub fn number(&self) -> u64 {
        let next = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Below `options`.
    pub fn below(&self, options: usize) -> usize {
        (self.number() % options.max(1) as u64) as usize
    }

    /// True once in so many.
    pub fn once_in(&self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn of<T: Clone>(&self, options: &[T]) -> T {
        options[self.below(options.len())].clone()
    }

    /// One of some things, each as often as its weight says.
    pub fn weighted<T: Clone>(&self, options: &[(usize, T)]) -> T {
        let total = options.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, option) in options {
            match at.checked_sub(*weight) {
                None => return option.clone(),
                Some(rest) => at = rest,
            }
        }
        unreachable!("the weights add up")
    }
}
