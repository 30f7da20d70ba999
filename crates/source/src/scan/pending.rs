//! Directories that were found and wait to be entered.
//!
//! The walk is depth first, so what waits is the rest of one list for each level above. Usually
//! that is a few names; but a directory may have millions of subdirectories, so beyond a budget
//! common to all lists they wait in a file.

use super::PENDING_BYTES_MAX;
use super::identity::Stay;
use super::identity::{Handle, Identity};
use super::sources::SourceNode;
use bale_pipeline::memory::MemoryPlan;
use bale_pipeline::spill::unnamed_file;
use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read back from the file at once.
const READ_BACK_BYTES: u64 = 64 << 10;
/// Length of a record before its name: name length (1), handle length (1), reach (1), values of the
/// reach (16), device (8), inode (8). The handle follows the name.
const RECORD_HEAD_BYTES: usize = 35;

/// A directory to be entered.
#[derive(Debug)]
pub(super) struct Subdirectory {
    pub(super) name: Bytes,
    pub(super) identity: Identity,
    /// To tell later whether it is gone.
    pub(super) handle: Option<Handle>,
    pub(super) reach: ChildrenReach,
}

/// Which children of a directory count.
#[derive(Clone, Debug)]
pub(super) enum ChildrenReach {
    /// All, on the given file system only if one is given.
    All(Option<Stay>),
    /// All, and some of them are sources themselves, which no filter excludes.
    AllAnd(Option<Stay>, Arc<SourceNode>),
    /// Only what leads to a source.
    Only(Arc<SourceNode>),
    /// Only the files that mark the directory as excluded.
    Marks,
}

/// The subdirectories of one directory, in order: first those in memory, then those in the file.
#[derive(Default)]
pub(super) struct Pending {
    queue: VecDeque<Subdirectory>,
    spilled: VecDeque<Range<u64>>,
    /// Reaches that records of the file point at: as many as there are sources.
    reaches: Vec<ChildrenReach>,
}

/// What all lists share: the budget and the file.
pub(super) struct Overflow {
    place: PathBuf,
    file: Option<File>,
    /// Where the next record goes.
    end: u64,
    /// Bytes in the file that are still waited for.
    spilled_bytes: u64,
    /// Bytes in memory.
    bytes: usize,
    bytes_max: usize,
}

impl Overflow {
    /// The file, if there must be one, is made in `place`.
    pub(super) fn new(place: &Path, memory: MemoryPlan) -> Overflow {
        Overflow {
            place: place.to_path_buf(),
            file: None,
            end: 0,
            spilled_bytes: 0,
            bytes: 0,
            bytes_max: memory.share(PENDING_BYTES_MAX),
        }
    }

    fn write(&mut self, records: &[u8]) -> io::Result<Range<u64>> {
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(unnamed_file(&self.place)?),
        };
        if self.spilled_bytes == 0 {
            self.end = 0;
        }
        file.write_all_at(records, self.end)?;
        let range = self.end..self.end + records.len() as u64;
        self.end = range.end;
        self.spilled_bytes += records.len() as u64;
        Ok(range)
    }

    fn read(&mut self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        file.read_exact_at(&mut bytes, range.start)?;
        Ok(bytes)
    }
}

fn cost(subdirectory: &Subdirectory) -> usize {
    let handle = subdirectory
        .handle
        .as_ref()
        .map_or(0, |handle| handle.0.len());
    size_of::<Subdirectory>() + subdirectory.name.len() + handle
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.spilled.is_empty()
    }

    /// The next one; `None` if nothing is left.
    pub(super) fn pop(&mut self, overflow: &mut Overflow) -> io::Result<Option<Subdirectory>> {
        if self.queue.is_empty() {
            self.read_back(overflow)?;
        }
        let next = self.queue.pop_front();
        if let Some(next) = &next {
            overflow.bytes -= cost(next);
        }
        Ok(next)
    }

    /// Adds to the end.
    pub(super) fn append(&mut self, more: Vec<Subdirectory>, overflow: &mut Overflow) {
        let bytes: usize = more.iter().map(cost).sum();
        let over = overflow.bytes + bytes > overflow.bytes_max;
        if over || !self.spilled.is_empty() {
            let records = self.encode(&more);
            if let Ok(range) = overflow.write(&records) {
                match self.spilled.back_mut() {
                    Some(last) if last.end == range.start => last.end = range.end,
                    _ => self.spilled.push_back(range),
                }
                return;
            }
            // Without room on the disk, memory must do; but order comes first.
            while !self.spilled.is_empty() && self.read_back(overflow).is_ok() {}
        }
        overflow.bytes += bytes;
        self.queue.extend(compacted(more));
    }

    fn encode(&mut self, more: &[Subdirectory]) -> Vec<u8> {
        let mut records = Vec::new();
        for subdirectory in more {
            let (tag, values) = match &subdirectory.reach {
                ChildrenReach::All(None) => (0, [0, 0]),
                ChildrenReach::All(Some(stay)) => (1, [stay.device, stay.mount]),
                ChildrenReach::Marks => (2, [0, 0]),
                special => {
                    self.reaches.push(special.clone());
                    (3, [self.reaches.len() as u64 - 1, 0])
                }
            };
            let handle = subdirectory
                .handle
                .as_ref()
                .map_or(&[][..], |handle| &handle.0);
            records.push(subdirectory.name.len() as u8);
            records.push(handle.len() as u8);
            records.push(tag);
            for value in values {
                records.extend_from_slice(&value.to_le_bytes());
            }
            records.extend_from_slice(&subdirectory.identity.device.to_le_bytes());
            records.extend_from_slice(&subdirectory.identity.inode.to_le_bytes());
            records.extend_from_slice(&subdirectory.name);
            records.extend_from_slice(handle);
        }
        records
    }

    fn read_back(&mut self, overflow: &mut Overflow) -> io::Result<()> {
        let Some(range) = self.spilled.pop_front() else {
            return Ok(());
        };
        let end = range.end.min(range.start + READ_BACK_BYTES);
        let bytes = overflow.read(range.start..end);
        let lost = range.end - range.start;
        let bytes = bytes.inspect_err(|_| overflow.spilled_bytes -= lost)?;
        let used = self.decode(&bytes, overflow);
        overflow.spilled_bytes -= used as u64;
        if range.start + (used as u64) < range.end {
            self.spilled
                .push_front(range.start + used as u64..range.end);
        }
        Ok(())
    }

    /// Takes whole records; returns how many bytes these were.
    fn decode(&mut self, bytes: &[u8], overflow: &mut Overflow) -> usize {
        let arena = Bytes::copy_from_slice(bytes);
        let mut used = 0;
        while let Some((head, rest)) = bytes[used..].split_first_chunk::<RECORD_HEAD_BYTES>() {
            let (len, handle_len) = (usize::from(head[0]), usize::from(head[1]));
            if rest.len() < len + handle_len {
                break;
            }
            let number =
                |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
            let reach = match (head[2], number(3)) {
                (0, _) => ChildrenReach::All(None),
                (1, device) => ChildrenReach::All(Some(Stay {
                    device,
                    mount: number(11),
                })),
                (2, _) => ChildrenReach::Marks,
                (_, index) => self.reaches[index as usize].clone(),
            };
            let start = used + RECORD_HEAD_BYTES;
            let subdirectory = Subdirectory {
                name: arena.slice(start..start + len),
                identity: Identity {
                    device: number(19),
                    inode: number(27),
                },
                handle: Handle::of_bytes(&rest[len..len + handle_len]),
                reach,
            };
            overflow.bytes += cost(&subdirectory);
            self.queue.push_back(subdirectory);
            used = start + len + handle_len;
        }
        used
    }
}

