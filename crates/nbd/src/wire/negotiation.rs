//! Messages before the transmission: the greeting, options and what answers them.

use super::fields::Fields;
use super::{
    CONTEXTS_MAX, GREETING_BYTES, NbdWireError, OPTION_BYTES_MAX, REQUEST_BYTES_MAX, export_flags,
};

const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// Flags of the greeting, the same in the answer to it.
const FIXED_NEWSTYLE: u16 = 1 << 0;
const NO_ZEROES: u16 = 1 << 1;

/// Bytes before what an option or its reply carries.
pub const OPTION_HEAD_BYTES: usize = 16;
pub const OPTION_REPLY_HEAD_BYTES: usize = 20;

/// Exports are no larger: offsets are signed in the kernel.
const EXPORT_BYTES_MAX: u64 = i64::MAX as u64;

/// Blocks smaller than all others if a server says nothing.
const BLOCK_BYTES_PREFERRED: u32 = 4096;
const BLOCK_BYTES_MIN_MAX: u32 = 64 << 10;

/// Numbers of options.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Numbers of replies to options.
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERROR: u32 = 1 << 31;
    pub const UNSUPPORTED: u32 = ERROR | 1;
    pub const POLICY: u32 = ERROR | 2;
    pub const INVALID: u32 = ERROR | 3;
    pub const TLS_REQUIRED: u32 = ERROR | 5;
    pub const UNKNOWN: u32 = ERROR | 6;
    pub const TOO_BIG: u32 = ERROR | 9;
}

/// Kinds of what a server says of an export.
mod info {
    pub const EXPORT: u16 = 0;
    pub const BLOCK_SIZE: u16 = 3;
}

/// What a server, or a client in answer, can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The padding behind the answer to the oldest option is left out.
    pub has_no_zeroes: bool,
}

/// Reads the first bytes of a server.
pub fn decode_greeting(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting, NbdWireError> {
    let mut fields = Fields::new("a greeting", bytes);
    for expected in [GREETING_MAGIC, OPTION_MAGIC] {
        let found = fields.u64()?;
        if found != expected {
            let what = "a greeting";
            return Err(NbdWireError::Magic { what, found });
        }
    }
    let flags = fields.u16()?;
    if flags & FIXED_NEWSTYLE == 0 {
        return Err(NbdWireError::NotFixedNewstyle(flags));
    }
    Ok(Greeting {
        has_no_zeroes: flags & NO_ZEROES != 0,
    })
}

/// The first bytes of a server.
pub fn encode_greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(&GREETING_MAGIC.to_be_bytes());
    bytes[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    bytes[16..].copy_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    bytes
}

/// What a client answers.
pub fn encode_client_flags(greeting: Greeting) -> [u8; 4] {
    let no_zeroes = if greeting.has_no_zeroes { NO_ZEROES } else { 0 };
    u32::from(FIXED_NEWSTYLE | no_zeroes).to_be_bytes()
}

/// Reads what a client answers. One that wants more than there is, is refused.
pub fn decode_client_flags(bytes: [u8; 4]) -> Result<Greeting, NbdWireError> {
    let flags = u32::from_be_bytes(bytes);
    let known = u32::from(FIXED_NEWSTYLE | NO_ZEROES);
    if flags & u32::from(FIXED_NEWSTYLE) == 0 || flags & !known != 0 {
        let low = u16::try_from(flags).unwrap_or(u16::MAX);
        return Err(NbdWireError::NotFixedNewstyle(low));
    }
    Ok(Greeting {
        has_no_zeroes: flags & u32::from(NO_ZEROES) != 0,
    })
}

/// An option with what it carries, which is at most `OPTION_BYTES_MAX` long.
pub fn encode_option(option: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let head = [
        &OPTION_MAGIC.to_be_bytes()[..],
        &option.to_be_bytes(),
        &len.to_be_bytes(),
    ];
    [&head.concat(), payload].concat()
}

/// Reads the head of an option: its number, and how many bytes follow.
pub fn decode_option_head(bytes: &[u8; OPTION_HEAD_BYTES]) -> Result<(u32, usize), NbdWireError> {
    let mut fields = Fields::new("an option", bytes);
    let found = fields.u64()?;
    if found != OPTION_MAGIC {
        let what = "an option";
        return Err(NbdWireError::Magic { what, found });
    }
    Ok((fields.u32()?, payload_len("an option", fields.u32()?)?))
}

/// A reply to an option.
pub fn encode_option_reply(option: u32, kind: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let head = [
        &OPTION_REPLY_MAGIC.to_be_bytes()[..],
        &option.to_be_bytes(),
        &kind.to_be_bytes(),
        &len.to_be_bytes(),
    ];
    [&head.concat(), payload].concat()
}

/// Head of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHead {
    pub option: u32,
    pub kind: u32,
    /// Bytes that follow.
    pub len: usize,
}

