//! Writes the catalog of a new snapshot from its parent's and what has changed.
//!
//! Every row of the parent stays unless it is replaced or removed, so no row can be lost by not
//! being mentioned. The base is seen as *stretches*: stretch i begins at the first key of base
//! segment i that counts (the first one at the beginning) and ends where the next begins. Changes
//! of a stretch are held back until it ends or until overlays have more than an eighth of its rows,
//! or of its bytes; then it is folded: read, merged and written anew. Otherwise they go into the
//! new overlay. Bytes count because a row that is hidden still holds its content: what was deleted
//! could not be given back.
//!
//! ```text
//! base      [ segment 0 ][ segment 1 ][ segment 2 ]     untouched stretches keep their segments
//! overlays  .. .  .        ..........    .   .          those of a folded stretch are clipped out
//! ```
//!
//! Overlays are merged as in a binary counter: those that are not at least twice as large as all
//! after them together go into the new one. So a row is rewritten a number of times logarithmic in
//! the number of backups.

mod stretch;

use super::clip::clip;
use super::cursor::LayerMerge;
use super::cut::{CutRule, SegmentWriter};
use super::{CatalogError, CatalogReader, KeyRange, LAYERS_MAX, Result, SegmentSink, after};
use bale_format::entry::compare_keys;
use bale_format::{Entry, EntryFlags, Key, Kind, Layer, SegmentRef};
use std::cmp::Ordering;
use stretch::{Stretch, StretchState};

/// Takes changes in order of keys and stores them as segments.
///
/// Holds the rows of two unfinished segments, the changes of one stretch (at most an eighth of a
/// segment), and one decoded segment of each layer.
pub struct CatalogWriter<S> {
    parent: CatalogReader,
    sink: S,
    rule: CutRule,
    base: SegmentWriter,
    overlay: SegmentWriter,
    new_base: Vec<SegmentRef>,
    base_rows_written: u64,
    new_overlay: Vec<SegmentRef>,
    /// Overlays of the parent that stay, and those that go into the new one.
    kept: LayerMerge,
    kept_layers: usize,
    merging: LayerMerge,
    /// Keys that were folded, in order, adjacent ones joined.
    folded: Vec<KeyRange>,
    /// Rows that folding has taken out of each layer of the parent that stays; the base is first.
    folded_rows: Vec<u64>,
    stretch: Stretch,
    last: LastKey,
    started: bool,
    failed: bool,
}

/// The key that was taken last, as a copy: a reference to a directory's path would be counted for
/// every row, by a counter that several threads use.
#[derive(Default)]
struct LastKey {
    parent: Vec<u8>,
    name: Vec<u8>,
    is_set: bool,
}

impl LastKey {
    fn is_before(&self, entry: &Entry) -> bool {
        let order = || compare_keys(&self.parent, &self.name, &entry.parent, &entry.name);
        !self.is_set || order().is_lt()
    }

    fn set(&mut self, entry: &Entry) {
        if self.parent != entry.parent {
            self.parent.clear();
            self.parent.extend_from_slice(&entry.parent);
        }
        self.name.clear();
        self.name.extend_from_slice(&entry.name);
        self.is_set = true;
    }

    fn key(&self) -> Option<Key> {
        self.is_set.then(|| Key {
            parent: self.parent.clone().into(),
            name: self.name.clone().into(),
        })
    }
}

pub struct FinishedCatalog<S> {
    /// For the snapshot, oldest first.
    pub layers: Vec<Layer>,
    /// The sink, back.
    pub sink: S,
}

/// As much of a catalog as is stored already.
pub struct Partial {
    /// For the record of the run. Their numbers of rows are upper bounds.
    pub layers: Vec<Layer>,
    /// The first key that may be missing.
    pub until: Key,
}

/// Segments of rows that are in no other yet.
#[derive(Default)]
struct Provisional {
    base: Vec<SegmentRef>,
    overlay: Vec<SegmentRef>,
}

/// Bytes of a file, or of the one that a removed row hides; those of an image are in its extents.
pub fn file_bytes(row: &Entry) -> u64 {
    match row.kind {
        Kind::File if row.is_image() => 0,
        Kind::File | Kind::Extent => row.size,
        _ => 0,
    }
}

impl<S: SegmentSink> CatalogWriter<S> {
    /// Begins a catalog that equals the parent's until something changes.
    pub fn new(parent: CatalogReader, sink: S) -> CatalogWriter<S> {
        CatalogWriter::with_rule(parent, sink, CutRule::FORMAT)
    }

