//! Times of inodes: what is wanted of an entry, and whether an inode has it, on file systems that
//! cannot hold every time.

use bale_format::{Entry, Time};
use rustix::fs::{Stat, Timespec, Timestamps, UTIME_OMIT};

/// What an inode gets of an entry. Without a time of last access, that of the restore stays.
pub fn timestamps_of(entry: &Entry) -> Timestamps {
    let timespec = |time: Time| Timespec {
        tv_sec: time.seconds,
        tv_nsec: i64::from(time.nanos.min(999_999_999)) as _,
    };
    let nothing = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_OMIT as _,
    };
    Timestamps {
        last_access: entry.atime.get().map_or(nothing, timespec),
        last_modification: timespec(entry.mtime),
    }
}

/// Outside of what every file system can hold: 1970 to 2038.
pub fn is_unusual(time: Time) -> bool {
    !(0..i64::from(i32::MAX)).contains(&time.seconds) || time.nanos > 999_999_999
}

/// The latest beginning of the times that a file system holds: a day into 1980, that of FAT.
const EARLIEST_SECONDS_MAX: i64 = 315_532_800 + 86_400;

/// May this be the mtime that an inode got from the entry? The kernel moves one that the file
/// system cannot hold to the first or the last that it can, and no further.
pub fn is_mtime_of(stat: &Stat, entry: &Entry) -> bool {
    let (seconds, nanos) = mtime_of(stat);
    let wanted = entry.mtime.seconds;
    let is_moved = match is_unusual(entry.mtime) {
        true if wanted < 0 => (wanted..=EARLIEST_SECONDS_MAX).contains(&seconds),
        true => (i64::from(i32::MAX)..=wanted).contains(&seconds),
        false => false,
    };
    (seconds, nanos) == (wanted, entry.mtime.nanos) || is_moved
}

/// The mtime of an inode, as an entry has it.
pub fn mtime_of(stat: &Stat) -> (i64, u32) {
    (stat.st_mtime, stat.st_mtime_nsec as u32)
}

/// Has an inode another mtime than its entry, or another atime than the entry asks for?
pub fn has_other_times(entry: &Entry, stat: &Stat) -> bool {
    let atime = (stat.st_atime, stat.st_atime_nsec as u32);
    let wanted = entry.atime.get();
    mtime_of(stat) != (entry.mtime.seconds, entry.mtime.nanos)
        || wanted.is_some_and(|wanted| atime != (wanted.seconds, wanted.nanos))
}
