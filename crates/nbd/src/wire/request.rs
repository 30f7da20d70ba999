//! Requests, as a client writes and a server reads them.

use super::fields::Fields;
use super::{HeaderStyle, NbdWireError};

const MAGIC: u32 = 0x2560_9513;
const EXTENDED_MAGIC: u32 = 0x21e4_1c71;

/// Bytes of a request without its data.
pub const REQUEST_BYTES: usize = 28;
pub const EXTENDED_REQUEST_BYTES: usize = 32;

/// Kinds of requests.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub mod request_flags {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdRequest {
    pub flags: u16,
    pub command: u16,
    /// What its reply is known by.
    pub cookie: u64,
    pub offset: u64,
    pub bytes: u64,
}

/// Bytes of a request without its data.
pub fn request_bytes(style: HeaderStyle) -> usize {
    match style {
        HeaderStyle::Extended => EXTENDED_REQUEST_BYTES,
        _ => REQUEST_BYTES,
    }
}

/// Writes one; its length must be one of 32 bits unless headers are extended.
pub fn encode_request(request: &NbdRequest, style: HeaderStyle) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(EXTENDED_REQUEST_BYTES);
    let (magic, flags) = match style {
        // Data must be said to be there.
        HeaderStyle::Extended if request.command == command::WRITE => {
            (EXTENDED_MAGIC, request.flags | request_flags::PAYLOAD_LEN)
        }
        HeaderStyle::Extended => (EXTENDED_MAGIC, request.flags),
        _ => (MAGIC, request.flags),
    };
    bytes.extend_from_slice(&magic.to_be_bytes());
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&request.command.to_be_bytes());
    bytes.extend_from_slice(&request.cookie.to_be_bytes());
    bytes.extend_from_slice(&request.offset.to_be_bytes());
    match style {
        HeaderStyle::Extended => bytes.extend_from_slice(&request.bytes.to_be_bytes()),
        _ => {
            let len = u32::try_from(request.bytes).unwrap_or(u32::MAX);
            bytes.extend_from_slice(&len.to_be_bytes());
        }
    }
    bytes
}

/// Reads one of `request_bytes(style)`.
pub fn decode_request(bytes: &[u8], style: HeaderStyle) -> Result<NbdRequest, NbdWireError> {
    let what = "a request";
    let mut fields = Fields::new(what, bytes);
    let found = fields.u32()?;
    let magic = match style {
        HeaderStyle::Extended => EXTENDED_MAGIC,
        _ => MAGIC,
    };
    if found != magic {
        let found = found.into();
        return Err(NbdWireError::Magic { what, found });
    }
    let request = NbdRequest {
        flags: fields.u16()?,
        command: fields.u16()?,
        cookie: fields.u64()?,
        offset: fields.u64()?,
        bytes: match style {
            HeaderStyle::Extended => fields.u64()?,
            _ => fields.u32()?.into(),
        },
    };
    fields.finish()?;
    Ok(request)
}