    /// Cuts by another rule than the format's: for tests.
    pub fn with_rule(parent: CatalogReader, sink: S, rule: CutRule) -> CatalogWriter<S> {
        CatalogWriter {
            parent,
            sink,
            base: SegmentWriter::with_rule(rule),
            overlay: SegmentWriter::with_rule(rule),
            rule,
            new_base: Vec::new(),
            base_rows_written: 0,
            new_overlay: Vec::new(),
            kept: LayerMerge::default(),
            kept_layers: 0,
            merging: LayerMerge::default(),
            folded: Vec::new(),
            folded_rows: Vec::new(),
            stretch: Stretch::default(),
            last: LastKey::default(),
            started: false,
            failed: false,
        }
    }

    /// Adds a row or replaces the parent's row of that key. Keys of `put` and `remove` must
    /// strictly increase.
    pub fn put(&mut self, entry: &Entry) -> Result<()> {
        if entry.flags.has(EntryFlags::REMOVED) {
            return Err(CatalogError::Layers {
                what: "a row that exists is marked as removed",
            });
        }
        self.guarded(|writer| writer.take(entry))
    }

    /// Removes the parent's row of a key, of a file of so many bytes.
    pub fn remove(&mut self, key: &Key, bytes: u64) -> Result<()> {
        let mut gone = Entry::new(key.parent.clone(), key.name.clone(), Kind::File);
        gone.size = bytes;
        gone.flags.set(EntryFlags::REMOVED);
        self.guarded(|writer| writer.take(&gone))
    }

    /// Stores what is left and tells the layers of the new catalog. Without changes they are the
    /// parent's.
    pub fn finish(mut self) -> Result<FinishedCatalog<S>> {
        let layers = match self.started {
            true => self.guarded(Self::finish_layers)?,
            false => self.parent.layers().to_vec(),
        };
        Ok(FinishedCatalog {
            layers,
            sink: self.sink,
        })
    }

    /// What a run that stops now could go on from, given that all changes up to `through` have been
    /// made. One that holds all of them stores the rows that are in no segment yet besides.
    pub fn checkpoint(&mut self, through: &Key, holds_all: bool) -> Result<Partial> {
        let provisional = match holds_all {
            true => Some(self.guarded(Self::provisional)?),
            false => None,
        };
        Ok(self.partial(through, provisional))
    }

    /// Changes that are held back come behind the rest of the overlay.
    fn provisional(&mut self) -> Result<Provisional> {
        let base = self.base.provisional(&mut self.sink)?;
        let mut overlay = self.overlay.provisional(&mut self.sink)?;
        if let StretchState::Waiting { changes, .. } = &self.stretch.state {
            let mut waiting = SegmentWriter::with_rule(self.rule);
            for change in changes {
                waiting.push(change, &mut self.sink)?;
            }
            waiting.close(&mut self.sink)?;
            overlay.extend(waiting.take_finished());
        }
        Ok(Provisional { base, overlay })
    }

    /// First keys of what is in no segment yet.
    fn pending_keys(&self) -> impl Iterator<Item = Key> {
        let waiting = match &self.stretch.state {
            StretchState::Waiting { changes, .. } => changes.first().map(Entry::key),
            _ => None,
        };
        let pending = [waiting, self.base.pending_key(), self.overlay.pending_key()];
        pending.into_iter().flatten()
    }

    fn partial(&self, through: &Key, provisional: Option<Provisional>) -> Partial {
        // Rows of the parent after the last change may still wait to be folded or merged.
        let made = &self.last.key().unwrap_or_else(|| through.clone());
        let until = match &provisional {
            Some(_) => after(made),
            None => self.pending_keys().fold(after(made), Key::min),
        };
        let provisional = provisional.unwrap_or_default();
        let rest = KeyRange {
            start: Some(until.clone()),
            end: None,
        };
        let mut base = [&self.new_base[..], self.base.finished(), &provisional.base].concat();
        let mut gone = self.folded.clone();
        if matches!(self.stretch.state, StretchState::Folding { .. }) {
            gone.push(KeyRange {
                start: self.stretch_range().start,
                end: None,
            });
        } else {
            base.extend_from_slice(
                self.old_base()
                    .get(self.stretch.index..)
                    .unwrap_or_default(),
            );
            gone.push(rest.clone());
        }
        let kept_layers = if self.started {
            self.kept_layers
        } else {
            LAYERS_MAX
        };
        let kept = self.parent.layers().iter().skip(1).take(kept_layers);
        let overlay = [
            &self.new_overlay[..],
            self.overlay.finished(),
            &provisional.overlay,
        ]
        .concat();
        let rest = [rest];
        let mut layers = vec![clip(&base, &rest)];
        layers.extend(kept.map(|layer| clip(&layer.segments, &gone)));
        layers.push(clip(&overlay, &rest));
        let layers = layers.into_iter().map(|segments| Layer {
            rows: sum_rows(&segments),
            segments,
        });
        Partial {
            layers: layers.collect(),
            until,
        }
    }

