//! Pushes small files into the kernel's cache while somebody reads those before them: whoever
//! reads them has its processor, and this one.
//!
//! What is pushed says nothing about whoever reads: some files are left for it to ask for
//! (`forward_rows::is_left_out`), and when it asks for others it was quicker, and is overtaken.

use crate::forward_rows::is_left_out;
use crate::limits::{LISTED_AT_ONCE, ORDERS_MAX, OVERTAKEN_BY, PUSHED_AT_ONCE};
use crate::tree::SnapshotTree;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// Gives the kernel a whole file: its number and its bytes. False: it wants no more.
pub type PushFile = Box<dyn Fn(u64, &[u8]) -> bool + Send>;

pub struct SmallFilePusher {
    /// For what is pushed before an answer. One at a time: it may wait for a page that waits for
    /// the answer of another thread.
    first: Mutex<PushFile>,
    rest: SyncSender<Range<u64>>,
    /// What was asked for last.
    asked: Arc<AtomicU64>,
}

impl SmallFilePusher {
    /// Its thread ends when it is dropped.
    pub fn start(
        tree: &Arc<SnapshotTree>,
        (first, rest): (PushFile, PushFile),
    ) -> io::Result<SmallFilePusher> {
        let (sender, orders) = sync_channel(ORDERS_MAX);
        let asked = Arc::new(AtomicU64::new(0));
        let (tree, seen) = (tree.clone(), asked.clone());
        let name = "push-ahead".to_owned();
        let thread = thread::Builder::new().name(name);
        thread.spawn(move || push_all(&tree, &orders, &seen, &rest))?;
        Ok(SmallFilePusher {
            first: Mutex::new(first),
            rest: sender,
            asked,
        })
    }

    /// A file is asked for, and will be answered next: has those behind it pushed, the first ones
    /// before this returns if they are next, so that whoever reads them does not come first.
    pub fn push_behind(&self, tree: &SnapshotTree, number: u64) {
        self.asked.store(number, Ordering::Relaxed);
        let Some(Range { start, end }) = tree.read_next(number) else {
            return;
        };
        let is_next = start <= number + PUSHED_AT_ONCE;
        let at_once = match is_next {
            true => PUSHED_AT_ONCE,
            false => 0,
        };
        self.push(tree, start..end, at_once);
    }

    /// A directory was listed to its end: has the small files in it pushed, if they are expected to
    /// be read, the first ones before this returns. The kernel has seen the last entry, so it knows
    /// them.
    pub fn push_listed(&self, tree: &SnapshotTree, directory: u64, cookie: u64) {
        if let Some(numbers) = tree.read_once_listed(directory, cookie) {
            self.push(tree, numbers, LISTED_AT_ONCE);
        }
    }

    fn push(&self, tree: &SnapshotTree, Range { start, end }: Range<u64>, at_once: u64) {
        let middle = end.min(start + at_once);
        if middle < end {
            // What is more than it can follow is asked for.
            let _ = self.rest.try_send(middle..end);
        }
        if start < middle
            && let Ok(push) = self.first.try_lock()
        {
            for number in (start..middle).filter(|number| !is_left_out(*number)) {
                tree.each_small(number..number + 1, &mut |number, bytes| push(number, bytes));
            }
        }
    }
}

fn push_all(
    tree: &SnapshotTree,
    orders: &Receiver<Range<u64>>,
    asked: &AtomicU64,
    push: &PushFile,
) {
    for order in orders {
        let mut number = order.start;
        let mut is_wanted = true;
        while is_wanted && number < order.end {
            let last = asked.load(Ordering::Relaxed);
            if order.contains(&last) && number <= last {
                number = last + OVERTAKEN_BY;
            }
            if number < order.end && !is_left_out(number) {
                tree.each_small(number..number + 1, &mut |number, bytes| {
                    is_wanted = push(number, bytes);
                    is_wanted
                });
            }
            number += 1;
        }
    }
}
