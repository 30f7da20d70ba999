//! Notices when somebody sets the clock: times before and after are then not of one scale.

use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Watches the wall clock. Gentle corrections of its rate are no steps.
#[derive(Debug)]
pub struct ClockSteps {
    timer: OwnedFd,
    seen: AtomicBool,
}

impl ClockSteps {
    /// Begins to watch.
    pub fn watch() -> io::Result<ClockSteps> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
        let never = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: i64::MAX / 1_000_000_000,
                tv_nsec: 0,
            },
        };
        let flags = TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET;
        timerfd_settime(&timer, flags, &never)?;
        Ok(ClockSteps {
            timer,
            seen: AtomicBool::new(false),
        })
    }

    /// Whether the clock was set since.
    pub fn seen(&self) -> bool {
        let mut count = [0; 8];
        match rustix::io::read(&self.timer, &mut count) {
            Err(Errno::AGAIN) => {}
            // Cancelled by the step; anything else does not happen and would be no proof of quiet.
            _ => self.seen.store(true, Ordering::Relaxed),
        }
        self.seen.load(Ordering::Relaxed)
    }
}
