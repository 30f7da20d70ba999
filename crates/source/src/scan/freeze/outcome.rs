//! What becomes of a barrier.

use super::message::{Kind, Message};
use bale_format::Time;
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// What stands behind a barrier. All but the first are for tests that show why the first is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierKind {
    /// Written back, frozen, thawed: the only one that holds.
    Freeze = 0,
    /// Written back only: a long write is not waited for.
    SyncOnly = 1,
    /// Nothing but a look at the clock.
    None = 2,
}

/// A barrier that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The clock that stamps ctimes, while frozen: what has a ctime before it was finished before
    /// it.
    pub t0_coarse: Time,
    /// The fine clock, right after: at most a tick or so later. For people and for checking tests.
    pub t0_fine: Time,
    /// How long the kernel took to freeze: all writers waited, the more the longer the longest
    /// write under way.
    pub waited: Duration,
    /// How long it was frozen after that.
    pub frozen_for: Duration,
}

/// Why there is no barrier.
#[derive(Debug, thiserror::Error)]
pub enum BarrierError {
    /// The two processes could not be started.
    #[error("start the freezer: {0}")]
    Start(#[source] io::Error),
    /// Somebody else holds the file system frozen.
    #[error("another program holds the file system frozen (a snapshot tool?)")]
    Busy,
    /// This file system cannot be frozen.
    #[error("this kind of file system cannot be frozen")]
    NotSupported,
    /// This process may not freeze it.
    #[error("freezing the file system is not permitted (it takes CAP_SYS_ADMIN)")]
    NotPermitted,
    /// Thawed, by the watchdog or by somebody else, before the time was read.
    #[error("the freeze was ended too early (by a time-out or another tool)")]
    Lost,
    /// A process is gone; the file system is not frozen.
    #[error("the freezer process has exited")]
    Gone,
    /// The freezer was stopped from outside.
    #[error(
        "the freezer (process {0}) is stopped, by a signal or a debugger, and was not waited for \
         any longer: kill -CONT {0} lets it end"
    )]
    Stopped(u32),
    /// No answer.
    #[error("the freezer does not answer")]
    Slow,
    /// Anything else.
    #[error("{action} the file system: {source}")]
    Failed {
        /// `sync`, `freeze`, `thaw`.
        action: &'static str,
        source: io::Error,
    },
}

impl BarrierError {
    /// True when no barrier can be had here, now or later: a reason to walk, not to fail.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            BarrierError::NotSupported | BarrierError::NotPermitted | BarrierError::Start(_)
        )
    }
}

/// What failed, as it stands in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Sync = 0,
    Watchdog = 1,
    Freeze = 2,
    Thaw = 3,
}

pub(super) fn made(barrier: &Barrier) -> Message {
    let nanos = |duration: Duration| i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX);
    let mut message = Message::new(Kind::Made);
    message.numbers = [
        barrier.t0_coarse.seconds,
        barrier.t0_coarse.nanos.into(),
        barrier.t0_fine.seconds,
        barrier.t0_fine.nanos.into(),
        nanos(barrier.waited),
        nanos(barrier.frozen_for),
        0,
    ];
    message
}

pub(super) fn read(answer: &Message) -> Result<Barrier, BarrierError> {
    let numbers = &answer.numbers;
    let time = |at: usize| Time {
        seconds: numbers[at],
        nanos: u32::try_from(numbers[at + 1]).unwrap_or(0),
    };
    let duration = |at: usize| Duration::from_nanos(u64::try_from(numbers[at]).unwrap_or(0));
    if answer.kind == Kind::Made {
        return Ok(Barrier {
            t0_coarse: time(0),
            t0_fine: time(2),
            waited: duration(4),
            frozen_for: duration(5),
        });
    }
    let source = answer.error();
    let errno = Errno::from_io_error(&source);
    Err(match (numbers[0], errno) {
        (what, _) if what == Action::Watchdog as i64 => BarrierError::Gone,
        (what, Some(Errno::BUSY)) if what == Action::Freeze as i64 => BarrierError::Busy,
        (what, Some(Errno::PERM)) if what == Action::Freeze as i64 => BarrierError::NotPermitted,
        (what, Some(Errno::OPNOTSUPP | Errno::NOTTY)) if what == Action::Freeze as i64 => {
            BarrierError::NotSupported
        }
        (what, Some(Errno::INVAL)) if what == Action::Thaw as i64 => BarrierError::Lost,
        (what, _) => BarrierError::Failed {
            action: match what {
                0 => "sync",
                2 => "freeze",
                _ => "thaw",
            },
            source,
        },
    })
}
