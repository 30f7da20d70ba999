//! The seam to the external sorter: a plan is sorted on disk in bounded memory.

use bale_fsimage::mkext4::ScratchMaker;
use std::io;

/// Key and value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// Pairs in the order of their keys.
pub type Sorted = Box<dyn Iterator<Item = io::Result<Pair>> + Send>;

/// Takes pairs in any order.
pub trait Sorter: Send {
    /// Adds one pair.
    fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// All pairs by key, bytewise; the order of equal keys is open.
    fn finish(self: Box<Self>) -> io::Result<Sorted>;
}

/// Makes sorters. A restore has at most four at a time.
pub trait Scratch: Sync {
    /// A new sorter that keeps at most about `memory_bytes` in memory.
    fn sorter(&self, memory_bytes: usize) -> io::Result<Box<dyn Sorter>>;

    /// Makes files without names for the writer of a file system, when it asks.
    fn file_maker(&self) -> ScratchMaker;
}

/// Sorts in memory without a bound: for tests and small trees.
#[derive(Default)]
pub struct SorterInMemory {
    pairs: Vec<Pair>,
}

impl Sorter for SorterInMemory {
    fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.pairs.push((key.to_vec(), value.to_vec()));
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> io::Result<Sorted> {
        self.pairs.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Box::new(self.pairs.into_iter().map(Ok)))
    }
}

/// Where files go that do not fit in memory.
const TEMPORARY: &str = "/var/tmp";

/// Scratch space that is memory, where it can be.
pub struct InMemory;

impl Scratch for InMemory {
    fn sorter(&self, _memory_bytes: usize) -> io::Result<Box<dyn Sorter>> {
        Ok(Box::new(SorterInMemory::default()))
    }

    fn file_maker(&self) -> ScratchMaker {
        Box::new(|| {
            let file = bale_pipeline::spill::unnamed_file(std::path::Path::new(TEMPORARY))?;
            Ok(Box::new(file))
        })
    }
}
