//! The clock: the only place that asks what time it is.
//!
//! Operations are handed a `Clock`, so that tests decide the time and a run has one idea of it.
//! Wall-clock time orders nothing that matters for safety; it is what people are shown and what
//! grace periods are measured with.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bale_format::Time;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The present wall-clock time.
    fn now(&self) -> SystemTime;

    /// The present wall-clock time as the format writes it.
    fn time(&self) -> Time {
        time_of(self.now())
    }
}

/// A wall-clock time as the format writes it: seconds since 1970, rounded down, and nanoseconds
/// from there.
pub fn time_of(moment: SystemTime) -> Time {
    match moment.duration_since(UNIX_EPOCH) {
        Ok(after) => Time {
            seconds: seconds_of(after),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Time {
                    seconds: -seconds_of(before),
                    nanos: 0,
                },
                nanos => Time {
                    seconds: -seconds_of(before) - 1,
                    nanos: 1_000_000_000 - nanos,
                },
            }
        }
    }
}

fn seconds_of(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// The moment that a time of the format names; the nearest that can be said if it is out of reach.
pub fn moment_of(time: Time) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds >= 0 {
        true => UNIX_EPOCH.checked_add(seconds),
        false => UNIX_EPOCH.checked_sub(seconds),
    };
    let moment = whole.and_then(|whole| whole.checked_add(Duration::from_nanos(time.nanos.into())));
    moment.unwrap_or(UNIX_EPOCH)
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A clock that stands still until it is told to move, in either direction.
#[derive(Debug)]
pub struct ManualClock {
    now: Mutex<SystemTime>,
}

impl ManualClock {
    /// Starts at a moment.
    pub fn at(now: SystemTime) -> Self {
        Self {
            now: Mutex::new(now),
        }
    }

    /// Starts so many seconds after 1970.
    pub fn at_seconds(seconds: u64) -> Self {
        Self::at(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    /// Moves forward.
    pub fn advance(&self, by: Duration) {
        *self.lock() += by;
    }

    /// Jumps, also backward.
    pub fn set(&self, now: SystemTime) {
        *self.lock() = now;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SystemTime> {
        self.now
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        *self.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = ManualClock::at_seconds(1_000);
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::from_millis(1_500));
        assert_eq!(
            clock.time(),
            Time {
                seconds: 1_001,
                nanos: 500_000_000
            }
        );
        clock.set(UNIX_EPOCH);
        assert_eq!(
            clock.time(),
            Time {
                seconds: 0,
                nanos: 0
            }
        );
    }

    #[test]
    fn moments_before_1970_round_down() {
        let quarter = Duration::from_millis(250);
        assert_eq!(
            time_of(UNIX_EPOCH - quarter),
            Time {
                seconds: -1,
                nanos: 750_000_000
            }
        );
        assert_eq!(
            time_of(UNIX_EPOCH - Duration::from_secs(2)),
            Time {
                seconds: -2,
                nanos: 0
            }
        );
    }
}
