//! What ends an operation. Trouble with a single entry is a problem, not an error (see `monitor`).

use crate::store::StoreError;
use bale_format::ChunkId;
use std::path::PathBuf;

/// Ends an operation; nothing was committed unless the text says so.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A catalog cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] crate::catalog::CatalogError),
    /// Something could not be encoded.
    #[error(transparent)]
    Format(#[from] bale_format::error::FormatError),
    /// An object does not hold what it should.
    #[error("{object}: {source}")]
    Object {
        /// Name of the object.
        object: String,
        /// What is wrong with it.
        source: bale_format::error::FormatError,
    },
    /// No `config` there.
    #[error("no repository at {0} (make one with: bale init)")]
    NoRepository(String),
    /// There is one already.
    #[error("{0} already holds a repository")]
    RepositoryExists(String),
    /// No key slot opens with this secret.
    #[error("wrong password or key: no key slot of the repository opens with it")]
    WrongKey,
    /// No index names this chunk in a pack that is there.
    #[error("chunk {0} is in no pack that the index names (bale check tells which files need it)")]
    MissingChunk(ChunkId),
    /// No snapshot answers to this text.
    #[error("no snapshot matches {0:?} (bale snapshots lists them)")]
    NoSnapshot(String),
    /// More than one does.
    #[error("{0:?} is the beginning of more than one snapshot id")]
    AmbiguousSnapshot(String),
    /// No such path in a snapshot.
    #[error("no {path:?} in snapshot {snapshot}")]
    NoPath {
        /// Path as asked for.
        path: String,
        /// Short id.
        snapshot: String,
    },
    /// A local file or directory.
    #[error("{action} {path}: {source}")]
    Local {
        /// `open`, `create` ...
        action: &'static str,
        /// Path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
    /// Another stage failed first, or an answer cannot be given; the text says all.
    #[error("{0}")]
    Other(String),
}

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err` on a local file.
    pub fn local(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Local {
            action,
            path,
            source,
        }
    }
}
