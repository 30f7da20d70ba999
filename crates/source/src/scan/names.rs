//! The names of a directory, sorted; in memory, or, of a large directory, in sorted runs in a file
//! without a name.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Bytes of a name's record in a run: length (2), inode (8), whether it may lead to a directory
/// (1), then the name.
const RECORD_HEAD_BYTES: usize = 11;
/// Buffer of one run while runs are merged.
const RUN_BUFFER_BYTES: usize = 8 << 10;
/// Runs of one directory: together their buffers are `SORT_BYTES_MAX`, and they hold 2 GiB of
/// names.
const RUNS_MAX: usize = super::SORT_BYTES_MAX / RUN_BUFFER_BYTES;

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

    fn clear(&mut self) {
        self.arena.clear();
        self.items.clear();
    }
}

/// All names of a large directory, to be taken in sorted order.
pub(super) enum SortedNames {
    /// In memory; the next one is at the position.
    Memory(Names, usize),
    /// In a file.
    Runs(NamesMerge),
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
            SortedNames::Runs(merge) => {
                for _ in 0..count {
                    if !merge.next(into)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

/// Collects the names of a large directory.
pub(super) struct NamesSorter {
    directory: PathBuf,
    file: Option<File>,
    end: u64,
    runs: Vec<(u64, u64)>,
}

impl NamesSorter {
    /// Spills into a file without a name in `directory`.
    pub(super) fn new(directory: &Path) -> NamesSorter {
        NamesSorter {
            directory: directory.to_path_buf(),
            file: None,
            end: 0,
            runs: Vec::new(),
        }
    }

    /// Sorts the names and writes them as a run; `names` is empty afterwards.
    pub(super) fn spill(&mut self, names: &mut Names) -> io::Result<()> {
        if self.runs.len() >= RUNS_MAX {
            return Err(io::Error::other(
                "more names in one directory than can be sorted",
            ));
        }
        names.sort();
        if self.file.is_none() {
            self.file = Some(bale_pipeline::spill::unnamed_file(&self.directory)?);
        }
        let file = self.file.as_ref().expect("made above");
        let start = self.end;
        let mut buffer = Vec::with_capacity(2 * RUN_BUFFER_BYTES);
        for at in 0..names.items.len() {
            let name = names.get(at);
            buffer.extend_from_slice(&(name.len() as u16).to_le_bytes());
            buffer.extend_from_slice(&names.items[at].inode.to_le_bytes());
            buffer.push(u8::from(names.items[at].may_be_directory));
            buffer.extend_from_slice(name);
            if buffer.len() >= RUN_BUFFER_BYTES {
                file.write_all_at(&buffer, self.end)?;
                self.end += buffer.len() as u64;
                buffer.clear();
            }
        }
        file.write_all_at(&buffer, self.end)?;
        self.end += buffer.len() as u64;
        self.runs.push((start, self.end));
        names.clear();
        Ok(())
    }

    /// `rest` are the names not spilled.
    pub(super) fn finish(mut self, mut rest: Names) -> io::Result<SortedNames> {
        if self.runs.is_empty() {
            rest.sort();
            return Ok(SortedNames::Memory(rest, 0));
        }
        self.spill(&mut rest)?;
        drop(rest);
        let file = self.file.expect("a run was written");
        NamesMerge::new(file, &self.runs).map(SortedNames::Runs)
    }
}

/// Merges sorted runs.
pub(super) struct NamesMerge {
    file: File,
    runs: Vec<NamesRun>,
    heads: BinaryHeap<NamesHead>,
}

struct NamesRun {
    at: u64,
    end: u64,
    buffer: Vec<u8>,
    used: usize,
}

#[derive(PartialEq, Eq)]
struct NamesHead {
    name: Vec<u8>,
    inode: u64,
    may_be_directory: bool,
    run: usize,
}

// The smallest name is the greatest head: `BinaryHeap` yields the greatest first.
impl Ord for NamesHead {
    fn cmp(&self, other: &NamesHead) -> Ordering {
        (&other.name, other.run).cmp(&(&self.name, self.run))
    }
}

impl PartialOrd for NamesHead {
    fn partial_cmp(&self, other: &NamesHead) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl NamesMerge {
    fn new(file: File, runs: &[(u64, u64)]) -> io::Result<NamesMerge> {
        let mut merge = NamesMerge {
            file,
            runs: Vec::new(),
            heads: BinaryHeap::new(),
        };
        for (index, (start, end)) in runs.iter().enumerate() {
            merge.runs.push(NamesRun {
                at: *start,
                end: *end,
                buffer: Vec::new(),
                used: 0,
            });
            merge.advance(index)?;
        }
        Ok(merge)
    }

    fn next(&mut self, into: &mut Names) -> io::Result<bool> {
        let Some(head) = self.heads.pop() else {
            return Ok(false);
        };
        into.push_as(&head.name, head.inode, head.may_be_directory);
        self.advance(head.run)?;
        Ok(true)
    }

    fn advance(&mut self, index: usize) -> io::Result<()> {
        let run = &mut self.runs[index];
        if run.buffer.len() - run.used < RECORD_HEAD_BYTES + super::list::NAME_BYTES_MAX {
            run.fill(&self.file)?;
        }
        let record = &run.buffer[run.used..];
        if record.is_empty() {
            return Ok(());
        }
        let torn = || io::Error::other("sorted names were cut short");
        let (head, rest) = record
            .split_first_chunk::<RECORD_HEAD_BYTES>()
            .ok_or_else(torn)?;
        let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let inode = u64::from_le_bytes(head[2..10].try_into().expect("eight bytes"));
        let name = rest.get(..len).ok_or_else(torn)?.to_vec();
        run.used += RECORD_HEAD_BYTES + len;
        self.heads.push(NamesHead {
            name,
            inode,
            may_be_directory: head[10] != 0,
            run: index,
        });
        Ok(())
    }
}

impl NamesRun {
    fn fill(&mut self, file: &File) -> io::Result<()> {
        self.buffer.drain(..self.used);
        self.used = 0;
        let kept = self.buffer.len();
        let more = (RUN_BUFFER_BYTES - kept).min((self.end - self.at) as usize);
        self.buffer.resize(kept + more, 0);
        file.read_exact_at(&mut self.buffer[kept..], self.at)?;
        self.at += more as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> String {
        format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[test]
    fn names_of_many_runs_come_back_sorted_and_complete() {
        let mut sorter = NamesSorter::new(Path::new("/tmp"));
        let mut names = Names::default();
        let mut model = Vec::new();
        for number in 0..40_000u64 {
            names.push(name(number).as_bytes(), number);
            model.push((name(number).into_bytes(), number));
            if number % 3_000 == 2_999 {
                sorter.spill(&mut names).unwrap();
                assert!(names.items.is_empty());
            }
        }
        model.sort();
        let mut sorted = sorter.finish(names).unwrap();
        assert!(matches!(sorted, SortedNames::Runs(_)));
        let mut all = Names::default();
        while sorted.take(777, &mut all).unwrap() {}
        let all: Vec<_> = (0..all.items.len())
            .map(|at| (all.get(at).to_vec(), all.items[at].inode))
            .collect();
        assert!(all == model);
    }

    #[test]
    fn longest_names_cross_the_ends_of_buffers() {
        let mut sorter = NamesSorter::new(Path::new("/tmp"));
        let mut names = Names::default();
        let long = |number: u64| format!("{number:0255}");
        for number in (0..1000).rev() {
            names.push(long(number).as_bytes(), number);
        }
        sorter.spill(&mut names).unwrap();
        let mut sorted = sorter.finish(names).unwrap();
        let mut all = Names::default();
        sorted.take(usize::MAX, &mut all).unwrap();
        assert_eq!(all.items.len(), 1000);
        assert!((0..1000).all(|at| all.get(at as usize) == long(at).as_bytes()));
    }
}
