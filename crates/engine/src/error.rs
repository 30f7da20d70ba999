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
    #[error("no repository at {0}: there is neither \"config\" nor \"config.copy\" in it")]
    NoRepository(String),
    /// Neither `config` nor its copy can be used.
    #[error(
        "neither config nor config.copy of {place} can be used: config: {config}; config.copy: {copy}. Bring one of them back from a \
         copy of the repository: they have the same bytes, and nobody changes them"
    )]
    ConfigsDamaged {
        /// Of the store.
        place: String,
        /// What is wrong with `config`.
        config: String,
        /// What is wrong with its copy.
        copy: String,
    },
    /// Both are sound, and not the same.
    #[error(
        "config and config.copy of {0} differ, and both were written with a key of this repository: no program of this version does \
         that, and one of them may ask for a later one. Use the program that wrote it, or move the one away that is wrong"
    )]
    ConfigsDiffer(String),
    /// There is one already.
    #[error("{0} already holds a repository")]
    RepositoryExists(String),
    /// No key slot opens with this secret.
    #[error("wrong password or key: no key slot of the repository opens with it")]
    WrongKey,
    /// No key slot is there at all.
    #[error(
        "no key slot is left in keys/ of {0}: no password and no key opens the repository without one. Bring the files of keys/ back \
         from a copy of the repository"
    )]
    NoKeys(String),
    /// No key slot opens with this secret, and some cannot be what they were.
    #[error(
        "no key slot of the repository opens with this password or key, but it may be right, for these are damaged: {0} \
         (another key, or the recovery key, may open it; then `bale key add` and `bale key remove` mend this)"
    )]
    KeysDamaged(String),
    /// No index names this chunk in a pack that is there.
    #[error(
        "chunk {0} is in no pack that the index names (bale check tells which files need it; bale repair index lists packs \
         that no index names)"
    )]
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

/// An error and its causes in one line. Some errors say their cause themselves: what was said is not said again.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    for cause in causes.map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// A text without the name that stands before it already.
pub fn without_name<'t>(name: &str, text: &'t str) -> &'t str {
    text.strip_prefix(name)
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(text)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump::DumpError;
    use crate::image::ImageError;
    use crate::restore::RestoreError;
    use crate::scan::snapshot_command::SnapshotError;
    use bale_format::error::{Fault, FormatError};
    use std::io;

    fn os() -> io::Error {
        io::Error::other("no room on device")
    }

    fn object() -> Error {
        Error::Object {
            object: "snapshots/1234".to_owned(),
            source: FormatError::Damaged {
                what: "object",
                fault: Fault::Seal,
            },
        }
    }

    fn store() -> StoreError {
        StoreError {
            action: "read",
            object: "packs/1234".to_owned(),
            source: os(),
        }
    }

    /// Every type of error that holds another one.
    fn errors() -> Vec<Box<dyn std::error::Error + Send + Sync>> {
        let path = || PathBuf::from("x");
        vec![
            Box::new(object()),
            Box::new(Error::local("read", "x")(os())),
            Box::new(Error::Store(store())),
            Box::new(RestoreError::Catalog(Box::new(object()))),
            Box::new(RestoreError::Scratch(os())),
            Box::new(RestoreError::Threads(os())),
            Box::new(RestoreError::Target {
                action: "make the target",
                path: path(),
                source: os(),
            }),
            Box::new(DumpError::Catalog(Box::new(Error::Store(store())))),
            Box::new(DumpError::Scratch(os())),
            Box::new(DumpError::Output(os())),
            Box::new(ImageError::Open {
                path: "x".to_owned(),
                source: os(),
            }),
            Box::new(SnapshotError::Run {
                program: "x".to_owned(),
                source: os(),
            }),
        ]
    }

    #[test]
    fn every_reason_is_said_and_said_once() {
        for error in errors() {
            let text = with_causes(&*error);
            let reasons = ["no room on device", "seal broken"];
            let said = reasons.map(|reason| text.matches(reason).count());
            assert_eq!(said.iter().sum::<usize>(), 1, "{text}");
        }
    }

    #[test]
    fn a_name_is_not_said_twice() {
        let text = object().to_string();
        let rest = without_name("snapshots/1234", &text);
        assert_eq!(rest, "object is damaged: seal broken");
        assert_eq!(without_name("snapshots/12", &text), text);
    }
}
