//! An MBR: four partitions, and a chain of further ones in an extended partition.

use super::{
    PartitionError, PartitionFault, PartitionKind, PartitionTable, PartitionTableKind, place,
    place_as_far_as_it_is, read_at,
};
use crate::source::ByteSource;

const SECTOR: usize = 512;
const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
const ENTRIES: usize = 4;
const END: [u8; 2] = [0x55, 0xaa];
const PROTECTIVE: u8 = 0xee;
/// Partitions in a chain at most; the kernel stops there, too.
const CHAIN_MAX: u32 = 100;
/// Number of the first of them.
const CHAIN_FIRST: u32 = 5;

/// The first sector of a disk that ends as an MBR does, and so do boot sectors of file systems.
pub(super) struct FirstSector {
    bytes: [u8; SECTOR],
}

#[derive(Clone, Copy)]
struct Entry {
    status: u8,
    kind: u8,
    start: u32,
    sectors: u32,
}

impl Entry {
    fn is_there(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85) && self.sectors != 0
    }
}

fn entries(bytes: &[u8; SECTOR]) -> [Entry; ENTRIES] {
    std::array::from_fn(|number| {
        let entry = &bytes[ENTRIES_AT + number * ENTRY_BYTES..][..ENTRY_BYTES];
        Entry {
            status: entry[0],
            kind: entry[4],
            start: u32::from_le_bytes([entry[8], entry[9], entry[10], entry[11]]),
            sectors: u32::from_le_bytes([entry[12], entry[13], entry[14], entry[15]]),
        }
    })
}

impl FirstSector {
    /// `None` if it does not end as one.
    pub(super) fn read(source: &dyn ByteSource) -> Result<Option<FirstSector>, PartitionError> {
        let mut bytes = [0; SECTOR];
        if source.len_bytes() < SECTOR as u64 {
            return Ok(None);
        }
        read_at(source, "the first sector", 0, &mut bytes)?;
        Ok((bytes.ends_with(&END)).then_some(FirstSector { bytes }))
    }

    /// Does it say that there is a GPT?
    pub(super) fn is_protective(&self) -> bool {
        entries(&self.bytes)
            .iter()
            .any(|entry| entry.kind == PROTECTIVE)
    }

    /// And something else as well?
    pub(super) fn is_hybrid(&self) -> bool {
        let entries = entries(&self.bytes);
        (entries.iter()).any(|entry| entry.is_there() && entry.kind != PROTECTIVE)
    }

    /// Boot sectors of FAT and NTFS have code where the table would be, and a name further up.
    fn is_boot_sector(&self) -> bool {
        let has = |at: usize, name: &[u8]| self.bytes[at..].starts_with(name);
        let is_named =
            has(3, b"NTFS    ") || has(3, b"EXFAT   ") || has(54, b"FAT") || has(82, b"FAT32");
        let is_table = (entries(&self.bytes).iter()).all(|entry| entry.status & 0x7f == 0);
        is_named || !is_table
    }

    /// The table; `None` if this is something else.
    pub(super) fn table(
        &self,
        source: &dyn ByteSource,
        sector_bytes: u32,
    ) -> Result<Option<PartitionTable>, PartitionError> {
        if self.is_boot_sector() {
            return Ok(None);
        }
        let mut table = PartitionTable {
            kind: PartitionTableKind::Mbr,
            sector_bytes,
            partitions: Vec::new(),
            faults: Vec::new(),
        };
        let mut chain = None;
        for (entry, number) in entries(&self.bytes).iter().zip(1..) {
            match entry.is_extended() {
                // The kernel follows the first.
                true => chain = chain.or(Some(*entry)),
                false => push(&mut table, source, number, entry, 0),
            }
        }
        if let Some(extended) = chain {
            follow(&mut table, source, &extended)?;
        }
        Ok(Some(table))
    }
}

fn push(
    table: &mut PartitionTable,
    source: &dyn ByteSource,
    number: u32,
    entry: &Entry,
    base: u64,
) {
    if !entry.is_there() {
        return;
    }
    let start = base + u64::from(entry.start);
    let place = place_as_far_as_it_is(source, table.sector_bytes, start, entry.sectors.into());
    // The table itself is in no partition.
    let Some(place) = place.filter(|place| place.offset > 0) else {
        table.faults.push(PartitionFault::Outside(number));
        return;
    };
    table.push(
        place,
        number,
        PartitionKind::Byte(entry.kind),
        String::new(),
    );
}

/// Each sector of the chain has one partition, relative to it, and the next sector, relative to the
/// extended partition.
fn follow(
    table: &mut PartitionTable,
    source: &dyn ByteSource,
    extended: &Entry,
) -> Result<(), PartitionError> {
    let first = u64::from(extended.start);
    let mut at = first;
    let mut number = CHAIN_FIRST;
    for _ in 0..CHAIN_MAX {
        let Some((offset, _)) = place(source, table.sector_bytes, at, 1) else {
            table.faults.push(PartitionFault::Chain(
                at.saturating_mul(table.sector_bytes.into()),
            ));
            return Ok(());
        };
        let mut bytes = [0; SECTOR];
        read_at(source, "an extended partition", offset, &mut bytes)?;
        if !bytes.ends_with(&END) {
            table.faults.push(PartitionFault::Chain(offset));
            return Ok(());
        }
        let [here, next, ..] = entries(&bytes);
        if here.is_there() && !here.is_extended() {
            push(table, source, number, &here, at);
            number += 1;
        }
        if !next.is_extended() {
            return Ok(());
        }
        at = first + u64::from(next.start);
    }
    table.faults.push(PartitionFault::Endless);
    Ok(())
}
