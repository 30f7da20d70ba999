//! The freezer: a process that freezes, looks at the clocks, thaws, and does nothing else.
//!
//! Between freezing and thawing it opens nothing, logs nothing and allocates nothing, and its
//! memory stays in memory: whatever waited for the frozen file system would wait for ever. It ends
//! when its parent does, but never in between.

use super::message::{Channel, Kind, Message};
use super::outcome::{Action, Barrier, BarrierKind, made};
use super::watchdog;
use bale_format::Time;
use rustix::io::Errno;
use rustix::mm::MlockAllFlags;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the watchdog may take to say that it is there.
const WATCHDOG_WAIT_MAX: Duration = Duration::from_secs(10);
/// Tries to thaw a file system that refuses, and the pause between them.
const THAW_TRIES_MAX: u32 = 20;
const THAW_PAUSE: Duration = Duration::from_millis(50);

/// Where a freezer is. Tests stop or kill it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A barrier without a freeze was asked for; nothing is done yet.
    Asked,
    /// The watchdog knows; not frozen yet.
    Announced,
    /// Frozen; nobody knows yet.
    Frozen,
    /// Frozen, the watchdog knows, the time is read.
    TimeRead,
    /// Thawed; nobody knows yet.
    Thawed,
    /// The watchdog knows; not answered yet.
    Finished,
}

/// The life of a freezer or of a watchdog: takes its role from the socket on standard input and
/// returns when the other end is gone. `at_step` is called by the freezer on its way and does
/// nothing, but in tests.
pub fn serve(at_step: &mut dyn FnMut(Step)) -> io::Result<()> {
    let input = std::io::stdin().as_fd().try_clone_to_owned()?;
    let channel = Channel::new(input);
    let Some((role, files)) = channel.receive_with()? else {
        return Ok(());
    };
    let Ok([mount, peer]) = <[OwnedFd; 2]>::try_from(files) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let peer = Channel::new(peer);
    match role.kind {
        Kind::BeFreezer => {
            isolate_process(c"bale-freezer");
            let freezer = Freezing { mount, peer };
            freezer.run(&channel, at_step)
        }
        Kind::BeWatchdog => {
            isolate_process(c"bale-watchdog");
            watchdog::run(&role, mount, &channel, &peer)
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Out of reach of what ends or delays processes, as far as we may: each of these is a belt to the
/// braces.
fn isolate_process(name: &std::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
    // A killed process group, an interrupt at the terminal: not ours.
    let _ = rustix::process::setsid();
    let _ = bale_sys::signals::ignore_requests_to_stop();
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
    // What was used once stays; all of the program would be too much.
    let _ = read_clocks();
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let _ = rustix::mm::mlockall(all);
}

struct Freezing {
    mount: OwnedFd,
    peer: Channel,
}

impl Freezing {
    fn run(&self, channel: &Channel, at_step: &mut dyn FnMut(Step)) -> io::Result<()> {
        channel.send(&Message::new(Kind::Ready))?;
        while let Some(request) = channel.receive(None)? {
            let answer = match request.numbers[0] {
                0 => self.freeze(at_step),
                kind => self.without_freeze(kind, at_step),
            };
            let answer = match answer {
                Ok(barrier) => made(&barrier),
                Err((what, error)) => Message::failed(what as i64, &error),
            };
            channel.send(&answer)?;
        }
        Ok(())
    }

    fn without_freeze(
        &self,
        kind: i64,
        at_step: &mut dyn FnMut(Step),
    ) -> Result<Barrier, (Action, io::Error)> {
        at_step(Step::Asked);
        if kind == BarrierKind::SyncOnly as i64 {
            self.sync()?;
        }
        let (t0_coarse, t0_fine) = read_clocks();
        Ok(Barrier {
            t0_coarse,
            t0_fine,
            waited: Duration::ZERO,
            frozen_for: Duration::ZERO,
        })
    }

    fn sync(&self) -> Result<(), (Action, io::Error)> {
        rustix::fs::syncfs(&self.mount).map_err(|error| (Action::Sync, error.into()))
    }

    fn freeze(&self, at_step: &mut dyn FnMut(Step)) -> Result<Barrier, (Action, io::Error)> {
        // What is written back now is not written back while everybody waits.
        self.sync()?;
        self.announce().map_err(|error| (Action::Watchdog, error))?;
        at_step(Step::Announced);
        let asked = Instant::now();
        let frozen = match Frozen::new(self.mount.as_fd()) {
            Ok(frozen) => frozen,
            Err(error) => {
                let _ = self.peer.send(&Message::new(Kind::Thawed));
                return Err((Action::Freeze, error));
            }
        };
        let since = Instant::now();
        at_step(Step::Frozen);
        let _ = self.peer.send(&Message::new(Kind::Frozen));
        let (t0_coarse, t0_fine) = read_clocks();
        at_step(Step::TimeRead);
        // Thawed by somebody else means that the time may be of after that.
        frozen.thaw().map_err(|error| (Action::Thaw, error))?;
        let frozen_for = since.elapsed();
        at_step(Step::Thawed);
        let _ = self.peer.send(&Message::new(Kind::Thawed));
        at_step(Step::Finished);
        Ok(Barrier {
            t0_coarse,
            t0_fine,
            waited: since.duration_since(asked),
            frozen_for,
        })
    }

    /// Freezes nothing unless the watchdog is awake.
    fn announce(&self) -> io::Result<()> {
        self.peer.send(&Message::new(Kind::Freezing))?;
        match self.peer.receive(Some(WATCHDOG_WAIT_MAX))? {
            Some(answer) if answer.kind == Kind::Ready => Ok(()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// A frozen file system, thawed at the latest when this goes.
struct Frozen<'a> {
    mount: BorrowedFd<'a>,
    thawed: bool,
}

impl<'a> Frozen<'a> {
    fn new(mount: BorrowedFd<'a>) -> io::Result<Frozen<'a>> {
        bale_sys::freeze::freeze(mount)?;
        Ok(Frozen {
            mount,
            thawed: false,
        })
    }

    fn thaw(mut self) -> io::Result<()> {
        self.thawed = true;
        thaw(self.mount)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.thawed {
            let _ = thaw(self.mount);
        }
    }
}

/// Thaws, with patience; fails at once where nothing is frozen (`EINVAL`).
pub(super) fn thaw(mount: BorrowedFd<'_>) -> io::Result<()> {
    let mut tries = 0;
    loop {
        match bale_sys::freeze::thaw(mount) {
            Err(error)
                if tries < THAW_TRIES_MAX
                    && error.raw_os_error() != Some(Errno::INVAL.raw_os_error()) =>
            {
                tries += 1;
                std::thread::sleep(THAW_PAUSE);
            }
            result => return result,
        }
    }
}

/// The clock that stamps ctimes, then the fine one: so the second is never the earlier one.
fn read_clocks() -> (Time, Time) {
    let read = |id| {
        let now = clock_gettime(id);
        Time {
            seconds: now.tv_sec,
            nanos: u32::try_from(now.tv_nsec).expect("less than a second of nanoseconds"),
        }
    };
    (read(ClockId::RealtimeCoarse), read(ClockId::Realtime))
}
