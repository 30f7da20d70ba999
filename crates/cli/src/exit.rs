//! Exit codes, and which error ends with which. Scripts rely on them: docs/SCRIPTING.md.

use bale_pipeline::monitor::Kept;
use bale_repository::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

/// Everything was done.
pub const COMPLETE: i32 = 0;
/// Nothing was committed.
pub const FAILED: i32 = 1;
/// The words make no sense.
pub const USAGE: i32 = 2;
/// Committed, but something could not be read or changed while it was read.
pub const INCOMPLETE: i32 = 3;
/// Nothing is committed, but what was stored and named is kept for the next run.
pub const UNFINISHED: i32 = 3;
/// Check found damage.
pub const DAMAGE: i32 = 4;
/// Of `status --nagios`: how things are is not known. Its 0, 1 and 2 are those of a plugin, too.
pub const UNKNOWN_STATE: i32 = 3;
pub const NO_REPOSITORY: i32 = 10;
/// Another run of the same profile, or of its sources, is under way.
pub const LOCKED: i32 = 11;
/// No key slot opens.
pub const WRONG_KEY: i32 = 12;
/// Ctrl-C.
pub const INTERRUPTED: i32 = 130;

/// Whoever read the output is gone: as a shell reports SIGPIPE.
pub const READER_GONE: i32 = 141;

static IS_INCOMPLETE: AtomicBool = AtomicBool::new(false);

/// What was printed or done leaves out something that cannot be read, and was reported: turns
/// [`COMPLETE`] into [`INCOMPLETE`].
pub fn something_is_missing() {
    IS_INCOMPLETE.store(true, Ordering::Relaxed);
}

/// Was something reported as missing?
pub fn is_something_missing() -> bool {
    IS_INCOMPLETE.load(Ordering::Relaxed)
}

/// The code of a command that ended with `code`, if nothing was missing.
pub fn with_what_is_missing(code: i32) -> i32 {
    match is_something_missing() {
        true if code == COMPLETE => INCOMPLETE,
        _ => code,
    }
}

/// The words were well-formed but cannot be meant: ends with [`USAGE`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The way to the store failed, and this much is kept there: ends with [`UNFINISHED`].
#[derive(Debug, thiserror::Error)]
#[error("the repository cannot be reached, and {}", match .0 {
    Kept::All => "everything is stored there: whether the snapshot is, too, bale snapshots tells",
    Kept::Record => "what this run recorded there is kept: the same command goes on from here",
    Kept::Content => "what this run stored there is kept: the same command reads everything again, \
                      and stores only the rest",
    Kept::Nothing => "nothing of this run is kept there: run the same command again",
})]
pub struct GoesOn(pub Kept);

/// Code for an error that ended a command.
pub fn code_of(error: &anyhow::Error) -> i32 {
    if error.downcast_ref::<Usage>().is_some() {
        return USAGE;
    }
    if error.downcast_ref::<GoesOn>().is_some() {
        return UNFINISHED;
    }
    match error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Error>())
    {
        Some(Error::NoRepository(_)) => NO_REPOSITORY,
        Some(Error::WrongKey | Error::KeysDamaged(_) | Error::NoKeys(_)) => WRONG_KEY,
        Some(Error::Interrupted) => INTERRUPTED,
        _ => FAILED,
    }
}
