//! A backup of images: devices as they are, block by block.
//!
//! The events are those of a backup of files, but that nothing is scanned: what is read follows
//! from ranges that hold something, and from what a tracker says has changed. An image is a row
//! below the root, and its bytes are rows below that; what did not change keeps its rows.

mod block_map;
mod block_runs;
mod bundled_rows;
mod by_metadata;
mod changed_granules;
mod early_scan;
mod extent_rows;
mod few_rows;
mod file_content;
mod in_use;
mod marked_granules;
mod parent_images;
mod pass;
mod passed;
mod planned_view;
mod prepare;
mod ready_rows;
mod stored;
mod view_names;
mod view_rows;
mod views;

use super::commit::commit;
use super::parent::Parent;
use super::run::{BackupOptions, BackupRun, Outcome};
use super::tally::Tally;
use super::{after_failure, begin, report_not_found, start_writer, unread_index};
use bale_format::snapshot::{IMAGES_MAX, ImageRecord, ImageState, PathText, SOURCE_IS_RAW, Totals};
use bale_format::snapshot_json::SNAPSHOT_VERSION_IMAGES;
use bale_format::{Entry, EntryFlags, Snapshot};
use bale_fsimage::in_use::sorted_apart;
use bale_pipeline::monitor::Monitor;
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_repository::repository::Repository;
use bale_source::raw::{ChangeTracker, Changes, DeviceRanges, NoTracker, RawImage};
use block_map::BlockMap;
use block_runs::{BlockRuns, recorded};
use by_metadata::{ByMetadata, changed_by_metadata};
use parent_images::{ParentImage, ParentImages};
use pass::{ImagePass, pass};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use views::{Listed, Listing};

/// A device to back up, and who knows what of it.
pub struct ImageSource {
    pub image: RawImage,
    /// Which ranges hold anything; `None`: those that are no holes of the file that it is in.
    pub allocated: Option<DeviceRanges>,
    pub tracker: Box<dyn ChangeTracker>,
    /// Read what no file system has in use, too.
    pub reads_free: bool,
    /// Where nobody keeps account of what changes, ask the inodes of its file systems.
    pub trusts_metadata: bool,
    /// Somebody knows that its file systems were frozen, or unmounted, at the moment that is read.
    pub was_frozen: bool,
    /// List the files in it, too.
    pub lists_files: bool,
    /// Others were named beside it, whether or not they could be opened: names of its views have
    /// its own in front.
    pub is_one_of_several: bool,
}

impl ImageSource {
    /// Of which nobody knows anything.
    pub fn untracked(image: RawImage) -> ImageSource {
        ImageSource {
            image,
            allocated: None,
            tracker: Box::new(NoTracker),
            reads_free: false,
            trusts_metadata: false,
            was_frozen: false,
            lists_files: true,
            is_one_of_several: false,
        }
    }

    /// Whether its bytes are of one moment, as far as can be said before they are read.
    fn state(&self) -> ImageState {
        match self.image.state() {
            ImageState::Fuzzy => ImageState::Fuzzy,
            _ if self.was_frozen => ImageState::Frozen,
            state => state,
        }
    }

    fn record(&self) -> ImageRecord {
        ImageRecord {
            path: PathText([b"/", &self.image.name()[..]].concat()),
            source: PathText(self.image.path().as_os_str().as_bytes().to_vec()),
            how: self.state(),
            tracker: self.tracker.name().to_owned(),
            basis: self.tracker.next_basis(),
            left_out: Vec::new(),
            views: Vec::new(),
        }
    }
}

/// Backs up images and commits a snapshot of them. With `allow_fuzzy`, one that may be of several
/// moments is no problem; the snapshot says so in any case.
pub fn backup_images(
    repository: &Arc<Repository>,
    sources: &mut [ImageSource],
    allow_fuzzy: bool,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    sources.sort_by(|a, b| a.image.name().cmp(b.image.name()));
    refuse_names_twice(sources)?;
    let paths = sources
        .iter()
        .map(|source| source.record().source)
        .collect();
    let draft = Snapshot {
        version: SNAPSHOT_VERSION_IMAGES,
        images: sources.iter().map(ImageSource::record).collect(),
        ..Snapshot::begun([0; 16], repository.clock().time())
    };
    let filesystems = vec![SOURCE_IS_RAW.to_owned()];
    let run = BackupRun::begin_as(repository, (paths, filesystems), draft, options)?;
    let outcome = begin(&run, options, monitor, |parent| {
        store(&run, parent, sources, allow_fuzzy, options, monitor)
    })?;
    if outcome.id.is_some() {
        let trackers = sources.iter_mut().map(|source| &mut source.tracker);
        trackers.for_each(|tracker| tracker.committed());
    }
    Ok(outcome)
}

