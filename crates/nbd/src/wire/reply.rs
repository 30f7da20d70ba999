//! Replies: their heads, their chunks, and whether they answer the request that they name.

use super::fields::Fields;
use super::{DESCRIPTORS_KEPT_MAX, DESCRIPTORS_MAX, HeaderStyle, NbdWireError, TEXT_BYTES_MAX};
use std::collections::BTreeMap;

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const EXTENDED_MAGIC: u32 = 0x6e8a_278c;

/// The last chunk of a reply.
const DONE: u16 = 1 << 0;

/// Bytes of a magic number, and of a head behind it.
pub const MAGIC_BYTES: usize = 4;
const SIMPLE_BYTES: usize = 12;
const STRUCTURED_BYTES: usize = 16;
const EXTENDED_BYTES: usize = 28;
pub const HEAD_BYTES_MAX: usize = EXTENDED_BYTES;

/// Types of chunks; those from `ERROR` on are errors.
pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXTENDED: u16 = 6;
    pub const ERROR: u16 = 1 << 15;
    pub const ERROR_PLAIN: u16 = ERROR | 1;
    pub const ERROR_OFFSET: u16 = ERROR | 2;
}

/// Bytes before the data of a chunk: its offset.
pub const DATA_HEAD_BYTES: usize = 8;
const HOLE_BYTES: u64 = 12;
/// Number, length of a text, text, offset; a later type may have as much again.
const ERROR_BYTES_MIN: u64 = 6;
const ERROR_BYTES_MAX: u64 = 2 * TEXT_BYTES_MAX as u64;
/// Bytes of an extent's descriptor.
const DESCRIPTOR_BYTES: u64 = 8;
const EXTENDED_DESCRIPTOR_BYTES: u64 = 16;
/// Before the descriptors: a context's number, and how many there are.
const STATUS_HEAD_BYTES: u64 = 4;
const EXTENDED_STATUS_HEAD_BYTES: u64 = 8;

/// Pieces of one read's data that do not touch, at most: 24 bytes each, and a few for the tree.
const PIECES_MAX: usize = 16 << 10;

/// Head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHead {
    /// Data of a read follows if nothing is wrong.
    Simple {
        error: u32,
        cookie: u64,
    },
    Chunk(ChunkHead),
}

/// Head of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHead {
    pub is_last: bool,
    pub kind: u16,
    pub cookie: u64,
    /// Of the request; only extended headers repeat it.
    pub offset: Option<u64>,
    /// Bytes that follow.
    pub len: u64,
}

/// Which head follows a magic number, as its length.
pub fn head_bytes(magic: [u8; MAGIC_BYTES], style: HeaderStyle) -> Result<usize, NbdWireError> {
    let found = u32::from_be_bytes(magic);
    match (found, style) {
        (SIMPLE_MAGIC, HeaderStyle::Simple | HeaderStyle::Structured) => Ok(SIMPLE_BYTES),
        (STRUCTURED_MAGIC, HeaderStyle::Structured) => Ok(STRUCTURED_BYTES),
        (EXTENDED_MAGIC, HeaderStyle::Extended) => Ok(EXTENDED_BYTES),
        _ => Err(NbdWireError::Magic {
            what: "a reply",
            found: found.into(),
        }),
    }
}

/// Reads a head, without its magic number: its length says of which kind it is.
pub fn decode_head(bytes: &[u8]) -> Result<ReplyHead, NbdWireError> {
    let what = "a reply";
    let mut fields = Fields::new(what, bytes);
    let head = match bytes.len() {
        SIMPLE_BYTES => ReplyHead::Simple {
            error: fields.u32()?,
            cookie: fields.u64()?,
        },
        STRUCTURED_BYTES | EXTENDED_BYTES => {
            let is_extended = bytes.len() == EXTENDED_BYTES;
            let (flags, kind) = (fields.u16()?, fields.u16()?);
            let cookie = fields.u64()?;
            let offset = is_extended.then(|| fields.u64()).transpose()?;
            let len = match is_extended {
                true => fields.u64()?,
                false => fields.u32()?.into(),
            };
            ReplyHead::Chunk(ChunkHead {
                is_last: flags & DONE != 0,
                kind,
                cookie,
                offset,
                len,
            })
        }
        len => {
            let len = len as u64;
            return Err(NbdWireError::Length { what, len });
        }
    };
    fields.finish()?;
    Ok(head)
}

