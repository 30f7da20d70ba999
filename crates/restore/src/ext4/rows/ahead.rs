//! The rows, decoded in a thread of their own: whoever counts them takes as long as the catalog
//! does to read.

use super::WantedRows;
use crate::RestoreError;
use bale_format::Entry;
use crossbeam_channel::bounded;

/// Rows handed over at a time.
const BATCH_ROWS_MAX: usize = 512;
/// Batches that wait: at 400 bytes a row with its name, 1 MiB.
const BATCHES_AHEAD_MAX: usize = 4;

/// Calls `each` with all rows in order; `rows` makes the reading, in its thread. Ends with the
/// first error of either.
pub fn for_each<'w>(
    rows: impl FnOnce() -> Result<WantedRows<'w>, RestoreError> + Send,
    mut each: impl FnMut(Entry) -> Result<(), RestoreError>,
) -> Result<(), RestoreError> {
    let (out, batches) = bounded::<Vec<Entry>>(BATCHES_AHEAD_MAX);
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut rows = rows()?;
            loop {
                let mut batch = Vec::with_capacity(BATCH_ROWS_MAX);
                while batch.len() < BATCH_ROWS_MAX
                    && let Some(entry) = rows.next_row()?
                {
                    batch.push(entry);
                }
                let is_last = batch.len() < BATCH_ROWS_MAX;
                if out.send(batch).is_err() || is_last {
                    return Ok(());
                }
            }
        });
        for entry in batches.into_iter().flatten() {
            each(entry)?;
        }
        match reading.join() {
            Ok(read) => read,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
