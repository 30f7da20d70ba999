//! Restoring into a ready ext4 file system, instead of asking the kernel for one file at a time.
//!
//! The catalog is read twice. The first reading counts: then the place of everything is known, and
//! the size is told before anything is written; and contents that lie far from those around them
//! are fetched in the order of the packs. The second writes the file system from front to back,
//! each chunk fetched ahead of its turn. The superblock comes last, so what was interrupted cannot
//! be mounted. Reading back goes the same way a third time.
//!
//! Everything a catalog knows comes back, the change time of inodes too; the access time is the
//! modification time.

mod chunks_ahead;
mod count;
mod entries;
mod image;
mod linked_rows;
mod piece_data;
mod prefetch;
mod rows;
mod signature;
mod target;
mod verify;
mod walk;
mod work;
mod write;

pub use image::ImageFile;
pub use target::{ImageTarget, TargetError, Unfinished};

use crate::ScratchSpace;
use crate::progress::PhaseProgress;
use crate::scratch::SortedPairs;
use crate::totals::PlanTotals;
use crate::{CatalogSource, ChunkSource, RestoreError, RestoreOptions, RestoreReport};
use bale_fsimage::mkext4::{Ext4Options, Plan, STREAM_BUFFER_BYTES, WriterMemory};
use bale_pipeline::amount;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::{Monitor, Phase};
use rows::WantedRows;
use std::fs::File;
use work::{TroubleReports, Work};

/// Readings after the first: writing, or reading back.
const READINGS_MORE: usize = 1;

/// What was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ext4Report {
    /// Entries, as of any restore.
    pub restored: RestoreReport,
    /// Least size that would have held the tree.
    pub needed_bytes: u64,
    /// Size of the file system.
    pub bytes: u64,
    /// Inodes that the file system has, used or not.
    pub inodes: u64,
    /// Bytes handed to the target.
    pub bytes_written: u64,
}

/// Restores what `options` say of `catalog` into a new file system. Of the options, those about
/// what is there already have no meaning here.
pub fn restore(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    target: ImageTarget,
    (mut ext4, options): (Ext4Options, &RestoreOptions),
    monitor: &dyn Monitor,
) -> Result<Ext4Report, RestoreError> {
    target.apply(&mut ext4);
    ext4.memory = writer_memory(options.memory);
    let progress = PhaseProgress::new(monitor, Phase::Restore);
    let work = Work::new(catalog, chunks, scratch, options, ext4, progress);
    let mut above = rows::directories_above(&work, 1 + READINGS_MORE)?;
    let mut counted = count::count(
        &work,
        TroubleReports::Report,
        take(&mut above),
        READINGS_MORE,
    )?;
    if counted.plan.entries() == 0 && work.problems() == 0 && !options.select.is_everything() {
        return Err(RestoreError::NothingSelected);
    }
    let plan = Plan::new(work.ext4.clone(), counted.totals).map_err(RestoreError::Image)?;
    let mut report = planned(&plan);
    note_size(&report, monitor);
    work.progress.planned(&counted.plan);
    if !options.force_space {
        check_space(&target, &plan)?;
    }
    if !options.dry_run {
        let prefetched = counted.prefetched.fetch(&work)?;
        let (sink, unfinished) = target
            .create(plan.bytes())
            .map_err(RestoreError::ImageTarget)?;
        let links = counted.links.pop().expect("one for each reading");
        let rows = || WantedRows::new(&work, TroubleReports::Quiet, take(&mut above));
        let (_sink, summary, restored) =
            chunks_ahead::with_items(&work, rows, (links, prefetched), |items| {
                write::write(&work, plan, sink, items)
            })?;
        unfinished.keep();
        report.restored = restored;
        report.bytes_written = summary.bytes_written;
    }
    if options.dry_run {
        report.restored = would_restore(&counted.plan);
    }
    report.restored.problems = work.problems();
    report.restored.has_damage = work.has_damage();
    report.restored.losses = work.losses.list();
    Ok(report)
}

