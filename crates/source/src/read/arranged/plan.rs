//! Which files a window has, and where their bytes go.
//!
//! Planning takes a processor for a microsecond or more a file, before which nothing can be read:
//! so the first window is small, and each is planned while the one before is handed out. Where the
//! two orders have little in common a small window would cost a way over the whole device: it is
//! made as large as it may be then.

use super::reading::Stretches;
use super::sizes::WindowSizes;
use super::{HASH_BYTES, PlannedRead};
use bale_pipeline::beside::{Beside, Unwanted};
use bale_pipeline::spill::{Sorted, Sorter, unnamed_file};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

/// How much more the next window has.
const GROWTH: u64 = 8;

/// Plans one window after the other.
pub(super) struct Planner {
    wanted: Box<dyn Iterator<Item = PlannedRead> + Send>,
    spill: PathBuf,
    sizes: WindowSizes,
    /// Of the next window, as a rule.
    bytes: u64,
}

/// A window of which nothing is read yet.
pub(super) struct PlannedWindow {
    /// In the order of the catalog.
    pub(super) list: List,
    /// In the order in which they are read.
    pub(super) places: Sorted,
    pub(super) buckets: usize,
    /// Nothing more is wanted.
    pub(super) is_last: bool,
}

impl Planner {
    pub(super) fn new(
        wanted: Box<dyn Iterator<Item = PlannedRead> + Send>,
        spill: PathBuf,
        sizes: WindowSizes,
    ) -> Planner {
        Planner {
            wanted,
            spill,
            sizes,
            bytes: sizes.first_window_bytes,
        }
    }

    /// As many files as the next window holds; `None` if none are wanted any more.
    pub(super) fn next_window(&mut self, unwanted: &Unwanted) -> io::Result<Option<PlannedWindow>> {
        let most = (self.sizes.buckets_max as u64 - 1) * self.sizes.bucket_bytes;
        let mut bytes = self.bytes.min(most);
        let mut list = BufWriter::new(unnamed_file(&self.spill)?);
        let mut places = Sorter::new(&self.spill, self.sizes.sort_bytes);
        let mut stretches = Stretches::new(&self.sizes);
        let mut end = 0;
        let is_last = loop {
            if end >= bytes {
                if bytes == most || !stretches.are_scattered() {
                    break false;
                }
                bytes = most;
            }
            let Some(file) = self.wanted.next() else {
                break true;
            };
            if unwanted.is_said() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            list.write_all(&file.inode.to_le_bytes())?;
            list.write_all(&file.span.len.to_le_bytes())?;
            let (key, value) = stretches.record(file.span, end);
            places.push(&key, &value).map_err(io::Error::other)?;
            end += HASH_BYTES as u64 + u64::from(file.span.len);
        };
        self.bytes = self.bytes.saturating_mul(GROWTH);
        if places.records() == 0 {
            return Ok(None);
        }
        Ok(Some(PlannedWindow {
            list: List::read_from(list)?,
            places: places.finish().map_err(io::Error::other)?,
            buckets: end.div_ceil(self.sizes.bucket_bytes) as usize,
            is_last,
        }))
    }

    /// Plans the next window in a thread of its own.
    pub(super) fn ahead(mut self) -> io::Result<PlannedAhead> {
        Beside::start("plan", move |unwanted| {
            let planned = self.next_window(unwanted);
            (self, planned)
        })
    }
}

/// A window that is being planned, and who plans the one behind it.
pub(super) type PlannedAhead = Beside<(Planner, io::Result<Option<PlannedWindow>>)>;

/// Files in order: inode (8), length (4).
pub(super) struct List {
    file: BufReader<File>,
    /// The next one.
    pub(super) next: Option<(u64, u32)>,
}

impl List {
    fn read_from(written: BufWriter<File>) -> io::Result<List> {
        let mut file = written
            .into_inner()
            .map_err(io::IntoInnerError::into_error)?;
        file.seek(SeekFrom::Start(0))?;
        let mut list = List {
            file: BufReader::new(file),
            next: None,
        };
        list.advance()?;
        Ok(list)
    }

