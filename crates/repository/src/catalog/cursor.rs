//! Cursors: a place in one layer, and in several layers merged.
//!
//! A cursor holds one segment, decoded as far as its range asks. Cloning one is cheap and shares
//! it. Removed rows are seen here; readers hide them.

use super::load::{counted, load};
use super::loader::SegmentLoader;
use super::numbered::RowPlace;
use super::{KeyRange, Result, SegmentSource};
use bale_format::entry::compare_keys;
use bale_format::{ChunkId, Entry, Key, Segment, SegmentRef};
use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Rows that a cursor tries one by one before it searches.
const SEEK_STEPS: usize = 3;

/// A place in one layer: before a row, or at the end.
#[derive(Clone)]
pub(super) struct LayerCursor {
    source: Arc<dyn SegmentSource>,
    segments: Arc<[SegmentRef]>,
    range: KeyRange,
    /// The segment to read when the current one is used up.
    next: usize,
    current: Option<Current>,
    /// Rows that were passed.
    passed: u64,
    ahead: OwnLoader,
    /// Segments before this one were named to the source before they are read.
    named: usize,
}

/// Not shared: whoever clones a place loads as it goes.
#[derive(Default)]
struct OwnLoader(Option<SegmentLoader>);

impl Clone for OwnLoader {
    fn clone(&self) -> OwnLoader {
        OwnLoader::default()
    }
}

#[derive(Clone)]
struct Current {
    segment: Arc<Segment>,
    row: usize,
    end: usize,
}

impl Current {
    /// Looks at the next few rows first: keys that are sought in turn are often near each other.
    fn seek(&mut self, key: &Key) {
        let keys = self.segment.keys();
        for _ in 0..SEEK_STEPS {
            let is_before = self.row < self.end
                && compare_keys(
                    keys.parent(self.row),
                    keys.name(self.row),
                    &key.parent,
                    &key.name,
                )
                .is_lt();
            if !is_before {
                return;
            }
            self.row += 1;
        }
        self.row = self.row.max(keys.lower_bound(key));
    }
}

/// Rows of one segment, one behind the other; never none.
pub(super) struct RowRun {
    pub(super) segment: Arc<Segment>,
    pub(super) rows: Range<usize>,
}

impl LayerCursor {
    pub(super) fn new(
        source: Arc<dyn SegmentSource>,
        segments: Arc<[SegmentRef]>,
        range: KeyRange,
    ) -> LayerCursor {
        let mut cursor = LayerCursor {
            source,
            segments,
            range: KeyRange::all(),
            next: 0,
            current: None,
            passed: 0,
            ahead: OwnLoader::default(),
            named: 0,
        };
        if let Some(start) = &range.start {
            cursor.seek(start);
        }
        cursor.range = range;
        cursor
    }

    /// Has each segment loaded while the one before it is in use.
    fn load_ahead(&mut self) {
        if self.segments.len() > 1 {
            self.ahead.0 = SegmentLoader::start(self.source.clone());
        }
    }

    /// Loads the next segment if the current one is used up.
    fn fill(&mut self) -> Result<()> {
        while self.current.is_none() {
            let Some((position, range)) = self.next_wanted(self.next) else {
                self.next = self.segments.len();
                return Ok(());
            };
            self.next = position;
            self.name_ahead();
            self.next = position + 1;
            let loader = self.ahead.0.as_mut();
            let loaded = match loader.and_then(|loader| loader.take(position, &range)) {
                Some(loaded) => loaded?,
                None => load(&*self.source, &self.segments[position], &range)?,
            };
            let next = self.next_wanted(self.next);
            if let (Some(loader), Some((position, range))) = (&mut self.ahead.0, next) {
                loader.prefetch(position, &self.segments[position], range);
            }
            self.current = (!loaded.rows.is_empty()).then(|| Current {
                row: loaded.rows.start,
                end: loaded.rows.end,
                segment: loaded.segment,
            });
        }
        Ok(())
    }

    /// The segment that is read first.
    pub(super) fn first_wanted(&self) -> Option<ChunkId> {
        let (position, _) = self.next_wanted(self.next)?;
        Some(self.segments[position].id)
    }

    /// Names the next segments to a source that is far away, if the next one was not named yet.
    fn name_ahead(&mut self) {
        let (positions, ids) = self.unnamed();
        if ids.len() > 1 {
            let taken = self.source.fetch_ahead(&ids);
            self.name_again_from(&positions, taken);
        }
    }

    /// Of the segments that were just named only the first so many were taken.
    fn name_again_from(&mut self, positions: &[usize], taken: usize) {
        // What there is no room for at all is read when it is its turn.
        if let Some(position) = positions.get(taken.max(1)) {
            self.named = *position;
        }
    }

