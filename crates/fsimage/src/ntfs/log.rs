//! Whether the volume was left cleanly, by its log ($LogFile) and its own flag.
//!
//! Windows writes what it changed to the log first and to its place later, and leaves the log as
//! version 2 while it keeps metadata in memory, also over a fast start. Only a log of version 1
//! that nobody has open, or that says it is clean, or one that was emptied, counts as clean.

use super::bytes::{u16_at, u64_at};
use super::record::{DATA, VOLUME_INFORMATION, undo_fixups};
use super::stream::NtfsStream;
use super::{Ntfs, NtfsError, NtfsFault};

/// What to do about it.
pub const NOT_LEFT_CLEANLY: &str =
    "Windows did not leave it cleanly (shut it down without fast start, or run chkdsk)";

const LOG_RECORD: u64 = 2;
const VOLUME_RECORD: u64 = 3;
const VOLUME_VALUE_MAX: u64 = 64;
const VOLUME_DIRTY: u16 = 1;

const PAGE_BYTES: usize = 4096;
/// So much of an emptied log is looked at.
const HEAD_BYTES: usize = 128 << 10;
const NO_CLIENT: u16 = 0xffff;
const FLAG_CLEAN: u16 = 2;
const VERSION: u16 = 1;

impl Ntfs {
    /// Whether everything is in its place, and nothing in the log alone.
    pub fn was_left_cleanly(&self) -> Result<bool, NtfsError> {
        let information = self.stream(VOLUME_RECORD, VOLUME_INFORMATION, b"")?;
        let information = self.value(VOLUME_RECORD, &information, VOLUME_VALUE_MAX)?;
        let flags = u16_at(&information, 10);
        let missing = || NtfsError::record(VOLUME_RECORD)(NtfsFault::Value(VOLUME_INFORMATION));
        if flags.ok_or_else(missing)? & VOLUME_DIRTY != 0 {
            return Ok(false);
        }
        let NtfsStream::Mapped(log) = self.stream(LOG_RECORD, DATA, b"")? else {
            return Ok(false);
        };
        let mut head = vec![0; HEAD_BYTES.min(usize::try_from(log.size).unwrap_or(0))];
        let read = log.read_stored(self.source.as_ref(), &self.boot, 0, &mut head);
        read.map_err(|error| error.of(LOG_RECORD, "$LogFile"))?;
        Ok(is_clean(&head))
    }
}

/// `head` are the first bytes of the log.
pub(super) fn is_clean(head: &[u8]) -> bool {
    // What empties a log fills it with ones.
    if head.len() >= 2 * PAGE_BYTES && head.iter().all(|byte| *byte == 0xff) {
        return true;
    }
    let pages = head.chunks_exact(PAGE_BYTES).take(2);
    let newest = pages
        .filter_map(restart_page)
        .max_by_key(|(written, _)| *written);
    newest.is_some_and(|(_, is_clean)| is_clean)
}

/// When it was written, and whether it says that there is nothing to do; `None` if it is none.
fn restart_page(page: &[u8]) -> Option<(u64, bool)> {
    if !page.starts_with(b"RSTR") {
        return None;
    }
    let mut page = page.to_vec();
    undo_fixups(&mut page).ok()?;
    let area = page.get(usize::from(u16_at(&page, 24)?)..)?;
    let (in_use, flags) = (u16_at(area, 12)?, u16_at(area, 14)?);
    let is_known = u16_at(&page, 28)? == VERSION;
    let is_clean = is_known && (in_use == NO_CLIENT || flags & FLAG_CLEAN != 0);
    Some((u64_at(area, 0)?, is_clean))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(written: u64, version: u16, in_use: u16, flags: u16) -> Vec<u8> {
        let mut page = vec![0; PAGE_BYTES];
        page[..4].copy_from_slice(b"RSTR");
        page[4..6].copy_from_slice(&30u16.to_le_bytes());
        page[6..8].copy_from_slice(&9u16.to_le_bytes());
        page[24..26].copy_from_slice(&48u16.to_le_bytes());
        page[28..30].copy_from_slice(&version.to_le_bytes());
        page[48..56].copy_from_slice(&written.to_le_bytes());
        page[60..62].copy_from_slice(&in_use.to_le_bytes());
        page[62..64].copy_from_slice(&flags.to_le_bytes());
        page
    }

    #[test]
    fn a_log_is_clean_by_its_newest_page() {
        let clean = page(9, 1, NO_CLIENT, 0);
        let marked = page(9, 1, 0, FLAG_CLEAN);
        let older = page(8, 1, 0, 0);
        let newer = page(10, 1, 0, 0);
        let fast_start = page(10, 2, NO_CLIENT, 0);
        for (pages, expected) in [
            ([&clean, &older], true),
            ([&older, &marked], true),
            ([&clean, &newer], false),
            ([&clean, &fast_start], false),
            ([&newer, &newer], false),
        ] {
            assert_eq!(is_clean(&pages.map(Vec::as_slice).concat()), expected);
        }
        assert!(is_clean(&[0xff; HEAD_BYTES]));
        assert!(!is_clean(&[0; HEAD_BYTES]));
        assert!(!is_clean(&[]));
        let mut torn = clean.clone();
        torn[510] = 1;
        assert!(!is_clean(&torn));
    }
}
