//! What can go wrong while a tree is made.

use std::io;
use std::path::PathBuf;

use bale_fsimage::mkext4::MkError;

/// Ends the operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateError {
    /// The options contradict each other.
    #[error("generator options: {0}")]
    Options(String),
    /// The file system of the target refused something.
    #[error("{what} {path}")]
    Path {
        /// What was attempted, as a verb.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// An image cannot be mounted for this.
    #[error("{}: {why}", path.display())]
    Image { path: PathBuf, why: String },
    /// The file system writer failed.
    #[error("write the ext4 file system")]
    Ext4(#[from] MkError),
    /// The manifest could not be written or read.
    #[error("manifest")]
    Manifest(#[source] io::Error),
    /// A line of the manifest makes no sense.
    #[error("manifest line {line}: {text}")]
    ManifestLine {
        /// Which, from 1.
        line: u64,
        text: &'static str,
    },
    /// The monitor asked to stop.
    #[error("stopped on request")]
    Stopped,
}

pub(super) type Result<T> = std::result::Result<T, GenerateError>;

/// For `map_err` on a path.
pub(super) fn at_path(
    what: &'static str,
    path: &std::path::Path,
) -> impl FnOnce(io::Error) -> GenerateError {
    let path = path.to_owned();
    move |source| GenerateError::Path { what, path, source }
}
