//! What one record of the log says: that the file system was unmounted, or that only its superblock
//! changed.

use super::bytes::{BASIC_BLOCK_BYTES, be32};

const BLOCK_BYTES: usize = BASIC_BLOCK_BYTES as usize;
/// Blocks whose first word the header keeps; what is looked at here lies well before its end.
const HEADER_WORDS: usize = 64;
const OPERATION_HEADER_BYTES: usize = 12;
/// More operations than a copy of the superblock needs, by far.
const OPERATIONS_MAX: u32 = 16;
const FORMAT_LINUX_LITTLE_ENDIAN: u32 = 1;
const CLIENT_TRANSACTION: u8 = 0x69;
const FLAG_START: u8 = 0x01;
const FLAG_COMMIT: u8 = 0x02;
const FLAG_UNMOUNT: u8 = 0x20;
const TRANSACTION_MAGIC: &[u8] = b"NART";
const TRANSACTION_HEADER_BYTES: usize = 16;
const ITEM_BUFFER: u16 = 0x123c;

/// A complete record: header block and the blocks with operations.
#[derive(Clone, Copy)]
pub(super) struct Operations<'a> {
    pub header: &'a [u8; BLOCK_BYTES],
    pub body: &'a [[u8; BLOCK_BYTES]],
}

/// Whether the record says that the file system was unmounted.
pub(super) fn is_unmount(record: Operations<'_>) -> bool {
    be32(record.header, 40) == 1
        && record
            .body
            .first()
            .is_some_and(|block| block[9] & FLAG_UNMOUNT != 0)
}

/// Whether the record holds whole transactions that change the superblock and nothing else.
pub(super) fn is_superblock_only(record: Operations<'_>) -> bool {
    let count = be32(record.header, 40);
    if be32(record.header, 300) != FORMAT_LINUX_LITTLE_ENDIAN
        || count == 0
        || count > OPERATIONS_MAX
    {
        return false;
    }
    let bytes = restored_body(record);
    let mut rest = &bytes[..];
    let mut expected = Expected::Start;
    for _ in 0..count {
        let Some((operation, tail)) = rest.split_at_checked(OPERATION_HEADER_BYTES) else {
            return false;
        };
        let Some((body, tail)) = tail.split_at_checked(be32(operation, 4) as usize) else {
            return false;
        };
        rest = tail;
        match expected.step(operation[8], operation[9], body) {
            Some(next) => expected = next,
            None => return false,
        }
    }
    expected == Expected::Start
}

/// The first blocks of the body with the words that the lap number took the place of.
fn restored_body(record: Operations<'_>) -> Vec<u8> {
    let blocks = &record.body[..record.body.len().min(HEADER_WORDS)];
    let mut bytes = blocks.as_flattened().to_vec();
    for (index, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        block[..4].copy_from_slice(&record.header[44 + 4 * index..48 + 4 * index]);
    }
    bytes
}

/// What the next operation of a transaction has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Start,
    Header,
    /// The description of a buffer, or the end.
    ItemOrCommit,
    /// The content of the buffer just described.
    Content,
}

impl Expected {
    /// What comes after this operation, or `None` if it is not one that copies the superblock.
    fn step(self, client: u8, flags: u8, body: &[u8]) -> Option<Expected> {
        if client != CLIENT_TRANSACTION {
            return None;
        }
        match (self, flags) {
            (Expected::Start, FLAG_START) if body.is_empty() => Some(Expected::Header),
            (Expected::Header, 0)
                if body.len() == TRANSACTION_HEADER_BYTES && &body[..4] == TRANSACTION_MAGIC =>
            {
                Some(Expected::ItemOrCommit)
            }
            (Expected::ItemOrCommit, 0) if describes_superblock(body) => Some(Expected::Content),
            (Expected::Content, 0) => Some(Expected::ItemOrCommit),
            (Expected::ItemOrCommit, FLAG_COMMIT) if body.is_empty() => Some(Expected::Start),
            _ => None,
        }
    }
}

/// Whether a log item describes one region of the buffer at block 0. Items are in the byte order of
/// the machine.
fn describes_superblock(item: &[u8]) -> bool {
    let [
        kind_low,
        kind_high,
        regions_low,
        regions_high,
        _,
        _,
        _,
        _,
        address @ ..,
    ] = item
    else {
        return false;
    };
    u16::from_le_bytes([*kind_low, *kind_high]) == ITEM_BUFFER
        && u16::from_le_bytes([*regions_low, *regions_high]) == 2
        && address.len() >= 8
        && address[..8] == [0; 8]
}
