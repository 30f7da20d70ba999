//! How large packs become, and how many are uploaded at a time: what the store takes, within the
//! memory that there is.
//!
//! A store that takes the bytes of a pack as they come costs no memory for them. For one that wants
//! the name first a pack is whole in memory until it is durable, so packs are smaller there, and
//! their sum is part of what `bale_engine::limits` proves.

use crate::limits::{
    PACK_BYTES_LEAST_MEMORY, PACK_BYTES_MAX, PACK_BYTES_MIN, PACK_BYTES_STREAMED, PACK_BYTES_WHOLE,
    PACK_BYTES_WHOLE_USUAL, UPLOADS_MAX, local_writers_bytes,
};
use crate::store::StoreShape;
use bale_format::limits::BUNDLE_BYTES_MAX;
use bale_format::record::record_bytes;
use bale_pipeline::memory::{
    MEMORY_BYTES_MIN, MEMORY_BYTES_USUAL, MemoryPlan, WORKER_BYTES, WORKERS_USUAL,
};

/// Of the memory of a pack of data, what one of metadata takes.
const METADATA_PART: usize = 4;
/// A segment of a catalog, as a rule.
const METADATA_CHUNK_BYTES: usize = 3 << 20;
/// What a pack may have beside its chunks, with the trailer of as many as fit.
const TRAILER_ROOM_BYTES: usize = 256 << 10;

/// How packs are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackPlan {
    pack_bytes: u64,
    /// 0: they are streamed.
    uploads_max: usize,
}

impl PackPlan {
    /// What suits a store.
    pub const fn of(shape: StoreShape, memory: &MemoryPlan) -> PackPlan {
        match shape {
            StoreShape::Streams => PackPlan {
                pack_bytes: PACK_BYTES_STREAMED,
                uploads_max: 0,
            },
            StoreShape::Whole { uploads_max } => PackPlan::whole(uploads_max, memory),
        }
    }

    /// Packs of this size. An error says how much memory they would need.
    pub const fn of_size(
        pack_bytes: u64,
        shape: StoreShape,
        memory: &MemoryPlan,
    ) -> Result<PackPlan, usize> {
        assert!(PACK_BYTES_MIN <= pack_bytes && pack_bytes <= PACK_BYTES_MAX);
        let StoreShape::Whole { uploads_max } = shape else {
            return Ok(PackPlan {
                pack_bytes,
                uploads_max: 0,
            });
        };
        let mut uploads = uploads_max;
        // More than the usual number only of small ones.
        while uploads > UPLOADS_MAX && among(PACK_BYTES_WHOLE_USUAL, uploads) < pack_bytes {
            uploads -= 1;
        }
        while uploads > 0 {
            let plan = PackPlan {
                pack_bytes,
                uploads_max: uploads,
            };
            if plan.leaves(least_of(memory), memory) {
                return Ok(plan);
            }
            uploads -= 1;
        }
        let single = PackPlan {
            pack_bytes,
            uploads_max: 1,
        };
        let usual = PackPlan::whole(1, memory);
        if single.bytes() <= usual.bytes() {
            return Ok(single);
        }
        Err(least_of(memory) + single.memory_bytes(memory.workers()))
    }

    /// The largest that leave the usual memory to everything else, or as many of the usual ones as
    /// leave the least.
    const fn whole(uploads_max: usize, memory: &MemoryPlan) -> PackPlan {
        let workers_more = memory.workers().saturating_sub(WORKERS_USUAL);
        let usual = MEMORY_BYTES_USUAL + workers_more * WORKER_BYTES;
        let large = PackPlan {
            pack_bytes: among(PACK_BYTES_WHOLE, uploads_max),
            uploads_max,
        };
        if large.leaves(usual, memory) {
            return large;
        }
        let mut uploads = uploads_max;
        while uploads > 0 {
            let plan = PackPlan {
                pack_bytes: among(PACK_BYTES_WHOLE_USUAL, uploads),
                uploads_max: uploads,
            };
            if plan.leaves(least_of(memory), memory) {
                return plan;
            }
            uploads -= 1;
        }
        PackPlan {
            pack_bytes: PACK_BYTES_LEAST_MEMORY,
            uploads_max: 1,
        }
    }

    /// A pack of data is published at this size.
    pub const fn pack_bytes(&self) -> u64 {
        self.pack_bytes
    }

    /// A pack of metadata is. Of what is gathered in memory there is one beside that of data.
    pub const fn metadata_pack_bytes(&self) -> u64 {
        match self.uploads_max {
            0 => self.pack_bytes,
            _ => self.pack_bytes / METADATA_PART as u64,
        }
    }

    /// Packs on their way at a time at most; `None`: they are streamed.
    pub const fn uploads_max(&self) -> Option<usize> {
        match self.uploads_max {
            0 => None,
            uploads => Some(uploads),
        }
    }

    /// Memory of all packs: one open, those on their way, and the open one of metadata.
    pub const fn bytes(&self) -> usize {
        if self.uploads_max == 0 {
            return 0;
        }
        let metadata = self.metadata_pack_bytes() as usize;
        let metadata = TRAILER_ROOM_BYTES + max(metadata, METADATA_CHUNK_BYTES);
        whole_bytes(self.pack_bytes()) * (1 + self.uploads_max) + metadata
    }