/// Writes a head with its magic number, as a server does.
pub fn encode_head(head: &ReplyHead) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(MAGIC_BYTES + EXTENDED_BYTES);
    match head {
        ReplyHead::Simple { error, cookie } => {
            bytes.extend_from_slice(&SIMPLE_MAGIC.to_be_bytes());
            bytes.extend_from_slice(&error.to_be_bytes());
            bytes.extend_from_slice(&cookie.to_be_bytes());
        }
        ReplyHead::Chunk(chunk) => {
            let magic = match chunk.offset {
                Some(_) => EXTENDED_MAGIC,
                None => STRUCTURED_MAGIC,
            };
            let flags = if chunk.is_last { DONE } else { 0 };
            bytes.extend_from_slice(&magic.to_be_bytes());
            bytes.extend_from_slice(&flags.to_be_bytes());
            bytes.extend_from_slice(&chunk.kind.to_be_bytes());
            bytes.extend_from_slice(&chunk.cookie.to_be_bytes());
            match chunk.offset {
                Some(offset) => {
                    bytes.extend_from_slice(&offset.to_be_bytes());
                    bytes.extend_from_slice(&chunk.len.to_be_bytes());
                }
                None => {
                    let len = u32::try_from(chunk.len).unwrap_or(u32::MAX);
                    bytes.extend_from_slice(&len.to_be_bytes());
                }
            }
        }
    }
    bytes
}

/// What a reply answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requested {
    Read,
    Status,
    /// Neither data nor extents come back.
    Nothing,
}

/// Can this chunk answer such a request for so many bytes? Said before anything of it is read.
pub fn check_chunk(
    head: &ChunkHead,
    requested: Requested,
    bytes: u64,
    style: HeaderStyle,
) -> Result<(), NbdWireError> {
    let length = |what| NbdWireError::Length {
        what,
        len: head.len,
    };
    let too_long = |what, max| NbdWireError::TooLong {
        what,
        len: head.len,
        max,
    };
    match (head.kind, requested) {
        (chunk::NONE, _) if head.len != 0 => Err(length("an empty chunk")),
        (chunk::NONE, _) if !head.is_last => Err(NbdWireError::EmptyChunk),
        (chunk::NONE, _) => Ok(()),
        (chunk::OFFSET_DATA, Requested::Read) => {
            let max = DATA_HEAD_BYTES as u64 + bytes;
            match head.len {
                len if len <= DATA_HEAD_BYTES as u64 => Err(length("a chunk of data")),
                len if len > max => Err(too_long("a chunk of data", max)),
                _ => Ok(()),
            }
        }
        (chunk::OFFSET_HOLE, Requested::Read) if head.len == HOLE_BYTES => Ok(()),
        (chunk::OFFSET_HOLE, Requested::Read) => Err(length("a hole")),
        (chunk::BLOCK_STATUS, Requested::Status) if style == HeaderStyle::Structured => {
            check_status(head.len, STATUS_HEAD_BYTES, DESCRIPTOR_BYTES)
        }
        (chunk::BLOCK_STATUS_EXTENDED, Requested::Status) if style == HeaderStyle::Extended => {
            check_status(
                head.len,
                EXTENDED_STATUS_HEAD_BYTES,
                EXTENDED_DESCRIPTOR_BYTES,
            )
        }
        (kind, _) if kind & chunk::ERROR != 0 => match head.len {
            ..ERROR_BYTES_MIN => Err(length("an error")),
            len if len > ERROR_BYTES_MAX => Err(too_long("an error", ERROR_BYTES_MAX)),
            _ => Ok(()),
        },
        (
            kind @ (chunk::OFFSET_DATA
            | chunk::OFFSET_HOLE
            | chunk::BLOCK_STATUS
            | chunk::BLOCK_STATUS_EXTENDED),
            _,
        ) => Err(NbdWireError::ChunkOfAnother(kind)),
        (kind, _) => Err(NbdWireError::ChunkType(kind)),
    }
}

