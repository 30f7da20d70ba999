//! Futures of libraries, run to their end by the thread that calls. What they wait for is done by
//! this thread itself, or by another one that uses the same keys.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Wakes the thread that waits.
struct Waiter(Thread);

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for `work` on this thread.
pub fn wait_for<T>(work: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Waiter(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}
