//! Flags for rows that were emitted before the trouble showed: a directory whose children could not
//! all be listed, say.
//!
//! None is lost, however many there are: without its flag a directory would pass for whole, and a
//! restore that deletes would delete in it. A mebibyte is in memory, the rest in an unnamed file.

use bale_format::{EntryFlags, Key};
use bale_pipeline::spill::{MEMORY_BYTES_MIN, Sorted, Sorter, SpillError};
use bale_repository::error::{Error, Result};
use bytes::Bytes;
use std::path::PathBuf;

/// Collects them in any order.
pub(super) struct Amendments {
    directory: PathBuf,
    /// Made for the first one.
    sorter: Option<Sorter>,
}

impl Amendments {
    /// None yet; `directory` is for what does not fit in memory.
    pub(super) fn new(directory: PathBuf) -> Amendments {
        Amendments {
            directory,
            sorter: None,
        }
    }

    pub(super) fn add(&mut self, key: &Key, flags: EntryFlags) -> Result<()> {
        let sorter = self
            .sorter
            .get_or_insert_with(|| Sorter::new(&self.directory, MEMORY_BYTES_MIN));
        sorter
            .push(&encode(key), &flags.0.to_le_bytes())
            .map_err(spilling)
    }

    /// Adds those of another pass.
    pub(super) fn add_all(&mut self, others: Amendments) -> Result<()> {
        for other in others.sorted()? {
            let (key, flags) = other?;
            self.add(&key, flags)?;
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sorter.is_none()
    }

    /// In the order of keys, those of one key merged.
    pub(super) fn sorted(self) -> Result<InOrder> {
        Ok(InOrder {
            sorted: self
                .sorter
                .map(Sorter::finish)
                .transpose()
                .map_err(spilling)?,
            next: None,
        })
    }
}

/// Amendments in the order of keys, each key once.
pub(super) struct InOrder {
    sorted: Option<Sorted>,
    next: Option<(Key, EntryFlags)>,
}

impl InOrder {
    fn record(&mut self) -> Result<Option<(Key, EntryFlags)>> {
        let Some(sorted) = &mut self.sorted else {
            return Ok(None);
        };
        Ok(sorted.next_record().map_err(spilling)?.map(|(key, flags)| {
            let flags = flags.try_into().expect("written by `add`");
            (decode(key), EntryFlags(u32::from_le_bytes(flags)))
        }))
    }

    fn merged(&mut self) -> Result<Option<(Key, EntryFlags)>> {
        let first = match self.next.take() {
            Some(first) => Some(first),
            None => self.record()?,
        };
        let Some((key, mut flags)) = first else {
            return Ok(None);
        };
        while let Some((other, more)) = self.record()? {
            if other != key {
                self.next = Some((other, more));
                break;
            }
            flags.set(more);
        }
        Ok(Some((key, flags)))
    }
}

impl Iterator for InOrder {
    type Item = Result<(Key, EntryFlags)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.merged().transpose()
    }
}

fn spilling(error: SpillError) -> Error {
    Error::Other(format!("put flags of rows in order: {error}"))
}

/// Bytes that compare as keys do: a slash is smaller than any byte of a name, and so is the end of
/// a parent. No path has two slashes in a row.
fn encode(key: &Key) -> Vec<u8> {
    let parent = key.parent.iter().map(|byte| match byte {
        b'/' => 0,
        byte => *byte,
    });
    parent
        .chain([0, 0])
        .chain(key.name.iter().copied())
        .collect()
}

fn decode(bytes: &[u8]) -> Key {
    let end = bytes.windows(2).position(|pair| pair == [0, 0]);
    let (parent, rest) = bytes.split_at(end.expect("written by `encode`"));
    let parent: Vec<u8> = parent
        .iter()
        .map(|byte| if *byte == 0 { b'/' } else { *byte })
        .collect();
    Key {
        parent: parent.into(),
        name: Bytes::copy_from_slice(&rest[2..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> Key {
        Key::of_path(path.as_bytes())
    }

    #[test]
    fn far_more_than_fit_in_memory_all_come_back_in_order() {
        const COUNT: u64 = 150_000;
        let directory = tempfile::tempdir().unwrap();
        let mut amendments = Amendments::new(directory.path().to_owned());
        assert!(amendments.is_empty());
        for number in 0..COUNT {
            // Any order: a step that has no divisor in common with the count.
            let number = number * 7_919 % COUNT;
            let key = key(&format!("some/{}/directory-{number}", number % 100));
            amendments.add(&key, EntryFlags::UNREADABLE).unwrap();
        }
        amendments
            .add(&key("some/5/directory-5"), EntryFlags::RACY)
            .unwrap();
        let sorted: Vec<_> = amendments.sorted().unwrap().map(Result::unwrap).collect();
        assert_eq!(sorted.len() as u64, COUNT);
        assert!(sorted.is_sorted_by(|a, b| a.0 < b.0));
        let merged = sorted
            .iter()
            .find(|(of, _)| *of == key("some/5/directory-5"));
        let both = EntryFlags::UNREADABLE.0 | EntryFlags::RACY.0;
        assert_eq!(merged.unwrap().1.0, both);
    }

    #[test]
    fn keys_are_in_the_order_of_the_catalog_and_come_back() {
        let paths = [
            "",
            "a",
            "b",
            "a/b",
            "a!/b",
            "a/b/c",
            "a/\u{1}/c",
            "ab/c",
            "a",
        ];
        for one in paths {
            assert_eq!(decode(&encode(&key(one))), key(one));
            for other in paths {
                let order = encode(&key(one)).cmp(&encode(&key(other)));
                assert_eq!(order, key(one).cmp(&key(other)), "{one} {other}");
            }
        }
    }
}