    /// Segments that will be read next and were not named to the source, and where they are; from
    /// now on they count as named.
    fn unnamed(&mut self) -> (Vec<usize>, Vec<ChunkId>) {
        let ahead_max = self.source.ahead_max();
        if ahead_max == 0 || self.current.is_some() || self.next < self.named {
            return (Vec::new(), Vec::new());
        }
        let (mut positions, mut ids) = (Vec::new(), Vec::new());
        let mut from = self.next;
        while ids.len() < ahead_max
            && let Some((position, _)) = self.next_wanted(from)
        {
            positions.push(position);
            ids.push(self.segments[position].id);
            from = position + 1;
        }
        self.named = from;
        (positions, ids)
    }

    /// The first segment from a position on of which something is wanted, and what; `None`: there
    /// is none.
    fn next_wanted(&self, from: usize) -> Option<(usize, KeyRange)> {
        for (position, reference) in self.segments.iter().enumerate().skip(from) {
            let end = self.range.end.as_ref();
            if end.is_some_and(|end| reference.first >= *end) {
                return None;
            }
            let range = self.range.intersect(&counted(reference));
            let (start, end) = (range.start.as_ref(), range.end.as_ref());
            let is_outside = start.is_some_and(|start| *start > reference.last)
                || end.is_some_and(|end| *end <= reference.first);
            if !is_outside {
                return Some((position, range));
            }
        }
        None
    }

    /// Key of the row here. Only after `fill`.
    fn head(&self) -> Option<(&[u8], &[u8])> {
        let current = self.current.as_ref()?;
        let keys = current.segment.keys();
        Some((keys.parent(current.row), keys.name(current.row)))
    }

    fn advance(&mut self) {
        if let Some(current) = &mut self.current {
            current.row += 1;
            self.passed += 1;
            if current.row >= current.end {
                self.current = None;
            }
        }
    }

    /// Goes on to the first row at or after `key`, without reading what lies between. Never goes
    /// back.
    fn seek(&mut self, key: &Key) {
        if let Some(current) = &mut self.current {
            current.seek(key);
            if current.row < current.end {
                return;
            }
            self.current = None;
        }
        let skipped = self.segments[self.next..].partition_point(|segment| segment.last < *key);
        self.next += skipped;
        if self.range.start.as_ref().is_none_or(|start| start < key) {
            self.range.start = Some(key.clone());
        }
    }

    fn limit(&mut self, end: &Key) {
        if self.range.end.as_ref().is_some_and(|old| old <= end) {
            return;
        }
        self.range.end = Some(end.clone());
        if let Some(current) = &mut self.current {
            current.end = current.end.min(current.segment.keys().lower_bound(end));
            if current.row >= current.end {
                self.current = None;
            }
        }
    }
}

/// A place in several layers, oldest first: the least key of all, from the newest layer that has
/// it.
#[derive(Clone, Default)]
pub(super) struct LayerMerge {
    layers: Vec<LayerCursor>,
    /// The newest layer of the least key of all overlays, kept while only the first layer moves.
    overlay: Option<usize>,
    /// The newest layer of the least key.
    head: Option<usize>,
    head_is_found: bool,
    overlay_head_is_found: bool,
}

impl LayerMerge {
    pub(super) fn new(layers: Vec<LayerCursor>) -> LayerMerge {
        LayerMerge {
            layers,
            ..LayerMerge::default()
        }
    }

    /// Has the segments of the first layer, which is most of a catalog, loaded ahead.
    pub(super) fn load_ahead(&mut self) {
        if let Some(first) = self.layers.first_mut() {
            first.load_ahead();
        }
    }

    /// The same places, with another layer below all others.
    pub(super) fn with_oldest(&self, oldest: LayerCursor) -> LayerMerge {
        let layers = self.layers.iter().cloned();
        LayerMerge::new(std::iter::once(oldest).chain(layers).collect())
    }

    /// Position of the newest layer that has the row here; `None` at the end.
    pub(super) fn head(&mut self) -> Result<Option<usize>> {
        if !self.head_is_found {
            self.seek_head()?;
        }
        Ok(self.head)
    }

    fn seek_head(&mut self) -> Result<()> {
        if !self.overlay_head_is_found {
            self.name_ahead();
            for layer in &mut self.layers {
                layer.fill()?;
            }
            self.overlay = None;
            for layer in 1..self.layers.len() {
                self.overlay = self.newest_least(self.overlay, layer);
            }
            self.overlay_head_is_found = true;
        }
        self.head = None;
        if let Some(first) = self.layers.first_mut() {
            first.fill()?;
            self.head = match self.overlay {
                Some(overlay) => self.newest_least(Some(0), overlay),
                None => first.head().is_some().then_some(0),
            };
        }
        self.head_is_found = true;
        Ok(())
    }