/// The same, with names that do not keep the names of all their siblings in memory.
fn compacted(subdirectories: Vec<Subdirectory>) -> impl Iterator<Item = Subdirectory> {
    let mut arena = Vec::new();
    for subdirectory in &subdirectories {
        arena.extend_from_slice(&subdirectory.name);
    }
    let arena = Bytes::from(arena);
    let mut at = 0;
    subdirectories.into_iter().map(move |subdirectory| {
        let start = at;
        at += subdirectory.name.len();
        Subdirectory {
            name: arena.slice(start..at),
            ..subdirectory
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subdirectory(number: u64) -> Subdirectory {
        Subdirectory {
            name: Bytes::from(format!("name of {number}")),
            identity: Identity {
                device: number + 1,
                inode: number + 2,
            },
            handle: Handle::of_bytes(&vec![number as u8; number as usize % 3 * 8]),
            reach: match number % 4 {
                0 => ChildrenReach::All(None),
                1 => ChildrenReach::All(Some(Stay {
                    device: number,
                    mount: number + 3,
                })),
                2 => ChildrenReach::Marks,
                _ => ChildrenReach::Only(Arc::default()),
            },
        }
    }

    fn overflow(bytes_max: usize, place: &str) -> Overflow {
        let mut overflow = Overflow::new(Path::new(place), MemoryPlan::default());
        overflow.bytes_max = bytes_max;
        overflow
    }

    /// Three lists that take turns come back in order whatever waited in the file.
    fn take_turns(mut overflow: Overflow) -> Overflow {
        let mut lists: [Pending; 3] = Default::default();
        for round in 0..50u64 {
            for (which, list) in lists.iter_mut().enumerate() {
                let first = round * 300 + which as u64 * 1_000_000;
                let more = (first..first + 300).map(subdirectory).collect();
                list.append(more, &mut overflow);
            }
        }
        for (which, list) in lists.iter_mut().enumerate() {
            for number in 0..50 * 300u64 {
                let expected = subdirectory(number + which as u64 * 1_000_000);
                let got = list.pop(&mut overflow).unwrap().unwrap();
                assert_eq!(format!("{got:?}"), format!("{expected:?}"));
            }
            assert!(list.pop(&mut overflow).unwrap().is_none());
            assert!(list.is_empty());
        }
        assert_eq!((overflow.bytes, overflow.spilled_bytes), (0, 0));
        overflow
    }

    #[test]
    fn subdirectories_come_back_in_order_from_memory_and_from_the_file() {
        assert!(take_turns(overflow(usize::MAX, "/tmp")).file.is_none());
        assert!(take_turns(overflow(100_000, "/tmp")).file.is_some());
        assert!(take_turns(overflow(0, "/tmp")).file.is_some());
    }

    #[test]
    fn without_a_place_for_the_file_memory_must_do() {
        take_turns(overflow(1000, "/no such directory"));
    }

    #[test]
    fn file_is_used_again_once_nothing_in_it_is_waited_for() {
        let mut overflow = overflow(0, "/tmp");
        let mut list = Pending::default();
        for _ in 0..10 {
            list.append((0..100).map(subdirectory).collect(), &mut overflow);
            while list.pop(&mut overflow).unwrap().is_some() {}
        }
        assert!(overflow.end < 10_000, "{}", overflow.end);
    }
}
