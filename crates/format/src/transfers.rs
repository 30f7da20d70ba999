//! How the packs of a run reached a server: the rate of every single transfer, in the record of a
//! snapshot or of an unfinished run. docs/FORMAT.md, section 8.
//!
//! The list is bounded. Once it is full neighbours become one, so that a long run is described more
//! coarsely and never in part.

use crate::limits::TRANSFERS_LISTED_MAX;
use serde::{Deserialize, Serialize};

/// One upload, or some of them that were neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "TransferFields", into = "TransferFields")]
pub struct Transfer {
    pub bytes: u64,
    /// Milliseconds since the run began.
    pub start_ms: u64,
    /// With its tries and the pauses between them; of several from the first start to the last end.
    pub duration_ms: u64,
    /// 1: the first one succeeded.
    pub tries: u64,
}

/// In JSON an array.
type TransferFields = (u64, u64, u64, u64);

impl From<TransferFields> for Transfer {
    fn from((bytes, start_ms, duration_ms, tries): TransferFields) -> Transfer {
        Transfer {
            bytes,
            start_ms,
            duration_ms,
            tries,
        }
    }
}

impl From<Transfer> for TransferFields {
    fn from(transfer: Transfer) -> TransferFields {
        let Transfer {
            bytes,
            start_ms,
            duration_ms,
            tries,
        } = transfer;
        (bytes, start_ms, duration_ms, tries)
    }
}

impl Transfer {
    fn add(&mut self, other: Transfer) {
        let end = |transfer: &Transfer| transfer.start_ms.saturating_add(transfer.duration_ms);
        let last_end = end(self).max(end(&other));
        self.start_ms = self.start_ms.min(other.start_ms);
        self.duration_ms = last_end - self.start_ms;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.tries = self.tries.saturating_add(other.tries);
    }
}

/// The transfers of a run, in the order in which they ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfers {
    /// Uploads in each but the last entry, which may have fewer: 1, or a power of two.
    pub each: u64,
    /// At most [`TRANSFERS_LISTED_MAX`].
    pub list: Vec<Transfer>,
}

impl Transfers {
    /// Was nothing uploaded?
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// Gathers the transfers of a run: 32 bytes for each, 2 MiB at most.
#[derive(Debug, Default)]
pub struct TransferLog {
    transfers: Transfers,
    /// Uploads in the last entry.
    in_last: u64,
}

impl TransferLog {
    /// Adds an upload that has ended.
    pub fn push(&mut self, transfer: Transfer) {
        let Transfers { each, list } = &mut self.transfers;
        *each = (*each).max(1);
        if let Some(last) = list.last_mut().filter(|_| self.in_last < *each) {
            last.add(transfer);
            self.in_last += 1;
            return;
        }
        if list.len() >= TRANSFERS_LISTED_MAX {
            halve(list);
            *each *= 2;
        }
        list.push(transfer);
        self.in_last = 1;
    }

    /// So far.
    pub fn transfers(&self) -> &Transfers {
        &self.transfers
    }
}

/// The length is even.
fn halve(list: &mut Vec<Transfer>) {
    for at in 0..list.len() / 2 {
        let mut first = list[2 * at];
        first.add(list[2 * at + 1]);
        list[at] = first;
    }
    list.truncate(list.len() / 2);
}

const _: () = assert!(TRANSFERS_LISTED_MAX.is_multiple_of(2));

#[cfg(test)]
mod tests {
    use super::*;

    fn upload(number: u64) -> Transfer {
        Transfer {
            bytes: 10,
            start_ms: number * 100,
            duration_ms: 150,
            tries: 1,
        }
    }

    #[test]
    fn every_single_transfer_is_listed_until_there_are_too_many() {
        let mut log = TransferLog::default();
        let max = TRANSFERS_LISTED_MAX as u64;
        (0..max).for_each(|number| log.push(upload(number)));
        assert_eq!(log.transfers().each, 1);
        assert_eq!(log.transfers().list[7], upload(7));
        (max..2 * max + 1).for_each(|number| log.push(upload(number)));
        let Transfers { each, list } = log.transfers();
        assert_eq!((*each, list.len() as u64), (4, max / 2 + 1));
        assert_eq!(
            list.iter().map(|entry| entry.bytes).sum::<u64>(),
            10 * (2 * max + 1)
        );
        let third = list[2];
        assert_eq!(
            (third.start_ms, third.duration_ms, third.tries),
            (800, 450, 4)
        );
    }

    #[test]
    fn a_transfer_is_an_array_of_four_numbers() {
        let mut log = TransferLog::default();
        log.push(upload(3));
        let json = serde_json::to_string(log.transfers()).unwrap();
        assert_eq!(json, r#"{"each":1,"list":[[10,300,150,1]]}"#);
        let back: Transfers = serde_json::from_str(&json).unwrap();
        assert_eq!(&back, log.transfers());
        assert!(serde_json::from_str::<Transfers>(r#"{"each":1,"list":[[10,300,-1,1]]}"#).is_err());
    }
}