    /// What all layers will read next is fetched together.
    fn name_ahead(&mut self) {
        let unnamed = self.layers.iter_mut().map(LayerCursor::unnamed);
        let (positions, ids): (Vec<_>, Vec<_>) = unnamed.unzip();
        let ids = ids.concat();
        let Some(layer) = self.layers.first().filter(|_| ids.len() > 1) else {
            return;
        };
        let mut taken = layer.source.fetch_ahead(&ids);
        for (layer, positions) in self.layers.iter_mut().zip(&positions) {
            layer.name_again_from(positions, taken);
            taken = taken.saturating_sub(positions.len());
        }
    }

    /// Of two layers the one with the lesser key, or the second (newer) if equal; layers at their
    /// end lose.
    fn newest_least(&self, older: Option<usize>, newer: usize) -> Option<usize> {
        let older = older.filter(|layer| self.layers[*layer].head().is_some());
        match (older, self.layers[newer].head()) {
            (_, None) => older,
            (None, Some(_)) => Some(newer),
            (Some(layer), Some(new)) => {
                let old = self.layers[layer].head().expect("filtered above");
                match compare_keys(old.0, old.1, new.0, new.1) {
                    Ordering::Less => Some(layer),
                    _ => Some(newer),
                }
            }
        }
    }

    fn current(&self) -> &Current {
        let head = self.head.expect("only called at a row");
        self.layers[head].current.as_ref().expect("head has a row")
    }

    /// Where the row here is stored. Only at a row.
    pub(super) fn place(&self) -> RowPlace {
        let layer = self.head.expect("only called at a row");
        RowPlace {
            layer,
            // `next` is the one behind the current one.
            segment: self.layers[layer].next - 1,
            row: self.current().row,
        }
    }

    /// Compares the row here with a key. Only at a row.
    pub(super) fn compare(&self, key: &Key) -> Ordering {
        let current = self.current();
        let keys = current.segment.keys();
        compare_keys(
            keys.parent(current.row),
            keys.name(current.row),
            &key.parent,
            &key.name,
        )
    }

    /// Key of the row here. Only at a row.
    pub(super) fn key(&self) -> Key {
        let current = self.current();
        current.segment.keys().key(current.row)
    }

    /// The row here. Only at a row.
    pub(super) fn entry(&self) -> Entry {
        let current = self.current();
        current.segment.entry(current.row)
    }

    /// Does the row here say that a path is gone? Only at a row.
    pub(super) fn is_removed(&self) -> bool {
        let current = self.current();
        current.segment.is_removed(current.row)
    }

    /// Takes the rows from here on that lie one behind the other in one segment, at most so many;
    /// `None` at the end. Removed rows are passed.
    pub(super) fn take_run(&mut self, rows_max: usize) -> Result<Option<RowRun>> {
        let mut taken: Option<RowRun> = None;
        while self.head()?.is_some() {
            if self.is_removed() {
                self.advance();
                continue;
            }
            let Current { segment, row, .. } = self.current();
            match &mut taken {
                None => {
                    taken = Some(RowRun {
                        segment: segment.clone(),
                        rows: *row..*row + 1,
                    });
                }
                Some(run)
                    if run.rows.len() < rows_max
                        && run.rows.end == *row
                        && Arc::ptr_eq(&run.segment, segment) =>
                {
                    run.rows.end += 1;
                }
                Some(_) => break,
            }
            self.advance();
        }
        Ok(taken)
    }

    /// Goes past the row here, in every layer that has its key.
    pub(super) fn advance(&mut self) {
        let Some(head) = self.head else {
            return;
        };
        if head == 0 {
            // The newest layer with this key is the first, so no other has it.
            self.layers[0].advance();
            self.head_is_found = false;
            return;
        }
        for older in 0..head {
            let is_same = self.layers[older].head() == self.layers[head].head();
            if is_same {
                self.layers[older].advance();
            }
        }
        self.layers[head].advance();
        self.head_is_found = false;
        self.overlay_head_is_found = false;
    }

    /// Goes on to the first row at or after `key`.
    pub(super) fn seek(&mut self, key: &Key) {
        for layer in &mut self.layers {
            layer.seek(key);
        }
        self.head_is_found = false;
        self.overlay_head_is_found = false;
    }

    /// Ends before `end` from now on.
    pub(super) fn limit(&mut self, end: &Key) {
        for layer in &mut self.layers {
            layer.limit(end);
        }
        self.head_is_found = false;
        self.overlay_head_is_found = false;
    }

    /// Counts passed rows from here on.
    pub(super) fn forget_passed(&mut self) {
        for layer in &mut self.layers {
            layer.passed = 0;
        }
    }

    /// Rows passed in each layer, hidden ones included.
    pub(super) fn passed(&self) -> impl Iterator<Item = u64> + '_ {
        self.layers.iter().map(|layer| layer.passed)
    }
}