/// Two rows of one name would be one.
fn refuse_names_twice(sources: &[ImageSource]) -> Result<()> {
    if sources.len() > IMAGES_MAX {
        return Err(Error::Other(format!(
            "{} images in one snapshot: at most {IMAGES_MAX}",
            sources.len()
        )));
    }
    for pair in sources.windows(2) {
        if pair[0].image.name() == pair[1].image.name() {
            return Err(Error::Other(format!(
                "{} and {} would both be {} in the snapshot: back them up one by one",
                pair[0].image.path().display(),
                pair[1].image.path().display(),
                String::from_utf8_lossy(pair[0].image.name()).escape_debug(),
            )));
        }
    }
    Ok(())
}

fn store(
    run: &BackupRun,
    parent: &Parent,
    sources: &mut [ImageSource],
    allow_fuzzy: bool,
    options: &BackupOptions,
    monitor: &dyn Monitor,
) -> Result<Outcome> {
    let expected = Totals {
        files: sources.len() as u64,
        bytes: sources.iter().map(|source| source.image.len_bytes()).sum(),
        ..Totals::default()
    };
    let tally = Tally::new(monitor, parent, expected);
    report_not_found(options, &tally);
    unread_index::report(&run.repository, &tally)?;
    let store = start_writer(run, parent, options)?;
    let done = store_and_commit(run, parent, sources, (&store, &tally), allow_fuzzy, options);
    done.map_err(|error| after_failure(&store, error, monitor))
}

fn store_and_commit(
    run: &BackupRun,
    parent: &Parent,
    sources: &mut [ImageSource],
    (store, tally): (&Arc<ChunkWriter>, &Tally<'_>),
    allow_fuzzy: bool,
    options: &BackupOptions,
) -> Result<Outcome> {
    let found = sources.iter_mut().map(|source| {
        let changes = changes(source, parent, tally)?;
        Ok((changes, source.allocated.take()))
    });
    let found = found.collect::<Result<Vec<_>>>()?;
    let sources = &*sources;
    let work = passes(run, parent, (sources, found), tally, options)?;
    let listing = Listing {
        run,
        parent,
        store,
        tally,
    };
    let are_listed: Vec<bool> = work.iter().map(|pass| pass.map.is_some()).collect();
    let planned = listing.plan(sources, &are_listed);
    let (early, passed) = listing.while_storing(&planned.views, |begin| {
        pass(run, parent, (store, tally), options, work, begin)
    })?;
    let (mut stored, mut passed) = (passed.stored, passed.images);
    let mut images: Vec<ImageRecord> = sources.iter().map(ImageSource::record).collect();
    let is_whole: Vec<bool> = passed.iter().map(|passed| passed.is_whole).collect();
    for ((source, record), passed) in sources.iter().zip(&mut images).zip(&mut passed) {
        report_left_out(source, &passed.left_out, tally);
        let mut left_out = passed.left_out.clone();
        left_out.join(std::mem::take(&mut passed.stale));
        record.left_out = left_out.into_record();
    }
    let Listed { views, digests } = match options.dry_run {
        true => Listed::nothing(images.len()),
        false => listing.list(sources, planned, early, &mut stored, passed)?,
    };
    let images_views = images.iter_mut().zip(views).zip(is_whole);
    for (source, ((record, views), is_whole)) in sources.iter().zip(images_views) {
        record.views = views;
        let Some(text) = source.image.disturbance() else {
            continue;
        };
        record.how = ImageState::Fuzzy;
        if !source.tracker.allows_fuzzy() || !is_whole {
            record.basis = None;
        }
        report_fuzzy(source, &text, allow_fuzzy, tally);
        let key = source.image.row().key();
        stored.scanned.amendments.add(&key, EntryFlags::CHANGED)?;
    }
    let draft = Snapshot {
        images,
        ..run.draft.clone()
    };
    let run = run.with_draft(draft);
    let outcome = commit(&run, parent, stored, store, tally, options)?;
    listing.remember(digests, &outcome);
    Ok(outcome)
}

/// What is read of each image, of what was found of it, and what it is compared with.
fn passes<'a>(
    run: &BackupRun,
    parent: &Parent,
    (sources, found): (&'a [ImageSource], Vec<(Changes, Option<DeviceRanges>)>),
    tally: &Tally<'_>,
    options: &BackupOptions,
) -> Result<Vec<ImagePass<'a>>> {
    let mut work = Vec::new();
    // What lies in a cold store is not read for a comparison.
    let is_read = !run.repository.config().has_cold_store();
    let mut before = None;
    let is_part = sources.iter().any(|source| source.image.is_changes_only());
    if is_part || is_read && !parent.images.is_empty() {
        before = Some(ParentImages::open(&run.repository, parent)?);
    }
    for (source, (mut changes, data)) in sources.iter().zip(found) {
        let data = data.unwrap_or_else(|| source.image.data_ranges());
        let image = &source.image;
        let before = before.as_ref();
        let before = before.filter(|_| image.is_changes_only() || is_read);
        let row = parent.catalog.lookup(image.name()).ok().flatten();
        let row = row.filter(Entry::is_image);
        let before = before.zip(row);
        let before = before.map(|(before, row)| Arc::new(before.image(image.name(), row.size)));
        let mut stale = BlockRuns::default();
        if let (Changes::Everything(_), true) = (&changes, source.trusts_metadata) {
            let found = by_metadata(source, run, parent, before.as_ref(), tally)?;
            if let Some(found) = found {
                changes = Changes::Ranges(found.changes);
                stale = found.stale;
            }
        }
        work.push(ImagePass {
            image,
            data,
            in_use: match source.reads_free || image.is_changes_only() {
                true => None,
                false => in_use::in_use(image, tally),
            },
            changes,
            stale,
            map: block_map(source, run, options)?,
            parent: before,
        });
    }
    Ok(work)
}

