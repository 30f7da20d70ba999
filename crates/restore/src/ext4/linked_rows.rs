//! Names of one inode: which rows belong together, and the inode that the first of them was given.
//!
//! Rows are known by their position among the wanted rows. The first reading sorts those of linked
//! inodes by inode and then, numbered, back by position; the second reading walks along.

use super::work::Work;
use crate::plan::{GROUP_KEY_BYTES, group_key};
use crate::scratch::{PairSorter, SortedPairs};
use crate::{RestoreError, row};
use bale_format::{Entry, EntryFlags, Kind};
use bale_fsimage::mkext4::{LINKS_MAX, Scratch, ScratchMaker};
use bale_pipeline::ahead;
use bytes::Bytes;
use std::hash::{DefaultHasher, Hasher};
use std::io;

/// Memory of each sorter.
pub const SORTER_BYTES: usize = 8 << 20;

/// Pairs handed over at a time.
const BATCH_PAIRS_MAX: usize = 512;
/// Batches that wait: at 150 bytes a pair, half a mebibyte.
const BATCHES_AHEAD_MAX: usize = 4;

/// Linked inodes whose numbers are kept in memory, 4 MiB; those of more are in a file.
pub const INODES_IN_MEMORY_MAX: usize = 1 << 20;

/// Rows of linked inodes, as the first reading meets them.
pub struct LinkSorter {
    groups: PairSorter,
    buffer: Vec<u8>,
}

impl LinkSorter {
    pub fn new(work: &Work) -> LinkSorter {
        LinkSorter {
            groups: work.scratch.sorter(SORTER_BYTES),
            buffer: Vec::new(),
        }
    }

    /// Adds the row at this position.
    pub fn push(&mut self, position: u64, entry: &Entry) -> Result<(), RestoreError> {
        let mut key = group_key(entry);
        key.extend_from_slice(&position.to_be_bytes());
        self.buffer.clear();
        self.buffer
            .extend_from_slice(&check_of(entry).to_le_bytes());
        encode_inode(entry, &mut self.buffer);
        self.groups
            .push(&key, &self.buffer)
            .map_err(RestoreError::Scratch)
    }

    /// Numbers the inodes, calls `first` with the row that will bring each, and sorts the rows by
    /// position; `readings` times the same.
    pub fn finish(
        self,
        work: &Work,
        readings: usize,
        mut first: impl FnMut(&Entry),
    ) -> Result<Vec<Links>, RestoreError> {
        let mut sorters: Vec<PairSorter> = (0..readings)
            .map(|_| work.scratch.sorter(SORTER_BYTES))
            .collect();
        let (mut group, mut number, mut names) = (Vec::new(), 0u64, 0);
        // Merging takes as long as sorting again.
        let pairs = || {
            let pairs = self.groups.finish().map_err(RestoreError::Scratch)?;
            Ok(pairs.map(|pair| pair.map_err(RestoreError::Scratch)))
        };
        ahead::for_each(
            pairs,
            BATCH_PAIRS_MAX,
            BATCHES_AHEAD_MAX,
            |(mut key, value)| {
                let position = key.split_off(GROUP_KEY_BYTES.min(key.len()));
                let (check, inode) = value.split_at_checked(8).ok_or_else(damaged)?;
                names += 1;
                // A file system with more names of one inode than ext4 allows gets a second inode.
                if number == 0 || key != group || names > LINKS_MAX {
                    (group, number, names) = (key, number + 1, 1);
                    first(&decode_inode(inode)?);
                }
                let mut value = [0; 17];
                value[..8].copy_from_slice(&number.to_le_bytes());
                value[8] = u8::from(names == 1);
                value[9..].copy_from_slice(check);
                for sorter in &mut sorters {
                    sorter
                        .push(&position, &value)
                        .map_err(RestoreError::Scratch)?;
                }
                Ok(())
            },
        )?;
        let sorted = sorters.into_iter().map(|sorter| {
            let sorted = sorter.finish().map_err(RestoreError::Scratch)?;
            Ok(Links { sorted, next: None })
        });
        sorted.collect()
    }
}

/// The rows of linked inodes, by position.
pub struct Links {
    sorted: SortedPairs,
    next: Option<(u64, LinkedRow)>,
}