/// Reads the head of a reply to an option.
pub fn decode_option_reply_head(
    bytes: &[u8; OPTION_REPLY_HEAD_BYTES],
) -> Result<OptionReplyHead, NbdWireError> {
    let mut fields = Fields::new("a reply to an option", bytes);
    let found = fields.u64()?;
    if found != OPTION_REPLY_MAGIC {
        let what = "a reply to an option";
        return Err(NbdWireError::Magic { what, found });
    }
    Ok(OptionReplyHead {
        option: fields.u32()?,
        kind: fields.u32()?,
        len: payload_len("a reply to an option", fields.u32()?)?,
    })
}

fn payload_len(what: &'static str, len: u32) -> Result<usize, NbdWireError> {
    match len as usize {
        found if found <= OPTION_BYTES_MAX => Ok(found),
        _ => Err(NbdWireError::TooLong {
            what,
            len: len.into(),
            max: OPTION_BYTES_MAX as u64,
        }),
    }
}

/// Sizes of blocks that an export wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offsets and lengths are multiples of it: a power of two.
    pub minimum: u32,
    pub preferred: u32,
    /// Bytes of data in one request at most.
    pub maximum: u32,
}

/// What holds if a server says nothing.
pub const BLOCK_SIZES_UNSAID: BlockSizes = BlockSizes {
    minimum: 1,
    preferred: BLOCK_BYTES_PREFERRED,
    maximum: REQUEST_BYTES_MAX,
};

/// One thing that a server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFact {
    Export {
        len: u64,
        flags: u16,
    },
    BlockSizes(BlockSizes),
    /// Of a kind that nobody asked for: names, descriptions, what is to come.
    Other,
}

/// Reads one.
pub fn decode_export_fact(payload: &[u8]) -> Result<ExportFact, NbdWireError> {
    let mut fields = Fields::new("what is said of an export", payload);
    let fact = match fields.u16()? {
        info::EXPORT => {
            let (len, flags) = (fields.u64()?, fields.u16()?);
            check_export(len, flags)?;
            ExportFact::Export { len, flags }
        }
        info::BLOCK_SIZE => {
            let (minimum, preferred, maximum) = (fields.u32()?, fields.u32()?, fields.u32()?);
            ExportFact::BlockSizes(checked_block_sizes(minimum, preferred, maximum)?)
        }
        _ => return Ok(ExportFact::Other),
    };
    fields.finish()?;
    Ok(fact)
}

fn check_export(len: u64, flags: u16) -> Result<(), NbdWireError> {
    if len > EXPORT_BYTES_MAX {
        return Err(NbdWireError::ExportLength(len));
    }
    match flags & export_flags::HAS_FLAGS {
        0 => Err(NbdWireError::ExportFlags(flags)),
        _ => Ok(()),
    }
}

fn checked_block_sizes(
    minimum: u32,
    preferred: u32,
    maximum: u32,
) -> Result<BlockSizes, NbdWireError> {
    let bad = NbdWireError::BlockSizes {
        minimum,
        preferred,
        maximum,
    };
    let is_good = minimum.is_power_of_two()
        && minimum <= BLOCK_BYTES_MIN_MAX
        && preferred.is_power_of_two()
        && preferred >= minimum
        && maximum >= minimum
        && (maximum == u32::MAX || maximum.is_multiple_of(minimum));
    match is_good {
        // A multiple of the smallest, as both are powers of two.
        true => Ok(BlockSizes {
            minimum,
            preferred,
            maximum: maximum.min(REQUEST_BYTES_MAX),
        }),
        false => Err(bad),
    }
}

/// What is said of an export, as a server writes it.
pub fn encode_export(len: u64, flags: u16) -> Vec<u8> {
    let kind = info::EXPORT.to_be_bytes();
    [&kind[..], &len.to_be_bytes(), &flags.to_be_bytes()].concat()
}

