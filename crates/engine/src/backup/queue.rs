//! From the comparing to the packing thread: items in batches, so that a million of them do not
//! wake a thread each.

use crate::limits::{ITEMS_BATCH_BYTES_MAX, ITEMS_BATCH_MAX};
use bale_format::Entry;
use bale_source::image::EntryPlace;
use bale_source::read::{SmallFile, SmallReader};
use crossbeam_channel::{Receiver, Sender, bounded};

/// Something for the packing thread, in the order of keys.
pub(super) enum PackingItem {
    /// The reader's next file.
    Small {
        place: EntryPlace,
        old: Option<Box<Entry>>,
    },
    /// A small file that was read already.
    Read {
        place: EntryPlace,
        file: Box<SmallFile>,
        old: Option<Box<Entry>>,
    },
    /// To be read in pieces.
    Large {
        place: EntryPlace,
        entry: Box<Entry>,
        old: Option<Box<Entry>>,
    },
    /// A further name of an inode; read before, if it is still remembered.
    Linked {
        place: EntryPlace,
        entry: Box<Entry>,
        old: Option<Box<Entry>>,
    },
    /// Nothing to read.
    Row {
        entry: Box<Entry>,
        old: Option<Box<Entry>>,
    },
    /// A row of the parent that stays, of a file with several names: the others have its content.
    Reused(Box<Entry>),
    /// A row of the parent with another time of last access.
    Accessed {
        entry: Box<Entry>,
        old: Box<Entry>,
        /// It has its content in common with other names of its inode.
        shares: bool,
    },
    /// In the parent, and not here any more.
    Gone(Box<Entry>),
}

/// Why the reader has the next file.
pub(super) const READ_AHEAD: &str = "every small item was asked for";

impl PackingItem {
    /// Takes from the reader what it has of it.
    pub(super) fn with_entry(self, reader: &SmallReader) -> PackingItem {
        match self {
            PackingItem::Small { place, old } => PackingItem::Read {
                place,
                file: Box::new(reader.pop().expect(READ_AHEAD)),
                old,
            },
            item => item,
        }
    }

    /// Its entry; of what the reader has, the reader has it.
    pub(super) fn entry(&self) -> Option<&Entry> {
        match self {
            PackingItem::Small { .. } => None,
            PackingItem::Read { file, .. } => Some(&file.entry),
            PackingItem::Large { entry, .. }
            | PackingItem::Linked { entry, .. }
            | PackingItem::Row { entry, .. }
            | PackingItem::Accessed { entry, .. }
            | PackingItem::Reused(entry)
            | PackingItem::Gone(entry) => Some(entry),
        }
    }
}

/// The receiving end: batches, never empty.
pub(super) type ItemQueue = Receiver<Vec<PackingItem>>;

/// The sending end.
pub(super) struct ItemSender {
    sender: Sender<Vec<PackingItem>>,
    batch: Vec<PackingItem>,
    /// Content and attributes in `batch`.
    bytes: u64,
}

/// The packing thread has ended.
pub(super) struct Gone;

impl ItemSender {
    /// Both ends; so many batches are on their way.
    pub(super) fn pair(batches: usize) -> (ItemSender, ItemQueue) {
        let (sender, queue) = bounded(batches);
        let sender = ItemSender {
            sender,
            batch: Vec::new(),
            bytes: 0,
        };
        (sender, queue)
    }

    /// Adds an item, which waits until there is a batch of them. Whoever is about to wait for the
    /// packing thread by other means calls [`ItemSender::flush`] before.
    pub(super) fn send(&mut self, item: PackingItem) -> Result<(), Gone> {
        self.bytes += match &item {
            PackingItem::Read { file, .. } => file.bytes.len() + file.entry.xattrs.len(),
            PackingItem::Large { entry, .. }
            | PackingItem::Linked { entry, .. }
            | PackingItem::Row { entry, .. }
            | PackingItem::Accessed { entry, .. } => entry.xattrs.len(),
            PackingItem::Small { .. } | PackingItem::Reused(..) | PackingItem::Gone(..) => 0,
        } as u64;
        self.batch.push(item);
        if self.batch.len() >= ITEMS_BATCH_MAX || self.bytes >= ITEMS_BATCH_BYTES_MAX as u64 {
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
