//! `bale find --latest` and `--earliest`: of each path one snapshot alone, whichever has what is
//! looked for. What was found is sorted on disk by its path.

use super::sorted_rows::{RowSorter, path_key};
use crate::interrupt;
use anyhow::Result;
use bale_format::Entry;
use bale_repository::error::Error;
use bale_repository::repository::{Named, Repository};

/// Collects what is found, and hands out of each path one.
pub struct FoundOnce {
    sorter: RowSorter,
    is_earliest: bool,
}

const ID_BYTES: usize = 32;
/// Behind the path in a key: what is first by time, and the id, which tells snapshots of one time
/// apart.
const TAIL_BYTES: usize = 8 + 4 + ID_BYTES;

impl FoundOnce {
    pub fn new(repository: &Repository, is_earliest: bool) -> Result<FoundOnce> {
        Ok(FoundOnce {
            sorter: RowSorter::new(repository)?,
            is_earliest,
        })
    }

    pub fn push(&mut self, (id, snapshot): &Named, entry: &Entry) -> Result<()> {
        // In the order of numbers with a sign.
        let seconds = snapshot.time.seconds as u64 ^ 1 << 63;
        let (mut seconds, mut nanos) = (seconds.to_be_bytes(), snapshot.time.nanos.to_be_bytes());
        if !self.is_earliest {
            seconds.iter_mut().for_each(|byte| *byte = !*byte);
            nanos.iter_mut().for_each(|byte| *byte = !*byte);
        }
        let mut key = path_key(&entry.path());
        key.extend_from_slice(&seconds);
        key.extend_from_slice(&nanos);
        key.extend_from_slice(&id.0);
        self.sorter.push(&key, entry)
    }

    /// Prints the first of each path, in the order of paths.
    pub fn print(self, snapshots: &[Named], mut print: impl FnMut(&Named, &Entry)) -> Result<()> {
        let mut last: Option<Vec<u8>> = None;
        for pair in self.sorter.finish()? {
            if interrupt::is_requested() {
                return Err(Error::Interrupted.into());
            }
            let (mut key, entry) = pair?;
            let tail = key.split_off(key.len() - TAIL_BYTES);
            if last.as_ref() == Some(&key) {
                continue;
            }
            let id = &tail[TAIL_BYTES - ID_BYTES..];
            let named = snapshots.iter().find(|(other, _)| other.0 == *id);
            print(named.expect("each was found in one of them"), &entry);
            last = Some(key);
        }
        Ok(())
    }
}
