//! How targets read their input: keys to open it with, texts, several values in a row.

use bale_format::{Keys, RepositoryId, RootKey};

/// Stands between two texts: no text holds this byte.
const TEXT_END: u8 = 0xff;

/// Keys of a repository that does not exist.
pub fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([2; 16]))
}

/// The input up to the first byte that is not UTF-8.
pub fn text(data: &[u8]) -> &str {
    let valid = match str::from_utf8(data) {
        Ok(_) => data,
        Err(error) => &data[..error.valid_up_to()],
    };
    str::from_utf8(valid).expect("it is valid up to here")
}

/// A text up to `TEXT_END`, and what follows that.
pub fn split_text(data: &[u8]) -> (&str, &[u8]) {
    let end = data.iter().position(|byte| *byte == TEXT_END);
    match end {
        Some(end) => (text(&data[..end]), &data[end + 1..]),
        None => (text(data), &[]),
    }
}
