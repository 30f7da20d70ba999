//! Inodes that are not final yet: directories until their run is complete, linked files until the
//! last name.
//!
//! A table of records addressed by number. Recently used pages are in memory, the others in a
//! scratch file.

use super::error::{MkError, Result};
use super::sink::{Scratch, ScratchMaker};

pub(super) const PAGE_BYTES: usize = 64 << 10;

/// Fixed-size records that start as zeros.
pub(super) struct DeferredTable {
    record_bytes: usize,
    records: u64,
    pages_in_memory_max: usize,
    /// 24 bytes for each 64 KiB of table: 100 million directories of 256 bytes take 9 MB here.
    pages: Vec<Page>,
    in_memory: Vec<u32>,
    hand: usize,
    scratch: Option<Box<dyn Scratch>>,
}

#[derive(Default)]
struct Page {
    bytes: Option<Box<[u8]>>,
    was_used: bool,
    is_in_scratch: bool,
}

impl DeferredTable {
    /// A table of `records`, each `record_bytes` long (a power of two up to 4,096).
    pub fn new(record_bytes: usize, records: u64, pages_in_memory_max: usize) -> DeferredTable {
        let per_page = (PAGE_BYTES / record_bytes) as u64;
        let pages = records.div_ceil(per_page) as usize;
        DeferredTable {
            record_bytes,
            records,
            pages_in_memory_max: pages_in_memory_max.max(1),
            pages: std::iter::repeat_with(Page::default).take(pages).collect(),
            in_memory: Vec::new(),
            hand: 0,
            scratch: None,
        }
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.records
    }

    /// One record, to be read or changed.
    pub fn record(&mut self, index: u64, maker: &mut ScratchMaker) -> Result<&mut [u8]> {
        debug_assert!(index < self.records);
        let per_page = (PAGE_BYTES / self.record_bytes) as u64;
        let (page, slot) = ((index / per_page) as usize, (index % per_page) as usize);
        if self.pages[page].bytes.is_none() {
            self.load(page, maker)
                .map_err(|source| MkError::Scratch("unfinished inodes", source))?;
        }
        let page = &mut self.pages[page];
        page.was_used = true;
        let bytes = page.bytes.as_deref_mut().expect("just loaded");
        Ok(&mut bytes[slot * self.record_bytes..][..self.record_bytes])
    }

    fn load(&mut self, page: usize, maker: &mut ScratchMaker) -> std::io::Result<()> {
        let mut bytes = if self.in_memory.len() < self.pages_in_memory_max {
            self.in_memory.push(page as u32);
            vec![0; PAGE_BYTES].into_boxed_slice()
        } else {
            let position = self.evicted();
            let victim = std::mem::replace(&mut self.in_memory[position], page as u32) as usize;
            self.write_back(victim, maker)?
        };
        if self.pages[page].is_in_scratch {
            let scratch = self.scratch.as_deref().expect("the page was written there");
            scratch.get_at((page * PAGE_BYTES) as u64, &mut bytes)?;
        } else {
            bytes.fill(0);
        }
        self.pages[page].bytes = Some(bytes);
        Ok(())
    }

    /// Second chance: the first page that was not used since the hand passed it.
    fn evicted(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.in_memory.len();
            let page = &mut self.pages[self.in_memory[self.hand] as usize];
            if !std::mem::take(&mut page.was_used) {
                return self.hand;
            }
        }
    }

    fn write_back(&mut self, page: usize, maker: &mut ScratchMaker) -> std::io::Result<Box<[u8]>> {
        if self.scratch.is_none() {
            self.scratch = Some(maker()?);
        }
        let bytes = self.pages[page]
            .bytes
            .take()
            .expect("pages in the list are in memory");
        let scratch = self.scratch.as_deref_mut().expect("just made");
        scratch.put_at((page * PAGE_BYTES) as u64, &bytes)?;
        self.pages[page].is_in_scratch = true;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_eviction() {
        let mut maker: ScratchMaker = Box::new(|| Ok(Box::new(tempfile::tempfile()?)));
        let mut table = DeferredTable::new(256, 5000, 2);
        let mut expected = vec![0u8; 5000];
        let mut state = 1u64;
        for round in 0..50_000u64 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let index = (state >> 33) % 5000;
            let record = table.record(index, &mut maker).unwrap();
            assert_eq!(record[17], expected[index as usize]);
            record[17] = round as u8;
            expected[index as usize] = round as u8;
        }
        assert_eq!(table.len(), 5000);
    }
}
