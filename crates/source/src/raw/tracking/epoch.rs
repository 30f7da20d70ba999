//! What changed on a tracked device since an epoch, and epochs as a basis of snapshots.
//!
//! An epoch is a number that only grows, and each block has that of the last write to it. A backup
//! begins an epoch, waits until no program runs any more that may have seen the one before, and
//! only then looks at marks and reads the device. So whatever it does not see ends later, and is
//! marked with its epoch or a later one: its snapshot records the epoch, and what changed after it
//! are the blocks of that epoch and all later ones. Nothing is ever taken back or reset: a run that
//! is killed leaves a number that nobody uses, and several repositories each have epochs of their
//! own.
//!
//! It does not matter of which moments the bytes are that the backup reads, if it reads after the
//! epoch began: so a snapshot of a mounted device, fuzzy as it is, is gone on from.

use super::super::block_ranges::BlockRanges;
use super::super::changes::{ChangeTracker, Changes};
use super::disk::DiskFacts;
use super::pins::Pinned;
use super::program::{
    DISK, DISK_SEQUENCE, DOUBT, EPOCH, EPOCH_IDS, EPOCH_IDS_MAX, FIRST_SECTOR, SECTOR_BYTES,
    SECTORS, STRETCH_BLOCKS_LOG2, SWITCHED, TRACKING_ID,
};
use bale_format::extent::IMAGE_BLOCK_BYTES;
use bale_sys::bpf::{monotonic_nanos, wait_for_programs};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Changed ranges that are held: where there are more, neighbours become one.
const RANGES_MAX: usize = 1 << 17;

/// What a snapshot records for the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EpochBasis {
    /// Of the machine's start.
    pub(super) boot: String,
    pub(super) tracking: u64,
    pub(super) epoch: u64,
    /// Events missed before it began.
    pub(super) misses: u64,
    /// Where the device begins on its disk.
    pub(super) first_sector: u64,
    /// Random. A machine whose memory is set back begins epochs of the same numbers again, which
    /// are others.
    pub(super) id: u64,
}

impl EpochBasis {
    pub(super) fn parse(text: &str) -> Option<EpochBasis> {
        let mut parts = text.split('/');
        let boot = parts.next()?.to_owned();
        let tracking = u64::from_str_radix(parts.next()?, 16).ok()?;
        let mut number = || parts.next()?.parse().ok();
        let (epoch, misses, first_sector) = (number()?, number()?, number()?);
        let id = u64::from_str_radix(parts.next()?, 16).ok()?;
        parts.next().is_none().then_some(EpochBasis {
            boot,
            tracking,
            epoch,
            misses,
            first_sector,
            id,
        })
    }

    pub(super) fn text(&self) -> String {
        let EpochBasis {
            boot,
            tracking,
            epoch,
            misses,
            first_sector,
            id,
        } = self;
        format!("{boot}/{tracking:016x}/{epoch}/{misses}/{first_sector}/{id:016x}")
    }
}

/// The epoch that a backup began on a device, or why there is none to rely on.
pub struct EpochTracker(Result<Epoch, String>);

struct Epoch {
    pinned: Pinned,
    basis: EpochBasis,
    /// Of the device, on its disk.
    sectors: Range<u64>,
}

impl EpochTracker {
    pub(super) fn of_nothing(why: String) -> EpochTracker {
        EpochTracker(Err(why))
    }

    /// Begins an epoch of what is tracked at `device`, for a backup of a part of it or all: the
    /// facts of that part, and those of what is tracked. What is in memory alone is to be written
    /// back before.
    pub(super) fn begin(device: (u32, u32), of: (&DiskFacts, &DiskFacts), id: u64) -> Self {
        EpochTracker(Epoch::begin(device, of, id))
    }
}

/// What to do about it.
const RESTART: &str = " (bale track stop and start follow it as it is now)";

/// Why what is tracked is not what the device is now.
pub(super) fn mismatch(pinned: &Pinned, tracked: &DiskFacts) -> Option<String> {
    let first = pinned.word(FIRST_SECTOR);
    let disk = u64::from(tracked.disk.0) << 32 | u64::from(tracked.disk.1);
    let is_same = pinned.word(DISK) == disk && pinned.word(DISK_SEQUENCE) == tracked.sequence;
    if !is_same {
        return Some(format!("another disk has its name now{RESTART}"));
    }
    if (first..first + pinned.word(SECTORS)) != tracked.sectors {
        let text = "it is of another size now, or begins elsewhere";
        return Some(format!("{text}{RESTART}"));
    }
    None
}

impl Epoch {
    fn begin(
        device: (u32, u32),
        (facts, tracked): (&DiskFacts, &DiskFacts),
        id: u64,
    ) -> Result<Epoch, String> {
        let pinned = Pinned::open(device)?;
        if let Some(why) = mismatch(&pinned, tracked) {
            return Err(why);
        }
        let text = |error: io::Error| error.to_string();
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(text)?;
        // Before the epoch begins: one that is missed from here on counts for the next backup.
        let misses = pinned.misses().map_err(text)?;
        let control = pinned.control.words();
        control[SWITCHED].fetch_max(monotonic_nanos(), Ordering::SeqCst);
        let epoch = control[EPOCH].fetch_add(1, Ordering::SeqCst) + 1;
        control[place_of_id(epoch)].store(id, Ordering::SeqCst);
        wait_for_programs().map_err(|error| format!("the epoch could not begin: {error}"))?;
        let basis = EpochBasis {
            boot: boot.trim().to_owned(),
            tracking: pinned.word(TRACKING_ID),
            epoch,
            misses,
            first_sector: facts.sectors.start,
            id,
        };
        Ok(Epoch {
            pinned,
            basis,
            sectors: facts.sectors.clone(),
        })
    }

