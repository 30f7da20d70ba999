//! Which name of an inode comes first: the one under which its content is read.
//!
//! A bit for each inode number, in pages that are made when they are needed: numbers of inodes lie
//! together, in blocks at least. What has no room any more is no first name, and is read when a
//! further name asks for it.

use bale_pipeline::memory::MemoryPlan;
use std::collections::HashMap;

/// Inode numbers of one page.
const PAGE_INODES: u64 = 256;
/// Slots of the table of pages with the usual ceiling of memory, of which seven eighths become
/// full: inodes of an ext4 file system that is full of them, 58 million.
const SLOTS_MAX: usize = 1 << 18;
/// An entry of the table of pages, with its control byte.
const SLOT_BYTES: usize = size_of::<(PageKey, u32)>() + 1;

type Page = [u64; PAGE_INODES as usize / 64];

/// File system, and inode number by pages; in words of 32 bits, so that nothing of a slot is lost.
type PageKey = [u32; 3];

/// As a table has: a power of two.
const fn slots_max(memory: &MemoryPlan) -> usize {
    1 << memory.inode_share(SLOTS_MAX).ilog2()
}

/// As many as a table holds before it grows.
const fn pages_max(memory: &MemoryPlan) -> usize {
    slots_max(memory) / 8 * 7
}

/// Memory of one set, if there are as many as it holds: room for pages, which doubles too, and the
/// table. While one of them is copied to become twice as large, the other is not: half of it and
/// the whole are no more than both are in the end.
pub const fn first_names_bytes(memory: &MemoryPlan) -> usize {
    slots_max(memory) * (size_of::<Page>() + SLOT_BYTES)
}

/// Inodes with several names of which one was met.
pub struct FirstNames {
    /// Where the page is.
    places: HashMap<PageKey, u32>,
    pages: Vec<Page>,
    pages_max: usize,
    /// The page looked at last: neighbours mostly have neighbouring numbers.
    last: Option<(PageKey, u32)>,
}

impl FirstNames {
    /// None met; of all sets of one plan the same have room.
    pub fn within(memory: &MemoryPlan) -> FirstNames {
        FirstNames {
            places: HashMap::new(),
            pages: Vec::new(),
            pages_max: pages_max(memory),
            last: None,
        }
    }

    /// Was a name of this inode met?
    pub fn has(&mut self, filesystem: u32, inode: u64) -> bool {
        let page = self.page(filesystem, inode);
        page.is_some_and(|page| self.pages[page][word(inode)] & bit(inode) != 0)
    }

    /// Meets a name of an inode. False: it is a further one, or there is no room to tell.
    pub fn is_first(&mut self, filesystem: u32, inode: u64) -> bool {
        let page = match self.page(filesystem, inode) {
            Some(page) => page,
            None if self.pages.len() >= self.pages_max => return false,
            None => {
                let number = self.pages.len();
                let key = key(filesystem, inode);
                self.pages.push(Page::default());
                self.places.insert(key, number as u32);
                self.last = Some((key, number as u32));
                number
            }
        };
        let word = &mut self.pages[page][word(inode)];
        let was_met = *word & bit(inode) != 0;
        *word |= bit(inode);
        !was_met
    }

    fn page(&mut self, filesystem: u32, inode: u64) -> Option<usize> {
        let key = key(filesystem, inode);
        if let Some((last, page)) = self.last
            && last == key
        {
            return Some(page as usize);
        }
        let page = *self.places.get(&key)?;
        self.last = Some((key, page));
        Some(page as usize)
    }
}

fn key(filesystem: u32, inode: u64) -> PageKey {
    let page = inode / PAGE_INODES;
    [filesystem, (page >> 32) as u32, page as u32]
}

fn word(inode: u64) -> usize {
    (inode % PAGE_INODES / 64) as usize
}

fn bit(inode: u64) -> u64 {
    1 << (inode % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::memory::MEMORY_BYTES_MIN;

    #[test]
    fn a_name_is_first_once_for_each_inode_of_each_file_system() {
        let mut names = FirstNames::within(&MemoryPlan::USUAL);
        let inodes = [0, 1, 63, 64, PAGE_INODES, 1 << 40, u64::MAX];
        for filesystem in [0, 7] {
            for inode in inodes {
                assert!(!names.has(filesystem, inode));
                assert!(names.is_first(filesystem, inode), "{inode}");
                assert!(names.has(filesystem, inode) && !names.has(filesystem, 2));
            }
        }
        for inode in inodes {
            assert!(!names.is_first(7, inode) && !names.is_first(0, inode));
        }
    }

    #[test]
    fn without_room_no_further_inode_has_a_first_name() {
        for (memory, pages_max) in [(MemoryPlan::USUAL, 7 << 15), (least(), 7 << 13)] {
            let mut names = FirstNames::within(&memory);
            for page in 0..pages_max {
                assert!(names.is_first(0, page * PAGE_INODES));
            }
            let beyond = pages_max * PAGE_INODES;
            assert!(!names.is_first(0, beyond) && !names.has(0, beyond));
            assert!(names.is_first(0, beyond - 1), "its page is there");
            assert!(!names.is_first(0, beyond - 1));
        }
    }

    #[test]
    fn a_full_set_takes_no_more_than_is_counted() {
        for memory in [MemoryPlan::USUAL, least()] {
            let mut names = FirstNames::within(&memory);
            for page in 0..pages_max(&memory) as u64 {
                names.is_first(0, page * PAGE_INODES);
            }
            // A table tells of seven of eight slots.
            let slots = names.places.capacity() / 7 * 8;
            let pages = names.pages.capacity() * size_of::<Page>();
            assert!(pages + slots * SLOT_BYTES <= first_names_bytes(&memory));
        }
    }

    fn least() -> MemoryPlan {
        MemoryPlan::new(MEMORY_BYTES_MIN, 2).unwrap()
    }
}