/// Reads a file system that [`restore`] wrote from its device or file, and compares it with the
/// repository: names, links, metadata, content. Every difference is a problem.
pub fn verify(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    image: File,
    (ext4, options): (Ext4Options, &RestoreOptions),
    monitor: &dyn Monitor,
) -> Result<RestoreReport, RestoreError> {
    let progress = PhaseProgress::new(monitor, Phase::ReadData);
    let work = Work::new(catalog, chunks, scratch, options, ext4, progress);
    let mut above = rows::directories_above(&work, 1 + READINGS_MORE)?;
    // What this reading would tell was told by the restore.
    let mut counted = count::count(
        &work,
        TroubleReports::Quiet,
        take(&mut above),
        READINGS_MORE,
    )?;
    work.progress.planned(&counted.plan);
    let rows = || WantedRows::new(&work, TroubleReports::Quiet, take(&mut above));
    let links = counted.links.pop().expect("one for each reading");
    let prefetched = counted.prefetched.fetch(&work)?;
    chunks_ahead::with_items(&work, rows, (links, prefetched), |items| {
        verify::verify(&work, image, items)
    })
}

/// What a restore takes at most, beside reading its chunks and its catalog: chunks ahead, rows
/// ahead, links, contents set apart and directories above in their order, inodes of links, the
/// writer and its buffers.
pub const fn memory_bytes(memory: &MemoryPlan, is_far_away: bool) -> usize {
    const ITEMS: usize = chunks_ahead::BATCHES_AHEAD_MAX * chunks_ahead::BATCH_ITEMS_MAX;
    // Sorted, they are in one of two buffers, or merged by less.
    const SORTED: usize = 3 * linked_rows::SORTER_BYTES / 16 * 7;
    work::ahead_bytes(memory, is_far_away)
        + memory.share(2 * ITEMS * size_of::<chunks_ahead::ImageItem>() + ITEMS * NAME_BYTES_MEAN)
        + memory.share(SORTED)
        + linked_rows::INODES_IN_MEMORY_MAX * size_of::<u32>()
        + writer_memory(*memory).bytes()
        + image::BUFFERS_MAX * STREAM_BUFFER_BYTES
}

/// Name, and parent where it is not shared, of a row.
const NAME_BYTES_MEAN: usize = 128;

/// The part of the writer.
const fn writer_memory(memory: MemoryPlan) -> WriterMemory {
    let usual = WriterMemory::USUAL;
    WriterMemory {
        inode_bytes: memory.share(usual.inode_bytes),
        name_bytes: memory.share(usual.name_bytes),
        directory_bytes: memory.share(usual.directory_bytes),
    }
}

/// The directories above what is wanted, for the next reading.
fn take(above: &mut Option<Vec<SortedPairs>>) -> Option<SortedPairs> {
    above.as_mut().and_then(Vec::pop)
}

fn planned(plan: &Plan) -> Ext4Report {
    Ext4Report {
        needed_bytes: plan.needed_bytes(),
        bytes: plan.bytes(),
        inodes: plan.inodes(),
        ..Ext4Report::default()
    }
}

/// Said before anything is written.
fn note_size(report: &Ext4Report, monitor: &dyn Monitor) {
    monitor.note(&format!(
        "the tree needs {}; the file system will have {} and {} inodes",
        amount::bytes(report.needed_bytes),
        amount::bytes(report.bytes),
        amount::count(report.inodes)
    ));
}

/// What a dry run says that a restore would write.
fn would_restore(plan: &PlanTotals) -> RestoreReport {
    RestoreReport {
        files_written: plan.files,
        directories: plan.directories,
        others: plan.others,
        links: plan.links,
        bytes: plan.bytes,
        ..RestoreReport::default()
    }
}

/// A file system that does not fit is not begun.
fn check_space(target: &ImageTarget, plan: &Plan) -> Result<(), RestoreError> {
    let bytes_free = target.bytes_free().map_err(RestoreError::ImageTarget)?;
    let bytes_needed = plan.data_bytes();
    if bytes_needed > bytes_free {
        return Err(RestoreError::NoRoom {
            bytes_needed,
            bytes_free,
        });
    }
    Ok(())
}
