//! A tree straight into an ext4 file system: no directory is ever opened.

use bale_fsimage::mkext4::{
    BlockSink, Ext4Builder, Ext4Options, Ext4Summary, NoData, Plan, ScratchMaker, TotalsCounter,
    TreeTotals,
};

use super::content::Pool;
use super::error::{GenerateError, Result};
use super::file::{Attributes, Kind};
use super::monitor::{GenerateMonitor, GenerateProgress};
use super::options::GenerateOptions;
use super::rows::{
    FileRow, FilledDirectory, What, batches, batches_of_whole_directories, directory_entry,
    for_each_filled, with_file_entry,
};
use super::tree::Shape;
use super::workers::threads_for;

/// Counts the tree and plans a file system for it.
pub(super) fn plan(options: &GenerateOptions, pool: &Pool, ext4: &Ext4Options) -> Result<Plan> {
    let shape = Shape::new(options);
    let mut totals = TreeTotals::default();
    let count = |directories: &mut dyn Iterator<Item = FilledDirectory>| {
        let mut counter = TotalsCounter::new(ext4);
        directories.for_each(|directory| directory.count(options, &mut counter, pool));
        counter.finish()
    };
    for_each_filled(
        options,
        threads_for(options.threads),
        batches_of_whole_directories(shape.plans()),
        count,
        |counted| {
            totals += counted;
            Ok(())
        },
    )?;
    Ok(Plan::new(ext4.clone(), totals)?)
}

/// Writes the tree that was planned.
pub(super) fn write<S: BlockSink>(
    options: &GenerateOptions,
    pool: &Pool,
    target: (Plan, S, ScratchMaker),
    monitor: &dyn GenerateMonitor,
) -> Result<(S, Ext4Summary, GenerateProgress)> {
    let shape = Shape::new(options);
    let (plan, sink, scratch) = target;
    let mut writer = Writer {
        options,
        pool,
        builder: Ext4Builder::create(plan, sink, scratch)?,
        linked: Vec::new(),
        progress: GenerateProgress::default(),
    };
    // One worker fewer: the builder is busy on this thread, and the sink may have one of its own.
    let threads = threads_for(options.threads).saturating_sub(1).max(2);
    for_each_filled(
        options,
        threads,
        batches(shape.plans()),
        |directories| directories.collect::<Vec<_>>(),
        |directories| {
            for directory in directories {
                writer.push(&directory)?;
            }
            if monitor.progress(&writer.progress) {
                Ok(())
            } else {
                Err(GenerateError::Stopped)
            }
        },
    )?;
    let (sink, summary) = writer.builder.finish()?;
    Ok((sink, summary, writer.progress))
}

struct Writer<'a, S: BlockSink> {
    options: &'a GenerateOptions,
    pool: &'a Pool,
    builder: Ext4Builder<S>,
    /// Inode of the newest version of each file of a link farm: 4 bytes a file of one snapshot.
    linked: Vec<u32>,
    progress: GenerateProgress,
}

impl<S: BlockSink> Writer<'_, S> {
    fn push(&mut self, directory: &FilledDirectory) -> Result<()> {
        let parent = &directory.plan.path;
        if parent.is_empty() && directory.plan.is_first_part {
            let attributes = Attributes::of_directory(directory.plan.dice, self.options);
            self.builder
                .push(&directory_entry(b"", b"", &attributes), &mut NoData)?;
        }
        self.progress.directories += u64::from(directory.plan.is_first_part);
        for row in &directory.rows {
            match &row.what {
                What::Directory(attributes) => {
                    self.builder
                        .push(&directory_entry(parent, &row.name, attributes), &mut NoData)?;
                }
                What::File(file) => self.push_file(directory, &row.name, file)?,
            }
        }
        Ok(())
    }

    fn push_file(
        &mut self,
        directory: &FilledDirectory,
        name: &[u8],
        file: &FileRow,
    ) -> Result<()> {
        let parent = &directory.plan.path;
        if directory.is_link(file) {
            self.progress.links += 1;
            return Ok(self.builder.push_link(
                parent,
                name,
                self.linked[file.position as usize],
            )?);
        }
        let more_links = directory.may_be_linked(file, self.options);
        let mut content = file.shape.content(self.pool);
        let builder = &mut self.builder;
        let inode = with_file_entry(parent, name, &file.shape, more_links, |entry| {
            builder.push(entry, &mut content)
        })?;
        if more_links || self.options.snapshots > 1 {
            let position = file.position as usize;
            self.linked.resize(self.linked.len().max(position + 1), 0);
            self.linked[position] = inode;
        }
        self.progress.count(&file.shape.kind);
        Ok(())
    }
}

impl GenerateProgress {
    /// Adds one file.
    pub(super) fn count(&mut self, kind: &Kind) {
        match kind {
            Kind::Regular { size_bytes, hole } => {
                self.files += 1;
                self.content_bytes += size_bytes - (hole.end - hole.start);
            }
            Kind::Symlink { .. } => self.symlinks += 1,
        }
    }
}
