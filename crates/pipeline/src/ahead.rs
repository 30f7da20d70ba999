//! An iterator that runs ahead in a thread of its own, by a bounded number of batches: one that
//! goes on for as long as somebody holds it, or one that ends with the call.

use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::VecDeque;
use std::thread::JoinHandle;

/// Hands out what another thread has already made. Dropping it ends that thread.
pub struct Ahead<T> {
    batches: Option<Receiver<VecDeque<T>>>,
    batch: VecDeque<T>,
    /// Takes empty batches back: fresh memory for each would cost more than what most items do.
    spare: Sender<VecDeque<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Ahead<T> {
    /// Runs ahead by at most `batches_max` batches of `batch_len` items, and the batch being made.
    pub fn start(
        items: impl Iterator<Item = T> + Send + 'static,
        batch_len: usize,
        batches_max: usize,
    ) -> Ahead<T> {
        Ahead::start_weighed(items, |_| 1, batch_len, batches_max)
    }

    /// The same for items of different weights: a batch is complete when its items weigh
    /// `batch_weight` or more.
    pub fn start_weighed(
        items: impl Iterator<Item = T> + Send + 'static,
        weight_of: impl Fn(&T) -> usize + Send + 'static,
        batch_weight: usize,
        batches_max: usize,
    ) -> Ahead<T> {
        let (sender, receiver) = bounded(batches_max);
        let (spare, spares) = bounded::<VecDeque<T>>(batches_max);
        let thread = std::thread::spawn(move || {
            send_batches(items, weight_of, batch_weight, &sender, &spares);
        });
        Ahead {
            batches: Some(receiver),
            batch: VecDeque::new(),
            spare,
            thread: Some(thread),
        }
    }
}

/// Makes batches until there is nothing more, or nobody takes them.
fn send_batches<T>(
    items: impl Iterator<Item = T>,
    weight_of: impl Fn(&T) -> usize,
    batch_weight: usize,
    sender: &Sender<VecDeque<T>>,
    spares: &Receiver<VecDeque<T>>,
) {
    let mut items = items.fuse();
    loop {
        let (mut batch, mut weight) = (spares.try_recv().unwrap_or_default(), 0);
        while weight < batch_weight
            && let Some(item) = items.next()
        {
            weight += weight_of(&item);
            batch.push_back(item);
        }
        if batch.is_empty() || sender.send(batch).is_err() {
            return;
        }
    }
}

/// Calls `each` with all items in order, up to the first error of either side. `items` is called in
/// the thread that runs ahead, which ends before this returns; it is ahead by at most `batches_max`
/// batches of `batch_len` items, and the batch being made.
pub fn for_each<I, T, E>(
    items: impl FnOnce() -> Result<I, E> + Send,
    batch_len: usize,
    batches_max: usize,
    mut each: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E>
where
    I: Iterator<Item = Result<T, E>>,
    T: Send,
    E: Send,
{
    let (sender, batches) = bounded::<VecDeque<Result<T, E>>>(batches_max);
    let (spare, spares) = bounded(batches_max);
    let make = move || match items() {
        Ok(mut items) => {
            let mut failed = false;
            let items = std::iter::from_fn(|| {
                let item = if failed { None } else { items.next() };
                failed |= item.as_ref().is_some_and(Result::is_err);
                item
            });
            send_batches(items, |_| 1, batch_len, &sender, &spares);
        }
        Err(error) => {
            let _nobody_takes_it = sender.send(VecDeque::from([Err(error)]));
        }
    };
    std::thread::scope(|scope| {
        let making = scope.spawn(make);
        for mut batch in batches {
            for item in batch.drain(..) {
                each(item?)?;
            }
            let _more_than_needed_are_freed = spare.try_send(batch);
        }
        match making.join() {
            Ok(()) => Ok(()),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

impl<T> Iterator for Ahead<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        loop {
            if let Some(item) = self.batch.pop_front() {
                return Some(item);
            }
            match self.batches.as_ref()?.recv() {
                Ok(batch) => {
                    let empty = std::mem::replace(&mut self.batch, batch);
                    let _more_than_needed_are_freed = self.spare.try_send(empty);
                }
                Err(_) => {
                    self.batches = None;
                    if let Some(thread) = self.thread.take()
                        && let Err(panic) = thread.join()
                    {
                        std::panic::resume_unwind(panic);
                    }
                    return None;
                }
            }
        }
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn heavy_items_go_alone_and_light_ones_together() {
        let items = [9, 1, 2, 3, 50, 1].into_iter();
        let mut ahead = Ahead::start_weighed(items, |item| *item, 6, 2);
        let mut batches = Vec::new();
        while let Some(first) = ahead.next() {
            let rest: Vec<usize> = ahead.batch.drain(..).collect();
            batches.push([vec![first], rest].concat());
        }
        assert_eq!(batches, [vec![9], vec![1, 2, 3], vec![50], vec![1]]);
    }

    #[test]
    fn items_come_in_order_and_no_more_are_made_than_allowed() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = made.clone();
        let items = (0..10_000).inspect(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let mut ahead = Ahead::start(items, 10, 2);
        for expected in 0..1000 {
            assert_eq!(ahead.next(), Some(expected));
            // The batch at hand, two that wait, one being sent.
            assert!(made.load(Ordering::SeqCst) <= expected + 10 + 40);
        }
        drop(ahead);
        assert!(made.load(Ordering::SeqCst) < 1100);
    }

    #[test]
    fn the_first_error_of_either_side_comes_in_its_turn_and_ends_both() {
        let made = AtomicUsize::new(0);
        let items = || {
            Ok((0..10_000).map(|item| {
                made.fetch_add(1, Ordering::SeqCst);
                if item == 500 { Err(item) } else { Ok(item) }
            }))
        };
        let mut taken = 0;
        let result = for_each(items, 7, 2, |item| {
            assert_eq!(item, taken);
            taken += 1;
            Ok(())
        });
        assert_eq!((result, taken), (Err(500), 500));
        assert_eq!(made.swap(0, Ordering::SeqCst), 501);
        let result = for_each(
            items,
            7,
            2,
            |item| if item == 50 { Err(50) } else { Ok(()) },
        );
        assert_eq!(result, Err(50));
        // The batch at hand, two that wait, one being made.
        assert!(made.load(Ordering::SeqCst) <= 51 + 4 * 7);
        let none: Result<std::iter::Empty<Result<(), u8>>, u8> = Err(3);
        assert_eq!(for_each(|| none, 7, 2, |()| Ok(())), Err(3));
        let all = for_each(|| Ok((0..100).map(Ok::<_, u8>)), 7, 2, |_| Ok(()));
        assert_eq!(all, Ok(()));
    }

    #[test]
    #[should_panic(expected = "in the middle")]
    fn a_panic_in_the_thread_ends_the_call() {
        let items = || {
            Ok((0..100)
                .inspect(|item| assert!(*item < 50, "in the middle"))
                .map(Ok))
        };
        let _ = for_each::<_, _, u8>(items, 7, 2, |_| Ok(()));
    }

    #[test]
    #[should_panic(expected = "in the middle")]
    fn a_panic_in_the_thread_is_not_taken_for_the_end() {
        let items = (0..100).inspect(|item| assert!(*item < 50, "in the middle"));
        let _ = Ahead::start(items, 7, 2).count();
    }
}
