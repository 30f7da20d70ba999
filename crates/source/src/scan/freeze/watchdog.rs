//! The watchdog: a process that thaws when the freezer cannot.
//!
//! It knows from the freezer when something may be frozen. When the freezer's end of the socket
//! closes at such a time, or the time allowed is over, it thaws. It ends with the freezer.
//!
//! A freezer killed right after it thawed, or right after it was refused, looks the same as one
//! killed while frozen; somebody else's freeze of just that moment would be thawed. That is the
//! smaller harm.

use super::message::{Channel, Kind, Message};
use super::process::thaw;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Between two looks at a freezer that takes too long.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// When freezing takes longer, thawing is tried whatever the freezer seems to do. It succeeds once
/// frozen.
const FREEZING_MAX: Duration = Duration::from_secs(60);
/// Enough of `/proc/PID/stat` to hold a process name (at most 64 bytes) and the state behind it.
const STAT_BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Thawed,
    /// It waits in the kernel for writes under way, or is frozen without having said so.
    Freezing,
    Frozen,
}

/// Watches until the freezer process has exited.
pub(super) fn run(
    role: &Message,
    mount: OwnedFd,
    parent: &Channel,
    freezer: &Channel,
) -> io::Result<()> {
    let frozen_max = Duration::from_millis(u64::try_from(role.numbers[0]).unwrap_or(0));
    // Opened now: nothing is opened while something is frozen.
    let freezer_stat = File::open(format!("/proc/{}/stat", role.numbers[1])).ok();
    parent.send(&Message::new(Kind::Ready))?;
    let (mut state, mut since) = (State::Thawed, Instant::now());
    loop {
        let wait_max = match state {
            State::Thawed => None,
            _ => Some(frozen_max.saturating_sub(since.elapsed()).max(LOOK_PAUSE)),
        };
        match freezer.receive(wait_max) {
            Ok(Some(message)) => {
                state = match message.kind {
                    Kind::Freezing => {
                        // A freezer that died of this is noticed next time round.
                        let _ = freezer.send(&Message::new(Kind::Ready));
                        State::Freezing
                    }
                    Kind::Frozen => State::Frozen,
                    _ => State::Thawed,
                };
                since = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let over = since.elapsed();
                let wedged = state == State::Frozen
                    || over >= FREEZING_MAX
                    || freezer_stat.as_ref().is_some_and(is_stopped);
                if over >= frozen_max && wedged && end_freeze(&mount, state) {
                    state = State::Thawed;
                }
            }
            Ok(None) | Err(_) => break,
        }
    }
    if state != State::Thawed {
        end_freeze(&mount, state);
    }
    Ok(())
}

/// Thaws; true when nothing is frozen any more.
fn end_freeze(mount: &OwnedFd, state: State) -> bool {
    match thaw(mount.as_fd()) {
        Ok(()) => true,
        // Not frozen: somebody thawed it, or the freeze is still to come.
        Err(error) => {
            state == State::Frozen && error.raw_os_error() == Some(Errno::INVAL.raw_os_error())
        }
    }
}

/// Whether the process is stopped by a signal or a debugger: then it is not in the kernel freezing.
fn is_stopped(stat: &File) -> bool {
    let mut bytes = [0; STAT_BYTES];
    let len = stat.read_at(&mut bytes, 0).unwrap_or(0);
    // The name is in parentheses and may hold any; the state follows the last of them.
    let name_end = bytes[..len].iter().rposition(|byte| *byte == b')');
    let state = name_end.and_then(|end| bytes.get(end + 2));
    matches!(state, Some(b'T' | b't'))
}