/// A row of a linked inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkedRow {
    /// Number of the inode among the linked ones, from 1.
    pub group: u64,
    /// Does its row bring the inode?
    pub is_first: bool,
    check: u64,
}

impl Links {
    /// What is known of the row at this position; positions ascend.
    pub fn at(&mut self, position: u64, entry: &Entry) -> Result<LinkedRow, RestoreError> {
        while self.next.is_none_or(|(at, _)| at < position) {
            let pair = self.sorted.next().ok_or_else(differs)?;
            let (key, value) = pair.map_err(RestoreError::Scratch)?;
            self.next = Some(decode(&key, &value).ok_or_else(damaged)?);
        }
        match self.next {
            Some((at, name)) if at == position && name.check == check_of(entry) => Ok(name),
            _ => Err(differs()),
        }
    }
}

fn decode(key: &[u8], value: &[u8]) -> Option<(u64, LinkedRow)> {
    let number = |bytes: &[u8]| Some(u64::from_le_bytes(bytes.try_into().ok()?));
    let name = LinkedRow {
        group: number(value.get(..8)?)?,
        is_first: *value.get(8)? == 1,
        check: number(value.get(9..)?)?,
    };
    Some((u64::from_be_bytes(key.try_into().ok()?), name))
}

/// What counting asks of an inode, whose path is known by the position. Nearly all are regular
/// files without attributes or holes: of those it is the size.
fn encode_inode(entry: &Entry, out: &mut Vec<u8>) {
    let is_plain =
        entry.kind == Kind::File && entry.xattrs.is_empty() && !entry.flags.has(EntryFlags::SPARSE);
    if is_plain {
        return out.extend_from_slice(&entry.size.to_le_bytes());
    }
    let nameless = Entry {
        parent: Bytes::new(),
        name: Bytes::new(),
        ..entry.clone()
    };
    row::encode(&nameless, out);
}

fn decode_inode(bytes: &[u8]) -> Result<Entry, RestoreError> {
    match bytes.try_into() {
        Ok(size) => Ok(Entry {
            size: u64::from_le_bytes(size),
            nlink: 2,
            ..Entry::new(Bytes::new(), Bytes::new(), Kind::File)
        }),
        Err(_) => row::decode(bytes.to_vec()).map_err(RestoreError::Scratch),
    }
}

fn damaged() -> RestoreError {
    RestoreError::Scratch(io::Error::new(
        io::ErrorKind::InvalidData,
        "a row of the links is damaged",
    ))
}

/// A link, or content, of another reading would be that of the wrong file.
pub fn differs() -> RestoreError {
    RestoreError::Catalog("it reads differently the second time".into())
}

/// Tells paths apart within this process.
fn check_of(entry: &Entry) -> u64 {
    let mut hash = DefaultHasher::new();
    hash.write(&entry.parent);
    hash.write(b"/");
    hash.write(&entry.name);
    hash.finish()
}

/// Inode numbers of linked inodes: 4 bytes each, beyond a bound in a file.
pub struct InodeTable {
    memory: Vec<u32>,
    file: Option<Box<dyn Scratch>>,
    maker: ScratchMaker,
}

impl InodeTable {
    pub fn new(maker: ScratchMaker) -> InodeTable {
        InodeTable {
            memory: Vec::new(),
            file: None,
            maker,
        }
    }

    /// The inode of a group, if it has one yet.
    pub fn get(&self, group: u64) -> io::Result<Option<u32>> {
        let found = if group < INODES_IN_MEMORY_MAX as u64 {
            self.memory.get(group as usize).copied().unwrap_or(0)
        } else {
            let mut bytes = [0; 4];
            match self
                .file
                .as_ref()
                .map(|file| file.get_at(group * 4, &mut bytes))
            {
                None => {}
                Some(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Some(read) => read?,
            }
            u32::from_le_bytes(bytes)
        };
        Ok((found != 0).then_some(found))
    }

    pub fn set(&mut self, group: u64, inode: u32) -> io::Result<()> {
        if group < INODES_IN_MEMORY_MAX as u64 {
            let group = group as usize;
            self.memory.resize(self.memory.len().max(group + 1), 0);
            self.memory[group] = inode;
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some((self.maker)()?);
        }
        let file = self.file.as_mut().expect("just made");
        file.put_at(group * 4, &inode.to_le_bytes())
    }
}
