//! Sorted runs by how often they were merged: too many of one level become one of the next.
//!
//! The runs of a level stand in one file, so there are as many files as levels, and a file goes as
//! soon as its runs are merged.

use super::merge::Merge;
use super::run::{Layout, RunPlace, RunWriter, SortedRun};
use super::{Result, SpillError, error};
use std::io;
use std::path::{Path, PathBuf};

/// Older records are on higher levels.
pub(super) struct Levels {
    directory: PathBuf,
    layout: Layout,
    /// Runs that become one.
    fan_in: usize,
    /// Bytes of the buffers of one merge.
    merge_bytes: usize,
    levels: Vec<Level>,
}

#[derive(Default)]
struct Level {
    /// In the order of what was pushed.
    runs: Vec<SortedRun>,
    /// Where the next one begins.
    end: Option<RunPlace>,
}

impl Levels {
    pub(super) fn new(
        directory: &Path,
        layout: Layout,
        fan_in: usize,
        merge_bytes: usize,
    ) -> Levels {
        Levels {
            directory: directory.to_path_buf(),
            layout,
            fan_in,
            merge_bytes,
            levels: Vec::new(),
        }
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    pub(super) fn merge_bytes(&self) -> usize {
        self.merge_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// All runs, the youngest first.
    pub(super) fn youngest_first(&self) -> impl Iterator<Item = &SortedRun> {
        let levels = self.levels.iter();
        levels.flat_map(|level| level.runs.iter().rev())
    }

    /// Where a run of what was pushed is to be written. One is written at a time.
    pub(super) fn place(&self) -> Result<RunPlace> {
        self.place_on(0)
    }

    fn place_on(&self, level: usize) -> Result<RunPlace> {
        let end = self.levels.get(level).and_then(|level| level.end.clone());
        match end {
            Some(end) => Ok(end),
            None => RunPlace::in_new_file(&self.directory).map_err(self.error("create")),
        }
    }

    /// Adds a run of what was pushed last.
    pub(super) fn add(&mut self, mut run: SortedRun) -> Result<()> {
        for level in 0.. {
            if self.levels.len() == level {
                self.levels.push(Level::default());
            }
            let here = &mut self.levels[level];
            here.end = Some(RunPlace {
                file: run.place.file.clone(),
                start: run.place.start + run.len,
            });
            here.runs.push(run);
            if here.runs.len() < self.fan_in {
                break;
            }
            let full = std::mem::take(here).runs;
            run = self.merge(full, self.place_on(level + 1)?)?;
        }
        Ok(())
    }

    /// All runs, at most so many.
    pub(super) fn into_runs(mut self, runs_max: usize) -> Result<Vec<SortedRun>> {
        let levels = std::mem::take(&mut self.levels);
        let runs = levels.into_iter().rev().flat_map(|level| level.runs);
        let mut runs: Vec<SortedRun> = runs.collect();
        // The youngest runs are the smallest: those are merged until few enough are left.
        while runs.len() > runs_max {
            let excess = (runs.len() - runs_max + 1).clamp(2, self.fan_in);
            let youngest = runs.split_off(runs.len() - excess);
            runs.push(self.merge(youngest, self.place_on(0)?)?);
        }
        Ok(runs)
    }

    fn merge(&self, runs: Vec<SortedRun>, place: RunPlace) -> Result<SortedRun> {
        let mut merge = Merge::new(runs, self.merge_bytes).map_err(self.error("read"))?;
        let mut writer = RunWriter::new(place, self.layout);
        while let Some((key, value)) = merge.next_record().map_err(self.error("read"))? {
            writer.push(key, value).map_err(self.error("write"))?;
        }
        writer.finish().map_err(self.error("write"))
    }

    pub(super) fn error(&self, action: &'static str) -> impl Fn(io::Error) -> SpillError + use<> {
        error(action, &self.directory)
    }
}
