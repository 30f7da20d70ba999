//! Scratch space: pairs of a key and a value are sorted on disk, in bounded memory, and the writer
//! of a file system has files without names.

use bale_fsimage::mkext4::ScratchMaker;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::spill;
use std::fs::File;
use std::io;
use std::path::PathBuf;

/// Key and value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// Pairs in the order of their keys.
pub(crate) type SortedPairs = Box<dyn Iterator<Item = io::Result<Pair>> + Send>;

/// A directory for temporary files, and a part of memory. A restore has at most four sorters at a
/// time.
pub struct ScratchSpace {
    directory: PathBuf,
    memory: MemoryPlan,
}

impl ScratchSpace {
    /// With the usual part of memory.
    pub fn new(directory: impl Into<PathBuf>) -> ScratchSpace {
        ScratchSpace {
            directory: directory.into(),
            memory: MemoryPlan::default(),
        }
    }

    /// The same with its part of this.
    pub fn within(self, memory: MemoryPlan) -> ScratchSpace {
        ScratchSpace { memory, ..self }
    }

    /// The part of memory.
    pub(crate) fn memory(&self) -> MemoryPlan {
        self.memory
    }

    /// A new sorter whose part of memory is usually `memory_bytes`.
    pub(crate) fn sorter(&self, memory_bytes: usize) -> PairSorter {
        let memory_bytes = self.memory.share(memory_bytes);
        PairSorter(spill::Sorter::new(&self.directory, memory_bytes))
    }

    /// A new file without a name.
    pub(crate) fn unnamed_file(&self) -> io::Result<File> {
        spill::unnamed_file(&self.directory)
    }

    /// Makes files without names for the writer of a file system, when it asks.
    pub(crate) fn file_maker(&self) -> ScratchMaker {
        let directory = self.directory.clone();
        Box::new(move || Ok(Box::new(spill::unnamed_file(&directory)?)))
    }
}

/// Takes pairs in any order.
pub(crate) struct PairSorter(spill::Sorter);

impl PairSorter {
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.0.push(key, value).map_err(io::Error::other)
    }

    /// All pairs by key, bytewise; those of equal keys in the order in which they came.
    pub fn finish(self) -> io::Result<SortedPairs> {
        let mut sorted = self.0.finish().map_err(io::Error::other)?;
        Ok(Box::new(std::iter::from_fn(move || {
            match sorted.next_record() {
                Ok(record) => record.map(|(key, value)| Ok((key.to_vec(), value.to_vec()))),
                Err(error) => Some(Err(io::Error::other(error))),
            }
        })))
    }
}