/// The same of its blocks.
pub fn encode_block_sizes(sizes: BlockSizes) -> Vec<u8> {
    let BlockSizes {
        minimum,
        preferred,
        maximum,
    } = sizes;
    let numbers = [minimum, preferred, maximum].map(u32::to_be_bytes).concat();
    [&info::BLOCK_SIZE.to_be_bytes()[..], &numbers].concat()
}

/// Payload of `INFO` and `GO`: the name of an export, and that its blocks are of interest.
pub fn encode_export_choice(name: &str) -> Vec<u8> {
    let kinds = [1, info::BLOCK_SIZE].map(u16::to_be_bytes).concat();
    [text_behind_length(name), kinds].concat()
}

/// Reads it: the name, and whether block sizes are of interest.
pub fn decode_export_choice(payload: &[u8]) -> Result<(String, bool), NbdWireError> {
    let mut fields = Fields::new("the choice of an export", payload);
    let name = fields.text()?;
    let count = fields.u16()?;
    let mut wants_block_sizes = false;
    for _ in 0..count {
        wants_block_sizes |= fields.u16()? == info::BLOCK_SIZE;
    }
    fields.finish()?;
    Ok((name, wants_block_sizes))
}

/// Payload of `SET_META_CONTEXT` and `LIST_META_CONTEXT`.
pub fn encode_contexts(export: &str, contexts: &[&str]) -> Vec<u8> {
    let count = u32::try_from(contexts.len()).unwrap_or(u32::MAX);
    let texts: Vec<_> = contexts
        .iter()
        .map(|text| text_behind_length(text))
        .collect();
    let head = [text_behind_length(export), count.to_be_bytes().to_vec()].concat();
    [head, texts.concat()].concat()
}

/// Reads it: the export, and the queries, of which there are as many as the payload has room for.
pub fn decode_contexts(payload: &[u8]) -> Result<(String, Vec<String>), NbdWireError> {
    let mut fields = Fields::new("the choice of contexts", payload);
    let export = fields.text()?;
    let count = fields.u32()?;
    let mut queries = Vec::new();
    // Each takes four bytes of a payload that is bounded.
    for _ in 0..count {
        queries.push(fields.text()?);
    }
    fields.finish()?;
    Ok((export, queries))
}

/// A context that a server has chosen, or lists: its number, and its name.
pub fn decode_context(payload: &[u8]) -> Result<(u32, String), NbdWireError> {
    let mut fields = Fields::new("a context", payload);
    let id = fields.u32()?;
    Ok((id, fields.rest_as_text()?))
}

/// The same as a server writes it.
pub fn encode_context(id: u32, name: &str) -> Vec<u8> {
    [&id.to_be_bytes()[..], name.as_bytes()].concat()
}

/// Contexts, checked as they come: none that was not requested, none twice.
#[derive(Debug, Default)]
pub struct ChosenContexts {
    pub found: Vec<(u32, String)>,
}

impl ChosenContexts {
    /// Takes one that a server says it has chosen.
    pub fn push(&mut self, payload: &[u8], requested: &[&str]) -> Result<(), NbdWireError> {
        let (id, name) = decode_context(payload)?;
        let is_twice = (self.found.iter()).any(|(other, named)| *other == id || *named == name);
        let is_known = requested.contains(&name.as_str());
        if is_twice || !is_known || self.found.len() >= CONTEXTS_MAX {
            return Err(NbdWireError::Context(id));
        }
        self.found.push((id, name));
        Ok(())
    }
}

/// An export in a list: its name. Descriptions are left out.
pub fn decode_listed(payload: &[u8]) -> Result<String, NbdWireError> {
    Fields::new("an export in a list", payload).text()
}

/// The same as a server writes it.
pub fn encode_listed(name: &str) -> Vec<u8> {
    text_behind_length(name)
}

/// What a server answers to the oldest option: length and flags of the export.
pub fn encode_export_name_answer(len: u64, flags: u16, greeting: Greeting) -> Vec<u8> {
    const PADDING_BYTES: usize = 124;
    let padding = if greeting.has_no_zeroes {
        0
    } else {
        PADDING_BYTES
    };
    let head = [&len.to_be_bytes()[..], &flags.to_be_bytes()].concat();
    [head, vec![0; padding]].concat()
}

fn text_behind_length(text: &str) -> Vec<u8> {
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX);
    [&len.to_be_bytes()[..], text.as_bytes()].concat()
}