fn check_status(len: u64, head: u64, descriptor: u64) -> Result<(), NbdWireError> {
    let what = "a list of extents";
    let max = head + descriptor * DESCRIPTORS_MAX as u64;
    match len.checked_sub(head) {
        Some(rest) if rest == 0 || rest % descriptor != 0 => {
            Err(NbdWireError::Length { what, len })
        }
        None => Err(NbdWireError::Length { what, len }),
        Some(_) if len > max => Err(NbdWireError::TooLong { what, len, max }),
        Some(_) => Ok(()),
    }
}

/// Bytes of a chunk, which is no data, that are kept: of a list of extents the first ones.
pub fn kept_bytes(head: &ChunkHead) -> u64 {
    let (before, each) = match head.kind {
        chunk::BLOCK_STATUS => (STATUS_HEAD_BYTES, DESCRIPTOR_BYTES),
        chunk::BLOCK_STATUS_EXTENDED => (EXTENDED_STATUS_HEAD_BYTES, EXTENDED_DESCRIPTOR_BYTES),
        _ => return head.len,
    };
    head.len.min(before + each * DESCRIPTORS_KEPT_MAX as u64)
}

/// What a server says is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyError {
    pub code: u32,
    /// Its words, which are not safe to show yet.
    pub message: Vec<u8>,
    /// Where, if it says so.
    pub offset: Option<u64>,
}

/// Reads the content of a chunk that is an error.
pub fn decode_error(kind: u16, payload: &[u8]) -> Result<ReplyError, NbdWireError> {
    let mut fields = Fields::new("an error", payload);
    let code = fields.u32()?;
    if code == 0 {
        return Err(NbdWireError::NoError);
    }
    let len = fields.u16()?;
    let message = fields.bytes(len.into())?.to_vec();
    let offset = match kind {
        chunk::ERROR_OFFSET => Some(fields.u64()?),
        _ => None,
    };
    // Errors of later types may have more behind it.
    if matches!(kind, chunk::ERROR_PLAIN | chunk::ERROR_OFFSET) {
        fields.finish()?;
    }
    Ok(ReplyError {
        code,
        message,
        offset,
    })
}

/// The same as a server writes it.
pub fn encode_error(code: u32, message: &str) -> Vec<u8> {
    let message = &message.as_bytes()[..message.len().min(TEXT_BYTES_MAX)];
    let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&code.to_be_bytes()[..], &len.to_be_bytes(), message].concat()
}

/// Reads a hole: where it is, and how long.
pub fn decode_hole(payload: &[u8]) -> Result<(u64, u64), NbdWireError> {
    let mut fields = Fields::new("a hole", payload);
    let (offset, bytes) = (fields.u64()?, fields.u32()?);
    fields.finish()?;
    match bytes {
        0 => Err(NbdWireError::EmptyExtent),
        _ => Ok((offset, bytes.into())),
    }
}

/// Bytes and flags of a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub bytes: u64,
    pub flags: u64,
}

/// What of an export is requested: a place, so many bytes, and where the export ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusRange {
    pub offset: u64,
    pub bytes: u64,
    pub export_len: u64,
}

