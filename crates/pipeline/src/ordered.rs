//! Work in parallel, results in order, with a bound on what is under way.

use crate::on_panic::OnPanic;
use crossbeam_channel::{bounded, unbounded};
use std::collections::{BTreeMap, VecDeque};

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
    take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let ahead = ReadAhead {
        threads,
        results: PIECES_AHEAD_MAX,
    };
    in_order_within(ahead, jobs, state, work, take)
}

/// How far work runs ahead of what is taken.
#[derive(Clone, Copy, Debug)]
pub struct ReadAhead {
    pub threads: usize,
    /// Jobs under way at a time, with their results: at least one.
    pub results: usize,
}

/// The same where a result is large, so that few may wait.
pub fn in_order_within<J: Send, R: Send, S, E>(
    ahead: ReadAhead,
    jobs: impl Iterator<Item = J>,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut S, J) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    std::thread::scope(|scope| {
        let (job_sender, job_queue) = bounded::<(u64, J)>(ahead.results);
        let (result_sender, results) = unbounded::<Option<(u64, R)>>();
        for _ in 0..ahead.threads {
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
            while requested - taken < ahead.results as u64
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

/// How much may be under way at a time of what waits for answers from far away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flights {
    /// Requests; with one at most no thread is started.
    pub jobs: usize,
    /// Weight of all of them. A job that weighs more goes alone.
    pub weight: u64,
}

/// The same for jobs with weights, a thread for each that is under way, or in this thread where
/// there is one job.
pub fn in_order_weighed<J: Send, R: Send, E>(
    flights: Flights,
    jobs: impl Iterator<Item = (u64, J)>,
    work: impl Fn(J) -> R + Sync,
    mut take: impl FnMut(R) -> Result<(), E>,
) -> Result<(), E> {
    let mut jobs = jobs.fuse().peekable();
    let Some(first) = jobs.next() else {
        return Ok(());
    };
    if flights.jobs <= 1 || jobs.peek().is_none() {
        let mut all = std::iter::once(first).chain(jobs);
        return all.try_for_each(|(_, job)| take(work(job)));
    }
    let mut jobs = std::iter::once(first).chain(jobs).peekable();
    std::thread::scope(|scope| {
        let (job_sender, job_queue) = unbounded::<(u64, J)>();
        let (result_sender, results) = unbounded::<Option<(u64, R)>>();
        let work = &work;
        let (mut requested, mut taken, mut threads) = (0, 0, 0);
        let (mut weights, mut weight) = (VecDeque::new(), 0u64);
        let mut early = BTreeMap::new();
        loop {
            while weights.len() < flights.jobs
                && let Some((more, job)) = jobs.next_if(|(more, _)| {
                    weights.is_empty() || weight.saturating_add(*more) <= flights.weight
                })
            {
                if threads == weights.len() {
                    threads += 1;
                    let (queue, sender) = (job_queue.clone(), result_sender.clone());
                    scope.spawn(move || {
                        let panics = OnPanic(|| drop(sender.send(None)));
                        for (number, job) in queue {
                            if sender.send(Some((number, work(job)))).is_err() {
                                break;
                            }
                        }
                        drop(panics);
                    });
                }
                // This end of the queue is held here, too.
                let _ = job_sender.send((requested, job));
                requested += 1;
                weight = weight.saturating_add(more);
                weights.push_back(more);
            }
            if weights.is_empty() {
                return Ok(());
            }
            let Ok(Some((number, result))) = results.recv() else {
                panic!("a thread that works on jobs panicked");
            };
            early.insert(number, result);
            while let Some(result) = early.remove(&taken) {
                taken += 1;
                weight = weight.saturating_sub(weights.pop_front().unwrap_or(0));
                take(result)?;
            }
        }
    })
}

/// Does two things at once, the first in a thread of its own.
pub fn both<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        match first.join() {
            Ok(first) => (first, second),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn what_is_under_way_weighs_no_more_than_allowed_and_comes_in_order() {
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        let flights = Flights {
            jobs: 5,
            weight: 100,
        };
        let weight_of = |job: u64| match job {
            7 => 1000,
            _ => 20 + job % 3,
        };
        let mut seen = Vec::new();
        let done: Result<(), ()> = in_order_weighed(
            flights,
            (0..200).map(|job| (weight_of(job), job)),
            |job| {
                let all = now.fetch_add(weight_of(job), Ordering::SeqCst) + weight_of(job);
                most.fetch_max(if job == 7 { 0 } else { all }, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(weight_of(job), Ordering::SeqCst);
                job
            },
            |job| {
                seen.push(job);
                Ok(())
            },
        );
        assert_eq!(done, Ok(()));
        assert_eq!(seen, (0..200).collect::<Vec<_>>());
        assert!(most.into_inner() <= 100);
        let stopped = in_order_weighed(
            flights,
            (0..200).map(|job| (1, job)),
            |job| job,
            |job| if job == 50 { Err(job) } else { Ok(()) },
        );
        assert_eq!(stopped, Err(50));
    }

    /// Each of them waits for all others: were they one after the other, this would not end.
    #[test]
    fn as_many_as_allowed_are_under_way_at_once() {
        let together = Barrier::new(4);
        let flights = Flights { jobs: 4, weight: 4 };
        let work = |()| together.wait().is_leader();
        let mut leaders = 0;
        let done: Result<(), ()> =
            in_order_weighed(flights, std::iter::repeat_n((1, ()), 8), work, |leads| {
                leaders += u32::from(leads);
                Ok(())
            });
        assert_eq!((done, leaders), (Ok(()), 2));
        let pair = Barrier::new(2);
        both(|| pair.wait(), || pair.wait());
    }

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
