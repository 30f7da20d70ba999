//! What an operation may take of memory: one plan, made from one size and handed down.
//!
//! Windows, buckets, buffers of sorts and threads are parts of it. Each part is named where it is
//! used, by what it is with the usual ceiling; `bale_engine::limits` adds them up and proves that
//! the sum stays below the ceiling. Beside it there is only what grows with what is stored: the
//! index of chunks.

/// With less than this a plan is refused: below lie the derivation of the key from a password, one
/// encoding thread with its chunk, and the program itself.
pub const MEMORY_BYTES_MIN: usize = 128 << 20;
/// Ceiling for everything but a backup by inodes, on a machine of two processors.
pub const MEMORY_BYTES_USUAL: usize = 256 << 20;
/// Ceiling for a backup by inodes, on the same.
pub const INODE_MEMORY_BYTES_USUAL: usize = 320 << 20;
/// The same where packs are whole in memory until a server has them.
pub const INODE_MEMORY_BYTES_REMOTE: usize = 384 << 20;
/// What one more thread takes that encodes, reads or writes chunks.
pub const WORKER_BYTES: usize = 40 << 20;
/// Threads that encode within the usual ceiling.
pub const WORKERS_USUAL: usize = 2;
/// Threads that encode: more would only wait for the store.
pub const WORKERS_MAX: usize = 8;

/// What an operation may take of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    bytes: usize,
    inode_bytes: usize,
    workers: usize,
    /// A part was taken out by [`MemoryPlan::beside`].
    is_rest: bool,
}

impl Default for MemoryPlan {
    fn default() -> MemoryPlan {
        MemoryPlan::USUAL
    }
}

impl MemoryPlan {
    /// Of a machine of two processors.
    pub const USUAL: MemoryPlan = MemoryPlan::of_machine(WORKERS_USUAL);

    /// The usual ceilings, and room for as many more threads as there are processors.
    pub const fn of_machine(processors: usize) -> MemoryPlan {
        let workers = clamp(processors, WORKERS_USUAL, WORKERS_MAX);
        let more = (workers - WORKERS_USUAL) * WORKER_BYTES;
        MemoryPlan {
            bytes: MEMORY_BYTES_USUAL + more,
            inode_bytes: INODE_MEMORY_BYTES_USUAL + more,
            workers,
            is_rest: false,
        }
    }

    /// A ceiling for everything. `None`: it is below [`MEMORY_BYTES_MIN`].
    pub const fn new(bytes: usize, processors: usize) -> Option<MemoryPlan> {
        if bytes < MEMORY_BYTES_MIN {
            return None;
        }
        let workers = match bytes.checked_sub(INODE_MEMORY_BYTES_USUAL) {
            None if bytes < MEMORY_BYTES_USUAL => 1,
            None => WORKERS_USUAL,
            Some(more) => WORKERS_USUAL + more / WORKER_BYTES,
        };
        let workers_max = clamp(processors, WORKERS_USUAL, WORKERS_MAX);
        Some(MemoryPlan {
            bytes,
            inode_bytes: bytes,
            workers: clamp(workers, 1, workers_max),
            is_rest: false,
        })
    }

    /// What is left to everything else by packs that take so much. On a machine whose memory nobody
    /// bounded, a backup by inodes has more for them.
    pub const fn beside(&self, taken_bytes: usize) -> MemoryPlan {
        let more = if self.inode_bytes > self.bytes {
            INODE_MEMORY_BYTES_REMOTE - INODE_MEMORY_BYTES_USUAL
        } else {
            0
        };
        MemoryPlan {
            bytes: self.bytes - taken_bytes,
            inode_bytes: self.inode_bytes + more - taken_bytes,
            workers: self.workers,
            is_rest: true,
        }
    }

    /// The ceiling for everything but a backup by inodes.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The ceiling for a backup by inodes.
    pub const fn inode_bytes(&self) -> usize {
        self.inode_bytes
    }

    /// Threads that encode; twice as many make files.
    pub const fn workers(&self) -> usize {
        self.workers
    }

    /// The part that takes so many bytes with the usual ceiling: that with more, too, and a quarter
    /// of it with the least.
    pub const fn share(&self, usual_bytes: usize) -> usize {
        self.share_from(least(usual_bytes, self.windows_bytes().0), usual_bytes)
    }

    /// The same of a backup by inodes.
    pub const fn inode_share(&self, usual_bytes: usize) -> usize {
        self.inode_share_from(
            least(usual_bytes, self.inode_windows_bytes().0),
            usual_bytes,
        )
    }

    /// The part that is `usual` with the usual ceiling, and with the least not a quarter of it but
    /// `least`.
    pub const fn share_from(&self, least: usize, usual: usize) -> usize {
        let (bytes, usual_bytes) = self.windows_bytes();
        between(least, usual, bytes, usual_bytes)
    }

