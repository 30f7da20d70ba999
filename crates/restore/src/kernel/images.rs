//! Images: each is a work of its own, with all threads, since one may be larger than all else.

use crate::kernel::image_blocks::{ImageBlocks, ImageDone, ImagePurpose};
use crate::kernel::image_target::{
    ImagePlan, ImageRule, OpenedTarget, descriptor, open, open_to_compare,
};
use crate::kernel::make;
use crate::kernel::metadata;
use crate::kernel::outcome::{EntryFailure, EntryOutcome};
use crate::kernel::read_back::metadata_of;
use crate::kernel::worker::{RestoreRun, Worker};
use crate::plan::PlannedImage;
use crate::scratch::ScratchSpace;
use crate::{CatalogSource, RestoreError, extents};
use rustix::fs::Advice;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

/// Restores images to where the rule says.
pub fn restore(
    run: &RestoreRun,
    catalog: &dyn CatalogSource,
    scratch: &ScratchSpace,
    images: &[PlannedImage],
    rule: ImageRule,
) -> Result<(), RestoreError> {
    let work = |worker: &mut Worker, image: &PlannedImage| match run.options.dry_run {
        true => Ok(would(worker, catalog, image)),
        false => write(worker, (catalog, scratch), image, rule),
    };
    each(run, images, work)
}

/// Compares images with what stands where the rule says.
pub fn compare(
    run: &RestoreRun,
    catalog: &dyn CatalogSource,
    scratch: &ScratchSpace,
    images: &[PlannedImage],
    rule: ImageRule,
) -> Result<(), RestoreError> {
    let seams = (catalog, scratch);
    each(run, images, |worker, image| {
        read_back(worker, seams, image, rule)
    })
}

type Worked = Result<Result<EntryOutcome, EntryFailure>, RestoreError>;

fn each<'r>(
    run: &'r RestoreRun<'r>,
    images: &[PlannedImage],
    mut work: impl FnMut(&mut Worker<'r>, &PlannedImage) -> Worked,
) -> Result<(), RestoreError> {
    let mut worker = Worker::new(run);
    for image in images {
        if run.has_ended() {
            break;
        }
        let outcome = work(&mut worker, image)?;
        // The bytes were counted on the way.
        let mut entry = image.entry.clone();
        entry.size = 0;
        worker.done(&entry, outcome);
    }
    drop(worker);
    run.outcome()
}

fn would(
    worker: &mut Worker,
    catalog: &dyn CatalogSource,
    image: &PlannedImage,
) -> Result<EntryOutcome, EntryFailure> {
    Ok(match make::would(worker, &image.entry)? {
        EntryOutcome::Written(_) => {
            let bytes = extents::stored_bytes(catalog, &image.path, image.entry.size);
            EntryOutcome::Written(bytes)
        }
        other => other,
    })
}

fn write(
    worker: &mut Worker,
    (catalog, scratch): (&dyn CatalogSource, &ScratchSpace),
    image: &PlannedImage,
    rule: ImageRule,
) -> Worked {
    let entry = &image.entry;
    let opened = worker
        .directory(entry)
        .and_then(|directory| Ok((open(worker, &directory, entry, rule)?, directory)));
    let (target, directory) = match opened {
        Ok((ImagePlan::Write(target), directory)) => (target, directory),
        Ok((ImagePlan::Keep, _)) => return Ok(Ok(EntryOutcome::Kept)),
        Ok((ImagePlan::Skip, _)) => return Ok(Ok(EntryOutcome::Skipped)),
        Err(failure) => return Ok(Err(failure)),
    };
    let OpenedTarget {
        file,
        is_new,
        has_metadata,
    } = target;
    let blocks = ImageBlocks {
        run: worker.run,
        image,
        file: &file,
        purpose: match is_new {
            true => ImagePurpose::Fill,
            false => ImagePurpose::Update,
        },
    };
    let done = match blocks.apply(catalog, scratch)? {
        Ok(done) => done,
        Err(failure) => return Ok(Err(failure)),
    };
    let finished = file
        .sync_data()
        .map_err(|error| EntryFailure::text("flush", error.to_string()))
        .and_then(|()| match has_metadata {
            true => metadata::finish_file(worker, &directory, file.as_fd(), entry),
            false => Ok(()),
        });
    Ok(finished.map(|()| outcome(worker, done)))
}

fn outcome(worker: &Worker, done: ImageDone) -> EntryOutcome {
    let counters = &worker.run.counters;
    counters
        .bytes_missing
        .fetch_add(done.missing, Ordering::Relaxed);
    match done.missing {
        0 => EntryOutcome::Written(done.bytes),
        _ => EntryOutcome::Incomplete(done.bytes),
    }
}

fn read_back(
    worker: &mut Worker,
    (catalog, scratch): (&dyn CatalogSource, &ScratchSpace),
    image: &PlannedImage,
    rule: ImageRule,
) -> Worked {
    let entry = &image.entry;
    let opened = worker
        .directory(entry)
        .and_then(|directory| open_to_compare(worker, &directory, entry, rule));
    let file = match opened {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(Ok(EntryOutcome::Different)),
        Err(failure) => return Ok(Err(failure)),
    };
    // What the page cache holds is what was written, not what the device kept.
    let _advice_only = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
    let blocks = ImageBlocks {
        run: worker.run,
        image,
        file: &file,
        purpose: ImagePurpose::Compare,
    };
    let done = match blocks.apply(catalog, scratch)? {
        Ok(done) => done,
        Err(failure) => return Ok(Err(failure)),
    };
    let is_same = match rule {
        ImageRule::InDirectory => metadata_of(worker, &descriptor(file), entry),
        ImageRule::Named { .. } => Ok(EntryOutcome::Kept),
    };
    Ok(is_same.map(|same| match (done.differs, same) {
        (true, _) | (_, EntryOutcome::Different) => EntryOutcome::Different,
        _ => EntryOutcome::Written(done.bytes),
    }))
}