    pub(super) fn advance(&mut self) -> io::Result<()> {
        let mut record = [0; 12];
        self.next = match self.file.read_exact(&mut record) {
            Ok(()) => Some((
                u64::from_le_bytes(record[..8].try_into().expect("8 of 12 bytes")),
                u32::from_le_bytes(record[8..].try_into().expect("4 of 12 bytes")),
            )),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(error) => return Err(error),
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Span;
    use bale_pipeline::memory::{MEMORY_BYTES_MIN, MemoryPlan};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    const FILE_BYTES: u32 = 100_000;

    fn planner(wanted: impl Iterator<Item = PlannedRead> + Send + 'static) -> Planner {
        let least = MemoryPlan::new(MEMORY_BYTES_MIN, 1).unwrap();
        let sizes = WindowSizes::of(&least);
        Planner::new(Box::new(wanted), std::env::temp_dir(), sizes)
    }

    /// Files that lie so far from each other.
    fn files(count: u64, distance: u64) -> impl Iterator<Item = PlannedRead> + Send {
        (0..count).map(move |number| PlannedRead {
            inode: number + 12,
            span: Span {
                offset: number * distance,
                len: FILE_BYTES,
            },
        })
    }

    /// Files of each window.
    fn windows(mut planner: Planner) -> Vec<u64> {
        let mut counts = Vec::new();
        let mut next = 12;
        while let Some(mut window) = planner.next_window(&Unwanted::default()).unwrap() {
            let first = next;
            while let Some((inode, len)) = window.list.next {
                assert_eq!(
                    (inode, len),
                    (next, FILE_BYTES),
                    "in order, and none is lost"
                );
                next += 1;
                window.list.advance().unwrap();
            }
            let mut places = 0;
            while window.places.next_record().unwrap().is_some() {
                places += 1;
            }
            assert_eq!(places, next - first);
            counts.push(next - first);
            if window.is_last {
                assert!(planner.next_window(&Unwanted::default()).unwrap().is_none());
                break;
            }
        }
        counts
    }

    #[test]
    fn the_first_window_is_small_and_each_is_larger_than_the_one_before() {
        let planner = planner(files(5_000, 2 * u64::from(FILE_BYTES)));
        let sizes = planner.sizes;
        let most = (sizes.buckets_max as u64 - 1) * sizes.bucket_bytes;
        let record = u64::from(FILE_BYTES) + HASH_BYTES as u64;
        let first = sizes.first_window_bytes.div_ceil(record);
        let second = (sizes.first_window_bytes * GROWTH)
            .min(most)
            .div_ceil(record);
        assert!(first < second && first + second < 5_000, "{first} {second}");
        assert_eq!(windows(planner)[..2], [first, second]);
    }

    #[test]
    fn files_that_lie_here_and_there_are_read_in_windows_that_are_as_large_as_they_may_be() {
        // Every eighth file of the device is one of these.
        let planner = planner(files(6_000, 8 * u64::from(FILE_BYTES)));
        let sizes = planner.sizes;
        let most = (sizes.buckets_max as u64 - 1) * sizes.bucket_bytes;
        let all = most.div_ceil(u64::from(FILE_BYTES) + HASH_BYTES as u64);
        assert_eq!(windows(planner), [all, all, 6_000 - 2 * all]);
    }

    #[test]
    fn nothing_wanted_is_no_window_and_what_is_just_one_window_is_the_last() {
        assert_eq!(windows(planner(files(0, 0))), [0; 0]);
        assert_eq!(windows(planner(files(3, 4096))), [3]);
    }

    #[test]
    fn planning_ends_when_nobody_wants_the_window_any_more() {
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        // Of no bytes but its hash: a window of these would take long.
        let endless = std::iter::repeat_with(move || {
            std::thread::sleep(std::time::Duration::from_millis(1));
            PlannedRead {
                inode: counted.fetch_add(1, Ordering::Relaxed),
                span: Span { offset: 0, len: 0 },
            }
        });
        let ahead = planner(endless).ahead().unwrap();
        while asked.load(Ordering::Relaxed) < 3 {
            std::thread::yield_now();
        }
        drop(ahead);
        let then = asked.load(Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(asked.load(Ordering::Relaxed), then);
    }
}
