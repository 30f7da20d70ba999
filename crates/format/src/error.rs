//! What can be wrong with bytes, with the facts as fields.
//!
//! `Newer` is never called damage: the bytes are good, this program is too old for them.

use crate::id::hex;
use std::fmt;

/// Why something could not be decoded or encoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The bytes are not what a writer wrote.
    #[error("{what} is damaged: {fault}")]
    Damaged {
        /// Part of the format.
        what: &'static str,
        /// How it shows.
        fault: Fault,
    },
    /// Written by a later version.
    #[error("{what} has version {found}, this program knows up to {known}")]
    Newer {
        /// Part of the format.
        what: &'static str,
        /// Its version.
        found: u64,
        /// The highest version known here.
        known: u64,
    },
    /// The repository needs something this program does not have: as good as newer.
    #[error("the repository needs feature {feature:?}, which this program does not know")]
    UnknownFeature {
        /// Name in `config`.
        feature: String,
    },
    /// The secret does not open this slot, or the key is another repository's.
    #[error("wrong key")]
    WrongKey,
    /// The caller asked to encode more than the format can hold.
    #[error("{what} would be too large: {found}, at most {max}")]
    TooLarge {
        /// Part of the format.
        what: &'static str,
        /// What was asked for.
        found: u64,
        /// The maximum.
        max: u64,
    },
    /// The caller asked to encode something that the format cannot express.
    #[error("{what} cannot be written: {fault}")]
    Unfit {
        /// Part of the format.
        what: &'static str,
        /// How it shows.
        fault: Fault,
    },
    /// What was just encoded does not decode to the same: a fault of memory, processor or program.
    #[error("{what} does not read back as it was written")]
    NotVerified {
        /// Part of the format.
        what: &'static str,
    },
}

/// What was found to be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Bytes end before the part does.
    Short {
        /// Bytes there.
        found: u64,
        /// Bytes needed.
        need: u64,
    },
    /// A length or count above its maximum.
    Over {
        field: &'static str,
        found: u64,
        /// The maximum.
        max: u64,
    },
    /// A length other than announced.
    Length {
        /// As announced.
        expected: u64,
        /// As found.
        found: u64,
    },
    /// A field has a value that means nothing.
    Value { field: &'static str, found: u64 },
    /// Starts or ends with something else.
    Magic,
    /// The seal is broken: other bytes, another place, another kind, another repository.
    Seal,
    /// The plaintext is another chunk's.
    Id {
        /// Asked for.
        expected: [u8; 32],
        found: [u8; 32],
    },
    /// Not a zstd frame of at most the announced length.
    Compression,
    /// Two fields contradict each other.
    Mismatch { field: &'static str },
    /// Not in order, or twice.
    Order { field: &'static str },
    /// Not the text it should be.
    Text { field: &'static str, reason: String },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Short { found, need } => write!(f, "{found} bytes, needs {need}"),
            Fault::Over { field, found, max } => write!(f, "{field} is {found}, at most {max}"),
            Fault::Length { expected, found } => write!(f, "{found} bytes instead of {expected}"),
            Fault::Value { field, found } => write!(f, "{field} is {found}"),
            Fault::Magic => f.write_str("wrong magic"),
            Fault::Seal => f.write_str("authentication tag does not match"),
            Fault::Id { expected, found } => {
                write!(f, "id {} instead of {}", hex(found), hex(expected))
            }
            Fault::Compression => f.write_str("cannot be decompressed"),
            Fault::Mismatch { field } => write!(f, "{field} contradicts the rest"),
            Fault::Order { field } => write!(f, "{field} not in order"),
            Fault::Text { field, reason } => write!(f, "{field}: {reason}"),
        }
    }
}

impl FormatError {
    pub(crate) fn damaged(what: &'static str, fault: Fault) -> FormatError {
        FormatError::Damaged { what, fault }
    }

    pub(crate) fn over(
        what: &'static str,
        field: &'static str,
        found: usize,
        max: usize,
    ) -> FormatError {
        FormatError::Damaged {
            what,
            fault: Fault::Over {
                field,
                found: found as u64,
                max: max as u64,
            },
        }
    }

    pub(crate) fn json(what: &'static str, error: &serde_json::Error) -> FormatError {
        FormatError::Damaged {
            what,
            fault: Fault::Text {
                field: "json",
                reason: error.to_string(),
            },
        }
    }
}
