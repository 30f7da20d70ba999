//! From the comparing to the packing thread: items in batches, so that a million of them do not wake a thread each.

use super::compare::Item;
use crate::limits::{ITEMS_BATCH_BYTES_MAX, ITEMS_BATCH_MAX, ITEMS_QUEUED_MAX};
use crossbeam_channel::{Receiver, Sender, bounded};

/// The receiving end: batches, never empty.
pub(super) type ItemQueue = Receiver<Vec<Item>>;

/// The sending end.
pub(super) struct ItemSender {
    sender: Sender<Vec<Item>>,
    batch: Vec<Item>,
    /// Content and attributes in `batch`.
    bytes: u64,
}

/// The packing thread has ended.
pub(super) struct Gone;

impl ItemSender {
    /// Both ends.
    pub(super) fn pair() -> (ItemSender, ItemQueue) {
        let (sender, queue) = bounded(ITEMS_QUEUED_MAX / ITEMS_BATCH_MAX);
        let sender = ItemSender {
            sender,
            batch: Vec::new(),
            bytes: 0,
        };
        (sender, queue)
    }

    /// Adds an item, which waits until there is a batch of them. Whoever is about to wait for the packing thread by other
    /// means calls [`ItemSender::flush`] before.
    pub(super) fn send(&mut self, item: Item) -> Result<(), Gone> {
        self.bytes += match &item {
            Item::Read { file, .. } => file.bytes.len() + file.entry.xattrs.len(),
            Item::Large { entry, .. } | Item::Linked { entry, .. } | Item::Row { entry, .. } => {
                entry.xattrs.len()
            }
            Item::Small { .. } | Item::Gone(..) => 0,
        } as u64;
        self.batch.push(item);
        if self.batch.len() >= ITEMS_BATCH_MAX || self.bytes >= ITEMS_BATCH_BYTES_MAX {
            return self.flush();
        }
        Ok(())
    }

    /// Hands over what waits.
    pub(super) fn flush(&mut self) -> Result<(), Gone> {
        self.bytes = 0;
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(ITEMS_BATCH_MAX));
        self.sender.send(batch).map_err(|_| Gone)
    }
}