    /// The same of a backup by inodes.
    pub const fn inode_share_from(&self, least: usize, usual: usize) -> usize {
        let (bytes, usual_bytes) = self.inode_windows_bytes();
        between(least, usual, bytes, usual_bytes)
    }

    /// What shares are in proportion to: what there is, and what there usually is.
    const fn windows_bytes(&self) -> (usize, usize) {
        if !self.is_rest {
            return (self.bytes, MEMORY_BYTES_USUAL);
        }
        // One thread, as in a plan of one; of more, only windows are in proportion.
        if self.workers == 1 {
            return (self.bytes, MEMORY_BYTES_USUAL);
        }
        let threads = (self.workers - 1) * WORKER_BYTES;
        let usual_threads = (WORKERS_USUAL - 1) * WORKER_BYTES;
        (self.bytes - threads, MEMORY_BYTES_USUAL - usual_threads)
    }

    const fn inode_windows_bytes(&self) -> (usize, usize) {
        // What further threads take is not there for the rest.
        let threads = (self.workers - 1) * WORKER_BYTES;
        let usual_threads = (WORKERS_USUAL - 1) * WORKER_BYTES;
        let usual = INODE_MEMORY_BYTES_USUAL - usual_threads;
        (self.inode_bytes - threads, usual)
    }
}

/// A quarter; less of it where packs leave less than the least.
const fn least(usual_bytes: usize, bytes: usize) -> usize {
    let quarter = usual_bytes / 4;
    if bytes >= MEMORY_BYTES_MIN {
        return quarter;
    }
    let missing = (MEMORY_BYTES_MIN - bytes) as u64;
    // 27 bits at most.
    quarter - (quarter as u64 * missing / LEAST_SPAN_BYTES) as usize
}

/// Missing so much, shares would be nothing.
const LEAST_SPAN_BYTES: u64 = 26 << 20;

/// In proportion to what there is above the least memory.
const fn between(least: usize, usual: usize, bytes: usize, usual_bytes: usize) -> usize {
    if bytes >= usual_bytes {
        return usual;
    }
    if bytes <= MEMORY_BYTES_MIN {
        return least;
    }
    let span = (usual_bytes - MEMORY_BYTES_MIN) as u64;
    let above = (bytes - MEMORY_BYTES_MIN) as u64;
    // The span has 28 bits.
    least + ((usual - least) as u64 * above / span) as usize
}

const fn clamp(number: usize, least: usize, most: usize) -> usize {
    if number < least {
        least
    } else if number > most {
        most
    } else {
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_a_quarter_with_the_least_and_whole_with_the_usual_ceiling() {
        let least = MemoryPlan::new(MEMORY_BYTES_MIN, 2).unwrap();
        assert_eq!(least.share(32 << 20), 8 << 20);
        assert_eq!(least.inode_share(88 << 20), 22 << 20);
        assert_eq!(least.workers(), 1);
        assert_eq!(least.inode_share_from(1, 8), 1);
        assert_eq!((least.share_from(2, 4), least.share(4)), (2, 1));
        let middle = MemoryPlan::new(192 << 20, 64).unwrap();
        assert_eq!(middle.share(32 << 20), 20 << 20);
        let usual = MemoryPlan::new(MEMORY_BYTES_USUAL, 64).unwrap();
        assert_eq!((usual.share(12_345), usual.workers()), (12_345, 2));
        assert!(usual.inode_share(1 << 20) < 1 << 20);
        assert_eq!(
            (usual.share_from(2, 4), usual.inode_share_from(1, 4)),
            (4, 2)
        );
        let one_worker = MemoryPlan::new(MEMORY_BYTES_USUAL - 1, 64).unwrap();
        assert_eq!(
            (one_worker.workers(), one_worker.inode_share_from(1, 4)),
            (1, 3)
        );
        let much = MemoryPlan::new(1 << 30, 64).unwrap();
        assert_eq!(
            (much.share(32 << 20), much.workers()),
            (32 << 20, WORKERS_MAX)
        );
        assert_eq!(MemoryPlan::new(1 << 30, 1).unwrap().workers(), 2);
        assert_eq!(MemoryPlan::new(MEMORY_BYTES_MIN - 1, 8), None);
    }

    #[test]
    fn a_machine_of_more_processors_has_room_for_more_threads() {
        let plan = MemoryPlan::of_machine(4);
        assert_eq!(plan.workers(), 4);
        assert_eq!(plan.bytes(), MEMORY_BYTES_USUAL + 2 * WORKER_BYTES);
        assert_eq!(MemoryPlan::of_machine(1), MemoryPlan::USUAL);
        assert_eq!(MemoryPlan::of_machine(100).workers(), WORKERS_MAX);
    }
}
