//! The names of a directory, sorted; in memory, or, of a large directory, on disk.

use super::SORT_BYTES_MAX;
use bale_pipeline::spill::{Sorted, Sorter, Spill};
use std::io;

/// Longest name (docs/FORMAT.md, `name`).
pub(super) const NAME_BYTES_MAX: usize = 255;

/// Inode (8), and whether it may lead to a directory (1).
const VALUE_BYTES: usize = 9;

/// Names with their inode numbers; each name is followed by a NUL.
#[derive(Default)]
pub(super) struct Names {
    pub(super) arena: Vec<u8>,
    pub(super) items: Vec<ArenaName>,
}

/// One name in an arena.
#[derive(Clone, Copy)]
pub(super) struct ArenaName {
    pub(super) start: u32,
    pub(super) len: u16,
    pub(super) may_be_directory: bool,
    pub(super) inode: u64,
}

impl ArenaName {
    fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + usize::from(self.len)
    }
}

impl Names {
    /// Adds a name that may lead to anything.
    pub(super) fn push(&mut self, name: &[u8], inode: u64) {
        self.push_as(name, inode, true);
    }

    /// Adds a name; false: it does not lead to a directory.
    pub(super) fn push_as(&mut self, name: &[u8], inode: u64, may_be_directory: bool) {
        self.items.push(ArenaName {
            start: self.arena.len() as u32,
            len: name.len() as u16,
            may_be_directory,
            inode,
        });
        self.arena.extend_from_slice(name);
        self.arena.push(0);
    }

    pub(super) fn bytes(&self) -> usize {
        self.arena.len() + self.items.len() * size_of::<ArenaName>()
    }

    pub(super) fn get(&self, at: usize) -> &[u8] {
        &self.arena[self.items[at].range()]
    }

    pub(super) fn sort(&mut self) {
        let arena = &self.arena;
        self.items
            .sort_unstable_by(|a, b| arena[a.range()].cmp(&arena[b.range()]));
    }

    /// Leaves one of each name; they are sorted.
    pub(super) fn dedup(&mut self) {
        let arena = &self.arena;
        self.items
            .dedup_by(|a, b| arena[a.range()] == arena[b.range()]);
    }
}

/// All names of a large directory, to be taken in sorted order.
pub(super) enum SortedNames {
    /// In memory; the next one is at the position.
    Memory(Names, usize),
    /// In memory as far as that goes. Of several listings: with the name that was taken last, which
    /// is not given again.
    Sorted(Sorted, Option<Vec<u8>>),
}

impl SortedNames {
    /// Moves the next `count` names, or all that are left, into `into`. False: nothing is left.
    pub(super) fn take(&mut self, count: usize, into: &mut Names) -> io::Result<bool> {
        match self {
            SortedNames::Memory(names, at) => {
                let end = (*at + count).min(names.items.len());
                for index in *at..end {
                    let item = names.items[index];
                    into.push_as(names.get(index), item.inode, item.may_be_directory);
                }
                *at = end;
                Ok(end < names.items.len())
            }
            SortedNames::Sorted(sorted, last) => {
                let mut taken = 0;
                while taken < count {
                    let record = sorted.next_record().map_err(io::Error::other)?;
                    let Some((name, value)) = record else {
                        return Ok(false);
                    };
                    if let Some(last) = last {
                        if last == name {
                            continue;
                        }
                        last.clear();
                        last.extend_from_slice(name);
                    }
                    push_sorted(name, value, into)?;
                    taken += 1;
                }
                Ok(true)
            }
        }
    }
}

/// Collects the names of a large directory.
pub(super) struct NamesSorter(Sorter);

impl NamesSorter {
    pub(super) fn new(spill: Spill<'_>) -> NamesSorter {
        let bytes = spill.memory.share(SORT_BYTES_MAX);
        NamesSorter(Sorter::new(spill.directory, bytes))
    }

    /// Takes names; `names` is empty afterwards, and takes no memory.
    pub(super) fn take(&mut self, names: &mut Names) -> io::Result<()> {
        let names = std::mem::take(names);
        for at in 0..names.items.len() {
            let item = names.items[at];
            self.push_as(names.get(at), item.inode, item.may_be_directory)?;
        }
        Ok(())
    }

    /// Adds a name; false: it does not lead to a directory.
    pub(super) fn push_as(
        &mut self,
        name: &[u8],
        inode: u64,
        may_be_directory: bool,
    ) -> io::Result<()> {
        let marks = [u8::from(may_be_directory)];
        let value = [&inode.to_le_bytes()[..], &marks, &[]];
        let pushed = self.0.push_parts([name, &[]], value);
        pushed.map_err(io::Error::other)
    }

