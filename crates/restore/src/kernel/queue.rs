//! Threads of a restore: tasks go through one bounded queue, and the first fatal trouble ends all.

use crate::kernel::worker::{RestoreRun, Worker};
use crate::{ChunkSource, RestoreError};
use crossbeam_channel::Sender;

/// Tasks that wait, for each thread.
pub const TASKS_WAITING_MAX: usize = 2;

/// The giving end of the queue.
pub struct Feeder<'r, T> {
    run: &'r RestoreRun<'r>,
    sender: Sender<T>,
}

impl<'r, T> Feeder<'r, T> {
    /// What the tasks will read of.
    pub fn chunks(&self) -> &'r dyn ChunkSource {
        self.run.chunks
    }

    /// Waits until there is room. `false`: the run has ended, feed no more.
    pub fn send(&self, task: T) -> bool {
        !self.run.has_ended() && self.sender.send(task).is_ok()
    }
}

/// Runs `each` on `threads` threads for every task that `feed` sends, and returns when all are
/// done.
pub fn work<'r, T: Send>(
    run: &'r RestoreRun<'r>,
    threads: usize,
    each: impl Fn(&mut Worker<'r>, T) + Sync,
    feed: impl FnOnce(&Feeder<'r, T>) -> Result<(), RestoreError>,
) -> Result<(), RestoreError> {
    let (sender, receiver) = crossbeam_channel::bounded::<T>(threads.max(1) * TASKS_WAITING_MAX);
    let fed = std::thread::scope(|scope| {
        for number in 0..threads.max(1) {
            let receiver = receiver.clone();
            let each = &each;
            let work = move || {
                let mut worker = Worker::new(run);
                for task in receiver {
                    // An ended run still empties the queue, so that the feeder never waits for
                    // ever.
                    if !run.has_ended() {
                        each(&mut worker, task);
                    }
                }
            };
            match std::thread::Builder::new().spawn_scoped(scope, work) {
                // Fewer take longer.
                Err(error) if number == 0 => return Err(RestoreError::Threads(error)),
                Err(_) => break,
                Ok(_) => {}
            }
        }
        drop(receiver);
        let feeder = Feeder { run, sender };
        let fed = feed(&feeder);
        if fed.is_err() {
            run.ended.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        fed
    });
    fed?;
    run.outcome()
}