    /// After a failure everything else fails: a catalog with a hole must never be finished.
    fn guarded<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(CatalogError::Poisoned);
        }
        let done = work(self);
        self.failed = done.is_err();
        done
    }

    fn old_base(&self) -> &[SegmentRef] {
        self.parent
            .layers()
            .first()
            .map_or(&[], |layer| &layer.segments)
    }

    /// One change: first everything of the overlays to be merged that is before it.
    fn take(&mut self, change: &Entry) -> Result<()> {
        if !self.last.is_before(change) {
            return Err(CatalogError::Order {
                path: change.path(),
            });
        }
        if !self.started {
            self.start();
        }
        if self.merging.head()?.is_some() {
            self.merge_before(&change.key())?;
        }
        self.last.set(change);
        self.place(change)
    }

    fn merge_before(&mut self, key: &Key) -> Result<()> {
        while self.merging.head()?.is_some() {
            match self.merging.compare(key) {
                Ordering::Less => self.take_merging()?,
                Ordering::Equal => self.merging.advance(),
                Ordering::Greater => break,
            }
        }
        Ok(())
    }

    fn take_merging(&mut self) -> Result<()> {
        let old = self.merging.entry();
        self.merging.advance();
        self.place(&old)
    }

    /// Decides which overlays are merged, when there is a reason to write at all.
    fn start(&mut self) {
        self.started = true;
        let layers = self.parent.layers();
        self.kept_layers = overlays_kept(layers);
        let cursors = |layers: std::ops::Range<usize>| {
            let cursors = layers.map(|layer| self.parent.cursor(layer, KeyRange::all()));
            LayerMerge::new(cursors.collect())
        };
        let first_merged = (1 + self.kept_layers).min(layers.len());
        self.kept = cursors(1.min(layers.len())..first_merged);
        self.merging = cursors(first_merged..layers.len());
        self.folded_rows = vec![0; first_merged];
    }

    fn finish_layers(&mut self) -> Result<Vec<Layer>> {
        while self.merging.head()?.is_some() {
            self.take_merging()?;
        }
        // Leaving the last stretch closes the base; leaving one that is folded may fold the next.
        let stretches = self.old_base().len().max(1);
        while self.stretch.index < stretches {
            self.leave_stretch()?;
        }
        self.overlay.close(&mut self.sink)?;
        self.new_overlay.extend(self.overlay.take_finished());
        let old_rows = |layer: usize| {
            self.parent
                .layers()
                .get(layer)
                .map_or(0, |layer| layer.rows)
        };
        let folded_rows = |layer: usize| self.folded_rows.get(layer).copied().unwrap_or(0);
        let old_base_rows = old_rows(0).saturating_sub(folded_rows(0));
        let mut layers = vec![Layer {
            rows: old_base_rows + self.base_rows_written,
            segments: std::mem::take(&mut self.new_base),
        }];
        for layer in 1..=self.kept_layers {
            layers.push(Layer {
                rows: old_rows(layer).saturating_sub(folded_rows(layer)),
                segments: clip(&self.parent.layers()[layer].segments, &self.folded),
            });
        }
        layers.push(Layer {
            rows: sum_rows(&self.new_overlay),
            segments: std::mem::take(&mut self.new_overlay),
        });
        let mut is_base = true;
        layers.retain(|layer| std::mem::take(&mut is_base) || layer.rows > 0);
        if layers.len() == 1 && layers[0].segments.is_empty() {
            layers.clear();
        }
        Ok(layers)
    }
}

fn sum_rows(segments: &[SegmentRef]) -> u64 {
    segments.iter().map(|segment| u64::from(segment.rows)).sum()
}

/// How many overlays stay as they are: the longest run of oldest ones each at least twice as large
/// as all after it.
fn overlays_kept(layers: &[Layer]) -> usize {
    let overlays = layers.get(1..).unwrap_or_default();
    let mut after: u64 = overlays
        .iter()
        .fold(0, |sum, layer| sum.saturating_add(layer.rows));
    let is_large = |layer: &&Layer| {
        after = after.saturating_sub(layer.rows);
        layer.rows / 2 >= after
    };
    let large = overlays.iter().take_while(is_large).count();
    // One place for the base and one for the new overlay.
    large.min(LAYERS_MAX - 2)
}
