//! Content of files: cuts of 512 bytes from a pool of random bytes, at places that depend on file
//! and position.
//!
//! So no two files share a stretch that deduplication could find, nothing compresses (or, when
//! asked, a little), and any part of any file can be made alone.

use std::io;
use std::ops::Range;

use bale_fsimage::mkext4::FileData;

use super::dice::{Dice, mixed};

/// Bytes of one cut.
const CUT_BYTES: usize = 512;
const FOR_POOL: u64 = 201;

/// Random bytes from which all content is cut.
pub(crate) struct Pool {
    bytes: Vec<u8>,
}

impl Pool {
    /// Fills a pool. Values 0..=96 when compressible, all values else.
    pub fn new(dice: Dice, pool_bytes: u64, compressible: bool) -> Pool {
        let dice = dice.part(FOR_POOL, u64::from(compressible));
        let mut bytes = Vec::with_capacity(pool_bytes as usize + 8);
        let mut word = 0u64;
        while (bytes.len() as u64) < pool_bytes {
            let drawn = mixed(dice.0 ^ mixed(word));
            let mut eight = drawn.to_le_bytes();
            if compressible {
                for byte in &mut eight {
                    *byte = ((u16::from(*byte) * 97) >> 8) as u8;
                }
            }
            bytes.extend_from_slice(&eight);
            word += 1;
        }
        bytes.truncate(pool_bytes as usize);
        Pool { bytes }
    }

    /// The cut at `position` of the file of `dice`.
    fn cut(&self, dice: Dice, position: u64) -> &[u8] {
        let places = (self.bytes.len() - CUT_BYTES) as u64;
        let drawn = mixed(dice.0.wrapping_add(mixed(position)));
        let start = ((u128::from(drawn) * u128::from(places)) >> 64) as usize;
        &self.bytes[start..start + CUT_BYTES]
    }
}

/// The content of one file.
#[derive(Clone)]
pub(crate) struct FileContent<'a> {
    pub pool: &'a Pool,
    pub dice: Dice,
    /// Where there is no data.
    pub hole: Range<u64>,
}

impl<'a> FileContent<'a> {
    /// The bytes from `start` to `end`, no part of the hole among them, as they lie in the pool.
    pub fn slices(&self, start: u64, end: u64) -> impl Iterator<Item = &'a [u8]> {
        let (pool, dice, mut at) = (self.pool, self.dice, start);
        std::iter::from_fn(move || {
            let within = (at % CUT_BYTES as u64) as usize;
            let len = ((CUT_BYTES - within) as u64).min(end.saturating_sub(at)) as usize;
            let cut = pool.cut(dice, at / CUT_BYTES as u64);
            at += len as u64;
            (len > 0).then(|| &cut[within..within + len])
        })
    }

    /// Fills `buf` with the bytes from `offset`.
    pub fn fill(&self, offset: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            if self.hole.contains(&at) {
                let len = (self.hole.end - at).min((buf.len() - done) as u64) as usize;
                buf[done..done + len].fill(0);
                done += len;
                continue;
            }
            let within = (at % CUT_BYTES as u64) as usize;
            let mut len = (CUT_BYTES - within).min(buf.len() - done);
            if self.hole.start > at && !self.hole.is_empty() {
                len = len.min((self.hole.start - at) as usize);
            }
            let cut = self.pool.cut(self.dice, at / CUT_BYTES as u64);
            buf[done..done + len].copy_from_slice(&cut[within..within + len]);
            done += len;
        }
    }
}

impl FileData for FileContent<'_> {
    fn next_data(&mut self, offset_bytes: u64, size_bytes: u64) -> Option<Range<u64>> {
        let hole = &self.hole;
        if hole.is_empty() || offset_bytes >= hole.end {
            (offset_bytes < size_bytes).then_some(offset_bytes..size_bytes)
        } else if offset_bytes < hole.start {
            Some(offset_bytes..hole.start)
        } else {
            (hole.end < size_bytes).then_some(hole.end..size_bytes)
        }
    }

    fn read_at(&mut self, offset_bytes: u64, buf: &mut [u8]) -> io::Result<()> {
        self.fill(offset_bytes, buf);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_a_file_is_the_same_as_in_the_whole() {
        let pool = Pool::new(Dice(1), 100_000, false);
        let content = FileContent {
            pool: &pool,
            dice: Dice(7),
            hole: 1500..9000,
        };
        let mut whole = vec![1; 12_000];
        content.fill(0, &mut whole);
        assert!(whole[1500..9000].iter().all(|byte| *byte == 0));
        for (start, end) in [(0, 1), (1, 600), (511, 513), (1400, 9100), (10_000, 12_000)] {
            let mut part = vec![2; end - start];
            content.fill(start as u64, &mut part);
            assert_eq!(part, whole[start..end]);
        }
        for (start, end) in [(0, 0), (0, 1), (511, 513), (3, 1500), (9000, 12_000)] {
            let slices: Vec<&[u8]> = content.slices(start as u64, end as u64).collect();
            assert_eq!(slices.concat(), whole[start..end]);
        }
    }
}
