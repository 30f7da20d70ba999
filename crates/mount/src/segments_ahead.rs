//! Has the next segment of a catalog decoded while the rows of this one are listed, by a thread of
//! its own: whoever lists or reads a tree in order would wait for each.

use crate::limits::SEGMENTS_BYTES_FOR_AHEAD;
use crate::numbers::SnapshotNumber;
use crate::open_catalogs::OpenCatalogs;
use bale_pipeline::memory::MemoryPlan;
use bale_repository::catalog::RowNumber;
use std::io;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// What is to be at hand: the segment of this row.
type Order = (SnapshotNumber, RowNumber);

pub struct SegmentsAhead {
    /// `None`: with little memory there is no room for one that is not needed yet.
    orders: Option<SyncSender<Order>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// What was listed last, and the segment behind it.
    last: Option<(SnapshotNumber, RowNumber, RowNumber)>,
    /// What was asked for last.
    asked: Option<Order>,
}

impl SegmentsAhead {
    /// Its thread ends when it is dropped.
    pub fn start(catalogs: &Arc<OpenCatalogs>, memory: &MemoryPlan) -> io::Result<SegmentsAhead> {
        let has_room = crate::limits::segments_bytes(memory) >= SEGMENTS_BYTES_FOR_AHEAD;
        let mut ahead = SegmentsAhead {
            orders: None,
            seen: Mutex::default(),
        };
        if has_room {
            let (sender, orders) = sync_channel::<Order>(1);
            let catalogs = catalogs.clone();
            let thread = thread::Builder::new().name("segments-ahead".to_owned());
            thread.spawn(move || {
                for (snapshot, row) in orders {
                    if let Some(catalog) = catalogs.known(snapshot) {
                        // Whoever comes there is told why it cannot be read.
                        let _unread = catalog.rows.decode_ahead(row);
                    }
                }
            })?;
            ahead.orders = Some(sender);
        }
        Ok(ahead)
    }

    /// Rows were listed up to this one; `next` is the segment behind it, if it is late in its own.
    /// Who lists once is not known to list on.
    pub fn listed(&self, snapshot: SnapshotNumber, row: RowNumber, next: Option<RowNumber>) {
        let (Some(orders), Some(next)) = (&self.orders, next) else {
            return;
        };
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let last = seen.last.replace((snapshot, row, next));
        let goes_on = last
            .is_some_and(|(of, before, behind)| (of, behind) == (snapshot, next) && before < row);
        let order = (snapshot, next);
        if goes_on && seen.asked != Some(order) && orders.try_send(order).is_ok() {
            seen.asked = Some(order);
        }
    }
}
