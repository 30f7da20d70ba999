//! What several fuzz targets start from.

#![forbid(unsafe_code)]

use bale_format::{Keys, RepositoryId, RootKey};

/// Keys of a repository that does not exist.
pub fn keys() -> Keys {
    Keys::derive(&RootKey::from_bytes([1; 32]), RepositoryId([2; 16]))
}
