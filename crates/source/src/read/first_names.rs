//! Which name of an inode comes first: the one under which its content is read.
//!
//! A bit for each inode number, in pages that are made when they are needed: numbers of inodes lie
//! together, in blocks at least. What has no room any more is no first name, and is read when a
//! further name asks for it.

use std::collections::HashMap;

/// Inode numbers of one page.
const PAGE_INODES: u64 = 256;
/// Pages at most: inodes of an ext4 file system that is full of them, 58 million. Seven eighths of
/// a power of two, which is as full as a table of pages becomes.
const PAGES_MAX: usize = 7 << 15;
/// An entry of the table of pages, with its control byte.
const SLOT_BYTES: usize = size_of::<((u32, u64), u32)>() + 1;
/// Memory of one set, if there are that many: the pages, the table, and the one before it while it
/// grows.
pub const FIRST_NAMES_BYTES_MAX: usize = 20 << 20;
const _: () = assert!(
    PAGES_MAX * size_of::<Page>() + PAGES_MAX / 7 * 8 * SLOT_BYTES * 3 / 2 <= FIRST_NAMES_BYTES_MAX
);

type Page = [u64; PAGE_INODES as usize / 64];

/// Inodes with several names of which one was met.
#[derive(Default)]
pub struct FirstNames {
    /// File system and inode number, by pages.
    places: HashMap<(u32, u64), u32>,
    pages: Vec<Page>,
    /// The page looked at last: neighbours mostly have neighbouring numbers.
    last: Option<((u32, u64), u32)>,
}

impl FirstNames {
    /// Was a name of this inode met?
    pub fn has(&mut self, filesystem: u32, inode: u64) -> bool {
        let page = self.page(filesystem, inode);
        page.is_some_and(|page| self.pages[page][word(inode)] & bit(inode) != 0)
    }

    /// Meets a name of an inode. False: it is a further one, or there is no room to tell.
    pub fn is_first(&mut self, filesystem: u32, inode: u64) -> bool {
        let page = match self.page(filesystem, inode) {
            Some(page) => page,
            None if self.pages.len() >= PAGES_MAX => return false,
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

fn key(filesystem: u32, inode: u64) -> (u32, u64) {
    (filesystem, inode / PAGE_INODES)
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

    #[test]
    fn a_name_is_first_once_for_each_inode_of_each_file_system() {
        let mut names = FirstNames::default();
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
        let mut names = FirstNames::default();
        for page in 0..PAGES_MAX as u64 {
            assert!(names.is_first(0, page * PAGE_INODES));
        }
        let beyond = PAGES_MAX as u64 * PAGE_INODES;
        assert!(!names.is_first(0, beyond) && !names.has(0, beyond));
        assert!(names.is_first(0, beyond - 1), "its page is there");
        assert!(!names.is_first(0, beyond - 1));
    }
}
