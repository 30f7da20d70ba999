//! Work in parallel, results in order, with a bound on what is under way.

use crate::on_panic::OnPanic;
use crossbeam_channel::{bounded, unbounded};
use std::collections::BTreeMap;

/// Threads that work: they wait for a device, so more than cores.
pub const THREADS_MAX: usize = 4;
/// Jobs under way at a time, with their results.
pub const PIECES_AHEAD_MAX: usize = 8;

/// Lets threads do `work` on jobs, each thread with a state of its own, and hands the results to
/// `take` in the order of the jobs. Ends early with the first error of `take`.
pub fn in_order<J: Send, R: Send, S, E>(
    jobs: impl Iterator<Item = J>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, J) -> R + Sync,
    take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    in_order_by(THREADS_MAX, jobs, state, work, take)
}

/// The same by so many threads: each has a state that takes memory.
pub fn in_order_by<J: Send, R: Send, S, E>(
    threads: usize,
    jobs: impl Iterator<Item = J>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, J) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    std::thread::scope(|scope| {
        let (job_sender, job_queue) = bounded::<(u64, J)>(PIECES_AHEAD_MAX);
        let (result_sender, results) = unbounded::<Option<(u64, R)>>();
        for _ in 0..threads {
            let (queue, sender) = (job_queue.clone(), result_sender.clone());
            let (state, work) = (&state, &work);
            scope.spawn(move || {
                let panics = OnPanic(|| drop(sender.send(None)));
                let mut state = state();
                for (number, job) in queue {
                    if sender.send(Some((number, work(&mut state, job)))).is_err() {
                        break;
                    }
                }
                drop(panics);
            });
        }
        drop((job_queue, result_sender));
        let mut jobs = jobs.fuse();
        let (mut requested, mut taken) = (0, 0);
        let mut early = BTreeMap::new();
        loop {
            while requested - taken < PIECES_AHEAD_MAX as u64
                && let Some(job) = jobs.next()
            {
                // Room is certain: no more are under way than the queue holds.
                let _ = job_sender.send((requested, job));
                requested += 1;
            }
            if requested == taken {
                return Ok(());
            }
            let Ok(Some((number, result))) = results.recv() else {
                panic!("a thread that works on jobs panicked");
            };
            early.insert(number, result);
            while let Some(result) = early.remove(&taken) {
                taken += 1;
                take(result)?;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs_and_an_error_ends_it() {
        let mut seen = Vec::new();
        let done: Result<(), ()> = in_order(
            0..1000u64,
            || (),
            |_, job| {
                if job % 7 == 0 {
                    std::thread::yield_now();
                }
                job
            },
            |result| {
                seen.push(result);
                if result == 900 { Err(()) } else { Ok(()) }
            },
        );
        assert_eq!(done, Err(()));
        assert_eq!(seen, (0..=900).collect::<Vec<_>>());
    }
}
