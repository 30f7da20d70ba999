//! Merges sorted runs: a heap of the runs by the key each is at.

use super::run::{RunReader, SortedRun};
use super::{Prefix, prefix};
use std::io;

/// Least bytes read from a run at once.
const READ_BYTES_MIN: usize = 4 << 10;
/// Most bytes read from a run at once; more is not faster.
const READ_BYTES_MAX: usize = 1 << 20;

/// Records of several runs in order; of equal keys the one of the earlier run first.
pub(super) struct Merge {
    runs: Vec<RunReader>,
    /// Runs that are not at their end, the one with the least key first.
    heap: Vec<Head>,
    /// The first of the heap was handed out and must be passed.
    is_taken: bool,
}

#[derive(Clone, Copy)]
struct Head {
    prefix: Prefix,
    run: usize,
}

impl Merge {
    pub(super) fn new(runs: Vec<SortedRun>, buffer_bytes: usize) -> io::Result<Merge> {
        let read_bytes = (buffer_bytes / runs.len().max(1)).clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        let runs = runs.into_iter().map(|run| RunReader::new(run, read_bytes));
        let runs = runs.collect::<io::Result<Vec<_>>>()?;
        let heads = runs.iter().enumerate().filter_map(|(run, reader)| {
            let prefix = prefix(reader.key()?);
            Some(Head { prefix, run })
        });
        let mut merge = Merge {
            heap: heads.collect(),
            runs,
            is_taken: false,
        };
        for at in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(at);
        }
        Ok(merge)
    }

    /// The next record; valid until the next call.
    #[allow(
        clippy::type_complexity,
        reason = "a name would say less than the two slices"
    )]
    pub(super) fn next_record(&mut self) -> io::Result<Option<(&[u8], &[u8])>> {
        if self.is_taken {
            self.pass_first()?;
        }
        let Some(first) = self.heap.first() else {
            return Ok(None);
        };
        self.is_taken = true;
        Ok(Some(self.runs[first.run].record()))
    }

    /// The record that was handed out last.
    pub(super) fn current(&self) -> Option<(&[u8], &[u8])> {
        let first = self.heap.first().filter(|_| self.is_taken)?;
        Some(self.runs[first.run].record())
    }

    fn pass_first(&mut self) -> io::Result<()> {
        self.is_taken = false;
        let run = self.heap[0].run;
        self.runs[run].advance()?;
        match self.runs[run].key() {
            Some(key) => self.heap[0].prefix = prefix(key),
            None => drop(self.heap.swap_remove(0)),
        }
        self.sift_down(0);
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.heap.len() && self.is_less(child, least) {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    fn is_less(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.heap[a], self.heap[b]);
        let keys = || self.runs[a.run].key().cmp(&self.runs[b.run].key());
        let order = a.prefix.cmp(&b.prefix).then_with(keys);
        order.then(a.run.cmp(&b.run)).is_lt()
    }
}
