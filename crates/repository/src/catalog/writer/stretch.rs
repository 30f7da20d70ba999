//! The stretch of the base that changes are at: held back while they are few, folded into a new
//! segment when overlays have too much of it.

use super::{CatalogWriter, file_bytes, sum_rows};
use crate::catalog::cursor::LayerMerge;
use crate::catalog::{FOLD_BYTES_MIN, FOLD_SHARE, KeyRange, Result, SegmentSink};
use bale_format::entry::compare_keys;
use bale_format::{Entry, EntryFlags, Key};
use std::cmp::Ordering;

/// The stretch of the base that changes are at.
#[derive(Default)]
pub(super) struct Stretch {
    /// Its number: that of its base segment.
    pub(super) index: usize,
    pub(super) state: StretchState,
}

#[derive(Default)]
pub(super) enum StretchState {
    /// Nothing of it has changed so far.
    #[default]
    Untouched,
    /// Changes are held back.
    Waiting {
        changes: Vec<Entry>,
        /// Rows of kept overlays in this stretch.
        kept_rows: u64,
        /// Bytes of the files of these and of the changes.
        bytes: u64,
        /// The kept overlays at the beginning of the stretch.
        kept: LayerMerge,
    },
    /// Being rewritten: what is left of the old rows.
    Folding { old: LayerMerge },
}

impl<S: SegmentSink> CatalogWriter<S> {
    /// A changed row, new or of a merged overlay, into its stretch.
    pub(super) fn place(&mut self, change: &Entry) -> Result<()> {
        let is_behind =
            |end: &Key| compare_keys(&end.parent, &end.name, &change.parent, &change.name).is_le();
        while self.stretch_end().is_some_and(is_behind) {
            self.leave_stretch()?;
        }
        if matches!(self.stretch.state, StretchState::Untouched) {
            self.enter_stretch()?;
        }
        match &mut self.stretch.state {
            StretchState::Folding { .. } => self.fold_in(change),
            StretchState::Waiting {
                changes,
                kept_rows,
                bytes,
                ..
            } => {
                changes.push(change.clone());
                *bytes = bytes.saturating_add(file_bytes(change));
                let (rows, bytes) = (changes.len() as u64 + *kept_rows, *bytes);
                match self.must_fold(rows, bytes) {
                    true => self.fold(),
                    false => Ok(()),
                }
            }
            StretchState::Untouched => unreachable!("entered above"),
        }
    }

    /// First key of the next stretch.
    fn stretch_end(&self) -> Option<&Key> {
        Some(self.old_base().get(self.stretch.index + 1)?.start())
    }

    /// Do overlays have so much of this stretch that it is better written anew?
    fn must_fold(&self, overlay_rows: u64, overlay_bytes: u64) -> bool {
        let (rows, bytes) = self
            .old_base()
            .get(self.stretch.index)
            .map_or((0, 0), |base| (u64::from(base.rows), base.bytes));
        let many_bytes =
            overlay_bytes >= FOLD_BYTES_MIN && overlay_bytes.saturating_mul(FOLD_SHARE) > bytes;
        overlay_rows * FOLD_SHARE > rows || many_bytes
    }

    pub(super) fn stretch_range(&self) -> KeyRange {
        let start = match self.stretch.index {
            0 => None,
            index => Some(self.old_base()[index].start().clone()),
        };
        KeyRange {
            start,
            end: self.stretch_end().cloned(),
        }
    }

    /// Counts what the kept overlays have in this stretch.
    fn enter_stretch(&mut self) -> Result<()> {
        let range = self.stretch_range();
        if let Some(start) = &range.start {
            self.kept.seek(start);
        }
        let at_start = self.kept.clone();
        let passed_before: u64 = self.kept.passed().sum();
        let mut bytes = 0u64;
        while self.kept.head()?.is_some() {
            if range
                .end
                .as_ref()
                .is_some_and(|end| self.kept.compare(end).is_ge())
            {
                break;
            }
            bytes = bytes.saturating_add(file_bytes(&self.kept.entry()));
            self.kept.advance();
        }
        self.stretch.state = StretchState::Waiting {
            bytes,
            changes: Vec::new(),
            kept_rows: self.kept.passed().sum::<u64>() - passed_before,
            kept: at_start,
        };
        Ok(())
    }

