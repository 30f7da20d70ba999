//! Marks on granules of an image, of which there are as many as it is long: in an unnamed file,
//! with a few pages of it in memory. Marks come in the order of inodes, which is near that of the
//! device, and are looked at in the order of the device.

use bale_pipeline::spill::unnamed_file;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Granules are so long and aligned: the smallest blocks of a file system that is compared.
const MARKED_BYTES: u64 = 1024;
/// Bytes of a page: marks of half a GiB.
const PAGE_BYTES: usize = 64 << 10;
/// Pages in memory.
const PAGES_MAX: usize = 32;

/// Marks on one image.
pub(super) struct MarkedGranules {
    file: File,
    /// The one that was used last comes last.
    pages: Vec<Page>,
}

struct Page {
    number: u64,
    bits: Vec<u8>,
    is_written: bool,
}

impl MarkedGranules {
    /// Nothing marked.
    pub(super) fn new(directory: &Path, len_bytes: u64) -> io::Result<MarkedGranules> {
        let file = unnamed_file(directory)?;
        let bytes = len_bytes.div_ceil(MARKED_BYTES).div_ceil(8);
        file.set_len(bytes.next_multiple_of(PAGE_BYTES as u64))?;
        Ok(MarkedGranules {
            file,
            pages: Vec::new(),
        })
    }

    /// Marks the granules that lie in a range; one of which a part does not is left alone.
    pub(super) fn mark(&mut self, range: &Range<u64>) -> io::Result<()> {
        let granules = range.start.div_ceil(MARKED_BYTES)..range.end / MARKED_BYTES;
        for (page, byte, bits) in bytes_of(granules) {
            self.page(page)?[byte] |= bits;
            if let Some(page) = self.pages.last_mut() {
                page.is_written = true;
            }
        }
        Ok(())
    }

    /// Are all granules marked that a range touches?
    pub(super) fn are_marked(&mut self, range: &Range<u64>) -> io::Result<bool> {
        let granules = range.start / MARKED_BYTES..range.end.div_ceil(MARKED_BYTES);
        for (page, byte, bits) in bytes_of(granules) {
            if self.page(page)?[byte] & bits != bits {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn page(&mut self, number: u64) -> io::Result<&mut [u8]> {
        let found = self.pages.iter().rposition(|page| page.number == number);
        match found {
            Some(at) => self.pages[at..].rotate_left(1),
            None => {
                let bits = match self.pages.len() < PAGES_MAX {
                    true => vec![0; PAGE_BYTES],
                    false => self.give_up_first()?,
                };
                let mut page = Page {
                    number,
                    bits,
                    is_written: false,
                };
                let at = number * PAGE_BYTES as u64;
                self.file.read_exact_at(&mut page.bits, at)?;
                self.pages.push(page);
            }
        }
        let last = self.pages.last_mut();
        Ok(&mut last.expect("put there").bits)
    }

    fn give_up_first(&mut self) -> io::Result<Vec<u8>> {
        let page = self.pages.remove(0);
        if page.is_written {
            let at = page.number * PAGE_BYTES as u64;
            self.file.write_all_at(&page.bits, at)?;
        }
        Ok(page.bits)
    }
}

/// For each byte of marks that some granules have bits in: the page, the byte in it, and the bits.
fn bytes_of(granules: Range<u64>) -> impl Iterator<Item = (u64, usize, u8)> {
    let bytes = granules.start / 8..granules.end.div_ceil(8);
    bytes.map(move |byte| {
        let first = granules.start.saturating_sub(byte * 8).min(8);
        let behind = (byte * 8 + 8).saturating_sub(granules.end).min(8);
        let bits = (0xff_u16 << first & 0xff_u16 >> behind) as u8;
        let page = byte / PAGE_BYTES as u64;
        (page, (byte % PAGE_BYTES as u64) as usize, bits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_granules_are_marked_wherever_they_are_and_no_others() {
        let directory = tempfile::tempdir().unwrap();
        let page = PAGE_BYTES as u64 * 8 * MARKED_BYTES;
        let pages = 3 * PAGES_MAX as u64;
        let mut marks = MarkedGranules::new(directory.path(), pages * page).unwrap();
        // Back and forth, so that pages go and come back.
        for number in (0..pages).chain((0..pages).rev()) {
            let at = number * page + number * MARKED_BYTES;
            marks.mark(&(at + 1..at + 3 * MARKED_BYTES + 7)).unwrap();
        }
        for number in 0..pages {
            let at = number * page + number * MARKED_BYTES;
            let expected = [false, true, true, false];
            for (granule, expected) in expected.into_iter().enumerate() {
                let byte = at + granule as u64 * MARKED_BYTES;
                for range in [byte..byte + 1, byte + 7..byte + MARKED_BYTES] {
                    let found = marks.are_marked(&range).unwrap();
                    assert_eq!(found, expected, "{number} {granule}");
                }
            }
        }
    }

    #[test]
    fn bits_of_runs_are_those_of_their_granules_one_by_one() {
        for start in 0..20 {
            for end in start..40 {
                let mut one_by_one = [0u8; 5];
                (start..end)
                    .for_each(|granule| one_by_one[granule as usize / 8] |= 1 << (granule % 8));
                let mut bits = [0u8; 5];
                bytes_of(start..end).for_each(|(_, byte, set)| bits[byte] |= set);
                assert_eq!(bits, one_by_one, "{start}..{end}");
            }
        }
    }
}
