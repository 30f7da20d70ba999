//! The second view of an image: the files in it, as directories beside it.
//!
//! When all blocks are stored, each file system that can be read by itself is scanned by its
//! inodes, and its rows point into the chunks of the blocks. A view whose file system has no block
//! that changed keeps its rows. Where only some changed, and the cache knows what the inodes were,
//! rows stay whose inode is the same and whose content is in no block that changed. An image of
//! several moments has no views: what its tables say need not be where they say it is.

use super::super::commit::StoredPass;
use super::super::digest_cache::{DigestCache, NewDigests};
use super::super::parent::Parent;
use super::super::run::{BackupRun, Outcome};
use super::super::tally::Tally;
use super::ImageSource;
use super::block_map::BlockMap;
use super::block_runs::BlockRuns;
use super::early_scan::{Begin, EarlyScan, Found, ScanPlace, Started, start, while_storing};
use super::few_rows;
use super::file_content::FileContents;
use super::in_use::unread;
use super::passed::{Passed, PassedImage};
use super::planned_view::{Plan, Planned};
use super::view_names::{ViewNames, view_name};
use super::view_rows::{ViewRows, WrittenView};
use crate::limits::scan_beside_images;
use bale_format::snapshot::{Filesystem, ImageState, ImageView, PathText, Totals, VIEWS_MAX};
use bale_fsimage::allocated::AllocatedRanges;
use bale_pipeline::error::Failure;
use bale_pipeline::memory::MemoryPlan;
use bale_repository::catalog::CatalogReader;
use bale_repository::error::{Error, Result};
use bale_repository::pack::ChunkWriter;
use bale_source::image::Image;
use bale_source::scan::inode::{Digests, IsReplaced};
use bale_source::scan::{OpenParentDigests, PartFew, PartFound};
use bytes::Bytes;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

/// What a listing works with.
pub(super) struct Listing<'a> {
    pub(super) run: &'a BackupRun,
    pub(super) parent: &'a Parent,
    pub(super) store: &'a Arc<ChunkWriter>,
    pub(super) tally: &'a Tally<'a>,
}

/// Of one image: where its blocks are, and its views.
struct ListedImage {
    map: Option<BlockMap>,
    /// Blocks in which anything may be other than the parent has it.
    replaced: Arc<BlockRuns>,
    views: Vec<ImageView>,
}

/// What came of listing: the views of each image, and what the next backup is to know of them.
pub(super) struct Listed {
    pub(super) views: Vec<Vec<ImageView>>,
    pub(super) digests: Vec<(Bytes, NewDigests)>,
}

impl Listed {
    /// Nothing, of so many images.
    pub(super) fn nothing(images: usize) -> Listed {
        Listed {
            views: vec![Vec::new(); images],
            digests: Vec::new(),
        }
    }
}

