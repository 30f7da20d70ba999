//! What ends a comparison. Trouble of one tool does not: it becomes the content of a cell.

use std::io;
use std::path::{Path, PathBuf};

use bale_tune::generate::GenerateError;

/// Ends the operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// The options contradict each other.
    #[error("options of compare: {0}")]
    Options(String),
    /// The file system refused something.
    #[error("{what} {path}")]
    Path {
        /// What was attempted, as a verb.
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A program that the comparison itself needs failed.
    #[error("{command}: {message}")]
    Command {
        /// What was run.
        command: String,
        /// First line of its errors.
        message: String,
    },
    /// Another comparison works in the same directory.
    #[error("another comparison is running in {0}")]
    Busy(PathBuf),
    /// The work directory was not made by a comparison, and would be deleted.
    #[error(
        "{0} exists and no lock file says that a comparison made it: remove it or choose another \
         --dir"
    )]
    Foreign(PathBuf),
    /// Something is still mounted below the work directory, so nothing is deleted.
    #[error("{0} is still mounted: unmount it, then run again or delete the work directory")]
    StillMounted(PathBuf),
    /// Not enough room.
    #[error(
        "about {needed_bytes} bytes are needed in {directory}, {free_bytes} are free: fewer \
         --files or --tools, or another --dir"
    )]
    Space {
        directory: PathBuf,
        /// Rough need.
        needed_bytes: u64,
        free_bytes: u64,
    },
    /// The tree could not be made.
    #[error("make the tree")]
    Generate(#[from] GenerateError),
    /// Never leaves `compare`: with so many files it begins again.
    #[error("too many files for the time; {files} may fit")]
    TooMany {
        /// So many may fit.
        files: u64,
    },
    /// The monitor asked to stop.
    #[error("stopped on request")]
    Stopped,
}

pub(super) type Result<T> = std::result::Result<T, CompareError>;

/// For `map_err` on a path.
pub(super) fn at_path(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CompareError {
    let path = path.to_owned();
    move |source| CompareError::Path { what, path, source }
}
