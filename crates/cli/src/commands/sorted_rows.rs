//! Rows of catalogs in another order than theirs: sorted on disk, so that ten million take no more
//! memory than a thousand.

use anyhow::Result;
use bale_format::{Entry, Time};
use bale_pipeline::spill::{Sorted, Sorter};
use bale_repository::repository::Repository;

/// Memory of sorting, with the usual ceiling.
const SORTER_BYTES: usize = 32 << 20;

/// Collects rows, each with the key by which it is sorted.
pub struct RowSorter {
    sorter: Sorter,
    row: Vec<u8>,
}

impl RowSorter {
    pub fn new(repository: &Repository) -> Result<RowSorter> {
        let memory_bytes = repository.memory().share(SORTER_BYTES);
        Ok(RowSorter {
            sorter: Sorter::new(&repository.spill_dir()?, memory_bytes),
            row: Vec::new(),
        })
    }

    pub fn push(&mut self, key: &[u8], entry: &Entry) -> Result<()> {
        self.row.clear();
        encode(entry, &mut self.row);
        Ok(self.sorter.push(key, &self.row)?)
    }

    pub fn finish(self) -> Result<SortedRows> {
        Ok(SortedRows(self.sorter.finish()?))
    }
}

/// Rows by their keys, bytewise; each with its key.
pub struct SortedRows(Sorted);

impl Iterator for SortedRows {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = self.0.next()?;
        Some(
            record
                .map_err(Into::into)
                .and_then(|(key, row)| Ok((key, decode(row)?))),
        )
    }
}

/// What a restore has no use for, in front of what it has: inode, generation, ctime, hash.
const HEAD_BYTES: usize = 8 + 4 + 8 + 4 + 1 + HASH_BYTES;
const HASH_BYTES: usize = 16;

fn encode(entry: &Entry, out: &mut Vec<u8>) {
    out.extend_from_slice(&entry.inode.to_le_bytes());
    out.extend_from_slice(&entry.generation.to_le_bytes());
    out.extend_from_slice(&entry.ctime.seconds.to_le_bytes());
    out.extend_from_slice(&entry.ctime.nanos.to_le_bytes());
    out.push(entry.content_hash.is_some().into());
    out.extend_from_slice(&entry.content_hash.unwrap_or_default());
    bale_restore::encode_row(entry, out);
}

fn decode(mut row: Vec<u8>) -> Result<Entry> {
    let rest = row.split_off(HEAD_BYTES.min(row.len()));
    let mut entry = bale_restore::decode_row(rest)?;
    let damaged = || anyhow::anyhow!("a temporary file is damaged");
    let mut head = &row[..];
    entry.inode = u64::from_le_bytes(*taken(&mut head).ok_or_else(damaged)?);
    entry.generation = u32::from_le_bytes(*taken(&mut head).ok_or_else(damaged)?);
    entry.ctime = Time {
        seconds: i64::from_le_bytes(*taken(&mut head).ok_or_else(damaged)?),
        nanos: u32::from_le_bytes(*taken(&mut head).ok_or_else(damaged)?),
    };
    let [has_hash] = *taken(&mut head).ok_or_else(damaged)?;
    let hash: [u8; HASH_BYTES] = *taken(&mut head).ok_or_else(damaged)?;
    entry.content_hash = (has_hash != 0).then_some(hash);
    Ok(entry)
}

fn taken<'h, const N: usize>(head: &mut &'h [u8]) -> Option<&'h [u8; N]> {
    let (first, rest) = head.split_first_chunk()?;
    *head = rest;
    Some(first)
}

/// A path as bytes that sort it right in front of what is below it, and behind which anything may
/// stand: no key is the beginning of another.
pub fn path_key(path: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(path.len() + KEY_END.len());
    let byte = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    key.extend(path.iter().map(byte));
    key.extend_from_slice(KEY_END);
    key
}

/// No name is empty, so nothing else in a key looks like it.
const KEY_END: &[u8] = &[0, 0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_with_all_that_a_list_shows() {
        let mut entry = Entry::new(b"a/b"[..].into(), b"c"[..].into(), bale_format::Kind::File);
        let time = |seconds| Time { seconds, nanos: 7 };
        (entry.mtime, entry.ctime) = (time(-5), time(9));
        entry.atime = time(11).into();
        (entry.inode, entry.generation, entry.nlink) = (u64::MAX, 3, 2);
        for hash in [None, Some([8; HASH_BYTES])] {
            entry.content_hash = hash;
            let mut row = Vec::new();
            encode(&entry, &mut row);
            assert_eq!(decode(row.clone()).unwrap(), entry);
            for len in 0..row.len() {
                assert!(decode(row[..len].to_vec()).is_err(), "cut at {len}");
            }
        }
    }

    #[test]
    fn a_path_comes_right_in_front_of_what_is_below_it() {
        let paths: [&[u8]; 7] = [b"", b"a", b"a/b", b"a/b/c", b"a/c", b"a!", b"ab"];
        let keys: Vec<_> = paths.iter().map(|path| path_key(path)).collect();
        assert!(keys.is_sorted(), "{keys:?}");
        for (key, other) in keys
            .iter()
            .flat_map(|key| keys.iter().map(move |other| (key, other)))
        {
            assert!(key == other || !other.starts_with(key), "{key:?} {other:?}");
        }
    }
}
