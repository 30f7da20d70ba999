//! A number for each inode, in a file without a name: four bytes each where numbers of inodes lie
//! together.
//!
//! Names that are neighbours mostly lead to inodes that are, so the pages used last answer almost
//! always. Numbers of inodes that are very large share a part of the file by chance: what another
//! has taken the place of is not found.

use super::Spill;
use bale_pipeline::memory::MemoryPlan;

const PAGE_NUMBERS: usize = 1 << 10;
const PAGE_BYTES: usize = 4 * PAGE_NUMBERS;
/// Pages in memory: 4 MiB with the usual ceiling. A page has one place there.
const PAGES_KEPT: usize = 1 << 10;
/// Inodes of one file system that have a place of their own.
const DIRECT_INODES: u64 = 1 << 34;
/// File systems whose inodes have. What is behind, takes the place of an earlier one.
const DIRECT_FILESYSTEMS: u64 = 8;
const DIRECT_PAGES: u64 = DIRECT_INODES / PAGE_NUMBERS as u64;
/// Pages for all other inodes: 1 GiB.
const SHARED_PAGES: u64 = 1 << 18;

type Page = [u8; PAGE_BYTES];

/// Numbers by inode; 0: none, or it is forgotten.
pub(super) struct Pages {
    kept: Vec<Option<Kept>>,
    spill: Spill,
}

struct Kept {
    number: u64,
    is_new: bool,
    page: Box<Page>,
}

impl Pages {
    pub(super) fn new(spill: Spill, memory: &MemoryPlan) -> Pages {
        Pages {
            kept: (0..memory.share(PAGES_KEPT)).map(|_| None).collect(),
            spill,
        }
    }

    /// The number of an inode.
    pub(super) fn get(&mut self, filesystem: u32, inode: u64) -> u32 {
        let at = place_in_page(inode);
        let kept = self.page(filesystem, inode);
        u32::from_le_bytes(kept.page[at..at + 4].try_into().expect("4 bytes"))
    }

    /// Gives an inode a number.
    pub(super) fn set(&mut self, filesystem: u32, inode: u64, number: u32) {
        let at = place_in_page(inode);
        let kept = self.page(filesystem, inode);
        kept.page[at..at + 4].copy_from_slice(&number.to_le_bytes());
        kept.is_new = true;
    }

    /// The page of an inode, in memory; another one may have to make room.
    fn page(&mut self, filesystem: u32, inode: u64) -> &mut Kept {
        let number = page_of(filesystem, inode);
        let at = slot_of(number, self.kept.len());
        let place = &mut self.kept[at];
        let before = match place.take() {
            Some(kept) if kept.number == number => return place.insert(kept),
            before => before,
        };
        let mut page = match before {
            Some(before) => {
                if before.is_new {
                    let at = before.number * PAGE_BYTES as u64;
                    self.spill.write(&before.page[..], at);
                }
                before.page
            }
            None => Box::new([0; PAGE_BYTES]),
        };
        self.spill.read(&mut page[..], number * PAGE_BYTES as u64);
        place.insert(Kept {
            number,
            is_new: false,
            page,
        })
    }
}

fn place_in_page(inode: u64) -> usize {
    4 * (inode as usize % PAGE_NUMBERS)
}

/// Where in memory a page has its place: pages of several file systems side by side.
fn slot_of(page: u64, slots: usize) -> usize {
    let filesystem = page / DIRECT_PAGES;
    (page + filesystem * (slots as u64 / 3)) as usize % slots
}

fn page_of(filesystem: u32, inode: u64) -> u64 {
    let page = inode / PAGE_NUMBERS as u64;
    let filesystem = u64::from(filesystem);
    if inode < DIRECT_INODES {
        return filesystem % DIRECT_FILESYSTEMS * DIRECT_PAGES + page;
    }
    let mut mixed = page ^ filesystem.rotate_left(48);
    for factor in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
        mixed = (mixed ^ mixed >> 31).wrapping_mul(factor);
    }
    DIRECT_FILESYSTEMS * DIRECT_PAGES + (mixed ^ mixed >> 29) % SHARED_PAGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_from_pages_that_had_to_make_room() {
        let directory = tempfile::tempdir().unwrap();
        let spill = Spill::in_directory(Some(directory.path().to_owned()));
        let mut pages = Pages::new(spill, &MemoryPlan::USUAL);
        // Three pages for each place in memory, of two file systems.
        let inodes =
            || (0..3 * PAGES_KEPT as u64).map(|page| page * PAGE_NUMBERS as u64 + page % 1000);
        for (number, inode) in inodes().enumerate() {
            for filesystem in [0, 7] {
                assert_eq!(pages.get(filesystem, inode), 0);
                let number = 2 * number as u32 + filesystem + 1;
                pages.set(filesystem, inode, number);
            }
        }
        for (number, inode) in inodes().enumerate() {
            for filesystem in [7, 0] {
                let expected = 2 * number as u32 + filesystem + 1;
                assert_eq!(pages.get(filesystem, inode), expected);
                assert_eq!(pages.get(filesystem, inode + 1), 0);
            }
        }
    }

    #[test]
    fn inodes_of_any_number_have_a_place() {
        let last = DIRECT_FILESYSTEMS * DIRECT_PAGES + SHARED_PAGES;
        for inode in [0, DIRECT_INODES - 1, DIRECT_INODES, 1 << 50, u64::MAX] {
            for filesystem in [0, 7, 8, u32::MAX] {
                assert!(page_of(filesystem, inode) < last);
                assert!(place_in_page(inode) + 4 <= PAGE_BYTES);
            }
        }
        // Neighbours stay neighbours.
        assert_eq!(page_of(0, 1 << 50), page_of(0, (1 << 50) + 1000));
        assert_ne!(page_of(0, 5), page_of(1, 5));
    }
}
