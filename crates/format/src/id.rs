//! Names of things that are addressed by content: 32 bytes, printed as 64 hex digits.
//!
//! Each kind has its own type, so that a pack's id can never be used to look up a chunk.

use std::fmt;

/// A text was not 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an id of 64 lower-case hex digits")]
pub struct NotAnId;

macro_rules! id_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// Reads 64 lower-case hex digits.
            pub fn from_hex(text: &str) -> Result<Self, NotAnId> {
                from_hex(text).map($name)
            }

            /// From exactly 32 bytes.
            pub fn from_slice(bytes: &[u8]) -> Result<Self, NotAnId> {
                bytes.try_into().map($name).map_err(|_| NotAnId)
            }

            /// The first eight digits, for people.
            pub fn short(&self) -> String {
                hex(&self.0[..4])
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), hex(&self.0))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&hex(&self.0))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                $name::from_hex(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

id_type!(
    /// Keyed hash of a chunk's plaintext, bound to its kind.
    ChunkId
);
id_type!(
    /// Hash of a stored object's bytes: the last part of its name.
    ObjectId
);

/// Identity of one repository, part of every AEAD's additional data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RepositoryId(pub [u8; 16]);

impl fmt::Display for RepositoryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Lower-case hex digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

/// Reads exactly `2 * N` lower-case hex digits.
pub fn from_hex<const N: usize>(text: &str) -> Result<[u8; N], NotAnId> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return Err(NotAnId);
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(NotAnId),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Ok(bytes)
}
