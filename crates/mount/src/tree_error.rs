//! Why the tree has no answer.

/// Each is one error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TreeError {
    #[error("there is no such entry")]
    NoEntry,
    #[error("it is no directory")]
    NotDirectory,
    #[error("it is a directory")]
    IsDirectory,
    #[error("it is no symbolic link")]
    NotLink,
    #[error("it has no such attribute")]
    NoAttribute,
    #[error("there is no data behind this place")]
    NoData,
    /// A number that means nothing, or a snapshot that is gone.
    #[error("it is gone")]
    Gone,
    /// Reported as a problem.
    #[error("it cannot be read")]
    Unreadable,
}
