//! One piece of work in a thread of its own, whose result is wanted later, or not at all.

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Work under way. Dropped, it is told that nobody wants it, and waited for.
pub struct Beside<T> {
    result: Receiver<T>,
    unwanted: Unwanted,
    thread: Option<JoinHandle<()>>,
}

/// Asked by the work, often: does nobody want it any more?
#[derive(Clone, Debug, Default)]
pub struct Unwanted(Arc<AtomicBool>);

impl Unwanted {
    pub fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What came of waiting.
#[derive(Debug, PartialEq, Eq)]
pub enum Waited<T> {
    Done(T),
    NotYet,
    /// It panicked, or was taken before.
    Gone,
}

impl<T: Send + 'static> Beside<T> {
    /// Begins.
    pub fn start(
        name: &str,
        work: impl FnOnce(&Unwanted) -> T + Send + 'static,
    ) -> io::Result<Beside<T>> {
        let (sender, result) = bounded(1);
        let unwanted = Unwanted::default();
        let asked = unwanted.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        let thread = thread.spawn(move || {
            let _nobody_waits_if_it_is_unwanted = sender.send(work(&asked));
        })?;
        Ok(Beside {
            result,
            unwanted,
            thread: Some(thread),
        })
    }
}

impl<T> Beside<T> {
    /// Waits so long.
    pub fn wait(&self, at_most: Duration) -> Waited<T> {
        match self.result.recv_timeout(at_most) {
            Ok(result) => Waited::Done(result),
            Err(RecvTimeoutError::Timeout) => Waited::NotYet,
            Err(RecvTimeoutError::Disconnected) => Waited::Gone,
        }
    }

    /// Waits for the result; `None`: it panicked.
    pub fn finish(self) -> Option<T> {
        self.result.recv().ok()
    }
}

impl<T> Drop for Beside<T> {
    fn drop(&mut self) {
        self.unwanted.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_comes_once_it_is_there() {
        let (sender, receiver) = bounded(0);
        let work = Beside::start("test", move |_| receiver.recv().unwrap()).unwrap();
        assert_eq!(work.wait(Duration::ZERO), Waited::NotYet);
        sender.send(7).unwrap();
        assert_eq!(work.finish(), Some(7));
    }

    #[test]
    fn a_panic_is_no_result_and_nobody_waits_for_ever() {
        let work = Beside::<u8>::start("test", |_| panic!("on purpose")).unwrap();
        assert_eq!(work.wait(Duration::from_secs(60)), Waited::Gone);
        assert_eq!(work.finish(), None);
    }

    #[test]
    fn what_nobody_wants_any_more_ends_before_it_is_gone() {
        let ended = Arc::new(AtomicBool::new(false));
        let says = ended.clone();
        let work = Beside::start("test", move |unwanted| {
            while !unwanted.is_said() {
                std::thread::yield_now();
            }
            says.store(true, Ordering::Relaxed);
        });
        drop(work.unwrap());
        assert!(ended.load(Ordering::Relaxed));
    }
}
