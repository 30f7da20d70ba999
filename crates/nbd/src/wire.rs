//! Bytes of the NBD protocol to values and back, nothing believed.
//!
//! Pure, so that a fuzzer can try it. A length is checked before anything of that length is
//! allocated, and what does not fill its message exactly is an error. All numbers are big-endian.
//! Layout: the protocol's `doc/proto.md`, fixed newstyle, structured replies and extended headers.

mod fields;
pub mod negotiation;
pub mod reply;
pub mod request;

/// First of all a server sends `NBDMAGIC`, `IHAVEOPT` and its flags.
pub const GREETING_BYTES: usize = 18;

/// Bytes of a text at most: names of exports and contexts, messages. The protocol says so.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Bytes of what a side sends with one option at most: a few texts and numbers.
pub const OPTION_BYTES_MAX: usize = 64 << 10;

/// Bytes of data in one request at most, whatever a server allows: what it must take if it says
/// nothing.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Descriptors of extents in one reply at most; nbdkit sends so many.
pub const DESCRIPTORS_MAX: usize = 1 << 20;

/// Descriptors of one reply that are kept, and those behind them are requested again: a million of
/// them and the bytes that they come in are 24 MiB for each context, and nobody needs all at once.
pub const DESCRIPTORS_KEPT_MAX: usize = 4 << 10;

/// Contexts that a client chooses at most.
pub const CONTEXTS_MAX: usize = 8;

/// Flags of an export.
pub mod export_flags {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Flags of an extent in the context `base:allocation`, and the one of `qemu:dirty-bitmap:`.
pub mod status_flags {
    pub const HOLE: u64 = 1 << 0;
    pub const ZERO: u64 = 1 << 1;
    pub const DIRTY: u64 = 1 << 0;
}

/// The context that says what is allocated.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";

/// Before the name of a dirty bitmap of QEMU.
pub const DIRTY_BITMAP_PREFIX: &str = "qemu:dirty-bitmap:";

/// What headers look like: as a server and a client agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HeaderStyle {
    /// Replies without structure: one number that says what is wrong, then data.
    Simple,
    /// Replies of several chunks.
    Structured,
    /// The same with lengths of 64 bits, in requests as well.
    Extended,
}

/// Why bytes are no message.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum NbdWireError {
    #[error("{what} that begins with {found:#x}")]
    Magic { what: &'static str, found: u64 },
    #[error("{0} that ends early")]
    EndsEarly(&'static str),
    #[error("{what} with {bytes} bytes too many")]
    Trailing { what: &'static str, bytes: usize },
    #[error("{what} of {len} bytes, and none has more than {max}")]
    TooLong {
        what: &'static str,
        len: u64,
        max: u64,
    },
    #[error("{what} of {len} bytes, which cannot be")]
    Length { what: &'static str, len: u64 },
    #[error("a text that is not UTF-8, as {0}")]
    Text(&'static str),
    #[error("an export of {0} bytes")]
    ExportLength(u64),
    #[error(
        "block sizes that cannot be: {minimum} at least, {preferred} preferred, {maximum} at most"
    )]
    BlockSizes {
        minimum: u32,
        preferred: u32,
        maximum: u32,
    },
    #[error("an export whose flags ({0:#x}) are no flags")]
    ExportFlags(u16),
    #[error("it does not speak the fixed newstyle protocol (flags {0:#x})")]
    NotFixedNewstyle(u16),
    #[error("a chunk of type {0}, which nobody knows")]
    ChunkType(u16),
    #[error("a chunk of type {0}, which does not answer this request")]
    ChunkOfAnother(u16),
    #[error("{bytes} bytes at {offset}, which is not what was requested")]
    Outside { offset: u64, bytes: u64 },
    #[error("bytes at {0} a second time")]
    Overlap(u64),
    #[error("data in more pieces than are kept account of")]
    Pieces,
    #[error("a reply whose end came before its data: {missing} bytes are missing")]
    Missing { missing: u64 },
    #[error("a reply that names no extent of context {0}")]
    NoExtents(u32),
    #[error("extents of a context ({0}) that was not chosen, or a second time")]
    Context(u32),
    #[error("an extent without a length")]
    EmptyExtent,
    #[error("extents beyond the end of what was requested or of the export")]
    ExtentsBeyond,
    #[error("a chunk without content that is not the last one")]
    EmptyChunk,
    #[error("more errors in one reply than are kept account of")]
    Errors,
    #[error("an error without a number")]
    NoError,
    #[error("a reply to a request that nobody made ({0:#x})")]
    Unrequested(u64),
    #[error("a reply whose offset is {found} and not {expected}")]
    Offset { found: u64, expected: u64 },
}