    /// `is_union`: of several listings, so that a name which came several times is one.
    pub(super) fn finish(self, is_union: bool) -> io::Result<SortedNames> {
        let sorted = self.0.finish().map_err(io::Error::other)?;
        Ok(SortedNames::Sorted(sorted, is_union.then(Vec::new)))
    }
}

/// Adds a name that was sorted, if it is one.
fn push_sorted(name: &[u8], value: &[u8], into: &mut Names) -> io::Result<()> {
    let is_name = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(&0);
    let damaged = || io::Error::other("a temporary file is damaged");
    let value: &[u8; VALUE_BYTES] = value.try_into().map_err(|_| damaged())?;
    let (inode, marks) = value.split_first_chunk().ok_or_else(damaged)?;
    if !is_name {
        return Err(damaged());
    }
    into.push_as(name, u64::from_le_bytes(*inode), marks != [0]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bale_pipeline::memory::MemoryPlan;
    use std::path::Path;

    fn spill() -> Spill<'static> {
        Spill {
            directory: Path::new("/tmp"),
            memory: MemoryPlan::default(),
        }
    }

    fn name(number: u64) -> String {
        format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn names_of_many_runs_come_back_sorted_and_complete() {
        let mut sorter = NamesSorter::new(spill());
        let mut names = Names::default();
        let mut model = Vec::new();
        for number in 0..200_000u64 {
            names.push(name(number).as_bytes(), number);
            model.push((name(number).into_bytes(), number));
            if number % 3_000 == 2_999 {
                sorter.take(&mut names).unwrap();
                assert!(names.items.is_empty());
            }
        }
        model.sort();
        sorter.take(&mut names).unwrap();
        let mut sorted = sorter.finish(false).unwrap();
        let mut all = Names::default();
        while sorted.take(777, &mut all).unwrap() {}
        let all: Vec<_> = (0..all.items.len())
            .map(|at| (all.get(at).to_vec(), all.items[at].inode))
            .collect();
        assert!(all == model);
    }

    #[test]
    fn names_of_several_listings_are_given_once_and_fill_what_is_asked_for() {
        let mut sorter = NamesSorter::new(spill());
        for _ in 0..3 {
            for number in 0..1_000 {
                let name = format!("{number:04}");
                sorter.push_as(name.as_bytes(), number, false).unwrap();
            }
        }
        let mut sorted = sorter.finish(true).unwrap();
        let mut all = Names::default();
        for taken in [300, 600, 900] {
            assert!(sorted.take(300, &mut all).unwrap());
            assert_eq!(all.items.len(), taken);
        }
        assert!(!sorted.take(300, &mut all).unwrap());
        let inodes = all.items.iter().map(|item| item.inode);
        assert!(inodes.eq(0..1_000));
    }

    #[test]
    fn longest_names_cross_the_ends_of_buffers() {
        let mut sorter = NamesSorter::new(spill());
        let long = |number: u64| format!("{number:0255}");
        for number in (0..20_000).rev() {
            let name = long(number);
            sorter
                .push_as(name.as_bytes(), number, number % 3 == 0)
                .unwrap();
        }
        let mut sorted = sorter.finish(false).unwrap();
        let mut all = Names::default();
        sorted.take(usize::MAX, &mut all).unwrap();
        assert_eq!(all.items.len(), 20_000);
        assert!((0..20_000).all(|at| all.get(at as usize) == long(at).as_bytes()));
        let marks = all
            .items
            .iter()
            .map(|item| (item.inode, item.may_be_directory));
        assert!(marks.eq((0..20_000).map(|number| (number, number % 3 == 0))));
    }

    #[test]
    fn what_the_disk_made_of_a_name_is_an_error() {
        let mut names = Names::default();
        assert!(push_sorted(b"name", &[7; VALUE_BYTES], &mut names).is_ok());
        for (name, value_bytes) in [
            (&b""[..], VALUE_BYTES),
            (&[b'n'; NAME_BYTES_MAX + 1], VALUE_BYTES),
            (b"na\0me", VALUE_BYTES),
            (b"name", VALUE_BYTES - 1),
            (b"name", VALUE_BYTES + 1),
        ] {
            assert!(push_sorted(name, &vec![7; value_bytes], &mut names).is_err());
        }
        assert_eq!(names.items.len(), 1);
    }
}
