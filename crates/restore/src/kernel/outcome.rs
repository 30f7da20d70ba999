//! What became of an entry, or why it failed.

use rustix::io::Errno;

/// Why one entry failed.
#[derive(Debug)]
pub struct EntryFailure {
    pub action: &'static str,
    pub cause: Cause,
}

#[derive(Debug)]
pub enum Cause {
    /// The kernel's.
    Os(Errno),
    /// Ours.
    Text(String),
    /// The repository's: it cannot be read.
    Damage(String),
}

impl EntryFailure {
    pub fn os(action: &'static str) -> impl Fn(Errno) -> EntryFailure {
        move |error| EntryFailure {
            action,
            cause: Cause::Os(error),
        }
    }

    pub fn text(action: &'static str, text: impl Into<String>) -> EntryFailure {
        EntryFailure {
            action,
            cause: Cause::Text(text.into()),
        }
    }

    /// Something of the repository cannot be read.
    pub fn damage(text: impl Into<String>) -> EntryFailure {
        EntryFailure {
            action: "read",
            cause: Cause::Damage(text.into()),
        }
    }

    /// Does this say that something is not there?
    pub fn is_missing(&self) -> bool {
        matches!(
            self.cause,
            Cause::Os(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
        )
    }
}

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryOutcome {
    Written(u64),
    /// Written so many bytes of it; zeros stand for the others.
    Incomplete(u64),
    Made,
    Kept,
    Skipped,
    Linked,
    Different,
    /// Beside what stands at its name.
    Salvaged,
}
