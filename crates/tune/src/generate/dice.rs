//! Random numbers that are the same on every machine: every draw is a function of a seed and what
//! it is for.
//!
//! There is no state, so a directory or a file can be made without those before it.

/// A seed from which draws and further seeds are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dice(pub u64);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Dice {
    /// A seed of its own for part `number` of purpose `purpose`.
    pub fn part(self, purpose: u64, number: u64) -> Dice {
        Dice(mixed(
            mixed(self.0 ^ purpose.wrapping_mul(STEP)).wrapping_add(number.wrapping_mul(STEP)),
        ))
    }

    /// A number for one purpose.
    pub fn draw(self, purpose: u64) -> u64 {
        self.part(purpose, 0).0
    }

    /// A number from `low` to `high`, both possible.
    pub fn within(self, purpose: u64, low: u64, high: u64) -> u64 {
        let width = high.saturating_sub(low).saturating_add(1);
        // The upper half of a product: no division, no bias that anyone could see.
        low + ((u128::from(self.draw(purpose)) * u128::from(width)) >> 64) as u64
    }

    /// Whether something of this many hundredths of a per cent happens.
    pub fn happens(self, purpose: u64, basis_points: u32) -> bool {
        basis_points > 0 && self.within(purpose, 0, 9_999) < u64::from(basis_points)
    }
}

/// One step of a counter-based generator (the finalizer of SplitMix64).
pub(crate) fn mixed(value: u64) -> u64 {
    let mut z = value.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_range_are_reached_and_nothing_beyond() {
        let draws: Vec<u64> = (0..1000).map(|seed| Dice(seed).within(1, 5, 10)).collect();
        assert_eq!(
            (draws.iter().min(), draws.iter().max()),
            (Some(&5), Some(&10))
        );
        assert!((0..100).all(|seed| Dice(seed).within(1, 7, 7) == 7));
    }

    #[test]
    fn draws_never_change_from_one_release_to_the_next() {
        assert_eq!(mixed(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(
            Dice(42).within(3, 0, 999_999),
            Dice(42).within(3, 0, 999_999)
        );
    }
}