    /// Rewrites this stretch, from its beginning.
    fn fold(&mut self) -> Result<()> {
        let StretchState::Waiting { changes, kept, .. } = std::mem::take(&mut self.stretch.state)
        else {
            unreachable!("only a stretch with changes held back is folded");
        };
        let segments = self.old_base().get(self.stretch.index..=self.stretch.index);
        let segment = segments.unwrap_or_default().into();
        let base = self.parent.cursor_of(segment, KeyRange::all());
        let mut old = kept.with_oldest(base);
        if let Some(end) = self.stretch_end() {
            old.limit(end);
        }
        old.forget_passed();
        self.stretch.state = StretchState::Folding { old };
        for change in changes {
            self.fold_in(&change)?;
        }
        Ok(())
    }

    /// Writes the old rows before a changed row, and then that row.
    fn fold_in(&mut self, change: &Entry) -> Result<()> {
        if let StretchState::Folding { old } = &mut self.stretch.state
            && old.head()?.is_some()
        {
            self.fold_old(Some(&change.key()))?;
        }
        match change.flags.has(EntryFlags::REMOVED) {
            true => Ok(()),
            false => self.base.push(change, &mut self.sink),
        }
    }

    /// Writes the old rows before `key`, or all that are left, and drops the one of that key.
    fn fold_old(&mut self, key: Option<&Key>) -> Result<()> {
        let StretchState::Folding { old } = &mut self.stretch.state else {
            unreachable!("only called while folding");
        };
        while old.head()?.is_some() {
            match key.map_or(Ordering::Less, |key| old.compare(key)) {
                Ordering::Less if old.is_removed() => {}
                Ordering::Less => self.base.push(&old.entry(), &mut self.sink)?,
                Ordering::Equal => {}
                Ordering::Greater => break,
            }
            old.advance();
        }
        Ok(())
    }

    /// Ends this stretch and goes to the next, which may have to be folded for the sake of this
    /// one.
    pub(super) fn leave_stretch(&mut self) -> Result<()> {
        let mut take_next_too = false;
        match &self.stretch.state {
            StretchState::Untouched => {
                let segment = self.old_base().get(self.stretch.index).cloned();
                self.new_base.extend(segment);
            }
            StretchState::Waiting { .. } => self.leave_waiting()?,
            StretchState::Folding { .. } => {
                self.leave_folding()?;
                let rest = self.base.pending_weight();
                let has_next = self.stretch.index + 1 < self.old_base().len();
                // A segment of a few rows would stay for long: segments must not dwindle.
                take_next_too = has_next && rest > 0 && rest < self.rule.weight_min / 2;
                if !take_next_too {
                    self.base.close(&mut self.sink)?;
                }
                let finished = self.base.take_finished();
                self.base_rows_written += sum_rows(&finished);
                self.new_base.extend(finished);
            }
        }
        self.stretch = Stretch {
            index: self.stretch.index + 1,
            state: StretchState::Untouched,
        };
        if take_next_too {
            self.enter_stretch()?;
            self.fold()?;
        }
        Ok(())
    }

    fn leave_waiting(&mut self) -> Result<()> {
        let StretchState::Waiting { changes, .. } = std::mem::take(&mut self.stretch.state) else {
            unreachable!("matched by the caller");
        };
        for change in &changes {
            self.overlay.push(change, &mut self.sink)?;
        }
        self.new_overlay.extend(self.overlay.take_finished());
        let segment = self.old_base().get(self.stretch.index).cloned();
        self.new_base.extend(segment);
        Ok(())
    }

    fn leave_folding(&mut self) -> Result<()> {
        self.fold_old(None)?;
        let StretchState::Folding { old } = &self.stretch.state else {
            unreachable!("matched by the caller");
        };
        for (sum, rows) in self.folded_rows.iter_mut().zip(old.passed()) {
            *sum += rows;
        }
        let range = self.stretch_range();
        match self.folded.last_mut() {
            Some(before) if before.end == range.start && range.start.is_some() => {
                before.end = range.end
            }
            _ => self.folded.push(range),
        }
        Ok(())
    }
}