    fn changed_since(&self, basis: &str) -> Result<Vec<Range<u64>>, String> {
        let unknown = || "the snapshot before names no epoch of it".to_owned();
        let before = EpochBasis::parse(basis).ok_or_else(unknown)?;
        if before.tracking != self.basis.tracking {
            return Err(match before.boot == self.basis.boot {
                false => "the machine was started again since the snapshot before",
                true => "tracking was stopped and started again since the snapshot before",
            }
            .to_owned());
        }
        if before.epoch == 0 || before.epoch >= self.basis.epoch {
            return Err(unknown());
        }
        if self.basis.epoch - before.epoch >= EPOCH_IDS_MAX {
            return Err(format!(
                "{EPOCH_IDS_MAX} backups began since the snapshot before"
            ));
        }
        if self.pinned.word(place_of_id(before.epoch)) != before.id {
            return Err("the machine's memory was set back since the snapshot before".to_owned());
        }
        if before.first_sector != self.basis.first_sector {
            return Err("it begins elsewhere on its disk now".to_owned());
        }
        let misses = self.pinned.misses().map_err(|error| error.to_string())?;
        if misses != before.misses {
            let missed = misses.wrapping_sub(before.misses);
            return Err(format!("the kernel passed over {missed} of its events"));
        }
        if self.pinned.word(DOUBT) >= before.epoch {
            return Err("a discard of several places was under way at a backup".to_owned());
        }
        let found = changed_blocks(&self.pinned, &self.sectors, before.epoch);
        found.map_err(|error| error.to_string())
    }
}

/// In the control entry.
fn place_of_id(epoch: u64) -> usize {
    EPOCH_IDS + (epoch % EPOCH_IDS_MAX) as usize
}

/// Ranges of a device that were marked in an epoch or later; `sectors` is where it is on its disk.
pub(super) fn changed_blocks(
    pinned: &Pinned,
    sectors: &Range<u64>,
    epoch: u64,
) -> io::Result<Vec<Range<u64>>> {
    let (blocks, stretches) = pinned.marks()?;
    let (blocks, stretches) = (blocks.words(), stretches.words());
    let since = |mark: &std::sync::atomic::AtomicU64| mark.load(Ordering::Relaxed) >= epoch;
    // Of the device, from the first byte that is tracked on.
    let first = (sectors.start - pinned.word(FIRST_SECTOR)) * SECTOR_BYTES;
    let end = first + (sectors.end - sectors.start) * SECTOR_BYTES;
    let mut ranges = BlockRanges::within(RANGES_MAX);
    for (number, mark) in blocks.iter().enumerate() {
        let is_in_stretch = || since(&stretches[number >> STRETCH_BLOCKS_LOG2]);
        if !since(mark) && !is_in_stretch() {
            continue;
        }
        let start = number as u64 * IMAGE_BLOCK_BYTES;
        let (start, end) = (start.max(first), (start + IMAGE_BLOCK_BYTES).min(end));
        if start < end {
            ranges.push(start - first..end - first);
        }
    }
    Ok(ranges.finish())
}

impl ChangeTracker for EpochTracker {
    fn name(&self) -> &'static str {
        "ebpf"
    }

    fn changed_since(&mut self, basis: Option<&str>) -> Changes {
        let epoch = match &self.0 {
            Ok(epoch) => epoch,
            Err(why) => return Changes::Everything(why.clone()),
        };
        let Some(basis) = basis else {
            return Changes::Everything("the snapshot before has no epoch".to_owned());
        };
        match epoch.changed_since(basis) {
            Ok(ranges) => Changes::Ranges(ranges),
            Err(why) => Changes::Everything(why),
        }
    }

    fn next_basis(&self) -> Option<String> {
        self.0.as_ref().ok().map(|epoch| epoch.basis.text())
    }

    fn allows_fuzzy(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_basis_is_read_as_it_was_written_and_nothing_else_is_one() {
        let basis = EpochBasis {
            boot: "6d1c".to_owned(),
            tracking: 0x0123_4567_89ab_cdef,
            epoch: 17,
            misses: 3,
            first_sector: 2048,
            id: 0xfedc,
        };
        assert_eq!(
            basis.text(),
            "6d1c/0123456789abcdef/17/3/2048/000000000000fedc"
        );
        assert_eq!(EpochBasis::parse(&basis.text()), Some(basis));
        for text in [
            "",
            "6d1c/1/17/3",
            "6d1c/1/17/3/2048",
            "6d1c/1/17/3/2048/1/1",
            "6d1c/x/17/3/2048/1",
            "a/1/-1/3/4/5",
        ] {
            assert_eq!(EpochBasis::parse(text), None, "{text}");
        }
    }
}
