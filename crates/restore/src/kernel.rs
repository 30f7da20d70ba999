//! Restore: a snapshot's rows become files again, exactly, and nowhere but below the target.
//!
//! First the catalog is read once and becomes a plan on disk: directories in order, hard links by
//! inode, file rows by the place of their chunk. Then directories are made, each chunk is fetched
//! once and its files are written by one thread, further names are linked to first names, and
//! directories get their metadata last. Whatever the repository says, every name is checked again
//! here and every call goes through a descriptor that was reached without following a link.
//!
//! A file is unreadable for others and has a fresh mtime until it is whole; its own mtime is set
//! when all else is. So running the same restore again after a kill finishes the work and repeats
//! none of it.

mod arriving;
mod compare;
mod delete;
mod directories;
mod hard_links;
mod image_blocks;
mod image_target;
mod images;
mod make;
mod metadata;
mod outcome;
mod piece_rows;
mod queue;
mod read_back;
mod rows_file;
mod salvage;
mod specials;
mod target;
mod times;
mod worker;
mod write_content;
mod write_large;

use crate::progress::PhaseProgress;
use crate::{
    CatalogSource, ChunkSource, RestoreError, RestoreOptions, RestoreReport, ScratchSpace,
};
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::monitor::{Monitor, Phase};
use image_target::ImageRule;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a restore takes at most, beside reading its chunks and its catalog: rows that wait for
/// threads, and sorts, of which three are filled while it is planned, and two while directories are
/// completed and the others are read.
pub const fn memory_bytes(memory: &MemoryPlan) -> usize {
    let threads = 2 * memory.workers();
    threads * (queue::TASKS_WAITING_MAX + 1) * write_content::TASK_BYTES_MEAN
        + memory.share(3 * directories::SORTER_BYTES)
}

/// Restores what `options` say of `catalog` into the directory `target`, which is made if need be.
pub fn restore(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    target: &Path,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<RestoreReport, RestoreError> {
    let mut planned = crate::plan::plan(catalog, chunks, scratch, options, monitor)?;
    let target = target::Target::open(target, !options.dry_run)?;
    let readable = options.readable(chunks);
    let chunks = readable.as_ref().map_or(chunks, |readable| readable);
    target.check_space(&planned.plan, options)?;
    let progress = PhaseProgress::new(monitor, Phase::Restore);
    progress.planned(&planned.plan);
    let run = worker::RestoreRun::new(&target, chunks, options, progress, &mut planned)
        .read_only(options.dry_run);
    let images = &planned.images;
    make_images_readable(&run, (catalog, chunks), scratch, images)?;

    let directories = directories::create(&run, planned.directories, scratch)?;
    match options.warmer.filter(|_| images.is_empty()) {
        Some(warmer) => arriving::restore(&run, planned.content, scratch, warmer)?,
        None => write_content::restore(&run, planned.content, scratch)?,
    }
    images::restore(&run, catalog, scratch, images, ImageRule::InDirectory)?;
    hard_links::restore(&run, planned.links)?;
    // What stays before what goes: a name that the snapshot does not have may hold the last copy of
    // what it has lost.
    if options.delete {
        match delete::hindrance(&run, planned.complete) {
            None => delete::delete(&run, catalog, directories.by_path, scratch)?,
            Some(text) => run.problem(b"", "delete", &text),
        }
    }
    directories::finish(&run, directories.deepest_first)?;
    target.sync(options)?;
    Ok(run.report())
}

/// Reads again what a restore wrote, from the target's device where it can, and compares it with
/// the repository: content, metadata, links. Every difference is a problem.
pub fn verify(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    target: &Path,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<RestoreReport, RestoreError> {
    let mut planned = crate::plan::plan(catalog, chunks, scratch, options, monitor)?;
    let target = target::Target::open(target, false)?;
    let readable = options.readable(chunks);
    let chunks = readable.as_ref().map_or(chunks, |readable| readable);
    let progress = PhaseProgress::new(monitor, Phase::ReadData);
    progress.planned(&planned.plan);
    let run =
        worker::RestoreRun::new(&target, chunks, options, progress, &mut planned).read_only(true);
    let found = std::mem::take(&mut planned.images);
    compare::compare(&run, planned, scratch)?;
    images::compare(&run, catalog, scratch, &found, ImageRule::InDirectory)?;
    Ok(run.report())
}

/// Restores the one image that `options` say of `catalog` to this very path: a new file, a file of
/// which the blocks that differ are written, or an unused device. With `may_cut`, a file that is
/// longer is cut.
pub fn restore_image(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    (path, may_cut): (&Path, bool),
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<RestoreReport, RestoreError> {
    let (mut planned, target) = plan_image(catalog, chunks, scratch, path, options, monitor)?;
    if path.symlink_metadata().is_err() {
        target.check_space(&planned.plan, options)?;
    }
    let readable = options.readable(chunks);
    let chunks = readable.as_ref().map_or(chunks, |readable| readable);
    let progress = PhaseProgress::new(monitor, Phase::Restore);
    progress.planned(&planned.plan);
    let run = worker::RestoreRun::new(&target, chunks, options, progress, &mut planned)
        .read_only(options.dry_run);
    make_images_readable(&run, (catalog, chunks), scratch, &planned.images)?;
    let rule = ImageRule::Named { path, may_cut };
    images::restore(&run, catalog, scratch, &planned.images, rule)?;
    Ok(run.report())
}

/// Reads back what [`restore_image`] wrote.
pub fn verify_image(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    path: &Path,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<RestoreReport, RestoreError> {
    let (mut planned, target) = plan_image(catalog, chunks, scratch, path, options, monitor)?;
    let readable = options.readable(chunks);
    let chunks = readable.as_ref().map_or(chunks, |readable| readable);
    let progress = PhaseProgress::new(monitor, Phase::ReadData);
    progress.planned(&planned.plan);
    let run =
        worker::RestoreRun::new(&target, chunks, options, progress, &mut planned).read_only(true);
    let rule = ImageRule::Named {
        path,
        may_cut: false,
    };
    images::compare(&run, catalog, scratch, &planned.images, rule)?;
    Ok(run.report())
}

/// The plan of one image whose name is that of `path`, and the directory in which that is.
fn plan_image(
    catalog: &dyn CatalogSource,
    chunks: &dyn ChunkSource,
    scratch: &ScratchSpace,
    path: &Path,
    options: &RestoreOptions,
    monitor: &dyn Monitor,
) -> Result<(crate::plan::Planned, target::Target), RestoreError> {
    let mut planned = crate::plan::plan(catalog, chunks, scratch, options, monitor)?;
    let [image] = &mut planned.images[..] else {
        return Err(RestoreError::NotOneImage {
            images: planned.images.len(),
        });
    };
    let name = path.file_name().unwrap_or_default();
    image.entry.parent = Default::default();
    image.entry.name = bytes::Bytes::copy_from_slice(name.as_bytes());
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    Ok((planned, target::Target::open(directory, false)?))
}

/// Before anything is written: images take packs in their own order.
fn make_images_readable(
    run: &worker::RestoreRun,
    (catalog, chunks): (&dyn CatalogSource, &dyn ChunkSource),
    scratch: &ScratchSpace,
    images: &[crate::plan::PlannedImage],
) -> Result<(), RestoreError> {
    if let Some(warmer) = run.options.warmer.filter(|_| !images.is_empty()) {
        let (options, monitor) = (run.options, run.monitor);
        let problems = crate::make_readable(catalog, chunks, scratch, options, monitor, warmer)?;
        let counter = &run.counters.problems;
        counter.fetch_add(problems, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(())
}