/// What changed by the metadata of the file systems in an image. `None`: all is read, which is
/// said.
fn by_metadata(
    source: &ImageSource,
    run: &BackupRun,
    parent: &Parent,
    before: Option<&Arc<ParentImage>>,
    tally: &Tally<'_>,
) -> Result<Option<ByMetadata>> {
    let path = source.image.path().display();
    if !parent
        .images
        .iter()
        .any(|before| before.path == source.record().path)
    {
        // Of a first one that is no news.
        return Ok(None);
    }
    let found = match before {
        _ if source.reads_free => Ok(Err("what is free is to be read, too".to_owned())),
        None => Ok(Err("what the parent has of it is not at hand".to_owned())),
        Some(before) => {
            let directory = run.repository.spill_dir()?;
            changed_by_metadata(source, parent, before, &directory)
        }
    };
    let found = found.map_err(|error| {
        let text = format!("{path}: note in a temporary file what did not change: {error}");
        Error::Other(text)
    })?;
    match found {
        Err(why) => {
            tally.note(&format!("{path}: everything is read: {why}"));
            Ok(None)
        }
        Ok(found) => {
            for text in &found.not_compared {
                tally.note(&format!("{path}: {text}"));
            }
            Ok(Some(found))
        }
    }
}

/// What a tracker says is believed only where all that it leaves out is as the parent has it. An
/// image of which nothing else may be read is refused otherwise.
fn changes(source: &mut ImageSource, parent: &Parent, tally: &Tally<'_>) -> Result<Changes> {
    let is_part = source.image.is_changes_only();
    let record = source.record();
    let since = source.tracker.since_snapshot();
    let mut before = parent.images.iter();
    let before = before.find(|before| match since {
        // Rows of an unfinished run are of a later moment.
        Some(since) => {
            before.path == record.path && parent.id == Some(since) && parent.run.is_none()
        }
        None => before.path == record.path && before.tracker == record.tracker,
    });
    let changes = source
        .tracker
        .changed_since(before.and_then(|before| before.basis.as_deref()));
    let row = parent.catalog.lookup(source.image.name()).ok().flatten();
    let trouble = match source.tracker.allows_fuzzy() {
        true => pass::LACKING,
        false => pass::TROUBLE,
    };
    let row = row.filter(|row| row.is_image() && !row.flags.has_any(trouble));
    let why = match (&changes, before, row) {
        (Changes::Everything(_), ..) if record.tracker == NoTracker.name() && !is_part => {
            return Ok(note_tracked_before(source, &record, parent, tally, changes));
        }
        // Of a first one that is no news.
        (Changes::Everything(why), Some(_), _) => &why.clone(),
        (Changes::Everything(why), ..) if is_part => &why.clone(),
        (Changes::Everything(_), ..) => return Ok(changes),
        // Rows of it are of several moments.
        _ if parent.run.is_some() && !is_part => "the run before did not end",
        (_, None, _) if since.is_some() => {
            "the parent is not the snapshot that the list of changes is of"
        }
        (_, None, _) => "the parent was made without it",
        (_, _, None) => "the parent does not have all of the image",
        (_, _, Some(row)) if row.size > source.image.len_bytes() => "the image is shorter",
        (_, _, Some(row)) if is_part && row.size < source.image.len_bytes() => {
            "the image is longer"
        }
        (_, Some(before), _) if is_part && !before.left_out.is_empty() => {
            "of the parent blocks were left out as free, which --read-free reads"
        }
        (Changes::Ranges(ranges), Some(before), Some(row)) => {
            let mut ranges = with_left_out(ranges, &before.left_out);
            if row.size < source.image.len_bytes() {
                ranges.retain(|range| range.start < row.size);
                ranges
                    .iter_mut()
                    .for_each(|range| range.end = range.end.min(row.size));
                ranges.push(row.size..source.image.len_bytes());
            }
            return Ok(Changes::Ranges(ranges));
        }
    };
    let path = source.image.path().display();
    if is_part {
        return Err(Error::Other(format!(
            "{path}: what changed is not enough: {why}. Begin again with a bitmap of which \
             everything can be read, without --changes-only"
        )));
    }
    tally.note(&format!("{path}: everything is read: {why}"));
    Ok(Changes::Everything(why.to_owned()))
}