impl Listing<'_> {
    /// Stores blocks by `store`, and scans the largest of the file systems meanwhile, if its files
    /// have to be listed anew and there is memory for it.
    pub(super) fn while_storing(
        &self,
        planned: &[Planned],
        store: impl FnOnce(Option<Begin>) -> Result<Passed>,
    ) -> Result<(Option<EarlyScan>, Passed)> {
        let largest = planned.iter().max_by_key(|view| view.bytes());
        let memory = scan_beside_images(&self.run.repository.memory());
        let (Some(view), Some(memory)) = (largest, memory) else {
            return Ok((None, store(None)?));
        };
        if view.before.is_some() && self.digests_of(view)?.recall_inodes(self.parent).is_some() {
            // Few rows are made once it is known what changed; before, it would be all.
            return Ok((None, store(None)?));
        }
        let place = self.place(view, memory)?;
        let monitor = self.tally.monitor();
        let is_certain = view.before.is_none();
        let store = |begin| store(Some(begin));
        let (early, passed) = while_storing(view, is_certain, &place, monitor, store);
        Ok((early, passed?))
    }

    fn place(&self, view: &Planned, memory: MemoryPlan) -> Result<ScanPlace> {
        Ok(ScanPlace {
            spill_directory: self.run.repository.spill_dir()?,
            memory,
            inode_key: self.digests_of(view)?.inode_key(),
            with_atime: self.run.draft.atimes,
        })
    }

    fn digests_of(&self, view: &Planned) -> Result<DigestCache> {
        DigestCache::of_view(self.run, &view.name, self.parent)
    }

    /// Lists files of images whose blocks are stored.
    pub(super) fn list(
        &self,
        sources: &[ImageSource],
        plan: Plan,
        mut early: Option<EarlyScan>,
        stored: &mut StoredPass,
        passed: Vec<PassedImage>,
    ) -> Result<Listed> {
        self.report_unlisted(sources, &plan, &passed);
        let mut planned = plan.views;
        planned.retain(|view| sources[view.image].image.disturbance().is_none());
        for view in &mut planned {
            let depends_on = view.file_system.depends_on();
            let changed = &passed[view.image].changed;
            view.is_changed = changed.touch(&depends_on);
        }
        let mut taken = self.kept_filesystems(&planned);
        let before = ViewNames::of_parent(self.parent);
        let names: HashSet<&Bytes> = planned.iter().map(|view| &view.name).collect();
        let gone: Vec<&Bytes> = before.iter().filter(|name| !names.contains(name)).collect();
        let mut images: Vec<ListedImage> = passed
            .into_iter()
            .map(|image| ListedImage {
                replaced: Arc::new(image.replaced()),
                map: image.map,
                views: Vec::new(),
            })
            .collect();
        let mut digests = Vec::new();
        for view in &planned {
            let image = &mut images[view.image];
            if let Some(kept) = view.kept() {
                image.views.push(kept.clone());
                digests.push((view.name.clone(), NewDigests::OfParent(None)));
                continue;
            }
            let early = early.take_if(|early| early.name == view.name);
            let (record, scanned) = self.list_view(view, early, (stored, image), &mut taken)?;
            let scanned = scanned.filter(|_| is_whole(&record));
            digests.extend(scanned.map(|digests| (view.name.clone(), of_one_moment(digests))));
            image.views.push(record);
        }
        for name in gone {
            self.remove_view(name, stored)?;
        }
        // Where an image was written to while its files were listed, they are of no moment.
        for view in &planned {
            if sources[view.image].image.disturbance().is_some() {
                self.remove_view(&view.name, stored)?;
                images[view.image].views.clear();
                digests.retain(|(name, _)| *name != view.name);
            }
        }
        Ok(Listed {
            views: images.into_iter().map(|image| image.views).collect(),
            digests,
        })
    }

    /// Reports what files are not listed, unless why was reported when the image was read.
    fn report_unlisted(&self, sources: &[ImageSource], plan: &Plan, passed: &[PassedImage]) {
        for (image, text) in &plan.unlisted {
            if passed[*image].is_whole && !passed[*image].has_gaps {
                let name = sources[*image].image.name();
                self.tally
                    .report_problem(name, "list the files", text.clone());
            }
        }
    }

    /// Notes what inodes of views were, for the snapshot that was made.
    pub(super) fn remember(&self, digests: Vec<(Bytes, NewDigests)>, outcome: &Outcome) {
        for (name, digests) in digests {
            match DigestCache::of_view(self.run, &name, self.parent) {
                Ok(cache) => cache.remember(digests, self.parent, outcome, self.tally),
                Err(error) => {
                    let text = format!("the next backup will be slower: {error}");
                    self.tally.note(&text);
                }
            }
        }
    }

    fn remove_view(&self, name: &[u8], stored: &mut StoredPass) -> Result<()> {
        let catalog = self.catalog(stored)?;
        let written = self.rows(name, &catalog, stored)?.finish()?;
        take(stored, &written);
        Ok(())
    }

    /// The views that images will have, if they stand still. `are_listed`: of which images.
    pub(super) fn plan(&self, sources: &[ImageSource], are_listed: &[bool]) -> Plan {
        let images: Vec<Bytes> = sources.iter().map(|one| one.image.name().clone()).collect();
        let several = sources.len() > 1;
        let mut plan = Plan::default();
        for (at, (source, is_listed)) in sources.iter().zip(are_listed).enumerate() {
            if !is_listed {
                continue;
            }
            if source.image.state() == ImageState::Fuzzy {
                let path = source.image.path().display();
                self.tally.note(&format!(
                    "{path}: its files are not listed, as it is of no one moment"
                ));
                continue;
            }
            let (bytes, sector) = (source.image.byte_source(), source.image.sector_bytes());
            let ranges = AllocatedRanges::of(bytes, sector);
            let unlisted = unread(&ranges).into_iter();
            plan.unlisted.extend(unlisted.map(|text| (at, text)));
            for file_system in ranges.into_file_systems() {
                let several = several || source.is_one_of_several;
                let part = &file_system.name;
                let name = view_name(source.image.name(), part, several, &images);
                let name = name.filter(|name| plan.views.iter().all(|other| other.name != *name));
                let Some(name) = name.filter(|_| plan.views.len() < VIEWS_MAX) else {
                    let path = source.image.path().display();
                    let text = format!(
                        "{path}: the files of {} are not listed",
                        part.escape_debug()
                    );
                    self.tally.note(&text);
                    continue;
                };
                plan.views.push(Planned {
                    before: self.before(source, &name),
                    image: at,
                    name,
                    file_system: Arc::new(file_system),
                    is_changed: true,
                });
            }
        }
        plan
    }

    /// The parent's view, if it is whole.
    fn before(&self, source: &ImageSource, name: &Bytes) -> Option<ImageView> {
        let says_the_same = self.parent.atimes == self.run.draft.atimes;
        if !self.parent.is_reusable_whole() || !says_the_same {
            return None;
        }
        let row = self
            .parent
            .catalog
            .lookup(source.image.name())
            .ok()
            .flatten();
        if row.is_none_or(|row| row.size != source.image.len_bytes()) {
            // What was behind the end is no block that changed.
            return None;
        }
        let path = source.record().path;
        let before = self.parent.images.iter().find(|image| image.path == path)?;
        let mut views = before.views.iter();
        let view = views.find(|view| view.path.0.strip_prefix(b"/") == Some(&name[..]))?;
        is_whole(view).then(|| view.clone())
    }

    /// Positions in the list of file systems that rows of kept views point at.
    fn kept_filesystems(&self, planned: &[Planned]) -> Vec<u32> {
        let kept = planned.iter().filter_map(Planned::kept);
        let places: HashSet<&PathText> = kept.map(|view| &view.path).collect();
        let list = self.parent.filesystems.iter().enumerate();
        let kept = list.filter(|(_, one)| places.contains(&one.mount));
        kept.map(|(position, _)| position as u32).collect()
    }

    /// Lists the files of a view, or what of them changed, if that is little. Returns what its
    /// tables said, too.
    fn list_view(
        &self,
        view: &Planned,
        early: Option<EarlyScan>,
        (stored, of): (&mut StoredPass, &mut ListedImage),
        taken: &mut Vec<u32>,
    ) -> Result<(ImageView, Option<Arc<Digests>>)> {
        let scan = match self.scan(view, early, &of.replaced, true)? {
            Ok((opened, PartFound::Few(few))) => {
                if let Some(record) = self.write_few(view, (&opened, &few), (stored, of), taken)? {
                    return Ok((record, Some(few.changed.digests().clone())));
                }
                self.scan(view, None, &of.replaced, false)?
            }
            found => found,
        };
        let scan = scan.and_then(|(opened, found)| match found {
            PartFound::Whole(scan) => Ok((opened, scan)),
            PartFound::Few(_) => Err("nobody asked for changes alone".to_owned()),
        });
        let digests = scan.as_ref().ok().map(|(_, scan)| scan.digests.clone());
        let record = self.write_view(view, scan, stored, of, taken)?;
        Ok((record, digests))
    }

    /// Writes the rows of inodes that changed. `None`: the other rows do not bear out that they are
    /// all that did.
    fn write_few(
        &self,
        view: &Planned,
        (opened, few): (&Arc<Image>, &PartFew),
        (stored, of): (&mut StoredPass, &mut ListedImage),
        taken: &mut Vec<u32>,
    ) -> Result<Option<ImageView>> {
        let catalog = self.catalog(stored)?;
        let filesystem = self.tally.filesystem(few.filesystem.clone(), taken);
        let (rows_of, monitor) = ((&catalog, &view.name[..]), self.tally.monitor());
        let found = few_rows::find(rows_of, &few.changed, filesystem, monitor)?;
        let Some(found) = found else {
            return Ok(None);
        };
        let map = of.map.take().expect("planned with one");
        let mut contents = FileContents::new(self.store, &view.file_system, opened, map);
        let amendments = &mut stored.scanned.amendments;
        let rows = ViewRows::of_few(&catalog, self.store, self.tally, amendments);
        let written = rows.write_few(&few.changed, (found, filesystem), &mut contents)?;
        let (map, bytes_read) = contents.into_map();
        of.map = Some(map);
        Ok(Some(self.record(
            view,
            (&few.filesystem, bytes_read),
            (written, stored),
            taken,
        )))
    }

    fn write_view(
        &self,
        view: &Planned,
        scan: std::result::Result<Started, String>,
        stored: &mut StoredPass,
        of: &mut ListedImage,
        taken: &mut Vec<u32>,
    ) -> Result<ImageView> {
        let not_listed = |why: String| ImageView {
            kind: view.kind(),
            path: view.path(),
            uuid: String::new(),
            totals: Totals::default(),
            problems: 0,
            bytes_apart: 0,
            not_listed: Some(why),
            densest: Vec::new(),
        };
        let catalog = self.catalog(stored)?;
        let mut rows = self.rows(&view.name, &catalog, stored)?;
        let (image, scan) = match scan {
            Ok(found) => found,
            Err(why) => {
                let shown = String::from_utf8_lossy(&view.name);
                let text = format!(
                    "the files of /{} are not listed: {why}",
                    shown.escape_debug()
                );
                self.tally.note(&text);
                let written = rows.finish()?;
                take(stored, &written);
                return Ok(not_listed(why));
            }
        };
        let map = of.map.take().expect("planned with one");
        let mut contents = FileContents::new(self.store, &view.file_system, &image, map);
        rows.write(scan.items, &mut contents, taken)?;
        let written = rows.finish()?;
        let (map, bytes_read) = contents.into_map();
        of.map = Some(map);
        let read = (&scan.filesystem, bytes_read);
        Ok(self.record(view, read, (written, stored), taken))
    }

    fn record(
        &self,
        view: &Planned,
        (filesystem, bytes_read): (&Filesystem, u64),
        (written, stored): (WrittenView, &mut StoredPass),
        taken: &mut Vec<u32>,
    ) -> ImageView {
        self.tally.read(bytes_read);
        taken.extend(written.filesystem);
        take(stored, &written);
        ImageView {
            path: view.path(),
            kind: filesystem.kind.clone(),
            uuid: filesystem.uuid.clone(),
            totals: written.totals,
            problems: written.problems,
            bytes_apart: bytes_read,
            not_listed: None,
            densest: written.densest,
        }
    }

    /// The inner error: why it is not listed.
    fn scan(
        &self,
        view: &Planned,
        early: Option<EarlyScan>,
        replaced: &Arc<BlockRuns>,
        are_changes_noted: bool,
    ) -> Result<std::result::Result<Found, String>> {
        let started = match early {
            Some(early) => early.started,
            None => {
                let place = self.place(view, self.run.repository.memory())?;
                let known = self.known(view, replaced, are_changes_noted)?;
                start(view, &place, known, self.tally.monitor())
            }
        };
        match started {
            Ok(started) => Ok(started),
            Err(Failure::Interrupted) => Err(Error::Interrupted),
            Err(error) => {
                let text = bale_pipeline::error::with_causes(&error);
                self.tally
                    .report_problem(&view.name, "list the files", text.clone());
                Ok(Err(text))
            }
        }
    }

    /// What inodes were in the parent, if its rows may stay: the view is whole there, and lies
    /// where it lay.
    fn known(
        &self,
        view: &Planned,
        replaced: &Arc<BlockRuns>,
        are_changes_noted: bool,
    ) -> Result<Option<OpenParentDigests>> {
        if view.before.is_none() || replaced.touch(view.file_system.around()) {
            return Ok(None);
        }
        let is_replaced = is_replaced(view, replaced.clone());
        Ok(self
            .digests_of(view)?
            .recall_placed(self.parent, is_replaced, are_changes_noted))
    }

    /// What is stored by now, to be read.
    fn catalog(&self, stored: &StoredPass) -> Result<CatalogReader> {
        let repository = &self.run.repository;
        self.store.flush()?;
        repository.reload_index_as_far_as_possible()?;
        let layers = stored.layers.clone();
        Ok(CatalogReader::open(repository.segment_source(), layers)?)
    }

    fn rows<'a>(
        &'a self,
        name: &[u8],
        catalog: &CatalogReader,
        stored: &'a mut StoredPass,
    ) -> Result<ViewRows<'a>> {
        let amendments = &mut stored.scanned.amendments;
        ViewRows::of(name, catalog, self.store, self.tally, amendments)
    }
}

/// Does all that its rows say lie in blocks of the image, and is it known?
fn is_whole(view: &ImageView) -> bool {
    (view.problems, view.bytes_apart) == (0, 0) && view.not_listed.is_none()
}

/// May anything in a range of the file system be other than in the parent?
fn is_replaced(view: &Planned, replaced: Arc<BlockRuns>) -> IsReplaced {
    let file_system = view.file_system.clone();
    Arc::new(move |range: &Range<u64>| {
        let mut on_disk = file_system.on_disk(range.clone()).peekable();
        on_disk.peek().is_none() || on_disk.any(|range| replaced.touches(&range))
    })
}

/// Nobody wrote to the image while its tables were read.
fn of_one_moment(digests: Arc<Digests>) -> NewDigests {
    NewDigests::Read {
        state: None,
        digests,
        outdated: Some(Vec::new()),
    }
}

fn take(stored: &mut StoredPass, written: &WrittenView) {
    stored.layers.clone_from(&written.layers);
    stored.changes += written.changes;
}
