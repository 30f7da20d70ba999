//! What is read of a pack: ranges, in order.

use bale_format::PackNumber;
use bale_format::pack::PACK_FRONT_BYTES;

/// One pack, and what is needed of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackReads {
    /// Which pack.
    pub pack: PackNumber,
    /// From and to, ascending, none touching the next. The first begins with the head of the pack.
    pub ranges: Vec<(u64, u64)>,
}

impl PackReads {
    /// Bytes in all ranges.
    pub fn bytes(&self) -> u64 {
        let lens = self.ranges.iter().map(|(from, to)| to - from);
        lens.fold(0, u64::saturating_add)
    }

    pub(crate) fn new(pack: PackNumber) -> PackReads {
        PackReads {
            pack,
            ranges: vec![(0, PACK_FRONT_BYTES as u64)],
        }
    }

    /// Ranges come by where they begin.
    pub(crate) fn add(&mut self, from: u64, to: u64) {
        match self.ranges.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => self.ranges.push((from, to)),
        }
    }
}

/// What all of it comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadsTotals {
    pub packs: u64,
    /// Bytes of the ranges.
    pub bytes: u64,
    /// Files that need them.
    pub files: u64,
    /// Problems met while this was found out.
    pub problems: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_or_overlap_are_one() {
        let front = PACK_FRONT_BYTES as u64;
        let mut reads = PackReads::new(PackNumber(3));
        for (from, to) in [(48, 2000), (2000, 3000), (2500, 2600), (5000, 6000)] {
            reads.add(from, to);
        }
        assert_eq!(reads.ranges, [(0, 3000), (5000, 6000)]);
        assert_eq!(reads.bytes(), 4000);
        let mut far = PackReads::new(PackNumber(3));
        far.add(9000, 9001);
        assert_eq!(far.ranges, [(0, front), (9000, 9001)]);
    }
}
