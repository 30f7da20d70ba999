//! What waiting needs from outside: a clock, a way to wait that ends with the run, and a lottery.

use bale_repository::store::StoreError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What waiting needs from outside.
pub trait Waiting: Send + Sync {
    /// Time since some moment; never goes back.
    fn now(&self) -> Duration;

    /// Waits; false if the run is to end now.
    fn wait(&self, pause: Duration) -> bool;

    /// Waits although the run is to end.
    fn wait_all_the_same(&self, pause: Duration) {
        std::thread::sleep(pause);
    }

    /// Any number.
    fn lot(&self) -> u64;

    /// Is told of a request that failed and is made again after a pause.
    fn again(&self, error: &StoreError, pause: Duration);
}

/// Is told of what is made again, and after which pause.
type Report = dyn Fn(&StoreError, Duration) + Send + Sync;

/// Waits by the machine's clock and looks ten times a second whether the run is to end.
pub struct RealWaiting {
    start: Instant,
    is_over: Box<dyn Fn() -> bool + Send + Sync>,
    report: Box<Report>,
    drawn: AtomicU64,
}

impl RealWaiting {
    /// `is_over` says whether the run is to end; `report` is told of what is made again.
    pub fn new(
        is_over: impl Fn() -> bool + Send + Sync + 'static,
        report: impl Fn(&StoreError, Duration) + Send + Sync + 'static,
    ) -> Self {
        RealWaiting {
            start: Instant::now(),
            is_over: Box::new(is_over),
            report: Box::new(report),
            drawn: AtomicU64::new(u64::from(std::process::id())),
        }
    }
}

/// Between two looks whether the run is to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Waiting for RealWaiting {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&self, pause: Duration) -> bool {
        let end = self.now() + pause;
        loop {
            if (self.is_over)() {
                return false;
            }
            match end.saturating_sub(self.now()) {
                Duration::ZERO => return true,
                rest => std::thread::sleep(rest.min(LOOK_EVERY)),
            }
        }
    }

    /// SplitMix64, from the process's number and the time of each draw: only processes and threads
    /// are to differ, nobody needs to be surprised.
    fn lot(&self) -> u64 {
        let nanos = self.start.elapsed().as_nanos() as u64;
        let drawn = self
            .drawn
            .fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
            ^ nanos;
        let mixed = (drawn ^ (drawn >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn again(&self, error: &StoreError, pause: Duration) {
        (self.report)(error, pause);
    }
}
