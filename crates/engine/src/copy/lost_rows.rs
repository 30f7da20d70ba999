//! Which rows of a snapshot are visible and have lost their content. One that a newer layer hides
//! takes nothing away.
//!
//! Only stretches of the source's catalog are merged in which some segment has lost something.

use super::needs::Needs;
use super::reading::Reading;
use super::segments::NewSegments;
use super::storing::Storing;
use bale_format::{Key, SegmentRef, Snapshot};
use bale_repository::catalog::{CatalogReader, KeyRange};
use bale_repository::error::{Error, Result};

/// Paths named whose content is lost; all are counted.
const NAMED_MAX: u64 = 1000;

/// What was counted so far.
#[derive(Default)]
pub(super) struct LostRows {
    pub(super) rows: u64,
    last: Vec<u8>,
}

impl LostRows {
    /// Names the paths of a snapshot that are lost; returns how many there are.
    pub(super) fn visible_in(
        &mut self,
        reading: Reading<'_>,
        snapshot: &Snapshot,
        (needs, made): (&Needs, &NewSegments),
        storing: &Storing<'_>,
    ) -> Result<u64> {
        let is_lossy = |segment: &&SegmentRef| {
            let number = needs.numbers.get(&segment.id);
            let new = number.and_then(|number| made[*number as usize].as_ref());
            new.is_some_and(|new| new.is_lossy)
        };
        let segments = snapshot.layers.iter().flat_map(|layer| &layer.segments);
        let mut ranges: Vec<(Key, Key)> = (segments.filter(is_lossy))
            .map(|segment| (segment.start().clone(), segment.last.clone()))
            .collect();
        if ranges.is_empty() {
            return Ok(0);
        }
        ranges.sort();
        let source = reading.source.segment_source_wherever();
        let catalog = CatalogReader::open(source, snapshot.layers.clone())?;
        let before = self.rows;
        self.last.clear();
        let mut done: Option<Key> = None;
        for (first, last) in ranges {
            let range = KeyRange {
                start: Some(first),
                end: None,
            };
            for row in catalog.all_rows(range) {
                let row = row?;
                let key = row.key();
                if key > last {
                    break;
                }
                if reading.monitor.interrupted() {
                    return Err(Error::Interrupted);
                }
                // Stretches of two layers may lap.
                if done.as_ref().is_none_or(|done| *done < key) {
                    if storing.is_lost(&row) {
                        self.name(reading, row.path_to_name());
                    }
                    done = Some(key);
                }
            }
        }
        Ok(self.rows - before)
    }

    /// Extents of one image follow each other, and are one path.
    fn name(&mut self, reading: Reading<'_>, path: Vec<u8>) {
        if self.last == path {
            return;
        }
        self.last.clone_from(&path);
        self.rows += 1;
        if self.rows <= NAMED_MAX {
            let path = [b"/", &path[..]].concat();
            reading.problem(path, "its content is lost in the source".to_owned());
        }
    }
}