    /// What they take more than packs that are streamed to local disks.
    pub const fn memory_bytes(&self, workers: usize) -> usize {
        self.bytes().saturating_sub(local_writers_bytes(workers))
    }

    /// What is left to everything else.
    pub const fn beside(&self, memory: &MemoryPlan) -> MemoryPlan {
        match self.uploads_max {
            0 => *memory,
            _ => memory.beside(self.memory_bytes(memory.workers())),
        }
    }

    const fn leaves(&self, bytes: usize, memory: &MemoryPlan) -> bool {
        memory.bytes() >= bytes + self.memory_bytes(memory.workers())
    }
}

/// A pack in memory: a chunk that does not fit makes another pack, so it is one chunk or less than
/// the size.
pub(super) const fn whole_bytes(pack_bytes: u64) -> usize {
    TRAILER_ROOM_BYTES + max(pack_bytes as usize, record_bytes(BUNDLE_BYTES_MAX))
}

/// The size of packs of which more than usual are on their way: all of them, with the open one,
/// take no more.
const fn among(pack_bytes: u64, uploads: usize) -> u64 {
    if uploads <= UPLOADS_MAX {
        return pack_bytes;
    }
    const MEBIBYTE: u64 = 1 << 20;
    let all = pack_bytes * (1 + UPLOADS_MAX as u64);
    all / (1 + uploads as u64) / MEBIBYTE * MEBIBYTE
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// With less everything else would not work.
const fn least_of(memory: &MemoryPlan) -> usize {
    MEMORY_BYTES_MIN + (memory.workers() - 1) * WORKER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: StoreShape = StoreShape::Whole { uploads_max: 3 };

    fn of(mebibytes: usize) -> (u64, Option<usize>) {
        let memory = MemoryPlan::new(mebibytes << 20, 2).expect("enough");
        let plan = PackPlan::of(WHOLE, &memory);
        (plan.pack_bytes() >> 20, plan.uploads_max())
    }

    #[test]
    fn packs_are_smaller_and_fewer_with_less_memory() {
        assert_eq!(of(1024), (32, Some(3)));
        assert_eq!(of(256), (16, Some(3)));
        assert_eq!(of(192), (16, Some(3)));
        assert_eq!(of(160), (16, Some(1)));
        assert_eq!(of(128), (6, Some(1)));
        let usual = PackPlan::of(WHOLE, &MemoryPlan::USUAL);
        assert_eq!(
            (usual.pack_bytes(), usual.uploads_max()),
            (16 << 20, Some(3))
        );
    }

    #[test]
    fn more_packs_on_their_way_are_smaller_and_take_no_more_memory() {
        for mebibytes in (128..2048).step_by(16) {
            let memory = MemoryPlan::new(mebibytes << 20, 2).expect("enough");
            let usual = PackPlan::of(WHOLE, &memory);
            let of_many = PackPlan::of(StoreShape::Whole { uploads_max: 5 }, &memory);
            let room_for_trailers = 2 * TRAILER_ROOM_BYTES;
            assert!(
                of_many.bytes() <= usual.bytes() + room_for_trailers,
                "{mebibytes} {usual:?} {of_many:?}"
            );
            assert!(of_many.uploads_max() >= usual.uploads_max());
        }
        let plan = PackPlan::of(StoreShape::Whole { uploads_max: 5 }, &MemoryPlan::USUAL);
        assert_eq!((plan.pack_bytes(), plan.uploads_max()), (10 << 20, Some(5)));
    }

    #[test]
    fn what_is_streamed_takes_nothing_of_the_plan() {
        let memory = MemoryPlan::new(128 << 20, 2).expect("enough");
        let plan = PackPlan::of(StoreShape::Streams, &memory);
        assert_eq!((plan.pack_bytes(), plan.bytes()), (64 << 20, 0));
        let plan = PackPlan::of_size(128 << 20, StoreShape::Streams, &memory);
        assert_eq!(plan.map(|plan| plan.beside(&memory)), Ok(memory));
    }

    #[test]
    fn packs_that_do_not_fit_say_what_they_need() {
        let memory = MemoryPlan::new(256 << 20, 2).expect("enough");
        let plan = PackPlan::of_size(4 << 20, WHOLE, &memory).expect("it fits");
        assert_eq!(plan.uploads_max(), Some(3));
        let plan = PackPlan::of_size(32 << 20, WHOLE, &memory).expect("it fits");
        assert_eq!(plan.uploads_max(), Some(1));
        let needed = PackPlan::of_size(128 << 20, WHOLE, &memory).expect_err("too large");
        let memory = MemoryPlan::new(needed, 2).expect("enough");
        assert!(PackPlan::of_size(128 << 20, WHOLE, &memory).is_ok());
        for mebibytes in 128..300 {
            let memory = MemoryPlan::new(mebibytes << 20, 8).expect("enough");
            let usual = PackPlan::of(WHOLE, &memory);
            for size in [4 << 20, usual.pack_bytes()] {
                let plan = PackPlan::of_size(size, WHOLE, &memory).expect("not more than usual");
                assert!(
                    plan.bytes() <= usual.bytes().max(96 << 20),
                    "{mebibytes} {plan:?}"
                );
            }
        }
    }
}
