//! Are the files of a directory read once it is listed? Who packs or copies a tree does so, who
//! looks for a name does not, and the kernel says neither which program it is nor what it wants.
//!
//! Of the last listings it is known whether somebody read a file in them. As long as that is so,
//! small files are pushed into the kernel's cache as soon as a directory is listed to its end: of a
//! tree with few files in each directory, nothing else would be quick.

use crate::limits::PUSHED_FILES;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Listings that are remembered; who reads what he lists does so before long.
const LISTINGS_MAX: usize = 16;
/// How much one listing that was read, or not, changes what is expected of the next.
const STEP: u32 = 2;
/// From here on it is expected.
const TRUST_MIN: u32 = 2 * STEP;
const TRUST_MAX: u32 = 16;

#[derive(Default)]
pub struct ReadListings(Mutex<State>);

#[derive(Default)]
struct State {
    /// The oldest first.
    listings: VecDeque<Listing>,
    trust: u32,
}

struct Listing {
    directory: u64,
    /// Numbers of its entries, as far as it is listed; others may lie between.
    numbers: Range<u64>,
    /// Whoever reads its files has to ask for one of them.
    is_telling: bool,
    was_read: bool,
}

/// Small files among numbers that were listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallFiles {
    pub are_some: bool,
    /// One of them is not pushed in any case.
    pub one_is_left_out: bool,
}

impl ReadListings {
    /// A directory is listed from its beginning, and this is its first entry.
    pub fn begins(&self, directory: u64, first: u64) {
        let mut state = self.lock();
        state.listings.retain(|found| found.directory != directory);
        if state.listings.len() == LISTINGS_MAX
            && let Some(oldest) = state.listings.pop_front()
            && oldest.is_telling
            && !oldest.was_read
        {
            state.trust = state.trust.saturating_sub(STEP);
        }
        state.listings.push_back(Listing {
            directory,
            numbers: first..first + 1,
            is_telling: false,
            was_read: false,
        });
    }

    /// It is listed to its end, and this is its last entry. The numbers that are to be pushed, if
    /// they are expected to be read.
    pub fn ended(
        &self,
        directory: u64,
        last: u64,
        small_files: impl FnOnce(Range<u64>) -> SmallFiles,
    ) -> Option<Range<u64>> {
        let mut state = self.lock();
        let is_trusted = state.trust >= TRUST_MIN;
        let mut listings = state.listings.iter_mut();
        let listing = listings.rfind(|found| found.directory == directory)?;
        listing.numbers.end = listing.numbers.end.max(last + 1);
        let Range { start, end } = listing.numbers;
        let numbers = start..end.min(start + PUSHED_FILES);
        let small = small_files(numbers.clone());
        let is_pushed = is_trusted && small.are_some;
        listing.is_telling = match is_pushed {
            true => small.one_is_left_out,
            false => small.are_some,
        };
        is_pushed.then_some(numbers)
    }

    /// A file is asked for.
    pub fn read(&self, number: u64) {
        let mut state = self.lock();
        let mut listings = state.listings.iter_mut();
        let found = listings.rfind(|found| found.numbers.contains(&number));
        if let Some(listing) = found
            && !listing.was_read
        {
            listing.was_read = true;
            state.trust = (state.trust + STEP).min(TRUST_MAX);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: SmallFiles = SmallFiles {
        are_some: true,
        one_is_left_out: false,
    };

    /// Directory `at` has the numbers of ten entries.
    fn list(listings: &ReadListings, at: u64, small: SmallFiles) -> Option<Range<u64>> {
        let first = 10 * at;
        listings.begins(1_000_000 + at, first);
        listings.ended(1_000_000 + at, first + 9, |numbers| {
            assert_eq!(numbers, first..first + 10);
            small
        })
    }

    #[test]
    fn who_reads_what_he_lists_is_pushed_the_next_directories() {
        let listings = ReadListings::default();
        for at in 0..2 {
            assert_eq!(list(&listings, at, SMALL), None);
            listings.read(10 * at);
            listings.read(10 * at + 1);
        }
        // Directories without files, and those of which nobody need ask for anything, say nothing.
        let without = SmallFiles {
            are_some: false,
            one_is_left_out: false,
        };
        for at in 2..200 {
            assert_eq!(list(&listings, at, SMALL), Some(10 * at..10 * at + 10));
            assert_eq!(list(&listings, 1000 + at, without), None);
        }
    }

    #[test]
    fn who_only_lists_is_pushed_nothing_and_soon_so_after_somebody_who_read() {
        let listings = ReadListings::default();
        let telling = SmallFiles {
            one_is_left_out: true,
            ..SMALL
        };
        for at in 0..100 {
            assert_eq!(list(&listings, at, SMALL), None);
        }
        for at in 100..200 {
            list(&listings, at, telling);
            listings.read(10 * at);
        }
        let pushed = (200..300).filter(|at| list(&listings, *at, telling).is_some());
        let most = LISTINGS_MAX + (TRUST_MAX / STEP) as usize;
        assert!((LISTINGS_MAX..=most).contains(&pushed.count()));
        assert_eq!(list(&listings, 300, telling), None);
    }

    #[test]
    fn of_a_large_directory_the_first_are_pushed() {
        let listings = ReadListings::default();
        for at in 0..2 {
            list(&listings, at, SMALL);
            listings.read(10 * at);
        }
        listings.begins(7, 5000);
        let numbers = listings.ended(7, 1 << 30, |_| SMALL);
        assert_eq!(numbers, Some(5000..5000 + PUSHED_FILES));
        // Of one whose beginning is forgotten nothing is known.
        assert_eq!(listings.ended(8, 9000, |_| SMALL), None);
    }
}
