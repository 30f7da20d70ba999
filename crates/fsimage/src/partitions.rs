//! Partition tables: where on a disk file systems may be.
//!
//! Everything is untrusted. A table says what it says only within the disk; what contradicts itself
//! is left out and named, so that who reads a disk reads that part whole. No table is believed that
//! the kernel would not take: a GPT needs its protective MBR, as an old one may be left below a
//! file system that covers the disk.

mod gpt;
mod mbr;

use crate::source::ByteSource;
use std::io;

/// Partitions of one disk at most.
const PARTITIONS_MAX: usize = 4096;

/// Sizes of sectors that tables are looked for with, if nobody knows.
const SECTOR_BYTES: [u32; 2] = [512, 4096];

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    pub kind: PartitionTableKind,
    pub sector_bytes: u32,
    /// In the order of their numbers.
    pub partitions: Vec<Partition>,
    /// What of it is wrong; without any, everything on the disk is as it says.
    pub faults: Vec<PartitionFault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionTableKind {
    Gpt,
    Mbr,
}

/// A stretch of a disk, within it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// As the kernel numbers them: /dev/sda5 is 5.
    pub number: u32,
    pub offset: u64,
    pub bytes: u64,
    pub kind: PartitionKind,
    /// Of a GPT, without what is not text.
    pub name: String,
}

/// What a table says that is in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// As it is stored.
    Guid([u8; 16]),
    Byte(u8),
}

/// What is wrong with a table that is read all the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionFault {
    #[error("the first partition table is damaged ({0}); the one at the end of the disk is used")]
    Primary(GptFault),
    #[error("the partition table at the end of the disk is damaged ({0})")]
    Backup(GptFault),
    #[error("the partition tables at both ends of the disk differ; the first is used")]
    Differ,
    #[error("partition {0} does not lie within the disk")]
    Outside(u32),
    /// What of it is on the disk is among the partitions, if anything is.
    #[error("partition {0} ends behind the end of the disk, which is cut or has shrunk")]
    CutOff(u32),
    #[error("partitions {0} and {1} overlap")]
    Overlap(u32, u32),
    #[error("the MBR names partitions beside the GPT, which are not looked at")]
    Hybrid,
    #[error("the chain of extended partitions is damaged at byte {0}")]
    Chain(u64),
    #[error("the chain of extended partitions has no end")]
    Endless,
}

/// What is wrong with one of the two tables of a GPT.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GptFault {
    #[error("it is not there")]
    Missing,
    #[error("the checksum of its head is wrong")]
    HeadChecksum,
    #[error("the checksum of its entries is wrong")]
    EntriesChecksum,
    #[error("its head says {0}, which cannot be")]
    Head(&'static str),
}

/// Why it is not known what there is.
#[derive(Debug, thiserror::Error)]
pub enum PartitionError {
    #[error("read {what} at byte {offset}")]
    Read {
        what: &'static str,
        offset: u64,
        source: io::Error,
    },
    #[error(
        "both partition tables (GPT) are damaged: the first ({primary}), the second ({backup})"
    )]
    BothDamaged { primary: GptFault, backup: GptFault },
}

impl PartitionTable {
    /// Reads the table of a disk; `None` if there is none. The size of a sector is that of the
    /// device, where it is one; an image does not say.
    pub fn read(
        source: &dyn ByteSource,
        sector_bytes: Option<u32>,
    ) -> Result<Option<PartitionTable>, PartitionError> {
        let Some(first) = mbr::FirstSector::read(source)? else {
            return Ok(None);
        };
        let mut table = match first.is_protective() {
            true => {
                let mut table = match sector_bytes {
                    Some(bytes) => gpt::read(source, bytes)?,
                    None => read_with_any_sector(source)?,
                };
                if first.is_hybrid() {
                    table.faults.push(PartitionFault::Hybrid);
                }
                table
            }
            false => match first.table(source, sector_bytes.unwrap_or(SECTOR_BYTES[0]))? {
                Some(table) => table,
                None => return Ok(None),
            },
        };
        table.find_overlaps();
        Ok(Some(table))
    }

    fn push(&mut self, place: Place, number: u32, kind: PartitionKind, name: String) {
        if place.is_cut {
            self.faults.push(PartitionFault::CutOff(number));
        }
        if place.bytes > 0 {
            self.partitions.push(Partition {
                number,
                offset: place.offset,
                bytes: place.bytes,
                kind,
                name,
            });
        }
    }

    /// Named once each, with the one that begins before.
    fn find_overlaps(&mut self) {
        let mut order: Vec<_> = self.partitions.iter().collect();
        order.sort_by_key(|partition| (partition.offset, partition.number));
        let mut widest: Option<&Partition> = None;
        let mut overlaps = Vec::new();
        for partition in order {
            if let Some(before) = widest
                && before.offset + before.bytes > partition.offset
            {
                overlaps.push(PartitionFault::Overlap(before.number, partition.number));
            }
            let end = |partition: &Partition| partition.offset + partition.bytes;
            if widest.is_none_or(|before| end(before) < end(partition)) {
                widest = Some(partition);
            }
        }
        self.faults.extend(overlaps);
    }
}

/// The size with which a table is found that is whole, else the first.
fn read_with_any_sector(source: &dyn ByteSource) -> Result<PartitionTable, PartitionError> {
    let mut first = None;
    for sector_bytes in SECTOR_BYTES {
        match gpt::read(source, sector_bytes) {
            Ok(table) => return Ok(table),
            Err(error @ PartitionError::Read { .. }) => return Err(error),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.expect("there is a size"))
}

/// A stretch of sectors, as far as it is on the disk.
struct Place {
    offset: u64,
    bytes: u64,
    is_cut: bool,
}

/// `None`: it is none.
fn place_as_far_as_it_is(
    source: &dyn ByteSource,
    sector_bytes: u32,
    start: u64,
    sectors: u64,
) -> Option<Place> {
    let offset = start.checked_mul(sector_bytes.into())?;
    let bytes = sectors.checked_mul(sector_bytes.into())?;
    let end = offset.checked_add(bytes)?;
    let is_cut = end > source.len_bytes();
    (bytes > 0).then_some(Place {
        offset,
        bytes: end.min(source.len_bytes()).saturating_sub(offset),
        is_cut,
    })
}

/// A stretch of a disk, given in sectors; `None` if it is none or leads out of the disk.
fn place(
    source: &dyn ByteSource,
    sector_bytes: u32,
    start: u64,
    sectors: u64,
) -> Option<(u64, u64)> {
    let offset = start.checked_mul(sector_bytes.into())?;
    let bytes = sectors.checked_mul(sector_bytes.into())?;
    let end = offset.checked_add(bytes)?;
    (bytes > 0 && end <= source.len_bytes()).then_some((offset, bytes))
}

fn read_at(
    source: &dyn ByteSource,
    what: &'static str,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), PartitionError> {
    let read = source.read_exact_at(offset, buffer);
    read.map_err(|source| PartitionError::Read {
        what,
        offset,
        source,
    })
}