/// Reads extents from `offset` on, of a chunk of so many bytes those that are kept: the number of
/// their context, and what they cover of the range and no more. The last may lead beyond what was
/// requested, none beyond the export.
pub fn decode_extents(
    payload: &[u8],
    len: u64,
    range: StatusRange,
    style: HeaderStyle,
) -> Result<(u32, Vec<Descriptor>), NbdWireError> {
    let is_extended = style == HeaderStyle::Extended;
    let (head, each) = match is_extended {
        true => (EXTENDED_STATUS_HEAD_BYTES, EXTENDED_DESCRIPTOR_BYTES),
        false => (STATUS_HEAD_BYTES, DESCRIPTOR_BYTES),
    };
    check_status(len, head, each)?;
    let what = "a list of extents";
    let mut fields = Fields::new(what, payload);
    let context = fields.u32()?;
    let count = (len - head) / each;
    if is_extended && u64::from(fields.u32()?) != count {
        return Err(NbdWireError::Length { what, len });
    }
    let kept = count.min(DESCRIPTORS_KEPT_MAX as u64);
    let mut found = Vec::with_capacity(kept as usize);
    let mut covered = 0u64;
    let left_of_export = range.export_len.saturating_sub(range.offset);
    for _ in 0..kept {
        let (bytes, flags) = match is_extended {
            true => (fields.u64()?, fields.u64()?),
            false => (fields.u32()?.into(), fields.u32()?.into()),
        };
        if bytes == 0 {
            return Err(NbdWireError::EmptyExtent);
        }
        let end = covered.checked_add(bytes);
        let end = end.filter(|end| *end <= left_of_export && covered < range.bytes);
        let end = end.ok_or(NbdWireError::ExtentsBeyond)?;
        let bytes = end.min(range.bytes) - covered;
        found.push(Descriptor { bytes, flags });
        covered = end;
    }
    if kept == count {
        fields.finish()?;
    }
    Ok((context, found))
}

/// Extents as a server writes them.
pub fn encode_extents(context: u32, extents: &[Descriptor], style: HeaderStyle) -> Vec<u8> {
    let mut bytes = context.to_be_bytes().to_vec();
    if style == HeaderStyle::Extended {
        let count = u32::try_from(extents.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&count.to_be_bytes());
    }
    for extent in extents {
        if style == HeaderStyle::Extended {
            bytes.extend_from_slice(&extent.bytes.to_be_bytes());
            bytes.extend_from_slice(&extent.flags.to_be_bytes());
        } else {
            let len = u32::try_from(extent.bytes).unwrap_or(u32::MAX);
            let flags = u32::try_from(extent.flags).unwrap_or(0);
            bytes.extend_from_slice(&len.to_be_bytes());
            bytes.extend_from_slice(&flags.to_be_bytes());
        }
    }
    bytes
}

/// Which bytes of a read have come: each once, all of them in the end.
#[derive(Debug)]
pub struct ReadCoverage {
    offset: u64,
    bytes: u64,
    came: u64,
    /// Begin to end, neighbours joined.
    pieces: BTreeMap<u64, u64>,
}

impl ReadCoverage {
    /// For a read of `bytes` at `offset`, whose end is a number.
    pub fn new(offset: u64, bytes: u64) -> ReadCoverage {
        ReadCoverage {
            offset,
            bytes,
            came: 0,
            pieces: BTreeMap::new(),
        }
    }

    /// Takes a piece; where in the buffer it belongs.
    pub fn push(&mut self, offset: u64, bytes: u64) -> Result<u64, NbdWireError> {
        let outside = NbdWireError::Outside { offset, bytes };
        let start = offset.checked_sub(self.offset).ok_or(outside.clone())?;
        let end = start.checked_add(bytes).filter(|end| *end <= self.bytes);
        let mut end = end.filter(|_| bytes > 0).ok_or(outside)?;
        let mut from = start;
        if let Some((before, until)) = self.pieces.range(..=start).next_back() {
            if *until > start {
                return Err(NbdWireError::Overlap(offset));
            }
            if *until == start {
                from = *before;
            }
        }
        if let Some((after, until)) = self.pieces.range(start..).next() {
            if *after < end {
                return Err(NbdWireError::Overlap(offset));
            }
            if *after == end {
                let after = *after;
                end = *until;
                self.pieces.remove(&after);
            }
        }
        self.pieces.insert(from, end);
        if self.pieces.len() > PIECES_MAX {
            return Err(NbdWireError::Pieces);
        }
        self.came += bytes;
        Ok(start)
    }

    /// Has everything come?
    pub fn finish(&self) -> Result<(), NbdWireError> {
        match self.bytes - self.came {
            0 => Ok(()),
            missing => Err(NbdWireError::Missing { missing }),
        }
    }
}