/// What was free and is in use now may hold what nobody wrote since.
fn with_left_out(changes: &[Range<u64>], left_out: &[(u64, u64)]) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = changes.to_vec();
    ranges.extend(recorded(left_out));
    sorted_apart(ranges)
}

/// Where its blocks are, for those who list its files. A dry run stores nothing to point at.
fn block_map(
    source: &ImageSource,
    run: &BackupRun,
    options: &BackupOptions,
) -> Result<Option<BlockMap>> {
    // Its file systems cannot be read where nothing but what changed can.
    let lists = source.lists_files && !source.image.is_changes_only();
    if !lists || options.dry_run || source.image.state() == ImageState::Fuzzy {
        return Ok(None);
    }
    let directory = run.repository.spill_dir()?;
    let map = BlockMap::new(&directory, source.image.len_bytes());
    let map = map.map_err(|error| {
        let shown = directory.display();
        Error::Other(format!("make a temporary file in {shown}: {error}"))
    })?;
    Ok(Some(map))
}

fn report_left_out(source: &ImageSource, left_out: &BlockRuns, tally: &Tally<'_>) {
    if left_out.bytes() > 0 {
        tally.note(&format!(
            "{}: {} bytes of {} are in blocks that no file system has in use, and were left out",
            source.image.path().display(),
            left_out.bytes(),
            source.image.len_bytes()
        ));
    }
}

/// That a device is tracked no more, as after a start of the machine, is said once: the snapshot
/// that is made does not have a tracker any more.
fn note_tracked_before(
    source: &ImageSource,
    record: &ImageRecord,
    parent: &Parent,
    tally: &Tally<'_>,
    changes: Changes,
) -> Changes {
    let mut before = parent.images.iter();
    let before = before.find(|before| before.path == record.path && before.basis.is_some());
    if let Some(before) = before {
        tally.note(&format!(
            "{}: everything is read: the snapshot before was made with {}, and nobody keeps \
             account now of what changes (if it is a device: bale track start)",
            source.image.path().display(),
            before.tracker
        ));
    }
    changes
}

fn report_fuzzy(source: &ImageSource, text: &str, is_allowed: bool, tally: &Tally<'_>) {
    let path = source.image.path();
    if is_allowed {
        let path = path.display();
        return tally.note(&format!("{path} is fuzzy, as allowed: {text}"));
    }
    let bytes = path.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"/").unwrap_or(bytes);
    let text = format!(
        "{text}: its bytes may be of several moments (fuzzy; unmount it, read a storage snapshot, \
         or say --allow-fuzzy)"
    );
    tally.report_problem(bytes, "read at one moment", text);
}
