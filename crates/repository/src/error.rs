//! What ends an operation. Trouble with a single entry is a problem, not an error (see `monitor`).

use crate::store::StoreError;
use bale_format::ChunkId;
use bale_pipeline::error::Failure;
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
        object: String,
        /// What is wrong with it.
        source: bale_format::error::FormatError,
    },
    /// No `config` there.
    #[error("no repository at {0}: there is neither \"config\" nor \"config.copy\" in it")]
    NoRepository(String),
    /// Neither `config` nor its copy can be used.
    #[error(
        "cannot open the repository at {place}: neither config nor config.copy can be used: \
         config: {config}; config.copy: {copy}. Restore either of them from a copy of the \
         repository: they hold the same bytes, which never change"
    )]
    ConfigsDamaged {
        /// Of the store.
        place: String,
        /// What is wrong with `config`.
        config: String,
        /// What is wrong with its copy.
        copy: String,
    },
    /// Both are intact, and they differ.
    #[error(
        "config and config.copy of {0} differ, and both were written with a key of this \
         repository: no program of this version does that, and one of them may ask for a later \
         one. Use the program that wrote it, or move the one away that is wrong"
    )]
    ConfigsDiffer(String),
    /// There is one already.
    #[error("{0} already holds a repository")]
    RepositoryExists(String),
    /// Key slots of others stand in a place where nothing says who makes a repository first.
    #[error(
        "{0} holds key slots and no repository: another init is under way there, or did not end. \
         Wait for it; if there is none, remove keys/ in that place and try again, or only try \
         again when they are an hour old"
    )]
    OthersKeys(String),
    /// An init that gave up and may not delete.
    #[error(
        "{why}. The key slots that this one wrote could not be removed, and open nothing: whoever \
         may delete there removes {left}"
    )]
    OwnKeysLeft { why: String, left: String },
    /// A cold store was named for a repository that has none.
    #[error(
        "{0}: the repository was made without a cold store: name it alone (bale init --cold makes \
         one that has one)"
    )]
    NoColdStore(String),
    /// One store of a repository that has two.
    #[error(
        "{0} is one of the two stores of its repository, and nothing is written to one alone: name \
         both, the hot one as the repository and the other with --cold (bale repair hot makes a \
         hot one anew)"
    )]
    OneOfTwoStores(String),
    /// A repository with segments, in a store that cannot have them.
    #[error(
        "{0}: segments are written in one stream each, and this store takes whole objects only: \
         keep a repository with segments (bale init --segments) in a directory of this machine, or \
         on a server of sftp:, ftp: or ftps:; with two stores, that is where the cold one must be"
    )]
    NoStreams(String),
    /// No key slot opens with this secret.
    #[error(
        "wrong password or no key found: no key slot of the repository opens with the one given"
    )]
    WrongKey,
    /// No key slot is there at all.
    #[error(
        "no key slot is left in keys/ of {0}: no password and no key opens the repository without \
         one. Bring the files of keys/ back from a copy of the repository"
    )]
    NoKeys(String),
    /// No key slot opens with this secret, which may be right all the same: some are damaged.
    #[error(
        "wrong password or no key found, or its key slot is damaged: no key slot of the \
         repository opens with the one given, and these are damaged: {0}. Try another password or \
         key, or the recovery key; with the repository open, add this one again (bale key add) \
         and remove the damaged slot (bale key remove)"
    )]
    KeysDamaged(String),
    /// No index names this chunk in a pack that is there.
    #[error(
        "chunk {0} is in no pack that the index names (bale check lists the files that need it; \
         bale repair index lists packs that no index names)"
    )]
    MissingChunk(ChunkId),
    /// No snapshot answers to this text.
    #[error("no snapshot matches {0:?} (bale snapshots lists them)")]
    NoSnapshot(String),
    /// `latest~N` counts back further than there are snapshots.
    #[error(
        "no {text}: {count} {} of the source of the latest (bale snapshots lists them)",
        if *count == 1 { "snapshot is" } else { "snapshots are" }
    )]
    TooFewSnapshots {
        text: String,
        /// Snapshots that `text` can count.
        count: usize,
    },
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
        path: PathBuf,
        source: std::io::Error,
    },
    /// Ctrl-C or a termination signal.
    #[error("interrupted")]
    Interrupted,
    /// Another stage failed first, or an answer cannot be given; the text says all.
    #[error("{0}")]
    Other(String),
}

/// Said of a pack that is not in the one store of two that was named.
pub const IN_COLD_STORE: &str = ", which is in the cold store (--cold)";

/// Result of an engine call.
pub type Result<T> = std::result::Result<T, Error>;

impl From<Failure> for Error {
    fn from(failure: Failure) -> Error {
        match failure {
            Failure::Local {
                action,
                path,
                source,
            } => Error::Local {
                action,
                path,
                source,
            },
            Failure::Interrupted => Error::Interrupted,
            Failure::Other(text) => Error::Other(text),
        }
    }
}

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

/// What is wrong with an object, and which it is.
pub(crate) fn object_error(
    object: impl Into<String>,
) -> impl FnOnce(bale_format::error::FormatError) -> Error {
    let object = object.into();
    move |source| Error::Object { object, source }
}

/// Is the object not there?
pub fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Store(error) if error.source.kind() == std::io::ErrorKind::NotFound)
}

/// Does it say nothing of the object or chunk that was to be read: [`StoreError::is_inconclusive`]?
pub fn is_inconclusive(error: &Error) -> bool {
    match error {
        Error::Store(error) => error.is_inconclusive(),
        Error::Interrupted => true,
        _ => false,
    }
}

/// Of the troubles with two copies: one that may be whole outweighs one that is damaged.
pub(crate) fn less_conclusive(first: Option<Error>, second: Error) -> Error {
    match first {
        Some(first) if is_inconclusive(&first) || !is_inconclusive(&second) => first,
        _ => second,
    }
}

/// Of an object that the store goes on listing: it is not gone, and not to be had.
pub(crate) fn listed_and_not_found(error: StoreError, times: usize) -> Error {
    let text = format!(
        "it was listed {times} times, and not found each time it was read (bale check says what is \
         lost with it; bale repair index lists its packs again)"
    );
    Error::Store(StoreError {
        source: std::io::Error::other(text),
        ..error
    })
}
