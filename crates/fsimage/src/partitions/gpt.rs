//! A GPT: the same table at both ends of a disk, each with checksums.

use super::{
    GptFault, PARTITIONS_MAX, PartitionError, PartitionFault, PartitionKind, PartitionTable,
    PartitionTableKind, place, place_as_far_as_it_is, read_at,
};
use crate::crc32::crc32;
use crate::source::ByteSource;

const MAGIC: &[u8] = b"EFI PART";
const HEAD_BYTES_MIN: usize = 92;
const CHECKSUM_AT: usize = 16;
const ENTRY_BYTES_MIN: u32 = 128;
const ENTRY_BYTES_MAX: u32 = 4096;
/// Bytes of all entries at most; 16 KiB is usual.
const ENTRIES_BYTES_MAX: u64 = 1 << 20;
const NAME_AT: usize = 56;
const NAME_UNITS: usize = 36;

/// What a head says, with what it is made of checked.
struct Head {
    alternate: u64,
    first_usable: u64,
    last_usable: u64,
    disk: [u8; 16],
    entries: Vec<u8>,
    entry_bytes: usize,
}

fn number<const LEN: usize>(bytes: &[u8], at: usize) -> [u8; LEN] {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<LEN>());
    // Callers have checked the length of what they read from.
    found.copied().unwrap_or([0; LEN])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}

/// Reads whichever of the two is whole, the first if both are.
pub(super) fn read(
    source: &dyn ByteSource,
    sector_bytes: u32,
) -> Result<PartitionTable, PartitionError> {
    let last = (source.len_bytes() / u64::from(sector_bytes)).saturating_sub(1);
    let primary = read_head(source, sector_bytes, 1)?;
    let backup_at = primary.as_ref().map_or(last, |head| head.alternate);
    let backup = read_head(source, sector_bytes, backup_at)?;
    let mut faults = Vec::new();
    let head = match (primary, backup) {
        (Ok(primary), Ok(backup)) => {
            if primary.entries != backup.entries || primary.disk != backup.disk {
                faults.push(PartitionFault::Differ);
            }
            primary
        }
        (Ok(primary), Err(fault)) => {
            faults.push(PartitionFault::Backup(fault));
            primary
        }
        (Err(fault), Ok(backup)) => {
            faults.push(PartitionFault::Primary(fault));
            backup
        }
        (Err(primary), Err(backup)) => {
            return Err(PartitionError::BothDamaged { primary, backup });
        }
    };
    let mut table = PartitionTable {
        kind: PartitionTableKind::Gpt,
        sector_bytes,
        partitions: Vec::new(),
        faults,
    };
    for (entry, number) in head.entries.chunks_exact(head.entry_bytes).zip(1..) {
        push_entry(&mut table, source, &head, entry, number);
    }
    Ok(table)
}

fn push_entry(
    table: &mut PartitionTable,
    source: &dyn ByteSource,
    head: &Head,
    entry: &[u8],
    at: u32,
) {
    let kind: [u8; 16] = number(entry, 0);
    if kind == [0; 16] {
        return;
    }
    let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
    let is_usable = first >= head.first_usable && last <= head.last_usable && first <= last;
    let sector_bytes = table.sector_bytes;
    let place = is_usable
        .then(|| place_as_far_as_it_is(source, sector_bytes, first, last - first + 1))
        .flatten();
    match place {
        Some(place) => table.push(place, at, PartitionKind::Guid(kind), name_of(entry)),
        None => table.faults.push(PartitionFault::Outside(at)),
    }
}

/// UTF-16 to its first zero.
fn name_of(entry: &[u8]) -> String {
    let units = entry[NAME_AT..].chunks_exact(2).take(NAME_UNITS);
    let units = units.map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let units = units.take_while(|unit| *unit != 0);
    let letters = char::decode_utf16(units).map(|letter| letter.unwrap_or('\u{fffd}'));
    letters.filter(|letter| !letter.is_control()).collect()
}

/// One of the two tables, its checksums checked. The outer error is the disk's.
fn read_head(
    source: &dyn ByteSource,
    sector_bytes: u32,
    sector: u64,
) -> Result<Result<Head, GptFault>, PartitionError> {
    let Some((offset, _)) = place(source, sector_bytes, sector, 1) else {
        return Ok(Err(GptFault::Missing));
    };
    let mut bytes = vec![0; sector_bytes as usize];
    read_at(source, "a partition table (GPT)", offset, &mut bytes)?;
    let (entries_at, entries_bytes) = match check_head(&bytes, sector) {
        Ok(found) => found,
        Err(fault) => return Ok(Err(fault)),
    };
    let start = entries_at.checked_mul(sector_bytes.into());
    let end = start.and_then(|start| start.checked_add(entries_bytes));
    let (Some(start), Some(end)) = (start, end) else {
        return Ok(Err(GptFault::Head("where its entries are")));
    };
    if end > source.len_bytes() {
        return Ok(Err(GptFault::Head("where its entries are")));
    }
    // At most ENTRIES_BYTES_MAX.
    let mut entries = vec![0; entries_bytes as usize];
    read_at(
        source,
        "entries of a partition table (GPT)",
        start,
        &mut entries,
    )?;
    if crc32(&entries) != u32_at(&bytes, 88) {
        return Ok(Err(GptFault::EntriesChecksum));
    }
    Ok(Ok(Head {
        alternate: u64_at(&bytes, 32),
        first_usable: u64_at(&bytes, 40),
        last_usable: u64_at(&bytes, 48),
        disk: number(&bytes, 56),
        entries,
        entry_bytes: u32_at(&bytes, 84) as usize,
    }))
}

/// Where its entries are, in sectors, and how many bytes they have.
fn check_head(bytes: &[u8], sector: u64) -> Result<(u64, u64), GptFault> {
    if !bytes.starts_with(MAGIC) {
        return Err(GptFault::Missing);
    }
    let len = u32_at(bytes, 12) as usize;
    if len < HEAD_BYTES_MIN || len > bytes.len() {
        return Err(GptFault::Head("how long it is"));
    }
    let mut head = bytes[..len].to_vec();
    head[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    if crc32(&head) != u32_at(bytes, CHECKSUM_AT) {
        return Err(GptFault::HeadChecksum);
    }
    if u64_at(bytes, 24) != sector {
        return Err(GptFault::Head("where it is"));
    }
    let (count, entry_bytes) = (u32_at(bytes, 80), u32_at(bytes, 84));
    let is_good = entry_bytes.is_power_of_two()
        && (ENTRY_BYTES_MIN..=ENTRY_BYTES_MAX).contains(&entry_bytes)
        && count as usize <= PARTITIONS_MAX
        && u64::from(count) * u64::from(entry_bytes) <= ENTRIES_BYTES_MAX;
    match is_good {
        true => Ok((u64_at(bytes, 72), u64::from(count) * u64::from(entry_bytes))),
        false => Err(GptFault::Head(
            "how many entries it has, and how long they are",
        )),
    }
}
